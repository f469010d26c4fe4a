//! The connection as one state machine that never stops retrying:
//!
//! ```text
//!              connected                    broken
//!   Connecting ---------> Up(session, epoch) ------> Connecting, with the same session
//!        ^ | refused, or no answer: pause, doubled up to maxSleepTimeMilliseconds
//!        +-+
//!   the server says "expired": Connecting, without a session
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elasticjob_zookeeper::{
    Access, Broken, Client, Code, ConnectError, CreateMode, Failure, Found, Options, Read, Session,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Settings;
use crate::{Error, Link, clock};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// `/` and the namespace.
    pub(super) root: String,
    current: Mutex<Option<Client>>,
    link: watch::Sender<Link>,
    stopped: watch::Sender<bool>,
    epoch: AtomicU64,
}

/// Starts the task that keeps the connection up.
pub(super) fn start(settings: Settings) -> Arc<Shared> {
    let shared = Arc::new(Shared {
        root: format!("/{}", settings.namespace),
        settings,
        current: Mutex::new(None),
        link: watch::Sender::new(Link::down("not connected yet")),
        stopped: watch::Sender::new(false),
        epoch: AtomicU64::new(0),
    });
    tokio::spawn(keep_up(Arc::clone(&shared)));
    shared
}

impl Shared {
    pub(super) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    pub(super) fn description(&self) -> String {
        format!("ZooKeeper {}/{}", self.settings.servers, self.settings.namespace)
    }

    /// The path on the server.
    pub(super) fn full(&self, path: &str) -> String {
        if path == "/" { self.root.clone() } else { format!("{}{path}", self.root) }
    }

    /// The path below the namespace of one on the server.
    pub(super) fn below(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.root)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| if rest.is_empty() { "/".into() } else { rest.into() })
    }

    /// The connection, if there is one.
    pub(super) fn current(&self) -> Result<Client, Error> {
        self.current.lock().clone().ok_or_else(|| Error::Unreachable {
            registry: self.description(),
            reason: match &*self.link.borrow() {
                Link::Down { reason, .. } => reason.clone(),
                Link::Closed => "the connection was closed".into(),
                Link::Up { .. } => "the connection is being established".into(),
            },
        })
    }

    pub(super) fn is_alive(&self, session: u64) -> bool {
        self.current.lock().as_ref().is_some_and(|client| client.session().id == session && client.is_alive())
    }

    pub(super) fn access(&self) -> Access {
        if self.settings.digest.is_some() { Access::Creator } else { Access::Anyone }
    }

    pub(super) fn stop(&self) {
        self.stopped.send_replace(true);
        if let Some(client) = self.current.lock().take() {
            client.give_up();
        }
    }

    /// Ends the session too, so that its nodes are deleted immediately.
    pub(super) async fn close(&self) {
        let client = self.current.lock().take();
        self.stopped.send_replace(true);
        self.link.send_replace(Link::Closed);
        if let Some(client) = client
            && clock::within(self.settings.connection(), client.close()).await.is_none()
        {
            client.give_up();
        }
    }

    /// Publishes the state of the connection; a closed one stays closed.
    fn set(&self, link: Link) {
        self.link.send_if_modified(|old| {
            let open = *old != Link::Closed;
            if open {
                *old = link;
            }
            open
        });
    }
}

