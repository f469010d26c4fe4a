//! Runs the items of a run: in the job's pool, each failure and panic caught, the error handler called, the end told.

mod context;
pub mod script;
mod simple;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::{Run, RunId};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};

pub use context::{Cancelled, Context};
pub(crate) use simple::{Blocking, Closure, Simple};
pub use simple::{BlockingJob, SimpleJob};

use crate::plugins::{ErrorHandler, Plugins};

/// What a job gives back for an item: nothing, or why it failed. Any error fits.
pub type JobResult = Result<(), JobError>;

/// Why an item failed.
pub type JobError = Box<dyn std::error::Error + Send + Sync>;

/// Runs one item (Java: `JobItemExecutor`). Jobs of every kind come down to this.
pub trait ItemExecutor: Send + Sync + 'static {
    /// Runs the item. A panic counts as a failure.
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult>;
}

/// A job type that a configuration names: `SCRIPT` and those that a program registers (Java: `TypedJobItemExecutor`).
pub trait JobType: Send + Sync + 'static {
    /// Its name; a configuration may write it in any case.
    fn name(&self) -> &str;

    /// Checks the properties of a job of this type before it starts.
    ///
    /// # Errors
    ///
    /// Every fault.
    fn check(&self, config: &JobConfig) -> Result<(), Vec<ConfigError>>;

    /// What runs the items.
    fn executor(&self) -> Arc<dyn ItemExecutor>;
}

/// Names of the thread pools (Java: `JobExecutorThreadPoolSizeProvider`).
pub const THREAD_POOLS: [&str; 2] = ["CPU", "SINGLE_THREAD"];

/// How many items of one run execute at one time.
pub(crate) fn pool_size(name: &str) -> usize {
    if name.eq_ignore_ascii_case("SINGLE_THREAD") {
        1
    } else {
        2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

/// The execution side of one job.
pub(crate) struct Executor {
    items: Arc<dyn ItemExecutor>,
    plugins: Arc<Plugins>,
    instance: Arc<str>,
    cancel: watch::Sender<bool>,
    pool: (usize, Arc<Semaphore>),
}

impl Executor {
    pub(crate) fn new(items: Arc<dyn ItemExecutor>, plugins: Arc<Plugins>, instance: &str) -> Executor {
        let size = pool_size("CPU");
        let pool = (size, Arc::new(Semaphore::new(size)));
        Executor { items, plugins, instance: instance.into(), cancel: watch::Sender::new(false), pool }
    }

    /// Asks what still runs to end: the job has left.
    pub(crate) fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Starts the items of a run. `ended` is called once for each, in whatever way it ended.
    pub(crate) fn run(&mut self, run: Run, ended: impl Fn(RunId, u32, bool) + Clone + Send + 'static) {
        let size = pool_size(&run.config.thread_pool);
        if self.pool.0 != size {
            self.pool = (size, Arc::new(Semaphore::new(size)));
        }
        let run = Arc::new(run);
        for item in &run.items {
            let context =
                Context::new(Arc::clone(&run), item, Arc::clone(&self.instance), Cancelled(self.cancel.subscribe()));
            // One item alone does not need the pool, as in Java.
            let pool = (run.items.len() > 1).then(|| Arc::clone(&self.pool.1));
            let (items, plugins, ended) = (Arc::clone(&self.items), Arc::clone(&self.plugins), ended.clone());
            tokio::spawn(async move {
                let _place = match &pool {
                    Some(pool) => pool.acquire().await.ok(),
                    None => None,
                };
                let (id, item) = (context.run_id(), context.item());
                let result = execute(&*items, context.clone()).await;
                let failed = result.is_err();
                if let Err(error) = result {
                    handle_error(&plugins, &context, error).await;
                }
                ended(id, item, failed);
            });
        }
    }
}

async fn execute(items: &dyn ItemExecutor, context: Context) -> JobResult {
    let work = AssertUnwindSafe(async { items.execute(context).await }).catch_unwind();
    work.await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into());
        Err(format!("the job panicked: {text}").into())
    })
}

/// A handler that fails must not hurt the run.
async fn handle_error(plugins: &Plugins, context: &Context, error: JobError) {
    let name = &context.config().error_handler;
    let handler: Option<Arc<dyn ErrorHandler>> = plugins.error_handler(name);
    let Some(handler) = handler else {
        tracing::error!(
            job = context.job_name(),
            "jobErrorHandlerType `{name}` is not known here; item failed: {error}"
        );
        return;
    };
    let work = AssertUnwindSafe(handler.handle(context, error)).catch_unwind();
    if work.await.is_err() {
        tracing::error!(job = context.job_name(), "the error handler `{name}` panicked");
    }
}
