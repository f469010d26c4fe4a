//! Runs the items of a run: listeners around it, each item in the job's pool, each failure and panic caught, the end told,
//! the error handler called, the trace written.

mod attempts;
mod code;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::{ItemEnd, JobEvent, Run, RunId};
use elasticjob_core::time::Timestamp;
use elasticjob_registry::{Link, Registry};
use futures_util::future;
use tokio::sync::{Semaphore, watch};
use tracing::Instrument;

pub(crate) use attempts::{DELAY, DELAY_MAX, RETRIES, TIMEOUT};
pub(crate) use code::{Blocking, Closure, Dataflow, STREAMING, Simple};
pub use script::{missing_programs, shell_warnings, withhold};

use crate::clock;
use crate::clock::Clock;
use crate::contract::error_handler::Keep;
use crate::contract::gate::{Gate, Pass, gate};
use crate::contract::lease::{Lease, SessionOver, Start};
use crate::contract::{
    Cancelled, Context, DynListener, Failure, ItemExecutor, JobError, ListenedRun, RunLines, error_text,
};
use crate::error_handler::Dispatcher;
use crate::listener::{self, Moment};
use crate::metrics::{JobMeter, Metrics};
use crate::plugins::Plugins;
use crate::trace::{RunTrace, Tracer, opening};

/// The target of the span around each run of an item, for OpenTelemetry and the like.
pub const SPANS: &str = "elasticjob::spans";

/// A job that leaves waits so long for what belongs to runs that have ended: their listeners, messages that are being sent.
const LATE_MAX: Duration = Duration::from_secs(10);
/// Time for cancelled items, such as scripts that are being killed.
const DRAIN_MAX: Duration = Duration::from_secs(15);

/// How many items of one run execute at one time.
pub(crate) fn pool_size(name: &str) -> usize {
    if name.eq_ignore_ascii_case("SINGLE_THREAD") { 1 } else { *PROCESSORS_TWICE }
}

/// Asked once: the answer takes a dozen calls of the system, which reads it from its control groups.
static PROCESSORS_TWICE: LazyLock<usize> =
    LazyLock::new(|| 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get));

/// The faults of a configuration that only the runtime sees: names of plug-ins, and the properties that they read.
pub(crate) fn check(config: &JobConfig, items: &dyn ItemExecutor, plugins: &Plugins) -> Vec<ConfigError> {
    let mut faults = plugins.check(config);
    faults.extend(items.check(config));
    faults.extend(attempts::check(config));
    faults.extend(crate::trace::check(config));
    faults
}

/// What runs of all jobs of a process have in common.
#[derive(Clone, Debug)]
pub(crate) struct RunContext {
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
}

/// What all runs of one job have in common.
struct Work {
    items: Arc<dyn ItemExecutor>,
    shared: RunContext,
    instance: Arc<str>,
    meter: Arc<JobMeter>,
    turns: Arc<tokio::sync::Mutex<()>>,
    /// The job has to leave.
    leaving: Cancelled,
    /// The job has left: its items are another one's.
    left: Cancelled,
    /// The time for what may still be done is over, too.
    late: Cancelled,
    /// Items that should end after their current piece.
    yielding: watch::Receiver<BTreeSet<u32>>,
    /// The link to the registry: code is started while the session of its run is certain to live.
    link: watch::Receiver<Link>,
}

/// The execution side of one job.
pub(crate) struct Executor {
    work: Arc<Work>,
    leaving: watch::Sender<bool>,
    left: watch::Sender<bool>,
    late: watch::Sender<bool>,
    yielding: watch::Sender<BTreeSet<u32>>,
    pool: (usize, Arc<Semaphore>),
    rounds: BTreeMap<Timestamp, Round>,
    /// Everything that runs has a pass; see [`Executor::drain`].
    passes: (Pass, Gate),
}

/// The runs of one firing. Listeners of a later one wait until those of this one have ended.
struct Round {
    pass: std::sync::Weak<Pass>,
    gate: Gate,
}

