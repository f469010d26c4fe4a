//! The binary as a user meets it: exit codes, messages, signals, the embedded registry.

use std::path::Path;
use std::time::Duration;

use elasticjob_registry::Registry;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_tests::{Process, ZooKeeper, command, eventually, output, wall_clock_millis};

const PATIENCE: Duration = Duration::from_secs(30);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn up(folder: &Path, log: &str) -> Process {
    let mut command = command();
    command.args(["up", "-v"]).current_dir(folder);
    Process::start(command, &folder.join(log))
}

#[test]
fn up_shows_runs_within_seconds_and_ctrl_c_ends_it_cleanly() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = wall_clock_millis();
    let mut process = up(folder.path(), "log");
    for item in ["hello from item 0, Beijing", "hello from item 1, Shanghai", "hello from item 2, Guangzhou"] {
        eventually(item, Duration::from_secs(10), || process.log().contains(item).then_some(()));
    }
    assert!(wall_clock_millis() - start < 10_000);

    // Commands reach the registry while the agent holds it.
    let list = output(&["job", "list", "--output", "json"], folder.path());
    assert!(list.status.success(), "{}", text(&list.stderr));
    let list = text(&list.stdout);
    assert!(list.contains(r#""jobName":"hello""#) && list.contains(r#""status":"OK""#), "{list}");
    let config = output(&["job", "config", "hello"], folder.path());
    assert!(text(&config.stdout).contains("jobName: hello\n"), "{}", text(&config.stdout));
    assert!(output(&["job", "trigger", "tick"], folder.path()).status.success());
    eventually("the trigger", PATIENCE, || process.log().contains("source=\"trigger\"").then_some(()));
    assert!(output(&["job", "disable", "hello"], folder.path()).status.success());
    eventually("it is disabled", PATIENCE, || process.log().contains("resigned as leader").then_some(()));
    let unknown = output(&["job", "trigger", "none"], folder.path());
    assert_eq!(
        (unknown.status.code(), text(&unknown.stderr).as_str()),
        (Some(1), "elasticjob: job `none` not found\n")
    );

    // A second agent on the same file is refused.
    let second = command().arg("up").current_dir(folder.path()).output().expect("runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("elasticjob.db is in use by another process"), "{}", text(&second.stderr));

    process.signal("INT");
    let status = process.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{}", process.log());
    assert!(process.log().contains("stopped"));

    // No process holds the file: commands open it, and disabled jobs stay disabled.
    let list = output(&["job", "list"], folder.path());
    assert!(text(&list.stdout).contains("CRASHED"), "{}", text(&list.stdout));
    let process = up(folder.path(), "log2");
    eventually("it stays disabled", PATIENCE, || {
        process.log().contains("the job is disabled on all servers").then_some(())
    });
    assert!(output(&["job", "enable", "hello"], folder.path()).status.success());
    eventually("it runs again", PATIENCE, || process.log().contains("hello from item 2").then_some(()));
}

#[test]
fn wrong_files_end_with_exit_code_2_and_write_nothing() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let job = |lines: &str| {
        format!(
            "elasticjob:\n  regCenter: {{serverLists: '{}', namespace: wrong}}\n  jobs:\n    a:\n      elasticJobType: SCRIPT\n      shardingTotalCount: 2\n{lines}",
            zookeeper.address()
        )
    };
    let props = "      props: {script.command.line: 'true'}\n";
    for (name, lines, expected) in [
        (
            "both day fields",
            format!("      cron: 0 0 0 * * *\n{props}"),
            "7:13: job `a`: key `cron`: `0 0 0 * * *` is invalid: day-of-month `*` and day-of-week `*`: exactly one of the two must be `?`",
        ),
        (
            "never fires",
            format!("      cron: 0 0 0 30 2 ?\n{props}"),
            "7:13: job `a`: key `cron`: `0 0 0 30 2 ?` is invalid: it never fires",
        ),
        (
            "zone",
            format!("      cron: '* * * * * ?'\n      timeZone: Mars/Base\n{props}"),
            "8:17: job `a`: key `timeZone`: `Mars/Base` is invalid: expected GMT, GMT+8, GMT+08:00 or an IANA name such as Asia/Shanghai that this host knows",
        ),
        (
            "failover alone",
            format!("      cron: '* * * * * ?'\n      failover: true\n      monitorExecution: false\n{props}"),
            "8:17: job `a`: key `failover`: `true` is invalid: failover requires `monitorExecution: true`",
        ),
        (
            "strategy",
            format!("      cron: '* * * * * ?'\n      jobShardingStrategyType: EVEN\n{props}"),
            "8:32: job `a`: key `jobShardingStrategyType`: `EVEN` is invalid: expected one of AVG_ALLOCATION, ODEVITY, ROUND_ROBIN, SINGLE_SHARDING_BALANCE",
        ),
        (
            "handler",
            format!("      cron: '* * * * * ?'\n      jobErrorHandlerType: SHOUT\n{props}"),
            "8:28: job `a`: key `jobErrorHandlerType`: `SHOUT` is invalid: expected one of LOG, THROW, IGNORE",
        ),
        (
            "thread pool",
            format!("      cron: '* * * * * ?'\n      jobExecutorServiceHandlerType: GPU\n{props}"),
            "8:38: job `a`: key `jobExecutorServiceHandlerType`: `GPU` is invalid: expected one of CPU, SINGLE_THREAD",
        ),
        (
            "parameters",
            format!("      cron: '* * * * * ?'\n      shardingItemParameters: 0=a,b\n{props}"),
            "8:31: job `a`: key `shardingItemParameters`: `0=a,b` is invalid: pair `b`: expected item=parameter",
        ),
        (
            "parameter of no item",
            format!("      cron: '* * * * * ?'\n      shardingItemParameters: 2=c\n{props}"),
            "8:31: job `a`: key `shardingItemParameters`: `2=c` is invalid: the items are 0 to 1, so no item 2 exists",
        ),
        (
            "listener",
            format!("      cron: '* * * * * ?'\n      jobListenerTypes: [x]\n{props}"),
            "8:25: job `a`: key `jobListenerTypes`: `x` is invalid: expected one of SCRIPT, DISTRIBUTE_ONCE",
        ),
        (
            "command",
            "      cron: '* * * * * ?'\n".to_owned(),
            "4:5: job `a`: key `props.script.command.line` is missing or empty: expected a command: a program and its arguments",
        ),
        (
            "range",
            format!("      cron: '* * * * * ?'\n      maxTimeDiffSeconds: -2\n{props}"),
            "8:27: key `maxTimeDiffSeconds`: `-2` is invalid: expected a whole number from -1 to 2147483647",
        ),
    ] {
        let file = folder.path().join("job.yaml");
        std::fs::write(&file, job(&lines)).expect("a file");
        let found = output(&["agent", "job.yaml"], folder.path());
        let told = text(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{name}: {told}");
        assert!(told.contains(&format!("job.yaml:{expected}")), "{name}: {told}");
        assert_eq!(output(&["check", "job.yaml"], folder.path()).status.code(), Some(2), "{name}");
        let object = output(&["check", "job.yaml", "--output", "json"], folder.path());
        assert_eq!((object.status.code(), text(&object.stderr).as_str()), (Some(2), ""), "{name}");
        let object: serde_json::Value = serde_json::from_slice(&object.stdout).expect("JSON");
        let (line, rest) = expected.split_once(':').expect("a line");
        let (column, fault) = rest.split_once(": ").expect("a column");
        let first = &object["faults"][0];
        assert_eq!((first["line"].to_string(), first["column"].to_string()), (line.into(), column.into()), "{name}");
        assert!(first["text"].as_str().expect("a text").starts_with(fault), "{name}: {object}");
    }
    let unreadable = output(&["agent", "none.yaml"], folder.path());
    assert_eq!(unreadable.status.code(), Some(2));
    assert!(text(&unreadable.stderr).contains("none.yaml:1:1: cannot read the file"), "{}", text(&unreadable.stderr));
    for (arguments, part) in [
        (
            vec!["--registry", "ftp://x", "job", "list"],
            "expected zookeeper://HOST:PORT,HOST:PORT/NAMESPACE or embedded:PATH",
        ),
        (vec!["--registry", "ftp://x", "up"], "registry address `ftp://x`"),
        (vec!["cron", "* * * * *"], "5 fields, expected at least 6"),
        (vec!["cron", "* * * * * ?", "--zone", "GMT+99"], "--zone `GMT+99`"),
        (vec!["cron", "* * * * * ?", "--from", "yesterday"], "--from `yesterday`: expected a time like"),
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["job", "lst"], "a similar subcommand exists: 'list'"),
        (vec!["job"], "Usage: elasticjob job"),
        (vec!["job", "show"], "Usage: elasticjob job show <NAME>"),
        (vec!["job", "config", "a", "b"], "unexpected argument 'b' found"),
        (vec!["job", "apply"], "<FILE>"),
        (vec!["job", "apply", "none.yaml"], "elasticjob: cannot read none.yaml: "),
        (vec!["job", "trigger"], "<NAMES>..."),
        (vec!["job", "disable", "a", "--sever", "1"], "a similar argument exists: '--server'"),
        (vec!["job", "remove", "a", "--keep-config", "--server", "1"], "cannot be used with '--server <IP>'"),
        (vec!["job", "dump", "a", "--from", "nowhere"], "--from `nowhere`: expected HOST:PORT, such as 10.0.0.1:9888"),
        (vec!["job", "dump", "a", "--from", ":1"], "--from `:1`: expected HOST:PORT"),
        (vec!["job", "history", "a", "--limit", "0"], "0 is not in 1..=100000"),
        (vec!["job", "history", "a", "--since", "soon"], "--since `soon`: expected a time like"),
        (vec!["job", "history", "a", "--database", "oracle://x/y"], "--database: unsupported database `oracle`"),
        (vec!["job", "history", "a", "--user", "u"], "--database <URL>"),
        (vec!["job", "explain"], "Usage: elasticjob job explain <NAME>"),
        (vec!["server", "show"], "<IP>"),
        (vec!["shard", "disable", "a"], "<ITEMS>..."),
        (vec!["shard", "disable", "a", "first"], "invalid value 'first' for '<ITEMS>...'"),
        (vec!["job", "list", "--output", "xml"], "[possible values: table, json, yaml]"),
        (vec!["man"], "<FOLDER>"),
    ] {
        let found = output(&arguments, folder.path());
        assert_eq!(found.status.code(), Some(2), "{arguments:?}: {}", text(&found.stderr));
        assert!(text(&found.stderr).contains(part), "{arguments:?}: {}", text(&found.stderr));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let written = runtime.block_on(async {
        let registry = Zookeeper::connect(Settings::new(&zookeeper.address(), "wrong")).expect("right settings");
        elasticjob_registry::conformance::session(&registry).await;
        registry.read(vec![elasticjob_core::query::Query::Children("/".into())]).await.expect("reads")
    });
    assert_eq!(written[0].children(), [""; 0], "nothing was written");
}

#[test]
fn a_job_of_another_class_is_refused() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let address = format!("zookeeper://{}/classes", zookeeper.address());
        let connection = elasticjob::registry::connect(&address).await.expect("right");
        let job = elasticjob::ScheduleJob::new("a", 1).cron("0 0 0 1 1 ?").class_name("com.acme.MyJob");
        job.simple(|_| async { Ok(()) }).start(&connection).await.expect("starts");
    });
    let file = format!(
        "elasticjob:\n  regCenter: {{serverLists: '{}', namespace: classes}}\n  jobs:\n    a:\n      elasticJobType: SCRIPT\n      shardingTotalCount: 1\n      cron: '* * * * * ?'\n      props: {{script.command.line: 'true'}}\n",
        zookeeper.address()
    );
    std::fs::write(folder.path().join("job.yaml"), file).expect("a file");
    let found = output(&["agent", "job.yaml"], folder.path());
    assert_eq!(found.status.code(), Some(2));
    let told = text(&found.stderr);
    assert!(told.contains("with another class or job type: stored `com.acme.MyJob`, this start `SCRIPT`"), "{told}");
}

