//! What an agent serves beside its jobs: metrics, health, dumps, spans.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use elasticjob_tests::{Process, Server, Speech, ZooKeeper, command, eventually, free_port, output};

const PATIENCE: Duration = Duration::from_secs(30);

/// An answer of HTTP: its status, and everything after the head.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    get_under("localhost", port, path)
}

/// The same under another name of the host.
fn get_under(host: &str, port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// The value of one series.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

struct Agent {
    process: Process,
    port: u16,
    folder: tempfile::TempDir,
}

/// An agent with one job of two items, of which the second fails; `more` goes below `elasticjob`.
fn start(center: &str, command_line: &str, more: &str) -> Agent {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
    let text = format!(
        "elasticjob:\n{center}  metrics: {{port: {port}}}\n{more}  jobs:\n    report:\n      elasticJobType: SCRIPT\n      \
         cron: '* * * * * ?'\n      shardingTotalCount: 2\n      props:\n        script.command.line: {command_line}\n"
    );
    let file: PathBuf = folder.path().join("agent.yaml");
    std::fs::write(&file, text).expect("a file");
    let mut command = command();
    command.args(["agent", "-v"]).arg(&file).current_dir(folder.path());
    let process = Process::start(command, &folder.path().join("log"));
    Agent { process, port, folder }
}

impl Agent {
    /// Waits for an answer of `/readyz`.
    fn is_ready(&self, expected: u16, part: &str) {
        let mut last = None;
        eventually(&format!("/readyz says {expected} {part}"), PATIENCE, || {
            last = get(self.port, "/readyz");
            last.as_ref().is_some_and(|(status, text)| *status == expected && text.contains(part)).then_some(())
        });
    }

    fn metrics(&self) -> String {
        let (status, text) = get(self.port, "/metrics").expect("an answer");
        assert_eq!(status, 200);
        assert!(text.ends_with("# EOF\n"), "{text}");
        text
    }
}

#[test]
fn metrics_count_what_happens_and_health_follows_the_registry() {
    let mut zookeeper = ZooKeeper::start();
    let center = format!(
        "  regCenter: {{serverLists: '{}', namespace: metrics, sessionTimeoutMilliseconds: 4000}}\n",
        zookeeper.address()
    );
    let agent = start(&center, "sh -c 'test $ELASTICJOB_SHARDING_ITEM = 0'", "");
    agent.is_ready(200, "ready");
    let series =
        |outcome: &str| format!("elasticjob_runs_total{{job=\"report\",source=\"schedule\",outcome=\"{outcome}\"}}");
    let text = eventually("three runs of each item", PATIENCE, || {
        let text = agent.metrics();
        let counted = |outcome: &str| value(&text, &series(outcome)).unwrap_or_default();
        (counted("success") >= 3.0 && counted("failure") >= 3.0).then_some(text)
    });
    // Each run is in the counter and in the histogram, but for one that ends between the two.
    let runs: f64 = text
        .lines()
        .filter(|line| line.starts_with("elasticjob_runs_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    let lengths = value(&text, "elasticjob_run_seconds_count").expect("it is there");
    assert!((lengths - runs).abs() <= 2.0, "{text}");
    let lags = value(&text, "elasticjob_lag_seconds_count").expect("it is there");
    assert!(lags >= 6.0 && lags <= runs + 2.0, "{text}");
    for (series, expected) in [
        ("elasticjob_reshards_total{job=\"report\"}", 1.0),
        ("elasticjob_failovers_total{job=\"report\"}", 0.0),
        ("elasticjob_items_owned{job=\"report\"}", 2.0),
        ("elasticjob_leader{job=\"report\"}", 1.0),
        ("elasticjob_registry_up", 1.0),
        ("elasticjob_trace_dropped_total", 0.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}: {text}");
    }
    assert!(value(&text, "elasticjob_seconds_since_last_success{job=\"report\"}").expect("it is there") < 60.0);
    // Two transactions a firing, however many items.
    assert!(value(&text, "elasticjob_registry_requests_total{kind=\"commit\"}").expect("it is there") >= 2.0 * 3.0);
    for queue in ["worker", "commits", "trace", "handlers"] {
        assert!(value(&text, &format!("elasticjob_queue_length{{queue=\"{queue}\"}}")).is_some(), "{queue}: {text}");
    }

    zookeeper.kill();
    agent.is_ready(503, "registry: ");
    assert_eq!(get(agent.port, "/healthz"), Some((200, "ok\n".to_owned())), "it lives, and waits");
    let text = agent.metrics();
    assert_eq!(value(&text, "elasticjob_registry_up"), Some(0.0), "{text}");
    assert_eq!(value(&text, "elasticjob_joined{job=\"report\"}"), Some(0.0), "{text}");
    zookeeper.restart();
    agent.is_ready(200, "ready");
    assert_eq!(get(agent.port, "/else").map(|(status, _)| status), Some(404));
}

#[test]
fn a_run_that_is_too_long_counts_as_misfire_and_who_leaves_is_not_ready() {
    let mut agent = start("", "sh -c 'sleep 2.2; while [ -e stay ]; do sleep 0.1; done'", "");
    agent.is_ready(200, "ready");
    let text = eventually("a misfire", PATIENCE, || {
        let text = agent.metrics();
        value(&text, "elasticjob_misfires_total{job=\"report\"}").is_some_and(|count| count >= 2.0).then_some(text)
    });
    assert!(value(&text, "elasticjob_items_running{job=\"report\"}").is_some_and(|count| count <= 2.0), "{text}");
    // It runs until we let it go.
    let stay = agent.folder.path().join("stay");
    std::fs::write(&stay, "").expect("a file");
    eventually("it runs", PATIENCE, || {
        (value(&agent.metrics(), "elasticjob_items_running{job=\"report\"}") == Some(2.0)).then_some(())
    });
    agent.process.signal("TERM");
    agent.is_ready(503, "the process is shutting down");
    std::fs::remove_file(stay).expect("it is there");
    assert_eq!(agent.process.wait(PATIENCE).code(), Some(0));
}

/// Everything that the service says to this.
fn ask(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A process with a thousand connections that send nothing.
fn silent(port: u16, log: &std::path::Path) -> Process {
    let program = format!(
        "import socket, time\ns = [socket.create_connection(('127.0.0.1', {port})) for _ in range(1000)]\nprint('open', flush=True)\ntime.sleep(600)"
    );
    let mut python = std::process::Command::new("/usr/bin/python3");
    python.args(["-c", &program]);
    let process = Process::start(python, log);
    eventually("a thousand connections", PATIENCE, || process.log().contains("open").then_some(()));
    process
}

#[test]
fn health_answers_beside_a_thousand_silent_connections_and_under_local_names_only() {
    let agent = start("", "'true'", "");
    agent.is_ready(200, "ready");
    let silent = silent(agent.port, &agent.folder.path().join("silent"));
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(agent.port, path).expect("an answer").0, 200, "{path}");
    }
    drop(silent);
    let status = |host: &str| get_under(host, agent.port, "/metrics").expect("an answer").0;
    for (host, expected) in [
        ("localhost:9", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("10.0.0.1", 421),
    ] {
        assert_eq!(status(host), expected, "{host}");
    }
}

#[test]
fn the_dump_service_is_local_bounded_and_answers_next_to_those_who_do_not_ask() {
    let port = free_port();
    let agent = start("", "'true'", &format!("  dump: {{port: {port}}}\n"));
    agent.is_ready(200, "ready");
    let dump = ask(port, b"dump@report\n");
    assert!(
        dump.contains("\n/report/config | cron: '* * * * * ?'\n") && dump.contains("/report/servers/ip1 | "),
        "{dump}"
    );
    assert_eq!(ask(port, b"dump@none\n"), "\n", "as Java answers");
    for wrong in [&b"hello\n"[..], b"dump@\n", b"dump@a@b\n", b"dump@../x\n", b"\n"] {
        assert_eq!(ask(port, wrong), "", "{wrong:?}");
    }
    assert_eq!(ask(port, &vec![b'x'; 1 << 20]), "", "a line without end is not read to its end");

    // On the loopback alone, unless the file says otherwise.
    let server = output(&["server", "list", "--output", "json"], agent.folder.path());
    let server: serde_json::Value = serde_json::from_slice(&server.stdout).expect("JSON");
    let ip = server[0]["serverIp"].as_str().expect("an IP");
    if !ip.starts_with("127.") {
        assert!(TcpStream::connect((ip, port)).is_err(), "{ip} is not served");
    }

    // Clients that say nothing keep no other client out.
    let silent = silent(port, &agent.folder.path().join("silent"));
    assert!(ask(port, b"dump@report\n").contains("/report/config"));
    drop(silent);

    let told = output(&["job", "dump", "report", "--from", &format!("127.0.0.1:{port}")], agent.folder.path());
    assert!(told.status.success());
    let unknown = output(&["job", "dump", "none", "--from", &format!("127.0.0.1:{port}")], agent.folder.path());
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!((unknown.status.code(), text.contains("that process runs no job `none`")), (Some(1), true), "{text}");
}

#[test]
fn a_port_in_use_is_reported_and_the_jobs_run() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let agent = start("", "echo it runs", &format!("  dump: {{port: {port}}}\n"));
    eventually("it runs", PATIENCE, || agent.process.log().contains("it runs").then_some(()));
    let told = format!("dump service: cannot listen on 127.0.0.1:{port}");
    assert!(agent.process.log().contains(&told), "{}", agent.process.log());
}

#[test]
fn each_run_is_a_span_for_a_collector() {
    let collector = Server::web(Speech::Plain);
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command();
    command.args(["up"]).current_dir(folder.path());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", collector.port()));
    let mut process = Process::start(command, &folder.path().join("log"));
    eventually("a run", PATIENCE, || process.log().contains("hello from item 2").then_some(()));
    // What is on its way is sent at the end.
    process.signal("INT");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
    let spans: Vec<String> = collector
        .asked()
        .iter()
        .filter(|asked| asked["path"] == "/v1/traces")
        .filter_map(|asked| asked["body"].as_str().map(str::to_owned))
        .collect();
    let spans = spans.concat();
    for part in ["elasticjob::spans", "hello", "item", "fencing_token", "due", "schedule", "instance"] {
        assert!(spans.contains(part), "{part}: {spans:?}");
    }
    assert!(!process.log().contains("run{"), "the log has no spans: {}", process.log());
}

#[test]
fn ready_is_who_takes_part_in_each_job_but_for_those_that_an_operator_has_shut_down() {
    let zookeeper = ZooKeeper::start();
    let center = format!("  regCenter: {{serverLists: '{}', namespace: ready}}\n", zookeeper.address());
    let registry = format!("zookeeper://{}/ready", zookeeper.address());
    let agent = start(&center, "'true'", "");
    agent.is_ready(200, "ready");
    let joined = "elasticjob_joined{job=\"report\"}";
    let told = output(&["--registry", &registry, "job", "shutdown", "report"], agent.folder.path());
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    eventually("its series are gone", PATIENCE, || value(&agent.metrics(), joined).is_none().then_some(()));
    agent.is_ready(200, "ready");
    // The file brings it back.
    agent.process.signal("HUP");
    eventually("it is back", PATIENCE, || (value(&agent.metrics(), joined) == Some(1.0)).then_some(()));

    // Where the registry has a job of that name under another class, not all of the file runs.
    let other = start(&center, "'true'", "");
    other.is_ready(200, "ready");
    let file = other.folder.path().join("agent.yaml");
    let text = std::fs::read_to_string(&file).expect("the file");
    let (head, job) = text.split_once("    report:\n").expect("the job");
    let refused = job
        .replace("SCRIPT", "HTTP")
        .replace("script.command.line: 'true'", "http.uri: 'http://localhost/'\n        http.method: GET");
    std::fs::write(&file, format!("{head}    report:\n{refused}    fine:\n{job}")).expect("a file");
    other.process.signal("HUP");
    other.is_ready(503, "job `report` has not joined\n");
    eventually("the other one runs", PATIENCE, || {
        (value(&other.metrics(), "elasticjob_joined{job=\"fine\"}") == Some(1.0)).then_some(())
    });
    assert!(other.process.log().contains("with another class or job type"), "{}", other.process.log());
}

#[test]
fn the_file_moves_services() {
    let (first, second) = (free_port(), free_port());
    let agent = start("", "'true'", &format!("  dump: {{port: {first}}}\n"));
    agent.is_ready(200, "ready");
    assert!(!ask(first, b"dump@report\n").is_empty());
    let file = agent.folder.path().join("agent.yaml");
    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, text.replace(&format!("dump: {{port: {first}}}"), &format!("dump: {{port: {second}}}")))
        .expect("a file");
    agent.process.signal("HUP");
    eventually("it has moved", PATIENCE, || TcpStream::connect(("127.0.0.1", second)).ok().map(drop));
    assert!(TcpStream::connect(("127.0.0.1", first)).is_err(), "the old port is free");
    assert!(!ask(second, b"dump@report\n").is_empty());

    // Each gets the port of the other one.
    let text = std::fs::read_to_string(&file).expect("the file");
    let swapped = text.replace(&second.to_string(), "X").replace(&agent.port.to_string(), &second.to_string());
    std::fs::write(&file, swapped.replace('X', &agent.port.to_string())).expect("a file");
    agent.process.signal("HUP");
    eventually("metrics have moved", PATIENCE, || {
        get(second, "/readyz").filter(|(_, body)| body == "ready\n").map(drop)
    });
    assert!(!ask(agent.port, b"dump@report\n").is_empty());
    assert!(!agent.process.log().contains("cannot listen on"), "{}", agent.process.log());
    std::fs::write(&file, text).expect("a file");
    agent.process.signal("HUP");
    eventually("and back", PATIENCE, || get(agent.port, "/readyz").filter(|(_, body)| body == "ready\n").map(drop));
}
