//! Called once a firing in the whole cluster (Java: `AbstractDistributeOnceElasticJobListener`, `GuaranteeService`; manual:
//! "Distributed Listener").
//!
//! The instances tell each other by nodes: `guarantee/started/<i>` says that item `i` has started, and when all items are
//! there, one instance, below a latch, calls the listener and takes the nodes away, which releases the others. `completed`
//! is the same for the end. Java instances take part.
//!
//! Ours write the due time as data of their mark, so that what is left over from another firing does not count; Java's marks
//! are empty and count always. And ours write down how a firing was closed (`guarantee/started-closed`), so that an item that
//! comes behind it, as one that was taken over, does not wait for those that were there before.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::limits;
use elasticjob_core::machine::Source;
use elasticjob_core::path::JobPath;
use elasticjob_core::query::Query;
use elasticjob_core::ranges::Ranges;
use elasticjob_core::tree::{Node, Op};
use elasticjob_registry::{Link, Outcome, Sink, Target};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clock;
use crate::contract::{JobError, JobResult, ListenedRun, Listener, OnceListener, OnceTimeouts, panic_text};
use crate::latch;

/// A step that the registry did not carry out is tried again after this.
const RETRY: Duration = Duration::from_millis(200);
/// Tries of a last look, as long as the registry does not answer.
const TRIES_MAX: u32 = 50;
/// Number of attempts to delete the marks after a call of the listener: ten minutes. Otherwise another instance calls it again.
const CLOSING_TRIES_MAX: u32 = 3_000;

/// A mark of Java's stays at least so long: Java registers it, looks whether it is there, and where it is not looks again each
/// 100 ms for ever.
const JAVA_LOOKS: Duration = Duration::from_millis(300);

/// How a firing was closed.
const CONCLUDED: &str = "concluded";
const GIVEN_UP: &str = "given-up";

/// A listener that is called once a firing. When not all items come within the timeout (an instance died, or an item is
/// disabled), the failure goes to the job's error handler and the items run without it, as in Java.
#[derive(Debug)]
pub struct DistributeOnce<L> {
    listener: L,
    timeouts: OnceTimeouts,
}

impl<L: OnceListener> DistributeOnce<L> {
    /// With the timeouts; zero waits as long as it takes, as in Java. Leaving ends each wait.
    pub fn new(listener: L, started: Duration, completed: Duration) -> DistributeOnce<L> {
        let limit = |duration: Duration| Some(duration).filter(|d| !d.is_zero());
        DistributeOnce { listener, timeouts: OnceTimeouts { started: limit(started), completed: limit(completed) } }
    }

    fn timeouts(&self, run: &ListenedRun) -> OnceTimeouts {
        self.listener.timeouts(run.config()).unwrap_or(self.timeouts)
    }
}

impl<L: OnceListener> Listener for DistributeOnce<L> {
    fn name(&self) -> &str {
        self.listener.name()
    }

    fn order(&self) -> i32 {
        self.listener.order()
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        self.listener.check(config)
    }

    async fn before(&self, run: &ListenedRun) -> JobResult {
        let call = || self.listener.all_started(run).boxed();
        Gathering::new(run, self.name(), "started", self.timeouts(run).started).gather(call).await
    }

    async fn after(&self, run: &ListenedRun) -> JobResult {
        let call = || self.listener.all_completed(run).boxed();
        Gathering::new(run, self.name(), "completed", self.timeouts(run).completed).gather(call).await
    }
}

/// All items of a firing coming to one moment.
struct Gathering<'a> {
    run: &'a ListenedRun,
    path: JobPath,
    moment: &'static str,
    root: String,
    /// The data of our marks: the due time; a word for a trigger, which has no moment that all instances share.
    mark: String,
    /// The due time, when the mark is one.
    due: Option<i64>,
    /// Where it is written down how the latest firing was closed for this listener.
    record: String,
    limit: Option<Duration>,
    /// When each mark of Java's was seen first, by the transaction that made it.
    javas: Mutex<BTreeMap<i64, Instant>>,
}

/// What the registry says.
#[derive(Debug)]
enum Seen {
    /// Some items are missing.
    Some(Marks),
    /// All have come.
    All(Marks),
    /// An item of the job is ahead of this firing: it will not come any more.
    Passed(Marks),
    /// The firing is closed: the listener was called, or an instance stopped waiting.
    Closed { given_up: bool },
}