#[test]
fn cron_prints_the_times_with_their_offsets() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [
        "cron",
        "0 30 2 * * ?",
        "--zone",
        "Europe/Berlin",
        "--from",
        "2026-03-27T12:00:00Z",
        "--count",
        "3",
        "--output",
        "json",
    ];
    let found = output(&arguments, folder.path());
    assert_eq!(
        text(&found.stdout),
        "[\"2026-03-28T02:30:00+01:00\",\"2026-03-30T02:30:00+02:00\",\"2026-03-31T02:30:00+02:00\"]\n",
        "the gap of March 29 does not fire"
    );
    let found = output(&["cron", "0 0 0 30 2 ?"], folder.path());
    assert_eq!(text(&found.stdout), "never\n");
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&output(&["completions", shell], folder.path()).stdout).contains("elasticjob"));
    }
}

#[test]
fn sighup_reads_the_file_again_and_sigterm_lets_runs_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = elasticjob_tests::Journal::new(folder.path());
    let job = |name: &str, cron: &str| {
        format!(
            "    {name}:\n      elasticJobType: SCRIPT\n      cron: {cron}\n      shardingTotalCount: 1\n      overwrite: true\n      props:\n        script.command.line: {}\n",
            journal.command("2.2")
        )
    };
    let file = folder.path().join("jobs.yaml");
    let never = "0 0 0 1 1 ?";
    let head = "elasticjob:\n  jobs:\n";
    std::fs::write(&file, format!("{head}{}{}", job("a", never), job("b", never))).expect("a file");
    let mut command = command();
    command.args(["agent", "jobs.yaml", "--log-format", "json"]).current_dir(folder.path());
    let mut process = Process::start(command, &folder.path().join("log"));
    let told = |process: &Process, text: &str| {
        eventually(text, PATIENCE, || {
            process.log().lines().any(|l| l.starts_with('{') && l.contains(text)).then_some(())
        });
    };
    told(&process, r#""job":"b""#);

    std::fs::write(&file, format!("{head}    broken: [")).expect("a file");
    process.signal("HUP");
    told(&process, "reload failed: the file has faults; running jobs are unchanged");

    std::fs::write(&file, format!("{head}{}{}", job("a", never), job("c", "'* * * * * ?'"))).expect("a file");
    process.signal("HUP");
    told(&process, r#""starting":1,"stopping":1,"restarting":0"#);
    eventually("b has no instance any more", PATIENCE, || {
        let list = text(&output(&["job", "list"], folder.path()).stdout);
        let b = list.lines().find(|l| l.starts_with('b')).expect("b is known");
        b.contains("CRASHED").then_some(())
    });

    let run = eventually("c runs", PATIENCE, || journal.runs().into_iter().find(|r| r.end.is_none()));
    process.signal("TERM");
    let status = process.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{}", process.log());
    let ended = journal.runs().into_iter().find(|r| r.start == run.start).expect("it is there");
    assert!(ended.end.is_some(), "what ran was given time to end");
    assert!(journal.runs().iter().all(|r| r.start <= run.start + 2_500), "nothing began after the signal");
}

/// The changed job completes its run first. The next start catches up the firing that falls into that run.
#[test]
fn a_job_that_sighup_restarts_holds_up_no_other_job_and_loses_no_firing() {
    let folder = tempfile::tempdir().expect("a folder");
    let [long, new] = ["long", "new"].map(|name| {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
        elasticjob_tests::Journal::new(&folder.path().join(name))
    });
    let job = |name: &str, journal: &elasticjob_tests::Journal, cron: &str, sleep: &str, more: &str| {
        format!(
            "    {name}:\n      elasticJobType: SCRIPT\n      cron: '{cron}'\n      shardingTotalCount: 1\n      overwrite: true\n{more}      props:\n        script.command.line: {}\n",
            journal.command(sleep)
        )
    };
    let write = |parameter: &str, others: &str| {
        let more = format!("      misfire: true\n      jobParameter: {parameter}\n");
        let text = job("long", &long, "0/5 * * * * ?", "7.5", &more);
        std::fs::write(folder.path().join("jobs.yaml"), format!("elasticjob:\n  jobs:\n{text}{others}"))
            .expect("a file");
    };
    write("first", "");
    let mut command = command();
    command.args(["agent", "-v", "jobs.yaml"]).current_dir(folder.path());
    let process = Process::start(command, &folder.path().join("log"));
    let run = eventually("it runs", PATIENCE, || long.runs().into_iter().next());
    write("second", &job("new", &new, "* * * * * ?", "0", ""));
    process.signal("HUP");
    eventually("the new job runs", PATIENCE, || (!new.runs().is_empty()).then_some(()));
    assert!(long.runs()[0].end.is_none(), "the changed one has not ended: {}", process.log());
    let next = eventually("it runs again", PATIENCE, || long.runs().into_iter().nth(1));
    let log = process.log();
    assert_eq!((next.source.as_str(), next.due), ("misfire", run.due + 5_000), "{next:?}\n{log}");
    assert!(log.contains("the job changed in the file; restarting it"), "{log}");
}

/// The log of a shutdown says that SIGHUP starts the job again: also while its last run goes on.
#[test]
fn a_job_that_completes_its_last_run_after_a_shutdown_starts_again_at_sighup() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "elasticjob:\n  jobs:\n    long:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n      \
                props: { script.command.line: sh -c 'sleep 4' }\n";
    std::fs::write(folder.path().join("jobs.yaml"), text).expect("a file");
    let mut command = command();
    command.args(["agent", "-v", "jobs.yaml"]).current_dir(folder.path());
    let process = Process::start(command, &folder.path().join("log"));
    let count = |what: &str| process.log().matches(what).count();
    eventually("it runs", PATIENCE, || (count("started items") >= 1).then_some(()));
    let shutdown = output(&["job", "shutdown", "long"], folder.path());
    assert!(shutdown.status.success(), "{}", String::from_utf8_lossy(&shutdown.stderr));
    eventually("the shutdown is logged", PATIENCE, || process.log().contains("shut down by an operator").then_some(()));
    let runs = count("started items");
    assert_eq!(count("left the job"), 0, "the run goes on: {}", process.log());
    process.signal("HUP");
    eventually("it leaves", PATIENCE, || (count("left the job") == 1).then_some(()));
    eventually("it joins again", PATIENCE, || (count("INFO joined") == 2).then_some(()));
    eventually("it runs again", PATIENCE, || (count("started items") > runs).then_some(()));
}

