//! The two programs that are compared, and what the system says of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use elasticjob_tests::Process;
use serde::Serialize;

use crate::clock;

/// Ticks of the processor's clock in a second: what Linux shows to programs, whatever it counts with.
const TICKS: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Side {
    #[serde(rename = "Rust")]
    Rust,
    #[serde(rename = "Java 3.0.4")]
    Java,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Rust => "Rust",
            Side::Java => "Java 3.0.4",
        }
    }

    /// Its workload.
    pub(crate) fn command(self, root: &Path) -> Command {
        match self {
            Side::Rust => Command::new(root.join("target/release/workload")),
            Side::Java => {
                let target = root.join("bench/java/target");
                let mut command = Command::new("java");
                command.args(["-cp", &format!("{0}/workload.jar:{0}/lib/*", target.display()), "workload.Workload"]);
                command
            }
        }
    }
}

/// A run of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Microseconds since the Unix epoch.
    pub(crate) start: u64,
    /// The same; Java's jobs do not know their due times.
    pub(crate) due: Option<u64>,
    pub(crate) job: u32,
    pub(crate) item: u32,
}

impl Run {
    fn read(line: &str) -> Option<Run> {
        let mut parts = line.strip_prefix("run ")?.split(' ');
        let start = parts.next()?.parse().ok()?;
        let (_end, job, item, _pid) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let job = job.strip_prefix("job")?.parse().unwrap_or(0);
        let due = parts.next().and_then(|due| due.parse().ok());
        Some(Run { start, due, job, item: item.parse().ok()? })
    }

    /// Delay after its due time, in milliseconds. Where the job does not know that, each due time is a whole second, and a run
    /// that lags by more than one looks better than it is.
    pub(crate) fn lag(&self) -> f64 {
        let due = self.due.unwrap_or(self.start - self.start % 1_000_000);
        self.start.saturating_sub(due) as f64 / 1_000.0
    }

    /// The second that it was due in.
    pub(crate) fn second(&self) -> u64 {
        self.due.unwrap_or(self.start) / 1_000_000
    }
}

/// A workload that runs.
pub(crate) struct Workload {
    pub(crate) process: Process,
    out: PathBuf,
    /// When it was started, in microseconds since the Unix epoch.
    pub(crate) spawned: u64,
}

impl Workload {
    pub(crate) fn start(root: &Path, side: Side, arguments: &[String], folder: &Path, name: &str) -> Workload {
        let out = folder.join(name);
        let _ = std::fs::remove_file(&out);
        let mut command = side.command(root);
        command.args(arguments).arg(format!("out={}", out.display())).current_dir(folder);
        let spawned = clock::micros();
        let process = Process::start(command, &folder.join(format!("{name}.log")));
        Workload { process, out, spawned }
    }

    /// Waits until its jobs are registered: how long that took, in milliseconds, and when it was seen.
    pub(crate) fn wait_started(&mut self, patience: Duration) -> anyhow::Result<(u64, u64)> {
        let until = clock::instant() + patience;
        loop {
            let text = std::fs::read_to_string(&self.out).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("started ") && line.contains(" pid="));
            if let Some(millis) = line.and_then(|line| number(line, "ms=")) {
                return Ok((millis, clock::micros()));
            }
            if !self.process.is_running() {
                bail!("the workload has ended before it started: {}", self.tail());
            }
            if clock::instant() > until {
                bail!("the workload did not start within {} s", patience.as_secs());
            }
            clock::pause(Duration::from_millis(5));
        }
    }

    /// Waits for its end, then reads what it has written.
    pub(crate) fn finish(&mut self) -> anyhow::Result<Vec<Run>> {
        let until = clock::instant() + Duration::from_secs(120);
        while self.process.is_running() {
            if clock::instant() > until {
                self.process.kill();
                bail!("the workload does not end");
            }
            clock::pause(Duration::from_millis(50));
        }
        let text = self.text()?;
        if !text.lines().any(|line| line.starts_with("count ")) {
            bail!("the workload did not end well: {}", self.tail());
        }
        Ok(text.lines().filter_map(Run::read).collect())
    }

    /// What it has written so far.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(&self.out).with_context(|| self.out.display().to_string())
    }

    fn tail(&self) -> String {
        let log = self.process.log();
        log.lines().rev().take(3).collect::<Vec<_>>().join(" | ")
    }
}

/// The number after that name in a line.
pub(crate) fn number(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|part| part.strip_prefix(name)?.parse().ok())
}

/// Seconds of processors that a process has used.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may have spaces; after it utime and stime are the 12th and 13th.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks as f64 / TICKS
}

/// Memory in megabytes, and threads.
pub(crate) fn resources(pid: u32) -> (f64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let fields: HashMap<&str, u64> = status
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name, value.split_whitespace().next()?.parse().ok()?))
        })
        .collect();
    let get = |name: &str| fields.get(name).copied().unwrap_or_default();
    (get("VmRSS") as f64 / 1_024.0, get("Threads"))
}
