//! `elasticjob up` and `elasticjob agent`: the jobs of a file, until a signal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use elasticjob::agent::{missing_programs, withhold};
use elasticjob::registry::{Connection, Error as RegistryError, Registry, embedded, zookeeper};
use elasticjob::trace::{DataSource, TraceSettings};
use elasticjob::{
    Commands, Error, Job, JobEvent, JobHandle, JobState, NetworkPreference, OneOffJob, Overwrite, Plugins, ScheduleJob,
    StopReason,
};
use elasticjob_console::Console;
use elasticjob_core::config::JobConfig;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;

use crate::Failure;
use crate::args::Output;
use crate::file::{self, AgentFile, Fault, FileFaults, FileJob, advice};
use crate::output;
use crate::serve::Served;
use crate::signals::Signals;
use crate::up::{self, Up, embedded_path};

/// After a second signal an agent in which nothing runs has this long to delete its nodes.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// The file of the embedded registry, in the working folder.
pub(crate) const DEFAULT_REGISTRY: &str = "elasticjob.db";
/// The jobs of `elasticjob up` without a file.
const QUICK_START: &str = include_str!("quick-start.yaml");

/// Runs the jobs of a file, or the quick-start ones; with `up`, also the console, and the history beside an embedded registry.
pub(crate) fn run(path: Option<&Path>, registry: Option<&str>, up: Option<Up>) -> Result<(), Failure> {
    let mut file = load(path)?;
    log_warnings(&file, path);
    withhold_secrets(&file);
    let registry = registry.map(up::absolute_registry);
    let registry = registry.as_deref();
    // Relative paths of a file, those of its scripts too, begin at its folder.
    let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let path = path.as_deref();
    if let Some(path) = path {
        let folder = folder_of(path);
        std::env::set_current_dir(&folder)
            .map_err(|error| anyhow::anyhow!("cannot enter the folder {}: {error}", folder.display()))?;
        tracing::info!(
            "running the jobs of {}; relative paths are resolved against {}",
            path.display(),
            folder.display()
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        // Before anything is started: a signal that comes now is not lost.
        let signals = Signals::new()?;
        let connection = connect(&file, registry).await?;
        let embedded = match registry {
            Some(address) => embedded_path(address).map(Path::to_owned),
            None if file.registry.is_none() => Some(std::path::absolute(DEFAULT_REGISTRY)?),
            None => None,
        };
        let default_trace = embedded.as_deref().filter(|_| up.is_some()).and_then(up::trace_settings);
        file.tracing = file.tracing.take().or_else(|| default_trace.clone());
        connection.trace(file.tracing.clone())?;
        let (traced, _) = watch::channel(file.tracing.as_ref().map(|tracing| tracing.source.clone()));
        let console = match up {
            Some(up) => {
                let name =
                    embedded.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
                let name = name.unwrap_or_else(|| connection.registry().describe());
                up.start(&connection, name, traced.subscribe()).await?
            }
            None => None,
        };
        let mut served = Served::default();
        served.expect(names(&file.jobs));
        served.serve(file.services.clone(), &connection).await;
        let agent = Agent {
            path,
            connection,
            served,
            console,
            default_trace,
            traced,
            grace: file.shutdown_timeout,
            registry: file.registry.clone(),
            commands: file.commands,
            running: Vec::new(),
            stopping: FuturesUnordered::new(),
            successors: BTreeMap::new(),
            joining: FuturesUnordered::new(),
            leaving: FuturesUnordered::new(),
            refused: Vec::new(),
            heard: FuturesUnordered::new(),
            shut_down: Vec::new(),
        };
        agent.run(file, signals).await
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

fn names(jobs: &[FileJob]) -> impl Iterator<Item = String> {
    jobs.iter().map(|job| job.document.job_name.clone())
}

/// `elasticjob check`: as for an agent, and that the programs of scripts exist on this host.
pub(crate) fn check(path: &Path, format: Output) -> Result<(), Failure> {
    let name = path.display().to_string();
    let folder = folder_of(path);
    let checked = checked(file::read(path, &environment), &name, Some(&folder));
    let (jobs, warnings, faults) = match &checked {
        Ok(file) => (file.jobs.len(), &file.warnings, &Vec::new()),
        Err(Failure::Faults(found)) => (found.jobs, &found.warnings, &found.faults),
        Err(_) => return checked.map(drop),
    };
    match format {
        Output::Table => {
            let file = checked?;
            print_warnings(&file, &name);
            output::data(&format!("{name}: {jobs} job{}, no faults\n", if jobs == 1 { "" } else { "s" }))
        }
        Output::Json | Output::Yaml => {
            let found = |found: &Fault| serde_json::json!({"line": found.at.line, "column": found.at.column, "text": found.text});
            let list = |list: &[Fault]| list.iter().map(found).collect::<Vec<_>>();
            let (warnings, faults) = (list(warnings), list(faults));
            let object = serde_json::json!({"file": name, "jobs": jobs, "faults": faults, "warnings": warnings});
            output::data(&output::object(&object, format))?;
            // The object has all lines.
            if faults.is_empty() { Ok(()) } else { Err(Failure::Wrong(Vec::new())) }
        }
    }
}

/// Prints the warnings of a file, each with its place.
pub(crate) fn print_warnings(file: &AgentFile, name: &str) {
    file.warnings.iter().for_each(|warning| output::tell(&warning.warning_in(name)));
}

/// The same for an agent's log.
fn log_warnings(file: &AgentFile, path: Option<&Path>) {
    let name = path.map_or("the quick-start jobs".to_owned(), |path| path.display().to_string());
    file.warnings.iter().for_each(|warning| tracing::warn!("{name}:{warning}"));
}

/// Keeps scripts from inheriting the secrets that the file reads from the environment.
fn withhold_secrets(file: &AgentFile) {
    let names: Vec<&str> = file.secret_variables.iter().map(String::as_str).collect();
    if !names.is_empty() {
        tracing::info!(
            "scripts do not inherit the environment variables from which the file reads secrets: {}; to pass one, name it in `elasticjob.script.environment`",
            names.join(", ")
        );
    }
    withhold(file.secret_variables.iter().cloned());
}

fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// The job, when an operator has shut it down.
async fn shut_down(job: JobHandle) -> Option<JobHandle> {
    let mut events = job.events().await.ok()?;
    while let Some(event) = events.next().await {
        if event == JobEvent::ShutDownByOperator {
            return Some(job);
        }
    }
    None
}

/// The folder at which relative paths of a file begin.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.parent().map(Path::to_owned).unwrap_or_default()
}

/// Reads a file and checks its jobs; every fault is reported with its place.
pub(crate) fn load(path: Option<&Path>) -> Result<AgentFile, Failure> {
    let name = path.map_or("the quick-start jobs".to_owned(), |p| p.display().to_string());
    let file = match path {
        Some(path) => file::read(path, &environment),
        None => file::parse(QUICK_START, &environment),
    };
    checked(file, &name, None)
}

/// The same of a text; `name` is what faults begin with.
pub(crate) fn load_text(text: &str, name: &str) -> Result<AgentFile, Failure> {
    load_with(text, name, &environment)
}

/// The same with another environment.
pub(crate) fn load_with(
    text: &str,
    name: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<AgentFile, Failure> {
    checked(file::parse(text, environment), name, None)
}

/// Adds the faults of the jobs to those of the text. With a folder the programs of scripts must exist on this host too.
fn checked(mut file: AgentFile, name: &str, folder: Option<&Path>) -> Result<AgentFile, Failure> {
    let plugins = Plugins::default();
    let mut faults = std::mem::take(&mut file.faults);
    for job in &file.jobs {
        let at = |key: &str, fault: Option<&elasticjob::ConfigError>| {
            let place = job.places.get(key).or_else(|| props_place(job, fault?));
            place.or_else(|| job.places.get("")).copied().unwrap_or_default()
        };
        let mut found = match describe(job).check(&plugins) {
            Err(Error::Config { faults, .. }) => faults,
            Ok(()) | Err(_) => Vec::new(),
        };
        // A type that is missing was reported by its place.
        found.retain(|fault| fault.key != "elasticJobType" || job.places.contains_key("elasticJobType"));
        let (config, _) = JobConfig::best_effort(&job.document, &elasticjob::agent::time_zone);
        found.extend(folder.into_iter().flat_map(|folder| missing_programs(&config, folder)));
        let name = &job.document.job_name;
        let spelled = |fault: &mut elasticjob::ConfigError| {
            let (key, other) = ("jobExecutorThreadPoolSizeProviderType", "jobExecutorServiceHandlerType");
            if fault.key == key && job.places.contains_key(other) {
                fault.key = other;
            }
        };
        found.iter_mut().for_each(spelled);
        let was_read = |fault: &Fault| !file.unread.contains(&fault.at);
        let found = found.iter().map(|f| Fault { at: at(f.key, Some(f)), text: format!("job `{name}`: key {f}") });
        faults.extend(found.filter(was_read));
        let warnings = advice::of(job, &config).into_iter();
        let warnings = warnings.map(|(key, text)| Fault { at: at(&key, None), text: format!("job `{name}`: {text}") });
        file.warnings.extend(warnings.filter(was_read));
    }
    let order = |fault: &Fault| (fault.at.line, fault.at.column);
    file.warnings.sort_by_key(order);
    faults.sort_by_key(order);
    faults.dedup();
    if faults.is_empty() {
        return Ok(file);
    }
    Err(Failure::Faults(FileFaults { name: name.to_owned(), jobs: file.jobs.len(), warnings: file.warnings, faults }))
}

/// A missing property is reported at the place of `props`.
fn props_place<'a>(
    job: &'a FileJob,
    fault: &elasticjob::ConfigError,
) -> Option<&'a elasticjob_core::wire::yaml::Position> {
    match fault.key {
        key if key.starts_with("props.") => job.places.get("props"),
        _ => None,
    }
}

fn describe(job: &FileJob) -> Job {
    if job.document.cron.is_some() {
        ScheduleJob::from_document(job.document.clone()).overwrite(job.overwrite).of_type(&job.job_type)
    } else {
        OneOffJob::from_document(job.document.clone()).overwrite(job.overwrite).of_type(&job.job_type)
    }
}

/// The digest is no part of an address that is seen in a list of processes: it comes from the environment.
pub(crate) fn with_digest(address: &str) -> String {
    match std::env::var("ELASTICJOB_DIGEST") {
        Ok(digest) if address.starts_with("zookeeper://") && !digest.is_empty() => {
            let digest = elasticjob_registry::encoded(&digest);
            format!("{address}{}digest={digest}", if address.contains('?') { "&" } else { "?" })
        }
        _ => address.to_owned(),
    }
}

/// Names the source of an invalid address: an option or a variable.
pub(crate) fn wrong_address(address: &str, error: &RegistryError) -> Failure {
    let line = match error {
        RegistryError::Setting { key: "digest", expected, .. } if !address.contains("digest=") => {
            format!("elasticjob: ELASTICJOB_DIGEST: {expected}")
        }
        _ => format!("elasticjob: --registry or ELASTICJOB_REGISTRY: {error}"),
    };
    Failure::Wrong(vec![line])
}

async fn connect(file: &AgentFile, address: Option<&str>) -> Result<Connection, Failure> {
    let registry: Arc<dyn Registry> = match (address, &file.registry) {
        (Some(address), _) => match elasticjob_registry::connect(&with_digest(address)).await {
            Err(error @ (RegistryError::Address { .. } | RegistryError::Setting { .. })) => {
                return Err(wrong_address(address, &error));
            }
            registry => registry?,
        },
        (None, Some(settings)) => {
            let mut settings = settings.clone();
            if let Some(digest) = std::env::var("ELASTICJOB_DIGEST").ok().filter(|digest| !digest.is_empty()) {
                settings.digest = Some(digest);
            }
            Arc::new(zookeeper::Zookeeper::connect(settings)?)
        }
        (None, None) => {
            let path = std::path::absolute(DEFAULT_REGISTRY)?;
            Arc::new(embedded::open_when_free(&path).await?)
        }
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let mut preference = NetworkPreference::default();
    preference.interface = variable("ELASTICJOB_PREFERRED_NETWORK_INTERFACE");
    preference.ip = variable("ELASTICJOB_PREFERRED_NETWORK_IP");
    tracing::info!("using {}", registry.describe());
    if let (Some(_), Some(replaced)) = (address, &file.registry) {
        tracing::warn!(
            "--registry or ELASTICJOB_REGISTRY replaces the whole `regCenter` of the file ({}), including its timeouts",
            replaced.servers
        );
    }
    Ok(Connection::on(registry).network(preference).commands(file.commands).connect().await?)
}

struct Agent<'a> {
    path: Option<&'a Path>,
    connection: Connection,
    served: Served,
    /// The web console in this process.
    console: Option<Console>,
    /// The trace of a file that has no `tracing`.
    default_trace: Option<TraceSettings>,
    /// The database of the trace, for the console.
    traced: watch::Sender<Option<DataSource>>,
    grace: Duration,
    registry: Option<zookeeper::Settings>,
    commands: Commands,
    /// The jobs that were started, also those that an operator has shut down since.
    running: Vec<(FileJob, JobHandle)>,
    /// The jobs that SIGHUP stops. The other jobs continue until these have stopped.
    stopping: FuturesUnordered<BoxFuture<'static, String>>,
    /// By name, what starts when such a job has stopped; `None` for a job that the file does not contain any more.
    successors: BTreeMap<String, Option<FileJob>>,
    /// Registrations that are awaited.
    joining: FuturesUnordered<BoxFuture<'static, (JobHandle, Result<(), Error>)>>,
    /// Ends that are awaited.
    leaving: FuturesUnordered<BoxFuture<'static, (JobHandle, StopReason)>>,
    refused: Vec<String>,
    /// Jobs that wait for an operator to shut them down.
    heard: FuturesUnordered<BoxFuture<'static, Option<JobHandle>>>,
    /// Those that an operator has shut down: they complete their runs.
    shut_down: Vec<JobHandle>,
}

impl Agent<'_> {
    async fn run(mut self, file: AgentFile, mut signals: Signals) -> Result<(), Failure> {
        tokio::select! {
            () = self.start(file.jobs) => self.work(&mut signals).await?,
            () = signals.end() => {}
        }
        tracing::info!(
            running = self.connection.running_items(),
            grace_s = self.grace.as_secs(),
            "stopping: running items may complete; a second signal stops immediately"
        );
        let connection = self.connection.clone();
        let stop = self.stop();
        tokio::pin!(stop);
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = signals.end() => {}
        }
        let running = connection.running_items();
        if running == 0 && tokio::time::timeout(LAST_WRITES, &mut stop).await.is_ok() {
            return Ok(()); // nothing was cut off
        }
        Err(anyhow::anyhow!("stopped immediately: {running} running items were interrupted").into())
    }

    /// Until a signal; or until no job is left, since all were refused.
    async fn work(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        loop {
            if self.running.is_empty() && self.joining.is_empty() && self.stopping.is_empty() {
                return Err(Failure::Wrong(std::mem::take(&mut self.refused)));
            }
            tokio::select! {
                Some((job, joined)) = self.joining.next() => self.joined(&job, joined),
                Some((job, reason)) = self.leaving.next() => self.left(&job, &reason),
                Some(shut_down) = self.heard.next() => self.shut_down.extend(shut_down),
                Some(name) = self.stopping.next() => self.stopped(&name).await,
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
        for job in &jobs {
            let (config, _) = JobConfig::best_effort(&job.document, &elasticjob::agent::time_zone);
            for fault in missing_programs(&config, Path::new("")) {
                let name = job.document.job_name.as_str();
                // The items run without a listener that fails.
                let consequence = match fault.key.contains("listener") {
                    true => "this listener fails at each run until this is fixed, and the items run without it",
                    false => "runs of this job fail until this is fixed",
                };
                tracing::warn!(job = name, "key {fault}; {consequence}");
            }
        }
        let names: Vec<&str> = jobs.iter().map(|j| j.document.job_name.as_str()).collect();
        if let Err(error) = self.connection.identity(&names).await {
            return self.refused.push(format!("elasticjob: {error}"));
        }
        for job in jobs {
            match describe(&job).submit(&self.connection) {
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
                Err(error) => self.refuse(&job.document.job_name, &error),
            }
        }
    }

    fn joined(&mut self, job: &JobHandle, joined: Result<(), Error>) {
        if joined.is_ok() {
            self.heard.push(shut_down(job.clone()).boxed());
        }
        let was_running = self.running.len();
        self.running.retain(|(_, handle)| joined.is_ok() || !handle.is_same(job));
        // One that the file gave up while it waited is no news.
        if let (Err(error), true) = (joined, self.running.len() < was_running) {
            self.refuse(job.name(), &error);
        }
    }

    /// Kept for the end, when no job is left; logged immediately while others run.
    fn refuse(&mut self, job: &str, error: &Error) {
        if !self.running.is_empty() || !self.joining.is_empty() {
            tracing::error!(job, "{error}");
        }
        self.refused.push(format!("elasticjob: {error}"));
    }

    /// SIGHUP: jobs that are new in the file start, those that are gone from it stop, changed ones start again.
    async fn reload(&mut self) {
        let file = match load(self.path) {
            Ok(file) => file,
            Err(Failure::Wrong(lines)) => {
                lines.iter().for_each(|line| tracing::error!("reload failed; running jobs are unchanged: {line}"));
                return;
            }
            Err(Failure::Faults(FileFaults { name, warnings, faults, .. })) => {
                warnings.iter().for_each(|warning| tracing::warn!("{name}:{warning}"));
                faults.iter().for_each(|fault| tracing::error!("reload failed: {name}:{fault}"));
                tracing::error!("reload failed: the file has faults; running jobs are unchanged");
                return;
            }
            Err(Failure::Failed(error)) => {
                return tracing::error!("reload failed; running jobs are unchanged: {error:#}");
            }
            Err(Failure::Unread) => return,
        };
        withhold_secrets(&file);
        let tracing = file.tracing.or_else(|| self.default_trace.clone());
        let source = tracing.as_ref().map(|tracing| tracing.source.clone());
        if let Err(error) = self.connection.trace(tracing) {
            return tracing::error!("reload failed; running jobs are unchanged: {error}");
        }
        self.traced.send_replace(source);
        self.served.serve(file.services, &self.connection).await;
        self.served.expect(names(&file.jobs));
        self.grace = file.shutdown_timeout;
        if file.registry != self.registry {
            tracing::warn!("`regCenter` changed; restart the agent to apply it");
        }
        if file.commands != self.commands {
            tracing::warn!("`commands` changed; restart the agent to apply it");
        }
        let mut jobs = file.jobs;
        self.replan(&mut jobs);
        self.shut_down.retain(|job| !matches!(job.state(), JobState::Stopped(_)));
        for (old, handle) in std::mem::take(&mut self.running) {
            let is_stopped = matches!(handle.state(), JobState::Stopped(_));
            let index = jobs.iter().position(|new| new.document.job_name == handle.name());
            // One that an operator has shut down starts again.
            if is_stopped {
                continue;
            }
            let is_same = index.is_some_and(|index| old.is_same(&jobs[index]));
            let is_shut_down = self.shut_down.iter().any(|one| one.is_same(&handle));
            let is_replaced = is_same && self.is_replaced(&old).await;
            match index {
                Some(index) if is_same && !is_replaced && !is_shut_down => {
                    jobs.remove(index);
                    handle.log_differences();
                    self.running.push((old, handle));
                    continue;
                }
                Some(_) if is_replaced => tracing::info!(
                    job = handle.name(),
                    "the stored configuration differs and `overwrite` is true; restarting the job"
                ),
                Some(_) if is_same => {
                    tracing::info!(
                        job = handle.name(),
                        "an operator shut down the job; starting it when its runs are completed"
                    );
                }
                Some(_) => tracing::info!(job = handle.name(), "the job changed in the file; restarting it"),
                None => tracing::info!(job = handle.name(), "the job was removed from the file; stopping it"),
            }
            self.successors.insert(handle.name().to_owned(), index.map(|index| jobs.remove(index)));
            let grace = self.grace;
            let stopped = async move {
                handle.stop_within(grace).await;
                handle.name().to_owned()
            };
            self.stopping.push(stopped.boxed());
        }
        let restarting = self.successors.values().flatten().count();
        let stopping = self.successors.len() - restarting;
        tracing::info!(starting = jobs.len(), stopping, restarting, "reloaded the file");
        self.start(jobs).await;
    }

    /// What starts after the jobs that are still stopping, by the file as it is now.
    fn replan(&mut self, jobs: &mut Vec<FileJob>) {
        for (name, successor) in &mut self.successors {
            let index = jobs.iter().position(|job| job.document.job_name == *name);
            *successor = index.map(|index| jobs.remove(index));
        }
    }

    /// Starts the successor of a job that SIGHUP has stopped.
    async fn stopped(&mut self, name: &str) {
        if let Some(Some(job)) = self.successors.remove(name) {
            self.start(vec![job]).await;
        }
    }

    /// Whether a start of the job would overwrite the stored configuration.
    async fn is_replaced(&self, job: &FileJob) -> bool {
        if job.overwrite != Overwrite::Always {
            return false;
        }
        let operations = self.connection.operations();
        // What cannot be read is no reason to stop what runs.
        let stored = operations.config(&job.document.job_name).await.ok();
        let stored = stored.and_then(|stored| elasticjob::JobDocument::parse(stored.text.as_bytes()).ok());
        stored.is_some_and(|stored| !job.document.differences(&stored).is_empty())
    }

    async fn stop(&mut self) {
        self.served.leave();
        let running = self.running.iter().map(|(_, handle)| handle.stop_within(self.grace));
        let running = futures_util::future::join_all(running);
        // A SIGHUP has asked these to stop before.
        futures_util::future::join(running, self.stopping.by_ref().collect::<Vec<_>>()).await;
        let console = self.console.take();
        let console = async {
            if let Some(console) = console {
                console.stop().await;
            }
        };
        futures_util::future::join(console, self.connection.close()).await;
        tracing::info!("stopped");
    }
}
