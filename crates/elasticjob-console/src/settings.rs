//! The settings of the console, and their file: `application.properties` of ElasticJob-UI 3.x.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use elasticjob::registry::Registry;
use elasticjob::trace::DataSource;
use java_properties::{LineContent, PropertiesIter};
use tokio::sync::watch;

use crate::stores::{self, DRIVERS};

/// The port of the manual. ElasticJob-UI 3.x has 8088 in its file, and a file wins.
const PORT: u16 = 8899;
/// The user and password of a fresh installation, as in ElasticJob-UI.
const DEFAULT_LOGIN: &str = "root";
/// Life of a login.
const TOKEN_LIFE: Duration = Duration::from_secs(3_600);
/// Life of a login by a link: the link is valid once, and the process lives as long as its terminal.
const OWN_TOKEN_LIFE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The folder of `Configurations.xml` below the home folder.
const FOLDER: &str = ".elasticjob-console";

/// What an account may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads and writes.
    Admin,
}

/// A user of the console.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// The name at login.
    pub username: String,
    /// The password, in plain text as in the file.
    pub password: String,
    /// What the user may do.
    pub role: Role,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("username", &self.username).field("role", &self.role).finish_non_exhaustive()
    }
}

/// The settings of a console.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Address and port. Port 0 is any free port.
    pub listen: SocketAddr,
    /// The users.
    pub accounts: Vec<Account>,
    /// Life of a login.
    pub token_life: Duration,
    /// The driver classes that a trace store may have; all that this program understands by default.
    pub drivers: BTreeSet<String>,
    /// The web origins whose pages may call the API from a browser; none by default.
    pub origins: BTreeSet<String>,
    /// The host names by which the console may be called; any by default, but on a loopback address.
    pub hosts: BTreeSet<String>,
    /// The trace store that is read while none is connected.
    pub default_store: Option<DataSource>,
    /// The folder of `Configurations.xml`.
    pub folder: PathBuf,
    /// The registry of the agent in whose process the console runs, if it does.
    pub own: Option<Own>,
}

/// The registry and the trace of the agent in whose process a console runs. They are the first registry center and the first trace
/// store of the console, and cannot be removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Own {
    /// The name of the registry center.
    pub name: String,
    /// The registry. The console does not close it.
    pub registry: Arc<dyn Registry>,
    /// Where the agent writes its event trace, now.
    pub store: watch::Receiver<Option<DataSource>>,
}

impl Own {
    /// Creates the center of an agent.
    pub fn new(
        name: impl Into<String>,
        registry: Arc<dyn Registry>,
        store: watch::Receiver<Option<DataSource>>,
    ) -> Own {
        Own { name: name.into(), registry, store }
    }
}

/// Where the settings come from.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Source<'a> {
    /// The text of `application.properties`.
    pub properties: Option<&'a str>,
    /// The port, before that of the file.
    pub port: Option<u16>,
    /// The address to listen on, before that of the file.
    pub address: Option<IpAddr>,
    /// The home folder.
    pub home: Option<&'a Path>,
}

impl<'a> Source<'a> {
    /// Creates the source of a console without a file.
    pub fn new(home: &'a Path) -> Source<'a> {
        Source { home: Some(home), ..Source::default() }
    }
}

/// A fault of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingsFault {
    /// The line of the file, if the setting is in it.
    pub line: Option<usize>,
    /// The key, its value and the expectation.
    pub text: String,
}

impl fmt::Display for SettingsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// The keys of the file that have an effect here. `casdoor.*` and those of Spring itself are ignored.
const KEYS: [&str; 15] = [
    "server.port",
    "server.address",
    "auth.username",
    "auth.password",
    "auth.root_username",
    "auth.root_password",
    "auth.guest_username",
    "auth.guest_password",
    "auth.token_expires_after_seconds",
    "dynamic.datasource.allowed-driver-classes",
    "spring.datasource.default.url",
    "spring.datasource.default.username",
    "spring.datasource.default.password",
    "console.allowed-origins",
    "console.allowed-hosts",
];
/// The first parts of keys that belong to the console: an unknown key that begins with one is a fault.
const OURS: [&str; 4] = ["auth.", "console.", "dynamic.datasource.", "server."];

/// The lines of a file: number, key and value.
struct Lines(Vec<(usize, String, String)>);

