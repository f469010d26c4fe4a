//! A registry in memory, for tests. It lives as long as its connections.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Tree;
use parking_lot::Mutex;

pub use crate::local::Connection;
use crate::local::Store;

/// A registry in memory. Its connections share one tree, as several processes share a ZooKeeper.
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
#[must_use]
pub struct Memory(Arc<Store>);

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// Creates an empty registry.
    pub fn new() -> Memory {
        Memory(Store::new(Tree::new(), None, "the registry in memory".into()))
    }

    /// Returns the registry of this process that has that name, or creates it. An empty name always creates one.
    pub fn named(name: &str) -> Memory {
        static NAMED: LazyLock<Mutex<HashMap<String, Weak<Store>>>> = LazyLock::new(Mutex::default);
        if name.is_empty() {
            return Memory::new();
        }
        let mut named = NAMED.lock();
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return Memory(store);
        }
        named.retain(|_, store| store.strong_count() > 0);
        let store = Store::new(Tree::new(), None, format!("the registry `{name}` in memory"));
        named.insert(name.to_owned(), Arc::downgrade(&store));
        Memory(store)
    }

    /// Creates an empty registry whose nodes get their times from this clock.
    pub fn with_clock(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Memory {
        Memory(Store::with_clock(Box::new(now), "the registry in memory".into()))
    }

    /// Connects with a new session.
    pub fn connect(&self) -> Connection {
        Connection::new(Arc::clone(&self.0), None)
    }
}