impl Executor {
    pub(crate) fn new(items: Arc<dyn ItemExecutor>, shared: RunContext, instance: &str) -> Executor {
        let meter = shared.metrics.meter();
        let size = pool_size("CPU");
        let signal = || {
            let (sender, receiver) = watch::channel(false);
            (sender, Cancelled(receiver))
        };
        let ((leave, leaving), (leave_all, left), (hurry, late)) = (signal(), signal(), signal());
        let (yields, yielding) = watch::channel(BTreeSet::new());
        let (instance, turns, link) = (instance.into(), Arc::default(), shared.registry.link());
        Executor {
            work: Arc::new(Work { items, shared, instance, meter, turns, leaving, left, late, yielding, link }),
            leaving: leave,
            left: leave_all,
            late: hurry,
            yielding: yields,
            pool: (size, Arc::new(Semaphore::new(size))),
            rounds: BTreeMap::new(),
            passes: gate(),
        }
    }

    /// The job has to leave: asks what still runs to end.
    pub(crate) fn cut_off(&self) {
        self.leaving.send_replace(true);
    }

    /// The job has left: asks what still runs to end, and gives what waits for that, up to a bound. Where its nodes stand there
    /// yet, code that cannot be stopped is waited for as well: its item is still its own.
    pub(crate) fn drain(self, has_nodes: bool) -> impl Future<Output = ()> + Send + 'static {
        self.cut_off();
        self.left.send_replace(!has_nodes);
        let ((pass, gate), left, late) = (self.passes, self.left, self.late);
        drop(pass);
        async move {
            if clock::within(LATE_MAX, gate.clone().empty()).await.is_none() {
                left.send_replace(true);
                late.send_replace(true);
                let _ = clock::within(DRAIN_MAX, gate.empty()).await;
            }
        }
    }

    /// Where this job's counts are.
    pub(crate) fn meter(&self) -> &Arc<JobMeter> {
        &self.work.meter
    }

    /// Whether runs of this job want to know when to yield.
    pub(crate) fn streams(&self) -> bool {
        self.work.items.streams()
    }

    /// These items should end after their current piece.
    pub(crate) fn set_yielding(&self, items: &BTreeSet<u32>) {
        self.yielding.send_if_modified(|old| {
            let changed = old != items;
            if changed {
                old.clone_from(items);
            }
            changed
        });
    }

    /// A firing that these items could not take, since they were running.
    pub(crate) fn missed(&self, config: &JobConfig, items: &[u32]) {
        self.work.shared.tracer.missed(config, items, &self.work.instance);
    }

    /// An event of the job, for the trace.
    pub(crate) fn record(&self, job: &str, config: Option<&JobConfig>, event: &JobEvent) {
        self.work.shared.tracer.event(job, config, &self.work.instance, event);
    }

    /// Starts the items of a run. `ended` is called once for each, in whatever way it ended.
    pub(crate) fn run(&mut self, run: Run, ended: impl Fn(RunId, u32, ItemEnd) + Clone + Send + Sync + 'static) {
        let size = pool_size(&run.config.thread_pool);
        if self.pool.0 != size {
            self.pool = (size, Arc::new(Semaphore::new(size)));
        }
        let listeners = self.work.shared.plugins.find_listeners(&run.config);
        let round = (!listeners.is_empty()).then(|| self.round(run.due));
        let running = Running {
            work: Arc::clone(&self.work),
            trace: self.work.shared.tracer.run(&run).map(Arc::new),
            run: Arc::new(run),
            listeners,
            pool: Arc::clone(&self.pool.1),
            pass: self.passes.0.clone(),
        };
        tokio::spawn(running.go(round, ended));
    }

    /// The firing that a run belongs to: its pass, and the earlier ones that must have ended before its listeners are called.
    /// A run of an earlier firing, as of an item that was taken over, waits for no later one.
    fn round(&mut self, due: Timestamp) -> (Arc<Pass>, Vec<Gate>) {
        self.rounds.retain(|_, round| round.pass.strong_count() > 0);
        let before = self.rounds.range(..due).map(|(_, round)| round.gate.clone()).collect();
        if let Some(pass) = self.rounds.get(&due).and_then(|round| round.pass.upgrade()) {
            return (pass, before);
        }
        let (pass, gate) = gate();
        let pass = Arc::new(pass);
        self.rounds.insert(due, Round { pass: Arc::downgrade(&pass), gate });
        (pass, before)
    }
}

