//! Run logs: what the scripts of runs print, from the event trace in each database.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use elasticjob_tests::{Database, Process, command, eventually, output};
use serde_json::Value;

use crate::ways::start_agent;

const PATIENCE: Duration = Duration::from_secs(60);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines that `job logs` prints, as objects, and what it says beside them.
fn lines(folder: &Path, job: &str, more: &[&str]) -> (Vec<Value>, String) {
    let mut arguments = vec!["--output", "json", "job", "logs", job];
    arguments.extend(more);
    let found = output(&arguments, folder);
    let objects = text(&found.stdout).lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    (objects, text(&found.stderr))
}

fn texts(lines: &[Value]) -> Vec<String> {
    lines.iter().map(|line| format!("{} {}", line["source"], line["text"]).replace('"', "")).collect()
}

fn sqlite(folder: &Path) -> String {
    format!("  tracing:\n    dataSource: {{ url: 'sqlite://{}' }}\n", folder.join("trace.db").display())
}

fn job(name: &str, command: &str, more: &str) -> String {
    format!(
        "    {name}:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 2\n      props:\n        script.command.line: \"{command}\"\n{more}"
    )
}

/// In each database, three jobs: all runs of one are recorded, none of another, and of the third, by default, those that fail.
#[test]
fn failed_runs_are_recorded_and_others_where_the_job_asks_for_it_in_each_database() {
    let databases = [Database::postgres(), Database::mariadb()];
    let files = tempfile::tempdir().expect("a folder");
    let mut sources = vec![sqlite(files.path())];
    sources.extend(databases.iter().map(Database::tracing));
    for tracing in sources {
        let folder = tempfile::tempdir().expect("a folder");
        let prints = "sh -c 'echo out Zürich 你好; echo err >&2; exit $ELASTICJOB_SHARDING_ITEM'";
        let jobs = [
            job("all", prints, "        elasticjob.run.log: all\n"),
            job("none", prints, "        elasticjob.run.log: 'off'\n"),
            job("failed", prints, ""),
        ];
        let _agent = start_agent(folder.path(), &format!("elasticjob:\n{tracing}  jobs:\n{}", jobs.concat()));
        let logs = |job: &str, item: &str| lines(folder.path(), job, &["--item", item, "--file", "agent.yaml"]);
        let mut failed = Vec::new();
        for (job, item) in [("all", "0"), ("all", "1"), ("failed", "1")] {
            let (found, said) = eventually(&format!("{job} {item}: {tracing}"), PATIENCE, || {
                let (found, said) = logs(job, item);
                (found.len() >= 2 + usize::from(item == "1")).then_some((found, said))
            });
            let mut found_texts = texts(&found);
            found_texts[..2].sort(); // two streams have no order
            let mut expected = vec!["stderr err", "stdout out Zürich 你好"];
            expected.extend(
                (item == "1").then_some(
                    "elasticjob failed: the script ended with exit code 1; last lines of standard error: err",
                ),
            );
            assert_eq!(found_texts, expected, "{job} {item}");
            assert!(said.contains(&format!("item {item} on ")), "{said}");
            failed = found;
        }
        let outcome = |job: &str, item: &str| logs(job, item).1;
        assert!(outcome("failed", "0").contains("no run log of job `failed`"), "{}", outcome("failed", "0"));
        assert!(outcome("none", "1").contains("no run log of job `none`"), "{}", outcome("none", "1"));

        // A run by the end of its id, as `job history` prints it.
        let id = failed[0]["run"].as_str().expect("an id");
        let history = output(&["job", "history", "failed", "--file", "agent.yaml", "--limit", "1000"], folder.path());
        let suffix = &id[id.len() - 8..];
        assert!(text(&history.stdout).contains(suffix), "{}", text(&history.stdout));
        let (found, said) = lines(folder.path(), "failed", &["--run", suffix, "--file", "agent.yaml"]);
        assert_eq!((found, said.contains(id)), (failed, true), "{said}");
    }
}

#[test]
fn a_run_that_is_not_recorded_and_an_id_that_is_none_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let tracing = sqlite(folder.path());
    let _agent = start_agent(folder.path(), &format!("elasticjob:\n{tracing}  jobs:\n{}", job("job", "false", "")));
    eventually("a failed run", PATIENCE, || {
        let history = output(&["job", "history", "job", "--file", "agent.yaml"], folder.path());
        text(&history.stdout).contains("FAILURE").then_some(())
    });
    for (id, code, said) in [
        (
            "12",
            2,
            "elasticjob: --run `12`: expected the id of a run in `job history`, or at least its last 4 characters",
        ),
        ("%%%%", 2, "elasticjob: --run `%%%%`: expected the id of a run"),
        ("ffffeeee", 1, "no log of a run `ffffeeee` of job `job` in "),
    ] {
        let found = output(&["job", "logs", "job", "--run", id, "--file", "agent.yaml"], folder.path());
        assert_eq!(found.status.code(), Some(code), "{id}");
        assert!(text(&found.stderr).contains(said), "{}", text(&found.stderr));
    }
}

/// The lines of a run under way are there before it ends, and the command that follows it ends with it. A run that prints too much
/// keeps its first and its last lines.
#[test]
fn a_run_is_followed_while_it_runs_and_keeps_its_first_and_last_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("long.sh");
    let (go, text_of_script) = (
        folder.path().join("go"),
        "#!/bin/sh\necho first\nwhile [ ! -e go ]; do sleep 0.1; done\nseq 1 2000\necho last\nexit 3\n",
    );
    std::fs::write(&script, text_of_script).expect("a file");
    let job = "    long:\n      elasticJobType: SCRIPT\n      shardingTotalCount: 1\n      props: { script.command.line: sh long.sh, elasticjob.run.log.bytes: 4096 }\n";
    let tracing = format!("{}    runLog: all\n", sqlite(folder.path()));
    let _agent = start_agent(folder.path(), &format!("elasticjob:\n{tracing}  jobs:\n{job}"));
    eventually("the job is there", PATIENCE, || {
        output(&["job", "trigger", "long"], folder.path()).status.success().then_some(())
    });
    let run = eventually("the first line of a run under way", PATIENCE, || {
        let (found, said) = lines(folder.path(), "long", &["--file", "agent.yaml"]);
        (texts(&found) == ["stdout first"] && said.contains("no end yet"))
            .then(|| found[0]["run"].as_str().expect("an id").to_owned())
    });
    let mut following = command();
    following.args(["job", "logs", "long", "--follow", "--run", &run, "--file", "agent.yaml"]);
    following.current_dir(folder.path()).stdin(Stdio::null());
    let mut following = Process::start(following, &folder.path().join("followed"));
    eventually("it prints the first line", PATIENCE, || following.log().contains("stdout first").then_some(()));
    std::fs::write(go, "").expect("a file");
    assert_eq!(following.wait(PATIENCE).code(), Some(0), "{}", following.log());
    let followed = following.log();
    let lines: Vec<&str> = followed.lines().filter_map(|line| line.split_once("Z ").map(|(_, line)| line)).collect();
    for line in ["stdout 1", "stdout 2000", "stdout last", "elasticjob failed: the script ended with exit code 3"] {
        assert!(lines.contains(&line), "{line}: {followed}");
    }
    assert!(!lines.contains(&"stdout 1000"), "{followed}");
    assert!(followed.contains(" lines are not recorded; `elasticjob.run.log.bytes` sets the limit"), "{followed}");
    assert!(followed.len() < 12_000, "{}", followed.len());
}
