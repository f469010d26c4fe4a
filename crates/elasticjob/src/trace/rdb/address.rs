//! Where a database is: our addresses, and those of JDBC.

use std::fmt;

use elasticjob_core::cron::{ZoneText, parse_zone};
use jiff::tz::TimeZone;
#[cfg(feature = "rdb-mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
#[cfg(feature = "rdb-postgres")]
use sqlx::postgres::{PgConnectOptions, PgSslMode};
#[cfg(feature = "rdb-sqlite")]
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use url::Url;

use super::{DataSource, Dialect};
use crate::clock;

/// The forms that are understood, for errors.
const EXPECTED: &str = "expected sqlite://PATH, postgres://HOST:PORT/NAME or mysql://HOST:PORT/NAME, or a jdbc: address of \
                        SQLite, PostgreSQL, MySQL or MariaDB";

/// How to connect to a database.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) options: Options,
    /// The time zone of the written times; the host's, unless Java's driver is configured with another one.
    pub(super) zone: TimeZone,
    shown: String,
}

#[derive(Clone, Debug)]
pub(super) enum Options {
    #[cfg(feature = "rdb-sqlite")]
    Sqlite(SqliteConnectOptions),
    #[cfg(feature = "rdb-postgres")]
    Postgres(PgConnectOptions),
    #[cfg(feature = "rdb-mysql")]
    Mysql(MySqlConnectOptions),
}

