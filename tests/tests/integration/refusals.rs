//! Rejections by a registry are reported: in the log immediately, in `/readyz`, by `explain`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use elasticjob_tests::{Process, ZooKeeper, agent, command, eventually, free_port, output};

const PATIENCE: Duration = Duration::from_secs(60);

fn file(folder: &Path, name: &str, zookeeper: &ZooKeeper, digest: &str, jobs: &[&str], port: u16) -> PathBuf {
    let job = |name: &&str| {
        format!(
            "    {name}:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n      props: {{script.command.line: 'true'}}\n"
        )
    };
    let jobs: String = jobs.iter().map(job).collect();
    let text = format!(
        "elasticjob:\n  metrics: {{port: {port}}}\n  regCenter: {{serverLists: '{}', namespace: refusals, sessionTimeoutMilliseconds: 4000{digest}}}\n  jobs:\n{jobs}",
        zookeeper.address()
    );
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

fn is_ready(port: u16, expected: &str) -> bool {
    crate::services::get(port, "/readyz").is_some_and(|(_, body)| body.contains(expected))
}

#[test]
fn a_missing_or_wrong_digest_is_reported_with_what_to_do_and_other_jobs_run_on() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    // The namespace is open; the job belongs to a user.
    let open = agent(&file(folder.path(), "open.yaml", &zookeeper, "", &["open"], 0), &folder.path().join("open"));
    eventually("the open job", PATIENCE, || open.log().contains("INFO joined").then_some(()));
    let owner = agent(
        &file(folder.path(), "owner.yaml", &zookeeper, ", digest: 'u:p'", &["closed"], 0),
        &folder.path().join("owner"),
    );
    eventually("the closed job", PATIENCE, || owner.log().contains("INFO joined").then_some(()));
    for digest in ["", ", digest: 'u:wrong'"] {
        let port = free_port();
        let file = file(folder.path(), "stranger.yaml", &zookeeper, digest, &["closed", "open"], port);
        let mut stranger: Process = agent(&file, &folder.path().join("stranger"));
        eventually("the refusal is logged", PATIENCE, || {
            let log = stranger.log();
            (log.contains("the registry rejects a request of the job: access to `/closed")
                && log.contains("set the digest"))
            .then_some(())
        });
        eventually("the other job runs", PATIENCE, || stranger.log().contains("INFO joined").then_some(()));
        eventually("it is in /readyz", PATIENCE, || {
            is_ready(port, "job `closed` has not joined: access to `/closed").then_some(())
        });
        // A quiet time: a warning that repeats each second would do so in it.
        elasticjob_tests::pause(Duration::from_secs(5));
        let warned = stranger.log().matches("the registry rejects").count();
        assert_eq!(warned, 1, "one line, not one a second: {}", stranger.log());
        assert!(!stranger.log().contains("diverged"), "the servers agree: {}", stranger.log());
        stranger.signal("TERM");
        assert_eq!(stranger.wait(PATIENCE).code(), Some(0), "{}", stranger.log());
    }
    let url = format!("zookeeper://{}/refusals", zookeeper.address());
    let explained = command().args(["--registry", &url, "job", "explain", "closed"]).output().expect("runs");
    assert_eq!(explained.status.code(), Some(1));
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(text.contains("registry") && text.contains("CAUSE") && text.contains("set the digest"), "{text}");
}

/// A command with a mistyped digest would create the namespace for a user that does not exist.
#[test]
fn a_command_creates_no_namespace() {
    let zookeeper = ZooKeeper::start();
    let url = format!("zookeeper://{}/refusals", zookeeper.address());
    for arguments in [&["job", "list"][..], &["server", "list"], &["job", "explain", "a"], &["job", "disable", "a"]] {
        let mut command = command();
        command.env("ELASTICJOB_DIGEST", "u:typo").args(["--registry", &url]).args(arguments);
        let output = command.output().expect("runs");
        let fails = arguments[0] == "job" && arguments[1] != "list";
        assert_eq!(output.status.success(), !fails, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), "right.yaml", &zookeeper, ", digest: 'u:p'", &["mine"], 0);
    let right = agent(&file, &folder.path().join("log"));
    eventually("the agent joins", PATIENCE, || right.log().contains("INFO joined").then_some(()));
}

