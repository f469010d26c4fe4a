//! Describes, starts and stops a job (Java: `ScheduleJobBootstrap`, `OneOffJobBootstrap`, `JobConfiguration.Builder`).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::{ConfigCheck, Setup};
use elasticjob_core::wire::{JobDocument, Overwrite};
use tokio::sync::watch;

use crate::commands::Permission;
use crate::connection::Connection;
use crate::contract::{BlockingJob, Context, DataflowJob, ItemExecutor, JobResult, SimpleJob};
use crate::execute::{self, Blocking, Closure, Dataflow, Executor, Simple};
use crate::handle::{JobHandle, Stopping};
use crate::settings::{HttpRequest, Retry, ThreadPool};
use crate::worker::{JobState, Message, NameGuard, Start};
use crate::{Error, StopReason, clock};

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty) => $body:expr;)*) => {
        $(
            $(#[$doc])*
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
            /// Sets the parameters of single items, as `0=a,1=b`. None by default.
            item_parameters(text: &str) => |d, text| d.sharding_item_parameters = Some(text.to_owned());
            /// Sets a parameter for all items. Empty by default.
            job_parameter(text: &str) => |d, text| d.job_parameter = Some(text.to_owned());
            /// Sets whether running items are marked in the registry, so that no item runs twice at a time. `true` by default.
            monitor_execution(on: bool) => |d, on| d.monitor_execution = on;
            /// Sets whether other instances take over the interrupted runs of a dead instance. `false` by default. Needs
            /// `monitor_execution`.
            failover(on: bool) => |d, on| d.failover = on;
            /// Sets whether a missed firing is caught up once. `true` by default.
            misfire(on: bool) => |d, on| d.misfire = on;
            /// Sets the maximum difference to the registry's clock, in whole seconds. A larger one is logged as an error. Not
            /// checked by default.
            max_time_diff(difference: Duration) => |d, difference| d.max_time_diff_seconds = seconds(difference);
            /// Sets how often the instance reads the state of the job again, in whole minutes, rounded up. 10 minutes by default;
            /// zero means never.
            reconcile_interval(interval: Duration) => |d, interval| d.reconcile_interval_minutes = minutes(interval);
            /// Sets the sharding strategy by name: `AVG_ALLOCATION` (the default), `ODEVITY`, `ROUND_ROBIN`, or one of the
            /// [`Plugins`](crate::Plugins).
            sharding_strategy(name: &str) => |d, name| d.job_sharding_strategy_type = Some(name.to_owned());
            /// Sets how many items of a run execute at one time on an instance.
            thread_pool(pool: ThreadPool) => |d, pool| d.thread_pool = Some(pool.name().to_owned());
            /// Sets the error handler by name: `LOG` (the default), `THROW`, `IGNORE`, `EMAIL`, `WECHAT`, `DINGTALK`, or one of
            /// the [`Plugins`](crate::Plugins).
            error_handler(name: &str) => |d, name| d.job_error_handler_type = Some(name.to_owned());
            /// Sets the listeners by name, in the order in which they are called. None by default.
            listeners(names: &[&str]) => |d, names| d.job_listener_types = names.iter().map(ToString::to_string).collect();
            /// Sets a description for people.
            description(text: &str) => |d, text| d.description = Some(text.to_owned());
            /// Sets whether this start registers its server as disabled, if the server is not registered yet. `false` by default.
            disabled(on: bool) => |d, on| d.disabled = on;
            /// Sets whether items stay with their owner after the first assignment. `false` by default.
            static_sharding(on: bool) => |d, on| d.static_sharding = on;
            /// Sets the time limit for a run of one item, retries included: 1 ms to 7 days. No limit by default. When it has
            /// passed, [`Context::cancelled`] fires.
            timeout(limit: Duration) => |d, limit| put(d, execute::TIMEOUT, limit.as_millis());
            /// Sets how often a failed item is tried again. Not at all by default.
            retry(retry: Retry) => |d, retry| {
                put(d, execute::RETRIES, retry.count.into());
                put(d, execute::DELAY, retry.delay.as_millis());
                put(d, execute::DELAY_MAX, retry.delay_max.as_millis());
            };
            /// Sets whether a [`DataflowJob`] fetches until a fetch returns nothing. `false` by default: one fetch per run.
            streaming(on: bool) => |d, on| {
                d.props.insert(name_of(execute::STREAMING), on.to_string());
            };
        }

        /// Sets which configuration wins if a different one is stored: `false` (the default) the stored one, `true` this one,
        /// [`Overwrite::Changed`] this one for keys that changed since it was last applied.
        pub fn overwrite(mut self, mode: impl Into<Overwrite>) -> Self {
            self.0.overwrite = mode.into();
            self.0.document.overwrite = self.0.overwrite == Overwrite::Always;
            self
        }

        /// Sets a property for the job type, the error handler or a listener.
        pub fn property(mut self, key: &str, value: &str) -> Self {
            self.0.document.props.insert(key.to_owned(), value.to_owned());
            self
        }

        /// Sets the class text in the registry, for a job that Java instances run too. The default is the name of the job.
        pub fn class_name(mut self, name: &str) -> Self {
            self.0.class = Some(name.to_owned());
            self
        }

        /// Makes it a job whose code is an async closure.
        pub fn simple<F, R>(self, code: F) -> Job
        where
            F: Fn(Context) -> R + Send + Sync + 'static,
            R: Future<Output = JobResult> + Send + 'static,
        {
            Job { description: self.0, code: Code::Executor(Arc::new(Closure(code))) }
        }

        /// Makes it a job whose code is an async method.
        pub fn job(self, job: impl SimpleJob) -> Job {
            Job { description: self.0, code: Code::Executor(Arc::new(Simple(Arc::new(job)))) }
        }

        /// Makes it a job whose code may block.
        pub fn blocking(self, job: impl BlockingJob) -> Job {
            Job { description: self.0, code: Code::Executor(Arc::new(Blocking(Arc::new(job)))) }
        }

        /// Makes it a job that fetches and processes data.
        pub fn dataflow(self, job: impl DataflowJob) -> Job {
            Job { description: self.0, code: Code::Executor(Arc::new(Dataflow(Arc::new(job)))) }
        }

        /// Makes it a job that runs a command; no shell. The job type `SCRIPT`.
        pub fn script(self, command_line: &str) -> Job {
            self.property("script.command.line", command_line).of_type("SCRIPT")
        }

        /// Makes it a job that sends an HTTP request. The job type `HTTP`, which needs the cargo feature `http`.
        pub fn http(self, request: HttpRequest) -> Job {
            request.properties().into_iter().fold(self, |job, (key, value)| job.property(key, &value)).of_type("HTTP")
        }

        /// Makes it a job of a type that the [`Plugins`](crate::Plugins) of the connection have by name.
        pub fn of_type(self, name: &str) -> Job {
            Job { description: self.0, code: Code::Type(name.to_owned()) }
        }
    };
}

