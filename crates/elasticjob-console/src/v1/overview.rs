//! The overview: does every job run?

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Json, Router};
use elasticjob::Timestamp;
use elasticjob::trace::rdb::TraceQuery;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Asked, Centre, Problem, Shared};
use crate::clock;
use crate::server::State;
use crate::view::{JobLine, JobView};

/// Jobs that are listed as the next to fire.
const NEXT_MAX: usize = 15;
/// The span of the numbers of runs.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1_000;

/// The overview of a registry center.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// The registry; null if no center is connected.
    registry: Option<Registry>,
    /// The number of jobs in each state.
    states: BTreeMap<String, usize>,
    /// The number of jobs.
    jobs: usize,
    /// The number of items.
    items: usize,
    /// The number of items that are running.
    running: usize,
    /// The number of instances.
    instances: usize,
    /// The number of servers.
    servers: usize,
    /// The jobs that a person should look at, the most urgent first.
    attention: Vec<JobLine>,
    /// The jobs that fire next.
    next: Vec<JobLine>,
    /// The runs of the last 24 hours; null if no trace store is connected.
    runs: Option<RunCounts>,
}

/// The registry of a picture.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Registry {
    /// The name and address.
    name: String,
    /// When it was read, in milliseconds since 1970.
    read_at: i64,
    /// How long the read took, in milliseconds.
    took_ms: u64,
}

/// Numbers of runs.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RunCounts {
    /// RunCounts of items that started.
    total: u64,
    /// Those that failed.
    failed: u64,
    /// Why they are not known; null if they are.
    fault: Option<String>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/overview", get(overview))
}

/// Returns the overview.
#[utoipa::path(get, path = "/api/v1/overview", tag = "overview", params(Centre),
    responses((status = 200, body = Overview), (status = 401, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn overview(state: Shared, Asked(centre): Asked<Centre>) -> Result<Json<Overview>, Problem> {
    let (picture, runs) = tokio::join!(state.pictures.get(&state.centres, centre.name()), runs(&state, centre.name()));
    let picture = picture?;
    let now = Timestamp(clock::millis());
    let reports = picture.as_ref().map(|picture| picture.jobs.as_slice()).unwrap_or_default();
    let lines: Vec<JobLine> = reports.iter().map(|report| JobView::new(report, now).line()).collect();
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for line in &lines {
        let word = serde_json::to_value(line.state.kind).ok();
        let word = word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
        *states.entry(word).or_default() += 1;
    }
    let ids: BTreeSet<&String> = reports.iter().flat_map(|report| report.state.instances.keys()).collect();
    let servers: BTreeSet<&String> = reports.iter().flat_map(|report| report.state.servers.keys()).collect();
    let mut attention: Vec<JobLine> = lines.iter().filter(|line| line.state.kind.needs_attention()).cloned().collect();
    attention.sort_by_key(|line| (line.state.kind, line.state.since));
    let fires = |line: &&JobLine| line.next.is_some() && line.state.kind.fires();
    let mut next: Vec<JobLine> = lines.iter().filter(fires).cloned().collect();
    next.sort_by_key(|line| line.next);
    next.truncate(NEXT_MAX);
    Ok(Json(Overview {
        registry: picture.as_ref().map(|picture| Registry {
            name: picture.registry.clone(),
            read_at: picture.at,
            took_ms: u64::try_from(picture.took.as_millis()).unwrap_or(u64::MAX),
        }),
        states,
        jobs: lines.len(),
        items: lines.iter().map(|line| line.items).sum(),
        running: lines.iter().map(|line| line.running).sum(),
        instances: ids.len(),
        servers: servers.len(),
        attention,
        next,
        runs,
    }))
}

/// The counts of runs, which all requests share: counting takes a while in a large trace, and must not hold up the overview.
pub(crate) type RunCache = tokio::sync::Mutex<HashMap<String, (Instant, Option<RunCounts>)>>;

/// Counts are made again when they are older.
const COUNTED_FRESH: Duration = Duration::from_secs(10);
/// Longest wait for the counts.
const COUNT_MAX: Duration = Duration::from_secs(2);

async fn runs(state: &State, centre: Option<&str>) -> Option<RunCounts> {
    let late = || {
        let fault = Some(format!("the trace store did not answer within {COUNT_MAX:?}"));
        Some(RunCounts { total: 0, failed: 0, fault })
    };
    let counted = async {
        let mut cache = state.runs.lock().await;
        // Names of centres that are gone.
        cache.retain(|_, (at, _)| at.elapsed() < COUNTED_FRESH);
        if let Some((_, counts)) = cache.get(centre.unwrap_or_default()) {
            return counts.clone();
        }
        let counts = tokio::time::timeout(COUNT_MAX, count(state, centre)).await.unwrap_or_else(|_| late());
        cache.insert(centre.unwrap_or_default().to_owned(), (clock::now(), counts.clone()));
        counts
    };
    tokio::time::timeout(COUNT_MAX + Duration::from_millis(500), counted).await.unwrap_or_else(|_| late())
}

async fn count(state: &State, centre: Option<&str>) -> Option<RunCounts> {
    let reader = match state.stores.reader(centre) {
        Ok(Some(reader)) => reader,
        Ok(None) => return None,
        Err(failure) => return Some(RunCounts { total: 0, failed: 0, fault: Some(failure.text) }),
    };
    let after = Some(Timestamp(clock::millis() - DAY_MILLIS));
    let all = TraceQuery { after, limit: 1, ..TraceQuery::default() };
    // A run without an end is not one that failed: it may be running.
    let failed = TraceQuery { succeeded: Some(false), ended: true, ..all.clone() };
    let counted = async {
        let total = reader.executions(&all).await?.total;
        Ok::<_, String>((total, reader.executions(&failed).await?.total))
    };
    Some(match counted.await {
        Ok((total, failed)) => RunCounts { total, failed, fault: None },
        Err(fault) => RunCounts { total: 0, failed: 0, fault: Some(fault) },
    })
}
