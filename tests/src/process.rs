//! Processes that tests start, and end by their own pid.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use crate::wait::{eventually, within};

/// A process; killed when it is dropped. Its output goes to a file that a failing test prints.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command whose output goes to `log`.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Process {
        let file = File::create(log).expect("a log file");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a handle")).stderr(file);
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Process { child, log: log.to_owned() }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, as `STOP`.
    ///
    /// # Panics
    ///
    /// When `kill` cannot be run.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.expect("kill").success());
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// When it has not within that time.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        let log = self.log.clone();
        eventually(&format!("the end of the process with the log {}", log.display()), patience, || {
            self.child.try_wait().expect("a child")
        })
    }

    /// Whether it ends within that time.
    ///
    /// # Panics
    ///
    /// When the system does not tell.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        within(time, || self.child.try_wait().expect("a child")).is_some()
    }

    /// Whether it runs.
    ///
    /// # Panics
    ///
    /// When the system does not tell.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            #[expect(clippy::print_stderr, reason = "a failing test")]
            {
                eprintln!("--- {}\n{}", self.log.display(), tail.join("\n"));
            }
        }
        self.kill();
    }
}

/// The binary under test, in the folder of this test's own profile.
///
/// # Panics
///
/// When it was not built: `cargo xtask integ` builds it first.
pub fn command() -> Command {
    let this = std::env::current_exe().expect("this program");
    let folders = this.ancestors().skip(1).take(2);
    let binary = folders.map(|folder| folder.join("elasticjob")).find(|binary| binary.is_file());
    let binary = binary.expect("`elasticjob` is not built: `cargo xtask integ` and `cargo xtask rig` build it");
    let mut command = Command::new(binary);
    command.env_remove("ELASTICJOB_REGISTRY").env_remove("ELASTICJOB_DIGEST");
    command
}

/// Starts an agent of ours whose wall clock is off by so many seconds.
///
/// # Panics
///
/// When libfaketime is not installed.
pub fn agent_with_clock(file: &Path, log: &Path, off: i64) -> Process {
    Process::start(agent_command(file, off), log)
}

/// The command of an agent of ours whose wall clock is off by so many seconds.
///
/// # Panics
///
/// When it is, and libfaketime is not installed.
pub(crate) fn agent_command(file: &Path, off: i64) -> Command {
    match off {
        0 => plain_agent(file),
        off => {
            let mut command = faked_agent(file);
            command.env("FAKETIME", format!("{off:+}s"));
            command
        }
    }
}

/// Starts an agent whose wall clock is off by the seconds in the file `clock`, such as `-60`, at each moment.
///
/// # Panics
///
/// When libfaketime is not installed.
pub fn agent_with_clock_file(file: &Path, log: &Path, clock: &Path) -> Process {
    let mut command = faked_agent(file);
    command.env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
    Process::start(command, log)
}

fn plain_agent(file: &Path) -> Command {
    let mut command = command();
    command.args(["agent", "-v"]).arg(file);
    command
}

fn faked_agent(file: &Path) -> Command {
    let mut command = plain_agent(file);
    let folders = std::fs::read_dir("/usr/lib").expect("libraries").flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let library = libraries.find(|library| library.exists()).expect("libfaketime is installed");
    command.env("LD_PRELOAD", library);
    // Only the wall clock: spans of time stay right.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    command
}

/// Starts an agent of ours with that file.
pub fn agent(file: &Path, log: &Path) -> Process {
    Process::start(agent_command(file, 0), log)
}

/// Runs the binary to its end.
///
/// # Panics
///
/// When it cannot be started.
pub fn output(arguments: &[&str], folder: &Path) -> Output {
    command().args(arguments).current_dir(folder).output().expect("the binary runs")
}

/// The command of the Java side with those arguments.
pub(crate) fn java_command(arguments: &[&str]) -> Command {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/target");
    assert!(target.join("peer.jar").exists(), "the Java peer is not built: run `cargo xtask integ`");
    let classes = format!("{0}/peer.jar:{0}/lib/*", target.display());
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", &classes, "peer.Main"]).args(arguments);
    command
}

/// Starts the Java side with those arguments.
pub fn java(arguments: &[&str], log: &Path) -> Process {
    Process::start(java_command(arguments), log)
}

/// Runs the Java side to its end, be that good or bad; gives what it printed.
pub(crate) fn java_said(arguments: &[&str]) -> String {
    let output = java_command(arguments).output().expect("java runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the Java side to its end; gives what it printed.
///
/// # Panics
///
/// When it fails.
pub fn java_output(arguments: &[&str]) -> String {
    let output = java_command(arguments).output().expect("java runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