/// The name of a property as configurations have it.
fn name_of(key: &str) -> String {
    key.trim_start_matches("props.").to_owned()
}

fn put(document: &mut JobDocument, key: &str, value: u128) {
    document.props.insert(name_of(key), value.to_string());
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn minutes(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs().div_ceil(60)).unwrap_or(i64::MAX)
}

/// The settings that both kinds of jobs share.
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

/// The description of a job that runs on a cron schedule. It becomes a [`Job`] with its code.
///
/// # Examples
///
/// ```no_run
/// # async fn f() -> Result<(), elasticjob::Error> {
/// use elasticjob::ScheduleJob;
///
/// let connection = elasticjob::registry::connect("zookeeper://127.0.0.1:2181/demo").await?;
/// let job = ScheduleJob::new("my_job", 3)
///     .cron("0/5 * * * * ?")
///     .item_parameters("0=Beijing,1=Shanghai,2=Guangzhou")
///     .failover(true)
///     .simple(|context| async move { println!("{}", context.item()); Ok(()) })
///     .start(&connection).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ScheduleJob(Description);

impl ScheduleJob {
    /// Describes a job by its name and its number of items. It needs a [`ScheduleJob::cron`] expression.
    pub fn new(name: &str, sharding_total_count: u32) -> ScheduleJob {
        let document = JobDocument::new(name, sharding_total_count);
        ScheduleJob(Description::new(document, false))
    }

