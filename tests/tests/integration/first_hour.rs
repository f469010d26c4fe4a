//! What a new user does in the first hour: paths, signals, pipes, output of scripts, restarts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use elasticjob_core::tree::Op;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Registry, conformance};
use elasticjob_tests::{Journal, Process, ZooKeeper, agent, command, eventually, logged, output};

const PATIENCE: Duration = Duration::from_secs(60);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn script(path: &Path, lines: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{lines}\n")).expect("a script");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("rights");
}

fn job_file(folder: &Path, name: &str, more: &str) {
    let text = format!(
        "elasticjob:\n{more}  jobs:\n    report:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n      props: {{script.command.line: ./report.sh}}\n"
    );
    std::fs::write(folder.join(name), text).expect("a file");
}

#[test]
fn relative_paths_begin_at_the_folder_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (home, elsewhere) = (folder.path().join("home"), folder.path().join("elsewhere"));
    std::fs::create_dir_all(&home).expect("a folder");
    std::fs::create_dir_all(&elsewhere).expect("a folder");
    script(&home.join("report.sh"), "echo it ran in $PWD");
    job_file(&home, "jobs.yaml", "  tracing: {dataSource: {url: 'sqlite://trace.db'}}\n");
    let check = output(&["check", "../home/jobs.yaml"], &elsewhere);
    assert!(check.status.success(), "{}", text(&check.stderr));
    let mut command = command();
    command.args(["agent", "../home/jobs.yaml"]).current_dir(&elsewhere);
    let mut process = Process::start(command, &folder.path().join("log"));
    eventually("the script is found", PATIENCE, || process.log().contains("it ran in ").then_some(()));
    let home = home.canonicalize().expect("a folder");
    let log = process.log();
    assert!(log.contains(&format!("it ran in {}", home.display())), "{log}");
    assert!(log.contains(&format!("the embedded registry {}", home.join("elasticjob.db").display())), "{log}");
    eventually("the trace is beside the file", PATIENCE, || home.join("trace.db").exists().then_some(()));
    // A command finds the trace by the file, and needs no registry.
    eventually("the history", PATIENCE, || {
        let history = output(&["job", "history", "report", "--file", "../home/jobs.yaml"], &elsewhere);
        (text(&history.stdout).lines().count() > 1).then_some(())
    });
    assert!(!elsewhere.join("elasticjob.db").exists() && !elsewhere.join("trace.db").exists());
    process.signal("TERM");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
}

#[test]
fn two_signals_are_no_failure_where_nothing_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    script(&folder.path().join("report.sh"), "true");
    job_file(folder.path(), "jobs.yaml", "");
    let file = folder.path().join("jobs.yaml");
    let daily = std::fs::read_to_string(&file).expect("a file").replace("* * * * * ?", "0 0 3 * * ?");
    std::fs::write(&file, daily).expect("a file");
    for round in 0..5 {
        let mut process = agent(&file, &folder.path().join("log"));
        eventually("it has joined", PATIENCE, || process.log().contains("INFO joined").then_some(()));
        process.signal("TERM");
        process.signal("TERM");
        assert_eq!(process.wait(PATIENCE).code(), Some(0), "round {round}: {}", process.log());
        assert!(!process.log().contains("cut off"), "{}", process.log());
    }
}

