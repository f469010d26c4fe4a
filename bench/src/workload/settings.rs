//! The arguments, `key=value` each.

use std::collections::HashMap;

use anyhow::{Context as _, bail};

const KEYS: [&str; 20] = [
    "mode",
    "jobs",
    "shards",
    "cron",
    "sleep",
    "failover",
    "monitor",
    "misfire",
    "seconds",
    "session",
    "zk",
    "ns",
    "out",
    "n",
    "trace",
    "servers",
    "kind",
    "target",
    "due",
    "instances",
];

/// What was asked for.
pub(crate) struct Settings(HashMap<String, String>);

impl Settings {
    /// Reads them from the command line.
    pub(crate) fn read() -> anyhow::Result<Settings> {
        let mut settings = HashMap::new();
        for argument in std::env::args().skip(1) {
            let (key, value) = argument.split_once('=').with_context(|| format!("`{argument}`: expected key=value"))?;
            if !KEYS.contains(&key) {
                bail!("unknown key `{key}`; expected one of {}", KEYS.join(" "));
            }
            settings.insert(key.to_owned(), value.to_owned());
        }
        Ok(Settings(settings))
    }

    pub(crate) fn text(&self, key: &str, default: &str) -> String {
        self.0.get(key).cloned().unwrap_or_else(|| default.to_owned())
    }

    pub(crate) fn number(&self, key: &str, default: u64) -> anyhow::Result<u64> {
        let Some(text) = self.0.get(key) else { return Ok(default) };
        text.parse().with_context(|| format!("`{key}={text}`: expected a whole number"))
    }

    /// A number of things.
    pub(crate) fn count(&self, key: &str, default: u64) -> anyhow::Result<usize> {
        Ok(usize::try_from(self.number(key, default)?)?)
    }

    pub(crate) fn flag(&self, key: &str, default: bool) -> anyhow::Result<bool> {
        let Some(text) = self.0.get(key) else { return Ok(default) };
        text.parse().with_context(|| format!("`{key}={text}`: expected true or false"))
    }

    /// The address of the registry.
    pub(crate) fn registry(&self) -> anyhow::Result<String> {
        let namespace = self.text("ns", "bench");
        let session = self.number("session", 60_000)?;
        Ok(match self.text("zk", "127.0.0.1:2181").as_str() {
            "embedded" => format!("embedded:{namespace}.db"),
            zk => format!("zookeeper://{zk}/{namespace}?sessionTimeoutMilliseconds={session}"),
        })
    }
}
