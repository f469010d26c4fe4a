//! The console: who may do what, its own API, registries and databases of each kind. `recorded.rs` compares it with ElasticJob-UI.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{Database, HttpAnswer, PASSWORD, Process, USER, ZooKeeper, command, eventually, http};
use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Every node with its text.
pub(crate) type Nodes = BTreeMap<String, String>;

/// A console in a process of its own, with its home folder.
pub(crate) struct Console {
    pub(crate) process: Process,
    port: u16,
    pub(crate) token: String,
}

impl Console {
    pub(crate) fn start(home: &Path, properties: &str) -> Console {
        let file = home.join("application.properties");
        std::fs::write(&file, properties).expect("a file");
        let mut command = command();
        command.arg("console").arg(&file).args(["--port", "0"]).env("HOME", home).env("TZ", "UTC");
        let process = Process::start(command, &home.join("console.log"));
        let port = eventually("the console serves", PATIENCE, || {
            let log = process.log();
            let rest = log.split("serving the console on http://127.0.0.1:").nth(1)?;
            rest.split(',').next()?.parse().ok()
        });
        let mut console = Console { process, port, token: String::new() };
        console.token = console.login("root", "root").expect("a token");
        console
    }

    fn login(&self, username: &str, password: &str) -> Option<String> {
        let body = json!({"username": username, "password": password});
        let answer =
            self.send("POST", "/api/login", &[("Content-Type", "application/json")], body.to_string().as_bytes());
        Some(answer.json()["model"]["accessToken"].as_str()?.to_owned())
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpAnswer {
        http(self.port, method, path, headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.process.log()))
    }

    /// Sends a JSON request with the token of the login, and gives the answer's JSON.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.call_on(method, path, body, &[])
    }

    fn call_on(&self, method: &str, path: &str, body: Option<&Value>, more: &[(&str, &str)]) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let headers = [&[("Content-Type", "application/json"), ("Access-Token", &self.token)], more].concat();
        self.send(method, path, &headers, body.as_bytes()).json()
    }
}

/// The registry of the fixture.
pub(crate) struct Fixture {
    runtime: tokio::runtime::Runtime,
    /// By namespace.
    registries: BTreeMap<String, (Zookeeper, u64)>,
    nodes: BTreeMap<String, Vec<Value>>,
}

