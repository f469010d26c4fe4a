//! What `elasticjob up` adds to an agent: the web console in the same process, and a run history beside the registry file.

use std::path::{Path, PathBuf};

use elasticjob::registry::Connection;
use elasticjob::trace::{DataSource, RunLogs, TraceSettings};
use elasticjob_console::{Console, ConsoleError, Own, Settings};
use tokio::sync::watch;

use crate::Failure;
use crate::agent::DEFAULT_REGISTRY;

/// The options of `elasticjob up`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Up {
    /// The port of the console; without one, the default port or, if that is in use, any free port.
    pub(crate) port: Option<u16>,
    /// Whether there is a console.
    pub(crate) console: bool,
}

/// The database with the run history of an embedded registry: `elasticjob-trace.db` beside `elasticjob.db`.
pub(crate) fn trace_beside(registry: &Path) -> PathBuf {
    let stem = registry.file_stem().unwrap_or_default().to_string_lossy();
    let name = match registry.extension() {
        Some(extension) => format!("{stem}-trace.{}", extension.to_string_lossy()),
        None => format!("{stem}-trace"),
    };
    registry.with_file_name(name)
}

/// The same as settings, with the logs of all runs; `None` if the path cannot be written as an address.
pub(crate) fn trace_settings(registry: &Path) -> Option<TraceSettings> {
    let mut settings = TraceSettings::rdb(format!("sqlite://{}", trace_beside(registry).to_str()?));
    settings.run_logs = RunLogs::All;
    Some(settings)
}

/// The path of an embedded registry's address, if it is one.
pub(crate) fn embedded_path(address: &str) -> Option<&Path> {
    let path = address.strip_prefix("embedded:")?;
    Some(Path::new(if path.is_empty() { DEFAULT_REGISTRY } else { path }))
}

/// The path of an embedded registry is meant as it was typed, whatever folder the agent works in.
pub(crate) fn absolute_registry(address: &str) -> String {
    match embedded_path(address).map(std::path::absolute) {
        Some(Ok(path)) => format!("embedded:{}", path.display()),
        Some(Err(_)) | None => address.to_owned(),
    }
}

impl Up {
    /// Starts the console, and logs the link that opens it. A default port that is in use is no reason not to run jobs.
    pub(crate) async fn start(
        self,
        connection: &Connection,
        name: String,
        trace: watch::Receiver<Option<DataSource>>,
    ) -> Result<Option<Console>, Failure> {
        if !self.console {
            return Ok(None);
        }
        let own = Own::new(name, connection.registry().clone(), trace);
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).unwrap_or_default();
        let started = match Console::start(Settings::beside(own.clone(), &home, self.port)).await {
            Err(ConsoleError::Listen { address, error }) if self.port.is_none() => {
                tracing::info!("cannot listen on {address} ({error}); the web console uses another port");
                Console::start(Settings::beside(own, &home, Some(0))).await
            }
            started => started,
        };
        match started {
            Ok(console) => {
                let link = console.invitation()?;
                tracing::info!("the web console is at {link} (this link logs in once; the log then has the next one)");
                Ok(Some(console))
            }
            Err(error @ ConsoleError::Listen { .. }) if self.port.is_some() => {
                Err(Failure::Wrong(vec![format!("elasticjob: --port: {error}")]))
            }
            Err(error) => {
                tracing::error!("cannot start the web console: {error}; jobs keep running");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_beside_the_registry_file() {
        for (registry, trace) in [
            ("/var/lib/elasticjob.db", "/var/lib/elasticjob-trace.db"),
            ("jobs", "jobs-trace"),
            ("/a b/x.y.db", "/a b/x.y-trace.db"),
        ] {
            assert_eq!(trace_beside(Path::new(registry)), Path::new(trace));
        }
        assert_eq!(embedded_path("embedded:"), Some(Path::new("elasticjob.db")));
        assert_eq!(embedded_path("embedded:/x/y.db"), Some(Path::new("/x/y.db")));
        assert_eq!(embedded_path("zookeeper://h:2181/n"), None);
    }
}
