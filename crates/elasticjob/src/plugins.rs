//! The values that configurations refer to by name: job types, sharding strategies, error handlers, listeners, trace storages (Java:
//! `TypedSPILoader`). Not a global: each connection has its own.

use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::shard::ShardingStrategy;

use crate::contract::error_handler::DynErrorHandler;
use crate::contract::trace::{DynTraceStorage, TraceStorage};
use crate::contract::{DynJobType, DynListener, ErrorHandler, JobType, Listener, Messenger, Registered};
use crate::error_handler::throttle::Throttled;

/// The plug-ins of a connection: job types, sharding strategies, error handlers, listeners and trace storages, by name.
///
/// [`Plugins::default`] has the built-in ones. A plug-in replaces an earlier one of the same name.
#[derive(Clone)]
pub struct Plugins {
    pub(crate) job_types: Vec<Arc<dyn DynJobType>>,
    pub(crate) strategies: Vec<Arc<dyn ShardingStrategy>>,
    pub(crate) error_handlers: Vec<Arc<dyn DynErrorHandler>>,
    pub(crate) listeners: Vec<Arc<dyn DynListener>>,
    pub(crate) trace_storages: Vec<Arc<dyn DynTraceStorage>>,
}

/// Names of the thread pools (Java: `JobExecutorThreadPoolSizeProvider`).
pub const THREAD_POOLS: [&str; 2] = ["CPU", "SINGLE_THREAD"];

/// Built-in names that need a cargo feature which this build may lack.
const FEATURES: [(&str, &str); 5] =
    [("HTTP", "http"), ("EMAIL", "mail"), ("WECHAT", "webhook"), ("DINGTALK", "webhook"), ("RDB", "rdb-sqlite")];

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugins")
            .field("job_types", &names(&self.job_types, |t| t.name()))
            .field("strategies", &names(&self.strategies, |s| s.name()))
            .field("error_handlers", &names(&self.error_handlers, |h| h.name()))
            .field("listeners", &names(&self.listeners, |l| l.name()))
            .field("trace_storages", &names(&self.trace_storages, |s| s.name()))
            .finish()
    }
}

impl Plugins {
    /// Adds a job type.
    #[must_use]
    pub fn job_type(mut self, job_type: impl JobType) -> Plugins {
        self.job_types.insert(0, Arc::new(Registered(Arc::new(job_type))));
        self
    }

    /// Adds a sharding strategy.
    #[must_use]
    pub fn strategy(mut self, strategy: impl ShardingStrategy) -> Plugins {
        self.strategies.insert(0, Arc::new(strategy));
        self
    }

    /// Adds an error handler.
    #[must_use]
    pub fn error_handler(mut self, handler: impl ErrorHandler) -> Plugins {
        self.error_handlers.insert(0, Arc::new(handler));
        self
    }

    /// Adds an error handler that sends messages, at a limited rate.
    #[must_use]
    pub fn messenger(self, messenger: impl Messenger) -> Plugins {
        self.error_handler(Throttled::new(messenger))
    }

    /// Adds a listener.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener) -> Plugins {
        self.listeners.insert(0, Arc::new(listener));
        self
    }

    /// Adds a storage for the event trace.
    #[must_use]
    pub fn trace_storage(mut self, storage: impl TraceStorage) -> Plugins {
        self.trace_storages.insert(0, Arc::new(storage));
        self
    }

    /// Returns the names of the job types.
    pub fn job_type_names(&self) -> Vec<String> {
        names(&self.job_types, |t| t.name())
    }

    pub(crate) fn find_job_type(&self, name: &str) -> Option<&Arc<dyn DynJobType>> {
        self.job_types.iter().find(|t| t.name().eq_ignore_ascii_case(name))
    }

    /// Returns what to expect instead of an unknown job type.
    pub(crate) fn expected_job_type(&self, name: &str) -> String {
        expected(name, &self.job_type_names())
    }

    pub(crate) fn strategies(&self) -> Vec<Arc<dyn ShardingStrategy>> {
        self.strategies.clone()
    }

    pub(crate) fn find_error_handler(&self, name: &str) -> Option<Arc<dyn DynErrorHandler>> {
        self.error_handlers.iter().find(|h| h.name().eq_ignore_ascii_case(name)).cloned()
    }

    /// Returns the listeners of a job, in the order in which they are called.
    pub(crate) fn find_listeners(&self, config: &JobConfig) -> Vec<Arc<dyn DynListener>> {
        let named = |name: &String| self.listeners.iter().find(|l| l.name().eq_ignore_ascii_case(name)).cloned();
        let mut found: Vec<Arc<dyn DynListener>> = config.listeners.iter().filter_map(named).collect();
        found.sort_by_key(|listener| listener.order());
        found
    }

    pub(crate) fn find_trace_storage(&self, name: &str) -> Result<Arc<dyn DynTraceStorage>, String> {
        let found = self.trace_storages.iter().find(|s| s.name().eq_ignore_ascii_case(name)).cloned();
        let known = || names(&self.trace_storages, |s| s.name());
        found.ok_or_else(|| format!("unknown tracing type `{name}`; {}", expected(name, &known())))
    }

    /// Checks the names in a configuration, and the properties that its error handler and listeners read.
    pub(crate) fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut check = |key: &'static str, value: &str, known: Vec<String>| {
            if !known.iter().any(|k| k.eq_ignore_ascii_case(value)) {
                faults.push(ConfigError::new(key, value, expected(value, &known)));
            }
        };
        check("jobShardingStrategyType", &config.sharding_strategy, names(&self.strategies, |s| s.name()));
        check("jobErrorHandlerType", &config.error_handler, names(&self.error_handlers, |h| h.name()));
        let pools = THREAD_POOLS.iter().map(ToString::to_string).collect();
        check("jobExecutorThreadPoolSizeProviderType", &config.thread_pool, pools);
        for listener in &config.listeners {
            check("jobListenerTypes", listener, names(&self.listeners, |l| l.name()));
        }
        if let Some(handler) = self.find_error_handler(&config.error_handler) {
            faults.extend(handler.check(config));
        }
        for listener in self.find_listeners(config) {
            faults.extend(listener.check(config));
        }
        faults
    }
}

fn expected(name: &str, known: &[String]) -> String {
    let known = known.join(", ");
    match FEATURES.iter().find(|(built_in, _)| built_in.eq_ignore_ascii_case(name)) {
        Some((_, feature)) => {
            format!(
                "expected one of {known}; this program was built without the cargo feature `{feature}` of elasticjob"
            )
        }
        None => format!("expected one of {known}"),
    }
}

fn names<T: ?Sized>(plugins: &[Arc<T>], name: impl Fn(&T) -> &str) -> Vec<String> {
    plugins.iter().map(|p| name(p).to_owned()).collect()
}