impl Fixture {
    pub(crate) fn new(zookeeper: &ZooKeeper, namespaces: &Value) -> Fixture {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (mut registries, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        for (namespace, list) in namespaces.as_object().expect("namespaces") {
            let registry = runtime.block_on(async {
                let registry = Zookeeper::connect(Settings::new(&zookeeper.address(), namespace)).expect("settings");
                let session = conformance::session(&registry).await;
                (registry, session)
            });
            registries.insert(namespace.clone(), registry);
            nodes.insert(namespace.clone(), list.as_array().expect("nodes").clone());
        }
        Fixture { runtime, registries, nodes }
    }

    /// Every namespace as it was at the beginning.
    pub(crate) fn reset(&self) {
        self.runtime.block_on(async {
            for (namespace, (registry, session)) in &self.registries {
                let mut paths: Vec<String> = snapshot(registry).await.into_keys().collect();
                paths.reverse(); // children first
                let delete = paths.into_iter().map(Op::delete).collect();
                commit(registry, *session, delete).await;
                let create = self.nodes[namespace].iter().map(|node| {
                    let (path, data) =
                        (node["path"].as_str().expect("a path"), node["data"].as_str().unwrap_or_default());
                    match node["ephemeral"].as_bool() {
                        Some(true) => Op::ephemeral(path, data),
                        _ => Op::create(path, data),
                    }
                });
                commit(registry, *session, create.collect()).await;
            }
        });
    }

    pub(crate) fn snapshots(&self) -> BTreeMap<String, Nodes> {
        self.runtime.block_on(async {
            let mut found = BTreeMap::new();
            for (namespace, (registry, _)) in &self.registries {
                found.insert(namespace.clone(), snapshot(registry).await);
            }
            found
        })
    }
}

async fn commit(registry: &Zookeeper, session: u64, ops: Vec<Op>) {
    for part in ops.chunks(400) {
        let outcome = registry.commit(session, part).await;
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
}

/// Every node but the namespace itself, read level by level.
async fn snapshot(registry: &dyn Registry) -> Nodes {
    let mut found = Nodes::new();
    let mut level = vec![String::new()];
    while !level.is_empty() {
        let children =
            level.iter().map(|path| Query::Children(if path.is_empty() { "/".into() } else { path.clone() }));
        let answers = registry.read(children.collect()).await.expect("reads");
        let below = level.iter().zip(&answers).flat_map(|(path, answer)| {
            answer.children().iter().map(|name| format!("{path}/{name}")).collect::<Vec<_>>()
        });
        level = below.collect();
        let answers = registry.read(level.iter().cloned().map(Query::Node).collect()).await.expect("reads");
        let nodes = level.iter().zip(&answers).filter_map(|(path, answer)| Some((path.clone(), answer.node()?.text())));
        found.extend(nodes);
    }
    found
}

const BODY: (&str, &str) = ("Content-Type", "application/json");

/// A registry with one job and its one instance.
fn one_job(zookeeper: &ZooKeeper, namespace: &str, job: &str) -> Fixture {
    let config = format!("cron: 0/5 * * * * ?\njobName: {job}\nshardingTotalCount: 2\nmonitorExecution: true\n");
    let id = "10.0.0.1@-@7";
    let node = |path: String, data: &str| json!({"path": path, "data": data});
    let mut nodes = vec![
        node(format!("/{job}"), ""),
        node(format!("/{job}/config"), &config),
        node(format!("/{job}/servers"), ""),
        node(format!("/{job}/servers/10.0.0.1"), "ENABLED"),
        node(format!("/{job}/instances"), ""),
    ];
    nodes.push(json!({"path": format!("/{job}/instances/{id}"), "ephemeral": true,
        "data": elasticjob_core::wire::instance_yaml(id, "10.0.0.1")}));
    let fixture = Fixture::new(zookeeper, &json!({namespace: nodes}));
    fixture.reset();
    fixture
}

#[test]
fn a_guest_reads_everything_and_writes_nothing() {
    let zookeeper = ZooKeeper::start();
    let fixture = one_job(&zookeeper, "guests", "j");
    let home = tempfile::tempdir().expect("a folder");
    let mut console = Console::start(home.path(), "auth.guest_username=guest\nauth.guest_password=see\n");
    let centre = json!({"name": "a", "zkAddressList": zookeeper.address(), "namespace": "guests"});
    assert_eq!(console.call("POST", "/api/registry-center/add", Some(&centre))["model"], json!(true));
    assert_eq!(console.call("POST", "/api/registry-center/connect", Some(&centre))["model"], json!(true));
    let login = json!({"username": "guest", "password": "see"}).to_string();
    let answer = console.send("POST", "/api/login", &[BODY], login.as_bytes()).json();
    assert_eq!(answer["model"]["isGuest"], json!(true), "{answer}");
    console.token = answer["model"]["accessToken"].as_str().expect("a token").to_owned();
    let before = fixture.snapshots();
    for path in [
        "/api/jobs/getAllJobsBriefInfo",
        "/api/jobs/config/j",
        "/api/jobs/j/sharding",
        "/api/servers/getAllServersBriefInfo",
        "/api/servers/10.0.0.1/jobs",
        "/api/registry-center/load",
        "/api/data-source/load",
        "/api/event-trace/execution/jobNames",
    ] {
        assert_eq!(console.call("GET", path, None)["success"], json!(true), "{path}");
    }
    assert_eq!(console.call("POST", "/api/event-trace/status", Some(&json!({})))["success"], json!(true));
    for (method, path) in [
        ("POST", "/api/jobs/j/trigger"),
        ("POST", "/api/jobs/j/disable"),
        ("POST", "/api/jobs/j/enable"),
        ("POST", "/api/jobs/j/shutdown"),
        ("POST", "/api/jobs/j/sharding/0/disable"),
        ("POST", "/api/jobs/j/sharding/0/enable"),
        ("PUT", "/api/jobs/config"),
        ("DELETE", "/api/jobs/config/j"),
        ("POST", "/api/servers/10.0.0.1/disable"),
        ("POST", "/api/servers/10.0.0.1/enable"),
        ("POST", "/api/servers/10.0.0.1/shutdown"),
        ("DELETE", "/api/servers/10.0.0.1"),
        ("POST", "/api/servers/10.0.0.1/jobs/j/disable"),
        ("POST", "/api/servers/10.0.0.1/jobs/j/enable"),
        ("POST", "/api/servers/10.0.0.1/jobs/j/shutdown"),
        ("DELETE", "/api/servers/10.0.0.1/jobs/j"),
        ("POST", "/api/servers/10.0.0.1/9888/jobs/j/dump"),
        ("POST", "/api/registry-center/add"),
        ("POST", "/api/registry-center/connect"),
        ("DELETE", "/api/registry-center"),
        ("POST", "/api/data-source/add"),
        ("POST", "/api/data-source/connectTest"),
        ("POST", "/api/data-source/connect"),
        ("DELETE", "/api/data-source"),
    ] {
        let body = json!({"jobName": "j", "shardingTotalCount": 1, "name": "a"});
        let answer = console.call(method, path, Some(&body));
        assert_eq!(answer["errorCode"], json!(403), "{method} {path}: {answer}");
        assert_eq!(answer["errorMsg"], json!("user `guest` may only read"));
    }
    assert_eq!(fixture.snapshots(), before);
    assert_eq!(console.call("GET", "/api/registry-center/load", None)["model"][0]["activated"], json!(true));
    assert!(console.process.log().contains("console: request refused user=\"guest\""), "{}", console.process.log());
}

#[test]
fn a_request_names_its_registry_center_and_secrets_leave_neither_in_answers_nor_in_the_log() {
    let zookeeper = ZooKeeper::start();
    let _fixtures = [one_job(&zookeeper, "left", "l"), one_job(&zookeeper, "right", "r")];
    let home = tempfile::tempdir().expect("a folder");
    let console = Console::start(home.path(), "console.allowed-origins=https://ops.example\n");
    for (name, namespace) in [("left", "left"), ("右", "right")] {
        let centre =
            json!({"name": name, "zkAddressList": zookeeper.address(), "namespace": namespace, "digest": "u:hidden"});
        assert_eq!(console.call("POST", "/api/registry-center/add", Some(&centre))["model"], json!(true));
    }
    let none = console.call("GET", "/api/jobs/count", None);
    assert!(
        none["errorMsg"].as_str().is_some_and(|text| text.starts_with("no registry center is activated")),
        "{none}"
    );
    assert_eq!(
        console.call("POST", "/api/registry-center/connect", Some(&json!({"name": "left"})))["model"],
        json!(true)
    );
    let jobs = |centre: Option<&str>| -> Value {
        let more: Vec<(&str, &str)> = centre.map(|name| ("Registry-Center", name)).into_iter().collect();
        console.call_on("GET", "/api/jobs/getAllJobsBriefInfo", None, &more)
    };
    assert_eq!(jobs(None)["model"][0]["jobName"], json!("l"));
    assert_eq!(jobs(Some("右"))["model"][0]["jobName"], json!("r"));
    assert_eq!(jobs(Some("left"))["model"][0]["jobName"], json!("l"));
    assert_eq!(jobs(Some("none"))["errorMsg"], json!("registry center `none` not found"));
    let answer = console.call_on("POST", "/api/jobs/r/disable", None, &[("Registry-Center", "右")]);
    assert_eq!(answer["model"], json!(true), "{answer}");
    assert_eq!(jobs(Some("右"))["model"][0]["status"], json!("DISABLED"));
    let all = console.call("GET", "/api/registry-center/load", None);
    assert_eq!(all["model"][0]["digest"], json!("******"));
    assert!(!all.to_string().contains("hidden") && !console.process.log().contains("hidden"), "{all}");
    // Only the configured origin may call from a browser.
    for (origin, is_allowed) in [("https://ops.example", true), ("https://other.example", false)] {
        let headers = [("Access-Token", console.token.as_str()), ("Origin", origin)];
        let answer = console.send("GET", "/api/jobs/count", &headers, b"");
        let expected = is_allowed.then_some(origin);
        assert_eq!(answer.header("access-control-allow-origin"), expected, "{origin}");
    }
    let page = console.send("GET", "/", &[], b"");
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("frame-ancestors 'none'")));
}

