//! What configurations name: job types, sharding strategies, error handlers (Java: `TypedSPILoader`). A value, not a
//! global: each connection has its own.

use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::shard::{self, ShardingStrategy};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::execute::script::Script;
use crate::execute::{Context, JobError, JobType, THREAD_POOLS};

/// What is done with the failure of an item (Java: `JobErrorHandler`).
pub trait ErrorHandler: Send + Sync + 'static {
    /// The name in `jobErrorHandlerType`; a configuration may write it in any case.
    fn name(&self) -> &str;

    /// Handles one failure. Whatever it does, the run goes on.
    fn handle<'a>(&'a self, context: &'a Context, error: JobError) -> BoxFuture<'a, ()>;
}

/// The registered ones, the built-in ones among them.
#[derive(Clone)]
pub struct Plugins {
    job_types: Vec<Arc<dyn JobType>>,
    strategies: Vec<Arc<dyn ShardingStrategy>>,
    error_handlers: Vec<Arc<dyn ErrorHandler>>,
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugins")
            .field("job_types", &names(&self.job_types, |t| t.name()))
            .field("strategies", &names(&self.strategies, |s| s.name()))
            .field("error_handlers", &names(&self.error_handlers, |h| h.name()))
            .finish()
    }
}

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins {
            job_types: vec![Arc::new(Script)],
            strategies: shard::built_in(),
            error_handlers: vec![Arc::new(Log), Arc::new(Throw), Arc::new(Ignore)],
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

    /// Checks the names in a configuration.
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
            let expected = "no listener of that name is known here".to_owned();
            faults.push(ConfigError { key: "jobListenerTypes", value: listener.clone(), expected });
        }
        faults
    }
}

fn names<T: ?Sized>(plugins: &[Arc<T>], name: impl Fn(&T) -> &str) -> Vec<String> {
    plugins.iter().map(|p| name(p).to_owned()).collect()
}

/// The whole chain of an error in one line.
fn chain(error: &JobError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// `LOG`: an error line. The default.
struct Log;

impl ErrorHandler for Log {
    fn name(&self) -> &str {
        "LOG"
    }

    fn handle<'a>(&'a self, context: &'a Context, error: JobError) -> BoxFuture<'a, ()> {
        async move {
            tracing::error!(job = context.job_name(), item = context.item(), "the item failed: {}", chain(&error));
        }
        .boxed()
    }
}

/// `THROW`: in Java the exception goes up to the scheduler, which logs it. Here there is nobody above: it is logged.
struct Throw;

impl ErrorHandler for Throw {
    fn name(&self) -> &str {
        "THROW"
    }

    fn handle<'a>(&'a self, context: &'a Context, error: JobError) -> BoxFuture<'a, ()> {
        Log.handle_with(context, error)
    }
}

impl Log {
    fn handle_with<'a>(self, context: &'a Context, error: JobError) -> BoxFuture<'a, ()> {
        async move { Log.handle(context, error).await }.boxed()
    }
}

/// `IGNORE`: nothing.
struct Ignore;

impl ErrorHandler for Ignore {
    fn name(&self) -> &str {
        "IGNORE"
    }

    fn handle<'a>(&'a self, _context: &'a Context, _error: JobError) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }
}
