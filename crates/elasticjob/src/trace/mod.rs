//! The event trace: what ran where and how it ended, in tables that Java writes too (Java: `JobTracingEventBus`; manual:
//! "Job tracing").
//!
//! Events go into a bounded queue and never hold up a run: what does not fit is dropped and counted. One task a data source
//! writes them in batches, and waits for a database that is away.

mod bus;
#[cfg(feature = "run-log")]
mod log_layer;
#[cfg(feature = "rdb")]
pub mod rdb;
mod run_log;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::{JobEvent, Level, Run};
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::task_id;
use parking_lot::Mutex;

pub use crate::contract::trace::{DataSource, Retention, RunLogs, TraceError, TraceSettings, TraceSink, TraceStorage};
use crate::contract::trace_event as event;
pub use crate::contract::trace_event::{End, Execution, JobRecord, LogPart, State, Status, TraceEvent};
use bus::Bus;
#[cfg(feature = "run-log")]
pub(crate) use log_layer::opening;
#[cfg(feature = "run-log")]
pub use log_layer::run_log_layer;
pub(crate) use run_log::RunLog;

use crate::clock;
use crate::commands::Permission;
use crate::contract::Props;
#[cfg(not(feature = "run-log"))]
use crate::contract::RunLines;
use crate::contract::trace::{RUN_LOG_BYTES, RUN_LOG_BYTES_RANGE};
use crate::plugins::Plugins;

/// What is recorded of the output of a job's runs, if not what the process's settings say: `off`, `failed` or `all`.
const RUN_LOG: &str = "props.elasticjob.run.log";
/// Bytes that are recorded of a run's output.
const RUN_LOG_MAX: &str = "props.elasticjob.run.log.bytes";

/// The faults of the properties that are read here.
pub(crate) fn check(config: &JobConfig) -> Vec<ConfigError> {
    let mut props = Props::of(config);
    if props.given(RUN_LOG).is_some_and(|word| RunLogs::of(word).is_none()) {
        props.fault(RUN_LOG, "expected `off`, `failed` or `all`".into());
    }
    props.number(RUN_LOG_MAX, RUN_LOG_BYTES_RANGE, 0);
    props.into_faults()
}

/// Without the layer, a span has no log.
#[cfg(not(feature = "run-log"))]
pub(crate) fn opening(_: Option<Arc<dyn RunLines>>, create: impl FnOnce() -> tracing::Span) -> tracing::Span {
    create()
}

/// Databases that stored configurations may name, at the most: each has a queue.
const ELEMENTS_MAX: usize = 32;

/// The data about this process in each row.
#[derive(Debug)]
struct Host {
    name: Arc<str>,
    ip: Arc<str>,
}

/// The trace of this process: a queue for each data source.
pub(crate) struct Tracer {
    plugins: Arc<Plugins>,
    host: Host,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    settings: Option<(TraceSettings, Arc<Bus>)>,
    /// Queues of settings of before, until they are written.
    replaced: Vec<std::sync::Weak<Bus>>,
    /// Queues of elements of stored configurations; `None` for those that cannot be used.
    elements: BTreeMap<(String, DataSource), Option<Arc<Bus>>>,
    /// By job: whether what the stored configuration says is executed.
    permissions: BTreeMap<String, Permission>,
}

impl Inner {
    fn is_permitted(&self, job: &str) -> bool {
        self.permissions.get(job).is_none_or(Permission::is_given)
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tracer")
    }
}

impl Tracer {
    pub(crate) fn new(plugins: Arc<Plugins>, ip: &str) -> Tracer {
        let name = gethostname::gethostname().to_string_lossy().into_owned();
        let host = Host { name: name.into(), ip: ip.into() };
        Tracer { plugins, host, inner: Mutex::default() }
    }

    /// Sets the permission of a job. Without one, everything is permitted.
    pub(crate) fn set_permission(&self, job: &str, permission: Permission) {
        self.inner.lock().permissions.insert(job.to_owned(), permission);
    }

    /// Traces from now on as these settings say; `None` ends what was set before.
    pub(crate) fn set(&self, settings: Option<TraceSettings>) -> Result<(), String> {
        let mut inner = self.inner.lock();
        if settings.as_ref() == inner.settings.as_ref().map(|(settings, _)| settings) {
            return Ok(());
        }
        let new = match settings {
            Some(settings) => {
                let bus = self.open(&settings.kind, &settings.source, settings.retention)?;
                Some((settings, bus))
            }
            None => None,
        };
        if let Some((_, old)) = std::mem::replace(&mut inner.settings, new) {
            inner.replaced.retain(|bus| bus.strong_count() > 0);
            inner.replaced.push(Arc::downgrade(&old));
            tokio::spawn(async move { old.flush().await });
        }
        Ok(())
    }

