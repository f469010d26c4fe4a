//! The registry's configuration (Java: `ZookeeperConfiguration`; manual: "Registry center configuration").

use std::time::Duration;

use elasticjob_core::config::is_registry_char;

use crate::Error;

/// No server answers two requests in less, which a session needs.
const SESSION_MIN: Duration = Duration::from_millis(100);

/// How to reach a ZooKeeper.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// `host:port,host:port`; names are resolved again at each connect. Required.
    pub servers: String,
    /// The parent node of all nodes, without leading slash; may have several segments. Required.
    pub namespace: String,
    /// First pause between two attempts to connect; 1 s by default.
    pub base_sleep: Duration,
    /// Longest pause between two attempts; 3 s by default.
    pub max_sleep: Duration,
    /// After this number of failed attempts in a row the failure is logged as an error instead of a warning; 3 by default. Java
    /// stops retrying then; this implementation continues.
    pub max_retries: u32,
    /// The session timeout that is asked for; 0 (the default) for 60 s. The server bounds it to 2 to 20 of its ticks.
    pub session_timeout: Duration,
    /// How long one attempt to connect may take; 0 (the default) for 15 s.
    pub connection_timeout: Duration,
    /// `user:password`: every node is then created for that user alone. None by default.
    pub digest: Option<String>,
    /// `true` (the default) creates the namespace at the first connect. `false` creates it with the first node in it.
    pub creates_namespace: bool,
}

/// A name, an IPv4 address, or an IPv6 address, which may stand in brackets.
fn is_host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.split('%').next().is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    }
    if text.contains(':') {
        return text.split('%').next().is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.contains(|c: char| !c.is_alphanumeric() && c != '-' && c != '_')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    // The last part of a name is no number.
    let is_numeric = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.split('.').all(is_part) && (!is_numeric || name.parse::<std::net::Ipv4Addr>().is_ok())
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("servers", &self.servers)
            .field("namespace", &self.namespace)
            .field("session_timeout", &self.session_timeout)
            .field("digest", &self.digest.as_ref().map(|_| "***"))
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// The manual's defaults.
    pub fn new(servers: &str, namespace: &str) -> Settings {
        Settings {
            servers: servers.to_owned(),
            namespace: namespace.trim_end_matches('/').to_owned(),
            base_sleep: Duration::from_millis(1_000),
            max_sleep: Duration::from_millis(3_000),
            max_retries: 3,
            session_timeout: Duration::ZERO,
            connection_timeout: Duration::ZERO,
            digest: None,
            creates_namespace: true,
        }
    }

    /// Checks them.
    ///
    /// # Errors
    ///
    /// The first fault of [`Settings::faults`].
    pub fn check(&self) -> Result<(), Error> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every fault, with what was expected.
    pub fn faults(&self) -> Vec<Error> {
        let mut faults = Vec::new();
        let mut wrong = |key: &'static str, value: &str, expected: &str| {
            faults.push(Error::Setting { key, value: value.to_owned(), expected: expected.to_owned() });
        };
        let is_right = |server: &str| {
            let (host, port) = server.trim().rsplit_once(':').unwrap_or((server, ""));
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            is_number && port.parse::<u16>().is_ok_and(|p| p > 0) && is_host(host)
        };
        if self.servers.contains('@') {
            wrong(
                "serverLists",
                "***",
                "expected host:port,host:port without credentials; set those with `digest` or ELASTICJOB_DIGEST",
            );
        } else if let Some(server) = self.servers.split(',').find(|server| !is_right(server)) {
            let expected = match self.servers.contains(',') {
                true => {
                    format!("expected host:port,host:port with ports from 1 to 65535, which `{}` is not", server.trim())
                }
                false => "expected host:port,host:port with ports from 1 to 65535".to_owned(),
            };
            wrong("serverLists", &self.servers, &expected);
        }
        let segment_is_right = |s: &str| {
            !s.is_empty() && s != "." && s != ".." && s.chars().all(|c| is_registry_char(c) && !c.is_whitespace())
        };
        if !self.namespace.split('/').all(segment_is_right) {
            let expected = "expected one or more names separated by `/`, with no leading `/`";
            wrong("namespace", &self.namespace, expected);
        } else if self.namespace.split('/').next() == Some("zookeeper") {
            wrong("namespace", &self.namespace, "this name is reserved by ZooKeeper");
        }
        if self.base_sleep > self.max_sleep {
            let value = self.base_sleep.as_millis().to_string();
            wrong("baseSleepTimeMilliseconds", &value, "expected at most maxSleepTimeMilliseconds");
        }
        let session = self.session_timeout;
        if !session.is_zero() && session < SESSION_MIN {
            let expected = "expected 0 for the default of 60000, or at least 100";
            wrong("sessionTimeoutMilliseconds", &session.as_millis().to_string(), expected);
        }
        if self.digest.as_ref().is_some_and(|d| !d.contains(':') || d.starts_with(':')) {
            wrong("digest", "***", "expected user:password");
        }
        faults
    }

    /// The session timeout to ask for.
    pub(super) fn session(&self) -> Duration {
        if self.session_timeout.is_zero() { Duration::from_secs(60) } else { self.session_timeout }
    }

    /// How long one attempt may take: two must fit into a session.
    pub(super) fn connection(&self) -> Duration {
        let wanted = if self.connection_timeout.is_zero() { Duration::from_secs(15) } else { self.connection_timeout };
        wanted.min(self.session() * 2 / 5)
    }
}
