//! The past of jobs: what became of their due times, their events, and their runs on a time axis.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use elasticjob::trace::rdb::{EventRow, TraceQuery, TraceReader};
use elasticjob::{Operations, Timestamp};
use elasticjob_core::due_ledger::{Entry, ItemFate};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::runs::Run;
use super::{Asked, Centre, Named, Problem, Shared};
use crate::clock;
use crate::failure::Failure;
use crate::fields::short;
use crate::server::State;
use crate::view::JobView;

/// Due times of an answer.
const DUES: usize = 50;
const DUES_MAX: usize = 1_000;
/// Events of an answer.
const EVENTS: u64 = 100;
const EVENTS_MAX: u64 = 1_000;
/// Runs of a time axis.
const BARS_MAX: u64 = 20_000;
/// The span of a time axis by default, and the longest one.
const SPAN_MILLIS: i64 = 15 * 60 * 1_000;
const SPAN_MAX_MILLIS: i64 = 31 * 24 * 3_600 * 1_000;
/// Runs that began before the span, within a day, and had not ended at its beginning.
const OPEN_MAX: u64 = 1_000;
const OPEN_MAX_MILLIS: i64 = 24 * 3_600 * 1_000;
/// Firings ahead on a time axis, of each job.
const PLANNED_MAX: usize = 200;

/// The due times to judge.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Dues {
    /// The name of the registry center; the connected one by default.
    centre: Option<String>,
    /// Only due times up to this one, in milliseconds since 1970; now by default.
    until: Option<i64>,
    /// Number of due times, 1 to 1000; 50 by default. Fewer are returned for a job with many items.
    n: Option<usize>,
}

/// What became of the due times of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ledger {
    /// Whether a trace store is connected. Without one, nothing is known.
    recorded: bool,
    /// The due times, the latest first. Empty for a job without a cron expression.
    dues: Vec<DueTime>,
    /// Whether rows are missing, because there are too many.
    truncated: bool,
}

/// What became of a due time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DueTime {
    /// The due time, in milliseconds since 1970.
    due: i64,
    /// `ran`, `waiting`, `late`, `caught-up`, `unknown`, `skipped`, `lost` or `missed`: the most severe one of its items.
    fate: &'static str,
    /// Why; empty if all items ran on time.
    reason: String,
    /// The number of items whose run failed.
    failed: usize,
    /// The latest start after the due time, in milliseconds; null if nothing ran.
    delay: Option<i64>,
    /// The longest run, in milliseconds; null if none has ended.
    took: Option<i64>,
    /// The items.
    items: Vec<DueItem>,
}

/// What became of an item at a due time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DueItem {
    /// The item.
    item: u32,
    /// As of the due time.
    fate: &'static str,
    /// Why; empty if it ran on time.
    reason: String,
    /// The start of its run, in milliseconds since 1970.
    start: Option<i64>,
    /// The end of its run.
    end: Option<i64>,
    /// Whether it succeeded; null if it has not ended.
    success: Option<bool>,
}

impl From<&Entry> for DueTime {
    fn from(entry: &Entry) -> DueTime {
        let runs = || entry.items.iter().filter_map(|item| item.run.as_ref());
        DueTime {
            due: entry.due.0,
            fate: entry.fate.word(),
            reason: entry.reason.clone(),
            failed: entry.failed(),
            delay: runs().map(|run| run.start.0 - entry.due.0).max(),
            took: runs().filter_map(|run| Some(run.end?.0 - run.start.0)).max(),
            items: entry.items.iter().map(DueItem::from).collect(),
        }
    }
}

impl From<&ItemFate> for DueItem {
    fn from(item: &ItemFate) -> DueItem {
        let run = item.run.as_ref();
        DueItem {
            item: item.item,
            fate: item.fate.word(),
            reason: item.reason.clone(),
            start: run.map(|run| run.start.0),
            end: run.and_then(|run| run.end).map(|end| end.0),
            success: run.filter(|run| run.end.is_some()).map(|run| run.success),
        }
    }
}

/// The events to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// The name of the registry center; the connected one by default.
    centre: Option<String>,
    /// The name of the job; all jobs by default.
    job: Option<String>,
    /// The kind of the event, as `taken-over`; all kinds by default.
    kind: Option<String>,
    /// Number of events to skip.
    offset: Option<u64>,
    /// Maximum number of events, 1 to 1000; 100 by default.
    limit: Option<u64>,
}

/// Events of jobs, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Events {
    /// Whether a trace store is connected. Without one, no event is known.
    recorded: bool,
    /// The number of events that match.
    total: u64,
    /// The events.
    events: Vec<Event>,
}