/// Nodes that only the operator could read would be hidden from the agents: ZooKeeper does not even tell them that there is one.
#[test]
fn an_operator_with_a_digest_reaches_agents_without_one() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), "jobs.yaml", &zookeeper, "", &["open"], 0);
    let mut running = command();
    running.arg("agent").arg(&path).arg("-v");
    let running = Process::start(running, &folder.path().join("log"));
    eventually("it runs", PATIENCE, || running.log().contains("completed items").then_some(()));
    let url = format!("zookeeper://{}/refusals", zookeeper.address());
    let operate = |arguments: &[&str]| {
        let mut command = command();
        let output = command.env("ELASTICJOB_DIGEST", "op:op").args(["--registry", &url]).args(arguments).output();
        let output = output.expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    operate(&["shard", "disable", "open", "0"]);
    eventually("the agent hears of it", PATIENCE, || running.log().contains("the item was disabled").then_some(()));
    operate(&["shard", "enable", "open", "0"]);
    eventually("and of that", PATIENCE, || running.log().contains("the item was enabled").then_some(()));
    operate(&["job", "trigger", "open", "--wait"]);
    // In a job of the operator's own user, nodes stay closed.
    let own = file(folder.path(), "own.yaml", &zookeeper, ", digest: 'op:op'", &["own"], 0);
    let owner = agent(&own, &folder.path().join("owner"));
    eventually("it joins", PATIENCE, || owner.log().contains("INFO joined").then_some(()));
    operate(&["shard", "disable", "own", "0"]);
    let stranger = output(&["--registry", &url, "shard", "list", "own"], folder.path());
    assert!(!stranger.status.success(), "{}", String::from_utf8_lossy(&stranger.stdout));
}

/// The job of [`file`] with that many items, below a namespace that exists.
#[test]
fn a_right_that_is_missing_on_one_item_holds_up_that_item_alone_and_the_root_need_not_be_writable() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let path = file(folder.path(), "jobs.yaml", &zookeeper, "", &["two"], port);
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(
        &path,
        text.replace("shardingTotalCount: 1", "shardingTotalCount: 2").replace("'true'", "'echo ran'"),
    )
    .expect("a file");
    let ran = |process: &Process, item: u32, more: usize| {
        let log = process.log();
        let line = format!("item={item} stream=");
        (log.lines().filter(|l| l.contains("ran ") && l.contains(&line)).count() > more).then_some(())
    };
    let mut first = agent(&path, &folder.path().join("first"));
    eventually("both items run", PATIENCE, || ran(&first, 0, 0).and(ran(&first, 1, 0)));
    first.signal("TERM");
    assert_eq!(first.wait(PATIENCE).code(), Some(0), "{}", first.log());
    // As in a guarded cluster: only an administrator creates nodes at the top.
    zookeeper.set_acl("/", "world:anyone:ra");
    zookeeper.set_acl("/refusals/two/sharding/1", "world:anyone:ra");
    let second = agent(&path, &folder.path().join("second"));
    eventually("the other item runs", PATIENCE, || ran(&second, 0, 2));
    eventually("the refusal is logged", PATIENCE, || second.log().contains("access to `/two/sharding/1").then_some(()));
    eventually("and in /readyz", PATIENCE, || is_ready(port, "access to `/two/sharding/1").then_some(()));
    assert!(ran(&second, 1, 0).is_none(), "{}", second.log());
    zookeeper.set_acl("/refusals/two/sharding/1", "world:anyone:cdrwa");
    eventually("the item runs again", PATIENCE, || ran(&second, 1, 0));
    eventually("/readyz forgets the refusal", PATIENCE, || (!is_ready(port, "access to")).then_some(()));
    zookeeper.set_acl("/refusals", "world:anyone:cdwa");
    let url = format!("zookeeper://{}/refusals", zookeeper.address());
    let refused = output(&["--registry", &url, "job", "list"], folder.path());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("refuses this client") && !text.contains("waiting"), "it is not retried: {text}");
}

#[test]
fn a_job_that_cannot_be_read_is_listed_with_the_reason_and_hides_no_other_job() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), "jobs.yaml", &zookeeper, "", &["closed", "open"], 0);
    let agent = agent(&path, &folder.path().join("agent"));
    eventually("both jobs run", PATIENCE, || (agent.log().matches("INFO joined").count() == 2).then_some(()));
    zookeeper.set_acl("/refusals/closed/config", "world:anyone:a");
    let url = format!("zookeeper://{}/refusals", zookeeper.address());
    let list = |arguments: &[&str]| {
        let listed = output(&[&["--registry", &url, "job", "list"], arguments].concat(), folder.path());
        assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stderr));
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    let table = list(&[]);
    let line = |job: &str| table.lines().find(|line| line.starts_with(job)).unwrap_or_else(|| panic!("{job}: {table}"));
    assert!(line("closed").contains("access to `/closed/config` is denied"), "{table}");
    assert!(line("open").contains("OK") && !line("open").contains("denied"), "{table}");
    let server = table_of_first_server(&url, folder.path());
    assert!(list(&["--server", &server]).contains("open"), "{server}");
    zookeeper.set_acl("/refusals/closed/config", "world:anyone:cdrwa");
    assert!(!list(&[]).contains("denied"));
}

fn table_of_first_server(url: &str, folder: &Path) -> String {
    let listed = output(&["--registry", url, "server", "list", "--output", "json"], folder);
    let servers: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    servers[0]["serverIp"].as_str().expect("an address").to_owned()
}

