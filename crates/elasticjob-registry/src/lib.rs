//! The registries that the instances of a job share, behind the trait [`Registry`]: ZooKeeper (`zookeeper`), one file (`embedded`),
//! and [`memory`]. Code outside of this crate does not know which one it uses; [`conformance`] tests their common contract.

#![cfg_attr(
    not(all(feature = "zookeeper", feature = "embedded")),
    allow(dead_code, reason = "parts that only the absent registries use")
)]

mod clock;
pub mod conformance;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod local;
pub mod memory;
pub mod trust;
mod url;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::{Event, Op, Refusal};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

pub use error::Error;
pub use url::{RegistryUrl, encoded};

/// A connection to a registry: a tree of small nodes with sessions, ephemeral nodes, transactions and watches, as
/// ZooKeeper has it.
///
/// To be correct an implementation must keep these promises; [`conformance`] checks them:
///
/// - Paths begin with `/` and are relative to a namespace. Data is a byte string, possibly empty.
/// - Requests of one connection are executed in the order in which they were made: a read sees every commit of the same
///   connection that was made before it.
/// - A commit is all or nothing, except for [`Op::Ensure`]. It belongs to the session that it names: it is never executed in
///   another one. A rejected commit did not happen; one that was answered too late for its session to be alive
///   surely is [`Outcome::Unknown`].
/// - Ephemeral nodes go when their session ends, and not before. A session outlives a broken connection by its timeout.
/// - A watch reports every change after it was set, in the order of the changes, until the connection breaks. After that it is
///   void: the user sets it again when the link is up, and reads what it watches.
pub trait Registry: fmt::Debug + Send + Sync + 'static {
    /// Reads nodes and names of children, one answer for each query, in order.
    ///
    /// # Errors
    ///
    /// The registry cannot be reached, or refuses the access. A missing node is no error.
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Result<Vec<Answer>, Error>>;

    /// Carries one transaction out, in that session.
    fn commit<'a>(&'a self, session: u64, ops: &'a [Op]) -> BoxFuture<'a, Outcome>;

    /// Creates an ephemeral node whose name is `prefix` and ten digits that rise with each one below the same parent.
    /// `parents` are created first where they are missing, the outermost first; they may vanish again when empty.
    ///
    /// # Errors
    ///
    /// As of [`Registry::read`]; [`Error::Missing`] when the parent of the first parent is not there.
    fn create_sequential(
        &self,
        session: u64,
        parents: Vec<String>,
        prefix: String,
    ) -> BoxFuture<'_, Result<String, Error>>;

    /// Sets a watch. It ends with the returned guard, or when the link goes down.
    ///
    /// # Errors
    ///
    /// As of [`Registry::read`].
    fn watch(&self, target: Target, sink: Sink) -> BoxFuture<'_, Result<Watch, Error>>;

    /// The state of the link, and every change of it.
    fn link(&self) -> watch::Receiver<Link>;

    /// Returns `true` if that session is certain to be alive now. Returns `false` while the connection is lost, and after this process
    /// was stopped or its host suspended for longer than the session timeout.
    fn is_alive(&self, session: u64) -> bool {
        matches!(&*self.link().borrow(), Link::Up { session: current, .. } if *current == session)
    }

    /// Returns who can write these nodes and what is directly below them. The default is that every client can.
    ///
    /// # Errors
    ///
    /// The registry cannot be reached.
    fn protects(&self, paths: Vec<String>) -> BoxFuture<'_, Result<Protection, Error>> {
        let _ = paths;
        Box::pin(std::future::ready(Ok(Protection::None)))
    }

    /// Ends the session and the connection.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// What it is connected to, for people.
    fn describe(&self) -> String;

    /// Whether a lost connection is established again without a call.
    fn reconnects(&self) -> bool {
        true
    }

    /// Whether other hosts may be connected to the same registry.
    fn is_shared(&self) -> bool {
        true
    }
}

/// Who can write nodes of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Only the user of this connection.
    Whole,
    /// Nodes are missing; the others can be written only by the user of this connection.
    Absent,
    /// Other clients too, although this connection has authenticated itself.
    Open,
    /// Every client: this connection has not authenticated itself.
    None,
}

