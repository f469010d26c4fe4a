//! Registry addresses.

#[cfg(feature = "embedded")]
use std::path::PathBuf;
#[cfg(feature = "zookeeper")]
use std::time::Duration;

use crate::Error;
#[cfg(feature = "zookeeper")]
use crate::zookeeper::Settings;

/// A parsed registry address.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RegistryUrl {
    /// `zookeeper://h1:2181,h2:2181/namespace?key=value`.
    #[cfg(feature = "zookeeper")]
    Zookeeper(Settings),
    /// `embedded:PATH`.
    #[cfg(feature = "embedded")]
    Embedded(PathBuf),
    /// `memory:` or `memory:NAME`. The name is empty for a registry that nothing else shares.
    Memory(String),
}

impl RegistryUrl {
    /// Parses an address.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] with the expected forms, or [`Error::Setting`] for an invalid value in it.
    pub fn parse(address: &str) -> Result<RegistryUrl, Error> {
        let invalid = |expected: &str| Error::Address { address: address.to_owned(), expected: expected.to_owned() };
        let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
        match scheme {
            "memory" => Ok(RegistryUrl::Memory(rest.to_owned())),
            "embedded" => embedded(rest).map_err(|expected| invalid(&expected)),
            "zookeeper" => zookeeper(rest, &invalid),
            "etcd" => {
                Err(invalid("etcd is not supported yet; expected zookeeper://HOST:PORT/NAMESPACE or embedded:PATH"))
            }
            _ => Err(invalid(FORMS)),
        }
    }

    /// Sets the credentials for ZooKeeper's digest scheme, as `user:password`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the registry has no credentials.
    pub fn set_credentials(&mut self, digest: String) -> Result<(), Error> {
        let _ = &digest; // used for ZooKeeper only
        match self {
            #[cfg(feature = "zookeeper")]
            RegistryUrl::Zookeeper(settings) => {
                settings.digest = Some(digest);
                settings.check()
            }
            _ => Err(Error::Setting {
                key: "credentials",
                value: "***".into(),
                expected: "only ZooKeeper supports credentials".into(),
            }),
        }
    }
}

const FORMS: &str = "expected zookeeper://HOST:PORT,HOST:PORT/NAMESPACE or embedded:PATH";

#[cfg(feature = "embedded")]
fn embedded(path: &str) -> Result<RegistryUrl, String> {
    Ok(RegistryUrl::Embedded(PathBuf::from(if path.is_empty() { "elasticjob.db" } else { path })))
}

#[cfg(not(feature = "embedded"))]
fn embedded(_: &str) -> Result<RegistryUrl, String> {
    Err("this program was built without the cargo feature `embedded` of elasticjob".into())
}

#[cfg(not(feature = "zookeeper"))]
fn zookeeper(_: &str, invalid: &dyn Fn(&str) -> Error) -> Result<RegistryUrl, Error> {
    Err(invalid("this program was built without the cargo feature `zookeeper` of elasticjob"))
}

#[cfg(feature = "zookeeper")]
fn zookeeper(rest: &str, invalid: &dyn Fn(&str) -> Error) -> Result<RegistryUrl, Error> {
    let rest = rest.strip_prefix("//").ok_or_else(|| invalid(FORMS))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (servers, namespace) = rest.split_once('/').ok_or_else(|| invalid(FORMS))?;
    let mut settings = Settings::new(servers, namespace);
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| invalid("expected key=value after `?`"))?;
        let number = || value.parse::<u64>().map_err(|_| invalid(&format!("`{key}` must be a whole number")));
        match key {
            "baseSleepTimeMilliseconds" => settings.base_sleep = Duration::from_millis(number()?),
            "maxSleepTimeMilliseconds" => settings.max_sleep = Duration::from_millis(number()?),
            "maxRetries" => settings.max_retries = u32::try_from(number()?).unwrap_or(u32::MAX),
            "sessionTimeoutMilliseconds" => settings.session_timeout = Duration::from_millis(number()?),
            "connectionTimeoutMilliseconds" => settings.connection_timeout = Duration::from_millis(number()?),
            "digest" => settings.digest = Some(decoded(value)),
            _ => {
                return Err(invalid(&format!(
                    "unknown setting `{key}`; expected baseSleepTimeMilliseconds, maxSleepTimeMilliseconds, \
                     maxRetries, sessionTimeoutMilliseconds, connectionTimeoutMilliseconds or digest"
                )));
            }
        }
    }
    settings.check()?;
    Ok(RegistryUrl::Zookeeper(settings))
}

/// A value of the query with its percent codes as characters: `%26` is `&`. What is no code stays as it is.
#[cfg(feature = "zookeeper")]
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

/// Returns a value as the query of an address has it, so that it can contain any character.
pub fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '%' => text.push_str("%25"),
            '&' => text.push_str("%26"),
            c => text.push(c),
        }
    }
    text
}

#[cfg(all(test, feature = "zookeeper", feature = "embedded"))]
mod tests {
    use super::*;

    #[test]
    fn a_digest_can_have_any_character() {
        for digest in ["u:p&x=1", "u:100%", "u:%41", "u:a=b?c/d", "ü:ö%ü&", "u:%%2", "u:%+f"] {
            let address = format!("zookeeper://h:1/ns?digest={}&maxRetries=1", encoded(digest));
            let Ok(RegistryUrl::Zookeeper(settings)) = RegistryUrl::parse(&address) else { panic!("{address}") };
            assert_eq!((settings.digest.as_deref(), settings.max_retries), (Some(digest), 1), "{address}");
        }
    }

    #[test]
    fn addresses_are_read_and_wrong_ones_say_what_is_expected() {
        let RegistryUrl::Zookeeper(settings) =
            RegistryUrl::parse("zookeeper://a:1,b:2/x/y?sessionTimeoutMilliseconds=4000&digest=u:p").expect("right")
        else {
            panic!("a ZooKeeper");
        };
        assert_eq!((settings.servers.as_str(), settings.namespace.as_str()), ("a:1,b:2", "x/y"));
        assert_eq!(settings.session_timeout, Duration::from_secs(4));
        assert_eq!(settings.digest.as_deref(), Some("u:p"));
        assert_eq!(RegistryUrl::parse("embedded:"), Ok(RegistryUrl::Embedded("elasticjob.db".into())));
        assert_eq!(RegistryUrl::parse("embedded:/x/y.db"), Ok(RegistryUrl::Embedded("/x/y.db".into())));
        for (address, part) in [
            ("localhost:2181", "expected zookeeper://HOST:PORT"),
            ("zookeeper://localhost:2181", "expected zookeeper://HOST:PORT"),
            ("zookeeper://localhost:2181/", "namespace"),
            ("zookeeper:///ns", "serverLists"),
            ("zookeeper://h:99999/ns", "serverLists"),
            ("zookeeper://h:1/zookeeper/quota", "reserved by ZooKeeper"),
            ("zookeeper://h:1/ns?x=1", "unknown setting `x`"),
            ("zookeeper://h:1/ns?maxRetries=x", "`maxRetries` must be a whole number"),
            ("etcd://h:1/ns", "etcd is not supported yet"),
        ] {
            let error = RegistryUrl::parse(address).expect_err(address).to_string();
            assert!(error.contains(part), "{address}: {error}");
        }
    }
}
