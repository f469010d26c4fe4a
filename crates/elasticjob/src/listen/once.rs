//! Called once a firing in the whole cluster (Java: `AbstractDistributeOnceElasticJobListener`, `GuaranteeService`; manual:
//! "Distributed Listener").
//!
//! The instances tell each other by nodes: `guarantee/started/<i>` says that item `i` has started, and when all items are
//! there, one instance, below a latch, calls the listener and takes the nodes away, which releases the others. `completed`
//! is the same for the end. Java instances take part. Ours write the due time as data of their mark, so that what is left
//! over from an earlier firing does not count; Java's marks are empty and count always.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::Source;
use elasticjob_core::path::JobPath;
use elasticjob_core::tree::{Node, Op};
use elasticjob_core::view::Query;
use elasticjob_registry::{Link, Outcome, Sink, Target};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};

use super::{ListenedRun, Listener};
use crate::clock;
use crate::execute::{JobError, JobResult};
use crate::latch;

/// A step that the registry did not carry out is tried again after this.
const RETRY: Duration = Duration::from_millis(200);
/// Tries of the last look, when the time is over.
const TRIES_MAX: u32 = 10;

/// Called once a firing, when all items have started and when all have completed, on whichever instance came last.
pub trait OnceListener: Send + Sync + 'static {
    /// The name in `jobListenerTypes`.
    fn name(&self) -> &str;

    /// As of [`Listener::order`].
    fn order(&self) -> i32 {
        i32::MAX
    }

    /// As of [`Listener::check`].
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Time-outs that the configuration of a job sets; by default those of [`DistributeOnce::new`].
    fn time_outs(&self, config: &JobConfig) -> Option<TimeOuts> {
        let _ = config;
        None
    }

    /// All items of this firing have started; none executes before this has ended (Java:
    /// `doBeforeJobExecutedAtLastStarted`).
    fn all_started<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult>;

    /// All items of this firing have completed (Java: `doAfterJobExecutedAtLastCompleted`).
    fn all_completed<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult>;
}

/// How long the instances wait for each other; `None` as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOuts {
    /// For all items to start.
    pub started: Option<Duration>,
    /// For all items to complete.
    pub completed: Option<Duration>,
}

/// A listener that is called once a firing. When not all items come within the time-out (an instance died, or an item is
/// disabled), the failure goes to the job's error handler and the items run without it, as in Java.
#[derive(Debug)]
pub struct DistributeOnce<L> {
    listener: L,
    time_outs: TimeOuts,
}

impl<L: OnceListener> DistributeOnce<L> {
    /// With the time-outs; zero waits as long as it takes, as in Java. Leaving ends each wait.
    pub fn new(listener: L, started: Duration, completed: Duration) -> DistributeOnce<L> {
        let limit = |duration: Duration| Some(duration).filter(|d| !d.is_zero());
        DistributeOnce { listener, time_outs: TimeOuts { started: limit(started), completed: limit(completed) } }
    }

    fn time_outs(&self, run: &ListenedRun) -> TimeOuts {
        self.listener.time_outs(run.config()).unwrap_or(self.time_outs)
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

    fn before<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult> {
        let call = || self.listener.all_started(run);
        Gathering::new(run, "started", self.time_outs(run).started).gather(call).boxed()
    }

    fn after<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult> {
        let call = || self.listener.all_completed(run);
        Gathering::new(run, "completed", self.time_outs(run).completed).gather(call).boxed()
    }
}

/// All items of a firing coming to one moment.
struct Gathering<'a> {
    run: &'a ListenedRun,
    path: JobPath,
    moment: &'static str,
    root: String,
    mark: String,
    limit: Option<Duration>,
}

/// What the marks say.
enum Marks {
    /// Some are missing.
    Some(Vec<u32>),
    /// All are there.
    All(Vec<u32>),
    /// Our own are gone: another instance has called the listener, or given up.
    Gone,
}