/// Without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Address {
    /// Reads an address; user and password may stand in it, in its query as JDBC has it, or beside it.
    pub(super) fn parse(source: &DataSource) -> Result<Address, String> {
        let text = source.url.strip_prefix("jdbc:").unwrap_or(&source.url);
        let (scheme, rest) = text.split_once(':').ok_or(EXPECTED)?;
        if scheme == "sqlite" {
            return sqlite(rest.strip_prefix("//").unwrap_or(rest));
        }
        let dialect = match scheme {
            "postgres" | "postgresql" => Dialect::Postgres,
            "mysql" | "mariadb" => Dialect::Mysql,
            other => return Err(format!("unsupported database `{other}`: {EXPECTED}")),
        };
        // JDBC allows lists of hosts and other forms that no URL has.
        let url = Url::parse(&format!("{scheme}:{rest}")).map_err(|e| format!("{e}: {EXPECTED}"))?;
        let (Some(host), name) = (url.host_str(), url.path().trim_start_matches('/')) else {
            return Err(format!("the address names no host: {EXPECTED}"));
        };
        if name.is_empty() {
            return Err(format!("the address names no database: {EXPECTED}"));
        }
        let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let asked = |key: &str| query.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v.clone());
        let decoded = |text: &str| {
            url::form_urlencoded::parse(format!("x={}", text.replace('+', "%2B")).as_bytes())
                .next()
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        };
        let in_url = Some(url.username()).filter(|u| !u.is_empty()).map(decoded);
        let user = source.username.clone().or(in_url).or_else(|| asked("user"));
        let password = source.password.clone().or_else(|| url.password().map(decoded)).or_else(|| asked("password"));
        let known = if dialect == Dialect::Postgres { POSTGRES_TLS } else { MYSQL_TLS };
        let about_tls = |key: &str| {
            let key = key.to_ascii_lowercase();
            ["ssl", "tls", "trust", "usessl", "requiressl", "verifyserver", "serverssl"]
                .iter()
                .any(|word| key.starts_with(word))
        };
        if let Some((key, _)) =
            query.iter().find(|(key, _)| about_tls(key) && !known.iter().any(|known| known.eq_ignore_ascii_case(key)))
        {
            // A word that is ignored could leave a connection less secure than its author thinks.
            return Err(format!(
                "the parameter `{key}` is not supported; supported parameters for TLS: {}",
                known.join(", ")
            ));
        }
        let login = (user, password);
        let name = decoded(name);
        let port = url.port();
        let zone = match asked("connectionTimeZone").or_else(|| asked("serverTimezone")) {
            Some(name) if dialect == Dialect::Mysql && !["LOCAL", "SERVER"].contains(&name.as_str()) => {
                zone(&name).ok_or_else(|| format!("time zone `{name}` is not known"))?
            }
            _ => TimeZone::system(),
        };
        let options = match dialect {
            Dialect::Postgres => postgres(host, port, &name, login, &asked)?,
            Dialect::Mysql | Dialect::Sqlite => mysql(host, port, &name, login, scheme == "mariadb", &asked)?,
        };
        let port = port.map(|p| format!(":{p}")).unwrap_or_default();
        Ok(Address { options, zone, shown: format!("{scheme}://{host}{port}/{name}") })
    }

    /// The same for a reader: an SQLite file is not created, and keeps its journal mode.
    pub(super) fn of_existing(self) -> Address {
        #[cfg(feature = "rdb-sqlite")]
        #[allow(irrefutable_let_patterns, reason = "with other databases it is refutable")]
        if let Options::Sqlite(options) = &self.options {
            // Not `read_only`: such a connection cannot open a file whose log another process is just creating.
            let reader = SqliteConnectOptions::new().filename(options.get_filename()).create_if_missing(false);
            return Address { options: Options::Sqlite(reader.busy_timeout(BUSY_MAX)), ..self };
        }
        self
    }

    /// Whether this is an SQLite file that does not exist.
    pub(super) fn is_missing_file(&self) -> bool {
        match &self.options {
            #[cfg(feature = "rdb-sqlite")]
            Options::Sqlite(options) => !options.get_filename().exists(),
            #[cfg(any(feature = "rdb-postgres", feature = "rdb-mysql"))]
            _ => false,
        }
    }

    /// Creates an SQLite file that is missing, for this user alone; SQLite gives the files beside it the same mode. An error is one of the
    /// connection, which tells it.
    pub(super) fn create_private(&self) {
        #[cfg(feature = "rdb-sqlite")]
        #[allow(irrefutable_let_patterns, reason = "with other databases it is refutable")]
        if let Options::Sqlite(options) = &self.options {
            use std::os::unix::fs::OpenOptionsExt;
            let _ = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(options.get_filename());
        }
    }

    /// Refuses an SQLite file that other users control: they could lead the process to write into another file. The file is not opened:
    /// closing it would end the locks that SQLite holds on it in this process.
    pub(super) fn check_trust(&self) -> Result<(), String> {
        match &self.options {
            #[cfg(feature = "rdb-sqlite")]
            Options::Sqlite(options) => {
                // SQLite would apply what another user wrote into the files beside it.
                ["", "-wal", "-shm", "-journal"].iter().try_for_each(|end| {
                    let mut path = options.get_filename().as_os_str().to_owned();
                    path.push(end);
                    elasticjob_registry::trust::check_path(std::path::Path::new(&path))
                })
            }
            #[cfg(any(feature = "rdb-postgres", feature = "rdb-mysql"))]
            _ => Ok(()),
        }
    }

    /// An SQLite file as it is, without a lock and without the files that SQLite creates beside it: those need space on its disk.
    /// `None` for other databases, and for a file that has a log of changes beside it, because those would be missing.
    pub(super) fn as_it_is(&self) -> Option<Address> {
        #[cfg(feature = "rdb-sqlite")]
        #[allow(irrefutable_let_patterns, reason = "with other databases it is refutable")]
        if let Options::Sqlite(options) = &self.options {
            let file = options.get_filename();
            let log = std::path::PathBuf::from(format!("{}-wal", file.display()));
            if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
                return None;
            }
            let options = SqliteConnectOptions::new().filename(file).read_only(true).immutable(true);
            return Some(Address {
                options: Options::Sqlite(options),
                zone: self.zone.clone(),
                shown: self.shown.clone(),
            });
        }
        None
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.options {
            #[cfg(feature = "rdb-sqlite")]
            Options::Sqlite(_) => Dialect::Sqlite,
            #[cfg(feature = "rdb-postgres")]
            Options::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "rdb-mysql")]
            Options::Mysql(_) => Dialect::Mysql,
        }
    }
}

