//! What ran where: a script that Java and Rust instances both run writes it down.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The record of a cluster's runs.
#[derive(Debug)]
pub struct Journal {
    file: PathBuf,
    script: PathBuf,
}

/// One run of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// When the script began, in milliseconds since the epoch.
    pub start: i64,
    /// When it ended; `None` while it runs and when it was killed.
    pub end: Option<i64>,
    /// The process that ran it.
    pub pid: u32,
    /// The item.
    pub item: u32,
    /// Why, as a Rust instance says it; empty for Java.
    pub source: String,
    /// The due time of a Rust instance; for Java the second of the start.
    pub due: i64,
    /// The fencing token; 0 for Java.
    pub token: i64,
    /// The instance's id.
    pub instance: String,
}

const SCRIPT: &str = r#"#!/bin/sh
# record.sh FILE SECONDS CONTEXT; with SECONDS@ITEM that item alone takes so long
unset LD_PRELOAD # a clock that is off is the agent's, not the record's
task=${3#*'"taskId":"'}
task=${task%%'"'*}
item=${3##*'"shardingItem":'}
item=${item%%[,\}]*}
id="$$-$(date +%s%N)"
echo "start $id $(date +%s%3N) $PPID $item ${ELASTICJOB_SOURCE:-java} ${ELASTICJOB_DUE_TIME:--} ${ELASTICJOB_FENCING_TOKEN:-0} ${task##*READY@-@}" >> "$1"
case "$2" in
  0) ;;
  *@"$item") sleep "${2%@*}" ;;
  *@*) ;;
  *) sleep "$2" ;;
esac
echo "end $id $(date +%s%3N)" >> "$1"
"#;

impl Journal {
    /// A record in that folder.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn new(folder: &Path) -> Journal {
        let script = folder.join("record.sh");
        std::fs::write(&script, SCRIPT).expect("a script");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("rights");
        let file = folder.join("runs");
        std::fs::write(&file, "").expect("a file");
        Journal { file, script }
    }

    /// The command line that writes into it and takes so many seconds; with `SECONDS@ITEM` that item alone does.
    pub fn command(&self, seconds: &str) -> String {
        format!("{} {} {seconds}", self.script.display(), self.file.display())
    }

    /// Everything that ran, by start.
    ///
    /// # Panics
    ///
    /// When the record is garbled.
    pub fn runs(&self) -> Vec<Run> {
        let text = std::fs::read_to_string(&self.file).expect("the record");
        let mut runs: BTreeMap<&str, Run> = BTreeMap::new();
        for line in text.lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            match parts.as_slice() {
                ["start", id, start, pid, item, source, due, token, instance] => {
                    let start: i64 = start.parse().expect("a time");
                    let due = match due.parse::<jiff::Timestamp>() {
                        Ok(due) => due.as_millisecond(),
                        Err(_) => start / 1_000 * 1_000,
                    };
                    let (pid, item) = (pid.parse().expect("a pid"), item.parse().expect("an item"));
                    let source = (*source).to_owned();
                    let (token, instance) = (token.parse().expect("a token"), (*instance).to_owned());
                    runs.insert(id, Run { start, end: None, pid, item, source, due, token, instance });
                }
                ["end", id, end] => {
                    if let Some(run) = runs.get_mut(id) {
                        run.end = Some(end.parse().expect("a time"));
                    }
                }
                _ => panic!("{line}"),
            }
        }
        let mut runs: Vec<Run> = runs.into_values().collect();
        runs.sort_by_key(|r| r.start);
        runs
    }
}
