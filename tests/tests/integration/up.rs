//! `elasticjob up`: jobs, console and history in one process; and the due ledger that follows from the history.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use elasticjob_tests::{Database, HttpAnswer, Process, command, eventually, http, output};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn up(folder: &Path, arguments: &[&str], log: &str) -> Process {
    let mut command = command();
    command.arg("up").args(arguments).current_dir(folder).env("HOME", folder).env("TZ", "UTC");
    Process::start(command, &folder.join(log))
}

/// The newest link of the log: port and path.
fn link(process: &Process) -> (u16, String) {
    eventually("a link", PATIENCE, || {
        let log = process.log();
        let rest = log.rsplit("http://127.0.0.1:").next().filter(|rest| rest.contains("/login?token="))?;
        let (port, path) = rest.split([' ', '\n']).next()?.split_once('/')?;
        Some((port.parse().ok()?, format!("/{path}")))
    })
}

/// A browser that has opened a link.
struct Browser {
    port: u16,
    cookie: String,
}

impl Browser {
    fn open(process: &Process) -> Browser {
        let (port, path) = link(process);
        let answer = http(port, "GET", &path, &[], &[]).expect("an answer");
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{}", process.log());
        let cookie = answer.header("set-cookie").expect("a cookie");
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        Browser { port, cookie: cookie.split(';').next().unwrap_or_default().to_owned() }
    }

    fn send(&self, method: &str, path: &str) -> HttpAnswer {
        let headers = [("Cookie", self.cookie.as_str()), ("X-Requested-With", "test")];
        http(self.port, method, path, &headers, &[]).expect("an answer")
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path);
        assert_eq!(answer.status, 200, "{path}: {}", text(&answer.body));
        answer.json()
    }
}

#[test]
fn a_newcomer_opens_the_link_and_sees_jobs_history_due_times_events_and_the_timeline() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = up(folder.path(), &["--port", "0"], "log");
    let browser = Browser::open(&process);
    let ran = |ledger: &Value| {
        let dues = ledger["dues"].as_array().expect("due times");
        dues.iter().filter(|due| due["fate"] == "ran" && due["items"].as_array().is_some_and(|i| i.len() == 3)).count()
    };
    eventually("two due times at which all items ran", PATIENCE, || {
        (ran(&browser.get("/api/v1/jobs/hello/ledger?n=10")) >= 2).then_some(())
    });
    let overview = browser.get("/api/v1/overview");
    assert_eq!((&overview["jobs"], &overview["attention"]), (&Value::from(2), &Value::Array(Vec::new())));
    assert!(overview["runs"]["total"].as_u64().is_some_and(|total| total >= 6), "{overview}");
    let events = browser.get("/api/v1/events?job=hello&kind=joined");
    assert_eq!(events["total"], 1, "{events}");
    assert!(events["events"][0]["message"].as_str().is_some_and(|line| line.starts_with("joined instance=")));
    let timeline = browser.get("/api/v1/timeline?job=hello");
    assert!(timeline["runs"].as_array().is_some_and(|runs| runs.len() >= 6), "{timeline}");
    let now = timeline["now"].as_i64().expect("a time");
    let ahead = browser.get(&format!("/api/v1/timeline?job=hello&from={now}&to={}", now + 60_000));
    assert!(ahead["planned"][0]["dues"].as_array().is_some_and(|dues| dues.len() >= 29), "{ahead}");

    // The registry and the trace of the process are there, and stay.
    let centres = browser.get("/api/v1/centres");
    assert_eq!((&centres[0]["name"], &centres[0]["own"]), (&Value::from("elasticjob.db"), &Value::from(true)));
    assert_eq!(browser.get("/api/v1/trace-stores")[0]["own"], true);
    let refused = browser.send("DELETE", "/api/v1/centres/elasticjob.db");
    assert_eq!(refused.status, 400);
    assert!(text(&refused.body).contains("is that of this process; it cannot be removed"), "{}", text(&refused.body));
    let trace = folder.path().join("elasticjob-trace.db");
    let mode = std::fs::metadata(&trace).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "other users of the host may not read what jobs print");

    // The commands find the history too.
    let history = output(&["job", "history", "hello", "--limit", "3"], folder.path());
    assert_eq!(text(&history.stdout).matches("SUCCESS").count(), 3, "{}", text(&history.stderr));
    let ledger = output(&["job", "ledger", "hello", "--limit", "5"], folder.path());
    assert!(text(&ledger.stdout).contains("3 ran"), "{}{}", text(&ledger.stdout), text(&ledger.stderr));

    process.signal("INT");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
}