#[test]
fn a_watched_list_is_printed_again_when_it_has_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = up(folder.path(), "log");
    eventually("both jobs run", PATIENCE, || agent.log().contains("it is ").then_some(()));
    let mut watching = command();
    watching.args(["job", "list", "--watch", "--output", "json"]).current_dir(folder.path());
    let mut watching = Process::start(watching, &folder.path().join("watched"));
    let line = |number: usize| {
        eventually(&format!("list {number}"), PATIENCE, || watching.log().lines().nth(number).map(str::to_owned))
    };
    assert!(line(0).contains(r#""jobName":"tick","status":"OK""#), "{}", line(0));
    let runs = agent.log().matches("completed items").count();
    eventually("runs", PATIENCE, || (agent.log().matches("completed items").count() > runs + 3).then_some(()));
    assert_eq!(watching.log().lines().count(), 1, "runs change nothing in it: {}", watching.log());
    assert!(output(&["job", "disable", "tick"], folder.path()).status.success());
    eventually("it is told", PATIENCE, || {
        watching.log().lines().last().filter(|l| l.contains(r#""jobName":"tick","status":"DISABLED""#)).map(drop)
    });
    watching.signal("INT");
    assert_eq!(watching.wait(PATIENCE).code(), Some(0), "{}", watching.log());
}

#[test]
fn what_cannot_be_undone_is_asked_on_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = up(folder.path(), "log");
    eventually("both jobs run", PATIENCE, || agent.log().contains("it is ").then_some(()));
    let binary = command().get_program().to_string_lossy().into_owned();
    // `script` gives it a terminal.
    let asked = |arguments: &str, answer: &str| {
        let line = format!("printf '{answer}\\n' | script -qefc '{binary} {arguments}' /dev/null");
        let found = std::process::Command::new("sh").args(["-c", &line]).current_dir(folder.path()).output();
        let found = found.expect("a shell");
        (found.status.code(), text(&found.stdout))
    };
    let (code, told) = asked("job remove tick", "n");
    assert!(
        code == Some(1) && told.contains("all of its data? [y/N]") && told.contains("nothing was removed"),
        "{told}"
    );
    assert!(text(&output(&["job", "list"], folder.path()).stdout).contains("tick"));
    let (code, told) = asked("job remove tick", "y");
    assert_eq!(code, Some(0), "{told}");
    assert!(!text(&output(&["job", "list"], folder.path()).stdout).contains("tick"));
    let stored = text(&output(&["job", "config", "hello"], folder.path()).stdout);
    std::fs::write(folder.path().join("new.yaml"), stored.replace("0/2", "0/3")).expect("a file");
    let (code, told) = asked("job apply new.yaml", "yes");
    assert!(code == Some(0) && told.contains("+cron: 0/3 * * * * ?"), "{told}");
    assert!(text(&output(&["job", "config", "hello"], folder.path()).stdout).contains("0/3"));
    // A file with a job that no agent has started yet.
    let job = |name: &str| {
        format!(
            "    {name}: {{elasticJobType: SCRIPT, cron: '0/4 * * * * ?', shardingTotalCount: 3, props: {{script.command.line: 'true'}}}}\n"
        )
    };
    let apply = |jobs: &str| {
        std::fs::write(folder.path().join("file.yaml"), format!("elasticjob:\n  jobs:\n{jobs}")).expect("a file");
        output(&["job", "apply", "file.yaml", "--yes"], folder.path())
    };
    let applied = apply(&format!("{}{}", job("later"), job("hello")));
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    assert!(text(&applied.stderr).contains("job `later` not found; this job is skipped"), "{}", text(&applied.stderr));
    assert!(text(&output(&["job", "config", "hello"], folder.path()).stdout).contains("0/4"));
    assert_eq!(apply(&job("later")).status.code(), Some(1));
}

#[test]
fn watching_a_file_does_not_lock_it_and_sees_agents_start_and_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = up(folder.path(), "log");
    eventually("both jobs run", PATIENCE, || agent.log().contains("it is ").then_some(()));
    let mut watching = command();
    watching.args(["job", "list", "--watch", "--output", "json"]).current_dir(folder.path());
    let watching = Process::start(watching, &folder.path().join("watched"));
    let says = |status: &str| {
        let part = format!(r#""jobName":"hello","status":"{status}""#);
        eventually(&part, PATIENCE, || watching.log().lines().last().filter(|l| l.contains(&part)).map(drop));
    };
    says("OK");
    agent.signal("INT");
    assert_eq!(agent.wait(PATIENCE).code(), Some(0));
    says("CRASHED");
    let again = up(folder.path(), "log2");
    eventually("it runs again", PATIENCE, || again.log().contains("hello from item").then_some(()));
    says("OK");
}

#[test]
fn what_others_wrote_does_not_steer_a_terminal_and_a_reader_may_go_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let file = format!("embedded:{}", folder.path().join("elasticjob.db").display());
        let connection = elasticjob::registry::connect(&file).await.expect("a file");
        let job = elasticjob::ScheduleJob::new("odd", 1).cron("0 0 0 1 1 ?").description("a\u{202e}[2Jb\nc\rd");
        let job = job.simple(|_| async { Ok(()) }).start(&connection).await.expect("starts");
        job.stop().await;
        connection.close().await;
    });
    drop(runtime); // nobody holds the file any more
    let list = text(&output(&["job", "list"], folder.path()).stdout);
    assert!(list.lines().count() == 2 && list.contains("a\\u{202e}[2Jb\\nc\\rd"), "{list:?}");
    let binary = command().get_program().to_string_lossy().into_owned();
    let shell = |line: &str| {
        let found = std::process::Command::new("sh").args(["-c", line]).current_dir(folder.path()).output();
        let found = found.expect("a shell");
        (text(&found.stdout), text(&found.stderr))
    };
    // A table is no wider than its terminal.
    let (narrow, _) = shell(&format!("script -qefc 'stty cols 40; {binary} job list' /dev/null"));
    assert!(narrow.contains("odd") && narrow.lines().all(|line| line.trim_end().chars().count() <= 40), "{narrow}");
    // On a terminal the raw text of a configuration cannot steer it either; into a file it goes as it is.
    let (shown, _) = shell(&format!("script -qefc '{binary} job config odd' /dev/null"));
    assert!(shown.contains("jobName: odd") && !shown.contains('\u{202e}'), "{shown:?}");
    assert!(text(&output(&["job", "config", "odd"], folder.path()).stdout).contains('\u{202e}'));
    let (_, told) = shell(&format!("( {binary} completions zsh; echo code $? >&2 ) | true"));
    assert_eq!(told, "code 0\n", "who reads no more is no error");
    let (_, told) = shell(&format!("{binary} job config odd > /dev/full; echo code $? >&2"));
    assert!(told.contains("cannot write to standard output") && told.contains("code 1"), "{told}");
}