/// The parameters for TLS that are understood.
const POSTGRES_TLS: &[&str] = &["ssl", "sslmode", "sslrootcert", "sslfactory"];
const MYSQL_TLS: &[&str] = &[
    "sslMode",
    "ssl-mode",
    "useSSL",
    "requireSSL",
    "verifyServerCertificate",
    "trustServerCertificate",
    "ssl-ca",
    "serverSslCert",
];

/// Whether a flag of an address is off.
#[cfg(any(feature = "rdb-postgres", feature = "rdb-mysql"))]
fn is_no(value: &str) -> bool {
    value.eq_ignore_ascii_case("false")
}

/// A zone as Java writes it: `GMT+8` or an IANA name.
fn zone(name: &str) -> Option<TimeZone> {
    match parse_zone(name).ok()? {
        ZoneText::Host => None,
        ZoneText::Fixed(zone) => Some(zone),
        ZoneText::Named(name) => clock::zone(Some(&name)),
    }
}

/// Longest wait for another process that writes into an SQLite file.
#[cfg(feature = "rdb-sqlite")]
const BUSY_MAX: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(feature = "rdb-sqlite")]
fn sqlite(path: &str) -> Result<Address, String> {
    let file = path.split('?').next().unwrap_or_default();
    if file.is_empty() || file.contains(":memory:") {
        return Err(format!("the address names no file: {EXPECTED}"));
    }
    // Other processes may read the file at the same time.
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_MAX);
    Ok(Address { options: Options::Sqlite(options), zone: TimeZone::system(), shown: format!("sqlite://{file}") })
}

#[cfg(not(feature = "rdb-sqlite"))]
fn sqlite(_: &str) -> Result<Address, String> {
    Err(without("rdb-sqlite"))
}

/// This build has no driver of that database.
#[allow(dead_code, reason = "not needed in a build with all drivers")]
fn without(feature: &str) -> String {
    format!("this program was built without the cargo feature `{feature}` of elasticjob")
}

type Login = (Option<String>, Option<String>);

#[cfg(feature = "rdb-postgres")]
fn postgres(
    host: &str,
    port: Option<u16>,
    name: &str,
    (user, password): Login,
    asked: &dyn Fn(&str) -> Option<String>,
) -> Result<Options, String> {
    let mut options = PgConnectOptions::new_without_pgpass().host(host).port(port.unwrap_or(5_432)).database(name);
    options = options.application_name("elasticjob");
    if let Some(user) = &user {
        options = options.username(user);
    }
    if let Some(password) = &password {
        options = options.password(password);
    }
    // The words of Java's driver, in which `ssl=true` checks the certificate and the host.
    let does_not_check = asked("sslfactory").is_some_and(|class| class.ends_with(".NonValidatingFactory"));
    let mode = match (asked("sslmode"), asked("ssl")) {
        (Some(mode), _) => Some(mode),
        (None, Some(ssl)) if is_no(&ssl) => Some("disable".to_owned()),
        (None, Some(_)) if does_not_check => Some("require".to_owned()),
        (None, Some(_)) => Some("verify-full".to_owned()),
        (None, None) => None,
    };
    if let Some(mode) = mode {
        options = options.ssl_mode(mode.parse::<PgSslMode>().map_err(|e| e.to_string())?);
    }
    if let Some(file) = asked("sslrootcert") {
        options = options.ssl_root_cert(file);
    }
    if let Some(schema) = asked("currentSchema") {
        options = options.options([("search_path", schema)]);
    }
    Ok(Options::Postgres(options))
}

