//! The history of runs (Java: `EventTraceHistoryController`).

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use elasticjob::Timestamp;
use elasticjob::trace::rdb::{ExecutionRow, StatusRow, TracePage, TraceQuery, TraceReader, TraceTable};
use serde::Serialize;

use super::{Answer, Model, Names, Shared};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::server::State;

/// Rows of a page, where a request does not say.
const PAGE: i64 = 10;
/// Maximum number of rows of a page.
const PAGE_MAX: i64 = 10_000;

/// A part of the rows (Java: `BasePageResponse`).
#[derive(Debug, Default, Serialize)]
struct Page<R> {
    total: u64,
    rows: Vec<R>,
}

impl<R> Page<R> {
    fn of<T: Into<R>>(page: TracePage<T>) -> Page<R> {
        Page { total: page.total, rows: page.rows.into_iter().map(Into::into).collect() }
    }
}

/// A run of an item (Java: `JobExecutionEvent`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Execution {
    id: String,
    hostname: String,
    ip: String,
    task_id: String,
    job_name: String,
    source: String,
    sharding_item: i64,
    start_time: Option<i64>,
    complete_time: Option<i64>,
    success: bool,
    failure_cause: Option<String>,
}

impl From<ExecutionRow> for Execution {
    fn from(row: ExecutionRow) -> Execution {
        Execution {
            id: row.id,
            hostname: row.hostname,
            ip: row.ip,
            task_id: row.task_id,
            job_name: row.job_name,
            source: row.execution_source,
            sharding_item: row.sharding_item,
            start_time: row.start_time.map(millis),
            complete_time: row.complete_time.map(millis),
            success: row.is_success,
            failure_cause: row.failure_cause,
        }
    }
}

/// A change of the state of a run (Java: `JobStatusTraceEvent`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    id: String,
    job_name: String,
    original_task_id: String,
    task_id: String,
    slave_id: String,
    source: Option<String>,
    execution_type: String,
    sharding_items: String,
    state: String,
    message: Option<String>,
    creation_time: Option<i64>,
}

impl From<StatusRow> for Status {
    fn from(row: StatusRow) -> Status {
        Status {
            id: row.id,
            job_name: row.job_name,
            original_task_id: row.original_task_id,
            task_id: row.task_id,
            slave_id: row.slave_id,
            source: row.source,
            execution_type: row.execution_type,
            sharding_items: row.sharding_item,
            state: row.state,
            message: row.message,
            creation_time: row.creation_time.map(millis),
        }
    }
}

fn millis(at: Timestamp) -> i64 {
    at.0
}

/// The names by which rows are sorted, with their columns: those of Java's entities, not of its JSON.
const EXECUTION_SORTS: [(&str, &str); 11] = [
    ("id", "id"),
    ("jobName", "job_name"),
    ("taskId", "task_id"),
    ("hostname", "hostname"),
    ("ip", "ip"),
    ("shardingItem", "sharding_item"),
    ("executionSource", "execution_source"),
    ("failureCause", "failure_cause"),
    ("isSuccess", "is_success"),
    ("startTime", "start_time"),
    ("completeTime", "complete_time"),
];
const STATUS_SORTS: [(&str, &str); 11] = [
    ("id", "id"),
    ("jobName", "job_name"),
    ("originalTaskId", "original_task_id"),
    ("taskId", "task_id"),
    ("slaveId", "slave_id"),
    ("source", "source"),
    ("executionType", "execution_type"),
    ("shardingItem", "sharding_item"),
    ("state", "state"),
    ("message", "message"),
    ("creationTime", "creation_time"),
];

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/event-trace/execution", post(executions))
        .route("/event-trace/execution/jobNames", get(execution_jobs))
        .route("/event-trace/execution/jobNames/{prefix}", get(execution_jobs_with))
        .route("/event-trace/execution/ip", get(ips))
        .route("/event-trace/execution/ip/{prefix}", get(ips_with))
        .route("/event-trace/status", post(statuses))
        .route("/event-trace/status/jobNames", get(status_jobs))
        .route("/event-trace/status/jobNames/{prefix}", get(status_jobs_with))
}

