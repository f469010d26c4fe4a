//! Processes that are killed, and processes that stand still.

use std::collections::BTreeMap;
use std::time::Duration;

use elasticjob_tests::{Journal, Process, Run, ZooKeeper, agent, eventually, logged, pause, wall_clock_millis};

use crate::{SESSION_MILLIS, job_file};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(folder: &std::path::Path, file: &std::path::Path, number: usize) -> Process {
    let process = agent(file, &folder.join(format!("log-{number}")));
    eventually("the agent has joined", PATIENCE, || process.log().contains("INFO joined").then_some(()));
    process
}

fn session() -> i64 {
    i64::try_from(SESSION_MILLIS).expect("small")
}

#[test]
fn what_a_killed_instance_was_running_is_taken_over_once_and_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let zookeeper = ZooKeeper::start();
    let journal = Journal::new(folder.path());
    let more = "      cron: 0/15 * * * * ?\n      failover: true\n";
    let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, 3, "9", more);
    let mut agents: Vec<Process> = (0..3).map(|n| start(folder.path(), &file, n)).collect();
    let running = eventually("all three run an item", PATIENCE, || {
        let runs: Vec<Run> = journal.runs().into_iter().filter(|r| r.end.is_none()).collect();
        let each = agents.iter().all(|a| runs.iter().any(|r| r.pid == a.pid()));
        let young = runs.iter().all(|r| wall_clock_millis() - r.start < 3_000);
        (each && young).then_some(runs)
    });
    let victim = agents[1].pid();
    let lost = running.iter().find(|r| r.pid == victim).expect("it runs an item").clone();
    agents[1].kill();
    let killed = wall_clock_millis();
    let again = eventually("a survivor takes the item", PATIENCE, || {
        journal.runs().into_iter().find(|r| r.item == lost.item && r.start > killed)
    });
    assert!(again.start <= killed + session() + 1_000, "taken {} ms after the kill", again.start - killed);
    assert_eq!((again.source.as_str(), again.due), ("failover", lost.due), "it stands for the same due time");
    eventually("the next firing", PATIENCE, || {
        journal.runs().iter().any(|r| r.due > lost.due && r.source == "schedule").then_some(())
    });
    let runs = journal.runs();
    let taken: Vec<&Run> = runs.iter().filter(|r| r.source == "failover").collect();
    assert_eq!(taken.len(), 1, "taken over once: {taken:?}");
}

#[test]
fn a_process_that_stood_still_for_three_sessions_starts_nothing_that_was_lost() {
    for failover in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let zookeeper = ZooKeeper::start();
        let journal = Journal::new(folder.path());
        let more = format!("      cron: '* * * * * ?'\n      failover: {failover}\n");
        let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, 4, "0", &more);
        let (one, two) = (start(folder.path(), &file, 1), start(folder.path(), &file, 2));
        eventually("both run", PATIENCE, || {
            let runs = journal.runs();
            [&one, &two].iter().all(|p| runs.iter().any(|r| r.pid == p.pid())).then_some(())
        });
        one.signal("STOP");
        let stopped = wall_clock_millis();
        pause(Duration::from_millis(SESSION_MILLIS * 3));
        one.signal("CONT");
        let resumed = wall_clock_millis();
        eventually("it takes part again", PATIENCE, || {
            journal.runs().iter().any(|r| r.pid == one.pid() && r.start > resumed + 500).then_some(())
        });
        pause(Duration::from_secs(3));
        let runs = journal.runs();
        let mut begun: BTreeMap<(u32, i64), Vec<&Run>> = BTreeMap::new();
        for run in runs.iter().filter(|r| r.source == "schedule") {
            begun.entry((run.item, run.due)).or_default().push(run);
        }
        for ((item, due), runs) in &begun {
            assert_eq!(runs.len(), 1, "item {item} due {due} was begun once only: {runs:?}");
        }
        let late =
            runs.iter().find(|r| r.pid == one.pid() && r.start > resumed && r.due < resumed - 1_500 && r.due > stopped);
        assert_eq!(late, None, "nothing from the time of the standstill is started");
        // The other one had all items once the session was over.
        for item in 0..4 {
            let from = stopped + session() + 2_500;
            let seconds = (from / 1_000 + 1)..(resumed / 1_000);
            let have = seconds.clone().filter(|s| begun.contains_key(&(item, s * 1_000))).count();
            assert_eq!(have, seconds.count(), "item {item} ran each second on the other one");
        }
    }
}

