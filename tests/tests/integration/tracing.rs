//! The event trace in real databases, beside Java.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elasticjob::registry::Link;
use elasticjob::{Plugins, ScheduleJob, TraceSettings};
use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use elasticjob_registry::Outcome;
use elasticjob_tests::{
    Database, Journal, Process, ZooKeeper, agent, eventually, free_port, java, logged, output, sqlite_rows,
};

use crate::job_file;
use crate::ways::{BOTH, Job, Way, connect, start_agent};

const PATIENCE: Duration = Duration::from_secs(60);

/// Puts the trace into a file of `job_file`.
fn traced(file: &Path, tracing: &str) {
    let text = std::fs::read_to_string(file).expect("a file");
    std::fs::write(file, text.replacen("  jobs:\n", &format!("{tracing}  jobs:\n"), 1)).expect("a file");
}

fn numbers(database: &Database, sql: &str) -> Vec<i64> {
    let rows = database.rows(sql);
    rows.iter().filter_map(|row| row[0].as_deref()?.trim().parse().ok()).collect()
}

/// Has a Rust instance alone trace a job, so that the tables are those that it creates.
fn create_tables(database: &Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job::new("SCRIPT", 1).prop("script.command.line", "true").yaml();
    let _agent = start_agent(folder.path(), &format!("elasticjob:\n{}  jobs:\n{job}", database.tracing()));
    eventually("a row", PATIENCE, || (!database.rows("SELECT id FROM JOB_STATUS_TRACE_LOG").is_empty()).then_some(()));
}

/// One Rust and one Java instance, two items each, one of which fails: both write into the same tables. Java starts first and
/// so the stored configuration has its data source, which the Rust instance then uses.
fn one_history(database: &Database, start_time: &str, order: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let zookeeper = ZooKeeper::start();
    let journal = Journal::new(folder.path());
    let more = "      cron: '* * * * * ?'\n      overwrite: false\n";
    let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, 4, "0", more);
    let untraced = folder.path().join("untraced.yaml");
    std::fs::copy(&file, &untraced).expect("a copy");
    traced(&file, &database.tracing());
    // Items 1 and 3 fail.
    let script = folder.path().join("record.sh");
    let recorded = std::fs::read_to_string(&script).expect("a script");
    std::fs::write(&script, format!("{recorded}[ $((item % 2)) = 0 ]\n")).expect("a script");
    let java = java(&["agent", file.to_str().expect("UTF-8")], &folder.path().join("java"));
    eventually("Java has started", PATIENCE, || java.log().contains("started 1").then_some(()));
    let rust = agent(&untraced, &folder.path().join("rust"));
    eventually("the agent has joined", PATIENCE, || rust.log().contains("INFO joined").then_some(()));
    let ended = "SELECT CAST(COUNT(*) AS CHAR(20)) FROM JOB_EXECUTION_LOG WHERE complete_time IS NOT NULL AND task_id LIKE '%@-@";
    eventually("each has traced twenty ends of items", PATIENCE, || {
        let of = |process: &Process| numbers(database, &format!("{ended}{}'", process.pid())).pop().unwrap_or_default();
        (of(&rust) >= 20 && of(&java) >= 20).then_some(())
    });
    drop((rust, java)); // killed: what they have begun may lack its end

    // Every item of every run: success is what the item is, with a cause exactly where it failed.
    let rows = database.rows(
        "SELECT CONCAT(sharding_item), CONCAT(is_success), failure_cause, execution_source, task_id, ip, hostname, job_name \
         FROM JOB_EXECUTION_LOG WHERE (complete_time IS NOT NULL OR failure_cause IS NOT NULL) AND job_name = 'shared-job'"
    );
    assert!(rows.len() >= 40);
    let mut causes = std::collections::BTreeSet::new();
    for row in &rows {
        let column = |index: usize| row[index].as_deref().unwrap_or_default();
        let item: u32 = column(0).parse().expect("an item");
        assert_eq!(["1", "true", "t"].contains(&column(1)), item.is_multiple_of(2), "{row:?}");
        assert_eq!(row[2].is_some(), !item.is_multiple_of(2), "{row:?}");
        if let Some(cause) = &row[2] {
            causes.insert(cause.lines().next().unwrap_or_default().to_owned());
        }
        assert!(["NORMAL_TRIGGER", "MISFIRE"].contains(&column(3)), "{row:?}");
        let parts: Vec<&str> = column(4).split("@-@").collect();
        assert_eq!((parts[0], parts[2], parts.len()), ("shared-job", "READY", 5), "{row:?}");
        assert!(parts[1].split(',').any(|i| i == column(0)), "the item is one of its task: {row:?}");
        assert_eq!((parts[3], column(7)), (column(5), "shared-job"), "{row:?}");
        assert!(!column(6).is_empty());
    }
    assert!(causes.contains("the script ended with exit code 1"), "{causes:?}");
    assert!(causes.iter().any(|c| c.contains("JobSystemException: Execute script failure.")), "{causes:?}");

    // Both clocks are one: the rows of both were written at the same local time.
    let local = jiff::Zoned::now().datetime();
    for row in database.rows(&format!("SELECT {start_time} FROM JOB_EXECUTION_LOG")) {
        let at: jiff::civil::DateTime = row[0].as_deref().expect("a time").parse().expect("a time");
        let off = local.duration_since(at).abs();
        assert!(off < jiff::SignedDuration::from_mins(5), "{at} is far from {local}");
    }

    command_tells_it(database, &zookeeper, folder.path());

    // Each run that ended has its three states in their order, from both sides, with the same words.
    let rows = database.rows(&format!(
        "SELECT task_id, state, source, execution_type, sharding_item, slave_id, original_task_id, message \
         FROM JOB_STATUS_TRACE_LOG WHERE job_name = 'shared-job' ORDER BY {order}"
    ));
    let mut sides: std::collections::BTreeMap<String, Vec<Vec<Option<String>>>> = Default::default();
    for row in rows {
        sides.entry(row[0].clone().expect("a task")).or_default().push(row);
    }
    let complete: Vec<_> = sides.values().filter(|rows| rows.len() >= 9).collect();
    assert!(complete.len() >= 2, "tasks of both sides: {:?}", sides.keys());
    for rows in complete {
        for state in ["TASK_STAGING", "TASK_RUNNING", "TASK_ERROR"] {
            let found: Vec<_> = rows.iter().filter(|row| row[1].as_deref() == Some(state)).collect();
            assert!(found.len() >= 2, "{state} in {rows:?}");
            for row in found {
                let column = |index: usize| row[index].as_deref().unwrap_or_default();
                assert_eq!((column(2), column(3), column(6)), ("LITE_EXECUTOR", "READY", ""), "{row:?}");
                let task: Vec<&str> = column(0).split("@-@").collect();
                assert_eq!(column(4), format!("[{}]", task[1].replace(',', ", ")), "{row:?}");
                assert_eq!(column(5), task[3], "{row:?}");
                match state {
                    "TASK_STAGING" => assert_eq!(column(7), "Job 'shared-job' execute begin."),
                    "TASK_RUNNING" => assert_eq!(column(7), ""),
                    _ => assert!(column(7).starts_with('{') && column(7).contains('='), "{row:?}"),
                }
            }
        }
    }
}

