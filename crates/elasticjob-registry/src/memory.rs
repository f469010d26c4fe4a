//! A registry in memory: for tests, ours and those of users. It lives as long as its connections.

use std::sync::Arc;

use elasticjob_core::tree::Tree;

pub use crate::local::Connection;
use crate::local::Store;

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
    pub fn connect(&self) -> Connection {
        Connection::new(Arc::clone(&self.0), None)
    }
}