/// The container `latch` is empty between two elections, and the server removes it.
#[test]
fn an_election_that_may_not_create_its_latch_is_reported_and_slows_down() {
    let zookeeper = ZooKeeper::start();
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let path = file(folder.path(), "jobs.yaml", &zookeeper, "", &["led"], port);
    let mut first = agent(&path, &folder.path().join("first"));
    eventually("it leads", PATIENCE, || first.log().contains("elected leader").then_some(()));
    first.signal("TERM");
    assert_eq!(first.wait(PATIENCE).code(), Some(0), "{}", first.log());
    let election = "/refusals/led/leader/election";
    zookeeper.shell(&["deleteall", &format!("{election}/latch")]);
    zookeeper.shell(&["create", &format!("{election}/kept")]);
    zookeeper.set_acl(election, "world:anyone:ra");
    let second = agent(&path, &folder.path().join("second"));
    eventually("the refusal is logged", PATIENCE, || {
        second.log().contains("access to `/led/leader/election/latch` in the namespace is denied").then_some(())
    });
    eventually("and in /readyz", PATIENCE, || is_ready(port, "access to `/led/leader/election/latch`").then_some(()));
    let failed = || {
        let (_, metrics) = crate::services::get(port, "/metrics")?;
        let name = "elasticjob_registry_failures_total{kind=\"commit\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
    };
    let before = eventually("the metric", PATIENCE, failed);
    // A quiet time, in which it would ask thousands of times.
    elasticjob_tests::pause(Duration::from_secs(5));
    let after = eventually("the metric", PATIENCE, failed);
    assert!(after - before < 20.0, "{} requests in five seconds", after - before);
    assert_eq!(second.log().matches("the registry rejects").count(), 1, "{}", second.log());
    zookeeper.set_acl(election, "world:anyone:cdrwa");
    eventually("it leads", PATIENCE, || second.log().contains("elected leader").then_some(()));
}

#[test]
fn a_quota_that_is_used_up_is_reported() {
    let zookeeper = ZooKeeper::start_with(free_port(), "enforceQuota=true\n");
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let path = file(folder.path(), "jobs.yaml", &zookeeper, "", &["full"], port);
    let agent = agent(&path, &folder.path().join("agent"));
    eventually("it runs", PATIENCE, || agent.log().contains("owns items").then_some(()));
    zookeeper.shell(&["setquota", "-N", "5", "/refusals"]);
    eventually("it is logged", PATIENCE, || {
        let log = agent.log();
        (log.contains("rejects a request on `/full/") && log.contains("the ZooKeeper quota of this path is exceeded"))
            .then_some(())
    });
    eventually("it is in /readyz", PATIENCE, || {
        is_ready(port, "the ZooKeeper quota of this path is exceeded").then_some(())
    });
    let url = format!("zookeeper://{}/refusals", zookeeper.address());
    let refused = output(&["--registry", &url, "job", "trigger", "full"], folder.path());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && text.contains("quota") && !text.contains("no connection"), "{text}");
    zookeeper.shell(&["delquota", "-N", "/refusals"]);
    eventually("/readyz forgets it", PATIENCE, || (!is_ready(port, "quota")).then_some(()));
}

#[test]
fn an_oversized_job_is_refused_by_its_name_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let parameters: Vec<String> = (0..8_000).map(|item| format!("{item}={}", "x".repeat(130))).collect();
    let text = format!(
        "elasticjob:\n  jobs:\n    large:\n      elasticJobType: SCRIPT\n      shardingTotalCount: 8000\n      shardingItemParameters: {}\n      props: {{script.command.line: 'true'}}\n",
        parameters.join(",")
    );
    std::fs::write(folder.path().join("jobs.yaml"), text).expect("a file");
    for command in ["check", "agent"] {
        let refused = output(&[command, "jobs.yaml"], folder.path());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("job `large`: key `shardingItemParameters`"), "{command}: {said}");
        assert!(said.contains("bytes, more than the limit of 409600"), "{command}: {said}");
        assert!(said.len() < 2_000, "{command}: the value is not repeated as a whole");
    }
}

/// A server whose `jute.maxbuffer` is lower than the default closes the connection without a reason.
#[test]
fn a_server_that_accepts_only_smaller_requests_is_reported_with_what_to_change() {
    let zookeeper = ZooKeeper::start_with_options(&["-Djute.maxbuffer=100000"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), "large.yaml", &zookeeper, "", &["large"], 0);
    let text = std::fs::read_to_string(&path).expect("the file");
    let description = format!("      description: '{}'\n", "d".repeat(150_000));
    std::fs::write(&path, text.replace("    large:\n", &format!("    large:\n{description}"))).expect("a file");
    let process = agent(&path, &folder.path().join("large"));
    eventually("the cause is logged", PATIENCE, || {
        let log = process.log();
        let line = log.lines().find(|line| line.contains("the connection ended after a request of 15"))?;
        line.contains("jute.maxbuffer=1048575").then_some(())
    });
}
