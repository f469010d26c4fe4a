//! What an agent serves beside its jobs: the dump service, and metrics with health over HTTP. None of it can keep a job from
//! running: a port that is taken is told, and the jobs run on.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use elasticjob::DumpService;
use elasticjob::registry::Connection;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What is served, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Services {
    /// Dumps.
    pub(crate) dump: Option<SocketAddr>,
    /// `/metrics`, `/healthz` and `/readyz`.
    pub(crate) metrics: Option<SocketAddr>,
}

/// Services that run.
#[derive(Default)]
pub(crate) struct Served {
    services: Services,
    dump: Option<DumpService>,
    metrics: Option<JoinHandle<()>>,
    /// Whether the process is on its way out: it is not ready any more.
    leaving: watch::Sender<bool>,
}

impl Served {
    /// Serves this from now on; what is the same as before goes on.
    pub(crate) async fn serve(&mut self, services: Services, connection: &Connection) {
        if services.dump != self.services.dump {
            if let Some(service) = self.dump.take() {
                service.stop().await;
            }
            if let Some(address) = services.dump {
                self.start_dump(address, connection).await;
            }
        }
        if services.metrics != self.services.metrics {
            if let Some(task) = self.metrics.take() {
                task.abort();
                let _ = task.await; // the port is free then
            }
            if let Some(address) = services.metrics {
                self.start_metrics(address, connection).await;
            }
        }
        self.services = services;
    }

    async fn start_dump(&mut self, address: SocketAddr, connection: &Connection) {
        match DumpService::start(connection, address).await {
            Ok(service) => {
                tracing::info!("dumps are served on {}", service.address());
                self.dump = Some(service);
            }
            Err(error) => tracing::error!("key `dump`: {address} cannot be listened on: {error}; jobs run on"),
        }
    }

    async fn start_metrics(&mut self, address: SocketAddr, connection: &Connection) {
        let state = Arc::new(Shown { connection: connection.clone(), leaving: self.leaving.subscribe() });
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                tracing::info!("metrics and health are served on http://{bound}");
                self.metrics = Some(tokio::spawn(serve(listener, state)));
            }
            Err(error) => tracing::error!("key `metrics`: {address} cannot be listened on: {error}; jobs run on"),
        }
    }

    /// The process leaves: whoever sends it work should stop.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
    }
}

struct Shown {
    connection: Connection,
    leaving: watch::Receiver<bool>,
}

async fn serve(listener: tokio::net::TcpListener, state: Arc<Shown>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(state);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!("metrics and health are not served any more: {error}");
    }
}

async fn metrics(State(shown): State<Arc<Shown>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shown.connection.metrics())
}

/// Ready is who takes part in each of its jobs.
async fn ready(State(shown): State<Arc<Shown>>) -> impl IntoResponse {
    let health = shown.connection.health();
    let mut reasons = Vec::new();
    if *shown.leaving.borrow() {
        reasons.push("leaving".to_owned());
    }
    reasons.extend(health.registry.map(|reason| format!("registry: {reason}")));
    reasons.extend(health.waiting.iter().map(|job| format!("job `{job}` does not take part yet")));
    match reasons.is_empty() {
        true => (StatusCode::OK, "ready\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
}