/// How a commit ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was committed.
    Committed {
        /// Its number, higher than that of every one before. Certain only if an operation was [`Op::Set`]: ZooKeeper reports
        /// it with nothing else, and it is 0 then.
        zxid: i64,
    },
    /// It was not, since one of its operations could not be.
    Refused(Refusal),
    /// It is unknown whether it was committed.
    Unknown,
    /// It was not committed, and will not be.
    Failed(Error),
}

/// The link to a registry.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// There is none. The session of before may live on.
    Down {
        /// Why.
        reason: String,
        /// The registry answers and refuses this client, until the credentials or the rights are changed.
        refused: bool,
    },
    /// There is one.
    Up {
        /// The session; another one than before when that has ended.
        session: u64,
        /// After how long without contact the registry ends it.
        timeout: Duration,
        /// Counts the links: each is a new one, although the session may be the same.
        epoch: u64,
    },
    /// It was closed by us.
    Closed,
}

impl Link {
    /// No link, for that reason.
    pub fn down(reason: impl Into<String>) -> Link {
        Link::Down { reason: reason.into(), refused: false }
    }
}

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One node: its creation, its data, its deletion, and its children's coming and going.
    Node(String),
    /// A node and all below: creation, data and deletion of each.
    Subtree(String),
}

impl Target {
    /// The node that it begins at.
    pub fn path(&self) -> &str {
        match self {
            Target::Node(path) | Target::Subtree(path) => path,
        }
    }
}

/// Takes the events of a watch. It is called where events come in, so it must not wait.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// A watch that is set; it ends when this is dropped.
pub struct Watch(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Watch {
    /// A guard that calls `end` when it is dropped.
    pub fn new(end: impl FnOnce() + Send + Sync + 'static) -> Watch {
        Watch(Some(Box::new(end)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Connects to the registry at an address:
///
/// - `zookeeper://h1:2181,h2:2181/namespace`, with settings as its query: `?digest=user:password`
/// - `embedded:PATH`, whose file this process then holds
/// - `memory:`, a new registry that ends with its last reference, or `memory:NAME`, which the connections of this process share
///
/// If a ZooKeeper cannot be reached, this succeeds all the same: the link is down until it can.
///
/// # Errors
///
/// The address is invalid, or the file of an embedded registry cannot be used.
pub async fn connect(address: &str) -> Result<Arc<dyn Registry>, Error> {
    open(RegistryUrl::parse(address)?).await
}

/// Connects to the registry at a parsed address; see [`connect`].
///
/// # Errors
///
/// A setting is invalid, or the file of an embedded registry cannot be used.
pub async fn open(url: RegistryUrl) -> Result<Arc<dyn Registry>, Error> {
    Ok(match url {
        #[cfg(feature = "zookeeper")]
        RegistryUrl::Zookeeper(settings) => Arc::new(zookeeper::Zookeeper::connect(settings)?),
        #[cfg(feature = "embedded")]
        RegistryUrl::Embedded(path) => Arc::new(embedded::open_when_free(&path).await?),
        RegistryUrl::Memory(name) => Arc::new(memory::Memory::named(&name).connect()),
    })
}

/// Connects as a client: like [`connect`], but an embedded registry whose file another process holds is reached through the socket
/// beside the file.
///
/// # Errors
///
/// As [`connect`]. For `embedded:` also if the file does not exist: a client does not create it.
pub async fn attach(address: &str) -> Result<Arc<dyn Registry>, Error> {
    match RegistryUrl::parse(address)? {
        #[cfg(feature = "embedded")]
        RegistryUrl::Embedded(path) => embedded::attach(&path).await,
        // A command that only reads must not create a namespace that does not exist.
        #[cfg(feature = "zookeeper")]
        RegistryUrl::Zookeeper(settings) => {
            Ok(Arc::new(zookeeper::Zookeeper::connect(zookeeper::Settings { creates_namespace: false, ..settings })?))
        }
        url => open(url).await,
    }
}