    /// Describes a job by a whole document, as the agent's file has it.
    pub fn from_document(document: JobDocument) -> ScheduleJob {
        ScheduleJob(Description::new(document, false))
    }

    settings! {
        /// Sets the cron expression, in Quartz's dialect: seconds first, and `?` in one of the two day fields.
        cron(text: &str) => |d, text| d.cron = Some(text.to_owned());
        /// Sets the time zone of the cron expression: an IANA name, or `GMT+8`. The default is the host's zone.
        time_zone(name: &str) => |d, name| d.time_zone = Some(name.to_owned());
    }
    builder!();
}

/// The description of a job that runs when it is triggered. It becomes a [`Job`] with its code.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
/// use elasticjob::OneOffJob;
///
/// let connection = elasticjob::registry::connect("memory:").await?;
/// let job = OneOffJob::new("import", 4).simple(|_| async { Ok(()) }).start(&connection).await?;
/// let results = job.trigger().await?.finished().await?;
/// assert!(results.iter().all(|result| result.outcome.is_success()));
/// # Ok::<(), elasticjob::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OneOffJob(Description);

impl OneOffJob {
    /// Describes a job by its name and its number of items.
    pub fn new(name: &str, sharding_total_count: u32) -> OneOffJob {
        let document = JobDocument::new(name, sharding_total_count);
        OneOffJob(Description::new(document, true))
    }

    /// Describes a job by a whole document, as the agent's file has it.
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
#[must_use = "a job runs only after `start` or `submit`"]
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
    /// Checks the configuration without the registry.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with every fault.
    pub fn check(&self, plugins: &crate::Plugins) -> Result<(), Error> {
        self.checked(plugins).map(drop)
    }

    /// Checks the configuration, and returns what runs the items.
    fn checked(&self, plugins: &crate::Plugins) -> Result<Arc<dyn ItemExecutor>, Error> {
        let document = &self.description.document;
        let fault = |key, value: &str, expected: String| ConfigError::new(key, value, expected);
        // Every fault is found in one pass.
        let (config, mut faults) = JobConfig::best_effort(document, &clock::zone);
        let cron_is_invalid = faults.iter().any(|fault| fault.key == "cron");
        faults.extend(JobConfig::contradictions(document));
        match (&config.cron, self.description.one_off) {
            (None, false) if cron_is_invalid => {}
            (None, false) => {
                faults.push(fault("cron", "", "expected a cron expression, because the job is scheduled".into()))
            }
            (Some(cron), true) => {
                faults.push(fault("cron", cron.text(), "a one-off job must not have a cron expression".into()))
            }
            (Some(cron), false) if cron.next(clock::now(), &config.time_zone).is_none() => {
                faults.push(fault("cron", cron.text(), "it never fires".into()));
            }
            _ => {}
        }
        let items = match &self.code {
            Code::Executor(items) => Ok(Arc::clone(items)),
            Code::Type(name) => match plugins.find_job_type(name) {
                Some(job_type) => Ok(job_type.executor()),
                None => Err(fault("elasticJobType", name, plugins.expected_job_type(name))),
            },
        };
        let items = match items {
            Ok(items) => {
                faults.extend(execute::check(&config, &*items, plugins));
                Some(items)
            }
            Err(unknown) => {
                faults.push(unknown);
                faults.extend(plugins.check(&config));
                None
            }
        };
        match items {
            Some(items) if faults.is_empty() => Ok(items),
            _ => Err(Error::Config { job: document.job_name.clone(), faults }),
        }
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.description.document.job_name
    }

