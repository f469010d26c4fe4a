//! The code of a job: an async trait, a blocking trait, a trait that fetches and processes, and a job type with a name.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Context, JobError, JobResult};

/// Time that code has to end after its cancellation, before its future is dropped.
const GRACE: Duration = Duration::from_secs(1);

/// A job whose code is an async method, called once for each item of a run (Java: `SimpleJob`).
///
/// # Examples
///
/// ```
/// use elasticjob::{Context, JobResult, SimpleJob};
///
/// struct Report;
///
/// impl SimpleJob for Report {
///     async fn execute(&self, context: Context) -> JobResult {
///         println!("item {} of {}", context.item(), context.job_name());
///         Ok(())
///     }
/// }
/// ```
pub trait SimpleJob: Send + Sync + 'static {
    /// Runs one item. A panic counts as a failure.
    ///
    /// # Errors
    ///
    /// Any error marks the item as failed; the job's error handler receives it.
    fn execute(&self, context: Context) -> impl Future<Output = JobResult> + Send;
}

/// A job whose code may block. Each item runs on a thread of its own; a process has at most 256 of them, and further items wait.
///
/// # Examples
///
/// ```
/// use elasticjob::{BlockingJob, Context, JobResult};
///
/// struct Compress;
///
/// impl BlockingJob for Compress {
///     fn execute(&self, context: Context) -> JobResult {
///         std::fs::read(format!("part-{}", context.item()))?;
///         Ok(())
///     }
/// }
/// ```
pub trait BlockingJob: Send + Sync + 'static {
    /// Runs one item. A panic counts as a failure.
    ///
    /// # Errors
    ///
    /// Any error marks the item as failed; the job's error handler receives it.
    fn execute(&self, context: Context) -> JobResult;
}

/// A job that fetches data and processes it (Java: `DataflowJob`; manual: "Dataflow Job").
///
/// With the property `streaming.process` set to `true`, an item fetches and processes until a fetch returns nothing. Data that
/// was fetched is always processed. After that, the stream ends early if the items are resharded, the job or its server is
/// disabled, the job leaves, the session is lost, or the item is due again (with `misfire`, so that the new firing starts
/// immediately). The next run continues with the remaining data.
///
/// # Examples
///
/// ```
/// use elasticjob::{Context, DataflowJob, JobError, JobResult};
///
/// struct Orders;
///
/// impl DataflowJob for Orders {
///     type Data = u64;
///
///     async fn fetch(&self, context: &Context) -> Result<Vec<u64>, JobError> {
///         Ok(vec![u64::from(context.item())])
///     }
///
///     async fn process(&self, context: &Context, orders: Vec<u64>) -> JobResult {
///         println!("item {} of {}: {orders:?}", context.item(), context.job_name());
///         Ok(())
///     }
/// }
/// ```
pub trait DataflowJob: Send + Sync + 'static {
    /// One entry of the fetched data.
    type Data: Send;

    /// Fetches data for the item of the context. An empty result ends the run.
    ///
    /// # Errors
    ///
    /// Any error marks the item as failed.
    fn fetch(&self, context: &Context) -> impl Future<Output = Result<Vec<Self::Data>, JobError>> + Send;

    /// Processes fetched data.
    ///
    /// # Errors
    ///
    /// Any error marks the item as failed and ends the stream.
    fn process(&self, context: &Context, data: Vec<Self::Data>) -> impl Future<Output = JobResult> + Send;
}

/// A job type that configurations refer to by name, like the built-in `SCRIPT` and `HTTP` (Java: `TypedJobItemExecutor`).
/// [`Plugins::job_type`](crate::Plugins::job_type) registers it.
///
/// # Examples
///
/// ```
/// use elasticjob::{ConfigError, Context, JobConfig, JobResult, JobType, Props};
///
/// struct Count;
///
/// impl JobType for Count {
///     fn name(&self) -> &str {
///         "COUNT"
///     }
///
///     fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
///         let mut props = Props::of(config);
///         props.number("count.to", 1..=1_000_000, 10);
///         props.into_faults()
///     }
///
///     async fn execute(&self, context: Context) -> JobResult {
///         let to = Props::of(context.config()).number("count.to", 1..=1_000_000, 10);
///         println!("item {} counts to {to}", context.item());
///         Ok(())
///     }
/// }
/// ```
pub trait JobType: Send + Sync + 'static {
    /// Returns the name of the type. Configurations may write it in upper or lower case.
    fn name(&self) -> &str;

    /// Returns the faults of the properties that the type reads. A job with faults does not start.
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Returns the time that [`JobType::execute`] has to end after [`Context::cancelled`] fires. After it, the future is
    /// dropped. The default is one second.
    fn grace(&self, config: &JobConfig) -> Duration {
        let _ = config;
        GRACE
    }

    /// Returns the names of the properties whose value the type executes, as a command or an address: those of a stored configuration are
    /// used as [`Commands`](crate::Commands) says. None by default.
    fn executes(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Runs one item. A panic counts as a failure.
    ///
    /// # Errors
    ///
    /// Any error marks the item as failed; the job's error handler receives it.
    fn execute(&self, context: Context) -> impl Future<Output = JobResult> + Send;
}

/// Runs one item. Jobs of every kind come down to this.
pub(crate) trait ItemExecutor: Send + Sync + 'static {
    /// Runs the item. A panic counts as a failure.
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult>;

    /// As [`JobType::check`].
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// As [`JobType::grace`].
    fn grace(&self, config: &JobConfig) -> Duration {
        let _ = config;
        GRACE
    }

    /// As [`JobType::executes`].
    fn executes(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns `false` for code on a thread of its own, which dropping the future does not end.
    fn ends_when_dropped(&self) -> bool {
        true
    }

    /// Returns `true` if the code asks [`Context::should_yield`].
    fn streams(&self) -> bool {
        false
    }
}

/// The object-safe form of [`JobType`].
pub(crate) trait DynJobType: Send + Sync {
    fn name(&self) -> &str;
    fn executor(&self) -> Arc<dyn ItemExecutor>;
}

/// A job type in the list of plug-ins.
pub(crate) struct Registered<J>(pub(crate) Arc<J>);

impl<J: JobType> DynJobType for Registered<J> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn executor(&self) -> Arc<dyn ItemExecutor> {
        Arc::new(Registered(Arc::clone(&self.0)))
    }
}

impl<J: JobType> ItemExecutor for Registered<J> {
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult> {
        let job_type = Arc::clone(&self.0);
        async move { job_type.execute(context).await }.boxed()
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        self.0.check(config)
    }

    fn executes(&self) -> Vec<&'static str> {
        self.0.executes()
    }

    fn grace(&self, config: &JobConfig) -> Duration {
        self.0.grace(config)
    }
}