#[test]
fn a_watched_list_ends_with_its_reader() {
    let folder = tempfile::tempdir().expect("a folder");
    script(&folder.path().join("report.sh"), "true");
    job_file(folder.path(), "jobs.yaml", "");
    let process = agent(&folder.path().join("jobs.yaml"), &folder.path().join("log"));
    eventually("it has joined", PATIENCE, || process.log().contains("INFO joined").then_some(()));
    let mut list = command();
    list.args(["job", "list", "--watch"]).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut list = list.spawn().expect("runs");
    let mut head = Command::new("head");
    head.arg("-1").stdin(list.stdout.take().expect("a pipe")).stdout(Stdio::piped());
    let printed = head.output().expect("head");
    drop(head); // it holds the pipe
    assert!(text(&printed.stdout).contains("JOB"), "{}", text(&printed.stdout));
    let status = eventually("the list ends", PATIENCE, || list.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_log_has_head_and_tail_of_a_script_and_its_failure_quotes_standard_error() {
    let folder = tempfile::tempdir().expect("a folder");
    script(
        &folder.path().join("report.sh"),
        "i=0; while [ $i -lt 3000 ]; do echo \"line $i\"; i=$((i+1)); done\nprintf '\\033[2J'; echo steers\n\
         head -c 5000 /dev/zero | tr '\\0' z; echo\necho 'the disk is on fire' >&2\nexit 3",
    );
    job_file(folder.path(), "jobs.yaml", "  tracing: {dataSource: {url: 'sqlite://trace.db'}}\n");
    let process = agent(&folder.path().join("jobs.yaml"), &folder.path().join("log"));
    eventually("a run has ended", PATIENCE, || process.log().contains("exit code 3").then_some(()));
    let log = process.log();
    assert!(log.contains("line 0 ") && log.contains("line 899 "), "the head");
    assert!(!log.contains("line 1500 "), "the middle is left out");
    assert!(log.contains("line 2999 "), "the tail");
    assert!(log.contains("omitted lines of output"), "what is left out is said");
    assert!(log.contains("\\u{1b}[2Jsteers") && !log.contains('\u{1b}'), "no control characters");
    assert!(log.contains("… (cut: the line has 5000 bytes)"), "a long line is marked");
    assert!(log.contains("exit code 3; last lines of standard error: the disk is on fire"), "{log}");
    eventually("the history quotes it", PATIENCE, || {
        let history = output(&["job", "history", "report", "--file", "jobs.yaml"], folder.path());
        text(&history.stdout).contains("the disk is on fire").then_some(())
    });
}

#[test]
fn a_host_with_ipv6_alone_is_known_by_that_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("elasticjob-v6-{}", std::process::id());
    let ip = |arguments: &[&str]| {
        let done = Command::new("ip").args(arguments).output().expect("ip");
        assert!(done.status.success(), "ip {arguments:?}: {}", text(&done.stderr));
    };
    struct Namespace(String);
    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
        }
    }
    ip(&["netns", "add", &name]);
    let namespace = Namespace(name);
    let name = namespace.0.as_str();
    ip(&["-n", name, "link", "set", "lo", "up"]);
    ip(&["-n", name, "link", "add", "v6", "type", "veth", "peer", "name", "v6-peer"]);
    ip(&["-n", name, "addr", "add", "2001:db8::7/64", "dev", "v6", "nodad"]);
    ip(&["-n", name, "link", "set", "v6", "up"]);
    ip(&["-n", name, "link", "set", "v6-peer", "up"]);
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name]).arg(elasticjob_tests::command().get_program()).args(arguments);
        command.current_dir(folder.path());
        command
    };
    let process = Process::start(inside(&["up"]), &folder.path().join("log"));
    eventually("it joins by its address", PATIENCE, || process.log().contains("instance=2001:db8::7@-@").then_some(()));
    eventually("it runs", PATIENCE, || process.log().contains("hello from item").then_some(()));
    for (arguments, part) in [
        (&["server", "list"] as &[&str], "2001:db8::7"),
        (&["server", "disable", "[2001:DB8::7]"], ""),
        (&["server", "show", "2001:db8:0:0:0:0:0:7"], "DISABLED"),
        (&["job", "list", "--server", "[2001:db8::7]"], "DISABLED"),
        (&["server", "enable", "2001:db8::0007"], ""),
        (&["job", "explain", "hello"], "2001:db8::7 enabled"),
    ] {
        let done = inside(arguments).output().expect("runs");
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
        assert!(text(&done.stdout).contains(part), "{arguments:?}: {}", text(&done.stdout));
    }
}

/// A place whose name ends in `place` is made in the queue of the election of job `report`, by a session that lives and never
/// does anything with it. An agent waits behind it.
fn agent_behind_a_silent_place(
    zookeeper: &ZooKeeper,
    runtime: &tokio::runtime::Runtime,
    folder: &Path,
    place: &str,
) -> (Zookeeper, u64, Process) {
    script(&folder.join("report.sh"), "true");
    let center = format!("  regCenter: {{serverLists: '{}', namespace: silent}}\n", zookeeper.address());
    job_file(folder, "jobs.yaml", &center);
    let (registry, session) = runtime.block_on(async {
        let registry = Zookeeper::connect(Settings::new(&zookeeper.address(), "silent")).expect("right settings");
        let session = conformance::session(&registry).await;
        let job = vec![Op::create("/report", "SCRIPT")];
        registry.commit(session, &job).await;
        let latch = "/report/leader/election/latch";
        let parents = ["/report/leader", "/report/leader/election", latch].map(str::to_owned).to_vec();
        registry.create_sequential(session, parents, format!("{latch}/_c_silent{place}")).await.expect("a place");
        (registry, session)
    });
    let process = agent(&folder.join("jobs.yaml"), &folder.join("log"));
    (registry, session, process)
}

