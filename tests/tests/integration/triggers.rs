//! `job trigger`: each enabled item once, whatever dies, leaves or is disabled.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use elasticjob_tests::{Journal, Process, ZooKeeper, agent, command, eventually, logged};

const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    folder: tempfile::TempDir,
    zookeeper: ZooKeeper,
    journal: Journal,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path());
        Case { folder, zookeeper: ZooKeeper::start(), journal }
    }

    fn agent(&self, name: &str, seconds: &str, more: &str) -> Process {
        let text = format!(
            "elasticjob:
  commands: registry
  regCenter: {{serverLists: '{}', namespace: triggers, sessionTimeoutMilliseconds: 4000}}
  jobs:
    once:
      elasticJobType: SCRIPT
      shardingTotalCount: 4
{more}      props: {{script.command.line: '{}'}}
",
            self.zookeeper.address(),
            self.journal.command(seconds)
        );
        let file = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text).expect("a file");
        agent(&file, &self.folder.path().join(name))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.args(["--registry", &format!("zookeeper://{}/triggers", self.zookeeper.address())]).args(arguments);
        command.output().expect("runs")
    }

    fn run_in_background(&self, arguments: &[&str]) -> std::process::Child {
        let mut command = command();
        command.args(["--registry", &format!("zookeeper://{}/triggers", self.zookeeper.address())]).args(arguments);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().expect("starts")
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn has_items(&self, process: &Process, items: &str) {
        eventually(&format!("it has {items}"), PATIENCE, || {
            let log = process.log();
            log.lines().rfind(|line| line.contains("owns items")).filter(|line| line.contains(items)).map(drop)
        });
    }

    /// How often each of the four items ran.
    fn runs(&self) -> [usize; 4] {
        let runs = self.journal.runs();
        [0, 1, 2, 3].map(|item| runs.iter().filter(|run| run.item == item).count())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wait_prints_the_result_of_each_item_and_disabled_ones_are_named() {
    let case = Case::new();
    let first = case.agent("first", "1", "");
    let second = case.agent("second", "1", "");
    case.has_items(&first, "items=[");
    case.has_items(&second, "items=[");
    let printed = case.done(&["job", "trigger", "once", "--wait", "--output", "json"]);
    for item in 0..4 {
        assert!(printed.contains(&format!(r#"{{"jobName":"once","item":{item},"result":"ok"}}"#)), "{printed}");
    }
    assert_eq!(case.runs(), [1; 4]);
    case.done(&["shard", "disable", "once", "1"]);
    let output = case.run(&["job", "trigger", "once", "--wait"]);
    assert!(text(&output.stderr).contains("job `once`: item 1 does not run: disabled"), "{}", text(&output.stderr));
    assert_eq!(case.runs(), [2, 1, 2, 2]);
    case.done(&["shard", "enable", "once", "1"]);
    // A quiet time: a trigger that was kept would run in it.
    elasticjob_tests::pause(Duration::from_secs(2));
    assert_eq!(case.runs(), [2, 1, 2, 2], "no trigger was kept for the disabled item");
    // A trigger that waits when the job is disabled does not run when it is enabled.
    case.done(&["job", "trigger", "once"]);
    let waiting = case.run_in_background(&["job", "trigger", "once", "--wait"]);
    eventually("both wait", PATIENCE, || {
        case.done(&["job", "explain", "once"]).contains("run again after their current run").then_some(())
    });
    case.done(&["job", "disable", "once"]);
    let waited = waiting.wait_with_output().expect("it ends");
    assert_eq!(waited.status.code(), Some(1));
    assert!(text(&waited.stdout).contains("not run: the job is disabled"), "{}", text(&waited.stdout));
    case.done(&["job", "enable", "once"]);
    // A quiet time: a trigger that was kept would run in it.
    elasticjob_tests::pause(Duration::from_secs(2));
    assert_eq!(case.runs(), [3, 2, 3, 3], "no trigger was kept for the disabled job");
    case.done(&["job", "disable", "once"]);
    let refused = case.run(&["job", "trigger", "once"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("job `once`, all of its servers, or all of its items are disabled"),
        "{}",
        text(&refused.stderr)
    );
    let explained = case.done(&["job", "explain", "once"]);
    assert!(explained.contains("triggers") && explained.contains("none pending"), "{explained}");
}

#[test]
fn a_failing_item_is_exit_code_1_with_its_result() {
    let case = Case::new();
    let process = case.agent("failing", "x", ""); // `sleep x` fails, and the record with it
    case.has_items(&process, "[0-3]");
    let text_of = std::fs::read_to_string(case.folder.path().join("failing.yaml")).expect("a file");
    let failing = text_of.replace(&case.journal.command("x"), "sh -c \"exit 3\"");
    std::fs::write(case.folder.path().join("failing.yaml"), failing.replace("4\n", "4\n      overwrite: true\n"))
        .expect("a file");
    process.signal("HUP");
    eventually("the new command counts", PATIENCE, || {
        case.done(&["job", "config", "once"]).contains("exit 3").then_some(())
    });
    eventually("it has items again", PATIENCE, || {
        (logged(&process.log(), "owns items", "items=[0-3]") == 2).then_some(())
    });
    let output = case.run(&["job", "trigger", "once", "--wait"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("4 items failed or without a known result"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).matches("failed").count(), 4, "{}", text(&output.stdout));
}

#[test]
fn a_trigger_while_a_killed_instance_is_still_listed_runs_all_items_once() {
    let case = Case::new();
    let mut killed = case.agent("killed", "0", "");
    case.has_items(&killed, "[0-3]");
    let survivor = case.agent("survivor", "0", "");
    case.has_items(&survivor, "items=[");
    case.has_items(&killed, "items=[");
    eventually("they share the items", PATIENCE, || {
        let shared = case.done(&["shard", "list", "once"]);
        let pid = |process: &Process| shared.contains(&format!("@-@{}", process.pid()));
        (pid(&killed) && pid(&survivor)).then_some(())
    });
    killed.kill();
    case.done(&["job", "trigger", "once"]);
    eventually("all items run", PATIENCE, || (case.runs().iter().sum::<usize>() >= 4).then_some(()));
    // A quiet time: a trigger that was kept would run in it.
    elasticjob_tests::pause(Duration::from_secs(2));
    assert_eq!(case.runs(), [1; 4]);
    let url = format!("zookeeper://{}/triggers", case.zookeeper.address());
    assert!(trigger_nodes(&url, case.folder.path()).is_empty(), "no trigger stays");
}

#[test]
fn a_trigger_right_after_a_stop_signal_loses_no_item() {
    let case = Case::new();
    let stopping = case.agent("stopping", "3@0", "      failover: true\n");
    case.has_items(&stopping, "[0-3]");
    case.done(&["job", "trigger", "once"]);
    eventually("item 0 runs", PATIENCE, || (case.runs() == [1; 4]).then_some(()));
    let other = case.agent("other", "0", "      failover: true\n");
    eventually("it has joined", PATIENCE, || other.log().contains("INFO joined").then_some(()));
    stopping.signal("TERM");
    let output = case.run(&["job", "trigger", "once", "--wait"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(case.runs(), [2; 4], "{:?}", case.journal.runs());
}

/// The results go with the holder of an embedded registry: it waits for those who read them.
#[test]
fn the_results_are_known_when_the_agent_of_an_embedded_registry_stops_with_the_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(folder.path());
    let job = format!(
        "elasticjob:\n  jobs:\n    once:\n      elasticJobType: SCRIPT\n      shardingTotalCount: 2\n      props: {{script.command.line: '{}'}}\n",
        journal.command("2")
    );
    let file = folder.path().join("jobs.yaml");
    std::fs::write(&file, job).expect("a file");
    let mut process = agent(&file, &folder.path().join("log"));
    eventually("it has its items", PATIENCE, || {
        (logged(&process.log(), "owns items", "items=[0, 1]") > 0).then_some(())
    });
    let mut waiting = command();
    waiting.args(["job", "trigger", "once", "--wait"]).current_dir(folder.path());
    let waiting = waiting.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let waiting = waiting.expect("starts");
    eventually("both run", PATIENCE, || (journal.runs().len() == 2).then_some(()));
    process.signal("TERM");
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{}{}", text(&waited.stdout), text(&waited.stderr));
    assert_eq!(process.wait(PATIENCE).code(), Some(0));
}

#[test]
fn the_results_are_known_although_the_link_breaks_while_they_are_awaited() {
    let mut case = Case::new();
    let process = case.agent("waits", "3", "");
    case.has_items(&process, "[0-3]");
    let waiting = case.run_in_background(&["job", "trigger", "once", "--wait"]);
    eventually("all run", PATIENCE, || (case.runs() == [1; 4]).then_some(()));
    case.zookeeper.restart();
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{}", text(&waited.stdout));
}

#[test]
fn the_result_of_a_run_that_is_taken_over_is_that_of_its_taker() {
    let case = Case::new();
    let mut killed = case.agent("killed", "3", "      failover: true\n");
    case.has_items(&killed, "[0-3]");
    let waiting = case.run_in_background(&["job", "trigger", "once", "--wait"]);
    eventually("all run", PATIENCE, || (case.runs() == [1; 4]).then_some(()));
    let taker = case.agent("taker", "0", "      failover: true\n");
    eventually("the other one has joined", PATIENCE, || taker.log().contains("INFO joined").then_some(()));
    killed.kill();
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{}\n{}", text(&waited.stdout), taker.log());
    assert_eq!(text(&waited.stdout).matches(" ok").count(), 4, "{}", text(&waited.stdout));
    assert_eq!(case.runs(), [2; 4], "{:?}", case.journal.runs());
}

#[test]
fn a_wait_that_takes_long_says_for_what_and_ends_at_its_limit() {
    let case = Case::new();
    let process = case.agent("stuck", "0", "");
    case.has_items(&process, "[0-3]");
    process.signal("STOP");
    let output = case.run(&["job", "trigger", "once", "--wait", "--timeout", "7"]);
    process.signal("CONT");
    assert_eq!(output.status.code(), Some(1));
    let said =
        "waiting for job `once`, items [0-3]: not started by this trigger yet; `elasticjob job explain once` shows why";
    assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    let results = text(&output.stdout);
    let result = "unknown: the wait ended before the result arrived; the item is not started by this trigger yet";
    assert_eq!(results.matches(result).count(), 4, "{results}");
    eventually("the items run all the same", PATIENCE, || (case.runs() == [1; 4]).then_some(()));
}

/// What a dump shows below `trigger`.
fn trigger_nodes(url: &str, folder: &Path) -> Vec<String> {
    let dump = elasticjob_tests::output(&["--registry", url, "job", "dump", "once"], folder);
    text(&dump.stdout).lines().filter(|line| line.contains("/trigger/")).map(str::to_owned).collect()
}
