//! Where the lines of the library go: standard error, as text or as JSON. And where its spans go: to an OpenTelemetry
//! collector, when the environment names one.

use std::io::IsTerminal;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::args::LogFormat;
use crate::output;

/// The variables of the OpenTelemetry specification that name a collector.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Longest wait for the last spans.
const FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// The log; what is on its way to a collector is sent when this is dropped.
pub(crate) struct Log {
    spans: Option<SdkTracerProvider>,
}

impl Drop for Log {
    fn drop(&mut self) {
        let Some(spans) = self.spans.take() else { return };
        // A collector that hangs must not keep the process.
        let (sender, sent) = std::sync::mpsc::channel();
        std::thread::spawn(move || drop(sender.send(spans.shutdown())));
        match sent.recv_timeout(FLUSH_MAX) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => output::tell(&format!("elasticjob: the last spans were not sent: {error}")),
            Err(_) => output::tell(&format!("elasticjob: the last spans were not sent within {FLUSH_MAX:?}")),
        }
    }
}

/// Starts the log. The client crate of ZooKeeper tells each attempt; our own lines say the same once. Where no jobs run, only
/// what went wrong is told.
pub(crate) fn start(format: LogFormat, verbose: u8, runs_jobs: bool) -> Log {
    let filter = match verbose {
        0 if !runs_jobs => "warn",
        0 => "info",
        1 => "info,elasticjob=debug,elasticjob_registry=debug",
        _ => "debug,elasticjob=trace,elasticjob_registry=trace",
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
    let named = COLLECTOR.iter().any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()));
    let spans = if runs_jobs && named { provider() } else { None };
    let layer = spans.as_ref().map(|spans| {
        let only_spans = Targets::new().with_target(elasticjob::SPANS, tracing::Level::INFO);
        let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer("elasticjob"));
        layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_filter(only_spans)
    });
    tracing_subscriber::registry().with(lines).with(layer).init();
    Log { spans }
}

/// Sends in batches, beside the jobs; what does not fit its queue is dropped.
fn provider() -> Option<SdkTracerProvider> {
    let protocol = opentelemetry_otlp::Protocol::HttpBinary;
    match opentelemetry_otlp::SpanExporter::builder().with_http().with_protocol(protocol).build() {
        Ok(exporter) => {
            let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "elasticjob".to_owned());
            let resource = Resource::builder().with_service_name(name).build();
            Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
        }
        Err(error) => {
            output::tell(&format!("elasticjob: {}: {error}; no spans are sent", COLLECTOR[1]));
            None
        }
    }
}
