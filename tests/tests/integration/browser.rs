//! The pages of the console in a real browser, on a real ZooKeeper with real jobs: `crates/elasticjob-console/ui/tests`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use elasticjob_core::tree::Op;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{Process, ZooKeeper, agent, command, eventually, output, sqlite_rows};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);
const HOSTILE: &str = "<img src=x onerror=document.title=1>";

/// The pages are a part of the binary.
#[test]
fn the_pages_do_what_their_tests_say() {
    let ui =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("crates/elasticjob-console/ui");
    assert!(ui.join("dist/index.html").exists(), "the pages are not built: run cargo xtask ui");
    let (zookeeper, home) = (ZooKeeper::start(), tempfile::tempdir().expect("a folder"));
    let file = home.path().join("jobs.yaml");
    let trace = home.path().join("trace.db");
    let job = |name: &str, items: u32, command: &str| {
        format!(
            "    {name}:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: {items}\n      description: text of {name}\n      props: {{ script.command.line: \"{command}\" }}\n"
        )
    };
    let jobs = [
        job("fine", 3, "true"),
        job("fails", 2, "sh -c 'echo step one; test $ELASTICJOB_SHARDING_ITEM = 0 || exit 3'"),
        job("off", 1, "true"),
    ];
    let text = format!(
        "elasticjob:\n  regCenter: {{ serverLists: '{}', namespace: pages }}\n  tracing: {{ dataSource: {{ url: 'sqlite://{}' }} }}\n  jobs:\n{}",
        zookeeper.address(),
        trace.display(),
        jobs.concat()
    );
    std::fs::write(&file, text).expect("a file");
    let agent = agent(&file, &home.path().join("agent.log"));
    eventually("the jobs run", PATIENCE, || (agent.log().matches("owns items").count() >= 3).then_some(()));
    eventually("the trace has a failed run", PATIENCE, || {
        let failed = "SELECT id FROM JOB_EXECUTION_LOG WHERE is_success = 0 AND complete_time IS NOT NULL";
        (trace.exists() && !sqlite_rows(&trace, failed).is_empty()).then_some(())
    });
    let url = format!("zookeeper://{}/pages", zookeeper.address());
    let disabled = output(&["--registry", &url, "job", "disable", "off"], home.path());
    assert!(disabled.status.success(), "{}", String::from_utf8_lossy(&disabled.stderr));

    // Jobs that no process of ours would create.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let registry = Zookeeper::connect(Settings::new(&zookeeper.address(), "pages")).expect("settings");
        let session = conformance::session(&registry).await;
        let mut ops = Vec::new();
        for (name, cron) in [("lost", "0 0 3 * * ?"), ("bad", "not a cron"), (HOSTILE, "0 0 3 * * ?")] {
            let config = format!("cron: {cron}\njobName: {}\nshardingTotalCount: 1\n", json!(name));
            ops.push(Op::create(format!("/{name}"), ""));
            ops.push(Op::create(format!("/{name}/config"), config.as_str()));
            ops.push(Op::create(format!("/{name}/servers"), ""));
            ops.push(Op::create(format!("/{name}/servers/10.0.0.9"), "ENABLED"));
        }
        let outcome = registry.commit(session, &ops).await;
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    });

    let properties = home.path().join("application.properties");
    std::fs::write(&properties, "auth.guest_username=guest\nauth.guest_password=see\n").expect("a file");
    let mut console = command();
    console.arg("console").arg(&properties).args(["--port", "0"]).env("HOME", home.path());
    let console = Process::start(console, &home.path().join("console.log"));
    let port: u16 = eventually("the console serves", PATIENCE, || {
        let log = console.log();
        log.split("serving the console on http://127.0.0.1:").nth(1)?.split(',').next()?.parse().ok()
    });
    let send = |token: Option<&str>, path: &str, body: serde_json::Value| {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(token.map(|token| ("Access-Token", token)));
        elasticjob_tests::http(port, "POST", path, &headers, body.to_string().as_bytes()).expect("an answer")
    };
    let login = send(None, "/api/v1/session", json!({"username": "root", "password": "root"})).json();
    let token = login["token"].as_str().expect("a token");
    let centre = json!({"name": "local", "address": zookeeper.address(), "namespace": "pages"});
    let empty = json!({"name": "empty", "address": zookeeper.address(), "namespace": "empty"});
    let store = json!({"name": "trace", "url": format!("sqlite://{}", trace.display())});
    for (path, body, status) in [
        ("/api/v1/centres", centre, 201),
        ("/api/v1/centres", empty, 201),
        ("/api/v1/centres/local/connect", json!({}), 204),
        ("/api/v1/trace-stores", store, 201),
        ("/api/v1/trace-stores/trace/connect", json!({}), 204),
    ] {
        let answer = send(Some(token), path, body);
        assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }

    let mut playwright = Command::new("npx");
    playwright.args(["playwright", "test"]).current_dir(&ui).env("CONSOLE_URL", format!("http://127.0.0.1:{port}"));
    playwright.env("FORCE_COLOR", "0").env("TZ", "UTC");
    let run = playwright.output().expect("npx");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    let passed = said.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default().trim().to_owned();
    assert!(passed.starts_with("25 passed"), "{passed}");
    assert!(!console.log().contains("panicked"), "{}", console.log());
}
