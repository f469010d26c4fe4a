//! Which configuration counts: that of the file, or the stored one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use elasticjob_tests::{Process, ZooKeeper, agent, command, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    folder: tempfile::TempDir,
    zookeeper: ZooKeeper,
}

impl Case {
    fn new() -> Case {
        Case { folder: tempfile::tempdir().expect("a folder"), zookeeper: ZooKeeper::start() }
    }

    /// A file with one job of that cron expression.
    fn file(&self, name: &str, cron: &str, more: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let text = format!(
            "elasticjob:
  regCenter: {{serverLists: '{}', namespace: overwrite, sessionTimeoutMilliseconds: 4000}}
  jobs:
    report:
      elasticJobType: SCRIPT
      cron: '{cron} * * * * ?'
      shardingTotalCount: 2
{more}      props: {{script.command.line: 'true'}}
",
            self.zookeeper.address()
        );
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn agent(&self, file: &Path, log: &str) -> Process {
        let process = agent(file, &self.folder.path().join(log));
        eventually("it has joined", PATIENCE, || process.log().contains("INFO joined").then_some(()));
        process
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = command();
        command.args(["--registry", &format!("zookeeper://{}/overwrite", self.zookeeper.address())]).args(arguments);
        let output = command.output().expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn has_config(&self, line: &str) {
        eventually(line, PATIENCE, || self.run(&["job", "config", "report"]).contains(line).then_some(()));
    }
}

fn stop(mut process: Process) {
    process.signal("TERM");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
}

#[test]
fn what_an_operator_disabled_stays_disabled_whatever_overwrite_says() {
    let case = Case::new();
    for mode in ["true", "changed", "false"] {
        let file = case.file("file.yaml", "0/1", &format!("      overwrite: {mode}\n"));
        let first = case.agent(&file, "first");
        case.run(&["job", "enable", "report"]);
        eventually("it owns the items", PATIENCE, || case.run(&["job", "list"]).contains("OK").then_some(()));
        case.run(&["job", "disable", "report"]);
        stop(first);
        let again = case.agent(&file, "again");
        let log = again.log();
        assert!(log.contains("the job is disabled on all servers"), "overwrite: {mode}: {log}");
        case.has_config("disabled: true");
        assert!(case.run(&["job", "list"]).contains("DISABLED"), "overwrite: {mode}");
        // Maintenance of its server does not enable it either.
        let servers = case.run(&["server", "list"]);
        let server = servers.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a server");
        case.run(&["server", "disable", server]);
        case.run(&["server", "enable", server]);
        case.has_config("disabled: true");
        assert!(case.run(&["job", "list"]).contains("DISABLED"), "overwrite: {mode}");
        // Nor does a file that says nothing of it.
        let edited = case.file("edited.yaml", "0/2", &format!("      overwrite: {mode}\n"));
        case.run(&["job", "apply", "--yes", edited.to_str().expect("text")]);
        case.has_config("cron: 0/2 * * * * ?");
        case.has_config("disabled: true");
        assert!(!again.log().contains("started items"), "overwrite: {mode}: {}", again.log());
        stop(again);
    }
}

/// A stored configuration that was saved and edited, or restored.
#[test]
fn a_stored_configuration_that_is_applied_disables_and_enables_the_whole_job() {
    let case = Case::new();
    let file = case.file("file.yaml", "0/1", "");
    let agent = case.agent(&file, "agent");
    eventually("it runs", PATIENCE, || agent.log().contains("owns items").then_some(()));
    let enabled = case.run(&["job", "config", "report"]);
    let apply = |text: &str| {
        let path = case.folder.path().join("stored.yaml");
        std::fs::write(&path, text).expect("a file");
        case.run(&["job", "apply", path.to_str().expect("text"), "--yes"]);
    };
    apply(&enabled.replace("disabled: false", "disabled: true"));
    assert!(case.run(&["job", "list"]).contains("DISABLED"));
    eventually("the agent knows", PATIENCE, || agent.log().contains("the job was disabled").then_some(()));
    case.has_config("disabled: true");
    apply(&enabled);
    eventually("it is enabled", PATIENCE, || case.run(&["job", "list"]).contains("OK").then_some(()));
    case.has_config("disabled: false");
    stop(agent);
}

#[test]
fn an_edited_file_says_what_does_not_count_and_how_to_make_it_count() {
    let case = Case::new();
    let file = case.file("file.yaml", "0/10", "");
    let process = case.agent(&file, "log");
    assert!(!process.log().contains("differs from the stored one"), "{}", process.log());
    case.file("file.yaml", "0/20", "      jobParameter: new\n");
    process.signal("HUP");
    let differs = "the local configuration differs from the stored one, which stays in force: \
                   `cron` is `0/20 * * * * ?` locally and `0/10 * * * * ?` in the registry; `jobParameter` is `new` locally and not set in \
                   the registry; to store the local one, run `elasticjob job apply FILE`, or start with `overwrite: changed` or \
                   `overwrite: true`";
    eventually("the difference is logged", PATIENCE, || process.log().contains(differs).then_some(()));
    eventually("`job show` has it", PATIENCE, || {
        let shown = case.run(&["job", "show", "report"]);
        (shown.contains("STARTED WITH") && shown.contains("0/20 * * * * ?")).then_some(())
    });
    let explained = case.run(&["job", "explain", "report"]);
    assert!(explained.contains("was started with `cron` `0/20 * * * * ?` instead of `0/10 * * * * ?`"), "{explained}");
    // Nothing was edited since: it is said again all the same.
    process.signal("HUP");
    eventually("said again", PATIENCE, || (process.log().matches(differs).count() == 2).then_some(()));
    // Another agent with another file for the same job: both say so.
    let other = case.agent(&case.file("other.yaml", "0/30", ""), "other");
    eventually("the other one too", PATIENCE, || {
        other.log().contains("`cron` is `0/30 * * * * ?` locally and `0/10 * * * * ?` in the registry").then_some(())
    });
    // What is applied counts for both, and the first agreement is logged.
    let path = file.to_str().expect("UTF-8");
    case.run(&["job", "apply", path, "--yes"]);
    eventually("it counts", PATIENCE, || {
        process.log().contains("the local configuration matches the stored one again").then_some(())
    });
    eventually("the other one says what counts now", PATIENCE, || {
        other.log().contains("`cron` is `0/30 * * * * ?` locally and `0/20 * * * * ?` in the registry").then_some(())
    });
    stop(other);
    stop(process);
    let shown = case.run(&["job", "show", "report"]);
    assert!(!shown.contains("STARTED WITH"), "{shown}");
}

#[test]
fn with_changed_the_file_wins_for_what_changed_in_it_and_the_registry_for_the_rest() {
    let case = Case::new();
    let file = |cron: &str, more: &str| case.file("file.yaml", cron, &format!("      overwrite: changed\n{more}"));
    stop(case.agent(&file("0/10", "      jobParameter: one\n"), "log1"));
    // An operator changes one key, the file another one.
    let edited = case.file("edited.yaml", "0/20", "      jobParameter: one\n");
    case.run(&["job", "apply", edited.to_str().expect("UTF-8"), "--yes"]);
    let process = case.agent(&file("0/10", "      jobParameter: two\n"), "log2");
    case.has_config("cron: 0/20 * * * * ?");
    case.has_config("jobParameter: two");
    let log = process.log();
    assert!(log.contains("changed the stored configuration: `jobParameter` from `one` to `two`"), "{log}");
    assert!(log.contains("`cron` is `0/10 * * * * ?` locally and `0/20 * * * * ?` in the registry"), "{log}");
    // At SIGHUP too.
    file("0/30", "      jobParameter: two\n");
    process.signal("HUP");
    case.has_config("cron: 0/30 * * * * ?");
    stop(process);
    // A restart with the same file changes nothing.
    case.run(&["job", "apply", edited.to_str().expect("UTF-8"), "--yes"]);
    let process = case.agent(&file("0/30", "      jobParameter: two\n"), "log3");
    case.has_config("cron: 0/20 * * * * ?");
    assert!(!process.log().contains("changed the stored configuration"), "{}", process.log());
    stop(process);
}

#[test]
fn a_file_that_always_counts_does_so_at_a_hang_up_although_it_was_not_edited() {
    let case = Case::new();
    let file = case.file("file.yaml", "0/3", "      overwrite: true\n");
    let process = case.agent(&file, "log");
    let other = case.file("other.yaml", "0/7", "");
    case.run(&["job", "apply", other.to_str().expect("UTF-8"), "--yes"]);
    case.has_config("cron: 0/7 * * * * ?");
    process.signal("HUP");
    case.has_config("cron: 0/3 * * * * ?");
    let log = process.log();
    assert!(log.contains("the stored configuration differs and `overwrite` is true"), "{log}");
}

/// No instance would accept these, so that the job would stop at its next start.
#[test]
fn what_no_instance_accepts_is_not_applied() {
    let case = Case::new();
    let file = case.file("file.yaml", "0/1", "");
    let _agent = case.agent(&file, "log");
    let stored = case.run(&["job", "config", "report"]);
    let long = "z".repeat(130_000);
    for (change, expected) in [
        (
            stored
                .replace("props: {", "props: {elasticjob.retry.cuont: 3, ")
                .replace("props:\n", "props:\n  elasticjob.retry.cuont: 3\n"),
            "unknown property `elasticjob.retry.cuont`: did you mean",
        ),
        (stored.replace("jobParameter: ''", &format!("jobParameter: {long}")), "can have at most 120000 bytes"),
    ] {
        let path = case.folder.path().join("changed.yaml");
        std::fs::write(&path, change).expect("a file");
        let url = format!("zookeeper://{}/overwrite", case.zookeeper.address());
        let mut command = command();
        command.args(["--registry", &url, "job", "apply", "--yes"]).arg(&path);
        let refused = command.output().expect("runs");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
        assert_eq!(case.run(&["job", "config", "report"]), stored);
    }
}