#[test]
fn an_agent_goes_on_without_an_instance_that_holds_the_election_and_does_nothing() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_silent, session, process) =
        agent_behind_a_silent_place(&zookeeper, &runtime, folder.path(), "-guarded-latch-");
    eventually("the job runs", PATIENCE, || (logged(&process.log(), "started items", "items=[0]") > 0).then_some(()));
    let log = process.log();
    let line = log
        .lines()
        .find(|line| line.contains("another process holds a lock node for too long"))
        .unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("this instance continues") && line.contains(&format!("{session:#x}")), "{line}");
}

/// A place in Java's form stays: its process would still use it when it wakes up.
#[test]
fn a_silent_first_in_the_queue_of_an_election_is_named() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_silent, session, process) = agent_behind_a_silent_place(&zookeeper, &runtime, folder.path(), "-latch-");
    eventually("the log names the session", PATIENCE, || {
        let log = process.log();
        (log.contains("waiting for a lock node of another process") && log.contains(&format!("{session:#x}")))
            .then_some(())
    });
    let url = format!("zookeeper://{}/silent", zookeeper.address());
    let explained = output(&["--registry", &url, "job", "explain", "report"], folder.path());
    let explained = text(&explained.stdout);
    assert!(explained.contains(&format!("session {session:#x}")), "{explained}");
    assert!(explained.contains("the first node in the queue of the election latch belongs to session"), "{explained}");
}

/// Three agents are restarted one after the other, while one of six items runs for long.
#[test]
fn a_rolling_restart_loses_no_firing_and_does_not_keep_idle_items_waiting() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(folder.path());
    let file = folder.path().join("jobs.yaml");
    let jobs = format!(
        "elasticjob:\n  regCenter: {{serverLists: '{}', namespace: rolling, sessionTimeoutMilliseconds: 4000}}\n  jobs:\n    rolling:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 6\n      props: {{script.command.line: '{}'}}\n",
        zookeeper.address(),
        journal.command("6@0")
    );
    std::fs::write(&file, jobs).expect("a file");
    let start = |name: String| {
        let process = agent(&file, &folder.path().join(name));
        eventually("it owns items", PATIENCE, || process.log().contains("owns items").then_some(()));
        process
    };
    let mut agents: Vec<Process> = (0..3).map(|number| start(format!("first-{number}"))).collect();
    let begun = elasticjob_tests::wall_clock_millis();
    let all_ran_after = |time: i64| {
        let runs = journal.runs();
        (1..6).all(|item| runs.iter().any(|run| run.item == item && run.due > time)).then_some(())
    };
    eventually("each short item runs", PATIENCE, || all_ran_after(begun));
    let from = elasticjob_tests::wall_clock_millis();
    for number in 0..3 {
        let mut old = agents.remove(0);
        old.signal("TERM");
        assert_eq!(old.wait(PATIENCE).code(), Some(0), "{}", old.log());
        agents.push(start(format!("second-{number}")));
    }
    let to = elasticjob_tests::wall_clock_millis();
    // Firings start in their order: one of each item after `to` means that those before it ran or never will.
    eventually("each short item ran once more", PATIENCE, || all_ran_after(to));
    let runs = journal.runs();
    for item in 1..6 {
        let mut due = (from / 1_000 + 1) * 1_000;
        while due < to {
            let of_firing: Vec<_> = runs.iter().filter(|run| run.item == item && run.due == due).collect();
            assert_eq!(of_firing.len(), 1, "item {item} due {due}: {of_firing:?}");
            // A second is judged in the simulator; here other processes share the host.
            let late = of_firing[0].start - due;
            assert!(late < 3_000, "item {item} due {due} began {late} ms late");
            due += 1_000;
        }
    }
    assert!(runs.iter().any(|run| run.item == 0 && run.start > from), "the long item goes on");
}
