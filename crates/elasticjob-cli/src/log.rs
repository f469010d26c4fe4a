//! Writes the log lines of the library to standard error, as text or as JSON, and sends its spans to an OpenTelemetry collector if
//! the environment names one.

use std::io::IsTerminal;

use elasticjob::telemetry::{COLLECTOR, Spans};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::args::LogFormat;
use crate::output;

/// The log. Dropping it sends the last spans.
pub(crate) struct Log {
    spans: Option<Spans>,
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.spans.take().map(Spans::shutdown) {
            output::tell(&format!("elasticjob: cannot send the last spans: {error}"));
        }
    }
}

/// Starts the log. A command that is not a service logs warnings and errors only.
pub(crate) fn start(format: LogFormat, verbose: u8, is_service: bool) -> Log {
    let filter = match verbose {
        0 if !is_service => "warn",
        0 => "info",
        1 => "info,elasticjob=debug,elasticjob_registry=debug,elasticjob_console=debug",
        _ => "debug,elasticjob=trace,elasticjob_registry=trace,elasticjob_console=trace",
    };
    // Spans are not for the log: each line would begin with one.
    let filter = EnvFilter::new(format!("{filter},{}=off", elasticjob::SPANS));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let spans = match is_service.then(Spans::from_environment) {
        Some(Ok(spans)) => spans,
        Some(Err(error)) => {
            output::tell(&format!(
                "elasticjob: cannot send spans to the collector that {} names: {error}; continuing without spans",
                COLLECTOR[1]
            ));
            None
        }
        None => None,
    };
    let layer = spans.as_ref().map(Spans::layer);
    let runs = is_service.then(elasticjob::trace::run_log_layer);
    tracing_subscriber::registry().with(lines).with(layer).with(runs).init();
    Log { spans }
}