/// `job history` finds the database in the configuration that Java has stored, and prints the rows of both.
fn command_tells_it(database: &Database, zookeeper: &ZooKeeper, folder: &Path) {
    let registry = format!("zookeeper://{}/tests", zookeeper.address());
    let history = |more: &[&str]| -> Vec<serde_json::Value> {
        let asked = ["--registry", &registry, "job", "history", "shared-job", "--output", "json"];
        let told = output(&[&asked, more].concat(), folder);
        assert!(told.status.success(), "{more:?}: {}", String::from_utf8_lossy(&told.stderr));
        serde_json::from_slice(&told.stdout).expect("JSON")
    };
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let told = history(&["--limit", "100000"]);
    let rows = database.rows(
        "SELECT task_id, CONCAT(sharding_item), failure_cause FROM JOB_EXECUTION_LOG WHERE job_name = 'shared-job'",
    );
    let mut theirs: Vec<(String, String, String)> = rows
        .iter()
        .map(|row| {
            (row[0].clone().unwrap_or_default(), row[1].clone().unwrap_or_default(), row[2].clone().unwrap_or_default())
        })
        .collect();
    let mut ours: Vec<(String, String, String)> = told
        .iter()
        .map(|row| (text(row, "taskId"), row["shardingItem"].to_string(), text(row, "failureCause")))
        .collect();
    theirs.sort();
    ours.sort();
    assert_eq!(ours, theirs, "every row, of Java and of Rust");
    let starts: Vec<String> = told.iter().map(|row| text(row, "startTime")).collect();
    assert!(starts.is_sorted_by(|later, earlier| later >= earlier), "the latest first: {starts:?}");
    let parsed = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
    let off = parsed(&starts[0]).duration_since(jiff::Timestamp::now()).abs();
    assert!(off < jiff::SignedDuration::from_mins(5), "{off} from now: the zone is right");

    let failed = history(&["--failed", "--limit", "10"]);
    assert_eq!(failed.len(), 10);
    for row in &failed {
        assert!(
            row["success"] == false && !text(row, "failureCause").is_empty() && !text(row, "completeTime").is_empty()
        );
        assert_eq!(row["shardingItem"].as_u64().map(|item| item % 2), Some(1), "{row}");
    }
    let middle = &starts[starts.len() / 2];
    let later = history(&["--since", middle, "--limit", "100000"]);
    assert_eq!(later.len(), starts.iter().filter(|start| *start >= middle).count(), "since {middle}");
}