#[test]
fn an_embedded_registry_is_a_center_while_its_agent_runs_and_while_it_does_not() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("jobs.yaml");
    let text = "elasticjob:\n  jobs:\n    here:\n      elasticJobType: SCRIPT\n      cron: '0 0 0 1 1 ?'\n      \
                shardingTotalCount: 1\n      props: { script.command.line: 'true' }\n";
    std::fs::write(&file, text).expect("a file");
    let console = Console::start(home.path(), "");
    let address = format!("embedded:{}", home.path().join("elasticjob.db").display());
    let centre = json!({"name": "file", "zkAddressList": address});
    assert_eq!(console.call("POST", "/api/registry-center/add", Some(&centre))["model"], json!(true));
    assert_eq!(console.call("POST", "/api/registry-center/connect", Some(&centre))["model"], json!(false));
    for _ in 0..2 {
        let mut agent = elasticjob_tests::agent(&file, &home.path().join("agent.log"));
        eventually("the job is listed", PATIENCE, || {
            let jobs = console.call_on("GET", "/api/jobs/getAllJobsBriefInfo", None, &[("Registry-Center", "file")]);
            (jobs["model"][0]["instanceCount"] == json!(1)).then_some(())
        });
        assert_eq!(console.call("POST", "/api/registry-center/connect", Some(&centre))["model"], json!(true));
        agent.signal("TERM");
        assert!(agent.wait(PATIENCE).success(), "{}", agent.log());
        let jobs = console.call("GET", "/api/jobs/getAllJobsBriefInfo", None);
        assert_eq!(jobs["model"][0]["status"], json!("CRASHED"), "{jobs}");
    }
}

