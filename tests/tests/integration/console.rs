//! The console beside the answers that ElasticJob-UI gave to the same requests (`tests/vectors/console_api.json`), on a real
//! ZooKeeper and a real PostgreSQL.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elasticjob::JobDocument;
use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{
    Database, HttpAnswer, PASSWORD, Process, USER, ZooKeeper, command, eventually, free_port, http,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
/// Every node with its text.
type Nodes = BTreeMap<String, String>;

/// A console in a process of its own, with its home folder.
struct Console {
    process: Process,
    port: u16,
    token: String,
}

impl Console {
    fn start(home: &Path, properties: &str) -> Console {
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

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpAnswer {
        http(self.port, method, path, headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.process.log()))
    }

    /// Sends a JSON request with the token of the login, and gives the answer's JSON.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.call_on(method, path, body, &[])
    }

    fn call_on(&self, method: &str, path: &str, body: Option<&Value>, more: &[(&str, &str)]) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let headers = [&[("Content-Type", "application/json"), ("Access-Token", &self.token)], more].concat();
        self.send(method, path, &headers, body.as_bytes()).json()
    }
}

/// The dump service of an instance, which notes what it is asked.
fn dump_server(answer: String) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            notes.lock().expect("the notes").push(line.trim().to_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, asked)
}

/// The registry of the fixture.
struct Fixture {
    runtime: tokio::runtime::Runtime,
    /// By namespace.
    registries: BTreeMap<String, (Zookeeper, u64)>,
    nodes: BTreeMap<String, Vec<Value>>,
}

impl Fixture {
    fn new(zookeeper: &ZooKeeper, namespaces: &Value) -> Fixture {
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
    fn reset(&self) {
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

    fn snapshots(&self) -> BTreeMap<String, Nodes> {
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

/// What differs between two states, in the form of the vectors.
fn difference(before: &BTreeMap<String, Nodes>, after: &BTreeMap<String, Nodes>) -> Value {
    let mut found = serde_json::Map::new();
    for (namespace, old) in before {
        let new = &after[namespace];
        let created: serde_json::Map<_, _> =
            new.iter().filter(|(path, _)| !old.contains_key(*path)).map(|(p, d)| (p.clone(), json!(d))).collect();
        let deleted: Vec<&String> = old.keys().filter(|path| !new.contains_key(*path)).collect();
        let changed: serde_json::Map<_, _> = old
            .iter()
            .filter_map(|(path, data)| Some((path, data, new.get(path).filter(|other| *other != data)?)))
            .map(|(path, data, other)| (path.clone(), json!([data, other])))
            .collect();
        let mut one = serde_json::Map::new();
        if !created.is_empty() {
            one.insert("created".into(), created.into());
        }
        if !deleted.is_empty() {
            one.insert("deleted".into(), json!(deleted));
        }
        if !changed.is_empty() {
            one.insert("changed".into(), changed.into());
        }
        if !one.is_empty() {
            found.insert(namespace.clone(), one.into());
        }
    }
    found.into()
}

/// Puts configurations in one form: two texts of the same values are equal, and null is as good as absent.
fn normalized(change: &Value) -> Value {
    fn walk(value: &Value, is_config: bool) -> Value {
        match value {
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), walk(value, key.ends_with("/config")))).collect()
            }
            Value::Array(list) => {
                let mut list: Vec<Value> = list.iter().map(|value| walk(value, is_config)).collect();
                if !is_config && list.iter().all(|value| value.as_str().is_some_and(|text| text.starts_with('/'))) {
                    list.sort_by_key(|value| value.as_str().map(str::to_owned));
                }
                Value::Array(list)
            }
            Value::String(text) if is_config => match JobDocument::parse(text.as_bytes()) {
                Ok(mut document) => {
                    // Ours may keep the text of an element in another layout.
                    let squeezed = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
                    document.kept.iter_mut().for_each(|(_, text)| *text = squeezed(text));
                    json!(format!("{document:?}"))
                }
                Err(_) => value.clone(),
            },
            other => other.clone(),
        }
    }
    walk(change, false)
}

/// Puts the lists that have no order in one form: `model`, or a field of each element, as `model[].instances`.
fn sorted(answer: &Value, unordered: &Value) -> Value {
    let mut answer = answer.clone();
    let sort = |value: &mut Value| {
        if let Value::Array(list) = value {
            list.sort_by_key(Value::to_string);
        }
    };
    for place in unordered.as_array().into_iter().flatten().filter_map(Value::as_str) {
        match place.strip_prefix("model[].") {
            Some(field) => {
                for element in answer["model"].as_array_mut().into_iter().flatten() {
                    sort(&mut element[field]);
                }
            }
            None => sort(&mut answer[place]),
        }
    }
    answer
}