impl<'a> Gathering<'a> {
    fn new(run: &'a ListenedRun, moment: &'static str, limit: Option<Duration>) -> Gathering<'a> {
        let path = JobPath::new(run.job_name());
        let root = path.guarantee_moment(moment);
        // A trigger has no moment that all instances share.
        let mark = if run.run.source == Source::Trigger { String::new() } else { run.due().0.to_string() };
        Gathering { run, path, moment, root, mark, limit }
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
            tokio::select! {
                concluding = self.come(&mut registered) => if !concluding { return Ok(()) },
                () = limit.as_mut() => return self.give_up(&call).await,
                () = leaving.wait() => return Err(self.error("the job is leaving")),
            }
            if let Some(result) = self.conclude(&call).await {
                return result;
            }
            self.pause().await;
        }
    }

    /// Marks our items and waits until all have come, or our marks are gone: then it is false.
    async fn come(&self, registered: &mut bool) -> bool {
        while !*registered {
            *registered = self.register().await;
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
                match self.marks().await {
                    Some(Marks::Gone) => return false,
                    Some(Marks::All(_)) => return true,
                    Some(Marks::Some(_)) => {}
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

    fn session(&self) -> Option<u64> {
        match *self.run.registry.link().borrow() {
            Link::Up { session, .. } => Some(session),
            Link::Down(_) | Link::Closed => None,
        }
    }

    async fn commit(&self, ops: Vec<Op>) -> bool {
        let Some(session) = self.session() else { return false };
        matches!(self.run.registry.commit(session, ops).await, Outcome::Committed { .. })
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

    /// The items that have come, of this firing; those of another one are left out.
    async fn marks(&self) -> Option<Marks> {
        let children = Query::Children(self.root.clone());
        let names = self.run.registry.read(vec![children]).await.ok()?;
        let items: Vec<u32> = names[0].children().iter().filter_map(|name| name.parse().ok()).collect();
        let queries = items.iter().map(|i| Query::Node(self.path.guarantee_item(self.moment, *i))).collect();
        let nodes = self.run.registry.read(queries).await.ok()?;
        let counts = |node: &Node| node.data.is_empty() || self.mark.is_empty() || node.is(&self.mark);
        let come = items.iter().zip(&nodes).filter(|(_, answer)| answer.node().is_some_and(counts));
        let come: Vec<u32> = come.map(|(item, _)| *item).collect();
        let ours = self.run.run.items.iter().all(|i| come.contains(&i.item));
        let all = (0..self.run.sharding_total_count()).all(|item| come.contains(&item));
        Some(match (ours, all) {
            (false, _) => Marks::Gone,
            (true, true) => Marks::All(items),
            (true, false) => Marks::Some(items),
        })
    }

    /// All are there: below the latch, one instance calls the listener and takes the marks away. `None` when the latch was
    /// not to be had.
    async fn conclude(&self, call: &impl Fn() -> BoxFuture<'a, JobResult>) -> Option<JobResult> {
        let (_keep, cancelled) = oneshot::channel();
        let latch = self.path.guarantee_latch(self.moment);
        let (registry, session) = (Arc::clone(&self.run.registry), self.session()?);
        let held = latch::acquire(registry, session, self.path.root(), &latch, cancelled).await?;
        let mut result = Ok(());
        let mut ops = vec![Op::delete(held)];
        let marks = self.marks().await;
        if let Some(Marks::All(items)) = &marks {
            result = call().await;
            ops.splice(0..0, self.removal(items));
        }
        if !self.commit(ops).await {
            // Another instance has given up and removed them, or the link is down: the latch goes with the session.
            tracing::debug!(job = self.run.job_name(), "the marks of `{}` could not be removed", self.moment);
        }
        marks.map(|_| result)
    }

    fn removal(&self, items: &[u32]) -> Vec<Op> {
        let marks = items.iter().map(|item| Op::delete(self.path.guarantee_item(self.moment, *item)));
        marks.chain([Op::delete(self.root.clone())]).collect()
    }

    /// The time is over: a last look; what is there is taken away, so that the next firing begins anew. The marks go in one
    /// transaction, which is refused when another item comes meanwhile.
    async fn give_up(&self, call: &impl Fn() -> BoxFuture<'a, JobResult>) -> JobResult {
        for _ in 0..TRIES_MAX {
            match self.marks().await {
                Some(Marks::Gone) => return Ok(()),
                Some(Marks::All(_)) => {
                    if let Some(result) = self.conclude(call).await {
                        return result;
                    }
                }
                Some(Marks::Some(items)) if self.commit(self.removal(&items)).await => {
                    let of = self.run.sharding_total_count();
                    return Err(self.error(&format!("only items {items:?} of {of} came in time")));
                }
                Some(Marks::Some(_)) | None => {}
            }
            self.pause().await;
        }
        Err(self.error("not all items came in time, and the registry does not answer"))
    }

    fn error(&self, reason: &str) -> JobError {
        let millis = self.limit.unwrap_or_default().as_millis();
        format!("waiting for all items to be {} (time-out {millis} ms): {reason}", self.moment).into()
    }
}