#[test]
fn the_history_is_the_same_on_every_database() {
    let home = tempfile::tempdir().expect("a folder");
    let (postgres, mariadb) = (Database::postgres(), Database::mariadb());
    let sqlite = home.path().join("trace.db");
    let console = Console::start(home.path(), "");
    let urls = [
        (
            "postgres",
            "org.postgresql.Driver",
            format!("jdbc:postgresql:{}", postgres.url().trim_start_matches("postgres:")),
        ),
        ("mysql", "com.mysql.cj.jdbc.Driver", format!("jdbc:{}", mariadb.url())),
        ("sqlite", "org.sqlite.JDBC", format!("jdbc:sqlite:{}", sqlite.display())),
    ];
    // An agent writes the rows: two items that succeed, and one that fails.
    for (name, driver, url) in &urls {
        let text = format!(
            "elasticjob:\n  tracing:\n    type: RDB\n    dataSource: {{ url: '{url}', username: '{USER}', password: '{PASSWORD}' }}\n  \
             jobs:\n    of-{name}:\n      elasticJobType: SCRIPT\n      cron: '0/1 * * * * ?'\n      shardingTotalCount: 3\n      \
             props: {{ script.command.line: 'sh -c \"test $ELASTICJOB_SHARDING_ITEM -lt 2\"' }}\n"
        );
        let folder = home.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("jobs.yaml"), text).expect("a file");
        let mut agent = elasticjob_tests::agent(&folder.join("jobs.yaml"), &folder.join("agent.log"));
        let store = json!({"name": name, "driver": driver, "url": url, "username": USER, "password": PASSWORD});
        eventually("the store is added", PATIENCE, || {
            let answer = console.call("POST", "/api/data-source/add", Some(&store));
            (answer["model"] == json!(true)).then_some(())
        });
        assert_eq!(
            console.call("POST", "/api/data-source/add", Some(&store))["model"],
            json!(false),
            "a second of that name"
        );
        assert_eq!(console.call("POST", "/api/data-source/connect", Some(&store))["model"], json!(true));
        let failed =
            json!({"jobName": format!("of-{name}"), "isSuccess": false, "sort": "completeTime", "order": "DESC"});
        let page = eventually("a failed run is in the history", PATIENCE, || {
            let page = console.call("POST", "/api/event-trace/execution", Some(&failed));
            page["model"]["rows"]
                .as_array()
                .is_some_and(|rows| !rows[..].is_empty() && !rows[0]["completeTime"].is_null())
                .then_some(page)
        });
        agent.signal("TERM");
        assert!(agent.wait(PATIENCE).success(), "{}", agent.log());
        let row = &page["model"]["rows"][0];
        assert_eq!((&row["shardingItem"], &row["source"]), (&json!(2), &json!("NORMAL_TRIGGER")), "{row}");
        assert!(row["failureCause"].as_str().is_some_and(|cause| cause.contains("exit")), "{row}");
        assert!(row["startTime"].as_i64() <= row["completeTime"].as_i64(), "{row}");
        let all =
            |body: Value| console.call("POST", "/api/event-trace/execution", Some(&body))["model"]["total"].clone();
        let total = all(json!({})).as_u64().expect("a number");
        let parts = [true, false].map(|flag| all(json!({"isSuccess": flag})).as_u64().expect("a number"));
        assert_eq!(parts[0] + parts[1], total);
        let start = row["startTime"].as_i64().expect("a time");
        let between = json!({"startTimeFrom": start - 1, "startTimeTo": start + 1, "isSuccess": false});
        assert_eq!(all(between), json!(1), "{name}");
        assert_eq!(all(json!({"startTimeFrom": start, "startTimeTo": start, "isSuccess": false})), json!(0), "{name}");
        let names = console.call("GET", "/api/event-trace/execution/jobNames/of", None);
        assert_eq!(names["model"], json!([format!("of-{name}")]));
        let states = json!({"state": "TASK_ERROR", "sort": "source", "order": "asc", "pageSize": 2});
        let page = console.call("POST", "/api/event-trace/status", Some(&states));
        assert_eq!(page["model"]["rows"][0]["state"], json!("TASK_ERROR"), "{page}");
        assert!(!console.process.log().contains(PASSWORD));
    }
    assert_eq!(console.call("DELETE", "/api/data-source", Some(&json!({"name": "sqlite"})))["success"], json!(true));
    assert_eq!(console.call("POST", "/api/event-trace/execution", Some(&json!({})))["model"]["total"], json!(0));
}