#[test]
fn a_link_logs_in_once_and_the_log_then_has_the_next_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = up(folder.path(), &["--port", "0"], "log");
    let (port, first) = link(&process);
    let answer = |method: &str, path: &str| http(port, method, path, &[], &[]).expect("an answer");
    assert_eq!(answer("GET", "/api/v1/jobs").status, 401, "no user is logged in without a link");
    let current = answer("GET", "/api/v1/session").json();
    assert_eq!((&current["me"], &current["passwords"]), (&Value::Null, &Value::from(false)));
    let default_login = br#"{"username": "root", "password": "root"}"#;
    let login = http(port, "POST", "/api/v1/session", &[("Content-Type", "application/json")], default_login);
    assert_eq!(login.expect("an answer").status, 403, "there is no default password");
    // A program that previews links does not use it up.
    assert_eq!(answer("HEAD", &first).header("set-cookie"), None);
    assert_eq!(answer("GET", "/login?token=guess").header("location"), Some("/?link=used"));
    let browser = Browser::open(&process);
    assert_eq!(browser.get("/api/v1/me")["username"], "admin");
    assert_eq!(answer("GET", &first).header("location"), Some("/?link=used"));
    let (_, second) = link(&process);
    assert_ne!(first, second);
    let other = Browser::open(&process);
    assert_ne!(browser.cookie, other.cookie);
    assert_eq!((browser.send("GET", "/api/v1/me").status, other.send("GET", "/api/v1/me").status), (200, 200));
}

#[test]
fn a_port_that_is_in_use_keeps_no_job_from_running() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let refused = command().args(["up", "--port", &port]).current_dir(folder.path()).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
    let line = format!("elasticjob: --port: cannot listen on 127.0.0.1:{port}");
    assert!(text(&refused.stderr).contains(&line), "{}", text(&refused.stderr));
    // Without a choice of the user, two of them get a port each.
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let both = folders.each_ref().map(|folder| up(folder.path(), &[], "log"));
    let ports = both.each_ref().map(|process| link(process).0);
    assert_ne!(ports[0], ports[1]);
    for process in &both {
        eventually("it runs", PATIENCE, || process.log().contains("hello from item").then_some(()));
    }
    let without = up(folder.path(), &["--no-console"], "log");
    eventually("it runs", PATIENCE, || without.log().contains("hello from item").then_some(()));
    assert!(!without.log().contains("console"), "{}", without.log());
}

