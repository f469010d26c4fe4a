//! Java and Rust instances in one job.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use elasticjob_tests::{
    Journal, Process, Run, ZooKeeper, agent, eventually, java, java_output, logged, pause, wall_clock_millis,
};

use crate::{SESSION_MILLIS, job_file};

const START: Duration = Duration::from_secs(60);

struct Cluster {
    folder: tempfile::TempDir,
    zookeeper: ZooKeeper,
    journal: Journal,
    file: std::path::PathBuf,
    started: usize,
}

impl Cluster {
    fn new(items: u32, seconds: &str, more: &str) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        let zookeeper = ZooKeeper::start();
        let journal = Journal::new(folder.path());
        let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, items, seconds, more);
        Cluster { folder, zookeeper, journal, file, started: 0 }
    }

    fn log(&mut self) -> std::path::PathBuf {
        self.started += 1;
        self.folder.path().join(format!("log-{}", self.started))
    }

    fn java(&mut self) -> Process {
        let log = self.log();
        let process = java(&["agent", self.file.to_str().expect("UTF-8")], &log);
        eventually("Java has started", START, || process.log().contains("started 1").then_some(()));
        process
    }

    fn rust(&mut self) -> Process {
        let log = self.log();
        let process = agent(&self.file, &log);
        eventually("the agent has joined", START, || process.log().contains("INFO joined").then_some(()));
        process
    }

    fn operations(&self, operation: &[&str]) {
        let address = self.zookeeper.address();
        let mut arguments = vec!["operate", &address, "tests"];
        arguments.extend(operation);
        java_output(&arguments);
    }

    /// Waits until each of these processes has run something that began after now.
    fn all_run(&self, processes: &[&Process]) {
        let now = wall_clock_millis();
        eventually("every process runs items", Duration::from_secs(30), || {
            let runs = self.journal.runs();
            processes.iter().all(|p| runs.iter().any(|r| r.start > now && r.pid == p.pid())).then_some(())
        });
    }
}

/// What each second between two moments saw of each item.
fn by_item_and_second(runs: &[Run], from: i64, to: i64) -> BTreeMap<(u32, i64), Vec<Run>> {
    let mut found: BTreeMap<(u32, i64), Vec<Run>> = BTreeMap::new();
    for run in runs.iter().filter(|r| r.due >= from && r.due < to) {
        found.entry((run.item, run.due / 1_000)).or_default().push(run.clone());
    }
    found
}

/// Every item once a second in a quiet time. An item that Java owned may be dropped by Java's own rule of one millisecond:
/// such gaps are counted and given back. Nothing else may be missing, and nothing doubled.
fn judge(runs: &[Run], items: u32, java: &[u32], from: i64, to: i64) -> usize {
    let (from, to) = ((from / 1_000 + 1) * 1_000, to / 1_000 * 1_000);
    let found = by_item_and_second(runs, from, to);
    let mut dropped = 0;
    for item in 0..items {
        for second in from / 1_000..to / 1_000 {
            let here = found.get(&(item, second)).cloned().unwrap_or_default();
            let scheduled: Vec<&Run> = here.iter().filter(|r| r.source == "schedule" || r.source == "java").collect();
            // A catch-up of Java's comes in the same second as its next run.
            let java_twice = scheduled.len() == 2 && scheduled.iter().all(|r| java.contains(&r.pid));
            assert!(scheduled.len() <= 1 || java_twice, "item {item} ran twice for second {second}: {here:?}");
            if scheduled.is_empty() {
                let before = runs.iter().rfind(|r| r.item == item && r.start < second * 1_000);
                let owner = before.map(|r| r.pid).unwrap_or_default();
                assert!(
                    java.contains(&owner),
                    "item {item} was not run for second {second}, owned by {owner}: {:?}",
                    runs.iter().filter(|r| r.item == item && (r.due / 1_000 - second).abs() < 4).collect::<Vec<_>>()
                );
                dropped += 1;
            }
        }
    }
    dropped
}

/// No two runs of one item at the same time, but where Java's own session was over.
fn assert_no_overlap(runs: &[Run], killed: &[u32]) {
    let mut last: BTreeMap<u32, Run> = BTreeMap::new();
    for run in runs {
        if let Some(before) = last.insert(run.item, run.clone()) {
            let over = before.end.is_some_and(|end| end <= run.start + 5) || killed.contains(&before.pid);
            assert!(over, "item {} ran twice at once: {before:?} {run:?}", run.item);
        }
    }
}