    fn open(&self, kind: &str, source: &DataSource, retention: Retention) -> Result<Arc<Bus>, String> {
        let storage = self.plugins.find_trace_storage(kind)?;
        Ok(Arc::new(Bus::start(storage.open(source, retention)?)))
    }

    /// The queue for a job: that of the element in its stored configuration, else that of the process.
    fn bus(&self, config: &JobConfig) -> Option<Arc<Bus>> {
        self.bus_of_element(config).or_else(|| self.bus_of_process(&config.name))
    }

    fn bus_of_process(&self, job: &str) -> Option<Arc<Bus>> {
        let inner = self.inner.lock();
        let (_, bus) = inner.settings.as_ref().filter(|(settings, _)| settings.covers(job))?;
        Some(Arc::clone(bus))
    }

    fn bus_of_element(&self, config: &JobConfig) -> Option<Arc<Bus>> {
        let mut inner = self.inner.lock();
        if let Some(element) = &config.tracing {
            let key = (element.kind.clone(), DataSource::of(element));
            if !inner.is_permitted(&config.name) && key.1.url.to_ascii_lowercase().contains("sqlite:") {
                // Any file that this user can write could be named.
                return None;
            }
            if !inner.elements.contains_key(&key) {
                let bus = match inner.elements.len() < ELEMENTS_MAX {
                    true => self.open(&element.kind, &key.1, Retention::Default),
                    false => Err(format!("more than {ELEMENTS_MAX} databases were named")),
                };
                if let Err(reason) = &bus {
                    let job = config.name.as_str();
                    tracing::warn!(
                        job,
                        "ignoring the event trace database that the stored configuration names (key `jobExtraConfigurations`): {reason}"
                    );
                }
                inner.elements.insert(key.clone(), bus.ok());
            }
            return inner.elements.get(&key).cloned().flatten();
        }
        None
    }

    fn buses(&self) -> Vec<Arc<Bus>> {
        let inner = self.inner.lock();
        let elements = inner.elements.values().flatten();
        let replaced = inner.replaced.iter().filter_map(std::sync::Weak::upgrade);
        inner.settings.iter().map(|(_, bus)| bus).chain(elements).cloned().chain(replaced).collect()
    }

    /// How many events wait, and how many were dropped.
    pub(crate) fn load(&self) -> (usize, u64) {
        let loads = self.buses().into_iter().map(|bus| bus.load());
        loads.fold((0, 0), |(waiting, dropped), load| (waiting + load.0, dropped + load.1))
    }

    /// Waits until everything is written, up to that time.
    pub(crate) async fn flush(&self, limit: Duration) {
        let buses = self.buses();
        let flushes = buses.iter().map(|bus| bus.flush());
        if clock::within(limit, futures_util::future::join_all(flushes)).await.is_none() {
            tracing::warn!("timed out writing the last events of the event trace after {limit:?}; they may be lost");
        }
    }

    /// What is recorded of the output of a job's runs, and at most how many bytes of each.
    fn run_logs(&self, config: &JobConfig) -> (RunLogs, usize) {
        let mut props = Props::of(config);
        let inner = self.inner.lock();
        let source = inner.settings.as_ref().map(|(settings, _)| &settings.source);
        // Output goes only to a database that this process, or its user, has named.
        let is_foreign = config.tracing.as_ref().is_some_and(|element| source != Some(&DataSource::of(element)));
        if is_foreign && !inner.is_permitted(&config.name) {
            return (RunLogs::Off, 0);
        }
        let of_process = inner.settings.as_ref().map(|(settings, _)| (settings.run_logs, settings.run_log_bytes));
        drop(inner);
        let (what, bytes) = of_process.unwrap_or((RunLogs::default(), RUN_LOG_BYTES));
        let of_job = props.given(RUN_LOG).and_then(RunLogs::of);
        let default = u64::try_from(bytes).unwrap_or(u64::MAX);
        let bytes = props.number(RUN_LOG_MAX, RUN_LOG_BYTES_RANGE, default);
        // A program may have set any number.
        let bytes = bytes.clamp(*RUN_LOG_BYTES_RANGE.start(), *RUN_LOG_BYTES_RANGE.end());
        (of_job.unwrap_or(what), usize::try_from(bytes).unwrap_or(RUN_LOG_BYTES))
    }

    /// The trace of one run; `None` when the job is not traced.
    pub(crate) fn run(&self, run: &Run) -> Option<RunTrace> {
        let bus = self.bus(&run.config)?;
        let logs = self.run_logs(&run.config);
        let (job, task_id) = (run.config.name.as_str().into(), run.task_id.as_str().into());
        let items = run.items.iter().map(|item| item.item).collect();
        let source = match run.source {
            elasticjob_core::machine::Source::Misfire => "MISFIRE",
            elasticjob_core::machine::Source::Failover => "FAILOVER",
            elasticjob_core::machine::Source::Schedule | elasticjob_core::machine::Source::Trigger => "NORMAL_TRIGGER",
        };
        let (hostname, ip) = (Arc::clone(&self.host.name), Arc::clone(&self.host.ip));
        Some(RunTrace { bus, job, task_id, items, source, hostname, ip, logs })
    }

