//! A registry in memory: for tests, ours and those of users. It lives as long as its connections.

use std::sync::Arc;

use elasticjob_core::tree::Tree;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use elasticjob_core::tree::Op;
use elasticjob_core::view::{Answer, Query};

use crate::local::{Connection, Store};
use crate::{Error, Link, Outcome, Registry, Sink, Target, Watch};

/// A registry in memory. Connections to it share one tree, as several processes share a ZooKeeper.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use elasticjob_registry::{Registry, memory::Memory};
/// let memory = Memory::new();
/// let (one, two) = (memory.connect(), memory.connect());
/// assert_ne!(format!("{:?}", *one.link().borrow()), format!("{:?}", *two.link().borrow()));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<Store>);

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// An empty one.
    pub fn new() -> Memory {
        Memory(Store::new(Tree::new(), None, "the registry in memory".into()))
    }

    /// A connection with a session of its own.
    pub fn connect(&self) -> MemoryConnection {
        MemoryConnection(Connection::new(Arc::clone(&self.0)))
    }
}

/// A connection to a [`Memory`]. Its session ends when it is closed or dropped.
#[derive(Debug)]
pub struct MemoryConnection(Connection);

impl MemoryConnection {
    /// Ends the session as a long cut of the link would, and begins another one.
    pub fn expire(&self) {
        self.0.expire();
    }
}

impl Registry for MemoryConnection {
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Result<Vec<Answer>, Error>> {
        self.0.read(queries)
    }

    fn commit(&self, session: u64, ops: Vec<Op>) -> BoxFuture<'_, Outcome> {
        self.0.commit(session, ops)
    }

    fn create_sequential(
        &self,
        session: u64,
        parents: Vec<String>,
        prefix: String,
    ) -> BoxFuture<'_, Result<String, Error>> {
        self.0.create_sequential(session, parents, prefix)
    }

    fn watch(&self, target: Target, sink: Sink) -> BoxFuture<'_, Result<Watch, Error>> {
        self.0.watch(target, sink)
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.0.link()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}
