//! What is done with a failure (Java: `JobErrorHandler`; manual: "Error Handler"). Whatever a handler does, no run waits for
//! it.

mod email;
mod throttle;
mod webhook;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::Run;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::clock;
use crate::execute::{JobError, Keep};
use crate::plugins::Plugins;
use crate::web::{self, Clients};

/// A handler is given up after this long.
const HANDLER_MAX: Duration = Duration::from_secs(60);
/// Failures that are handled at one time; of those beyond there is only a line in the log.
const HANDLERS_MAX: usize = 256;

/// What is done with the failure of an item or of a listener.
///
/// It is called beside the run, which does not wait for it: a handler that panics or hangs (more than 60 seconds) costs a
/// line in the log and nothing else.
pub trait ErrorHandler: Send + Sync + 'static {
    /// The name in `jobErrorHandlerType`; a configuration may write it in any case.
    fn name(&self) -> &str;

    /// The faults of the properties that it reads; a job with faults is not started.
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Handles one failure.
    fn handle<'a>(&'a self, failure: &'a Failure) -> BoxFuture<'a, ()>;
}

/// One failure: of an item, or of a listener of the run.
#[derive(Debug)]
pub struct Failure {
    run: Arc<Run>,
    instance: Arc<str>,
    item: Option<u32>,
    error: JobError,
    keep: Keep,
}

impl Failure {
    pub(crate) fn new(run: Arc<Run>, instance: Arc<str>, item: Option<u32>, error: JobError, keep: Keep) -> Failure {
        Failure { run, instance, item, error, keep }
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        &self.run.config.name
    }

    /// The item that failed; none when a listener did.
    pub fn item(&self) -> Option<u32> {
        self.item
    }

    /// Java's id of the task.
    pub fn task_id(&self) -> &str {
        &self.run.task_id
    }

    /// The instance on which it failed.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The configuration, with its properties.
    pub fn config(&self) -> &JobConfig {
        &self.run.config
    }

    /// Why.
    pub fn error(&self) -> &JobError {
        &self.error
    }
}

/// The error with its causes, in one line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&web::chain(&*self.error))
    }
}

/// The handlers that are always there.
pub(crate) fn built_in(clients: &Clients) -> Vec<Arc<dyn ErrorHandler>> {
    vec![
        Arc::new(Log { name: "LOG" }),
        // In Java the exception goes up to the scheduler, which logs it. Here there is nobody above: it is logged.
        Arc::new(Log { name: "THROW" }),
        Arc::new(Ignore),
        Arc::new(throttle::Throttled::new(email::Email)),
        Arc::new(throttle::Throttled::new(webhook::WebHook::wechat(clients))),
        Arc::new(throttle::Throttled::new(webhook::WebHook::dingtalk(clients))),
    ]
}

/// Calls the handlers of this process.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    plugins: Arc<Plugins>,
    places: Arc<Semaphore>,
}

impl Dispatcher {
    pub(crate) fn new(plugins: Arc<Plugins>) -> Dispatcher {
        Dispatcher { plugins, places: Arc::new(Semaphore::new(HANDLERS_MAX)) }
    }

    /// How many failures are being handled.
    pub(crate) fn busy(&self) -> usize {
        HANDLERS_MAX - self.places.available_permits()
    }

    /// Has a failure handled, beside the run.
    pub(crate) fn dispatch(&self, failure: Failure) {
        let name = &failure.config().error_handler;
        let Some(handler) = self.plugins.error_handler(name) else {
            let job = failure.job_name();
            return tracing::error!(job, "jobErrorHandlerType `{name}` is not known here; it failed: {failure}");
        };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let job = failure.job_name();
            let text = format!("{HANDLERS_MAX} failures are being handled; `{name}` does not get this one");
            return tracing::error!(job, item = failure.item(), "{text}: {failure}");
        };
        tokio::spawn(async move {
            let work = AssertUnwindSafe(handler.handle(&failure)).catch_unwind();
            let (job, name) = (failure.job_name(), handler.name());
            match clock::within(HANDLER_MAX, work).await {
                Some(Ok(())) => {}
                Some(Err(_)) => tracing::error!(job, "the error handler `{name}` panicked; it was about: {failure}"),
                None => {
                    tracing::error!(job, "the error handler `{name}` hangs and is given up; it was about: {failure}")
                }
            }
            drop(place);
        });
    }
}

/// `LOG` and `THROW`: an error line.
struct Log {
    name: &'static str,
}

impl ErrorHandler for Log {
    fn name(&self) -> &str {
        self.name
    }

    fn handle<'a>(&'a self, failure: &'a Failure) -> BoxFuture<'a, ()> {
        match failure.item() {
            Some(item) => tracing::error!(job = failure.job_name(), item, "the item failed: {failure}"),
            None => tracing::error!(job = failure.job_name(), "a listener failed: {failure}"),
        }
        std::future::ready(()).boxed()
    }
}

/// `IGNORE`: nothing.
struct Ignore;

impl ErrorHandler for Ignore {
    fn name(&self) -> &str {
        "IGNORE"
    }

    fn handle<'a>(&'a self, _failure: &'a Failure) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }
}
