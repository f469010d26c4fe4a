//! A Java-like peer: an instance that behaves as Java ElasticJob 3.0.4 does, its defects included.
//!
//! ```text
//! desk.rs       its threads as futures, and what they ask of the world
//! client.rs     the registry through Curator's eyes: primitives, the lagging cache, the latch
//! notify.rs     the listeners L1 to L11, one event after the other, and the connection listener
//! execute.rs    the scheduler's one thread: firings, dropped firings, an execution
//! sharding.rs   election and resharding
//! failover.rs   takeover
//! ```
//!
//! Not modelled: reconcile (its smallest interval is a minute), distribute-once, the thread pool, error handlers.

mod client;
mod desk;
mod execute;
mod failover;
mod notify;
mod sharding;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Node, Op, Refusal};
use elasticjob_core::wire::JobDocument;

use client::Client;
use desk::{Desk, Thread};

/// What a peer asks of the world.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Commit(Vec<Op>),
    Read(Query),
    Latch(String),
    /// Leaves the latch that was asked for by that number.
    Unlatch(u64),
    Sleep(Timestamp),
    /// User code begins: a run's number, an item, a due time. The answer is when it ends.
    Run(u64, u32, Timestamp),
    Ended(u64, u32),
    Say(String),
    Exit,
}

/// What the world answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done(Result<i64, Refusal>),
    Answer(Answer),
    Latched(bool),
    Until(Timestamp),
    /// The time has passed; for a request: it was not answered.
    Slept,
}

/// One process of Java.
pub(crate) struct Peer {
    desk: Desk,
    threads: Vec<Thread>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.desk.borrow().state)
    }
}

impl Peer {
    pub(crate) fn new(document: JobDocument, id: String, ip: String, now: Timestamp) -> Peer {
        let desk = desk::new(document, id, ip, now);
        let client = Client::new(&desk);
        let threads: Vec<Thread> = vec![
            Box::pin(execute::main(client.clone())),
            Box::pin(notify::listen(client.clone())),
            Box::pin(notify::connection(client)),
        ];
        Peer { desk, threads }
    }

    /// Lets all threads go as far as they can; gives what they ask.
    pub(crate) fn go_on(&mut self, now: Timestamp) -> Vec<(u64, Ask)> {
        self.desk.borrow_mut().now = now;
        desk::poll(&self.desk, &mut self.threads);
        std::mem::take(&mut self.desk.borrow_mut().asks)
    }

    pub(crate) fn answer(&mut self, ask: u64, reply: Reply) {
        let mut desk = self.desk.borrow_mut();
        if desk.open.remove(&ask) {
            desk.replies.insert(ask, reply);
        }
    }

    /// A connection, and what the cache reads at its beginning.
    pub(crate) fn connected(&mut self, cache: Vec<(String, Node)>, renewed: bool) {
        let mut desk = self.desk.borrow_mut();
        let first = !desk.state.was_connected;
        desk.state.was_connected = true;
        desk.state.connected = true;
        let old = std::mem::take(&mut desk.state.cache);
        for (path, node) in cache {
            if first || old.get(&path).is_none_or(|before| before.data != node.data) {
                desk.state.events.push_back(notify::Event::of(&path, old.get(&path), Some(&node)));
            }
            desk.state.cache.insert(path, node);
        }
        if !first {
            let gone: Vec<_> = old.iter().filter(|(path, _)| !desk.state.cache.contains_key(*path)).collect();
            let events: Vec<_> = gone.iter().map(|(path, node)| notify::Event::of(path, Some(node), None)).collect();
            desk.state.events.extend(events);
            desk.state.reconnected = Some(renewed);
        }
    }

    /// The connection is lost; gives the questions that wait for an answer.
    pub(crate) fn lost(&mut self) -> Vec<u64> {
        let mut desk = self.desk.borrow_mut();
        desk.state.connected = false;
        desk.state.paused = true;
        desk.requests.iter().filter(|ask| desk.open.contains(ask)).copied().collect()
    }

    pub(crate) fn changed(&mut self, path: String, node: Option<Node>) {
        let mut desk = self.desk.borrow_mut();
        let event = notify::Event::of(&path, desk.state.cache.get(&path), node.as_ref());
        match node {
            Some(node) => drop(desk.state.cache.insert(path, node)),
            None => drop(desk.state.cache.remove(&path)),
        }
        desk.state.events.push_back(event);
    }

    /// SIGTERM.
    pub(crate) fn stop(&mut self) {
        self.desk.borrow_mut().state.stopping = true;
    }
}
