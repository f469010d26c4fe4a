//! The storages of the event trace.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use elasticjob_core::wire::TracingElement;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::trace_event::TraceEvent;

/// A kind of storage for the event trace, like the built-in `RDB`.
/// [`Plugins::trace_storage`](crate::Plugins::trace_storage) registers it.
pub trait TraceStorage: Send + Sync + 'static {
    /// The connection to a storage of this kind.
    type Sink: TraceSink;

    /// Returns the name in `tracing.type`. Configurations may write it in upper or lower case.
    fn name(&self) -> &str;

    /// Creates a sink. The sink connects when it receives the first events, and reconnects when it has to.
    ///
    /// # Errors
    ///
    /// The storage does not support the address. The text names the key of the agent's file.
    fn open(&self, source: &DataSource, retention: Retention) -> Result<Self::Sink, String>;
}

/// Writes events to a storage.
pub trait TraceSink: Send + 'static {
    /// Writes a batch in its order.
    ///
    /// # Errors
    ///
    /// After [`TraceError::Away`] the runtime writes the same batch again later, so that a storage may receive an event twice.
    fn write(&mut self, events: &[TraceEvent]) -> impl Future<Output = Result<(), TraceError>> + Send;

    /// Returns the address for log lines, without passwords.
    fn describe(&self) -> String;
}

/// The object-safe form of [`TraceStorage`].
pub(crate) trait DynTraceStorage: Send + Sync {
    fn name(&self) -> &str;
    fn open(&self, source: &DataSource, retention: Retention) -> Result<Box<dyn DynTraceSink>, String>;
}

impl<S: TraceStorage> DynTraceStorage for S {
    fn name(&self) -> &str {
        TraceStorage::name(self)
    }

    fn open(&self, source: &DataSource, retention: Retention) -> Result<Box<dyn DynTraceSink>, String> {
        Ok(Box::new(TraceStorage::open(self, source, retention)?))
    }
}

/// The object-safe form of [`TraceSink`].
pub(crate) trait DynTraceSink: Send {
    fn write<'a>(&'a mut self, events: &'a [TraceEvent]) -> BoxFuture<'a, Result<(), TraceError>>;
    fn describe(&self) -> String;
}

impl<S: TraceSink> DynTraceSink for S {
    fn write<'a>(&'a mut self, events: &'a [TraceEvent]) -> BoxFuture<'a, Result<(), TraceError>> {
        TraceSink::write(self, events).boxed()
    }

    fn describe(&self) -> String {
        TraceSink::describe(self)
    }
}

/// The reason why events were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The storage cannot be reached, or does not work. The runtime writes the same events again later.
    #[error("{0}")]
    Away(String),
    /// The storage refused some events permanently. It stored the others.
    #[error("{events} events were rejected: {reason}")]
    Refused {
        /// The number of refused events.
        events: usize,
        /// The reason for the first of them.
        reason: String,
    },
}

/// The address of a database.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DataSource {
    /// `sqlite://PATH`, `postgres://HOST:PORT/NAME`, `mysql://HOST:PORT/NAME`, or the JDBC address of such a database.
    pub url: String,
    /// The user, if the address has none.
    pub username: Option<String>,
    /// The password, if the address has none.
    pub password: Option<String>,
}

impl DataSource {
    /// Creates a data source without user and password.
    pub fn new(url: impl Into<String>) -> DataSource {
        DataSource { url: url.into(), username: None, password: None }
    }

    /// Sets user and password.
    #[must_use]
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> DataSource {
        self.username = Some(username.into());
        self.password = Some(password.into());
        self
    }

    /// Reads the tracing element of a stored configuration.
    pub(crate) fn of(element: &TracingElement) -> DataSource {
        let value = |key: &str| element.props.get(key).filter(|v| !v.is_empty()).cloned();
        let url = value("jdbcUrl").or_else(|| value("url")).unwrap_or_default();
        DataSource { url, username: value("username"), password: value("password") }
    }
}

impl fmt::Debug for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataSource") // an address may contain a password
    }
}

/// The limit of the stored trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Retention {
    /// 30 days and a million rows per table in SQLite; no limit in a database that Java may share. Run logs: 7 days and 100,000
    /// rows, in each database.
    #[default]
    Default,
    /// Deletes rows beyond these limits.
    Limited {
        /// The maximum age.
        age: Option<Duration>,
        /// The maximum number of rows of each table.
        rows: Option<u64>,
    },
}

/// The runs whose output is recorded as their run log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunLogs {
    /// None.
    Off,
    /// Those that fail; recorded when they end.
    #[default]
    Failed,
    /// All; their first lines are recorded while they run.
    All,
}

impl RunLogs {
    /// Returns the value of the words `off`, `failed` and `all`.
    pub fn of(word: &str) -> Option<RunLogs> {
        match word {
            "off" => Some(RunLogs::Off),
            "failed" => Some(RunLogs::Failed),
            "all" => Some(RunLogs::All),
            _ => None,
        }
    }
}

/// Bytes of a run's output that are recorded by default, and the values that this number can have.
pub(crate) const RUN_LOG_BYTES: usize = 64 * 1024;
pub(crate) const RUN_LOG_BYTES_RANGE: std::ops::RangeInclusive<u64> = 1_024..=1_048_576;

/// The settings of the event trace (Java: `TracingConfiguration`, and the starter's `elasticjob.tracing`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSettings {
    /// The name of the storage; `RDB` by default.
    pub kind: String,
    /// The address of the storage.
    pub source: DataSource,
    /// The jobs to trace; all if it is empty.
    pub include: Vec<String>,
    /// The jobs not to trace.
    pub exclude: Vec<String>,
    /// The limit of the stored trace.
    pub retention: Retention,
    /// The runs whose output is recorded; the property `elasticjob.run.log` of a job overrides it. Java records none.
    pub run_logs: RunLogs,
    /// Maximum number of bytes of a run's output that are recorded, 1024 to 1048576: the first lines and the last ones; 65536 by
    /// default.
    pub run_log_bytes: usize,
}

impl TraceSettings {
    /// Traces all jobs into a database.
    pub fn rdb(url: impl Into<String>) -> TraceSettings {
        TraceSettings::new("RDB", DataSource::new(url))
    }

    /// Traces all jobs into a storage.
    pub fn new(kind: impl Into<String>, source: DataSource) -> TraceSettings {
        TraceSettings {
            kind: kind.into(),
            source,
            include: Vec::new(),
            exclude: Vec::new(),
            retention: Retention::Default,
            run_logs: RunLogs::default(),
            run_log_bytes: RUN_LOG_BYTES,
        }
    }

    pub(crate) fn covers(&self, job: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == job);
        (self.include.is_empty() || named(&self.include)) && !named(&self.exclude)
    }
}
