//! Threads as futures: each goes on until it waits for an answer of the world, or for a condition of its process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Node;
use elasticjob_core::wire::JobDocument;

use super::notify::Event;
use super::{Ask, Reply};

pub(super) type Thread = Pin<Box<dyn Future<Output = ()>>>;
pub(super) type Desk = Rc<RefCell<Inner>>;

/// What the threads of a process share, and what they ask of the world.
pub(super) struct Inner {
    pub(super) now: Timestamp,
    pub(super) asks: Vec<(u64, Ask)>,
    pub(super) replies: BTreeMap<u64, Reply>,
    /// Questions without an answer; those of them that go to the registry.
    pub(super) open: BTreeSet<u64>,
    pub(super) requests: BTreeSet<u64>,
    pub(super) last_ask: u64,
    pub(super) state: State,
}

/// The process's memory.
#[derive(Debug)]
pub(super) struct State {
    pub(super) id: String,
    pub(super) ip: String,
    pub(super) document: JobDocument,
    pub(super) cache: BTreeMap<String, Node>,
    pub(super) events: VecDeque<Event>,
    pub(super) was_connected: bool,
    pub(super) connected: bool,
    /// A reconnect that the connection listener has not seen, and whether the session is a new one.
    pub(super) reconnected: Option<bool>,
    /// Whether the triggers are paused.
    pub(super) paused: bool,
    pub(super) is_started: bool,
    pub(super) is_shut_down: bool,
    pub(super) stopping: bool,
    /// Between the begin and the end of an execution.
    pub(super) running: bool,
    /// The scheduler's only thread is in an execution.
    pub(super) is_busy: bool,
    /// Extra executions that were asked for.
    pub(super) extra: u32,
    /// The number of items as the listener knows it.
    pub(super) total: i64,
    /// The schedule in force, and whether it was replaced.
    pub(super) cron: String,
    pub(super) is_rescheduled: bool,
    pub(super) runs: u64,
}

pub(super) fn new(document: JobDocument, id: String, ip: String, now: Timestamp) -> Desk {
    let total = document.sharding_total_count;
    let cron = document.cron.clone().unwrap_or_default();
    let state = State {
        id,
        ip,
        document,
        cache: BTreeMap::new(),
        events: VecDeque::new(),
        was_connected: false,
        connected: false,
        reconnected: None,
        paused: false,
        is_started: false,
        is_shut_down: false,
        stopping: false,
        running: false,
        is_busy: false,
        extra: 0,
        total,
        cron,
        is_rescheduled: false,
        runs: 0,
    };
    Rc::new(RefCell::new(Inner {
        now,
        asks: Vec::new(),
        replies: BTreeMap::new(),
        open: BTreeSet::new(),
        requests: BTreeSet::new(),
        last_ask: 0,
        state,
    }))
}

/// Polls all threads until none of them goes on.
pub(super) fn poll(desk: &Desk, threads: &mut Vec<Thread>) {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let before = desk.borrow().progress();
        threads.retain_mut(|thread| thread.as_mut().poll(&mut context).is_pending());
        if desk.borrow().progress() == before {
            return;
        }
    }
}

impl Inner {
    /// Changes whenever a thread has done something that another one may wait for.
    fn progress(&self) -> (u64, usize, usize, bool, bool, bool, u32, Option<bool>) {
        let s = &self.state;
        (self.last_ask, self.replies.len(), s.events.len(), s.running, s.is_busy, s.is_started, s.extra, s.reconnected)
    }
}

/// Asks, and gives the number of the question.
pub(super) fn ask(desk: &Desk, ask: Ask) -> u64 {
    let mut desk = desk.borrow_mut();
    desk.last_ask += 1;
    let number = desk.last_ask;
    if matches!(ask, Ask::Commit(_) | Ask::Read(_) | Ask::Latch(_)) {
        desk.requests.insert(number);
    }
    if !matches!(ask, Ask::Say(_) | Ask::Ended(..) | Ask::Unlatch(_) | Ask::Exit) {
        desk.open.insert(number);
    }
    desk.asks.push((number, ask));
    number
}

/// The answer to a question.
pub(super) struct Awaited {
    pub(super) desk: Desk,
    pub(super) number: u64,
}

impl Future for Awaited {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        let mut desk = self.desk.borrow_mut();
        match desk.replies.remove(&self.number) {
            Some(reply) => {
                desk.requests.remove(&self.number);
                Poll::Ready(reply)
            }
            None => Poll::Pending,
        }
    }
}

/// Waits until the process's memory says so.
pub(super) struct Condition<F> {
    pub(super) desk: Desk,
    pub(super) holds: F,
}

impl<F: Fn(&Inner) -> bool + Unpin> Future for Condition<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if (self.holds)(&self.desk.borrow()) { Poll::Ready(()) } else { Poll::Pending }
    }
}