/// An event of a job on a Rust instance. Java's instances record none.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Event {
    /// The id of the row.
    id: String,
    /// The job.
    job: String,
    /// The id of the instance that recorded it.
    instance: String,
    /// `INFO`, `WARN` or `ERROR`.
    level: String,
    /// The kind, as `taken-over`.
    kind: String,
    /// The items that it concerns, as `0, 2-5`.
    items: Option<String>,
    /// The due time that it concerns, or the first of several, in milliseconds since 1970.
    first_due: Option<i64>,
    /// The last of several due times.
    last_due: Option<i64>,
    /// The line of the log.
    message: String,
    /// When, in milliseconds since 1970.
    at: Option<i64>,
}

impl From<EventRow> for Event {
    fn from(row: EventRow) -> Event {
        Event {
            id: row.id,
            job: row.job_name,
            instance: row.instance,
            level: row.level,
            kind: row.event,
            items: row.items.filter(|items| !items.is_empty()),
            first_due: row.first_due.map(|due| due.0),
            last_due: row.last_due.map(|due| due.0),
            message: row.message.unwrap_or_default(),
            at: row.creation_time.map(|at| at.0),
        }
    }
}

/// The span of a time axis.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Span {
    /// The name of the registry center; the connected one by default.
    centre: Option<String>,
    /// The name of the job; all jobs by default.
    job: Option<String>,
    /// The beginning, in milliseconds since 1970; 15 minutes before `to` by default.
    from: Option<i64>,
    /// The end, at most 31 days after `from`; now by default. Runs that started before it are returned.
    to: Option<i64>,
}

/// Runs of items on a time axis.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Timeline {
    /// Whether a trace store is connected. Without one, no run is known.
    recorded: bool,
    /// The beginning.
    from: i64,
    /// The end.
    to: i64,
    /// The present, in milliseconds since 1970.
    now: i64,
    /// The runs that started in the span, the latest first, at most 20,000; then those that had started in the day before it and had not
    /// ended. Failures are cut to 200 characters.
    runs: Vec<Run>,
    /// Whether there are more.
    truncated: bool,
    /// The firings to come within the span.
    planned: Vec<Planned>,
}

/// Firings to come.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Planned {
    /// The job.
    job: String,
    /// The due times, in milliseconds since 1970; at most 200.
    dues: Vec<i64>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/jobs/{job}/ledger", get(ledger))
        .route("/events", get(events))
        .route("/timeline", get(timeline))
}

