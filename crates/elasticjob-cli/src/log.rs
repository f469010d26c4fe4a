//! Where the lines of the library go: standard error, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Starts the log. The client crate of ZooKeeper tells each attempt; our own lines say the same once. Where no jobs run, only
/// what went wrong is told.
pub(crate) fn start(format: LogFormat, verbose: u8, runs_jobs: bool) {
    let filter = match verbose {
        0 if !runs_jobs => "warn,zookeeper_client=off",
        0 => "info,zookeeper_client=off",
        1 => "info,elasticjob=debug,elasticjob_registry=debug,zookeeper_client=off",
        _ => "debug,elasticjob=trace,elasticjob_registry=trace",
    };
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(colours);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
