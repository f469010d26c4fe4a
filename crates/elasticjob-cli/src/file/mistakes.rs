//! Tests of mistakes that read like settings: databases, services, hosts, properties.

use super::tests::{checked, faults, no_environment, parse};
use super::*;

#[test]
fn a_relative_sqlite_path_begins_at_the_folder_of_the_file() {
    let folder = Path::new("/etc/jobs");
    for (url, expected) in [
        ("sqlite://trace.db", "sqlite:///etc/jobs/trace.db"),
        ("jdbc:sqlite:trace.db?x=y", "jdbc:sqlite:/etc/jobs/trace.db?x=y"),
        ("sqlite:trace.db", "sqlite:/etc/jobs/trace.db"),
        ("sqlite:///var/trace.db", "sqlite:///var/trace.db"),
        ("sqlite::memory:", "sqlite::memory:"),
        ("postgres://h/db", "postgres://h/db"),
        ("sqlite:", "sqlite:"),
    ] {
        assert_eq!(absolute_sqlite(url, folder), expected, "{url}");
    }
}

#[test]
fn a_sqlite_file_in_a_folder_that_does_not_exist_is_a_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.yaml");
    for (url, count) in [("sqlite://none/trace.db", 1), ("sqlite://trace.db?mode=rwc", 0)] {
        let text = format!(
            "elasticjob:\n  tracing: {{dataSource: {{url: '{url}'}}}}\n  jobs: {{a: {{elasticJobType: SCRIPT, shardingTotalCount: 1}}}}\n"
        );
        std::fs::write(&path, text).expect("a file");
        let faults = read(&path, &no_environment).faults;
        assert_eq!(faults.iter().filter(|fault| fault.text.contains("/none does not exist")).count(), count, "{url}");
        assert_eq!(faults.len(), count, "{faults:?}");
    }
}

#[test]
fn a_trace_in_what_is_no_database_is_a_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.yaml");
    std::fs::write(folder.path().join("empty.db"), "").expect("a file");
    for (url, told) in [
        ("sqlite:///etc", Some("/etc is not a file")),
        ("sqlite:///dev/null", Some("/dev/null is not a file")),
        ("sqlite://jobs.yaml", Some("jobs.yaml is not an SQLite database")),
        ("sqlite://elasticjob.db", Some("elasticjob.db is the file of the embedded registry")),
        ("sqlite://empty.db", None),
    ] {
        let text = format!(
            "elasticjob:\n  tracing: {{dataSource: {{url: '{url}'}}}}\n  jobs: {{a: {{elasticJobType: SCRIPT, shardingTotalCount: 1}}}}\n"
        );
        std::fs::write(&path, text).expect("a file");
        let faults = read(&path, &no_environment).faults;
        let found: Vec<&str> = faults.iter().map(|fault| fault.text.as_str()).collect();
        assert_eq!(found.len(), usize::from(told.is_some()), "{url}: {found:?}");
        assert!(told.is_none_or(|told| found[0].contains(told)), "{url}: {found:?}");
    }
}

#[test]
fn what_has_no_effect_or_never_works_is_found() {
    for name in ["x", "-1", "00", ""] {
        let props = format!("props: {{script.command.line: 'true', 'elasticjob.sharding.item.parameter.{name}': v}}");
        let found = checked(&format!("elasticJobType: SCRIPT, {props}")).0;
        assert!(found.iter().any(|fault| fault.contains("and the number of an item")), "{name}: {found:?}");
    }
    let long = "x".repeat(140_000);
    let found = checked(&format!("elasticJobType: SCRIPT, props: {{script.command.line: 'echo {long}'}}")).0;
    assert!(found.iter().any(|fault| fault.contains("a word of the command has 140000 bytes")), "{found:?}");
    let text = "elasticjob:\n  metrics: {enabled: true}\n  dump: {}\n  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n";
    let file = parse(text, &no_environment).expect("no faults");
    let warnings: Vec<&str> = file.warnings.iter().map(|warning| warning.text.as_str()).collect();
    for service in ["metrics", "dump"] {
        let line = format!("no `port` in `{service}`, so nothing is served");
        assert!(warnings.contains(&line.as_str()), "{warnings:?}");
    }
    for servers in ["a:1;b:2", "-:2181", "h:+2181", "256.1.1.1:2181", "a..b:1", "1.2.3:1"] {
        let found =
            faults(&format!("elasticjob: {{regCenter: {{serverLists: '{servers}', namespace: n}}, jobs: {{}}}}"));
        assert!(found.iter().any(|fault| fault.contains("serverLists")), "{servers}: {found:?}");
    }
    for servers in ["a_b.example.:2181", "[::1]:2181", "fe80::1%eth0:2181", "10.0.0.1:2181,zk-2:2181", "zk1.10x:1"] {
        let found =
            faults(&format!("elasticjob: {{regCenter: {{serverLists: '{servers}', namespace: n}}, jobs: {{}}}}"));
        assert!(!found.iter().any(|fault| fault.contains("serverLists")), "{servers}: {found:?}");
    }
}
