//! Addresses of registries.

use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::zookeeper::Settings;

/// A parsed address.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryUrl {
    /// `zookeeper://h1:2181,h2:2181/namespace?key=value`.
    Zookeeper(Settings),
    /// `embedded:PATH`.
    Embedded(PathBuf),
    /// `memory:`.
    Memory,
}

impl RegistryUrl {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// The address, and which forms are expected.
    pub fn parse(address: &str) -> Result<RegistryUrl, Error> {
        let wrong = |expected: &str| Error::Address { address: address.to_owned(), expected: expected.to_owned() };
        if let Some(path) = address.strip_prefix("embedded:") {
            let path = if path.is_empty() { "elasticjob.db" } else { path };
            return Ok(RegistryUrl::Embedded(PathBuf::from(path)));
        }
        if address == "memory:" || address == "memory" {
            return Ok(RegistryUrl::Memory);
        }
        if address.starts_with("etcd://") {
            return Err(wrong("etcd is not supported yet; expected zookeeper://HOST:PORT/NAMESPACE or embedded:PATH"));
        }
        let forms = "expected zookeeper://HOST:PORT,HOST:PORT/NAMESPACE or embedded:PATH";
        let rest = address.strip_prefix("zookeeper://").ok_or_else(|| wrong(forms))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, namespace) = rest.split_once('/').ok_or_else(|| wrong(forms))?;
        let mut settings = Settings::new(servers, namespace);
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| wrong("expected key=value after `?`"))?;
            let number = || value.parse::<u64>().map_err(|_| wrong(&format!("`{key}` must be a whole number")));
            match key {
                "baseSleepTimeMilliseconds" => settings.base_sleep = Duration::from_millis(number()?),
                "maxSleepTimeMilliseconds" => settings.max_sleep = Duration::from_millis(number()?),
                "maxRetries" => settings.max_retries = u32::try_from(number()?).unwrap_or(u32::MAX),
                "sessionTimeoutMilliseconds" => settings.session_timeout = Duration::from_millis(number()?),
                "connectionTimeoutMilliseconds" => settings.connection_timeout = Duration::from_millis(number()?),
                "digest" => settings.digest = Some(value.to_owned()),
                _ => {
                    return Err(wrong(&format!(
                        "unknown setting `{key}`; expected baseSleepTimeMilliseconds, maxSleepTimeMilliseconds, \
                         maxRetries, sessionTimeoutMilliseconds, connectionTimeoutMilliseconds or digest"
                    )));
                }
            }
        }
        settings.check()?;
        Ok(RegistryUrl::Zookeeper(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("zookeeper://h:1/ns?x=1", "unknown setting `x`"),
            ("zookeeper://h:1/ns?maxRetries=x", "`maxRetries` must be a whole number"),
            ("etcd://h:1/ns", "etcd is not supported yet"),
        ] {
            let error = RegistryUrl::parse(address).expect_err(address).to_string();
            assert!(error.contains(part), "{address}: {error}");
        }
    }
}