/// Secrets as they come back.
fn masked(answer: &Value) -> Value {
    match answer {
        Value::Object(map) => {
            let mask = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("digest" | "password", Value::String(text)) if !text.is_empty() => (key.clone(), json!("******")),
                _ => (key.clone(), masked(value)),
            };
            map.iter().map(mask).collect()
        }
        Value::Array(list) => list.iter().map(masked).collect(),
        other => other.clone(),
    }
}

/// Whether an answer is the expected one, in which `<any>` and the like stand for values.
fn matches(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            // The text of an error is not a part of the contract.
            let is_error = expected.get("errorCode").is_some_and(|code| *code != json!(0));
            found.len() == expected.len()
                && expected.iter().all(|(key, value)| {
                    (is_error && key == "errorMsg") || found.get(key).is_some_and(|found| matches(found, value))
                })
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, one)| matches(found, one))
        }
        (_, Value::String(text)) if text == "<any>" => true,
        (Value::Number(code), Value::String(text)) if text == "<400|500>" => {
            [400, 500].contains(&code.as_u64().unwrap_or(0))
        }
        (Value::String(_), Value::String(text)) if text == "<token>" => true,
        _ => found == expected,
    }
}

fn is_error(answer: &HttpAnswer) -> bool {
    let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
    (400..500).contains(&answer.status)
        || body.is_some_and(|body| {
            [json!(400), json!(500)].contains(&body["errorCode"]) && body["success"] == json!(false)
        })
}

/// One run of the recorded requests.
struct Replay {
    fixture: Fixture,
    values: Vec<(String, String)>,
    dumps: Arc<Mutex<Vec<String>>>,
    faults: Vec<String>,
    steps: usize,
}

impl Replay {
    /// Puts the values of this run into a text of the vectors.
    fn filled(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
    }

