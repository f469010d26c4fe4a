//! One command from its start to the end of all of its processes.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::clock;
use crate::contract::{Cancelled, JobError, JobResult, RunLines};

use super::inherited;
use super::output::{LastLines, Output, Stream};

/// A grandchild that goes on may hold the pipe open for ever: the run is over all the same, this long after its end.
const LAST_OUTPUT: Duration = Duration::from_millis(200);
/// Each run has a mark of its own in its environment, by which processes that left its group are found.
const MARK: &str = "ELASTICJOB_RUN_ID";

/// A command that is to be run.
#[derive(Debug)]
pub(crate) struct Script {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// One more argument, appended unchanged unless it is empty.
    pub(crate) last_argument: String,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Lines of output that go to the log.
    pub(crate) lines: u64,
    /// Variables that are inherited although they have secrets.
    pub(crate) passed: Vec<String>,
    /// The log of the run, which takes all lines.
    pub(crate) log: Option<Arc<dyn RunLines>>,
}

impl Script {
    /// Runs it: in a process group of its own, its output copied to the log. When `cancelled` speaks, the group gets
    /// SIGTERM, and after the grace SIGKILL, with whatever has left the group.
    pub(crate) async fn run(self, job: &str, item: Option<u32>, mut cancelled: Cancelled) -> JobResult {
        let mark = uuid::Uuid::new_v4().to_string();
        let mut group = Group(self.start(&mark)?);
        let child = &mut group.0;
        let last = LastLines::default();
        let output = Output { job: job.into(), item, lines: self.lines, last: last.clone(), log: self.log.clone() };
        let out = child.stdout.take().map(|o| output.clone().copying(Stream::Out, o));
        let err = child.stderr.take().map(|e| output.copying(Stream::Error, e));
        let copies = [out, err].into_iter().flatten();
        let status = tokio::select! {
            status = child.wait() => Some(status?),
            () = cancelled.wait() => None,
        };
        let result = if let Some(status) = status {
            judge(status)
        } else {
            // In its own task: it must complete even if nothing waits for it any more.
            let stop = Stop { group, mark, grace: self.grace };
            tokio::spawn(stop.run()).await?
        };
        // Before the result: a reader of the failure has then seen the last output.
        for copy in copies {
            copy.end(LAST_OUTPUT).await;
        }
        result.map_err(|error| last.explain(&error.to_string()).into())
    }

    fn start(&self, mark: &str) -> Result<Child, JobError> {
        let (program, arguments) = self.words.split_first().ok_or("the command is empty")?;
        let mut command = Command::new(program);
        command.args(arguments);
        if !self.last_argument.is_empty() {
            command.arg(&self.last_argument);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in inherited::withheld(&self.passed) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(key, value)| (key, value))).env(MARK, mark);
        command.process_group(0);
        command.spawn().map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::ArgumentListTooLong => {
                    "; the sharding context is passed as one argument: shorten `jobParameter` or the item's parameter"
                }
                // The number of ENOEXEC.
                _ if error.raw_os_error() == Some(8) => "; a script needs a first line such as `#!/bin/sh`",
                _ => "",
            };
            format!("the script `{program}` cannot be started: {error}{advice}").into()
        })
    }
}

/// The child that leads its process group. Dropped before its end, as when the process must end at once, it takes its group
/// with it.
struct Group(Child);

impl Group {
    /// Signals the group, as long as the child that leads it is not reaped: its number is not given away before.
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = killpg(Pid::from_raw(leader), signal); // it may have ended meanwhile
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// A script that is being stopped, with all that it has started.
struct Stop {
    group: Group,
    mark: String,
    grace: Duration,
}

impl Stop {
    async fn run(mut self) -> JobResult {
        let over = clock::sleep(self.grace);
        tokio::pin!(over);
        self.group.signal(Signal::SIGTERM);
        let ended = tokio::select! {
            status = self.group.0.wait() => Some(status?),
            () = over.as_mut() => None,
        };
        if ended.is_some() && !survivors(&self.mark).await.is_empty() {
            over.await; // its children have the same grace
        }
        let left = survivors(&self.mark).await;
        if ended.is_none() {
            self.group.signal(Signal::SIGKILL);
            self.group.0.wait().await?;
        }
        // The killed process may have forked in the meantime.
        let mut more = left.clone();
        for _ in 0..10 {
            for pid in &more {
                let _ = kill(*pid, Signal::SIGKILL); // it may have ended meanwhile
            }
            more = survivors(&self.mark).await;
            if more.is_empty() {
                break;
            }
            clock::sleep(Duration::from_millis(10)).await;
        }
        match (ended, left.is_empty()) {
            (Some(status), true) if status.signal() == Some(Signal::SIGTERM as i32) => {
                Err("the script was ended by SIGTERM".into())
            }
            (Some(status), true) => judge(status),
            (Some(_), false) => Err("the script exited on SIGTERM; its remaining child processes were killed".into()),
            (None, _) => Err(format!("the script was killed, {} ms after SIGTERM", self.grace.as_millis()).into()),
        }
    }
}

fn judge(status: ExitStatus) -> JobResult {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(format!("the script ended with exit code {code}").into()),
        None => Err(format!("the script was ended by a signal that ElasticJob did not send: {status}").into()),
    }
}

/// Which processes carry which mark. One look serves all who asked before it began: hundreds of scripts may be stopped at
/// one time.
#[derive(Default)]
struct Looks {
    begun: u64,
    marked: HashMap<String, Vec<Pid>>,
}

static LOOKS: LazyLock<Mutex<Looks>> = LazyLock::new(Mutex::default);
static LOOKS_BEGUN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The processes that have the mark in their environment, whatever group or parent they have. Empty where there is no
/// `/proc`: there only the process group is killed.
async fn survivors(mark: &str) -> Vec<Pid> {
    let asked = LOOKS_BEGUN.load(std::sync::atomic::Ordering::SeqCst);
    let mut looks = LOOKS.lock().await;
    if looks.begun <= asked {
        looks.begun = LOOKS_BEGUN.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        looks.marked = tokio::task::spawn_blocking(marked).await.unwrap_or_default();
    }
    looks.marked.get(mark).cloned().unwrap_or_default()
}

fn marked() -> HashMap<String, Vec<Pid>> {
    let mut found: HashMap<String, Vec<Pid>> = HashMap::new();
    let Ok(processes) = std::fs::read_dir("/proc") else { return found };
    for pid in processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let name = format!("{MARK}=");
        for variable in environment.split(|byte| *byte == 0) {
            if let Some(mark) = variable.strip_prefix(name.as_bytes()) {
                found.entry(String::from_utf8_lossy(mark).into_owned()).or_default().push(Pid::from_raw(pid));
            }
        }
    }
    found
}
