//! Runs as OpenTelemetry spans, sent to a collector by OTLP over HTTP.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::SPANS;

/// The variables of the OpenTelemetry specification that name a collector.
pub const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Maximum time to send the last spans.
const FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// The exporter of spans. It sends them in batches beside the jobs, and drops what does not fit its queue.
#[derive(Debug)]
pub struct Spans(SdkTracerProvider);

impl Spans {
    /// Creates an exporter if the environment names a collector ([`COLLECTOR`]). The service name is `OTEL_SERVICE_NAME`, or
    /// `elasticjob`.
    ///
    /// # Errors
    ///
    /// The address of the collector is invalid.
    pub fn from_environment() -> Result<Option<Spans>, String> {
        if !COLLECTOR.iter().any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty())) {
            return Ok(None);
        }
        let protocol = opentelemetry_otlp::Protocol::HttpBinary;
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().with_protocol(protocol).build();
        let exporter = exporter.map_err(|error| error.to_string())?;
        let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "elasticjob".to_owned());
        let resource = Resource::builder().with_service_name(name).build();
        Ok(Some(Spans(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())))
    }

    /// Returns the layer that turns each run of an item into a span, for a `tracing_subscriber` registry.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: tracing::Subscriber + for<'s> LookupSpan<'s> + Send + Sync,
    {
        let only_spans = Targets::new().with_target(SPANS, tracing::Level::INFO);
        let layer = tracing_opentelemetry::layer().with_tracer(self.0.tracer("elasticjob"));
        layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_filter(only_spans)
    }

    /// Sends the last spans, for at most two seconds. Blocks the thread.
    ///
    /// # Errors
    ///
    /// The collector did not take them.
    pub fn shutdown(self) -> Result<(), String> {
        // A collector that hangs must not keep the process.
        let (sender, sent) = std::sync::mpsc::channel();
        std::thread::spawn(move || drop(sender.send(self.0.shutdown())));
        match sent.recv_timeout(FLUSH_MAX) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("timed out after {FLUSH_MAX:?}")),
        }
    }
}