/// Sends a request of a page: with the cookie, and with or without the header that only pages of the console send.
fn from_page(console: &Console, method: &str, path: &str, cookie: &str, marked: bool) -> HttpAnswer {
    let mut headers = vec![("Cookie", cookie)];
    if marked {
        headers.push(("X-Requested-With", "elasticjob"));
    }
    console.send(method, path, &headers, b"")
}

#[test]
fn the_own_api_has_http_codes_problems_and_sessions_that_other_sites_cannot_use() {
    let zookeeper = ZooKeeper::start();
    let fixture = one_job(&zookeeper, "own", "j");
    let home = tempfile::tempdir().expect("a folder");
    let console = Console::start(home.path(), "auth.guest_username=guest\nauth.guest_password=see\n");
    let centre = json!({"name": "own 中", "address": zookeeper.address(), "namespace": "own"});
    let status = |method: &str, path: &str, body: Option<&Value>| {
        let headers = [BODY, ("Access-Token", &console.token)];
        console.send(method, path, &headers, body.map(Value::to_string).unwrap_or_default().as_bytes())
    };
    assert_eq!(status("POST", "/api/v1/centres", Some(&centre)).status, 201);
    assert_eq!(status("POST", "/api/v1/centres", Some(&centre)).status, 409);
    let missing = status("POST", "/api/v1/centres", Some(&json!({"name": "x"})));
    assert_eq!((missing.status, missing.header("content-type")), (400, Some("application/problem+json")));
    assert!(missing.json()["detail"].as_str().is_some_and(|detail| detail.contains("`address`")), "{}", missing.json());
    assert_eq!(status("POST", "/api/v1/jobs/j/trigger", None).status, 409, "no center is connected");
    assert_eq!(status("POST", "/api/v1/centres/own%20%E4%B8%AD/connect", None).status, 204);

    // A browser: the cookie reads; it writes only with the header of the pages.
    let login = json!({"username": "root", "password": "root"}).to_string();
    let answer = console.send("POST", "/api/v1/session", &[BODY], login.as_bytes());
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    assert_eq!(from_page(&console, "GET", "/api/v1/me", &cookie, false).json()["writes"], json!(true));
    assert_eq!(from_page(&console, "POST", "/api/v1/jobs/j/disable", &cookie, false).status, 403);
    assert_eq!(from_page(&console, "GET", "/api/jobs/count", &cookie, true).json()["errorCode"], json!(403), "old API");
    let before = fixture.snapshots();
    assert_eq!(from_page(&console, "POST", "/api/v1/jobs/j/disable", &cookie, true).status, 200);
    assert_ne!(fixture.snapshots(), before);
    let job = status("GET", "/api/v1/jobs/j", None).json();
    assert_eq!((&job["states"][0]["kind"], &job["job"]["disabled"]), (&json!("disabled"), &json!(true)), "{job}");
    assert_eq!(from_page(&console, "POST", "/api/v1/jobs/j/enable", &cookie, true).status, 200);

    let overview = status("GET", "/api/v1/overview", None).json();
    assert_eq!((&overview["jobs"], &overview["instances"], &overview["items"]), (&json!(1), &json!(1), &json!(2)));
    assert_eq!((&overview["states"], &overview["runs"]), (&json!({"waiting": 1}), &Value::Null), "{overview}");
    assert_eq!(overview["next"][0]["name"], json!("j"));
    assert_eq!(status("POST", "/api/v1/jobs/j/items/1/disable", None).status, 200);
    let job = status("GET", "/api/v1/jobs/j", None).json();
    assert_eq!(job["items"][1]["disabled"], json!(true), "{job}");
    assert_eq!(job["instances"][0]["server"], json!("10.0.0.1"));
    let why = status("GET", "/api/v1/jobs/j/why", None).json();
    assert!(
        why.as_array().is_some_and(|checks| checks.iter().any(|check| check["verdict"] == json!("CAUSE"))),
        "{why}"
    );
    for (path, expected) in [
        ("/api/v1/jobs/none", 404),
        ("/api/v1/jobs/j?centre=none", 400),
        ("/api/v1/none", 404),
        ("/api/v1/fires?cron=61", 400),
        ("/api/v1/fires?cron=0%200%203%20*%20*%20%3F&zone=Mars", 400),
        ("/api/v1/runs?limit=0", 400),
    ] {
        let answer = status("GET", path, None);
        assert_eq!(answer.status, expected, "{path}: {}", answer.json());
        assert_eq!(answer.json()["status"], json!(expected));
    }
    for (method, path) in [
        ("POST", "/api/v1/jobs/none/disable"),
        ("POST", "/api/v1/jobs/j/items/7/disable"),
        ("DELETE", "/api/v1/jobs/none"),
    ] {
        assert_eq!(status(method, path, None).status, 404, "{path}");
    }
    let fires = status("GET", "/api/v1/fires?cron=0%200%203%20*%20*%20%3F&zone=UTC&n=2", None).json();
    let times = [0, 1].map(|index: usize| fires["times"][index].as_i64().expect("a time"));
    assert_eq!(times[1] - times[0], 24 * 60 * 60 * 1_000);
    assert_eq!(status("GET", "/api/v1/runs", None).json()["recorded"], json!(false));

    let login = json!({"username": "guest", "password": "see"}).to_string();
    let answer = console.send("POST", "/api/v1/session", &[BODY], login.as_bytes());
    let guest = answer.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a cookie").to_owned();
    assert_eq!(from_page(&console, "GET", "/api/v1/jobs", &guest, false).status, 200);
    let before = fixture.snapshots();
    for path in ["/api/v1/jobs/j/trigger", "/api/v1/jobs/j/shutdown", "/api/v1/centres", "/api/v1/trace-stores"] {
        assert_eq!(from_page(&console, "POST", path, &guest, true).status, 403, "{path}");
    }
    assert_eq!(fixture.snapshots(), before);
    assert_eq!(from_page(&console, "DELETE", "/api/v1/session", &cookie, true).status, 204);
    assert_eq!(from_page(&console, "GET", "/api/v1/me", &cookie, false).status, 401);
    assert_eq!(console.send("POST", "/api/v1/session", &[BODY], b"{}").status, 400);
    // A page of another site whose name was resolved to this host.
    for path in ["/", "/api/v1/session", "/api/jobs/count"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", console.port)).expect("a connection");
        stream.write_all(request.as_bytes()).expect("is sent");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 421"), "{path}: {answer}");
    }
    let document = console.send("GET", "/api/v1/openapi.json", &[], b"").json();
    assert_eq!(document["info"]["title"], json!("ElasticJob console"));
}