async fn executions(state: Shared, fields: Fields) -> Answer<Page<Execution>> {
    let mut query = query(&fields, &EXECUTION_SORTS)?;
    query.equal = filters(&fields, &[("jobName", "job_name"), ("ip", "ip")])?;
    query.succeeded = fields.flag("isSuccess")?;
    (query.after, query.before) = (fields.moment("startTimeFrom")?, fields.moment("startTimeTo")?);
    match state.stores.reader(None)? {
        Some(reader) => Ok(Model(Page::of(reader.executions(&query).await.map_err(Failure::failed)?))),
        None => Ok(Model(Page { total: 0, rows: Vec::new() })),
    }
}

async fn statuses(state: Shared, fields: Fields) -> Answer<Page<Status>> {
    let mut query = query(&fields, &STATUS_SORTS)?;
    let names =
        [("jobName", "job_name"), ("source", "source"), ("executionType", "execution_type"), ("state", "state")];
    query.equal = filters(&fields, &names)?;
    (query.after, query.before) = (fields.moment("creationTimeFrom")?, fields.moment("creationTimeTo")?);
    match state.stores.reader(None)? {
        Some(reader) => Ok(Model(Page::of(reader.statuses(&query).await.map_err(Failure::failed)?))),
        None => Ok(Model(Page { total: 0, rows: Vec::new() })),
    }
}

/// Page and order. An unknown name of a sort is ignored, as in ElasticJob-UI.
fn query(fields: &Fields, sorts: &[(&str, &'static str)]) -> Result<TraceQuery, Failure> {
    fields.not_null("pageSize")?;
    fields.not_null("pageNumber")?;
    let (size, number) = (fields.number("pageSize", PAGE)?, fields.number("pageNumber", 1)?);
    // Either of them being invalid gives the first page.
    let (size, number) = if size <= 0 || number <= 0 { (PAGE, 1) } else { (size, number) };
    if size > PAGE_MAX {
        return Err(Failure::invalid(format!("field `pageSize`: {size} is too large; expected at most {PAGE_MAX}")));
    }
    let sort = fields.text("sort")?;
    let column = sort.and_then(|name| sorts.iter().find(|(known, _)| *known == name)).map(|(_, column)| *column);
    let descending = fields.text("order")?.is_some_and(|order| order.eq_ignore_ascii_case("DESC"));
    let limit = u64::try_from(size).unwrap_or_default();
    let offset = u64::try_from(number - 1).unwrap_or_default().saturating_mul(limit).min(i64::MAX as u64);
    Ok(TraceQuery { sort: column.map(|column| (column, descending)), offset, limit, ..TraceQuery::default() })
}

/// Exact values. An empty text is a value.
fn filters(fields: &Fields, names: &[(&str, &'static str)]) -> Result<Vec<(&'static str, String)>, Failure> {
    let one = |(name, column): &(&str, &'static str)| Ok(fields.text(name)?.map(|text| (*column, text)));
    names.iter().filter_map(|name| one(name).transpose()).collect()
}

async fn execution_jobs(state: Shared) -> Answer<Vec<String>> {
    distinct(&state, TraceTable::Executions, "job_name", "").await
}

async fn execution_jobs_with(state: Shared, Names(prefix): Names<String>) -> Answer<Vec<String>> {
    distinct(&state, TraceTable::Executions, "job_name", &prefix).await
}

async fn ips(state: Shared) -> Answer<Vec<String>> {
    distinct(&state, TraceTable::Executions, "ip", "").await
}

async fn ips_with(state: Shared, Names(prefix): Names<String>) -> Answer<Vec<String>> {
    distinct(&state, TraceTable::Executions, "ip", &prefix).await
}

async fn status_jobs(state: Shared) -> Answer<Vec<String>> {
    distinct(&state, TraceTable::Statuses, "job_name", "").await
}

async fn status_jobs_with(state: Shared, Names(prefix): Names<String>) -> Answer<Vec<String>> {
    distinct(&state, TraceTable::Statuses, "job_name", &prefix).await
}

async fn distinct(state: &State, table: TraceTable, column: &'static str, prefix: &str) -> Answer<Vec<String>> {
    let reader: Option<Arc<TraceReader>> = state.stores.reader(None)?;
    match reader {
        Some(reader) => Ok(Model(reader.distinct(table, column, prefix).await.map_err(Failure::failed)?)),
        None => Ok(Model(Vec::new())),
    }
}
