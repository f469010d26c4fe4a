//! The same job by the agent's YAML and by the library: what is tested must hold for both.

use std::path::Path;
use std::sync::Arc;

use elasticjob::registry::memory::Memory;
use elasticjob::registry::{Connection, Registry};
use elasticjob::{JobHandle, Plugins, ScheduleJob};
use elasticjob_tests::{Process, command};
use futures_util::FutureExt as _;

/// How a job is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Agent,
    Library,
}

/// Both of them.
pub(crate) const BOTH: [Way; 2] = [Way::Agent, Way::Library];

/// A job that fires each second.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: &'static str,
    pub(crate) items: u32,
    pub(crate) handler: Option<&'static str>,
    pub(crate) listeners: Vec<&'static str>,
    pub(crate) props: Vec<(&'static str, String)>,
}

impl Job {
    pub(crate) fn new(kind: &'static str, items: u32) -> Job {
        Job { kind, items, handler: None, listeners: Vec::new(), props: Vec::new() }
    }

    pub(crate) fn prop(mut self, key: &'static str, value: impl ToString) -> Job {
        self.props.push((key, value.to_string()));
        self
    }

    pub(crate) fn handler(mut self, handler: &'static str) -> Job {
        self.handler = Some(handler);
        self
    }

    pub(crate) fn listener(mut self, listener: &'static str) -> Job {
        self.listeners.push(listener);
        self
    }

    /// The job as a part of an agent's file.
    pub(crate) fn yaml(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let mut text = format!(
            "    watched:\n      elasticJobType: {}\n      cron: '* * * * * ?'\n      shardingTotalCount: {}\n\
             \x20     shardingItemParameters: 0=Zürich\n",
            self.kind, self.items
        );
        if let Some(handler) = self.handler {
            text.push_str(&format!("      jobErrorHandlerType: {handler}\n"));
        }
        if !self.listeners.is_empty() {
            text.push_str(&format!("      jobListenerTypes: [{}]\n", self.listeners.join(", ")));
        }
        text.push_str("      props:\n");
        self.props.iter().for_each(|(key, value)| text.push_str(&format!("        {key}: {}\n", quoted(value))));
        text
    }

    /// The job for the library.
    pub(crate) fn described(&self) -> ScheduleJob {
        let mut job = ScheduleJob::new("watched", self.items).cron("* * * * * ?").item_parameters("0=Zürich");
        if let Some(handler) = self.handler {
            job = job.error_handler(handler);
        }
        job = job.listeners(&self.listeners);
        self.props.iter().fold(job, |job, (key, value)| job.property(key, value))
    }

    /// Runs it, until the value is dropped.
    pub(crate) fn start(&self, way: Way, folder: &Path) -> Running {
        match way {
            Way::Agent => Running::Agent(start_agent(folder, &format!("elasticjob:\n  jobs:\n{}", self.yaml()))),
            Way::Library => {
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
                let handle = runtime.block_on(async {
                    let connection = connect(Plugins::default());
                    self.described().of_type(self.kind).start(&connection).await.expect("starts")
                });
                Running::Library { handle, runtime: Some(runtime) }
            }
        }
    }
}

/// A connection to a registry of its own.
pub(crate) fn connect(plugins: Plugins) -> Connection {
    let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
    Connection::on(registry).plugins(plugins).connect().now_or_never().expect("it does not wait").expect("an address")
}

/// Starts an agent on an embedded registry in that folder.
pub(crate) fn start_agent(folder: &Path, text: &str) -> Process {
    let file = folder.join("agent.yaml");
    std::fs::write(&file, text).expect("a file");
    let mut command = command();
    command.args(["agent", "-v"]).arg(&file).current_dir(folder);
    Process::start(command, &folder.join("log"))
}

/// A job that runs.
pub(crate) enum Running {
    Agent(Process),
    Library { handle: JobHandle, runtime: Option<tokio::runtime::Runtime> },
}

impl Running {
    /// Stops the job as its user would; runs get so many seconds.
    pub(crate) fn stop(&mut self, seconds: u64) {
        match self {
            Running::Agent(process) => {
                process.signal("TERM");
                process.wait(std::time::Duration::from_secs(seconds + 60));
            }
            Running::Library { handle, runtime } => {
                let grace = std::time::Duration::from_secs(seconds);
                runtime.as_ref().expect("a runtime").block_on(handle.stop_within(grace));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Library { runtime, .. } = self {
            runtime.take().expect("a runtime").shutdown_background();
        }
    }
}