impl Lines {
    /// Returns the value of the first of these keys that has one, with its line and key.
    fn get<'k>(&self, keys: &[&'k str]) -> Option<(usize, &'k str, &str)> {
        keys.iter().find_map(|wanted| {
            let found = self.0.iter().rev().find(|(_, key, value)| key == wanted && !value.trim().is_empty());
            found.map(|(line, _, value)| (*line, *wanted, value.trim()))
        })
    }
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// Every fault: a value that is invalid, an unknown key of the console, the default password on an address that other hosts can
    /// reach.
    pub fn read(source: &Source<'_>) -> Result<Settings, Vec<SettingsFault>> {
        let mut faults = Vec::new();
        let lines = lines(source.properties.unwrap_or_default(), &mut faults);
        let mut fault = |line: usize, text: String| faults.push(SettingsFault { line: Some(line), text });
        for (line, key, _) in &lines.0 {
            if OURS.iter().any(|part| key.starts_with(part)) && !KEYS.contains(&key.as_str()) {
                fault(*line, format!("unknown key `{key}`; expected one of {}", KEYS.join(", ")));
            }
        }
        let port = lines.get(&["server.port"]).map(|(line, key, value)| {
            value.parse().unwrap_or_else(|_| {
                fault(line, format!("key {key}: `{value}` is not a port, 0 to 65535"));
                PORT
            })
        });
        let address = lines.get(&["server.address"]).and_then(|(line, key, value)| match value.parse() {
            Ok(address) => Some((line, address)),
            Err(_) => {
                fault(line, format!("key {key}: `{value}` is not an IP address"));
                None
            }
        });
        let life = lines.get(&["auth.token_expires_after_seconds"]).map(|(line, key, value)| match value.parse() {
            Ok(seconds @ 1..=31_536_000) => Duration::from_secs(seconds),
            _ => {
                fault(line, format!("key {key}: `{value}` is not a number of seconds from 1 to 31536000"));
                TOKEN_LIFE
            }
        });
        let text = |keys: &[&str]| lines.get(keys).map(|(_, _, value)| value.to_owned());
        let admin = Account {
            username: text(&["auth.username", "auth.root_username"]).unwrap_or_else(|| DEFAULT_LOGIN.to_owned()),
            password: text(&["auth.password", "auth.root_password"]).unwrap_or_else(|| DEFAULT_LOGIN.to_owned()),
            role: Role::Admin,
        };
        let has_default_password = admin.password == DEFAULT_LOGIN;
        let mut accounts = vec![admin];
        if let Some((line, key, username)) = lines.get(&["auth.guest_username"]) {
            match text(&["auth.guest_password"]) {
                Some(password) if username != accounts[0].username => {
                    accounts.push(Account { username: username.to_owned(), password, role: Role::Viewer });
                }
                Some(_) => fault(line, format!("key {key}: `{username}` is the name of the administrator already")),
                None => fault(line, format!("key {key} needs auth.guest_password")),
            }
        }
        let drivers = lines.get(&["dynamic.datasource.allowed-driver-classes"]);
        let drivers = drivers.map_or_else(all_drivers, |(line, key, value)| match driver_set(value) {
            Some(drivers) => drivers,
            None => {
                fault(line, format!("key {key}: `{value}` is not a set such as {{'org.postgresql.Driver'}}"));
                all_drivers()
            }
        });
        let origins = lines.get(&["console.allowed-origins"]).map(|(line, key, value)| {
            let origins: BTreeSet<String> = value.split(',').map(|origin| origin.trim().to_owned()).collect();
            for origin in origins.iter().filter(|origin| !is_origin(origin)) {
                fault(line, format!("key {key}: `{origin}` is not an origin such as https://ops.example"));
            }
            origins
        });
        let default_store = lines.get(&["spring.datasource.default.url"]).and_then(|(line, key, url)| {
            // ElasticJob-UI reads an empty database in memory while no store is connected.
            if url.starts_with("jdbc:h2:") {
                return None;
            }
            let mut store = DataSource::new(url);
            store.username = text(&["spring.datasource.default.username"]);
            store.password = text(&["spring.datasource.default.password"]);
            if let Err(reason) = stores::check(&store) {
                fault(line, format!("key {key}: {reason}"));
            }
            Some(store)
        });
        // Other hosts reach the console only if its password is not the one that everybody knows.
        let everywhere = if has_default_password { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let chosen = source.address.or(address.map(|(_, address)| address));
        if let Some(chosen) = chosen.filter(|chosen| has_default_password && !chosen.is_loopback()) {
            let line = address.filter(|_| source.address.is_none()).map(|(line, _)| line);
            let text = format!(
                "the console cannot listen on {chosen} with the default password `{DEFAULT_LOGIN}`; set auth.password in the \
                 properties file, or listen on 127.0.0.1"
            );
            faults.push(SettingsFault { line, text });
        }
        let Some(home) = source.home else {
            let text = "the home folder is not known; set HOME".to_owned();
            faults.push(SettingsFault { line: None, text });
            return Err(faults);
        };
        if !faults.is_empty() {
            faults.sort_by_key(|fault| fault.line);
            return Err(faults);
        }
        Ok(Settings {
            listen: SocketAddr::new(chosen.unwrap_or(everywhere.into()), source.port.or(port).unwrap_or(PORT)),
            accounts,
            token_life: life.unwrap_or(TOKEN_LIFE),
            drivers,
            origins: origins.unwrap_or_default(),
            hosts: text(&["console.allowed-hosts"])
                .map(|hosts| hosts.split(',').map(|host| host.trim().to_ascii_lowercase()).collect())
                .unwrap_or_default(),
            default_store,
            folder: home.join(FOLDER),
            own: None,
        })
    }

    /// Returns the settings of a console in the process of an agent: on the loopback address, without accounts. Its users log in with
    /// the link that [`Console::invitation`](crate::Console::invitation) returns.
    pub fn beside(own: Own, home: &Path, port: Option<u16>) -> Settings {
        Settings {
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.unwrap_or(PORT)),
            accounts: Vec::new(),
            token_life: OWN_TOKEN_LIFE,
            drivers: all_drivers(),
            origins: BTreeSet::new(),
            hosts: BTreeSet::new(),
            default_store: None,
            folder: home.join(FOLDER),
            own: Some(own),
        }
    }

    /// Returns `true` if a request may name this host. A web page of another site can have its name resolved to a loopback address, and
    /// would then be a page of this console for the browser.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.to_ascii_lowercase();
        let is_local = || matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1");
        match (self.hosts.is_empty(), self.listen.ip().is_loopback()) {
            (true, false) => true,
            (true, true) => is_local() || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            (false, _) => self.hosts.contains(&name) || (self.listen.ip().is_loopback() && is_local()),
        }
    }

    /// Returns `true` if the password of the administrator is the one of a fresh installation.
    pub fn has_default_password(&self) -> bool {
        self.accounts.iter().any(|account| account.role == Role::Admin && account.password == DEFAULT_LOGIN)
    }
}