#[test]
fn java_and_rust_write_one_history_into_postgresql() {
    let database = Database::postgres();
    create_tables(&database);
    one_history(&database, "to_char(start_time, 'YYYY-MM-DD\"T\"HH24:MI:SS.MS')", "creation_time");
}

#[test]
fn java_and_rust_write_one_history_into_mariadb() {
    one_history(&Database::mariadb(), "DATE_FORMAT(start_time, '%Y-%m-%dT%H:%i:%s')", "auto_id");
}

/// An agent with a job that fires each second and that trace.
fn tracing_agent(folder: &Path, job: &str, tracing: &str) -> Process {
    start_agent(folder, &format!("elasticjob:\n{tracing}  jobs:\n{job}"))
}

fn script(command: &str) -> String {
    Job::new("SCRIPT", 1).prop("script.command.line", command).yaml()
}

const EXECUTIONS: &str = "SELECT id, job_name, execution_source, failure_cause FROM JOB_EXECUTION_LOG";

#[test]
fn each_database_gets_the_trace_of_the_agent_and_of_the_library() {
    let databases = [Database::postgres(), Database::mariadb()];
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("trace.db");
        let file_tracing = format!("  tracing:\n    dataSource: {{ url: 'sqlite://{}' }}\n", file.display());
        let mut sources: Vec<(Option<&Database>, String)> = vec![(None, file_tracing)];
        sources.extend(databases.iter().map(|database| (Some(database), database.tracing())));
        for (database, tracing) in sources {
            let name = format!("traced-by-{way:?}").to_lowercase();
            let _running: Box<dyn std::any::Any> = match way {
                Way::Agent => {
                    Box::new(tracing_agent(folder.path(), &script("true").replace("watched", &name), &tracing))
                }
                Way::Library => {
                    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
                    let handle = runtime.block_on(async {
                        let connection = connect(Plugins::default());
                        let url = database.map_or(format!("sqlite://{}", file.display()), Database::url);
                        let mut settings = TraceSettings::rdb(&url);
                        if database.is_some() {
                            settings.source.username = Some(elasticjob_tests::USER.into());
                            settings.source.password = Some(elasticjob_tests::PASSWORD.into());
                        }
                        connection.trace(Some(settings)).expect("an address");
                        let job = ScheduleJob::new(&name, 1).cron("* * * * * ?").simple(|_| async { Ok(()) });
                        job.start(&connection).await.expect("starts")
                    });
                    Box::new((handle, runtime))
                }
            };
            let sql = format!("{EXECUTIONS} WHERE job_name = '{name}' AND complete_time IS NOT NULL");
            eventually(&format!("three ends of {name} in {database:?}"), PATIENCE, || {
                let rows = database.map_or_else(|| sqlite_rows(&file, &sql), |database| database.rows(&sql));
                (rows.len() >= 3).then_some(())
            });
        }
    }
}

#[test]
fn a_database_that_is_away_costs_no_run_and_gets_the_history_when_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = Database::postgres();
    let agent = tracing_agent(folder.path(), &script("true"), &database.tracing());
    let begun = || logged(&agent.log(), "started items", "items=[0]");
    eventually("a row", PATIENCE, || (!database.rows(EXECUTIONS).is_empty()).then_some(()));
    database.kill();
    eventually("it is told", PATIENCE, || {
        agent.log().contains("cannot write the event trace to postgres://").then_some(())
    });
    let before = begun();
    eventually("five runs without it", PATIENCE, || (begun() >= before + 5).then_some(()));
    let without = begun();
    database.restart();
    let all = format!("{EXECUTIONS} WHERE complete_time IS NOT NULL");
    eventually("every run has its row", PATIENCE, || (database.rows(&all).len() >= without).then_some(()));
    assert!(agent.log().contains("the event trace is written to postgres://127.0.0.1"), "{}", agent.log());
    let log = agent.log();
    assert!(!log.contains("misfire"), "{log}");
    assert!(log.lines().filter(|l| l.contains("were dropped")).all(|l| l.contains(" 0 were dropped")), "{log}");
    assert!(!agent.log().contains("p@ss"), "no password in a log");
}

