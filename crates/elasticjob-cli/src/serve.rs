//! What an agent serves beside its jobs: the dump service, and metrics with health over HTTP. None of it can keep a job from
//! running: a port that is taken is told, and the jobs run on.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use elasticjob::DumpService;
use elasticjob::agent::Places;
use elasticjob::registry::Connection;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::clock;

/// Maximum number of connections at one time; a further one takes the place of the oldest.
const CONNECTIONS_MAX: usize = 64;
/// From a connection to the end of its one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// After an error of the listener, as when no file handle is left.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);

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
    wanted: watch::Sender<Wanted>,
}

/// What must be for this process to be ready.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// The jobs of its file, but for those that an operator has shut down.
    jobs: BTreeSet<String>,
    /// Whether it is on its way out: it is not ready any more.
    leaving: bool,
}

impl Served {
    /// The jobs of the file.
    pub(crate) fn expect(&self, jobs: impl Iterator<Item = String>) {
        let jobs = jobs.collect();
        self.wanted.send_modify(|wanted| wanted.jobs = jobs);
    }

    /// An operator has shut this one down here.
    pub(crate) fn rests(&self, job: &str) {
        self.wanted.send_if_modified(|wanted| wanted.jobs.remove(job));
    }

    /// The process is stopping: load balancers should send it no more requests.
    pub(crate) fn leave(&self) {
        self.wanted.send_modify(|wanted| wanted.leaving = true);
    }

    /// Serves this from now on; what is the same as before goes on, and what could not be served is tried again.
    pub(crate) async fn serve(&mut self, services: Services, connection: &Connection) {
        let (dump_changed, metrics_changed) =
            (services.dump != self.services.dump, services.metrics != self.services.metrics);
        // Both stop before one starts: it may get the port of the other one.
        if dump_changed && let Some(service) = self.dump.take() {
            service.stop().await;
        }
        if metrics_changed && let Some(task) = self.metrics.take() {
            task.abort();
            let _ = task.await; // the port is free then
        }
        if dump_changed {
            self.services.dump = None;
            if let Some(address) = services.dump {
                self.start_dump(address, connection).await;
            }
        }
        if metrics_changed {
            self.services.metrics = None;
            if let Some(address) = services.metrics {
                self.start_metrics(address, connection).await;
            }
        }
    }

    async fn start_dump(&mut self, address: SocketAddr, connection: &Connection) {
        match DumpService::start(connection, address).await {
            Ok(service) => {
                tracing::info!("serving dumps on {}", service.address());
                self.dump = Some(service);
                self.services.dump = Some(address);
            }
            Err(error) => tracing::error!("dump service: cannot listen on {address}: {error}; jobs keep running"),
        }
    }

    async fn start_metrics(&mut self, address: SocketAddr, connection: &Connection) {
        let state = Arc::new(Shown { connection: connection.clone(), wanted: self.wanted.subscribe() });
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                tracing::info!("serving metrics and health on http://{bound}");
                self.metrics = Some(tokio::spawn(serve(listener, state)));
                self.services.metrics = Some(address);
            }
            Err(error) => tracing::error!("metrics service: cannot listen on {address}: {error}; jobs keep running"),
        }
    }
}

struct Shown {
    connection: Connection,
    wanted: watch::Receiver<Wanted>,
}

/// One request a connection, bounded in number and time: who is slow, or says nothing, costs a place for a while.
async fn serve(listener: TcpListener, state: Arc<Shown>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(state);
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let router = if is_local { router.layer(middleware::from_fn(local_names)) } else { router };
    let mut places = Places::new(CONNECTIONS_MAX);
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            clock::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let task = connections.spawn(async move {
            let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(ANSWER_MAX, served).await {
                tracing::debug!("failed to answer a request: {error}");
            }
        });
        places.take(task);
    }
}

/// A web page of another site can have its own name resolved to a loopback address, and would then read what only this host may read.
async fn local_names(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_local = name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match is_local {
        true => next.run(request).await,
        false => {
            (StatusCode::MISDIRECTED_REQUEST, "this service answers only under localhost and loopback addresses\n")
                .into_response()
        }
    }
}

async fn metrics(State(shown): State<Arc<Shown>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shown.connection.metrics())
}

/// Ready is who takes part in each of its jobs, and whose requests the registry accepts.
async fn ready(State(shown): State<Arc<Shown>>) -> impl IntoResponse {
    let (health, wanted) = (shown.connection.health(), shown.wanted.borrow().clone());
    let mut reasons = Vec::new();
    if wanted.leaving {
        reasons.push("the process is shutting down".to_owned());
    }
    reasons.extend(health.registry.map(|reason| format!("registry: {reason}")));
    let takes_part = |job: &String| health.jobs.get(job) == Some(&true);
    reasons.extend(wanted.jobs.iter().filter_map(|job| match (takes_part(job), health.refusals.get(job)) {
        (true, None) => None,
        (true, Some(reason)) => Some(format!("job `{job}`: {reason}")),
        (false, None) => Some(format!("job `{job}` has not joined")),
        (false, Some(reason)) => Some(format!("job `{job}` has not joined: {reason}")),
    }));
    match reasons.is_empty() {
        true => (StatusCode::OK, "ready\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
}
