//! What a user starts and stops (Java: `ScheduleJobBootstrap`, `OneOffJobBootstrap`, `JobConfiguration.Builder`).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::JobConfig;
use elasticjob_core::machine::{ConfigCheck, Setup, StopReason};
use elasticjob_core::wire::{JobDocument, Overwrite};
use tokio::sync::{oneshot, watch};

use crate::connection::Connection;
use crate::execute::{
    self, Blocking, BlockingJob, Closure, Context, Dataflow, DataflowJob, Executor, ItemExecutor, JobResult, Simple,
    SimpleJob,
};
use crate::operations::{OperationError, Operations};
use crate::worker::{JobState, Message, Start};
use crate::{Error, clock};

/// How long [`JobHandle::stop`] lets runs go on.
pub const STOP_GRACE: Duration = Duration::from_secs(30);

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty) => $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $value: $type) -> Self {
                let set: fn(&mut JobDocument, $type) = $body;
                set(&mut self.0.document, $value);
                self
            }
        )*
    };
}

macro_rules! builder {
    () => {
        settings! {
            /// Parameters of single items, `0=a,1=b`; none by default.
            item_parameters(text: &str) => |d, text| d.sharding_item_parameters = Some(text.to_owned());
            /// A parameter for all items; empty by default.
            job_parameter(text: &str) => |d, text| d.job_parameter = Some(text.to_owned());
            /// Whether running items are marked in the registry, which keeps an item from running twice; true by default.
            monitor_execution(on: bool) => |d, on| d.monitor_execution = on;
            /// Whether others run again what a dead instance was running; false by default.
            failover(on: bool) => |d, on| d.failover = on;
            /// Whether a missed firing is caught up once; true by default.
            misfire(on: bool) => |d, on| d.misfire = on;
            /// The largest difference to the registry's clock, told when exceeded; not checked by default.
            max_time_diff_seconds(seconds: u32) => |d, seconds| d.max_time_diff_seconds = seconds.into();
            /// How often the picture of the registry is read anew; 10 by default, 0 for never.
            reconcile_interval_minutes(minutes: u32) => |d, minutes| d.reconcile_interval_minutes = minutes.into();
            /// The sharding strategy; `AVG_ALLOCATION` by default.
            sharding_strategy(name: &str) => |d, name| d.job_sharding_strategy_type = Some(name.to_owned());
            /// The thread pool, `CPU` (the default) or `SINGLE_THREAD`: how many items of a run execute at one time.
            thread_pool(name: &str) => |d, name| d.thread_pool = Some(name.to_owned());
            /// The error handler; `LOG` by default.
            error_handler(name: &str) => |d, name| d.job_error_handler_type = Some(name.to_owned());
            /// The names of the listeners, in the order in which they are called; none by default.
            listeners(names: &[&str]) => |d, names| d.job_listener_types = names.iter().map(ToString::to_string).collect();
            /// Free text.
            description(text: &str) => |d, text| d.description = Some(text.to_owned());
            /// Whether this start registers its server as disabled, when it is not registered yet; false by default.
            disabled(on: bool) => |d, on| d.disabled = on;
            /// Whether items stay with their owner after the first assignment; false by default.
            static_sharding(on: bool) => |d, on| d.static_sharding = on;
        }

        /// Which configuration wins where another one is stored: `false` (the default) for the stored one, `true` for this one,
        /// [`Overwrite::Changed`] for this one in the keys that changed since it was last applied.
        #[must_use]
        pub fn overwrite(mut self, mode: impl Into<Overwrite>) -> Self {
            self.0.overwrite = mode.into();
            self.0.document.overwrite = self.0.overwrite == Overwrite::Always;
            self
        }

        /// A property for the job type or the error handler.
        #[must_use]
        pub fn property(mut self, key: &str, value: &str) -> Self {
            self.0.document.props.insert(key.to_owned(), value.to_owned());
            self
        }

        /// The class text in the registry, for a job that Java instances have too; the job's name by default.
        #[must_use]
        pub fn class_name(mut self, name: &str) -> Self {
            self.0.class = Some(name.to_owned());
            self
        }

        /// Gives it an async closure as its code.
        pub fn simple<F, R>(self, code: F) -> Job
        where
            F: Fn(Context) -> R + Send + Sync + 'static,
            R: Future<Output = JobResult> + Send + 'static,
        {
            Job { description: self.0, code: Code::Executor(Arc::new(Closure(code))) }
        }

        /// Gives it a job of an async trait.
        pub fn job(self, job: impl SimpleJob) -> Job {
            Job { description: self.0, code: Code::Executor(Arc::new(Simple(Arc::new(job)))) }
        }

        /// Gives it a job that may block.
        pub fn blocking(self, job: impl BlockingJob) -> Job {
            Job { description: self.0, code: Code::Executor(Arc::new(Blocking(Arc::new(job)))) }
        }

        /// Gives it a job that fetches and processes.
        pub fn dataflow(self, job: impl DataflowJob) -> Job {
            Job { description: self.0, code: Code::Executor(Arc::new(Dataflow(Arc::new(job)))) }
        }

        /// Makes it a job of a type that the connection knows by name, as `SCRIPT` or `HTTP`.
        pub fn of_type(self, name: &str) -> Job {
            Job { description: self.0, code: Code::Type(name.to_owned()) }
        }
    };
}

