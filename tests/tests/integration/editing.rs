//! The editor of configurations: checked as instances check, nothing lost, nothing overwritten unseen.

use std::path::Path;
use std::time::Duration;

use elasticjob_core::tree::Op;
use elasticjob_registry::{Outcome, conformance};
use elasticjob_tests::{HttpAnswer, Process, command, eventually, http};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const JOB: &str = "elasticjob:\n  jobs:\n    job:\n      elasticJobType: SCRIPT\n      cron: '0 0 3 * * ?'\n      shardingTotalCount: 3\n      \
                   jobErrorHandlerType: EMAIL\n      props:\n        script.command.line: 'true'\n        email.host: mail.example\n        \
                   email.port: 25\n        email.username: ops\n        email.password: hunter2\n        email.from: a@b.example\n        \
                   email.to: c@d.example\n        note: http://user:secret@host/x\n";

struct Fixture {
    process: Process,
    port: u16,
    cookie: String,
}

impl Fixture {
    fn start(folder: &Path) -> Fixture {
        std::fs::write(folder.join("jobs.yaml"), JOB).expect("a file");
        let mut command = command();
        command.args(["up", "jobs.yaml", "--port", "0"]).current_dir(folder).env("HOME", folder).env("TZ", "UTC");
        let process = Process::start(command, &folder.join("log"));
        let (port, path) = eventually("a link", PATIENCE, || {
            let log = process.log();
            let rest = log.split("http://127.0.0.1:").nth(1)?.split([' ', '\n']).next()?.to_owned();
            let (port, path) = rest.split_once('/')?;
            Some((port.parse().ok()?, format!("/{path}")))
        });
        let answer = http(port, "GET", &path, &[], &[]).expect("an answer");
        let cookie = answer.header("set-cookie").expect("a cookie");
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        let fixture = Fixture { process, port, cookie };
        eventually("the job is stored", PATIENCE, || (fixture.send("GET", "", &[], None).status == 200).then_some(()));
        fixture
    }

    fn send(&self, method: &str, below: &str, more: &[(&str, &str)], body: Option<&Value>) -> HttpAnswer {
        let mut headers =
            vec![("Cookie", self.cookie.as_str()), ("X-Requested-With", "test"), ("Content-Type", "application/json")];
        headers.extend(more);
        let body = body.map(ToString::to_string).unwrap_or_default();
        let path = format!("/api/v1/jobs/job/config{below}");
        http(self.port, method, &path, &headers, body.as_bytes()).expect("an answer")
    }

    /// The stored text with masked secrets, and its tag.
    fn read(&self) -> (String, String) {
        let answer = self.send("GET", "", &[], None);
        let stored = answer.json();
        let etag = stored["etag"].as_str().expect("a tag").to_owned();
        assert_eq!(answer.header("etag"), Some(format!("\"{etag}\"").as_str()));
        (stored["yaml"].as_str().expect("a text").to_owned(), etag)
    }

