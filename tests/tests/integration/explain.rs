//! `job explain` names what was planted, and nothing else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::instance_yaml;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{
    Journal, Process, ZooKeeper, agent, agent_with_clock, command, eventually, free_port, wall_clock_millis,
};

use crate::job_file;

const PATIENCE: Duration = Duration::from_secs(60);
const OFTEN: &str = "      cron: '* * * * * ?'\n";

struct Place {
    zookeeper: ZooKeeper,
    folder: tempfile::TempDir,
    journal: Journal,
}

impl Place {
    fn new(zookeeper: ZooKeeper) -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path());
        Place { zookeeper, folder, journal }
    }

    fn file(&self, seconds: &str) -> PathBuf {
        job_file(self.folder.path(), "job", &self.zookeeper.address(), &self.journal, 2, seconds, OFTEN)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// An agent that has run its items.
    fn agent(&self, seconds: &str) -> Process {
        let from = wall_clock_millis();
        let process = agent(&self.file(seconds), &self.log());
        eventually("it runs", PATIENCE, || self.journal.runs().iter().any(|r| r.start > from).then_some(()));
        process
    }

    fn command(&self, arguments: &[&str]) -> String {
        let (code, out, told) = run(&self.zookeeper.address(), self.folder.path(), arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {told}");
        out
    }

    fn causes(&self, job: &str) -> Vec<String> {
        causes(&self.command(&["job", "explain", job, "--output", "json"]))
    }

    /// Once the cluster has settled: what is planted works within a moment.
    fn explains(&self, expected: &[&str]) {
        let mut seen = Vec::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("the cause", Duration::from_secs(20), || {
                seen = self.causes("shared-job");
                (seen == expected).then_some(())
            });
        }));
        assert!(found.is_ok(), "expected {expected:?}, found {seen:?}");
        assert_eq!(self.causes("shared-job"), expected, "and it stays so");
    }
}