/// What both kinds of jobs have while they are described.
#[derive(Clone, Debug)]
struct Description {
    document: JobDocument,
    class: Option<String>,
    overwrite: Overwrite,
    one_off: bool,
}

impl Description {
    fn new(document: JobDocument, one_off: bool) -> Description {
        let overwrite = Overwrite::from(document.overwrite);
        Description { document, class: None, overwrite, one_off }
    }
}

/// A job that runs by a schedule, while it is described. It starts with [`Job::start`], once it has its code.
///
/// ```no_run
/// # async fn f() -> Result<(), elasticjob::Error> {
/// use elasticjob::ScheduleJob;
/// let registry = elasticjob::registry::connect("zookeeper://127.0.0.1:2181/demo").await?;
/// let job = ScheduleJob::new("my_job", 3)
///     .cron("0/5 * * * * ?")
///     .item_parameters("0=Beijing,1=Shanghai,2=Guangzhou")
///     .failover(true)
///     .simple(|context| async move { println!("{}", context.item()); Ok(()) })
///     .start(&registry).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ScheduleJob(Description);

impl ScheduleJob {
    /// A job of that name, cut into so many items. It needs a [`ScheduleJob::cron`].
    pub fn new(name: &str, sharding_total_count: u32) -> ScheduleJob {
        let document = JobDocument::new(name, sharding_total_count);
        ScheduleJob(Description::new(document, false))
    }

    /// Takes a whole document, as the YAML of the agent gives it.
    pub fn from_document(document: JobDocument) -> ScheduleJob {
        ScheduleJob(Description::new(document, false))
    }

    settings! {
        /// When it fires, in Quartz's dialect: seconds first, one of the two day fields `?`.
        cron(text: &str) => |d, text| d.cron = Some(text.to_owned());
        /// The zone of the cron expression: an IANA name, or `GMT+8`; the host's by default.
        time_zone(name: &str) => |d, name| d.time_zone = Some(name.to_owned());
    }
    builder!();
}

/// A job that runs when it is triggered, while it is described.
///
/// ```no_run
/// # async fn f() -> Result<(), elasticjob::Error> {
/// use elasticjob::OneOffJob;
/// let registry = elasticjob::registry::connect("embedded:jobs.db").await?;
/// let job = OneOffJob::new("import", 4).simple(|_| async { Ok(()) }).start(&registry).await?;
/// job.execute().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct OneOffJob(Description);