#[test]
fn servers_are_listed_with_their_jobs_and_each_request_that_changes_something_is_in_the_audit_log() {
    let zookeeper = ZooKeeper::start();
    let fixture = one_job(&zookeeper, "servers", "j");
    let home = tempfile::tempdir().expect("a folder");
    let console = Console::start(home.path(), "auth.guest_username=guest\nauth.guest_password=see\n");
    let send = |method: &str, path: &str, body: Option<&Value>, more: &[(&str, &str)]| {
        let headers = [&[BODY, ("Access-Token", console.token.as_str())], more].concat();
        console.send(method, path, &headers, body.map(Value::to_string).unwrap_or_default().as_bytes())
    };
    let get = |path: &str| send("GET", path, None, &[]).json();
    assert_eq!(get("/api/v1/servers")["servers"], json!([]), "no center is connected");
    let centre = json!({"name": "a", "address": zookeeper.address(), "namespace": "servers"});
    assert_eq!(send("POST", "/api/v1/centres", Some(&centre), &[]).status, 201);
    assert_eq!(send("POST", "/api/v1/centres/a/connect", None, &[]).status, 204);

    let line = |disabled: usize| json!({"ip": "10.0.0.1", "processes": 1, "java": true, "rust": false, "jobs": 1, "disabled": disabled, "items": 0, "running": 0});
    assert_eq!(get("/api/v1/servers")["servers"], json!([line(0)]));
    let detail = get("/api/v1/servers/10.0.0.1");
    let job = json!({"job": "j", "disabled": false, "instances": ["10.0.0.1@-@7"], "items": [], "running": []});
    assert_eq!(detail, json!({"server": line(0), "jobs": [job]}));
    assert_eq!(send("GET", "/api/v1/servers/10.0.0.9", None, &[]).status, 404);
    for (path, disabled) in [
        ("/api/v1/servers/10.0.0.1/disable", 1),
        ("/api/v1/servers/10.0.0.1/enable", 0),
        ("/api/v1/servers/10.0.0.1/jobs/j/disable", 1),
        ("/api/v1/servers/10.0.0.1/jobs/j/enable", 0),
    ] {
        assert_eq!(send("POST", path, None, &[]).status, 200, "{path}");
        assert_eq!(get("/api/v1/servers?centre=a")["servers"], json!([line(disabled)]), "{path}");
    }
    assert_eq!(send("POST", "/api/v1/servers/10.0.0.9/disable", None, &[]).status, 404);

    // A change of a configuration is in the log with both values, and without secrets.
    let stored = send("GET", "/api/v1/jobs/j/config", None, &[]);
    let etag = stored.header("etag").expect("a tag").to_owned();
    let yaml = stored.json()["yaml"].as_str().expect("text").replace("0/5 *", "0/7 *");
    let edited = json!({"yaml": format!("{yaml}\nprops:\n  wechat.webhook: https://hook.example/key\n")});
    assert_eq!(send("PUT", "/api/v1/jobs/j/config", Some(&edited), &[("If-Match", &etag)]).status, 200);

    // The guest, and a login that fails.
    let login = |name: &str, password: &str| {
        let body = json!({"username": name, "password": password}).to_string();
        console.send("POST", "/api/v1/session", &[BODY], body.as_bytes())
    };
    assert_eq!(login("guest", "wrong").status, 403);
    let guest = login("guest", "see").json()["token"].as_str().expect("a token").to_owned();
    let of_guest = |method: &str, path: &str| console.send(method, path, &[BODY, ("Access-Token", &guest)], b"").status;
    assert_eq!(of_guest("GET", "/api/v1/servers"), 200);
    assert_eq!(of_guest("POST", "/api/v1/servers/10.0.0.1/disable"), 403);
    assert_eq!(of_guest("GET", "/api/v1/audit"), 403, "the log is for administrators");
    assert_eq!(console.call("POST", "/api/servers/10.0.0.1/shutdown", None)["success"], json!(true), "the old API");

    let short = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("user"), text("act"), text("result"))
    };
    let audit = get("/api/v1/audit");
    let found: Vec<String> = audit["entries"].as_array().expect("entries").iter().map(short).collect();
    let expected = [
        "root POST /servers/10.0.0.1/shutdown done",
        "guest POST /servers/10.0.0.1/disable refused",
        "guest log in done",
        "guest log in refused",
        "root PUT /jobs/j/config done",
        "root POST /servers/10.0.0.9/disable failed",
        "root POST /servers/10.0.0.1/jobs/j/enable done",
        "root POST /servers/10.0.0.1/jobs/j/disable done",
        "root POST /servers/10.0.0.1/enable done",
        "root POST /servers/10.0.0.1/disable done",
        "root POST /centres/a/connect done",
        "root POST /centres done",
        "root log in done",
    ];
    assert_eq!(found, expected);
    assert_eq!((&audit["total"], &audit["entries"][0]["from"]), (&json!(expected.len()), &json!("127.0.0.1")));
    let change = audit["entries"][4]["change"].as_str().expect("a change").to_owned();
    assert!(change.contains("cron: `0/5 * * * * ?` → `0/7 * * * * ?`"), "{change}");
    assert!(change.contains("wechat.webhook: the default → `***`"), "{change}");
    let unknown = get("/api/v1/audit?result=failed");
    assert_eq!(
        (&unknown["total"], &unknown["entries"][0]["reason"]),
        (&json!(1), &json!("server `10.0.0.9` not found"))
    );
    assert_eq!(get("/api/v1/audit?text=CONFIG&user=root&limit=1")["total"], json!(1));
    assert_eq!(send("GET", "/api/v1/audit?limit=0", None, &[]).status, 400);

    // A server without instances is removed with its nodes.
    drop(fixture);
    eventually("the instance has left", PATIENCE, || {
        (get("/api/v1/servers")["servers"][0]["processes"] == json!(0)).then_some(())
    });
    assert_eq!(send("DELETE", "/api/v1/servers/10.0.0.1", None, &[]).status, 200);
    assert_eq!(get("/api/v1/servers")["servers"], json!([]));
}