fn run(address: &str, folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = command();
    command.arg("--registry").arg(format!("zookeeper://{address}/tests")).args(arguments).current_dir(folder);
    let output = command.output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The checks that found a cause; every check must be there.
fn causes(json: &str) -> Vec<String> {
    let checks: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let checks = checks.as_array().expect("a list");
    assert_eq!(checks.len(), 15);
    let text = |check: &serde_json::Value, key: &str| check[key].as_str().expect("a text").to_owned();
    assert!(checks.iter().all(|check| !text(check, "evidence").is_empty()), "{json}");
    checks.iter().filter(|check| text(check, "verdict") == "CAUSE").map(|check| text(check, "check")).collect()
}

#[test]
fn what_operators_and_users_do_is_named_on_a_running_agent() {
    let place = Place::new(ZooKeeper::start());
    let mut process = place.agent("0");
    place.explains(&[]);
    let told = place.command(&["job", "explain", "shared-job"]);
    assert!(
        told.lines()
            .any(|line| line.starts_with("last firing") && line.contains("no firing is more than 60 s old yet")),
        "{told}"
    );

    let server = place.command(&["server", "list", "--output", "json"]);
    let server: serde_json::Value = serde_json::from_str(&server).expect("JSON");
    let ip = server[0]["serverIp"].as_str().expect("an IP").to_owned();
    for (plant, cure, cause) in [
        (vec!["server", "disable", &ip], vec!["server", "enable", &ip], "servers"),
        (vec!["job", "disable", "shared-job"], vec!["job", "enable", "shared-job"], "job"),
        (vec!["shard", "disable", "shared-job", "1"], vec!["shard", "enable", "shared-job", "1"], "disabled items"),
    ] {
        place.command(&plant);
        place.explains(&[cause]);
        place.command(&cure);
        place.explains(&[]);
    }

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stored = place.command(&["job", "config", "shared-job"]);
    let write = |text: String| {
        runtime.block_on(async {
            let settings = Settings::new(&place.zookeeper.address(), "tests");
            let registry = Zookeeper::connect(settings).expect("right settings");
            let session = conformance::session(&registry).await;
            let written = registry.commit(session, &[Op::set("/shared-job/config", text)]).await;
            assert!(matches!(written, Outcome::Committed { .. }), "{written:?}");
            registry.close().await;
        });
    };
    for wrong in [stored.replace("'* * * * * ?'", "every second"), "[".to_owned()] {
        assert_ne!(wrong, stored);
        write(wrong);
        place.explains(&["configuration"]);
        write(stored.clone());
        place.explains(&[]);
    }

    process.signal("TERM");
    process.wait(PATIENCE);
    place.explains(&["instances"]);
    let Place { mut zookeeper, folder, .. } = place;
    zookeeper.kill();
    let (code, out, told) =
        run(&zookeeper.address(), folder.path(), &["job", "explain", "shared-job", "--output", "json"]);
    assert_eq!((code, causes(&out)), (Some(1), vec!["registry".to_owned()]), "{told}");
}

#[test]
fn a_run_that_is_longer_than_its_period_is_a_misfire_that_is_pending() {
    let place = Place::new(ZooKeeper::start());
    let _process = place.agent("15");
    place.explains(&["misfire"]);
}

#[test]
fn clocks_that_are_off_are_named_ahead_and_behind() {
    for (off, word) in [(3_600, "ahead of"), (-3_600, "behind")] {
        let place = Place::new(ZooKeeper::start());
        let from = wall_clock_millis();
        let _process = agent_with_clock(&place.file("0"), &place.log(), off);
        eventually("it runs", PATIENCE, || place.journal.runs().iter().any(|r| r.start > from).then_some(()));
        place.explains(&["clocks"]);
        let told = place.command(&["job", "explain", "shared-job"]);
        assert!(
            told.contains(&format!("was 59 min {word} the registry's clock"))
                || told.contains(&format!("was 60 min {word} the registry's clock")),
            "{told}"
        );
    }
}

/// States that a live Rust instance would repair immediately are planted in a job whose instance only the registry knows.
#[test]
fn what_instances_would_mend_is_named_while_it_is_there() {
    let place = Place::new(ZooKeeper::start());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let registry = {
        let _inside = runtime.enter();
        Zookeeper::connect(Settings::new(&place.zookeeper.address(), "tests")).expect("right settings")
    };
    let commit = |ops: Vec<Op>| {
        runtime.block_on(async {
            let session = conformance::session(&registry).await;
            let written = registry.commit(session, &ops).await;
            assert!(matches!(written, Outcome::Committed { .. }), "{written:?}");
        });
    };
    let id = "10.0.0.1@-@7";
    let config = "cron: 0 0 0 1 1 ?\njobName: shared-job\nmisfire: true\nmonitorExecution: true\nprops: {script.command.line: 'true'}\nshardingTotalCount: 2\n";
    let job = |path: &str| format!("/shared-job{path}");
    let mut ops: Vec<Op> = [
        ("", "SCRIPT"),
        ("/config", config),
        ("/servers", ""),
        ("/servers/10.0.0.1", "ENABLED"),
        ("/instances", ""),
        ("/leader", ""),
        ("/leader/election", ""),
        ("/leader/failover", ""),
        ("/leader/failover/items", ""),
        ("/sharding", ""),
        ("/sharding/0", ""),
        ("/sharding/0/instance", id),
        ("/sharding/1", ""),
        ("/sharding/1/instance", id),
    ]
    .map(|(path, text)| Op::create(job(path), text))
    .into();
    ops.push(Op::ephemeral(job("/instances/10.0.0.1@-@7"), instance_yaml(id, "10.0.0.1")));
    ops.push(Op::ephemeral(job("/leader/election/instance"), id));
    commit(ops);
    place.explains(&[]);

    let gone = "10.0.0.9@-@1";
    let hour = Timestamp(wall_clock_millis() - 3_600_000);
    let off = format!("due={0} by={id} session=0000000000000001 begin=1 at={0}", hour.0);
    for (plant, cure, cause) in [
        (Op::delete(job("/leader/election/instance")), Op::ephemeral(job("/leader/election/instance"), id), "leader"),
        (Op::set(job("/leader/election/instance"), gone), Op::set(job("/leader/election/instance"), id), "leader"),
        (Op::delete(job("/sharding/1/instance")), Op::create(job("/sharding/1/instance"), id), "items"),
        (Op::set(job("/sharding/1/instance"), gone), Op::set(job("/sharding/1/instance"), id), "items"),
        (Op::create(job("/sharding/0/running"), gone), Op::delete(job("/sharding/0/running")), "marks"),
        (Op::create(job("/sharding/0/failover"), gone), Op::delete(job("/sharding/0/failover")), "marks"),
        (Op::create(job("/leader/failover/items/1"), ""), Op::delete(job("/leader/failover/items/1")), "marks"),
        (Op::create(job("/sharding/1/misfire"), ""), Op::delete(job("/sharding/1/misfire")), "misfire"),
        (Op::set(job("/sharding/0"), off), Op::set(job("/sharding/0"), ""), "clocks"),
        (Op::set(job("/config"), config.replace("1 1 ?", "1 1 ? 2020")), Op::set(job("/config"), config), "schedule"),
        (Op::delete(job("/servers/10.0.0.1")), Op::create(job("/servers/10.0.0.1"), "ENABLED"), "servers"),
    ] {
        commit(vec![plant]);
        place.explains(&[cause]);
        commit(vec![cure]);
        place.explains(&[]);
    }
    runtime.block_on(registry.close());
}

#[test]
fn an_unknown_job_and_a_registry_that_is_not_there() {
    let place = Place::new(ZooKeeper::start());
    let (code, out, told) = run(&place.zookeeper.address(), place.folder.path(), &["job", "explain", "none"]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{told}");
    assert!(told.ends_with("elasticjob: job `none` not found\n"), "{told}");
    let nobody = format!("127.0.0.1:{}", free_port());
    let (code, out, told) = run(&nobody, place.folder.path(), &["job", "explain", "none", "--output", "json"]);
    assert_eq!((code, causes(&out)), (Some(1), vec!["registry".to_owned()]), "{told}");
}
