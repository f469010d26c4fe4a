//! The event trace: what ran where and how it ended, in tables that Java writes too (Java: `JobTracingEventBus`; manual:
//! "Job tracing").
//!
//! Events go into a bounded queue and never hold up a run: what does not fit is dropped and counted. One task a data source
//! writes them in batches, and waits for a database that is away.

mod bus;
mod event;
pub mod rdb;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::JobConfig;
use elasticjob_core::machine::Run;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::{TracingElement, task_id};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use bus::Bus;
pub use event::{End, Execution, State, Status, TraceEvent};

use crate::clock;
use crate::plugins::Plugins;

/// A kind of storage for the trace, that a configuration names; `RDB` is the built-in one.
pub trait TraceStorage: Send + Sync + 'static {
    /// The name in `tracing.type`; a configuration may write it in any case.
    fn name(&self) -> &str;

    /// Makes a sink. It connects when the first events come, and again when it must.
    ///
    /// # Errors
    ///
    /// The address is not one that it supports; the key is that of the agent's file.
    fn open(&self, source: &DataSource, retention: Retention) -> Result<Box<dyn TraceSink>, String>;
}

/// Writes events.
pub trait TraceSink: Send + 'static {
    /// Writes a batch, in the order in which it happened. A batch that failed comes again, when it may be tried again, so
    /// that an event may come twice.
    fn write<'a>(&'a mut self, events: &'a [TraceEvent]) -> BoxFuture<'a, Result<(), TraceError>>;

    /// Where it writes, for people: without passwords.
    fn describe(&self) -> String;
}

/// Why events were not written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The storage cannot be reached, or does not work: the same events are tried again later.
    #[error("{0}")]
    Away(String),
    /// So many events cannot be written, now or ever; the others were.
    #[error("{events} events were refused: {reason}")]
    Refused {
        /// How many.
        events: usize,
        /// Why the first of them was.
        reason: String,
    },
}

/// Where events go.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataSource {
    /// `sqlite://PATH`, `postgres://HOST:PORT/NAME`, `mysql://HOST:PORT/NAME`, or the JDBC address of such a database.
    pub url: String,
    /// The user, when the address has none.
    pub username: Option<String>,
    /// The password, when the address has none.
    pub password: Option<String>,
}

impl DataSource {
    /// That of a stored configuration.
    pub(crate) fn of(element: &TracingElement) -> DataSource {
        let value = |key: &str| element.props.get(key).filter(|v| !v.is_empty()).cloned();
        let url = value("jdbcUrl").or_else(|| value("url")).unwrap_or_default();
        DataSource { url, username: value("username"), password: value("password") }
    }
}

impl fmt::Debug for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataSource") // an address may have a password
    }
}

/// How much of the trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retention {
    /// What the storage thinks best: 30 days and a million rows a table in SQLite, everything in a database that Java may
    /// share.
    Default,
    /// Rows older than that are deleted, and the oldest of more than so many.
    Limited {
        /// The greatest age.
        age: Option<Duration>,
        /// The greatest number of rows of each table.
        rows: Option<u64>,
    },
}

/// What is traced, and where to (Java: `TracingConfiguration`, and the starter's `elasticjob.tracing`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The kind of storage; `RDB` by default.
    pub kind: String,
    /// Where to.
    pub source: DataSource,
    /// The only jobs that are traced; all when it is empty.
    pub include: Vec<String>,
    /// Jobs that are not traced.
    pub exclude: Vec<String>,
    /// How much is kept.
    pub retention: Retention,
}

impl TraceSettings {
    /// All jobs into a database.
    pub fn rdb(url: &str) -> TraceSettings {
        TraceSettings {
            kind: "RDB".into(),
            source: DataSource { url: url.to_owned(), ..DataSource::default() },
            include: Vec::new(),
            exclude: Vec::new(),
            retention: Retention::Default,
        }
    }

    fn covers(&self, job: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == job);
        (self.include.is_empty() || named(&self.include)) && !named(&self.exclude)
    }
}

/// What stands in each row about this process.
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
        let storage = self.plugins.trace_storage(kind)?;
        Ok(Arc::new(Bus::start(storage.open(source, retention)?)))
    }

    /// The queue for a job: that of the element in its stored configuration, else that of the process.
    fn bus(&self, config: &JobConfig) -> Option<Arc<Bus>> {
        let mut inner = self.inner.lock();
        if let Some(element) = &config.tracing {
            let key = (element.kind.clone(), DataSource::of(element));
            if !inner.elements.contains_key(&key) {
                let bus = self.open(&element.kind, &key.1, Retention::Default);
                if let Err(reason) = &bus {
                    let job = config.name.as_str();
                    tracing::warn!(job, "the tracing element of the stored configuration is not used here: {reason}");
                }
                inner.elements.insert(key.clone(), bus.ok());
            }
            if let Some(Some(bus)) = inner.elements.get(&key) {
                return Some(Arc::clone(bus));
            }
        }
        let (_, bus) = inner.settings.as_ref().filter(|(settings, _)| settings.covers(&config.name))?;
        Some(Arc::clone(bus))
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
            tracing::warn!("the end of the event trace could not be written within {limit:?}");
        }
    }

    /// The trace of one run; `None` when the job is not traced.
    pub(crate) fn run(&self, run: &Run) -> Option<RunTrace> {
        let bus = self.bus(&run.config)?;
        let (job, task_id) = (run.config.name.as_str().into(), run.task_id.as_str().into());
        let items = run.items.iter().map(|item| item.item).collect();
        let source = match run.source {
            elasticjob_core::machine::Source::Misfire => "MISFIRE",
            elasticjob_core::machine::Source::Failover => "FAILOVER",
            elasticjob_core::machine::Source::Schedule | elasticjob_core::machine::Source::Trigger => "NORMAL_TRIGGER",
        };
        let (hostname, ip) = (Arc::clone(&self.host.name), Arc::clone(&self.host.ip));
        Some(RunTrace { bus, job, task_id, items, source, hostname, ip })
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

    /// It has ended, with that failure if it has failed.
    pub(crate) fn item_ended(&self, mut execution: Execution, failure: Option<&str>) {
        let at: Timestamp = clock::now();
        execution.end = Some(End { at, failure: failure.map(event::cut) });
        self.bus.post(TraceEvent::Execution(execution));
    }
}