#[cfg(feature = "rdb-mysql")]
fn mysql(
    host: &str,
    port: Option<u16>,
    name: &str,
    (user, password): Login,
    is_mariadb: bool,
    asked: &dyn Fn(&str) -> Option<String>,
) -> Result<Options, String> {
    // Java's driver writes the time as the host shows it: no zone of the session must turn it.
    let mut options =
        MySqlConnectOptions::new().host(host).port(port.unwrap_or(3_306)).database(name).timezone(None::<String>);
    if let Some(user) = &user {
        options = options.username(user);
    }
    if let Some(password) = &password {
        options = options.password(password);
    }
    // The words of the drivers of MySQL and MariaDB. Upper and lower case make no difference, so `useSSL` is `useSsl` too.
    let is_set = |key: &str| asked(key).is_some_and(|value| !is_no(&value));
    let old = match asked("useSSL") {
        Some(ssl) if is_no(&ssl) => Some("DISABLED"),
        Some(_) if is_set("trustServerCertificate") => Some("REQUIRED"),
        Some(_) if is_set("verifyServerCertificate") => Some("VERIFY_CA"),
        Some(_) if is_mariadb => Some("VERIFY_IDENTITY"),
        Some(_) if is_set("requireSSL") => Some("REQUIRED"),
        Some(_) => Some("PREFERRED"),
        None => None,
    };
    let mode = asked("sslMode").or_else(|| asked("ssl-mode")).or_else(|| old.map(str::to_owned));
    if let Some(mode) = mode {
        // The words of MariaDB's driver beside those of MySQL's.
        let word = match mode.to_ascii_lowercase().as_str() {
            "disable" => "DISABLED".to_owned(),
            "trust" => "REQUIRED".to_owned(),
            "verify-ca" => "VERIFY_CA".to_owned(),
            "verify-full" => "VERIFY_IDENTITY".to_owned(),
            _ => mode.clone(),
        };
        options = options.ssl_mode(word.parse::<MySqlSslMode>().map_err(|_| format!("sslMode `{mode}` is not known"))?);
    }
    if let Some(file) = asked("ssl-ca").or_else(|| asked("serverSslCert")) {
        options = options.ssl_ca(file);
    }
    Ok(Options::Mysql(options))
}

#[cfg(not(feature = "rdb-postgres"))]
fn postgres(_: &str, _: Option<u16>, _: &str, _: Login, _: &dyn Fn(&str) -> Option<String>) -> Result<Options, String> {
    Err(without("rdb-postgres"))
}