/// Returns what became of the latest due times of a job.
#[utoipa::path(get, path = "/api/v1/jobs/{job}/ledger", tag = "past", params(("job" = String, Path), Dues),
    responses((status = 200, body = Ledger), (status = 404, body = Problem), (status = 409, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn ledger(
    state: Shared,
    Named(job): Named<String>,
    Asked(asked): Asked<Dues>,
) -> Result<Json<Ledger>, Problem> {
    let count = asked.n.unwrap_or(DUES);
    if !(1..=DUES_MAX).contains(&count) {
        return Err(Failure::invalid(format!("n: {count} is not a number from 1 to {DUES_MAX}")).into());
    }
    let centre = Centre { centre: asked.centre };
    let picture = state.pictures.get(&state.centres, centre.name()).await?;
    let picture = picture.ok_or_else(super::none_connected)?;
    let unknown = || Problem::not_found(format!("job `{}` not found", short(&job)));
    let report = picture.job(&job).ok_or_else(unknown)?;
    let stored = report.state.config.as_ref().ok_or_else(unknown)?;
    let config = Operations::checked_config(&stored.data)
        .map_err(|faults| Problem::new(StatusCode::CONFLICT, format!("invalid stored configuration: {faults}")))?;
    let Some(reader) = reader(&state, &centre)? else {
        return Ok(Json(Ledger { recorded: false, dues: Vec::new(), truncated: false }));
    };
    let until = asked.until.map_or_else(|| Timestamp(clock::millis()), Timestamp);
    let found = reader.due_ledger(&config, until, count).await.map_err(Failure::failed)?;
    let dues = found.entries.iter().rev().map(DueTime::from).collect();
    Ok(Json(Ledger { recorded: true, dues, truncated: found.truncated }))
}

/// Lists events of jobs, the latest first.
#[utoipa::path(get, path = "/api/v1/events", tag = "past", params(Wanted),
    responses((status = 200, body = Events), (status = 400, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn events(state: Shared, Asked(wanted): Asked<Wanted>) -> Result<Json<Events>, Problem> {
    let limit = wanted.limit.unwrap_or(EVENTS);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(Failure::invalid(format!("limit: {limit} is not a number from 1 to {EVENTS_MAX}")).into());
    }
    let Some(reader) = reader(&state, &Centre { centre: wanted.centre })? else {
        return Ok(Json(Events { recorded: false, total: 0, events: Vec::new() }));
    };
    let equal = [("job_name", wanted.job), ("event", wanted.kind)];
    let query = TraceQuery {
        equal: equal
            .into_iter()
            .filter_map(|(column, value)| Some((column, value.filter(|value| !value.is_empty())?)))
            .collect(),
        offset: wanted.offset.unwrap_or_default().min(i64::MAX as u64),
        limit,
        ..TraceQuery::default()
    };
    let page = reader.events(&query).await.map_err(Failure::failed)?;
    Ok(Json(Events { recorded: true, total: page.total, events: page.rows.into_iter().map(Event::from).collect() }))
}

/// Returns the runs of a span, and the firings to come in it.
#[utoipa::path(get, path = "/api/v1/timeline", tag = "past", params(Span),
    responses((status = 200, body = Timeline), (status = 400, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn timeline(state: Shared, Asked(span): Asked<Span>) -> Result<Json<Timeline>, Problem> {
    let now = clock::millis();
    let to = span.to.unwrap_or(now);
    let from = span.from.unwrap_or(to.saturating_sub(SPAN_MILLIS));
    if to <= from || to.saturating_sub(from) > SPAN_MAX_MILLIS {
        let text = format!("from: {from} is not before `to` ({to}) by at most 31 days, in milliseconds since 1970");
        return Err(Failure::invalid(text).into());
    }
    let centre = Centre { centre: span.centre };
    let job = span.job.filter(|job| !job.is_empty());
    let picture = state.pictures.get(&state.centres, centre.name()).await?;
    let reports = picture.iter().flat_map(|picture| &picture.jobs);
    let of_job = reports.filter(|report| job.as_deref().is_none_or(|job| report.path.job() == job));
    let planned = of_job
        .map(|report| Planned { job: report.path.job().to_owned(), dues: planned(report, now.max(from), to) })
        .filter(|planned| !planned.dues.is_empty())
        .collect();
    let Some(reader) = reader(&state, &centre)? else {
        let (runs, recorded, truncated) = (Vec::new(), false, false);
        return Ok(Json(Timeline { recorded, from, to, now, runs, truncated, planned }));
    };
    let query = TraceQuery {
        equal: job.into_iter().map(|job| ("job_name", job)).collect(),
        after: Some(Timestamp(from - 1)),
        before: Some(Timestamp(to)),
        limit: BARS_MAX,
        uncounted: true,
        ..TraceQuery::default()
    };
    let mut rows = reader.executions(&query).await.map_err(Failure::failed)?.rows;
    let truncated = rows.len() as u64 == BARS_MAX;
    // What began before the span and reaches into it.
    let open = TraceQuery {
        after: Some(Timestamp(from - OPEN_MAX_MILLIS)),
        before: Some(Timestamp(from)),
        open_at: Some(Timestamp(from)),
        limit: OPEN_MAX,
        ..query
    };
    rows.extend(reader.executions(&open).await.map_err(Failure::failed)?.rows);
    let runs = rows.into_iter().map(|row| Run::from(row).short()).collect();
    Ok(Json(Timeline { recorded: true, from, to, now, runs, truncated, planned }))
}

/// The firings between two moments, if the job fires at all in its state.
fn planned(report: &elasticjob_core::report::JobReport, after: i64, to: i64) -> Vec<i64> {
    let stored = report.state.config.as_ref().and_then(|stored| Operations::checked_config(&stored.data).ok());
    let fires = JobView::new(report, Timestamp(after)).line().state.kind.fires();
    let Some((config, cron)) = stored.as_ref().and_then(|config| Some((config, config.cron.as_ref()?))) else {
        return Vec::new();
    };
    let next = |after: &Timestamp| cron.next(*after, &config.time_zone);
    let dues = std::iter::successors(next(&Timestamp(after)), next).take_while(|due| due.0 <= to);
    if fires { dues.map(|due| due.0).take(PLANNED_MAX).collect() } else { Vec::new() }
}

fn reader(state: &State, centre: &Centre) -> Result<Option<Arc<TraceReader>>, Failure> {
    state.stores.reader(centre.name())
}

#[cfg(test)]
mod tests {
    use elasticjob_core::due_ledger::Fate;

    #[test]
    fn each_fate_has_its_word_in_the_document() {
        let document = super::super::document();
        for fate in Fate::ALL {
            assert!(document.contains(&format!("`{}`", fate.word())), "{fate:?}");
        }
    }
}