    fn filled_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.filled(text)),
            Value::Array(list) => list.iter().map(|value| self.filled_json(value)).collect(),
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), self.filled_json(value))).collect(),
            other => other.clone(),
        }
    }

    fn group(&mut self, group: &Value) {
        self.fixture.reset();
        let home = tempfile::tempdir().expect("a folder");
        let mut console = Console::start(home.path(), "auth.token_expires_after_seconds=3600\n");
        let mut old = String::new();
        let needs = group["needs"].as_str().expect("needs");
        if needs == "registry" || needs == "trace" {
            let namespace = match group["centre"].as_str().expect("a centre") {
                "lab" => "console-lab",
                other => other,
            };
            let centre = json!({"name": "lab", "zkAddressList": "${zk}", "namespace": namespace});
            self.prepare(&console, "/api/registry-center/add", &centre);
            self.prepare(&console, "/api/registry-center/connect", &json!({"name": "lab"}));
        }
        if needs == "trace" {
            let store = json!({"name": "trace", "driver": "org.postgresql.Driver", "url": "${pg_jdbc}",
                "username": "${pg_user}", "password": "${pg_password}"});
            self.prepare(&console, "/api/data-source/add", &store);
            self.prepare(&console, "/api/data-source/connect", &json!({"name": "trace"}));
        }
        let steps = group["steps"].as_array().expect("steps");
        for (index, step) in steps.iter().enumerate() {
            if step["restart"] == json!(true) {
                old.clone_from(&console.token);
                console.process.signal("TERM");
                assert!(console.process.wait(PATIENCE).success(), "{}", console.process.log());
                drop(console);
                console = Console::start(home.path(), "");
                continue;
            }
            self.steps += 1;
            if let Err(fault) = self.step(&console, &old, step, &steps[index..]) {
                self.faults.push(format!(
                    "{}: {} {}: {fault}",
                    step["id"], step["request"]["method"], step["request"]["path"]
                ));
            }
        }
        console.process.signal("TERM");
        assert!(console.process.wait(PATIENCE).success(), "{}", console.process.log());
    }

    fn prepare(&self, console: &Console, path: &str, body: &Value) {
        let answer = console.call("POST", path, Some(&self.filled_json(body)));
        assert_eq!(answer["model"], json!(true), "{path}: {answer}\n{}", console.process.log());
    }

    fn send(&self, console: &Console, old: &str, request: &Value) -> HttpAnswer {
        let fill = |text: &str| self.filled(text).replace("${token}", &console.token);
        let method = request["method"].as_str().expect("a method");
        let path = fill(request["path"].as_str().expect("a path"));
        let body = match (&request["json"], request["body"].as_str()) {
            (Value::Null, text) => fill(text.unwrap_or_default()),
            (json, _) => self.filled_json(json).to_string(),
        };
        let kind = request["content_type"].as_str().unwrap_or("application/json");
        let token = match request.get("token") {
            None => Some(console.token.clone()),
            Some(Value::String(text)) if text == "old" => Some(old.to_owned()),
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => None,
        };
        let mut headers: Vec<(String, String)> =
            token.map(|token| ("Access-Token".into(), token)).into_iter().collect();
        if ["POST", "PUT", "DELETE"].contains(&method) {
            headers.push(("Content-Type".into(), kind.into()));
        }
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            headers.push((name.clone(), fill(value.as_str().expect("a header"))));
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        console.send(method, &path, &headers, body.as_bytes())
    }

    fn step(&self, console: &Console, old: &str, step: &Value, rest: &[Value]) -> Result<(), String> {
        let is_write = step["write"] == json!(true) || step.get("registry_change").is_some();
        let before = is_write.then(|| self.fixture.snapshots());
        self.dumps.lock().expect("the notes").clear();
        let answer = self.send(console, old, &step["request"]);
        self.compare(console, old, step, rest, &answer)?;
        let deviation = step["deviation"]["id"].as_str().unwrap_or_default();
        if let Some(before) = before {
            let found = normalized(&difference(&before, &self.fixture.snapshots()));
            let is_refused = ["D2", "D3", "D8"].contains(&deviation);
            let expected = match step.get("registry_change") {
                Some(change) if !is_refused => normalized(change),
                _ => json!({}),
            };
            if found != expected {
                return Err(format!("registry: found {found}\nexpected {expected}"));
            }
        }
        if let Some(expected) = step["answer"].get("dump_connections") {
            let expected = if deviation == "D8" { json!([]) } else { expected.clone() };
            let found = json!(*self.dumps.lock().expect("the notes"));
            if found != expected {
                return Err(format!("dump connections: found {found}, expected {expected}"));
            }
        }
        Ok(())
    }

    fn compare(
        &self,
        console: &Console,
        old: &str,
        step: &Value,
        rest: &[Value],
        answer: &HttpAnswer,
    ) -> Result<(), String> {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let refuse = |expected: &str| Err(format!("found {} {text}\nexpected {expected}", answer.status));
        match step["loose"].as_str() {
            Some("any") => return Ok(()),
            Some("error") => return if is_error(answer) { Ok(()) } else { refuse("an error") },
            Some("slash") => {
                let is_success = answer.status == 200 && text.contains("\"success\":true");
                return if is_success { refuse("no success") } else { Ok(()) };
            }
            Some("404") => return if answer.status == 404 { Ok(()) } else { refuse("404") },
            Some("dump-error") => return if is_error(answer) { Ok(()) } else { refuse("an error") },
            _ => {}
        }
        let deviation = &step["deviation"];
        if deviation["id"] == json!("D9") {
            let is_open = answer.headers.iter().any(|(name, _)| name.starts_with("access-control"));
            return if answer.status == 200 && !is_open { Ok(()) } else { refuse("no CORS headers") };
        }
        let expected_status = step["answer"]["status"].as_u64().expect("a status");
        if u64::from(answer.status) != expected_status {
            return refuse(&format!("status {expected_status}"));
        }
        if !answer.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
            return refuse("JSON");
        }
        let found = sorted(&answer.json(), &step["unordered"]);
        let mut expected = match (deviation["answer"].as_str(), &deviation["answer"]) {
            (Some(words), _) if words.starts_with("<same as before") => {
                let same =
                    |other: &&Value| other["request"] == step["request"] && other["deviation"]["id"] != json!("D12");
                rest.iter().skip(1).find(same).expect("the same request later")["answer"]["json"].clone()
            }
            (Some(words), _) if words.starts_with("<as with order ") => {
                let order = words.trim_start_matches("<as with order ").trim_end_matches('>');
                let mut request = step["request"].clone();
                request["json"]["order"] = json!(order);
                self.send(console, old, &request).json()
            }
            (Some("<list that contains org.postgresql.Driver>"), _) => {
                let is_right = found["model"].as_array().is_some_and(|l| l.contains(&json!("org.postgresql.Driver")));
                return if is_right { Ok(()) } else { refuse("org.postgresql.Driver") };
            }
            (_, Value::Null) => self.filled_json(&step["answer"]["json"]),
            (_, answer) => self.filled_json(answer),
        };
        expected = masked(&sorted(&expected, &step["unordered"]));
        let mut found = found;
        // Another name of a key, which is null where it is not stored.
        if deviation["id"] == json!("D15")
            && let Some(model) = found["model"].as_object_mut()
            && model.get("jobExecutorThreadPoolSizeProviderType") == Some(&Value::Null)
        {
            model.remove("jobExecutorThreadPoolSizeProviderType");
        }
        if let Some(by) = step["sorted_by"].as_array() {
            is_sorted(&found["model"]["rows"], by, step["loose"] == json!("nulls-anywhere"))?;
            for answer in [&mut found, &mut expected] {
                if let Some(rows) = answer["model"]["rows"].as_array_mut() {
                    rows.sort_by_key(Value::to_string);
                }
            }
        }
        if matches(&found, &expected) {
            return Ok(());
        }
        for other in step["also_accepted"].as_array().into_iter().flatten() {
            let is_accepted = match other["answer"].get("<contains>") {
                Some(element) => found["model"].as_array().is_some_and(|list| list.contains(element)),
                None => matches(&found, &self.filled_json(&other["answer"])),
            };
            if is_accepted {
                return Ok(());
            }
        }
        refuse(&expected.to_string())
    }
}

