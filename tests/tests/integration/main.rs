//! What the whole does, against real servers, real processes and the Java peer. Run by `cargo xtask integ`, which installs
//! and builds what is needed.

mod browser;
mod clock;
mod commands;
mod conformance;
mod console;
mod counts;
mod crashes;
mod damage;
mod disk;
mod doors;
mod editing;
mod explain;
mod first_hour;
mod handlers;
mod judged;
mod kills;
mod links;
mod listeners;
mod mixed;
mod once;
mod operations;
mod overwrite;
mod pages;
mod quartz;
mod recorded;
mod refusals;
mod rig;
mod run_logs;
mod services;
mod tracing;
mod transcripts;
mod triggers;
mod types;
mod up;
mod ways;
mod znodes;

use std::path::{Path, PathBuf};

use elasticjob_tests::Journal;

/// The session timeout of the agents in these tests.
const SESSION_MILLIS: u64 = 4_000;

/// A file for an agent, ours or Java's, with one script job that writes the journal.
fn job_file(
    folder: &Path,
    name: &str,
    zookeeper: &str,
    journal: &Journal,
    items: u32,
    seconds: &str,
    more: &str,
) -> PathBuf {
    let text = format!(
        "elasticjob:
  regCenter:
    serverLists: {zookeeper}
    namespace: tests
    sessionTimeoutMilliseconds: {SESSION_MILLIS}
  jobs:
    shared-job:
      elasticJobType: SCRIPT
      shardingTotalCount: {items}
{more}      props:
        script.command.line: {}
",
        journal.command(seconds)
    );
    let path = folder.join(format!("{name}.yaml"));
    std::fs::write(&path, text).expect("a file");
    path
}