    fn check(&self, yaml: &str) -> Value {
        let answer = self.send("POST", "/check", &[], Some(&json!({ "yaml": yaml })));
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    fn save(&self, yaml: &str, etag: &str) -> HttpAnswer {
        self.send("PUT", "", &[("If-Match", &format!("\"{etag}\""))], Some(&json!({ "yaml": yaml })))
    }
}

fn raw(folder: &Path) -> String {
    let output = elasticjob_tests::output(&["job", "config", "job"], folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_wrong_configuration_is_refused_while_it_is_typed_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::start(folder.path());
    let (yaml, etag) = fixture.read();
    let before = raw(folder.path());
    for (from, to, told) in [
        ("0 0 3 * * ?", "0 0 3 * *", "key `cron`:"),
        ("shardingTotalCount: 3", "shardingTotalCount: 0", "shardingTotalCount"),
        ("jobName: job", "jobName: other", "key `jobName`: expected `job`"),
        ("cron:", "timeZone: Mars\ncron:", "timeZone"),
        ("shardingItemParameters: ''", "shardingItemParameters: 7=x", "shardingItemParameters"),
        ("cron:", "corn: x\ncron:", "corn"),
        ("cron:", "- cron:", ""),
        ("ops", "***", "represents a secret"),
    ] {
        let wrong = yaml.replacen(from, to, 1);
        assert_ne!(wrong, yaml, "{from}");
        let checked = fixture.check(&wrong);
        let faults = checked["faults"].to_string();
        assert!(faults.contains(told) && faults.len() > 4, "{to}: {checked}");
        let answer = fixture.save(&wrong, &etag);
        assert_eq!(answer.status, 400, "{to}: {}", String::from_utf8_lossy(&answer.body));
        assert!(String::from_utf8_lossy(&answer.body).contains(told), "{to}");
    }
    let right = yaml.replacen("0 0 3 * * ?", "0 30 4 * * ?", 1);
    assert_eq!(fixture.send("PUT", "", &[], Some(&json!({ "yaml": right }))).status, 428);
    assert_eq!(fixture.save(&right, "1-99").status, 412);
    assert_eq!(raw(folder.path()), before);
}

#[test]
fn a_change_is_previewed_written_and_followed_and_loses_neither_secrets_nor_foreign_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::start(folder.path());
    // What another program has stored.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let foreign = "strange: [1, 2]\njobExtraConfigurations:\n- !!org.example.Other\n  key: value\n";
    runtime.block_on(async {
        let address = format!("embedded:{}", folder.path().join("elasticjob.db").display());
        let registry = elasticjob_registry::attach(&address).await.expect("the registry");
        let session = conformance::session(&*registry).await;
        let text = format!("{}{foreign}", raw(folder.path()).replace("jobExtraConfigurations: []\n", ""));
        let outcome = registry.commit(session, &[Op::set("/job/config", text.as_str())]).await;
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        registry.close().await;
    });
    let (yaml, etag) = fixture.read();
    for secret in ["hunter2", "user:secret"] {
        assert!(!yaml.contains(secret), "{yaml}");
    }
    let changed = yaml.replacen("0 0 3 * * ?", "0 30 4 * * ?", 1);
    let checked = fixture.check(&changed);
    assert_eq!(checked["faults"], json!([]), "{checked}");
    assert_eq!(checked["differences"], json!([{"key": "cron", "before": "0 0 3 * * ?", "after": "0 30 4 * * ?"}]));
    let fires: Vec<i64> = serde_json::from_value(checked["fires"].clone()).expect("times");
    assert_eq!(fires.len(), 10);
    assert!(fires.iter().all(|due| due.rem_euclid(86_400_000) == 16_200_000), "04:30 in UTC: {fires:?}");
    let answer = fixture.save(&changed, &etag);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_ne!(answer.json()["etag"].as_str(), Some(etag.as_str()));
    let stored = raw(folder.path());
    for kept in
        ["email.password: hunter2", "http://user:secret@host/x", "0 30 4 * * ?", "strange:", "!!org.example.Other"]
    {
        assert!(stored.contains(kept), "{kept}: {stored}");
    }
    let follows = || fixture.process.log().contains("0 30 4 * * ?").then_some(());
    eventually("the instance follows", PATIENCE, follows);
    assert!(!fixture.process.log().contains("hunter2"));
}

#[test]
fn of_two_users_the_second_sees_the_change_of_the_first_and_merges() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::start(folder.path());
    let (base, etag) = fixture.read();
    let first = base.replacen("0 0 3 * * ?", "0 30 4 * * ?", 1).replacen("25", "26", 1);
    assert_eq!(fixture.save(&first, &etag).status, 200);
    let second = base.replacen("shardingTotalCount: 3", "shardingTotalCount: 4", 1);
    let late = fixture.save(&second, &etag);
    assert_eq!(late.status, 412);
    assert!(String::from_utf8_lossy(&late.body).contains("nothing was written"));
    let merged = fixture.send("POST", "/merge", &[], Some(&json!({"yaml": second, "base": base}))).json();
    let yaml = merged["yaml"].as_str().expect("a text");
    assert!(yaml.contains("0 30 4 * * ?") && yaml.contains("shardingTotalCount: 4"), "{yaml}");
    assert_eq!(fixture.save(yaml, merged["etag"].as_str().expect("a tag")).status, 200);
    let stored = raw(folder.path());
    for kept in ["0 30 4 * * ?", "shardingTotalCount: 4", "email.port: '26'", "email.password: hunter2"] {
        assert!(stored.contains(kept), "{kept}: {stored}");
    }
}