/// Whether rows are in the order of a field.
fn is_sorted(rows: &Value, by: &[Value], nulls_anywhere: bool) -> Result<(), String> {
    let field = by[0].as_str().expect("a field");
    let values: Vec<&Value> = rows.as_array().into_iter().flatten().map(|row| &row[field]).collect();
    let values: Vec<&Value> = values.into_iter().filter(|value| !nulls_anywhere || !value.is_null()).collect();
    let rank = |value: &Value| match value {
        Value::Bool(flag) => (i64::from(*flag), String::new()),
        Value::Number(number) => (number.as_i64().unwrap_or_default(), String::new()),
        other => (0, other.as_str().unwrap_or_default().to_owned()),
    };
    let is_right = values.windows(2).all(|pair| match by[1].as_str() {
        Some("DESC") => rank(pair[0]) >= rank(pair[1]),
        _ => rank(pair[0]) <= rank(pair[1]),
    });
    if is_right { Ok(()) } else { Err(format!("the rows are not sorted by {field}: {values:?}")) }
}

/// The rows of the two tables, as they were recorded.
fn fill_trace(database: &Database, trace: &Value) {
    for statement in trace["ddl_postgresql"].as_array().expect("statements") {
        database.execute(statement.as_str().expect("a statement"));
    }
    let literal = |value: &Value| match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    };
    for table in ["JOB_EXECUTION_LOG", "JOB_STATUS_TRACE_LOG"] {
        let texts = |value: &Value| -> Vec<String> { value.as_array().expect("a list").iter().map(literal).collect() };
        let columns: Vec<&str> =
            trace[table]["columns"].as_array().expect("columns").iter().filter_map(Value::as_str).collect();
        let rows = trace[table]["rows"].as_array().expect("rows").iter();
        let rows: Vec<String> = rows.map(|row| format!("({})", texts(row).join(", "))).collect();
        database.execute(&format!("INSERT INTO {table} ({}) VALUES {}", columns.join(", "), rows.join(", ")));
    }
}

#[test]
fn the_answers_are_those_of_elasticjob_ui() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/console_api.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(vectors).expect("vectors")).expect("JSON");
    let (zookeeper, database) = (ZooKeeper::start(), Database::postgres());
    fill_trace(&database, &vectors["fixture"]["trace"]);
    let (dump_port, dumps) = dump_server(vectors["dump_text"].as_str().expect("a text").to_owned());
    let value = |name: &str, value: String| (name.to_owned(), value);
    let mut replay = Replay {
        fixture: Fixture::new(&zookeeper, &vectors["fixture"]["namespaces"]),
        values: vec![
            value("zk", zookeeper.address()),
            value("pg_jdbc", format!("jdbc:{}", database.url().replace("postgres:", "postgresql:"))),
            value("pg_user", USER.to_owned()),
            value("pg_password", PASSWORD.to_owned()),
            value("dump_port", dump_port.to_string()),
            value("closed_port", free_port().to_string()),
        ],
        dumps,
        faults: Vec::new(),
        steps: 0,
    };
    for group in vectors["groups"].as_array().expect("groups") {
        replay.group(group);
    }
    assert!(replay.steps > 300, "only {} requests were sent", replay.steps);
    assert!(replay.faults.is_empty(), "{} of {}:\n{}", replay.faults.len(), replay.steps, replay.faults.join("\n\n"));
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
    assert!(console.process.log().contains("refused a request of a read-only user"), "{}", console.process.log());
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
