//! The logs of runs.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use elasticjob::trace::rdb::{TraceQuery, TraceReader};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::runs::Run;
use super::{Asked, Named, Problem, Shared};
use crate::failure::Failure;
use crate::fields::short;
use crate::server::State;

/// Parts of an answer, of about 16 KiB each.
const PARTS: u64 = 64;

/// The part of the log to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Position {
    /// The name of the registry center, whose trace store is read; the connected one by default.
    centre: Option<String>,
    /// The number of parts that were read before: `read` of the answer before. 0 by default.
    after: Option<u64>,
    /// The number of the next part: `next` of the answer before. 0 by default.
    next: Option<i64>,
}

/// Lines of the log of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Log {
    /// The run; null if its start is not recorded.
    run: Option<Run>,
    /// The lines, in their order.
    lines: Vec<Line>,
    /// The number of parts that were read; ask for the next ones with it.
    read: u64,
    /// The number of the next part; ask for it with `read`. Larger than `read` if parts were not recorded.
    next: i64,
    /// Whether there are no more lines, and none will come.
    complete: bool,
}

/// A line of a log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Line {
    /// When it was written, in milliseconds since 1970.
    at: Option<i64>,
    /// `stdout`, `stderr`, the level of an event of the job's code, or `elasticjob` for a line of ElasticJob itself.
    source: String,
    /// The text.
    text: String,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/runs/{id}/log", get(log))
}

/// Returns lines of the log of a run.
#[utoipa::path(get, path = "/api/v1/runs/{id}/log", tag = "runs", params(("id" = String, Path), Position),
    responses((status = 200, body = Log), (status = 404, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn log(
    state: Shared,
    Named(id): Named<String>,
    Asked(position): Asked<Position>,
) -> Result<Json<Log>, Problem> {
    let centre = position.centre.filter(|name| !name.is_empty());
    let unknown = || Problem::not_found(format!("run `{}` not found", short(&id)));
    let reader = state.stores.reader(centre.as_deref())?.ok_or_else(unknown)?;
    let read = position.after.unwrap_or_default().min(i64::MAX as u64);
    // The run first: its end is written after the last part of its log.
    let run = run(&reader, &id).await?;
    let query = TraceQuery {
        equal: vec![("execution_id", id.clone())],
        sort: Some(("part", false)),
        uncounted: true,
        offset: read,
        limit: PARTS,
        ..TraceQuery::default()
    };
    let parts = reader.run_logs(&query).await.map_err(Failure::failed)?.rows;
    if run.is_none() && parts.is_empty() && read == 0 {
        return Err(unknown());
    }
    let count = parts.len() as u64;
    let complete = run.as_ref().is_some_and(Run::has_ended) && count < PARTS;
    let mut next = position.next.unwrap_or_default();
    let mut lines = Vec::new();
    for part in &parts {
        lines.extend((part.part > next).then(|| missing(part.part - next)));
        lines.extend(part.lines().map(|(at, source, text)| Line {
            at: at.map(|at| at.0),
            source: source.to_owned(),
            text: text.to_owned(),
        }));
        next = next.max(part.part) + 1;
    }
    Ok(Json(Log { run, lines, read: read + count, next, complete }))
}

fn missing(parts: i64) -> Line {
    let text = format!("… parts of the log that were not recorded: {parts}");
    Line { at: None, source: "elasticjob".to_owned(), text }
}

async fn run(reader: &TraceReader, id: &str) -> Result<Option<Run>, Failure> {
    let equal = vec![("id", id.to_owned())];
    let query = TraceQuery { equal, uncounted: true, limit: 1, ..TraceQuery::default() };
    let page = reader.executions(&query).await.map_err(Failure::failed)?;
    Ok(page.rows.into_iter().next().map(Run::from))
}
