//! `elasticjob job history`: the latest runs, from the event trace.

use elasticjob::trace::DataSource;
use elasticjob::{History, HistoryEntry, HistoryQuery, JobDocument, Operations, Timestamp};
use serde_json::{Map, Value, json};

use crate::args::{Database, History as HistoryArgs, Output};
use crate::output::{self, Listing};
use crate::{Failure, agent, up};

/// What is asked for, and where; none for the database of the job's configuration.
pub(super) struct Wanted {
    source: Option<DataSource>,
    query: HistoryQuery,
}

pub(super) fn wanted(history: &HistoryArgs) -> Result<Wanted, Failure> {
    let HistoryArgs { name: _, database, failed, since, limit } = history;
    let since = since.as_deref().map(|text| moment("--since", text)).transpose()?;
    let mut query = HistoryQuery::latest(*limit);
    query.failed = *failed;
    query.since = since;
    Ok(Wanted { source: named(database)?, query })
}

fn wrong(line: String) -> Failure {
    Failure::Wrong(vec![format!("elasticjob: {line}")])
}

/// Reads a time of an option.
pub(super) fn moment(option: &str, text: &str) -> Result<Timestamp, Failure> {
    let moment: jiff::Timestamp =
        text.parse().map_err(|_| wrong(format!("{option} `{text}`: expected a time like 2026-03-29T00:00:00Z")))?;
    Ok(Timestamp(moment.as_millisecond()))
}

/// The database that the options name, if they name one.
pub(super) fn named(options: &Database) -> Result<Option<DataSource>, Failure> {
    let Database { database, user, file } = options;
    match (database, file) {
        (Some(url), _) => {
            let password = std::env::var("ELASTICJOB_DATABASE_PASSWORD").ok().filter(|p| !p.is_empty());
            let mut source = DataSource::new(url);
            source.username = user.clone();
            source.password = password;
            elasticjob::trace::rdb::check(&source).map_err(|reason| wrong(format!("--database: {reason}")))?;
            Ok(Some(source))
        }
        (None, Some(file)) => {
            let found = agent::load(Some(file))?.tracing.map(|settings| settings.source);
            let missing =
                || wrong(format!("{}: the file has no key `tracing`, so it names no database", file.display()));
            Ok(Some(found.ok_or_else(missing)?))
        }
        (None, None) => Ok(None),
    }
}

impl Wanted {
    /// Whether the database is known without a registry.
    pub(super) fn names_database(&self) -> bool {
        self.source.is_some()
    }
}

/// The database of a job: the one that the options name, that of its stored configuration, or the one beside the registry.
pub(super) async fn known(
    operations: &Operations,
    job: &str,
    named: Option<DataSource>,
    beside: Option<DataSource>,
) -> Result<DataSource, Failure> {
    if let Some(named) = named {
        return Ok(named);
    }
    let stored = operations.config(job).await?;
    let document = JobDocument::parse(stored.text.as_bytes()).ok();
    let element = document.and_then(|document| elasticjob::agent::stored_source(&document));
    Ok(element.or(beside).ok_or_else(|| {
        anyhow::anyhow!(
            "job `{job}`: no run is recorded, because no event trace database is known; name the database with --database URL, or \
             with --file FILE, an agent file that has `tracing`"
        )
    })?)
}

/// The history from the database that the user named: no registry is needed.
pub(super) fn run_without_registry(job: &str, wanted: Wanted, format: Output) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let source = wanted.source.unwrap_or_default();
    print(job, runtime.block_on(elasticjob::history(&source, job, &wanted.query))?, format)
}

/// The history that `elasticjob up` writes beside the file of an embedded registry, if it is there.
pub(super) fn beside(registry: &str) -> Option<DataSource> {
    let path = up::embedded_path(registry)?;
    let found = up::trace_settings(path).map(|settings| settings.source);
    found.filter(|_| up::trace_beside(path).exists())
}

pub(super) async fn run(
    operations: &Operations,
    job: &str,
    wanted: Wanted,
    beside: Option<DataSource>,
    format: Output,
) -> Result<(), Failure> {
    // The database that the configuration names comes first.
    let names_one = || async {
        let stored = operations.config(job).await?;
        let document = JobDocument::parse(stored.text.as_bytes()).ok();
        Ok::<_, Failure>(document.is_some_and(|document| document.tracing().is_some()))
    };
    let source = match (wanted.source, beside) {
        (None, Some(beside)) if !names_one().await? => Some(beside),
        (source, _) => source,
    };
    print(job, operations.history(job, source, &wanted.query).await?, format)
}

fn print(job: &str, history: History, format: Output) -> Result<(), Failure> {
    let mut listing = Listing::new(&["START", "ITEM", "TOOK", "OUTCOME", "SOURCE", "SERVER", "RUN", "WHY"]);
    for entry in &history.entries {
        listing.push(row(entry), object(entry));
    }
    output::data(&listing.text(format))?;
    if history.entries.is_empty() {
        output::tell(&format!("no matching run of job `{job}` in {}", history.from));
    }
    Ok(())
}

fn outcome(entry: &HistoryEntry) -> &'static str {
    match (entry.end, entry.succeeded) {
        (None, _) => "NO END",
        (Some(_), true) => "SUCCESS",
        (Some(_), false) => "FAILURE",
    }
}

fn row(entry: &HistoryEntry) -> Vec<String> {
    let took = entry.start.zip(entry.end).map(|(start, end)| format!("{} ms", end.since(start).as_millis()));
    // A stack trace is for programs; people get its first line.
    let why = entry.failure.as_deref().and_then(|text| text.lines().next()).unwrap_or_default();
    vec![
        entry.start.map_or("-".into(), |start| start.to_string()),
        entry.item.to_string(),
        took.unwrap_or_else(|| "-".into()),
        outcome(entry).to_owned(),
        entry.source.clone(),
        entry.ip.clone(),
        // The end of an id: ids begin with the time.
        entry.id.get(entry.id.len().saturating_sub(8)..).unwrap_or_default().to_owned(),
        why.to_owned(),
    ]
}

/// Java's fields of `JobExecutionEvent`; what it does not have is left out.
fn object(entry: &HistoryEntry) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Option<Value>| drop(value.map(|value| object.insert(key.into(), value)));
    put("id", Some(json!(entry.id)));
    put("shardingItem", Some(json!(entry.item)));
    put("startTime", entry.start.map(|start| json!(start.to_string())));
    put("completeTime", entry.end.map(|end| json!(end.to_string())));
    put("success", Some(json!(entry.succeeded)));
    put("failureCause", entry.failure.as_ref().map(|text| json!(text)));
    put("source", Some(json!(entry.source)));
    put("ip", Some(json!(entry.ip)));
    put("hostname", Some(json!(entry.hostname)));
    put("taskId", Some(json!(entry.task_id)));
    Value::Object(object)
}
