//! The history of runs.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use elasticjob::trace::rdb::{ExecutionRow, TraceQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Asked, Problem, Shared};
use crate::failure::Failure;
use crate::server::State;

/// Rows of an answer.
const LIMIT: u64 = 50;
const LIMIT_MAX: u64 = 1_000;

/// The runs to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// The name of the registry center, whose trace store is read; the connected one by default.
    centre: Option<String>,
    /// The name of the job; all jobs by default.
    job: Option<String>,
    /// The address of the server; all servers by default.
    ip: Option<String>,
    /// Only runs that failed.
    failed: Option<bool>,
    /// Number of rows to skip.
    offset: Option<u64>,
    /// Maximum number of rows, 1 to 1000; 50 by default.
    limit: Option<u64>,
}

/// Runs of items, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Runs {
    /// Whether a trace store is connected. Without one, no run is known.
    recorded: bool,
    /// The number of runs that match.
    total: u64,
    /// The runs.
    runs: Vec<Run>,
}

/// The run of an item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Run {
    /// The id of the row.
    id: String,
    /// The job.
    job: String,
    /// The item.
    item: i64,
    /// `NORMAL_TRIGGER`, `MISFIRE` or `FAILOVER`.
    source: String,
    /// The address of the server.
    ip: String,
    /// The name of the server.
    hostname: String,
    /// Java's id of the task.
    task: String,
    /// The start, in milliseconds since 1970.
    start: Option<i64>,
    /// The end; null while it runs, and if its process died.
    end: Option<i64>,
    /// Whether it succeeded.
    success: bool,
    /// Why it failed.
    failure: Option<String>,
}

impl From<ExecutionRow> for Run {
    fn from(row: ExecutionRow) -> Run {
        Run {
            id: row.id,
            job: row.job_name,
            item: row.sharding_item,
            source: row.execution_source,
            ip: row.ip,
            hostname: row.hostname,
            task: row.task_id,
            start: row.start_time.map(|at| at.0),
            end: row.complete_time.map(|at| at.0),
            success: row.is_success,
            failure: row.failure_cause,
        }
    }
}

/// Longest text of a failure where there are thousands.
const FAILURE_SHORT: usize = 200;

impl Run {
    /// Whether its end is recorded.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The same with a short text of its failure.
    pub(super) fn short(mut self) -> Run {
        self.failure = self.failure.map(|text| text.chars().take(FAILURE_SHORT).collect());
        self
    }
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/runs", get(runs))
}

/// Lists runs of items, the latest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(Filter),
    responses((status = 200, body = Runs), (status = 400, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn runs(state: Shared, Asked(filter): Asked<Filter>) -> Result<Json<Runs>, Problem> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let limit = filter.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Failure::invalid(format!("limit: {limit} is not a number from 1 to {LIMIT_MAX}")).into());
    }
    let Some(reader) = state.stores.reader(given(&filter.centre).as_deref())? else {
        return Ok(Json(Runs { recorded: false, total: 0, runs: Vec::new() }));
    };
    let failed = filter.failed.unwrap_or_default();
    let query = TraceQuery {
        equal: [("job_name", given(&filter.job)), ("ip", given(&filter.ip))]
            .into_iter()
            .filter_map(|(column, value)| Some((column, value?)))
            .collect(),
        succeeded: failed.then_some(false),
        ended: failed,
        offset: filter.offset.unwrap_or_default().min(i64::MAX as u64),
        limit,
        ..TraceQuery::default()
    };
    let page = reader.executions(&query).await.map_err(Failure::failed)?;
    Ok(Json(Runs { recorded: true, total: page.total, runs: page.rows.into_iter().map(Run::from).collect() }))
}
