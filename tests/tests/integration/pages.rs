//! The pages of the documentation: each example is run as it stands, and prints what the page says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use elasticjob_tests::{Database, PASSWORD, Process, Server, Speech, USER, command, eventually, sqlite_rows};

const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The pages below `docs`, by their names there; those of the commands have transcripts, see `transcripts.rs`.
fn pages() -> BTreeSet<String> {
    let docs = root().join("docs");
    let mut found = BTreeSet::new();
    for folder in std::fs::read_dir(&docs).expect("the folder").flatten().filter(|e| e.path().is_dir()) {
        for page in std::fs::read_dir(folder.path()).expect("a folder").flatten() {
            // Pictures are not pages.
            if page.path().extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            found.insert(page.path().strip_prefix(&docs).expect("below").display().to_string());
        }
    }
    found
}

/// The ports of a page, each replaced by one that is free.
fn with_free_ports(text: &str) -> String {
    let ports = ["9888", "9100"];
    ports.iter().fold(text.to_owned(), |text, port| match text.contains(&format!("port: {port}")) {
        true => text.replace(port, &elasticjob_tests::free_port().to_string()),
        false => text,
    })
}

/// The blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Runs the file of a page with these variables; every line of its block `text` must be printed.
fn run(page: &str, folder: &Path, variables: &[(&str, String)]) -> (Process, String) {
    let text = std::fs::read_to_string(root().join("docs").join(page)).expect("the page");
    let text = with_free_ports(&text);
    let [yaml] = blocks(&text, "yaml").try_into().unwrap_or_else(|b| panic!("{page} has not one file: {b:?}"));
    let file = folder.join("elasticjob.yaml");
    std::fs::write(&file, yaml).expect("a file");
    let mut command = command();
    command.args(["agent", "-v"]).arg(&file).current_dir(folder).env("NO_COLOR", "1");
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let process = Process::start(command, &folder.join("log"));
    for line in blocks(&text, "text").iter().flat_map(|block| block.lines()) {
        eventually(&format!("{page}: {line}"), PATIENCE, || process.log().contains(line).then_some(()));
    }
    (process, text)
}

#[test]
fn every_page_has_an_example_that_is_run() {
    let lib = std::fs::read_to_string(root().join("crates/elasticjob/src/lib.rs")).expect("the library");
    let index = std::fs::read_to_string(root().join("docs/README.md")).expect("the index");
    let mut servers = BTreeSet::new();
    for page in pages() {
        assert!(index.contains(&format!("({page})")), "{page} is not in docs/README.md");
        if page.starts_with("commands/") {
            continue;
        }
        let text = std::fs::read_to_string(root().join("docs").join(&page)).expect("a page");
        let in_doctests = lib.contains(&format!("docs/{page}\")"));
        assert_eq!(!blocks(&text, "rust").is_empty(), in_doctests, "{page}: its programs are those that lib.rs has");
        if blocks(&text, "yaml").iter().any(|block| block.contains("${")) {
            servers.insert(page);
        } else if text.contains("```yaml") {
            let folder = tempfile::tempdir().expect("a folder");
            let (_process, text) = run(&page, folder.path(), &[]);
            for sql in blocks(&text, "sql") {
                let file = folder.path().join("trace.db");
                eventually(&sql, PATIENCE, || (!sqlite_rows(&file, &sql).is_empty()).then_some(()));
            }
        } else {
            assert!(in_doctests, "{page} has no example");
        }
    }
    // Those that need a server are run by the tests below.
    let tested = [
        "error-handlers/dingtalk.md",
        "error-handlers/email.md",
        "error-handlers/wechat.md",
        "jobs/http.md",
        "tracing/mysql.md",
        "tracing/postgresql.md",
    ];
    assert_eq!(servers, tested.map(str::to_owned).into());
}

#[test]
fn the_pages_that_call_a_server_reach_it() {
    let folder = || tempfile::tempdir().expect("a folder");
    let (here, web) = (folder(), Server::web(Speech::Tls));
    let address = |path: &str| format!("https://localhost:{}{path}", web.port());
    let authority = || web.authority().display().to_string();
    let variables = [("CLOSE_DAY_URL", address("/close-day")), ("CLOSE_DAY_CA", authority())];
    drop(run("jobs/http.md", here.path(), &variables));
    assert_eq!(web.asked()[0]["body"], "dry=true");

    let (here, mail) = (folder(), Server::smtp(Speech::Tls));
    let variables = [
        ("SMTP_HOST", "localhost".to_owned()),
        ("SMTP_PORT", mail.port().to_string()),
        ("SMTP_PASSWORD", "secret".to_owned()),
        ("SMTP_CA", mail.authority().display().to_string()),
    ];
    drop(run("error-handlers/email.md", here.path(), &variables));
    assert_eq!(mail.asked()[0]["to"], serde_json::json!(["ops@example.com", "on-call@example.com"]));

    let robots = Server::web(Speech::Plain);
    let robot = format!("http://localhost:{}/robot?access_token=t", robots.port());
    for (page, variable) in [("wechat", "WECHAT_ROBOT"), ("dingtalk", "DINGTALK_ROBOT")] {
        let here = folder();
        drop(run(&format!("error-handlers/{page}.md"), here.path(), &[(variable, robot.clone())]));
    }
    assert!(robots.asked().len() >= 2);
}

#[test]
fn the_pages_of_the_databases_leave_rows_there() {
    for (page, database) in [("postgresql", Database::postgres()), ("mysql", Database::mariadb())] {
        let folder = tempfile::tempdir().expect("a folder");
        let variables =
            [("TRACE_URL", database.url()), ("TRACE_USER", USER.to_owned()), ("TRACE_PASSWORD", PASSWORD.to_owned())];
        let (_process, text) = run(&format!("tracing/{page}.md"), folder.path(), &variables);
        let [sql] = blocks(&text, "sql").try_into().expect("one query");
        eventually(&sql, PATIENCE, || (!database.rows(&sql).is_empty()).then_some(()));
    }
}