#[test]
fn an_invalid_address_is_reported_in_a_clear_line_and_jobs_keep_running() {
    let database = Database::mariadb();
    let right = database.tracing();
    let port = database.url().rsplit_once(':').expect("a port").1.split('/').next().expect("a port").to_owned();
    for (tracing, told) in [
        (right.replace(&port, &free_port().to_string()), "Connection refused"),
        (right.replace("p@ss", "wrong"), "Access denied"),
        (right.replace("/trace", "/nowhere"), "nowhere"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = tracing_agent(folder.path(), &script("true"), &tracing);
        let line = eventually(told, PATIENCE, || {
            let log = agent.log();
            log.lines().find(|l| l.contains("cannot write the event trace to") && l.contains(told)).map(str::to_owned)
        });
        assert!(line.contains("jobs keep running"), "{line}");
        let begun = || logged(&agent.log(), "started items", "items=[0]");
        let before = begun();
        eventually("runs go on", PATIENCE, || (begun() >= before + 3).then_some(()));
    }
}

#[test]
fn old_rows_of_a_file_are_deleted_and_those_of_a_shared_database_are_kept() {
    let old = "('old', 'j', 't', 'h', 'i', 0, 'NORMAL_TRIGGER', NULL, {no}, '2001-02-03 04:05:06', NULL)";
    let insert = format!("INSERT INTO JOB_EXECUTION_LOG VALUES {old}");
    // A file: both bounds.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.db");
    let tracing = format!("  tracing:\n    dataSource: {{ url: 'sqlite://{}' }}\n", file.display());
    let agent = tracing_agent(folder.path(), &script("true"), &tracing);
    eventually("rows", PATIENCE, || (sqlite_rows(&file, EXECUTIONS).len() >= 8).then_some(()));
    drop(agent);
    sqlite_rows(&file, &insert.replace("{no}", "0"));
    let ids = |rows: Vec<Vec<Option<String>>>| -> Vec<String> {
        rows.into_iter().map(|row| row[0].clone().expect("an id")).collect()
    };
    let before = ids(sqlite_rows(&file, EXECUTIONS));
    assert!(before.contains(&"old".to_owned()));
    let agent = tracing_agent(
        folder.path(),
        &script("true"),
        &format!("{tracing}    retentionRows: 3\n    retentionDays: 1\n"),
    );
    let left = eventually("the old ones are gone", PATIENCE, || {
        let now = ids(sqlite_rows(&file, EXECUTIONS));
        let left = now.iter().filter(|id| before.contains(id)).count();
        (left <= 3 && now.iter().any(|id| !before.contains(id))).then_some(now)
    });
    assert!(!left.contains(&"old".to_owned()));
    drop(agent);
    // A database that Java may share: nothing is deleted unless it is asked for.
    let database = Database::postgres();
    create_tables(&database);
    database.execute(&insert.replace("{no}", "FALSE"));
    create_tables(&database);
    let is_there = || ids(database.rows(EXECUTIONS)).contains(&"old".to_owned());
    assert!(is_there());
    let asked = format!("{}    retentionDays: 1\n", database.tracing());
    let _agent = tracing_agent(folder.path(), &script("true"), &asked);
    eventually("it is gone when somebody asks", PATIENCE, || (!is_there()).then_some(()));
}

#[test]
fn jobs_are_included_and_excluded_by_name_and_a_missed_firing_has_its_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.db");
    let jobs = format!(
        "{}{}",
        script("sh -c 'sleep 1.4'").replace("watched", "slow"),
        script("true").replace("watched", "quiet")
    );
    for lists in ["    excludeJobNames: quiet\n", "    includeJobNames: [slow, other]\n"] {
        let tracing =
            format!("  tracing:\n    type: rdb\n    dataSource: {{ url: 'sqlite:{}' }}\n{lists}", file.display());
        let agent = tracing_agent(folder.path(), &jobs, &tracing);
        eventually("the end of a caught-up run", PATIENCE, || {
            let sql = format!("{EXECUTIONS} WHERE execution_source = 'MISFIRE' AND complete_time IS NOT NULL");
            (!sqlite_rows(&file, &sql).is_empty()).then_some(())
        });
        let quiet = agent.log().lines().filter(|l| l.contains("started items") && l.contains("job=\"quiet\"")).count();
        assert!(quiet > 0, "the other one runs too");
        drop(agent);
        assert!(sqlite_rows(&file, &format!("{EXECUTIONS} WHERE job_name = 'quiet'")).is_empty(), "{lists}");
        let message = "Previous job 'slow' - shardingItems '[0]' is still running, misfired job will start after previous \
                       job completed.";
        let missed =
            sqlite_rows(&file, "SELECT message, state FROM JOB_STATUS_TRACE_LOG WHERE message LIKE 'Previous%'");
        assert_eq!(missed[0], [Some(message.to_owned()), Some("TASK_FINISHED".to_owned())]);
        std::fs::remove_file(&file).expect("the file");
    }
}