/// Marks of this firing, with the versions of their nodes.
#[derive(Debug)]
struct Marks {
    ours: Vec<(u32, i32)>,
    /// Whether there are marks of later firings, or of triggers.
    others: bool,
    /// Marks of items that the job has no more, or of earlier firings, which an instance that died has left. A Java instance
    /// that has the item now takes such a mark for its own.
    stale: Vec<(u32, i32)>,
    /// How long marks of Java's among these must be left alone.
    young: Duration,
}

impl<'a> Gathering<'a> {
    fn new(run: &'a ListenedRun, listener: &str, moment: &'static str, limit: Option<Duration>) -> Gathering<'a> {
        let path = JobPath::new(run.job_name());
        let root = path.guarantee_moment(moment);
        let due = (run.run.source != Source::Trigger).then_some(run.due().0);
        let mark = due.map_or("trigger".to_owned(), |due| due.to_string());
        let record = format!("{}/{}", path.guarantee_closed(moment), listener.replace('/', "_"));
        Gathering { run, path, moment, root, mark, due, record, limit, javas: Mutex::default() }
    }

    async fn gather(self, call: impl Fn() -> BoxFuture<'a, JobResult>) -> JobResult {
        let mut leaving = self.run.cancelled();
        let limit = async {
            match self.limit {
                Some(limit) => clock::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(limit);
        let mut registered = false;
        loop {
            // Only the waiting is bounded: a listener that is being called is not called off.
            let seen = tokio::select! {
                seen = self.come(&mut registered) => seen,
                () = limit.as_mut() => {
                    // Without marks of this instance there is nothing to conclude: no other instance counted it.
                    let registered = registered || matches!(self.look().await, Some(Seen::Some(_) | Seen::All(_)));
                    let unanswered = "this instance could not report its items, because the registry does not answer";
                    return if registered { self.give_up(&call).await } else { Err(self.error(unanswered)) };
                }
                () = leaving.wait() => return Err(self.error("the job is stopping on this instance")),
            };
            match seen {
                Seen::Closed { given_up } => return self.closed(given_up),
                Seen::Passed(_) => return self.give_up(&call).await,
                Seen::All(_) | Seen::Some(_) => {}
            }
            if let Some(result) = self.conclude(&call).await {
                return result;
            }
            self.pause().await;
        }
    }

    fn closed(&self, given_up: bool) -> JobResult {
        if given_up {
            Err(self.error("another instance gave up waiting for this firing, so this one does too"))
        } else {
            Ok(())
        }
    }

    /// Marks our items and waits for something to do.
    async fn come(&self, registered: &mut bool) -> Seen {
        while !*registered {
            match self.closing().await {
                Some(Some(given_up)) => return Seen::Closed { given_up },
                Some(None) => *registered = self.register().await,
                None => {}
            }
            if !*registered {
                self.pause().await;
            }
        }
        loop {
            let news = Arc::new(Notify::new());
            let told = Arc::clone(&news);
            let sink: Sink = Arc::new(move |_| told.notify_one());
            let mut link = self.run.registry.link();
            link.mark_unchanged();
            let Ok(_watch) = self.run.registry.watch(Target::Node(self.root.clone()), sink).await else {
                self.pause().await;
                continue;
            };
            // The watch lasts as long as the link.
            loop {
                match self.look().await {
                    Some(Seen::Some(_)) => {}
                    Some(seen) => return seen,
                    None => break,
                }
                tokio::select! {
                    () = news.notified() => {}
                    _ = link.changed() => break,
                }
            }
            self.pause().await;
        }
    }

    async fn pause(&self) {
        clock::sleep(RETRY).await;
    }

    async fn commit(&self, ops: Vec<Op>) -> bool {
        let Link::Up { session, .. } = *self.run.registry.link().borrow() else { return false };
        matches!(self.run.registry.commit(session, &ops).await, Outcome::Committed { .. })
    }

    async fn register(&self) -> bool {
        let mut ops = vec![Op::Ensure(self.path.guarantee()), Op::Ensure(self.root.clone())];
        for item in &self.run.run.items {
            let path = self.path.guarantee_item(self.moment, item.item);
            ops.push(Op::Ensure(path.clone()));
            ops.push(Op::set(path, self.mark.as_str()));
        }
        self.commit(ops).await
    }

    /// Whether this firing, or a later one, was closed, and then whether it was given up. `None` when the registry does not
    /// answer.
    async fn closing(&self) -> Option<Option<bool>> {
        let Some(own) = self.due else { return Some(None) };
        let answers = self.run.registry.read(vec![Query::Node(self.record.clone())]).await.ok()?;
        let text = answers[0].node().map(Node::text).unwrap_or_default();
        let (word, due) = text.split_once('=').unwrap_or_default();
        let due: i64 = due.parse().unwrap_or(i64::MIN);
        // One that is ahead of the time was written by a clock that was off.
        let counts = due >= own && due <= (self.run.clock.now() + limits::LEDGER_AHEAD).0;
        Some(counts.then_some(word == GIVEN_UP && due == own))
    }

    /// Reads the marks. `None` when the registry does not answer.
    async fn look(&self) -> Option<Seen> {
        let children = Query::Children(self.root.clone());
        let names = self.run.registry.read(vec![children]).await.ok()?;
        let items: Vec<u32> = names[0].children().iter().filter_map(|name| name.parse().ok()).collect();
        let queries = items.iter().map(|i| Query::Node(self.path.guarantee_item(self.moment, *i))).collect();
        let nodes = self.run.registry.read(queries).await.ok()?;
        let mut marks = Marks { ours: Vec::new(), others: false, stale: Vec::new(), young: Duration::ZERO };
        let mut passed = false;
        for (item, answer) in items.iter().zip(&nodes) {
            let Some(node) = answer.node() else { continue };
            if node.data.is_empty() {
                let seen = *self.javas.lock().entry(node.czxid).or_insert_with(clock::instant);
                marks.young = marks.young.max(JAVA_LOOKS.saturating_sub(seen.elapsed()));
            }
            if *item >= self.run.sharding_total_count() {
                marks.stale.push((*item, node.version));
            } else if node.data.is_empty() || node.is(&self.mark) {
                marks.ours.push((*item, node.version));
            } else {
                match (self.due, node.text().parse::<i64>()) {
                    (Some(own), Ok(theirs)) if theirs < own => marks.stale.push((*item, node.version)),
                    (own, theirs) => {
                        marks.others = true;
                        passed |= own.is_some() && theirs.is_ok();
                    }
                }
            }
        }
        let come = |item: u32| marks.ours.iter().any(|(i, _)| *i == item);
        if !self.run.run.items.iter().all(|i| come(i.item)) {
            let given_up = self.closing().await?.unwrap_or(false);
            return Some(Seen::Closed { given_up });
        }
        let all = (0..self.run.sharding_total_count()).all(come);
        Some(match (all, passed) {
            (true, _) => Seen::All(marks),
            (false, true) => Seen::Passed(marks),
            (false, false) => Seen::Some(marks),
        })
    }

    /// All are there: below the latch, one instance calls the listener and closes the firing. `None` when the latch was not to
    /// be had, or some are gone again.
    async fn conclude(&self, call: &impl Fn() -> BoxFuture<'a, JobResult>) -> Option<JobResult> {
        // The latch has one place for each process: the parts of a firing that run here take their turns.
        let _turn = self.run.turns.lock().await;
        if let Some(Seen::Closed { given_up }) = self.look().await {
            return Some(self.closed(given_up));
        }
        let (_keep, cancelled) = oneshot::channel();
        let latch = self.path.guarantee_latch(self.moment);
        let Link::Up { session, .. } = *self.run.registry.link().borrow() else { return None };
        let registry = Arc::clone(&self.run.registry);
        let Ok(Some(held)) = latch::acquire(registry, session, self.path.root(), &latch, cancelled).await else {
            latch::leave(&*self.run.registry, session, &latch).await;
            return None;
        };
        let result = match self.look().await {
            Some(Seen::All(_)) => {
                let result = AssertUnwindSafe(call()).catch_unwind().await;
                self.close(CONCLUDED, &held).await;
                Some(result.unwrap_or_else(|panic| Err(panic_text("the listener", &*panic).into())))
            }
            Some(Seen::Closed { given_up }) => Some(self.closed(given_up)),
            Some(Seen::Some(_) | Seen::Passed(_)) | None => None,
        };
        for _ in 0..CLOSING_TRIES_MAX {
            let link = self.run.registry.link().borrow().clone();
            match link {
                // Our place is the only one of this session, since parts take turns.
                Link::Up { session: now, .. } if now == session => {}
                Link::Up { .. } | Link::Closed => break, // gone with its session
                Link::Down { .. } => {
                    self.pause().await;
                    continue;
                }
            }
            if latch::leave(&*self.run.registry, session, &latch).await {
                break;
            }
            self.pause().await;
        }
        result
    }

    /// Takes the marks of this firing away and writes down how it ended, in one transaction; again until that is done. The
    /// place at the latch goes with them, so that nobody waits for it when this process dies here.
    async fn close(&self, how: &str, place: &str) {
        for _ in 0..CLOSING_TRIES_MAX {
            match self.look().await {
                Some(Seen::Closed { .. }) => return,
                Some(Seen::All(marks) | Seen::Some(marks) | Seen::Passed(marks)) if !marks.young.is_zero() => {
                    clock::sleep(marks.young).await;
                    continue;
                }
                Some(Seen::All(marks) | Seen::Some(marks) | Seen::Passed(marks)) => {
                    let mut ops = self.closing_ops(&marks, how);
                    ops.push(Op::delete(place));
                    // A place that went with its session must not keep the firing open.
                    let without = ops[..ops.len() - 1].to_vec();
                    if self.commit(ops).await || (self.is_gone(place).await && self.commit(without).await) {
                        return;
                    }
                }
                None => {}
            }
            self.pause().await;
        }
        tracing::error!(
            job = self.run.job_name(),
            path = self.root,
            "DISTRIBUTE_ONCE: cannot delete the marks of this firing; other instances wait until their timeout"
        );
    }

    async fn is_gone(&self, path: &str) -> bool {
        let answers = self.run.registry.read(vec![Query::Node(path.to_owned())]).await;
        answers.is_ok_and(|answers| answers[0].node().is_none())
    }

    fn closing_ops(&self, marks: &Marks, how: &str) -> Vec<Op> {
        let delete = |(item, version): &(u32, i32)| {
            let path = self.path.guarantee_item(self.moment, *item);
            Op::Delete { path, version: Some(*version) }
        };
        let mut ops: Vec<Op> = marks.ours.iter().chain(&marks.stale).map(delete).collect();
        if !marks.others {
            // Refused when another item comes meanwhile. That this node goes is what Java waits for.
            ops.push(Op::delete(self.root.clone()));
        }
        if self.due.is_some() {
            ops.push(Op::Ensure(self.path.guarantee_closed(self.moment)));
            ops.push(Op::Ensure(self.record.clone()));
            ops.push(Op::set(self.record.clone(), format!("{how}={}", self.mark)));
        }
        ops
    }

    /// The time is over, or an item is ahead: a last look; the marks of this firing are taken away, so that the next one begins
    /// anew.
    async fn give_up(&self, call: &impl Fn() -> BoxFuture<'a, JobResult>) -> JobResult {
        for _ in 0..TRIES_MAX {
            match self.look().await {
                Some(Seen::Closed { given_up }) => return self.closed(given_up),
                Some(Seen::All(_)) => {
                    if let Some(result) = self.conclude(call).await {
                        return result;
                    }
                }
                Some(Seen::Some(marks) | Seen::Passed(marks)) if !marks.young.is_zero() => {
                    clock::sleep(marks.young).await;
                    continue;
                }
                Some(Seen::Some(marks) | Seen::Passed(marks))
                    if self.commit(self.closing_ops(&marks, GIVEN_UP)).await =>
                {
                    let items: Vec<u32> = marks.ours.iter().map(|(item, _)| *item).collect();
                    let of = self.run.sharding_total_count();
                    return Err(self.error(&format!("only items {} of {of} items reported in time", Ranges(&items))));
                }
                Some(_) | None => {}
            }
            self.pause().await;
        }
        Err(self.error("not all items reported in time, and the registry does not answer"))
    }

    fn error(&self, reason: &str) -> JobError {
        let limit = self.limit.map(|limit| format!(" within {} ms", limit.as_millis())).unwrap_or_default();
        format!("not all items due {} were {}{limit}: {reason}", self.run.due(), self.moment).into()
    }
}