/// One run on its way.
struct Running {
    work: Arc<Work>,
    run: Arc<Run>,
    trace: Option<Arc<RunTrace>>,
    listeners: Vec<Arc<dyn DynListener>>,
    pool: Arc<Semaphore>,
    pass: Pass,
}

impl Running {
    async fn go(
        self,
        round: Option<(Arc<Pass>, Vec<Gate>)>,
        ended: impl Fn(RunId, u32, ItemEnd) + Clone + Send + Sync + 'static,
    ) {
        if let Some(trace) = &self.trace {
            trace.staging();
        }
        for before in round.iter().flat_map(|(_, before)| before) {
            self.unless_leaving(before.clone().empty()).await;
        }
        // Listeners too are code of the run.
        let is_over = !self.listeners.is_empty() && self.lease().wait(&self.work.leaving).await == Start::Over;
        if !is_over {
            self.listen(Moment::Before, &[]).await;
        }
        if let Some(trace) = &self.trace {
            trace.running();
        }
        let failures = self.execute(ended).await;
        if let Some(trace) = &self.trace {
            trace.ended(&failures);
        }
        let failed: Vec<u32> = failures.into_keys().collect();
        if !is_over {
            self.listen(Moment::After, &failed).await;
        }
        drop(round);
    }

    /// Calls the listeners, one after the other. What fails goes to the error handler, and the run goes on. Those of a run that
    /// has ended may go on while the job leaves.
    async fn listen(&self, moment: Moment, failed: &[u32]) {
        let leaving = match moment {
            Moment::Before => &self.work.leaving,
            Moment::After => &self.work.late,
        };
        for listener in &self.listeners {
            let run = ListenedRun {
                run: Arc::clone(&self.run),
                instance: Arc::clone(&self.work.instance),
                failed: failed.to_vec(),
                registry: Arc::clone(&self.work.shared.registry),
                leaving: leaving.clone(),
                turns: Arc::clone(&self.work.turns),
                clock: self.work.shared.clock.clone(),
            };
            if let Err(error) = listener::call(&**listener, moment, &run).await {
                self.fail(None, error);
            }
        }
    }

    /// Executes the items; gives the texts of those that failed.
    async fn execute(
        &self,
        ended: impl Fn(RunId, u32, ItemEnd) + Clone + Send + Sync + 'static,
    ) -> BTreeMap<u32, String> {
        if let [only] = self.run.items.as_slice() {
            // One item alone does not need the pool, as in Java.
            let failure = self.execute_one(only, ended).await;
            return failure.map(|text| (only.item, text)).into_iter().collect();
        }
        // Each in a task of its own, so that they run on all threads.
        let tasks = self.run.items.iter().map(|item| {
            let (running, item, ended) = (self.one(), item.clone(), ended.clone());
            let number = item.item;
            let task = tokio::spawn(async move {
                let _place = running.unless_leaving(Arc::clone(&running.pool).acquire_owned()).await;
                running.execute_one(&item, ended).await
            });
            async move { (number, task.await.unwrap_or_else(|e| Some(e.to_string()))) }
        });
        let results = future::join_all(tasks).await;
        results.into_iter().filter_map(|(item, failure)| Some((item, failure?))).collect()
    }

    /// The same run, for one of its items.
    fn one(&self) -> Running {
        Running {
            work: Arc::clone(&self.work),
            run: Arc::clone(&self.run),
            trace: self.trace.clone(),
            listeners: Vec::new(),
            pool: Arc::clone(&self.pool),
            pass: self.pass.clone(),
        }
    }