    /// An event of a job. Each run has rows of its own; without a configuration the trace is that of the process.
    pub(crate) fn event(&self, job: &str, config: Option<&JobConfig>, instance: &str, happened: &JobEvent) {
        if happened.level() == Level::Debug {
            return;
        }
        let bus = config.map_or_else(|| self.bus_of_process(job), |config| self.bus(config));
        let Some(bus) = bus else { return };
        let fields = happened.fields();
        let items = fields.items.or_else(|| fields.item.map(|item| item.to_string()));
        bus.post(TraceEvent::Job(JobRecord {
            id: event::id(),
            job: job.into(),
            instance: instance.into(),
            level: happened.level().word(),
            kind: happened.kind(),
            items: items.map(|items| event::cut_list(items.trim_matches(['[', ']']))),
            first_due: fields.due,
            last_due: fields.last_due.or(fields.due),
            message: event::cut(&happened.to_string()),
            at: clock::now(),
        }));
    }

    /// A firing that these items could not take, since they were running.
    pub(crate) fn missed(&self, config: &JobConfig, items: &[u32], instance: &str) {
        let Some(bus) = self.bus(config) else { return };
        let job: Arc<str> = config.name.as_str().into();
        let trace = RunTrace {
            bus,
            task_id: task_id(&job, items, instance).into(),
            job,
            items: items.to_vec(),
            source: "MISFIRE",
            hostname: Arc::clone(&self.host.name),
            ip: Arc::clone(&self.host.ip),
            logs: (RunLogs::Off, 0),
        };
        trace.staging();
        trace.status(
            State::Finished,
            format!(
                "Previous job '{}' - shardingItems '{}' is still running, misfired job will start after previous job \
                 completed.",
                config.name,
                event::list(items)
            ),
        );
    }
}

/// Tells the events of one run.
pub(crate) struct RunTrace {
    bus: Arc<Bus>,
    job: Arc<str>,
    task_id: Arc<str>,
    items: Vec<u32>,
    source: &'static str,
    hostname: Arc<str>,
    ip: Arc<str>,
    logs: (RunLogs, usize),
}

impl RunTrace {
    /// The items are known.
    pub(crate) fn staging(&self) {
        self.status(State::Staging, format!("Job '{}' execute begin.", self.job));
    }

    /// The items begin.
    pub(crate) fn running(&self) {
        self.status(State::Running, String::new());
    }

    /// All have ended; those with a text failed.
    pub(crate) fn ended(&self, failures: &BTreeMap<u32, String>) {
        if failures.is_empty() {
            return self.status(State::Finished, String::new());
        }
        let texts: Vec<String> = failures.iter().map(|(item, text)| format!("{item}={text}")).collect();
        self.status(State::Error, format!("{{{}}}", texts.join(", ")));
    }

    fn status(&self, state: State, message: String) {
        self.bus.post(TraceEvent::Status(Status {
            id: event::id(),
            job: Arc::clone(&self.job),
            task_id: Arc::clone(&self.task_id),
            ip: Arc::clone(&self.ip),
            items: self.items.clone(),
            state,
            message: event::cut(&message),
            at: clock::now(),
        }));
    }

    /// One item begins.
    pub(crate) fn item_started(&self, item: u32) -> Execution {
        let execution = Execution {
            id: event::id(),
            job: Arc::clone(&self.job),
            task_id: Arc::clone(&self.task_id),
            hostname: Arc::clone(&self.hostname),
            ip: Arc::clone(&self.ip),
            item,
            source: self.source,
            start: clock::now(),
            end: None,
        };
        self.bus.post(TraceEvent::Execution(execution.clone()));
        execution
    }

    /// The log of an item's run; `None` if nothing of it is recorded.
    pub(crate) fn log(&self, execution: &Execution) -> Option<Arc<RunLog>> {
        RunLog::new(&self.bus, execution, self.logs.0, self.logs.1)
    }

    /// It has ended, with that failure if it has failed.
    pub(crate) fn item_ended(&self, mut execution: Execution, log: Option<&RunLog>, failure: Option<&str>) {
        if let Some(log) = log {
            log.end(failure); // before its end: a reader of the end has then the whole log
        }
        let at: Timestamp = clock::now();
        execution.end = Some(End { at, failure: failure.map(event::cut) });
        self.bus.post(TraceEvent::Execution(execution));
    }
}
