//! `elasticjob up` and `elasticjob agent`: the jobs of a file, until a signal.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elasticjob::registry::{Connection, Error as RegistryError, Registry, embedded, zookeeper};
use elasticjob::{Error, Job, JobHandle, JobState, NetworkPreference, OneOffJob, Plugins, ScheduleJob, StopReason};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;
use crate::args::Output;
use crate::file::{self, AgentFile, Fault, FileJob};
use crate::output;
use crate::serve::Served;

/// The jobs of `elasticjob up` without a file.
const QUICK_START: &str = include_str!("quick-start.yaml");

/// Runs the jobs of a file, or the quick-start ones.
pub(crate) fn run(path: Option<&Path>, registry: Option<&str>) -> Result<(), Failure> {
    let file = load(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        // Before anything is started: a signal that comes now is not lost.
        let signals = Signals::new()?;
        let connection = connect(&file, registry).await?;
        connection.trace(file.tracing.clone())?;
        let mut served = Served::default();
        served.expect(names(&file.jobs));
        served.serve(file.services.clone(), &connection).await;
        let agent = Agent {
            path,
            connection,
            served,
            grace: file.shutdown_timeout,
            registry: file.registry.clone(),
            running: Vec::new(),
            stopping: Vec::new(),
            joining: FuturesUnordered::new(),
            leaving: FuturesUnordered::new(),
            refused: Vec::new(),
        };
        agent.run(file, signals).await
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

fn names(jobs: &[FileJob]) -> impl Iterator<Item = String> {
    jobs.iter().map(|job| job.document.job_name.clone())
}

/// `elasticjob check`.
pub(crate) fn check(path: &Path, format: Output) -> Result<(), Failure> {
    let file = load(Some(path))?;
    let (name, jobs) = (path.display(), file.jobs.len());
    output::data(&match format {
        Output::Table => format!("{name}: {jobs} jobs, no faults\n"),
        Output::Json | Output::Yaml => {
            output::object(&serde_json::json!({"file": name.to_string(), "jobs": jobs}), format)
        }
    })
}

/// What ends an agent, and what has it read its file again.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Ctrl-C, or SIGTERM.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Reads a file and checks its jobs; every fault is told with its place.
pub(crate) fn load(path: Option<&Path>) -> Result<AgentFile, Failure> {
    let name = path.map_or("the quick-start jobs".to_owned(), |p| p.display().to_string());
    let env = |variable: &str| std::env::var(variable).ok();
    let file = match path {
        Some(path) => file::read(path, &env),
        None => file::parse(QUICK_START, &env),
    };
    checked(file, &name)
}

/// The same of a text; `name` is what faults begin with.
pub(crate) fn load_text(text: &str, name: &str) -> Result<AgentFile, Failure> {
    load_with(text, name, &|variable| std::env::var(variable).ok())
}

/// The same with another environment.
pub(crate) fn load_with(
    text: &str,
    name: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<AgentFile, Failure> {
    checked(file::parse(text, environment), name)
}

fn checked(file: Result<AgentFile, Vec<Fault>>, name: &str) -> Result<AgentFile, Failure> {
    let told = |faults: Vec<Fault>| Failure::Wrong(faults.into_iter().map(|f| format!("{name}:{f}")).collect());
    let file = file.map_err(told)?;
    file.warnings.iter().for_each(|warning| output::tell(&format!("{name}:{warning}")));
    let plugins = Plugins::default();
    let mut faults = Vec::new();
    for job in &file.jobs {
        if let Err(Error::Config { faults: found, .. }) = describe(job).check(&plugins) {
            for fault in found {
                let place = job.places.get(fault.key);
                let place = place.or_else(|| props_place(job, &fault)).or_else(|| job.places.get(""));
                let text = format!("job `{}`: key {fault}", job.document.job_name);
                faults.push(Fault { at: place.copied().unwrap_or_default(), text });
            }
        }
    }
    if faults.is_empty() { Ok(file) } else { Err(told(faults)) }
}

/// The thread pool has two keys, and a missing property is told where the properties stand.
fn props_place<'a>(
    job: &'a FileJob,
    fault: &elasticjob::ConfigError,
) -> Option<&'a elasticjob_core::wire::yaml::Position> {
    match fault.key {
        "jobExecutorThreadPoolSizeProviderType" => job.places.get("jobExecutorServiceHandlerType"),
        key if key.starts_with("props.") => job.places.get("props"),
        _ => None,
    }
}

fn describe(job: &FileJob) -> Job {
    if job.document.cron.is_some() {
        ScheduleJob::from_document(job.document.clone()).of_type(&job.job_type)
    } else {
        OneOffJob::from_document(job.document.clone()).of_type(&job.job_type)
    }
}

/// The digest is no part of an address that is seen in a list of processes: it comes from the environment.
pub(crate) fn with_digest(address: &str) -> String {
    match std::env::var("ELASTICJOB_DIGEST") {
        Ok(digest) if address.starts_with("zookeeper://") && !digest.is_empty() => {
            format!("{address}{}digest={digest}", if address.contains('?') { "&" } else { "?" })
        }
        _ => address.to_owned(),
    }
}

async fn connect(file: &AgentFile, address: Option<&str>) -> Result<Connection, Failure> {
    let registry: Arc<dyn Registry> = match (address, &file.registry) {
        (Some(address), _) => match elasticjob_registry::connect(&with_digest(address)).await {
            Err(error @ (RegistryError::Address { .. } | RegistryError::Setting { .. })) => {
                return Err(Failure::Wrong(vec![format!("elasticjob: --registry: {error}")]));
            }
            registry => registry?,
        },
        (None, Some(settings)) => {
            let mut settings = settings.clone();
            if let Ok(digest) = std::env::var("ELASTICJOB_DIGEST") {
                settings.digest = Some(digest);
            }
            Arc::new(zookeeper::Zookeeper::connect(settings)?)
        }
        (None, None) => Arc::new(embedded::open(Path::new("elasticjob.db"))?),
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let preference = NetworkPreference {
        interface: variable("ELASTICJOB_PREFERRED_NETWORK_INTERFACE"),
        ip: variable("ELASTICJOB_PREFERRED_NETWORK_IP"),
    };
    tracing::info!("uses {}", registry.describe());
    Ok(Connection::new(registry, Plugins::default(), &preference)?)
}

struct Agent<'a> {
    path: Option<&'a Path>,
    connection: Connection,
    served: Served,
    grace: Duration,
    registry: Option<zookeeper::Settings>,
    /// The jobs that were started, also those that an operator has shut down since.
    running: Vec<(FileJob, JobHandle)>,
    /// Those that were told to stop.
    stopping: Vec<JobHandle>,
    /// Registrations that are awaited.
    joining: FuturesUnordered<BoxFuture<'static, (JobHandle, Result<(), Error>)>>,
    /// Ends that are awaited.
    leaving: FuturesUnordered<BoxFuture<'static, (JobHandle, StopReason)>>,
    refused: Vec<String>,
}

impl Agent<'_> {
    async fn run(mut self, file: AgentFile, mut signals: Signals) -> Result<(), Failure> {
        tokio::select! {
            () = self.start(file.jobs) => self.work(&mut signals).await?,
            () = signals.end() => {}
        }
        tracing::info!("stopping: runs get {} s to end; a second signal stops at once", self.grace.as_secs());
        tokio::select! {
            () = self.stop() => Ok(()),
            () = signals.end() => Err(anyhow::anyhow!("stopped at once: runs were cut off").into()),
        }
    }

    /// Until a signal; or until no job is left, since all were refused.
    async fn work(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        loop {
            if self.running.is_empty() && self.joining.is_empty() {
                return Err(Failure::Wrong(std::mem::take(&mut self.refused)));
            }
            tokio::select! {
                Some((job, joined)) = self.joining.next() => self.joined(&job, joined),
                Some((job, reason)) = self.leaving.next() => self.left(&job, &reason),
                _ = signals.interrupt.recv() => return Ok(()),
                _ = signals.terminate.recv() => return Ok(()),
                _ = signals.hang_up.recv() => tokio::select! {
                    () = self.reload() => {}
                    _ = signals.interrupt.recv() => return Ok(()),
                    _ = signals.terminate.recv() => return Ok(()),
                },
            }
        }
    }

    /// What an operator has shut down is no reason not to be ready.
    fn left(&self, job: &JobHandle, reason: &StopReason) {
        let current = self.running.iter().any(|(_, handle)| handle.is_same(job));
        if current && *reason == StopReason::ShutDown {
            self.served.rests(job.name());
        }
    }

    /// Starts jobs; their registrations are awaited in `joining`.
    async fn start(&mut self, jobs: Vec<FileJob>) {
        let names: Vec<&str> = jobs.iter().map(|j| j.document.job_name.as_str()).collect();
        if let Err(error) = self.connection.identity(&names).await {
            return self.refused.push(format!("elasticjob: {error}"));
        }
        for job in jobs {
            match describe(&job).submit(&self.connection).await {
                Ok(handle) => {
                    let waiting = handle.clone();
                    let joined = async move {
                        let joined = waiting.joined().await;
                        (waiting, joined)
                    };
                    self.joining.push(joined.boxed());
                    let ending = handle.clone();
                    let left = async move {
                        let reason = ending.stopped().await;
                        (ending, reason)
                    };
                    self.leaving.push(left.boxed());
                    self.running.push((job, handle));
                }
                Err(error) => self.refuse(&error),
            }
        }
    }

    fn joined(&mut self, job: &JobHandle, joined: Result<(), Error>) {
        let was_running = self.running.len();
        self.running.retain(|(_, handle)| joined.is_ok() || !handle.is_same(job));
        // One that the file gave up while it waited is no news.
        if let (Err(error), true) = (joined, self.running.len() < was_running) {
            self.refuse(&error);
        }
    }

    /// Kept for the end, when no job is left; told at once while others run.
    fn refuse(&mut self, error: &Error) {
        if !self.running.is_empty() || !self.joining.is_empty() {
            tracing::error!("{error}");
        }
        self.refused.push(format!("elasticjob: {error}"));
    }

    /// SIGHUP: jobs that are new in the file start, those that are gone from it stop, changed ones start again.
    async fn reload(&mut self) {
        let file = match load(self.path) {
            Ok(file) => file,
            Err(Failure::Wrong(lines)) => {
                lines.iter().for_each(|line| tracing::error!("{line}"));
                tracing::error!("the file has faults: nothing is changed");
                return;
            }
            Err(Failure::Failed(error)) => return tracing::error!("{error:#}"),
            Err(Failure::Unread) => return,
        };
        if let Err(error) = self.connection.trace(file.tracing) {
            return tracing::error!("{error}");
        }
        self.served.serve(file.services, &self.connection).await;
        self.served.expect(names(&file.jobs));
        self.grace = file.shutdown_timeout;
        if file.registry != self.registry {
            tracing::warn!("key `regCenter` was changed: it counts from the next start on");
        }
        let same = |old: &FileJob, new: &FileJob| old.document == new.document && old.job_type == new.job_type;
        let mut jobs = file.jobs;
        for (old, handle) in std::mem::take(&mut self.running) {
            let stopped = matches!(handle.state(), JobState::Stopped(_));
            match jobs.iter().position(|new| same(&old, new)) {
                Some(index) if !stopped => {
                    jobs.remove(index);
                    self.running.push((old, handle));
                }
                // One that an operator has shut down starts again.
                Some(_) | None if stopped => {}
                Some(_) | None => {
                    tracing::info!(job = handle.name(), "is no longer in the file as it was: stopped");
                    self.stopping.push(handle);
                }
            }
        }
        let stops = self.stopping.iter().map(|handle| handle.stop_within(self.grace));
        futures_util::future::join_all(stops).await;
        let stopped = self.stopping.drain(..).count();
        tracing::info!("read the file again: {stopped} jobs stopped, {} to be started", jobs.len());
        self.start(jobs).await;
    }

    async fn stop(&mut self) {
        self.served.leave();
        let handles = self.running.iter().map(|(_, handle)| handle).chain(&self.stopping);
        futures_util::future::join_all(handles.map(|handle| handle.stop_within(self.grace))).await;
        self.connection.close().await;
        tracing::info!("stopped");
    }
}
