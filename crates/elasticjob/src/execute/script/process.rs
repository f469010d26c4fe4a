//! One command from its start to the end of all of its processes.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::clock;
use crate::execute::{Cancelled, JobError, JobResult};

/// Bytes of a line of output that go to the log.
const LINE_BYTES_MAX: usize = 4_096;
/// A grandchild that goes on may hold the pipe open for ever: the run is over all the same, this long after its end.
const LAST_OUTPUT: Duration = Duration::from_millis(200);
/// Each run has a mark of its own in its environment, by which processes that left its group are found.
const MARK: &str = "ELASTICJOB_RUN_ID";

/// A command that is to be run.
#[derive(Debug)]
pub(crate) struct Script {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// One argument more, put behind them as it is, when it is not empty.
    pub(crate) last_argument: String,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Lines of output that go to the log.
    pub(crate) lines: u64,
}

impl Script {
    /// Runs it: in a process group of its own, its output copied to the log. When `cancelled` speaks, the group gets
    /// SIGTERM, and after the grace SIGKILL, with whatever has left the group.
    pub(crate) async fn run(self, job: &str, item: Option<u32>, mut cancelled: Cancelled) -> JobResult {
        let mark = format!("{MARK}={}", uuid::Uuid::new_v4());
        let mut child = self.start(&mark)?;
        let log = Log { job: job.into(), item, lines: self.lines };
        let out = child.stdout().take().map(|o| tokio::spawn(log.clone().copy(o)));
        let err = child.stderr().take().map(|e| tokio::spawn(log.copy(e)));
        let status = tokio::select! {
            status = child.wait() => Some(status?),
            () = cancelled.wait() => None,
        };
        let Some(status) = status else { return self.stop(child, &mark).await };
        for output in [out, err].into_iter().flatten() {
            let abort = output.abort_handle();
            tokio::select! {
                _ = output => {}
                () = clock::sleep(LAST_OUTPUT) => abort.abort(),
            }
        }
        judge(status)
    }

    fn start(&self, mark: &str) -> Result<Box<dyn ChildWrapper>, JobError> {
        let (program, arguments) = self.words.split_first().ok_or("the command is empty")?;
        let (name, id) = mark.split_once('=').unwrap_or((MARK, mark));
        let mut command = CommandWrap::with_new(program, |command| {
            command.args(arguments);
            if !self.last_argument.is_empty() {
                command.arg(&self.last_argument);
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.envs(self.environment.iter().map(|(key, value)| (key, value))).env(name, id);
        });
        command.wrap(KillOnDrop).wrap(ProcessGroup::leader());
        command.spawn().map_err(|e| format!("the script `{program}` cannot be started: {e}").into())
    }

    async fn stop(&self, mut child: Box<dyn ChildWrapper>, mark: &str) -> JobResult {
        let over = clock::sleep(self.grace);
        tokio::pin!(over);
        // It may have ended meanwhile: then there is nobody to tell.
        let _ = child.signal(Signal::SIGTERM as i32);
        let ended = tokio::select! {
            status = child.wait() => Some(status?),
            () = over.as_mut() => None,
        };
        if ended.is_some() && !survivors(mark).is_empty() {
            over.await; // its children have the same grace
        }
        let _ = child.start_kill();
        let left = survivors(mark);
        if ended.is_none() {
            child.wait().await?;
        }
        // What is killed may have forked meanwhile.
        for _ in 0..10 {
            let left = survivors(mark);
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ = kill(pid, Signal::SIGKILL); // it may have ended meanwhile
            }
            clock::sleep(Duration::from_millis(10)).await;
        }
        match (ended, left.is_empty()) {
            (Some(status), true) => judge(status),
            (Some(_), false) => Err("the script ended by SIGTERM, what it had started was killed".into()),
            (None, _) => Err(format!("the script was killed, {} ms after SIGTERM", self.grace.as_millis()).into()),
        }
    }
}

fn judge(status: ExitStatus) -> JobResult {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(format!("the script ended with exit code {code}").into()),
        None => Err(format!("the script was ended by a signal: {status}").into()),
    }
}

/// The processes that have the mark in their environment, whatever group or parent they have. Empty where there is no
/// `/proc`: there only the process group is killed.
fn survivors(mark: &str) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(marked).map(Pid::from_raw).collect()
}

/// Copies output to the log.
#[derive(Clone)]
struct Log {
    job: Arc<str>,
    item: Option<u32>,
    lines: u64,
}

impl Log {
    /// Line by line, up to a bound; what is beyond is read and counted, so that the script is never held up.
    async fn copy(self, output: impl AsyncRead + Unpin) {
        let mut reader = BufReader::new(output);
        let (mut lines, mut line) = (0_u64, Vec::new());
        while let Ok(chunk) = reader.fill_buf().await {
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|b| *b == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            let room = LINE_BYTES_MAX.saturating_sub(line.len());
            line.extend_from_slice(&chunk[..end.unwrap_or(taken).min(room)]);
            reader.consume(taken);
            if end.is_some() {
                lines += 1;
                self.tell(lines, &line);
                line.clear();
            }
        }
        if !line.is_empty() {
            lines += 1;
            self.tell(lines, &line);
        }
        if lines > self.lines {
            let more = lines - self.lines;
            tracing::warn!(job = &*self.job, item = self.item, "{more} more lines of output are not shown");
        }
    }

    fn tell(&self, lines: u64, line: &[u8]) {
        if lines <= self.lines {
            tracing::info!(job = &*self.job, item = self.item, "{}", String::from_utf8_lossy(line));
        } else if lines == self.lines + 1 {
            let most = self.lines;
            tracing::warn!(job = &*self.job, item = self.item, "only the first {most} lines of its output are shown");
        }
    }
}