    /// Starts the job and waits until it is registered, without limit if the registry cannot be reached.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, the registry has the job under another class, or this process runs it already.
    ///
    /// # Cancel safety
    ///
    /// The job starts although this future is dropped.
    pub async fn start(self, connection: &Connection) -> Result<JobHandle, Error> {
        let handle = self.submit(connection)?;
        handle.joined().await?;
        Ok(handle)
    }

    /// Starts the job without waiting for the registry; [`JobHandle::joined`] waits for that. Call it within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or this process runs the job already.
    pub fn submit(self, connection: &Connection) -> Result<JobHandle, Error> {
        let items = self.checked(connection.plugins())?;
        let name = self.description.document.job_name.clone();
        let Some(reserved) = connection.reserve(&name) else { return Err(Error::Duplicate { job: name }) };
        let (state, states) = watch::channel(JobState::Starting);
        let stopping = Stopping::default();
        let starting =
            Starting { job: self, items, reserved, connection: connection.clone(), stopping: stopping.clone() };
        tokio::spawn(starting.run(state));
        Ok(JobHandle::new(name, connection.clone(), states, stopping))
    }
}

/// A job on its way to the worker: it waits until this process knows its id.
struct Starting {
    job: Job,
    items: Arc<dyn ItemExecutor>,
    reserved: NameGuard,
    connection: Connection,
    stopping: Stopping,
}

impl Starting {
    async fn run(self, state: watch::Sender<JobState>) {
        let Starting { job, items, reserved, connection, stopping } = self;
        let name = job.name().to_owned();
        let (mut closing, names) = (connection.closing(), [name.as_str()]);
        let identity = tokio::select! {
            identity = connection.identity(&names) => identity.cloned(),
            () = stopping.wait() => return stopped(&state, StopReason::Asked),
            _ = closing.wait_for(Option::is_some) => return stopped(&state, StopReason::Asked),
        };
        let identity = match identity {
            Ok(identity) => identity,
            Err(error) => return stopped(&state, StopReason::Refused(error.to_string())),
        };
        let deciding = Permission::decide(
            connection.commands(),
            connection.registry(),
            &job.description.document,
            items.executes(),
        );
        let permission = tokio::select! {
            permission = deciding => permission,
            () = stopping.wait() => return stopped(&state, StopReason::Asked),
            _ = closing.wait_for(Option::is_some) => return stopped(&state, StopReason::Asked),
        };
        let class = match &job.code {
            Code::Executor(_) => name.clone(),
            Code::Type(type_name) => type_name.clone(),
        };
        let (checked, plugins) = (Arc::clone(&items), Arc::clone(connection.plugins()));
        connection.shared().tracer.set_permission(&name, permission.clone());
        let check = ConfigCheck(Arc::new(move |config| {
            let mut faults = execute::check(config, &*checked, &plugins);
            faults.extend(permission.check(config));
            faults
        }));
        let executor = Executor::new(items, connection.shared(), &identity.id);
        let setup = Setup {
            document: job.description.document,
            overwrite: job.description.overwrite,
            class: job.description.class.unwrap_or(class),
            one_off: job.description.one_off,
            identity,
            check,
        };
        let start = Message::Start(Box::new(Start { setup, executor, state, name: reserved }));
        if connection.worker().tell(start).is_err() {
            return; // the state's sender is gone, so the handle knows
        }
        // A stop that came before the job was known to the worker.
        let grace = stopping.requested().or(*closing.borrow());
        if let Some(grace) = grace {
            let deadline = connection.clock().now() + grace;
            let _ = connection.worker().tell(Message::Stop { job: name, deadline });
        }
    }
}

fn stopped(state: &watch::Sender<JobState>, reason: StopReason) {
    state.send_replace(JobState::Stopped(reason));
}