#[test]
fn two_rust_and_one_java_instance_share_a_job_through_kills_and_restarts() {
    let mut cluster = Cluster::new(6, "0", "      cron: '* * * * * ?'\n      misfire: true\n      overwrite: false\n");
    let session = i64::try_from(SESSION_MILLIS).expect("small");
    // Java is the first and leads; a Rust instance leads after Java is killed.
    let mut first_java = cluster.java();
    let mut one = cluster.rust();
    let two = cluster.rust();
    cluster.all_run(&[&first_java, &one, &two]);
    let mut quiet = Vec::new();
    let settle = |ms: i64| wall_clock_millis() + ms;

    let from = settle(1_500);
    pause(Duration::from_secs(9));
    quiet.push((from, wall_clock_millis() - 500));

    one.kill();
    let from = settle(session + 2_500);
    cluster.all_run(&[&first_java, &two]);
    pause(Duration::from_secs(14));
    quiet.push((from, wall_clock_millis() - 500));

    first_java.kill();
    let from = settle(session + 2_500);
    pause(Duration::from_secs(14));
    quiet.push((from, wall_clock_millis() - 500));
    eventually("a Rust instance leads", START, || two.log().contains("elected leader").then_some(()));

    let second_java = cluster.java();
    cluster.all_run(&[&second_java, &two]);
    let from = settle(1_500);
    pause(Duration::from_secs(10));
    quiet.push((from, wall_clock_millis() - 500));

    let runs = cluster.journal.runs();
    let java = [first_java.pid(), second_java.pid()];
    assert_no_overlap(&runs, &[one.pid(), first_java.pid()]);
    let dropped: usize = quiet.iter().map(|(from, to)| judge(&runs, 6, &java, *from, *to)).sum();
    let by_java = runs.iter().filter(|r| java.contains(&r.pid)).count();
    assert!(dropped <= by_java / 5 + 2, "Java dropped {dropped} of its {by_java} runs");
    // Where no Java instance was there, nothing may be missing for it either.
    let (from, to) = quiet[2];
    assert_eq!(judge(&runs, 6, &[], from, to), 0);
}

#[test]
fn a_dead_instance_s_run_is_taken_over_from_java_to_rust_and_from_rust_to_java() {
    let more = "      cron: 0/20 * * * * ?\n      failover: true\n      monitorExecution: true\n";
    for java_dies in [true, false] {
        let mut cluster = Cluster::new(2, "7", more);
        let (mut java, mut rust) = (cluster.java(), cluster.rust());
        let runs = eventually("both run an item", Duration::from_secs(90), || {
            let runs = cluster.journal.runs();
            let running = |p: &Process| runs.iter().find(|r| r.pid == p.pid() && r.end.is_none()).cloned();
            let young = |r: &Run| wall_clock_millis() - r.start < 3_000;
            running(&java).zip(running(&rust)).filter(|(a, b)| young(a) && young(b))
        });
        let (victim, survivor, lost) = if java_dies { (&mut java, &rust, runs.0) } else { (&mut rust, &java, runs.1) };
        let killed = wall_clock_millis();
        victim.kill();
        let victim = victim.pid();
        let again = eventually("the survivor takes the item", Duration::from_secs(30), || {
            let runs = cluster.journal.runs();
            runs.iter().find(|r| r.item == lost.item && r.pid == survivor.pid() && r.start > killed).cloned()
        });
        if java_dies {
            assert_eq!(again.source, "failover", "{again:?}");
            let bound = killed + i64::try_from(SESSION_MILLIS).expect("small") + 1_000;
            // The survivor has its own run of seven seconds in the meantime, and takes the other item all the same.
            assert!(again.start <= bound, "taken {} ms after the kill", again.start - killed);
        }
        let runs = cluster.journal.runs();
        let begun = runs.iter().filter(|r| r.item == lost.item && r.start >= killed && r.start < again.start + 3_000);
        assert_eq!(begun.count(), 1, "taken over once: {runs:?}");
        assert!(runs.iter().any(|r| r.pid == victim));
    }
}

#[test]
fn java_s_operations_move_a_rust_instance() {
    let mut cluster = Cluster::new(2, "0", "      cron: 0 0 0 1 1 ?\n");
    let mut rust = cluster.rust();
    let runs_after =
        |cluster: &Cluster, from: i64| -> usize { cluster.journal.runs().iter().filter(|r| r.start >= from).count() };
    let has_log = |rust: &Process, text: &str, fields: &str| {
        eventually(text, Duration::from_secs(30), || (logged(&rust.log(), text, fields) > 0).then_some(()));
    };
    has_log(&rust, "owns items", "items=[0, 1]");

    let from = wall_clock_millis();
    cluster.operations(&["trigger", "shared-job"]);
    eventually("the triggered run", Duration::from_secs(10), || (runs_after(&cluster, from) == 2).then_some(()));
    assert!(cluster.journal.runs().iter().all(|r| r.source == "trigger"));

    cluster.operations(&["cron", "shared-job", "* * * * * ?"]);
    has_log(&rust, "rescheduled", "cron=\"* * * * * ?\"");
    let from = wall_clock_millis();
    eventually("runs each second", Duration::from_secs(10), || (runs_after(&cluster, from) >= 6).then_some(()));

    cluster.operations(&["items", "shared-job", "3"]);
    has_log(&rust, "owns items", "items=[0-2]");
    cluster.operations(&["items", "shared-job", "1"]);
    has_log(&rust, "owns items", "items=[0]");

    cluster.operations(&["disable", "shared-job"]);
    has_log(&rust, "resigned as leader", "job=");
    pause(Duration::from_millis(1_500));
    let from = wall_clock_millis();
    pause(Duration::from_millis(2_500));
    assert_eq!(runs_after(&cluster, from), 0, "a disabled job rests");

    cluster.operations(&["enable", "shared-job"]);
    let from = wall_clock_millis();
    eventually("it runs again", Duration::from_secs(10), || (runs_after(&cluster, from) >= 2).then_some(()));

    cluster.operations(&["shutdown", "shared-job"]);
    has_log(&rust, "shut down by an operator", "job=");
    pause(Duration::from_millis(1_500));
    let from = wall_clock_millis();
    pause(Duration::from_millis(2_000));
    assert_eq!(runs_after(&cluster, from), 0);
    assert!(rust.is_running(), "the process lives on");
    assert!(Path::new(&cluster.file).exists());
}
