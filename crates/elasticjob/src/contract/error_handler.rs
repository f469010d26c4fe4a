//! Error handlers, and the failure that they receive.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::Run;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::gate::Pass;
use super::{Cancelled, JobError, JobResult, error_text};

/// Handles the failures of items and listeners (Java: `JobErrorHandler`; manual: "Error Handler").
/// [`Plugins::error_handler`](crate::Plugins::error_handler) registers it.
///
/// The runtime calls it beside the run, which does not wait for it. A handler that panics, or takes longer than 60 seconds, costs
/// a line in the log and nothing else.
///
/// # Examples
///
/// ```
/// use elasticjob::{ErrorHandler, Failure};
///
/// struct Page;
///
/// impl ErrorHandler for Page {
///     fn name(&self) -> &str {
///         "PAGE"
///     }
///
///     async fn handle(&self, failure: &Failure) {
///         eprintln!("{}: {failure}", failure.job_name());
///     }
/// }
/// ```
pub trait ErrorHandler: Send + Sync + 'static {
    /// Returns the name in `jobErrorHandlerType`. Configurations may write it in upper or lower case.
    fn name(&self) -> &str;

    /// Returns the faults of the properties that the handler reads. A job with faults does not start.
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Handles one failure.
    fn handle(&self, failure: &Failure) -> impl Future<Output = ()> + Send;
}

/// Sends failures as messages, like the built-in `EMAIL`, `WECHAT` and `DINGTALK`.
/// [`Plugins::messenger`](crate::Plugins::messenger) registers it as an error handler.
///
/// The runtime formats the message, and limits the number of messages: it sends the first failure of a job immediately, and
/// gathers further ones for `elasticjob.error.handler.interval.seconds` (60 by default). A message that cannot be sent within 15
/// seconds is logged.
///
/// # Examples
///
/// ```
/// use elasticjob::{JobConfig, JobResult, Messenger};
///
/// struct Console;
///
/// impl Messenger for Console {
///     fn name(&self) -> &str {
///         "CONSOLE"
///     }
///
///     async fn send(&self, config: &JobConfig, message: &str) -> JobResult {
///         println!("{}: {message}", config.name);
///         Ok(())
///     }
/// }
/// ```
pub trait Messenger: Send + Sync + 'static {
    /// Returns the name in `jobErrorHandlerType`. Configurations may write it in upper or lower case.
    fn name(&self) -> &str;

    /// Returns the faults of the properties that the messenger reads. A job with faults does not start.
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Sends one message.
    ///
    /// # Errors
    ///
    /// The message was not sent. The error must not contain secrets, because it is logged.
    fn send(&self, config: &JobConfig, message: &str) -> impl Future<Output = JobResult> + Send;
}

/// The object-safe form of [`ErrorHandler`].
pub(crate) trait DynErrorHandler: Send + Sync {
    fn name(&self) -> &str;
    fn check(&self, config: &JobConfig) -> Vec<ConfigError>;
    fn handle<'a>(&'a self, failure: &'a Failure) -> BoxFuture<'a, ()>;
}

impl<H: ErrorHandler> DynErrorHandler for H {
    fn name(&self) -> &str {
        ErrorHandler::name(self)
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        ErrorHandler::check(self, config)
    }

    fn handle<'a>(&'a self, failure: &'a Failure) -> BoxFuture<'a, ()> {
        ErrorHandler::handle(self, failure).boxed()
    }
}

/// A failure of an item, or of a listener of a run.
///
/// Its [`Display`](fmt::Display) is the error with its causes, in one line.
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

    pub(crate) fn keep(&self) -> &Keep {
        &self.keep
    }

    /// Returns the name of the job.
    pub fn job_name(&self) -> &str {
        &self.run.config.name
    }

    /// Returns the item that failed, or `None` if a listener failed.
    pub fn item(&self) -> Option<u32> {
        self.item
    }

    /// Returns Java's id of the task, which all items share that one instance runs together.
    pub fn task_id(&self) -> &str {
        &self.run.task_id
    }

    /// Returns the id of the instance on which it failed.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the configuration at the start of the run, with its properties.
    pub fn config(&self) -> &JobConfig {
        &self.run.config
    }

    /// Returns the error.
    pub fn error(&self) -> &JobError {
        &self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_text(&*self.error))
    }
}

/// Held by work that continues after its run: a job that leaves waits for it, and signals that time is short.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    pub(crate) leaving: Cancelled,
    #[expect(dead_code, reason = "its drop is what is waited for")]
    pub(crate) pass: Pass,
}
