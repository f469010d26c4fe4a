//! The HTTP server of the console.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

use crate::audit::Audit;
use crate::centres::Centres;
use crate::clock;
use crate::compat;
use crate::configurations::File;
use crate::failure::Failure;
use crate::pages;
use crate::pictures::Pictures;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::v1;

/// Maximum number of connections at one time; further ones are closed immediately.
const CONNECTIONS_MAX: usize = 1_024;
/// Longest time for the head of a request, which is also the time that an idle connection stays open.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// Pause after an error of the listener, such as a lack of file handles.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);
/// Requests that are in progress at a stop may take so long.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The path of a link that logs in.
const LOGIN: &str = "/login";

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    pub(crate) centres: Centres,
    pub(crate) stores: Stores,
    pub(crate) pictures: Pictures,
    pub(crate) runs: v1::RunCache,
    pub(crate) audit: Arc<Audit>,
}

impl State {
    /// A link that logs in its first user.
    pub(crate) fn invitation(&self) -> Result<String, Failure> {
        Ok(format!("http://{}{LOGIN}?token={}", self.settings.listen, self.sessions.invite()?))
    }
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// A running console. Dropping it does not stop it; see [`Console::stop`].
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Why a console cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The port cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// `Configurations.xml` cannot be read.
    #[error("{reason}")]
    Configurations {
        /// The file and its fault.
        reason: String,
    },
    /// No token could be made.
    #[error("{reason}")]
    Random {
        /// Why.
        reason: String,
    },
}

impl Console {
    /// Starts a console. Call it within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The port is in use, or `Configurations.xml` is damaged.
    pub async fn start(mut settings: Settings) -> Result<Console, ConsoleError> {
        let file = Arc::new(File::in_folder(&settings.folder));
        let centres = Centres::new(Arc::clone(&file), settings.own.clone());
        let activated = centres.activated().map_err(|error| ConsoleError::Configurations { reason: error.text })?;
        let address = settings.listen;
        let listener = TcpListener::bind(address).await.map_err(|error| ConsoleError::Listen { address, error })?;
        let address = listener.local_addr().unwrap_or(address);
        settings.listen = address;
        let state = Arc::new(State {
            sessions: Sessions::new(settings.accounts.clone(), settings.token_life),
            centres,
            pictures: Pictures::default(),
            runs: v1::RunCache::default(),
            audit: Arc::new(Audit::in_folder(&settings.folder)),
            stores: Stores::new(file, settings.drivers.clone(), settings.default_store.clone(), settings.own.clone()),
            settings,
        });
        if let Some(centre) = activated {
            // Its first request finds a connection.
            let state = Arc::clone(&state);
            tokio::spawn(async move {
                if let Err(error) = state.centres.get(Some(&centre.name)).await {
                    tracing::warn!(centre = centre.name, "cannot connect to the registry center: {error}");
                }
            });
        }
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(serve(listener, Arc::clone(&state), stopped));
        Ok(Console { address, state, stop, task })
    }

    /// Returns a new link that logs in its first user as administrator. Links from before are not valid any more. When this one has been
    /// used, the next one is logged.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn invitation(&self) -> Result<String, ConsoleError> {
        self.state.invitation().map_err(|failure| ConsoleError::Random { reason: failure.text })
    }

    /// The address and port on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: accepts no more requests, completes those in progress for up to five seconds, and closes the connections to the registries.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

async fn serve(listener: TcpListener, state: Arc<State>, mut stopped: watch::Receiver<bool>) {
    let router = Router::new()
        .nest("/api/v1", v1::router(Arc::clone(&state)))
        .nest("/api", compat::router(Arc::clone(&state)))
        .route(LOGIN, get(v1::accept).with_state(Arc::clone(&state)))
        .fallback(pages::serve)
        .layer(axum::middleware::map_response(protected))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&state), named));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        let Ok((stream, peer)) = accepted else {
            clock::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let service = router.clone().map_request(move |request| prepared(request, peer));
        let mut stopped = stopped.clone();
        connections.spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_MAX)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            let mut connection = std::pin::pin!(connection);
            let stop = async { stopped.wait_for(|stopped| *stopped).await.map(drop) };
            let served = tokio::select! {
                served = connection.as_mut() => Some(served),
                _ = stop => None,
            };
            let served = match served {
                Some(served) => served,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                tracing::debug!("failed to serve a connection: {error}");
            }
            drop(place);
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_GRACE, all).await;
    state.centres.close().await;
}

/// A path with a slash at its end means the one without it, as in ElasticJob-UI.
fn prepared(mut request: Request<hyper::body::Incoming>, peer: SocketAddr) -> Request<hyper::body::Incoming> {
    let path = request.uri().path();
    if let Some(short) = path.strip_suffix('/').filter(|short| !short.is_empty()) {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        if let Ok(uri) = format!("{short}{query}").parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    request.extensions_mut().insert(Peer(peer));
    request
}

/// Refuses requests that name another host.
async fn named(
    state: axum::extract::State<Arc<State>>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    match state.settings.allows_host(host) {
        true => next.run(request).await,
        false => {
            let text =
                "this console does not answer under that host name; set console.allowed-hosts in its properties file\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
    }
}

/// Headers of every answer.
async fn protected(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    );
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    // What depends on the user is never kept; a page says by itself how long it may be.
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
