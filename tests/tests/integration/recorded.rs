//! The console beside the answers that ElasticJob-UI gave to the same requests (`tests/vectors/console_api.json`), on a real
//! ZooKeeper and a real PostgreSQL.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use elasticjob::JobDocument;
use elasticjob_tests::{Database, HttpAnswer, PASSWORD, USER, ZooKeeper, free_port};
use serde_json::{Value, json};

use crate::console::{Console, Fixture, Nodes, PATIENCE};

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
