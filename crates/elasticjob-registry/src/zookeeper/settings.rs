//! The registry's configuration (Java: `ZookeeperConfiguration`; manual: "Registry center configuration").

use std::time::Duration;

use crate::Error;

/// How to reach a ZooKeeper.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// `host:port,host:port`; names are resolved again at each connect. Required.
    pub servers: String,
    /// The node below which everything stands, without leading slash; may have several segments. Required.
    pub namespace: String,
    /// First pause between two attempts to connect; 1 s by default.
    pub base_sleep: Duration,
    /// Longest pause between two attempts; 3 s by default.
    pub max_sleep: Duration,
    /// After so many failed attempts in a row the failure is told as an error instead of a warning; 3 by default. Java
    /// gives up then; here it goes on.
    pub max_retries: u32,
    /// The session time-out that is asked for; 0 (the default) for 60 s. The server bounds it to 2 to 20 of its ticks.
    pub session_timeout: Duration,
    /// How long one attempt to connect may take; 0 (the default) for 15 s.
    pub connection_timeout: Duration,
    /// `user:password`: every node is then created for that user alone. None by default.
    pub digest: Option<String>,
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
        }
    }

    /// Whether they can be used.
    ///
    /// # Errors
    ///
    /// The first wrong one, with what was expected.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |key: &'static str, value: &str, expected: &str| {
            Err(Error::Setting { key, value: value.to_owned(), expected: expected.to_owned() })
        };
        for server in self.servers.split(',') {
            let (host, port) = server.trim().rsplit_once(':').unwrap_or((server, ""));
            let port_is_right = port.parse::<u16>().is_ok_and(|p| p > 0);
            if host.is_empty() || !port_is_right || host.contains(['/', ' ']) {
                return wrong("serverLists", &self.servers, "expected host:port,host:port");
            }
        }
        let segment_is_right =
            |s: &str| !s.is_empty() && s != "." && s != ".." && !s.chars().any(|c| c.is_control() || c.is_whitespace());
        if !self.namespace.split('/').all(segment_is_right) {
            return wrong(
                "namespace",
                &self.namespace,
                "expected one or more names divided by `/`, with no leading `/`",
            );
        }
        if self.namespace == "zookeeper" {
            return wrong("namespace", &self.namespace, "that node is ZooKeeper's own");
        }
        if self.base_sleep > self.max_sleep {
            let value = self.base_sleep.as_millis().to_string();
            return wrong("baseSleepTimeMilliseconds", &value, "expected at most maxSleepTimeMilliseconds");
        }
        if self.digest.as_ref().is_some_and(|d| !d.contains(':') || d.starts_with(':')) {
            return wrong("digest", "***", "expected user:password");
        }
        Ok(())
    }

    /// The session time-out to ask for.
    pub(super) fn session(&self) -> Duration {
        if self.session_timeout.is_zero() { Duration::from_secs(60) } else { self.session_timeout }
    }

    /// How long one attempt may take: two must fit into a session.
    pub(super) fn connection(&self) -> Duration {
        let wanted = if self.connection_timeout.is_zero() { Duration::from_secs(15) } else { self.connection_timeout };
        wanted.min(self.session() * 2 / 5)
    }
}