#[test]
fn ctrl_c_ends_a_question() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = up(folder.path(), "log");
    eventually("both jobs run", PATIENCE, || agent.log().contains("it is ").then_some(()));
    let binary = command().get_program().to_string_lossy().into_owned();
    // It prints its own pid, so that the signal goes to it alone.
    let script = folder.path().join("ask.sh");
    std::fs::write(&script, format!("echo \"pid $$ end\"\nexec {binary} job remove tick\n")).expect("a script");
    let asked = folder.path().join("asked");
    let mut asking = std::process::Command::new("script")
        .args(["-qefc", &format!("sh {}", script.display()), "/dev/null"])
        .current_dir(folder.path())
        .stdin(std::process::Stdio::piped()) // somebody is there, and does not answer
        .stdout(std::fs::File::create(&asked).expect("a file"))
        .spawn()
        .expect("a terminal");
    let pid = eventually("the question", PATIENCE, || {
        let log = std::fs::read_to_string(&asked).ok()?;
        let pid = log.split("pid ").nth(1)?.split(' ').next()?.parse::<u32>().ok()?;
        log.contains("[y/N]").then_some(pid)
    });
    let sent = std::process::Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill");
    assert!(sent.success());
    let status = eventually("it ends", PATIENCE, || asking.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(1));
    assert!(text(&output(&["job", "list"], folder.path()).stdout).contains("tick"));
}

