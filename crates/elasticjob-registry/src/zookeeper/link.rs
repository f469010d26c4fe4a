//! The connection as one state machine that never gives up:
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

use parking_lot::Mutex;
use tokio::sync::watch;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, SessionInfo, SessionState};

use super::Settings;
use crate::{Error, Link, clock};

/// One connection of the client crate, until it breaks.
#[derive(Debug)]
pub(super) struct Connection {
    /// All its paths are below the namespace.
    pub(super) client: Client,
    /// The same one, whose paths are those of the server.
    whole: Client,
    pub(super) session: u64,
    pub(super) timeout: Duration,
    /// Becomes true when the connection is given up.
    pub(super) broken: watch::Sender<bool>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    current: Mutex<Option<Arc<Connection>>>,
    link: watch::Sender<Link>,
    stopped: watch::Sender<bool>,
    epoch: AtomicU64,
}

/// Starts the task that keeps the connection up.
pub(super) fn start(settings: Settings) -> Arc<Shared> {
    let shared = Arc::new(Shared {
        settings,
        current: Mutex::new(None),
        link: watch::Sender::new(Link::Down("not connected yet".into())),
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

    /// The connection, if there is one.
    pub(super) fn current(&self) -> Result<Arc<Connection>, Error> {
        self.current.lock().clone().ok_or_else(|| Error::Unreachable {
            registry: self.description(),
            reason: match &*self.link.borrow() {
                Link::Down(reason) => reason.clone(),
                Link::Closed => "it was closed".into(),
                Link::Up { .. } => "it is just being set up".into(),
            },
        })
    }

    pub(super) fn acls(&self) -> Acls<'static> {
        if self.settings.digest.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(super) fn stop(&self) {
        self.stopped.send_replace(true);
        if let Some(connection) = self.current.lock().take() {
            connection.broken.send_replace(true);
        }
    }

    /// Ends the session too, so that its nodes go at once.
    pub(super) async fn close(&self) {
        let session = self.current.lock().as_ref().map(|c| c.client.session().clone());
        self.stop();
        self.link.send_replace(Link::Closed);
        let Some(session) = session else { return };
        // The client closes a session only when it was not made to be attached again: attach once more, without.
        let connector = self.connector().with_session(session);
        let attempt = connector.connect(&self.settings.servers);
        if let Ok(Ok(client)) = tokio::time::timeout(self.settings.connection(), attempt).await {
            drop(client);
            clock::sleep(Duration::from_millis(20)).await; // its last packet is sent by a task of its own
        }
    }

    /// Tells the state of the link; what was closed stays closed.
    fn set(&self, link: Link) {
        self.link.send_if_modified(|old| {
            let open = *old != Link::Closed;
            if open {
                *old = link;
            }
            open
        });
    }

    fn connector(&self) -> zookeeper_client::Connector {
        let connector = Client::connector()
            .with_session_timeout(self.settings.session())
            .with_connection_timeout(self.settings.connection())
            .with_fail_eagerly();
        match &self.settings.digest {
            Some(digest) => connector.with_auth("digest", digest.as_bytes()),
            None => connector,
        }
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
    let mut session: Option<SessionInfo> = None;
    let mut failures = 0_u32;
    loop {
        match connect(shared, session.clone()).await {
            Ok(connection) => {
                let up = clock::instant();
                let renewed = session.as_ref().map(SessionInfo::id) != Some(connection.client.session().id());
                session = Some(connection.client.session().clone());
                let reason = serve(shared, connection, renewed).await;
                if matches!(reason, SessionState::Expired | SessionState::AuthFailed) {
                    session = None;
                }
                if up.elapsed() > Duration::from_secs(1) {
                    failures = 0;
                } else {
                    // Broken at once, perhaps by what is sent again and again: not at full speed.
                    failures += 1;
                    clock::sleep(back_off(&shared.settings, failures)).await;
                }
            }
            Err(ZkError::SessionExpired | ZkError::SessionMoved) if session.is_some() => {
                tracing::warn!("{}: the session has expired, a new one is opened", shared.description());
                session = None;
            }
            Err(error) => {
                failures += 1;
                let pause = back_off(&shared.settings, failures);
                let reason = explain(&error);
                shared.set(Link::Down(reason.clone()));
                if failures > shared.settings.max_retries {
                    tracing::error!(
                        attempt = failures,
                        "cannot connect to {}: {reason}; trying on",
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

fn explain(error: &ZkError) -> String {
    match error {
        ZkError::NoHosts | ZkError::Timeout => "no server of the list answers".into(),
        ZkError::AuthFailed => "the authentication failed: check the digest".into(),
        ZkError::NoAuth => "the namespace node may not be read: check the digest".into(),
        error => error.to_string(),
    }
}

async fn connect(shared: &Shared, session: Option<SessionInfo>) -> Result<Connection, ZkError> {
    let attached = session.is_some();
    let connector = shared.connector().with_detached();
    let connector = match session {
        Some(session) => connector.with_session(session),
        None => connector,
    };
    let limit = shared.settings.connection() * 2;
    let work = async {
        let client = connector.connect(&shared.settings.servers).await?;
        if attached {
            client.sync("/").await?; // another server may lag behind what we have seen
        }
        make_namespace(shared, &client).await?;
        // Settings that were checked make a path that is taken.
        let below = client.clone().chroot(format!("/{}", shared.settings.namespace));
        Ok::<_, ZkError>((client, below.map_err(|_| ZkError::BadArguments(&"the namespace"))?))
    };
    let (whole, client) = tokio::time::timeout(limit, work).await.map_err(|_| ZkError::Timeout)??;
    Ok(Connection {
        session: client.session().id().0.cast_unsigned(),
        timeout: client.session_timeout(),
        client,
        whole,
        broken: watch::Sender::new(false),
    })
}

impl Connection {
    /// Makes the namespace anew: ZooKeeper takes it away a minute after its last job, while the connection stands.
    pub(super) async fn make_namespace(&self, shared: &Shared) -> Result<(), ZkError> {
        make_namespace(shared, &self.whole).await
    }
}

/// Containers, as Curator makes them: they go when they are empty.
async fn make_namespace(shared: &Shared, client: &Client) -> Result<(), ZkError> {
    let mut path = String::new();
    for segment in shared.settings.namespace.split('/') {
        path.push('/');
        path.push_str(segment);
        match client.create(&path, b"", &CreateMode::Container.with_acls(shared.acls())).await {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Lets the connection be used until it breaks, and says how it did.
async fn serve(shared: &Shared, connection: Connection, renewed: bool) -> SessionState {
    let mut states = connection.client.state_watcher();
    let (session, timeout) = (connection.session, connection.timeout);
    let epoch = shared.epoch.fetch_add(1, Ordering::Relaxed) + 1;
    let connection = Arc::new(connection);
    *shared.current.lock() = Some(Arc::clone(&connection));
    tracing::info!(
        session = format_args!("{session:#x}"),
        "connected to {} with {} session, time-out {} ms",
        shared.description(),
        if renewed { "a new" } else { "the same" },
        timeout.as_millis()
    );
    shared.set(Link::Up { session, timeout, epoch });
    let mut broken = connection.broken.subscribe();
    let state = loop {
        let state = states.peek_state();
        if state != SessionState::SyncConnected {
            break state;
        }
        tokio::select! {
            state = states.changed() => if state != SessionState::SyncConnected { break state },
            _ = broken.wait_for(|broken| *broken) => break SessionState::Disconnected,
        }
    };
    *shared.current.lock() = None;
    connection.broken.send_replace(true);
    if !*shared.stopped.borrow() {
        tracing::warn!("the connection to {} is lost: {state:?}", shared.description());
    }
    shared.set(Link::Down(format!("the connection is lost ({state:?})")));
    state
}

/// Curator's exponential back-off: the base times a random number that grows, capped.
fn back_off(settings: &Settings, failures: u32) -> Duration {
    let factor = rand::random_range(0..(1_u32 << failures.min(16))).max(1);
    settings.base_sleep.saturating_mul(factor).min(settings.max_sleep)
}