/// Its items were begun together, and wait for their turn in a pool of one.
#[test]
fn items_whose_turn_comes_behind_the_end_of_the_session_are_not_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let zookeeper = ZooKeeper::start();
    let journal = Journal::new(folder.path());
    let more = "      failover: true\n      jobExecutorThreadPoolSizeProviderType: SINGLE_THREAD\n";
    let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, 4, "1", more);
    let stopped = start(folder.path(), &file, 1);
    eventually("it has all items", PATIENCE, || {
        (logged(&stopped.log(), "owns items", "items=[0-3]") > 0).then_some(())
    });
    let registry = format!("zookeeper://{}/tests", zookeeper.address());
    let triggered = elasticjob_tests::output(&["--registry", &registry, "job", "trigger", "shared-job"], folder.path());
    assert!(triggered.status.success(), "{}", String::from_utf8_lossy(&triggered.stderr));
    eventually("the first item runs", PATIENCE, || (!journal.runs().is_empty()).then_some(()));
    stopped.signal("STOP");
    let started = journal.runs().len();
    assert!(started < 4, "{:?}", journal.runs());
    let survivor = start(folder.path(), &file, 2);
    eventually("the survivor runs all items in its place", PATIENCE, || {
        let mut items: Vec<u32> = journal
            .runs()
            .iter()
            .filter(|run| run.pid == survivor.pid() && run.end.is_some())
            .map(|run| run.item)
            .collect();
        items.sort_unstable();
        (items == [0, 1, 2, 3]).then_some(())
    });
    stopped.signal("CONT");
    eventually("it takes part again", PATIENCE, || (stopped.log().matches("INFO joined").count() == 2).then_some(()));
    // A quiet time: what waits for its turn would start in it.
    pause(Duration::from_secs(3));
    let runs = journal.runs();
    let of_stopped = runs.iter().filter(|run| run.pid == stopped.pid()).count();
    assert_eq!(of_stopped, started, "{runs:?}\n{}", stopped.log());
    assert_eq!(runs.len(), started + 4, "{runs:?}");
}

#[test]
fn the_embedded_registry_survives_kill_9_at_any_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(folder.path());
    let text = format!(
        "elasticjob:\n  jobs:\n    work:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 3\n      props:\n        script.command.line: {}\n",
        journal.command("0")
    );
    let file = folder.path().join("job.yaml");
    std::fs::write(&file, text).expect("a file");
    for life in 0..6_u64 {
        let mut command = elasticjob_tests::command();
        command.args(["agent", "-v"]).arg(&file).current_dir(folder.path());
        let from = wall_clock_millis();
        let mut process = Process::start(command, &folder.path().join(format!("log-{life}")));
        eventually("all items run", PATIENCE, || {
            let runs = journal.runs();
            (0..3).all(|i| runs.iter().any(|r| r.item == i && r.start > from)).then_some(())
        });
        // Killed at another point of the second in each life, in the middle of a begin too.
        let millis = u64::try_from(wall_clock_millis()).expect("after 1970") % 1_000;
        pause(Duration::from_millis((1_000 - millis + life * 4) % 1_000));
        process.kill();
    }
    let mut begun: BTreeMap<(u32, i64), usize> = BTreeMap::new();
    journal.runs().iter().for_each(|r| *begun.entry((r.item, r.due)).or_default() += 1);
    assert!(begun.values().all(|count| *count == 1), "each due time at most once, over all lives: {begun:?}");
}