#[cfg(not(feature = "rdb-mysql"))]
fn mysql(
    _: &str,
    _: Option<u16>,
    _: &str,
    _: Login,
    _: bool,
    _: &dyn Fn(&str) -> Option<String>,
) -> Result<Options, String> {
    Err(without("rdb-mysql"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(&DataSource { url: url.into(), ..DataSource::default() })
    }

    #[test]
    fn addresses_of_both_kinds_are_understood_and_shown_without_their_password() {
        for (url, shown) in [
            ("sqlite://trace.db", "sqlite://trace.db"),
            ("sqlite:trace.db", "sqlite://trace.db"),
            ("jdbc:sqlite:/var/lib/trace.db", "sqlite:///var/lib/trace.db"),
            ("postgres://u:p%40w@db:5433/trace", "postgres://db:5433/trace"),
            ("jdbc:postgresql://db/trace?user=u&password=p&sslmode=disable", "postgresql://db/trace"),
            ("mysql://u:p@db:3307/trace", "mysql://db:3307/trace"),
            ("jdbc:mysql://db:3306/trace?useSSL=false&serverTimezone=UTC", "mysql://db:3306/trace"),
            ("jdbc:mariadb://db/trace?sslMode=disable", "mariadb://db/trace"),
        ] {
            let address = parse(url).unwrap_or_else(|e| panic!("{url}: {e}"));
            assert_eq!(address.to_string(), shown, "{url}");
        }
        let zone = |url: &str| parse(url).expect("an address").zone;
        assert_eq!(zone("jdbc:mysql://db/a?serverTimezone=Asia/Shanghai").iana_name(), Some("Asia/Shanghai"));
        assert_eq!(zone("jdbc:mysql://db/a?serverTimezone=GMT%2B8"), TimeZone::fixed(jiff::tz::offset(8)));
        assert_eq!(zone("jdbc:mysql://db/a?connectionTimeZone=LOCAL"), TimeZone::system());
        let Options::Postgres(options) = parse("postgres://u@db/trace").expect("an address").options else { panic!() };
        assert_eq!((options.get_username(), options.get_port(), options.get_database()), ("u", 5432, Some("trace")));
    }

    #[test]
    fn the_words_of_java_s_drivers_for_tls_are_understood_and_unknown_ones_refused() {
        for (parameters, mode) in [
            ("", PgSslMode::Prefer),
            ("?sslmode=require", PgSslMode::Require),
            ("?ssl=true", PgSslMode::VerifyFull),
            ("?ssl", PgSslMode::VerifyFull),
            ("?ssl=false", PgSslMode::Disable),
            ("?ssl=true&sslmode=verify-ca", PgSslMode::VerifyCa),
            ("?ssl=true&sslfactory=org.postgresql.ssl.NonValidatingFactory", PgSslMode::Require),
        ] {
            let found = parse(&format!("jdbc:postgresql://db/a{parameters}")).expect("an address").options;
            let Options::Postgres(options) = found else { panic!("{parameters}") };
            assert_eq!(format!("{:?}", options.get_ssl_mode()), format!("{mode:?}"), "{parameters}");
        }
        for (url, mode) in [
            ("mysql://db/a", MySqlSslMode::Preferred),
            ("mysql://db/a?useSSL=false", MySqlSslMode::Disabled),
            ("mysql://db/a?useSSL=true", MySqlSslMode::Preferred),
            ("mysql://db/a?useSSL=true&requireSSL=true", MySqlSslMode::Required),
            ("mysql://db/a?useSSL=true&verifyServerCertificate=true", MySqlSslMode::VerifyCa),
            ("mysql://db/a?sslMode=VERIFY_IDENTITY", MySqlSslMode::VerifyIdentity),
            ("mariadb://db/a?useSsl=true", MySqlSslMode::VerifyIdentity),
            ("mariadb://db/a?useSsl=true&trustServerCertificate=true", MySqlSslMode::Required),
            ("mariadb://db/a?sslMode=verify-full", MySqlSslMode::VerifyIdentity),
        ] {
            let Options::Mysql(options) = parse(url).expect("an address").options else { panic!("{url}") };
            assert_eq!(format!("{:?}", options.get_ssl_mode()), format!("{mode:?}"), "{url}");
        }
        for (url, key) in [
            ("postgres://db/a?sslcert=x.pem", "sslcert"),
            ("postgres://db/a?sslMod=require", "sslMod"),
            ("mysql://db/a?trustCertificateKeyStoreUrl=file:x", "trustCertificateKeyStoreUrl"),
            ("mysql://db/a?sslmodes=x", "sslmodes"),
        ] {
            let refused = parse(url).expect_err("not supported");
            assert!(
                refused.starts_with(&format!("the parameter `{key}` is not supported; supported parameters for TLS: ")),
                "{refused}"
            );
        }
    }

    #[test]
    fn an_invalid_address_is_reported_with_the_expected_form() {
        for (url, told) in [
            ("", "expected sqlite://PATH"),
            ("jdbc:h2:mem:t", "unsupported database `h2`: expected sqlite://PATH"),
            ("postgres://db", "the address names no database"),
            ("sqlite::memory:", "the address names no file"),
            ("mysql://db:99999/a", "expected sqlite://PATH"),
            ("jdbc:mysql://db/a?sslMode=maybe", "maybe"),
            ("jdbc:mysql://db/a?serverTimezone=Mars", "time zone `Mars` is not known"),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(told), "{url}: {error}");
        }
    }
}