impl OneOffJob {
    /// A job of that name, cut into so many items.
    pub fn new(name: &str, sharding_total_count: u32) -> OneOffJob {
        let document = JobDocument::new(name, sharding_total_count);
        OneOffJob(Description::new(document, true))
    }

    /// Takes a whole document, as the YAML of the agent gives it.
    pub fn from_document(document: JobDocument) -> OneOffJob {
        OneOffJob(Description::new(document, true))
    }

    builder!();
}

#[derive(Clone)]
enum Code {
    Executor(Arc<dyn ItemExecutor>),
    Type(String),
}

/// A described job with its code.
#[derive(Clone)]
pub struct Job {
    description: Description,
    code: Code,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Job {
    /// Checks everything that can be checked without the registry.
    ///
    /// # Errors
    ///
    /// Every fault of the configuration.
    pub fn check(&self, plugins: &crate::Plugins) -> Result<(), Error> {
        let document = &self.description.document;
        let failed = |faults| Error::Config { job: document.job_name.clone(), faults };
        let fault = |key, value: &str, expected: String| elasticjob_core::config::ConfigError {
            key,
            value: value.to_owned(),
            expected,
        };
        // Every fault is found in one pass.
        let (config, mut faults) = JobConfig::best_effort(document, &clock::zone);
        let cron_is_wrong = faults.iter().any(|fault| fault.key == "cron");
        faults.extend(JobConfig::contradictions(document));
        match (&config.cron, self.description.one_off) {
            (None, false) if cron_is_wrong => {}
            (None, false) => faults.push(fault("cron", "", "a scheduled job needs one".into())),
            (Some(cron), true) => faults.push(fault("cron", cron.text(), "a one-off job has none".into())),
            (Some(cron), false) if cron.next(clock::now(), &config.time_zone).is_none() => {
                faults.push(fault("cron", cron.text(), "it never fires".into()));
            }
            _ => {}
        }
        let items = match &self.code {
            Code::Executor(items) => Some(Arc::clone(items)),
            Code::Type(name) => plugins.find_job_type(name).map(|job_type| job_type.executor()),
        };
        match items {
            Some(items) => faults.extend(execute::check(&config, &*items, plugins)),
            None => {
                let name = if let Code::Type(name) = &self.code { name } else { "" };
                let expected = format!("expected one of {}", plugins.job_type_names().join(", "));
                faults.push(fault("elasticJobType", name, expected));
                faults.extend(plugins.check(&config));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(failed(faults)) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.description.document.job_name
    }

    /// Starts the job: waits until it is registered, however long the registry is away.
    ///
    /// # Errors
    ///
    /// The configuration is wrong, the registry has the job under another class, or this process runs it already.
    ///
    /// # Cancel safety
    ///
    /// A start that is dropped may still take place.
    pub async fn start(self, connection: &Connection) -> Result<JobHandle, Error> {
        let handle = self.submit(connection).await?;
        handle.joined().await?;
        Ok(handle)
    }

    /// Starts the job without waiting for its registration; [`JobHandle::joined`] waits for that.
    ///
    /// # Errors
    ///
    /// The configuration is wrong, or this process runs the job already.
    ///
    /// # Cancel safety
    ///
    /// As of [`Job::start`].
    pub async fn submit(self, connection: &Connection) -> Result<JobHandle, Error> {
        self.check(connection.plugins())?;
        let name = self.description.document.job_name.clone();
        let identity = connection.identity(&[&name]).await?.clone();
        let (class, items) = match &self.code {
            Code::Executor(items) => (name.clone(), Arc::clone(items)),
            Code::Type(type_name) => {
                let found = connection.plugins().find_job_type(type_name).ok_or(Error::Ended)?;
                (type_name.clone(), found.executor())
            }
        };
        let (checked, plugins) = (Arc::clone(&items), Arc::clone(connection.plugins()));
        let check = ConfigCheck(Arc::new(move |config| execute::check(config, &*checked, &plugins)));
        let executor = Executor::new(items, connection.shared(), &identity.id);
        let setup = Setup {
            document: self.description.document,
            overwrite: self.description.overwrite,
            class: self.description.class.unwrap_or(class),
            one_off: self.description.one_off,
            identity,
            check,
        };
        let (state, states) = watch::channel(JobState::Starting);
        let (answer, accepted) = oneshot::channel();
        connection.worker().tell(Message::Start(Box::new(Start { setup, executor, state, answer })))?;
        accepted.await.map_err(|_| Error::Ended)??;
        Ok(JobHandle { name, connection: connection.clone(), states })
    }
}

/// A started job. Dropping it does not stop the job, as long as another handle or the [`Connection`] is there.
#[derive(Clone, Debug)]
pub struct JobHandle {
    name: String,
    connection: Connection,
    states: watch::Receiver<JobState>,
}

impl JobHandle {
    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether both are handles of the same start of a job.
    pub fn is_same(&self, other: &JobHandle) -> bool {
        self.states.same_channel(&other.states)
    }

    /// Waits until it is registered.
    ///
    /// # Errors
    ///
    /// It was refused by what the registry has, or stopped before.
    pub async fn joined(&self) -> Result<(), Error> {
        let mut states = self.states.clone();
        let settled = |state: &JobState| matches!(state, JobState::Running { .. } | JobState::Stopped(_));
        let reason = match &*states.wait_for(settled).await.map_err(|_| Error::Ended)? {
            JobState::Stopped(StopReason::Refused(reason)) => reason.clone(),
            JobState::Stopped(StopReason::Asked) => "it was stopped before it had joined".to_owned(),
            JobState::Stopped(StopReason::ShutDown) => "it was shut down by an operator".to_owned(),
            JobState::Running { .. } | JobState::Starting | JobState::Disconnected => return Ok(()),
        };
        Err(Error::Refused { job: self.name.clone(), reason })
    }

    /// How it stands.
    pub fn state(&self) -> JobState {
        self.states.borrow().clone()
    }

    /// How it stands, and every change of it.
    pub fn states(&self) -> watch::Receiver<JobState> {
        self.states.clone()
    }

    /// Runs the job once, now: each of its items on the instance that owns it (Java: `JobOperateAPI.trigger`,
    /// `OneOffJobBootstrap.execute`). An item that is running runs again after that.
    ///
    /// # Errors
    ///
    /// The job is disabled, or the registry failed.
    pub async fn execute(&self) -> Result<(), Error> {
        match Operations::new(Arc::clone(self.connection.registry())).trigger(&self.name).await {
            Ok(_) => Ok(()),
            Err(OperationError::Registry(error)) => Err(error.into()),
            Err(other) => Err(Error::Refused { job: self.name.clone(), reason: other.to_string() }),
        }
    }

    /// Logs again in which keys the configuration of this start differs from the stored one. That is logged anyway when the job
    /// joins and when the stored one changes.
    pub fn log_differences(&self) {
        // A worker that has ended runs no job.
        let _ = self.connection.worker().tell(Message::Compare { job: self.name.clone() });
    }

    /// Stops the job: nothing begins any more, what runs gets 30 seconds, then is told to end, and its nodes are removed when it
    /// has, or twelve seconds later.
    pub async fn stop(&self) -> StopReason {
        self.stop_within(STOP_GRACE).await
    }

    /// Stops the job with another time for what runs.
    pub async fn stop_within(&self, grace: Duration) -> StopReason {
        let message = Message::Stop { job: self.name.clone(), deadline: clock::now() + grace };
        if self.connection.worker().tell(message).is_err() {
            return StopReason::Asked;
        }
        self.stopped().await
    }

    /// Waits until the job has ended, whoever asked for it.
    pub async fn stopped(&self) -> StopReason {
        let mut states = self.states.clone();
        match states.wait_for(|state| matches!(state, JobState::Stopped(_))).await.as_deref() {
            Ok(JobState::Stopped(reason)) => reason.clone(),
            _ => StopReason::Asked,
        }
    }
}