#[test]
fn many_are_checked_before_the_first_is_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = up(folder.path(), "log");
    eventually("both jobs run", PATIENCE, || agent.log().contains("it is ").then_some(()));
    let before = text(&output(&["job", "list", "--output", "json"], folder.path()).stdout);
    for arguments in [
        vec!["job", "disable", "tick", "none"],
        vec!["job", "shutdown", "tick", "none"],
        vec!["job", "trigger", "tick", "none"],
        vec!["job", "remove", "tick", "none", "--yes"],
        vec!["job", "remove", "none"],
        vec!["job", "disable", "tick", "--server", "10.9.9.9"],
        vec!["shard", "disable", "hello", "0", "99"],
        vec!["server", "disable", "10.9.9.9"],
        vec!["job", "show", "../hello"],
        vec!["job", "explain", ""],
    ] {
        let found = output(&arguments, folder.path());
        let told = text(&found.stderr);
        assert_eq!(found.status.code(), Some(1), "{arguments:?}: {told}");
        assert_eq!(text(&found.stdout), "", "{arguments:?}");
        assert!(told.contains(" not found") || told.contains("has no item 99"), "{arguments:?}: {told}");
        let items = text(&output(&["shard", "list", "hello"], folder.path()).stdout);
        assert!(!items.contains("DISABLED"), "{arguments:?}: {items}");
    }
    assert_eq!(text(&output(&["job", "list", "--output", "json"], folder.path()).stdout), before);
    let config = text(&output(&["job", "config", "tick", "--output", "json"], folder.path()).stdout);
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    assert_eq!((&config["shardingTotalCount"], &config["misfire"]), (&1.into(), &true.into()));
}