fn lines(text: &str, faults: &mut Vec<SettingsFault>) -> Lines {
    let mut found = Vec::new();
    // With the escapes of Java.
    for line in PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8) {
        match line {
            Ok(line) => {
                if let LineContent::KVPair(key, value) = line.content() {
                    found.push((line.line_number(), key.clone(), value.clone()));
                }
            }
            Err(error) => {
                faults.push(SettingsFault { line: error.line_number(), text: error.to_string() });
                break;
            }
        }
    }
    Lines(found)
}

fn all_drivers() -> BTreeSet<String> {
    DRIVERS.iter().map(|(class, _)| (*class).to_owned()).collect()
}

/// A set literal of Spring's expressions: `{'a', 'b'}`.
fn driver_set(text: &str) -> Option<BTreeSet<String>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let quoted = |part: &str| Some(part.trim().strip_prefix('\'')?.strip_suffix('\'')?.to_owned());
    inner.split(',').filter(|part| !part.trim().is_empty()).map(quoted).collect()
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ', '*', '?', '#', '@']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &str) -> Result<Settings, Vec<String>> {
        let home = Path::new("/home/ops");
        let source = Source { properties: Some(properties), ..Source::new(home) };
        Settings::read(&source).map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    /// The file as ElasticJob-UI 3.0.2 ships it.
    const SHIPPED: &str = "server.port=8088\nauth.username=root\nauth.password=root\nauth.token_expires_after_seconds=3600\n\
        spring.datasource.default.driver-class-name=org.h2.Driver\nspring.datasource.default.url=jdbc:h2:mem:\n\
        spring.datasource.default.username=sa\nspring.datasource.default.password=\nspring.jpa.show-sql=false\n\
        #dynamic.datasource.allowed-driver-classes={'org.h2.Driver','org.postgresql.Driver'}\n";

    #[test]
    fn the_default_password_is_not_open_beyond_the_loopback() {
        for text in ["", SHIPPED, "server.address=127.0.0.1"] {
            let settings = read(text).expect("valid settings");
            assert!(settings.listen.ip().is_loopback() && settings.has_default_password(), "{text}");
        }
        assert_eq!(read("").expect("settings").listen.port(), 8899);
        assert_eq!(read(SHIPPED).expect("settings").listen.port(), 8088);
        let settings = read("auth.password=another").expect("settings");
        assert!(settings.listen.ip().is_unspecified() && !settings.has_default_password());
        let faults = read("server.port=1\nserver.address=0.0.0.0").expect_err("the default password");
        assert!(
            faults[0].starts_with("2: the console cannot listen on 0.0.0.0 with the default password"),
            "{faults:?}"
        );
        let home = Path::new("/");
        let source = Source { address: Some(Ipv4Addr::UNSPECIFIED.into()), ..Source::new(home) };
        assert_eq!(Settings::read(&source).expect_err("the default password")[0].line, None);
    }

    #[test]
    fn a_page_of_another_site_cannot_call_a_console_on_the_loopback_by_its_own_name() {
        let local = read("").expect("settings");
        for (host, allowed) in [
            ("localhost:8899", true),
            ("LOCALHOST", true),
            ("127.0.0.1:8899", true),
            ("[::1]:8899", true),
            ("evil.example:8899", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(local.allows_host(host), allowed, "{host}");
        }
        let open = read("auth.password=x").expect("settings");
        assert!(open.allows_host("console.example"));
        let named = read("auth.password=x\nconsole.allowed-hosts=Console.example, c2").expect("settings");
        assert!(named.allows_host("console.example:80") && named.allows_host("C2") && !named.allows_host("other"));
    }

    #[test]
    fn both_spellings_of_the_accounts_are_read() {
        for text in [
            "auth.root_username=admin\nauth.root_password=a\\u0062c\nauth.guest_username=guest\nauth.guest_password=g",
            "auth.username = admin\nauth.password: abc\nauth.guest_username=guest\nauth.guest_password=g",
        ] {
            let accounts = read(text).expect("settings").accounts;
            let found: Vec<_> = accounts.iter().map(|a| (a.username.as_str(), a.password.as_str(), a.role)).collect();
            assert_eq!(found, [("admin", "abc", Role::Admin), ("guest", "g", Role::Viewer)]);
        }
    }

    #[test]
    fn a_store_and_a_set_of_drivers_are_read() {
        let settings = read(
            "spring.datasource.default.url=jdbc:postgresql://h:5432/x\nspring.datasource.default.username=u\n\
             spring.datasource.default.password=p\nconsole.allowed-origins=https://a.example, http://b:8080\n\
             dynamic.datasource.allowed-driver-classes={'org.postgresql.Driver', 'org.h2.Driver'}",
        )
        .expect("settings");
        let store = settings.default_store.expect("a store");
        assert_eq!((store.url.as_str(), store.username.as_deref()), ("jdbc:postgresql://h:5432/x", Some("u")));
        assert!(settings.drivers.contains("org.h2.Driver") && settings.drivers.len() == 2);
        assert_eq!(settings.origins.len(), 2);
        assert_eq!(read(SHIPPED).expect("settings").default_store, None);
        assert_eq!(settings.folder, Path::new("/home/ops/.elasticjob-console"));
    }

    #[test]
    fn every_fault_has_its_line_key_value_and_expectation() {
        let faults = read(
            "# a comment\nserver.port=99999\nserver.address=here\nauth.pasword=x\nauth.token_expires_after_seconds=0\n\
             auth.guest_username=root\nauth.guest_password=x\ndynamic.datasource.allowed-driver-classes=x\n\
             console.allowed-origins=*\nspring.datasource.default.url=jdbc:oracle:thin:@h\nspring.any=1\ncasdoor.any=1",
        )
        .expect_err("faults");
        let expected = [
            "2: key server.port: `99999` is not a port",
            "3: key server.address: `here` is not an IP address",
            "4: unknown key `auth.pasword`; expected one of ",
            "5: key auth.token_expires_after_seconds: `0` is not a number of seconds",
            "6: key auth.guest_username: `root` is the name of the administrator already",
            "8: key dynamic.datasource.allowed-driver-classes: `x` is not a set",
            "9: key console.allowed-origins: `*` is not an origin",
            "10: key spring.datasource.default.url: unsupported database `oracle`",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}, expected {expected}");
        }
        assert_eq!(
            read("auth.guest_username=g").expect_err("a fault"),
            ["1: key auth.guest_username needs auth.guest_password"]
        );
    }
}