    fn lease(&self) -> Lease {
        Lease::new(&self.work.shared.registry, &self.work.link, self.run.session)
    }

    /// Waits, but no longer than until the job leaves.
    async fn unless_leaving<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut leaving = self.work.leaving.clone();
        tokio::select! {
            done = wait => Some(done),
            () = leaving.wait() => None,
        }
    }

    /// Executes one item to its end, in whatever way; gives why it failed.
    async fn execute_one(
        &self,
        item: &elasticjob_core::machine::RunItem,
        ended: impl Fn(RunId, u32, ItemEnd),
    ) -> Option<String> {
        let mut end = End { tell: |end| ended(self.run.id, item.item, end), told: false };
        let work = &*self.work;
        let (run, instance) = (Arc::clone(&self.run), Arc::clone(&work.instance));
        let lease = self.lease();
        let execution = self.trace.as_ref().map(|trace| trace.item_started(item.item));
        let log = self.trace.as_ref().zip(execution.as_ref()).and_then(|(trace, execution)| trace.log(execution));
        let mut context = Context::new(run, item, instance, work.leaving.clone(), work.yielding.clone(), lease.clone());
        let lines = log.clone().map(|log| log as Arc<dyn RunLines>);
        context.set_log(lines.clone());
        let (meter, source, began) = (&work.meter, self.run.source, clock::instant());
        // For collectors of spans and for run logs; nothing else enables this target, and a disabled target costs nothing.
        let span = opening(lines, || {
            tracing::info_span!(
                target: SPANS,
                "run",
                job = %self.run.config.name,
                item = item.item,
                source = source.word(),
                due = %self.run.due,
                fencing_token = item.fencing_token,
                instance = %self.work.instance,
                error = tracing::field::Empty,
                otel.status_code = tracing::field::Empty,
            )
        });
        let (ended, result) = match lease.wait(&work.leaving).await {
            Start::Now => {
                meter.begins(source, self.run.due);
                let running = attempts::run(&*work.items, context, &work.leaving, &work.left);
                let result = running.instrument(span.clone()).await;
                meter.ends(source, result.is_err(), began.elapsed());
                let end = match &result {
                    Ok(()) => ItemEnd::Succeeded,
                    Err(error) if error.is::<SessionOver>() => ItemEnd::NotStarted,
                    Err(_) => ItemEnd::Failed,
                };
                (end, result)
            }
            // The item did not start in time: its next owner runs it.
            Start::Leaving => {
                (ItemEnd::Failed, Err("not run: the job stopped on this instance before the item could start".into()))
            }
            Start::Over => (ItemEnd::NotStarted, Err(SessionOver.into())),
        };
        end.tell(ended);
        let text = result.as_ref().err().map(|error| error_text(&**error));
        if let Some(text) = &text {
            span.record("error", text.as_str()).record("otel.status_code", "ERROR");
        }
        drop(span);
        if let (Some(trace), Some(execution)) = (&self.trace, execution) {
            trace.item_ended(execution, log.as_deref(), text.as_deref());
        }
        if let Err(error) = result {
            self.fail(Some(item.item), error);
        }
        text
    }

    fn fail(&self, item: Option<u32>, error: JobError) {
        let keep = Keep { leaving: self.work.leaving.clone(), pass: self.pass.clone() };
        let failure = Failure::new(Arc::clone(&self.run), Arc::clone(&self.work.instance), item, error, keep);
        self.work.shared.dispatcher.dispatch(failure);
    }
}

/// Tells the end of an item once, also when its task is torn down.
struct End<F: Fn(ItemEnd)> {
    tell: F,
    told: bool,
}

impl<F: Fn(ItemEnd)> End<F> {
    fn tell(&mut self, end: ItemEnd) {
        if !std::mem::replace(&mut self.told, true) {
            (self.tell)(end);
        }
    }
}

impl<F: Fn(ItemEnd)> Drop for End<F> {
    fn drop(&mut self) {
        self.tell(ItemEnd::Failed);
    }
}
