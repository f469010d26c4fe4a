//! What configurations name: job types, sharding strategies, error handlers, listeners, storages of the trace (Java:
//! `TypedSPILoader`). A value, not a global: each connection has its own.

use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::shard::{self, ShardingStrategy};

use crate::error_handler::{self, ErrorHandler};
use crate::execute::{Http, JobType, Script, THREAD_POOLS};
use crate::listener::{self, Listener};
use crate::trace::TraceStorage;
use crate::trace::rdb::Rdb;
use crate::web::Clients;

/// The registered ones, the built-in ones among them.
#[derive(Clone)]
pub struct Plugins {
    job_types: Vec<Arc<dyn JobType>>,
    strategies: Vec<Arc<dyn ShardingStrategy>>,
    error_handlers: Vec<Arc<dyn ErrorHandler>>,
    listeners: Vec<Arc<dyn Listener>>,
    trace_storages: Vec<Arc<dyn TraceStorage>>,
}

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

impl Default for Plugins {
    fn default() -> Plugins {
        let clients = Clients::default();
        Plugins {
            job_types: vec![Arc::new(Script), Arc::new(Http::new(&clients))],
            strategies: shard::built_in(),
            error_handlers: error_handler::built_in(&clients),
            listeners: listener::built_in(),
            trace_storages: vec![Arc::new(Rdb)],
        }
    }
}

impl Plugins {
    /// Adds a job type; one of the same name is replaced.
    #[must_use]
    pub fn job_type(mut self, job_type: impl JobType) -> Plugins {
        self.job_types.insert(0, Arc::new(job_type));
        self
    }

    /// Adds a sharding strategy; one of the same name is replaced.
    #[must_use]
    pub fn strategy(mut self, strategy: impl ShardingStrategy) -> Plugins {
        self.strategies.insert(0, Arc::new(strategy));
        self
    }

    /// Adds an error handler; one of the same name is replaced.
    #[must_use]
    pub fn error_handler_type(mut self, handler: impl ErrorHandler) -> Plugins {
        self.error_handlers.insert(0, Arc::new(handler));
        self
    }

    /// Adds a listener; one of the same name is replaced. Jobs name it in `jobListenerTypes`.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener) -> Plugins {
        self.listeners.insert(0, Arc::new(listener));
        self
    }

    /// Adds a storage of the event trace; one of the same name is replaced.
    #[must_use]
    pub fn trace_storage_type(mut self, storage: impl TraceStorage) -> Plugins {
        self.trace_storages.insert(0, Arc::new(storage));
        self
    }

    /// The job type of that name.
    pub fn find_job_type(&self, name: &str) -> Option<Arc<dyn JobType>> {
        self.job_types.iter().find(|t| t.name().eq_ignore_ascii_case(name)).cloned()
    }

    /// The names of the job types.
    pub fn job_type_names(&self) -> Vec<String> {
        names(&self.job_types, |t| t.name())
    }

    pub(crate) fn strategies(&self) -> Vec<Arc<dyn ShardingStrategy>> {
        self.strategies.clone()
    }

    pub(crate) fn error_handler(&self, name: &str) -> Option<Arc<dyn ErrorHandler>> {
        self.error_handlers.iter().find(|h| h.name().eq_ignore_ascii_case(name)).cloned()
    }

    /// The listeners of a job, in the order in which they are called.
    pub(crate) fn listeners(&self, config: &JobConfig) -> Vec<Arc<dyn Listener>> {
        let named = |name: &String| self.listeners.iter().find(|l| l.name().eq_ignore_ascii_case(name)).cloned();
        let mut found: Vec<Arc<dyn Listener>> = config.listeners.iter().filter_map(named).collect();
        found.sort_by_key(|listener| listener.order());
        found
    }

    pub(crate) fn trace_storage(&self, name: &str) -> Result<Arc<dyn TraceStorage>, String> {
        let found = self.trace_storages.iter().find(|s| s.name().eq_ignore_ascii_case(name)).cloned();
        let known = || names(&self.trace_storages, |s| s.name()).join(", ");
        found.ok_or_else(|| format!("tracing type `{name}` is not known here; expected one of {}", known()))
    }

    /// Checks the names in a configuration, and the properties that handler and listeners read.
    pub fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut check = |key: &'static str, value: &str, known: Vec<String>| {
            if !known.iter().any(|k| k.eq_ignore_ascii_case(value)) {
                let expected = format!("expected one of {}", known.join(", "));
                faults.push(ConfigError { key, value: value.to_owned(), expected });
            }
        };
        check("jobShardingStrategyType", &config.sharding_strategy, names(&self.strategies, |s| s.name()));
        check("jobErrorHandlerType", &config.error_handler, names(&self.error_handlers, |h| h.name()));
        let pools = THREAD_POOLS.iter().map(ToString::to_string).collect();
        check("jobExecutorThreadPoolSizeProviderType", &config.thread_pool, pools);
        for listener in &config.listeners {
            check("jobListenerTypes", listener, names(&self.listeners, |l| l.name()));
        }
        if let Some(handler) = self.error_handler(&config.error_handler) {
            faults.extend(handler.check(config));
        }
        for listener in self.listeners(config) {
            faults.extend(listener.check(config));
        }
        faults
    }
}

fn names<T: ?Sized>(plugins: &[Arc<T>], name: impl Fn(&T) -> &str) -> Vec<String> {
    plugins.iter().map(|p| name(p).to_owned()).collect()
}