async fn keep_up(shared: Arc<Shared>) {
    let mut stopped = shared.stopped.subscribe();
    tokio::select! {
        () = connect_for_ever(&shared) => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

async fn connect_for_ever(shared: &Shared) {
    let mut session: Option<Session> = None;
    let mut failures = 0_u32;
    loop {
        match connect(shared, session.as_ref()).await {
            Ok(client) => {
                let up = clock::instant();
                let renewed = session.as_ref() != Some(client.session());
                session = Some(client.session().clone());
                let reason = serve(shared, client, renewed).await;
                if matches!(reason, Broken::Expired | Broken::AuthFailed) {
                    session = None;
                }
                if up.elapsed() > Duration::from_secs(1) {
                    failures = 0;
                } else {
                    // Broken immediately, perhaps by a request that is repeated: not at full speed.
                    failures += 1;
                    clock::sleep(back_off(&shared.settings, failures)).await;
                }
            }
            Err(NotConnected::Expired) if session.is_some() => {
                tracing::warn!("{}: the session has expired; opening a new one", shared.description());
                session = None;
            }
            Err(error) => {
                failures += 1;
                let pause = back_off(&shared.settings, failures);
                let reason = error.to_string();
                let refused = matches!(error, NotConnected::AuthFailed | NotConnected::Denied);
                shared.set(Link::Down { reason: reason.clone(), refused });
                if failures > shared.settings.max_retries {
                    tracing::error!(
                        attempt = failures,
                        "cannot connect to {}: {reason}; retrying",
                        shared.description()
                    );
                } else {
                    tracing::warn!(attempt = failures, "cannot connect to {}: {reason}", shared.description());
                }
                clock::sleep(pause).await;
            }
        }
    }
}

/// Why an attempt to connect failed.
#[derive(Debug, thiserror::Error)]
enum NotConnected {
    #[error("the session has expired")]
    Expired,
    #[error("authentication failed; check the digest")]
    AuthFailed,
    #[error("access to the namespace node is denied; set the digest of a user who may access it")]
    Denied,
    #[error("{0}")]
    NoServer(String),
    #[error("{0}")]
    Failed(Failure),
}

impl From<ConnectError> for NotConnected {
    fn from(error: ConnectError) -> NotConnected {
        match error {
            ConnectError::Expired => NotConnected::Expired,
            ConnectError::AuthFailed => NotConnected::AuthFailed,
            ConnectError::NoServer(_) => NotConnected::NoServer(error.to_string()),
        }
    }
}

impl From<Failure> for NotConnected {
    fn from(failure: Failure) -> NotConnected {
        match failure {
            Failure::Refused(Code::NO_AUTH) => NotConnected::Denied,
            Failure::Refused(Code::AUTH_FAILED | Code::INVALID_ACL) => NotConnected::AuthFailed,
            Failure::NotSent(Broken::Expired) | Failure::Unknown(Broken::Expired) => NotConnected::Expired,
            failure => NotConnected::Failed(failure),
        }
    }
}

async fn connect(shared: &Shared, session: Option<&Session>) -> Result<Client, NotConnected> {
    let settings = &shared.settings;
    let limit = settings.connection() * 2;
    let options = Options {
        servers: &settings.servers,
        session_timeout: settings.session(),
        limit,
        digest: settings.digest.as_deref(),
    };
    let client = elasticjob_zookeeper::connect(&options, session).await?;
    let prepare = async {
        if session.is_some() {
            client.sync("/").await?; // another server may lag behind what we have seen
        }
        match shared.settings.creates_namespace {
            true => make_namespace(shared, &client).await,
            // Fails if the server rejects the digest.
            false => client.read(&[Read::Node(&shared.root)]).await.and_then(|found| match found.first() {
                Some(Found::Error(code)) if *code != Code::NO_NODE => Err(Failure::Refused(*code)),
                _ => Ok(()),
            }),
        }
    };
    match clock::within(limit, prepare).await {
        Some(prepared) => prepared?,
        None => return Err(NotConnected::NoServer("none of the servers in `serverLists` answered".into())),
    }
    Ok(client)
}

/// Containers, as Curator creates them: they are deleted when they are empty. Created again while a connection is up, if ZooKeeper deleted them a
/// minute after the last job. Only what is missing is created: ZooKeeper refuses to create a node that exists where the parent cannot be
/// written, and in many clusters `/` cannot.
pub(super) async fn make_namespace(shared: &Shared, client: &Client) -> Result<(), Failure> {
    let segments = shared.settings.namespace.split('/');
    let paths: Vec<String> = segments
        .scan(String::new(), |path, segment| {
            path.push('/');
            path.push_str(segment);
            Some(path.clone())
        })
        .collect();
    let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Node(path)).collect();
    let found = client.read(&reads).await?;
    let is_missing = |(_, found): &(&String, Found)| *found == Found::Error(Code::NO_NODE);
    for (path, _) in paths.iter().zip(found).filter(is_missing) {
        match client.create(path, b"", CreateMode::Container, shared.access()).await {
            Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lets the connection be used until it breaks, and says how it did.
async fn serve(shared: &Shared, client: Client, renewed: bool) -> Broken {
    let mut broken = client.broken();
    let (session, timeout) = (client.session().id, client.timeout());
    let epoch = shared.epoch.fetch_add(1, Ordering::Relaxed) + 1;
    *shared.current.lock() = Some(client);
    tracing::info!(
        session = format_args!("{session:#x}"),
        timeout_ms = timeout.as_millis(),
        "connected to {}; {}",
        shared.description(),
        if renewed { "opened a new session" } else { "resumed the session" }
    );
    shared.set(Link::Up { session, timeout, epoch });
    let reason = match broken.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or(Broken::ByUs),
        Err(_) => Broken::ByUs, // its task is gone
    };
    *shared.current.lock() = None;
    if !*shared.stopped.borrow() {
        tracing::warn!("lost the connection to {}: {reason}", shared.description());
    }
    shared.set(Link::down(format!("connection lost: {reason}")));
    reason
}

/// Curator's exponential back-off: the base times a random number that grows, capped.
fn back_off(settings: &Settings, failures: u32) -> Duration {
    let factor = rand::random_range(0..(1_u32 << failures.min(16))).max(1);
    settings.base_sleep.saturating_mul(factor).min(settings.max_sleep)
}
