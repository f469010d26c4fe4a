//! The registry as Java's job sees it: Curator's primitives, which ignore what is lost, and the cache, which lags.

use std::time::Duration;

use elasticjob_core::path::{self, JobPath};
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::shard::descending;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;

use super::desk::{Awaited, Condition, Desk, Inner, State, ask};
use super::{Ask, Reply};

/// How long Java's loops sleep.
pub(super) const POLL: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(super) struct Client {
    desk: Desk,
    pub(super) path: JobPath,
}

impl Client {
    pub(super) fn new(desk: &Desk) -> Client {
        let path = JobPath::new(&desk.borrow().state.document.job_name);
        Client { desk: Desk::clone(desk), path }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.desk.borrow().now
    }

    pub(super) fn id(&self) -> String {
        self.desk.borrow().state.id.clone()
    }

    pub(super) fn ip(&self) -> String {
        self.desk.borrow().state.ip.clone()
    }

    /// Reads the process's memory, or changes it.
    pub(super) fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.desk.borrow_mut().state)
    }

    fn ask(&self, what: Ask) -> Awaited {
        Awaited { desk: Desk::clone(&self.desk), number: ask(&self.desk, what) }
    }

    pub(super) async fn sleep(&self, length: Duration) {
        self.sleep_until(self.now() + length).await;
    }

    pub(super) async fn sleep_until(&self, until: Timestamp) {
        self.ask(Ask::Sleep(until)).await;
    }

    /// Waits until the process's memory says so.
    pub(super) async fn until(&self, holds: impl Fn(&State) -> bool + Unpin) {
        Condition { desk: Desk::clone(&self.desk), holds: |inner: &Inner| holds(&inner.state) }.await;
    }

    /// Waits for that time, or until the process's memory says so.
    pub(super) async fn until_or(&self, time: Timestamp, holds: impl Fn(&State) -> bool + Unpin) {
        let number = ask(&self.desk, Ask::Sleep(time));
        let passed = |inner: &Inner| inner.replies.contains_key(&number) || holds(&inner.state);
        Condition { desk: Desk::clone(&self.desk), holds: passed }.await;
        let mut desk = self.desk.borrow_mut();
        desk.open.remove(&number);
        desk.replies.remove(&number);
    }

    pub(super) fn say(&self, line: impl Into<String>) {
        ask(&self.desk, Ask::Say(line.into()));
    }

    pub(super) fn exit(&self) {
        ask(&self.desk, Ask::Exit);
    }

    /// User code: gives when it ends.
    pub(super) async fn run(&self, run: u64, item: u32, due: Timestamp) -> Timestamp {
        match self.ask(Ask::Run(run, item, due)).await {
            Reply::Until(end) => end,
            _ => self.now(),
        }
    }

    pub(super) fn ended(&self, run: u64, item: u32) {
        ask(&self.desk, Ask::Ended(run, item));
    }

    pub(super) async fn node(&self, path: &str) -> Option<String> {
        match self.ask(Ask::Read(Query::Node(path.to_owned()))).await {
            Reply::Answer(Answer::Node(node)) => node.map(|node| node.text()),
            _ => None,
        }
    }

    /// A node that cannot be asked for counts as missing.
    pub(super) async fn exists(&self, path: &str) -> bool {
        self.node(path).await.is_some()
    }

    /// The cache's answer, else a direct read.
    pub(super) async fn get(&self, path: &str) -> Option<String> {
        let cached = self.state(|s| s.cache.get(path).map(|node| node.text()));
        match cached {
            Some(text) => Some(text),
            None => self.node(path).await,
        }
    }

    /// In descending order.
    pub(super) async fn children(&self, path: &str) -> Vec<String> {
        match self.ask(Ask::Read(Query::Children(path.to_owned()))).await {
            Reply::Answer(Answer::Children(Some(names))) => descending(names),
            _ => Vec::new(),
        }
    }

    pub(super) async fn commit(&self, ops: Vec<Op>) -> bool {
        matches!(self.ask(Ask::Commit(ops)).await, Reply::Done(Ok(_)))
    }

    fn parents(&self, path: &str) -> Vec<Op> {
        let mut parents = Vec::new();
        let mut above = path::parent(path);
        while let Some(path) = above {
            parents.push(Op::Ensure(path.to_owned()));
            above = path::parent(path);
        }
        parents.reverse();
        parents
    }

    pub(super) async fn persist(&self, path: &str, data: &str) {
        if self.exists(path).await {
            self.commit(vec![Op::exists(path), Op::set(path, data)]).await;
        } else {
            let mut ops = self.parents(path);
            ops.push(Op::create(path, data));
            self.commit(ops).await;
        }
    }

    /// Two requests: others see a delete and a create.
    pub(super) async fn persist_ephemeral(&self, path: &str, data: &str) {
        if self.exists(path).await {
            self.remove(path).await;
        }
        let mut ops = self.parents(path);
        ops.push(Op::ephemeral(path, data));
        self.commit(ops).await;
    }

    /// With all that is below.
    pub(super) async fn remove(&self, path: &str) {
        if self.commit(vec![Op::delete(path)]).await {
            return;
        }
        let mut found = vec![path.to_owned()];
        let mut next = 0;
        while let Some(at) = found.get(next).cloned() {
            next += 1;
            found.extend(self.children(&at).await.into_iter().map(|name| format!("{at}/{name}")));
        }
        for path in found.iter().rev() {
            self.commit(vec![Op::delete(path.as_str())]).await;
        }
    }

    pub(super) async fn remove_if_existed(&self, path: &str) {
        if self.exists(path).await {
            self.remove(path).await;
        }
    }

    pub(super) async fn create_if_needed(&self, path: &str) {
        if self.exists(self.path.root()).await && !self.exists(path).await {
            let mut ops = self.parents(path);
            ops.push(Op::create(path, ""));
            self.commit(ops).await;
        }
    }

    /// Waits for the latch, without a limit; gives what is to be left afterwards.
    pub(super) async fn latch(&self, path: &str) -> u64 {
        loop {
            let waited = self.ask(Ask::Latch(path.to_owned()));
            let number = waited.number;
            if let Reply::Latched(true) = waited.await {
                return number;
            }
            // The link broke: Curator starts over with a new place.
            self.until(|state| state.connected).await;
        }
    }

    pub(super) fn leave_latch(&self, latch: u64) {
        ask(&self.desk, Ask::Unlatch(latch));
    }

    /// The configuration as the cache has it.
    pub(super) async fn config(&self) -> JobDocument {
        let text = self.get(&self.path.config()).await;
        self.parsed(text)
    }

    /// The configuration as the registry stores it.
    pub(super) async fn config_direct(&self) -> JobDocument {
        let text = self.node(&self.path.config()).await;
        self.parsed(text)
    }

    fn parsed(&self, text: Option<String>) -> JobDocument {
        let parsed = text.and_then(|text| JobDocument::parse(text.as_bytes()).ok());
        self.state(|state| {
            if let Some(document) = parsed {
                state.document = document;
            }
            state.document.clone()
        })
    }

    /// Whether a server is enabled: patient where the node is missing.
    pub(super) async fn is_enabled(&self, ip: &str) -> bool {
        let path = self.path.server(ip);
        for _ in 0..10 {
            match self.get(&path).await {
                Some(text) if !text.is_empty() => return text == "ENABLED",
                _ => self.sleep(POLL).await,
            }
        }
        false
    }

    /// Whether the server is enabled and some instance's id begins with its address (Java's prefix test).
    pub(super) async fn is_available(&self, ip: &str) -> bool {
        self.is_enabled(ip).await && self.children(&self.path.instances()).await.iter().any(|id| id.starts_with(ip))
    }

    /// The instances that may get items.
    pub(super) async fn available_instances(&self) -> Vec<String> {
        let mut available = Vec::new();
        for id in self.children(&self.path.instances()).await {
            let ip = id.split("@-@").next().unwrap_or_default().to_owned();
            if self.is_enabled(&ip).await {
                available.push(id);
            }
        }
        available
    }
}