/// In each database: what ran, what was skipped with its reason, what a disabled item did not run.
#[test]
fn the_due_ledger_tells_what_became_of_each_due_time_in_each_database() {
    let databases = [Database::postgres(), Database::mariadb()];
    let sqlite = tempfile::tempdir().expect("a folder");
    let mut sources = vec![(
        format!("  tracing:\n    dataSource: {{ url: 'sqlite://{}' }}\n", sqlite.path().join("trace.db").display()),
        "sqlite".to_owned(),
    )];
    sources.extend(databases.iter().map(|database| (database.tracing(), database.url())));
    for (tracing, name) in sources {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("jobs.yaml");
        // Item 1 takes longer than its period, and is not caught up.
        let job = "    job:\n      elasticJobType: SCRIPT\n      cron: '0/2 * * * * ?'\n      shardingTotalCount: 3\n      misfire: false\n      \
                   props: { script.command.line: \"sh -c 'test $ELASTICJOB_SHARDING_ITEM != 1 || sleep 3'\" }\n";
        std::fs::write(&file, format!("elasticjob:\n{tracing}  jobs:\n{job}")).expect("a file");
        let process = up(folder.path(), &[file.to_str().expect("a path"), "--no-console"], "log");
        eventually("it runs", PATIENCE, || process.log().contains("skipped a firing").then_some(()));
        let disabled = output(&["shard", "disable", "job", "2"], folder.path());
        assert!(disabled.status.success(), "{}", text(&disabled.stderr));
        let ledger = || {
            let file = file.to_str().expect("a path");
            let found =
                output(&["--output", "json", "job", "ledger", "job", "--file", file, "--limit", "30"], folder.path());
            assert!(found.status.success(), "{name}: {}", text(&found.stderr));
            serde_json::from_slice::<Value>(&found.stdout).expect("JSON")
        };
        let fates = |item: usize, fate: &str, reason: &str| {
            let found = ledger();
            let dues = found.as_array().expect("due times").clone();
            let is = |due: &&Value| {
                let item = &due["items"][item];
                item["fate"] == fate && item["reason"] == reason
            };
            dues.iter().filter(is).count()
        };
        for (item, fate, reason) in [
            (0, "ran", ""),
            (1, "ran", ""),
            (1, "skipped", "the previous run has not completed, and misfire is off"),
            (2, "skipped", "the item was disabled"),
            (0, "unknown", "the recorded history begins later"),
        ] {
            eventually(&format!("{name}: item {item} {fate} {reason}"), PATIENCE, || {
                (fates(item, fate, reason) >= 1).then_some(())
            });
        }
        let missed =
            output(&["job", "ledger", "job", "--file", file.to_str().expect("a path"), "--missed"], folder.path());
        let shown = text(&missed.stdout);
        assert!(shown.contains("1 skipped") && !shown.lines().any(|line| line.contains("3 ran")), "{shown}");
    }
}

#[test]
fn a_ledger_that_cannot_be_made_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.yaml");
    let job = "elasticjob:\n  jobs:\n    once:\n      elasticJobType: SCRIPT\n      shardingTotalCount: 1\n      props: { script.command.line: 'true' }\n    \
               daily:\n      elasticJobType: SCRIPT\n      cron: 0 0 3 * * ?\n      shardingTotalCount: 1\n      props: { script.command.line: 'true' }\n";
    std::fs::write(&file, job).expect("a file");
    let mut agent = command();
    agent.arg("agent").arg(&file);
    let agent = Process::start(agent, &folder.path().join("log"));
    eventually("it joins", PATIENCE, || (agent.log().matches("joined").count() >= 2).then_some(()));
    for (arguments, code, line) in [
        (vec!["none"], 1, "job `none` not found"),
        (vec!["once"], 1, "job `once` has no cron expression, so it has no due times"),
        (vec!["daily"], 1, "job `daily`: no run is recorded, because no event trace database is known"),
        (vec!["daily", "--until", "now"], 2, "--until `now`: expected a time like 2026-03-29T00:00:00Z"),
        (vec!["daily", "--limit", "0"], 2, "0 is not in 1..=10000"),
        (vec!["daily", "--database", "sqlite://none.db"], 1, "none.db"),
    ] {
        let found = output(&[&["job", "ledger"], arguments.as_slice()].concat(), folder.path());
        assert_eq!(found.status.code(), Some(code), "{arguments:?}: {}", text(&found.stderr));
        assert!(text(&found.stderr).contains(line), "{arguments:?}: {}", text(&found.stderr));
    }
    assert!(!folder.path().join("none.db").exists(), "a reader creates no file");
}