#[test]
fn an_unsupported_stored_tracing_element_is_reported_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.db");
    let element = "jobExtraConfigurations:\n\
        - !!org.apache.shardingsphere.elasticjob.tracing.yaml.YamlTracingConfiguration\n  tracingStorageConfiguration: \
        !!org.apache.shardingsphere.elasticjob.tracing.rdb.yaml.YamlDataSourceConfiguration\n    dataSourceClassName: \
        com.zaxxer.hikari.HikariDataSource\n    props:\n      jdbcUrl: jdbc:h2:mem:t\n      username: sa\n  type: RDB\n";
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let stored = runtime.block_on(async {
        let connection = connect(Plugins::default());
        connection.trace(Some(TraceSettings::rdb(format!("sqlite://{}", file.display())))).expect("an address");
        let registry = Arc::clone(connection.registry());
        let mut link = registry.link();
        let up = link.wait_for(|l| matches!(l, Link::Up { .. })).await.expect("a link").clone();
        let Link::Up { session, .. } = up else { panic!("no link") };
        let mut document = elasticjob::JobDocument::new("kept", 1);
        document.cron = Some("* * * * * ?".into());
        let text = format!("{}{element}", document.to_yaml());
        let ops = vec![Op::create("/kept", "kept"), Op::create("/kept/config", text)];
        assert!(matches!(registry.commit(session, &ops).await, Outcome::Committed { .. }));
        let job = ScheduleJob::new("kept", 1).cron("* * * * * ?").description("new").overwrite(true);
        let handle = job.simple(|_| async { Ok(()) }).start(&connection).await.expect("starts");
        // The process's own trace is used instead.
        tokio::task::block_in_place(|| {
            eventually("a row", PATIENCE, || (!sqlite_rows(&file, EXECUTIONS).is_empty()).then_some(()))
        });
        let answers = registry.read(vec![Query::Node("/kept/config".into())]).await.expect("an answer");
        handle.stop().await;
        answers[0].node().expect("a node").text()
    });
    assert!(stored.contains("description: new") && stored.contains(element), "{stored}");
}

#[test]
fn a_run_that_was_taken_over_is_traced_as_failover() {
    let folder = tempfile::tempdir().expect("a folder");
    let zookeeper = ZooKeeper::start();
    let journal = Journal::new(folder.path());
    let more = "      cron: '0/3 * * * * ?'\n      failover: true\n";
    let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, 2, "2", more);
    let trace = folder.path().join("trace.db");
    traced(&file, &format!("  tracing:\n    dataSource: {{ url: 'sqlite://{}' }}\n", trace.display()));
    let survivor = agent(&file, &folder.path().join("survivor"));
    let mut victim = agent(&file, &folder.path().join("victim"));
    eventually("the victim runs an item", PATIENCE, || {
        journal.runs().iter().any(|run| run.pid == victim.pid() && run.end.is_none()).then_some(())
    });
    victim.kill();
    let sql = format!("SELECT execution_source FROM JOB_EXECUTION_LOG WHERE task_id LIKE '%@-@{}'", survivor.pid());
    eventually("its item is taken over", PATIENCE, || {
        sqlite_rows(&trace, &sql).iter().any(|row| row[0].as_deref() == Some("FAILOVER")).then_some(())
    });
}
