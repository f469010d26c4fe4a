//! Jobs and their items.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use elasticjob::agent::masked_config;
use elasticjob::{OperationError, Operations, Scope, Timestamp};
use elasticjob_core::cron::Cron;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Asked, Centre, Named, Problem, Shared, none_connected};
use crate::clock;
use crate::fields::short;
use crate::server::State;
use crate::view::{JobDetail, JobLine, JobView};

/// Maximum number of fire times of an answer.
const FIRES_MAX: usize = 100;

/// All jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Jobs {
    /// The registry; null if no center is connected.
    registry: Option<String>,
    /// When it was read, in milliseconds since 1970.
    read_at: i64,
    /// The jobs, by name.
    jobs: Vec<JobLine>,
}

/// A check of an explanation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Check {
    /// The name of the check.
    name: &'static str,
    /// `ok`, `CAUSE`, `note`, or `-` if the check was skipped.
    verdict: &'static str,
    /// What was found.
    evidence: String,
}

/// What was changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// Items that do not run although the job was triggered, with the reasons.
    notes: Vec<String>,
}

/// A cron expression.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Fires {
    /// The expression, in Quartz's dialect.
    cron: String,
    /// The time zone: an IANA name or GMT+8; that of this host by default.
    zone: Option<String>,
    /// The number of fire times, 1 to 100; 10 by default.
    n: Option<usize>,
}

/// Fire times.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Times {
    /// The times, in milliseconds since 1970.
    times: Vec<i64>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/jobs", get(list))
        .route("/fires", get(fires))
        .route("/jobs/{job}", get(show).delete(remove))
        .route("/jobs/{job}/why", get(why))
        .route("/jobs/{job}/trigger", post(trigger))
        .route("/jobs/{job}/disable", post(disable))
        .route("/jobs/{job}/enable", post(enable))
        .route("/jobs/{job}/shutdown", post(shutdown))
        .route("/jobs/{job}/items/{item}/disable", post(disable_item))
        .route("/jobs/{job}/items/{item}/enable", post(enable_item))
}

/// Lists all jobs.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(Centre),
    responses((status = 200, body = Jobs), (status = 401, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn list(state: Shared, Asked(centre): Asked<Centre>) -> Result<Json<Jobs>, Problem> {
    let now = Timestamp(clock::millis());
    Ok(Json(match state.pictures.get(&state.centres, centre.name()).await? {
        Some(picture) => Jobs {
            registry: Some(picture.registry.clone()),
            read_at: picture.at,
            jobs: picture.jobs.iter().map(|report| JobView::new(report, now).line()).collect(),
        },
        None => Jobs { registry: None, read_at: now.0, jobs: Vec::new() },
    }))
}

/// Returns a job with its items and instances.
#[utoipa::path(get, path = "/api/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = JobDetail), (status = 404, body = Problem)))]
pub(super) async fn show(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<JobDetail>, Problem> {
    let picture = state.pictures.get(&state.centres, centre.name()).await?;
    let unknown = || Problem::not_found(format!("job `{}` not found", short(&job)));
    let picture = picture.ok_or_else(none_connected)?;
    let report = picture.job(&job).ok_or_else(unknown)?;
    let text = report.state.config.as_ref().map(elasticjob_core::tree::Node::text).unwrap_or_default();
    Ok(Json(JobView::new(report, Timestamp(clock::millis())).detail(masked_config(&text))))
}

/// Explains why a job does not run.
#[utoipa::path(get, path = "/api/v1/jobs/{job}/why", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = [Check]), (status = 404, body = Problem)))]
pub(super) async fn why(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Vec<Check>>, Problem> {
    let explained = on(&state, &centre, async |all| all.explain(&job).await).await?;
    let check = |check: elasticjob::Check| Check {
        name: check.name.word(),
        verdict: check.verdict.word(),
        evidence: check.evidence,
    };
    Ok(Json(explained.checks.into_iter().map(check).collect()))
}

/// Returns the next fire times of an expression.
#[utoipa::path(get, path = "/api/v1/fires", tag = "jobs", params(Fires),
    responses((status = 200, body = Times), (status = 400, body = Problem)))]
pub(super) async fn fires(Asked(asked): Asked<Fires>) -> Result<Json<Times>, Problem> {
    let invalid = |text: String| Problem::new(StatusCode::BAD_REQUEST, text);
    let count = asked.n.unwrap_or(10);
    if !(1..=FIRES_MAX).contains(&count) {
        return Err(invalid(format!("n: {count} is not a number from 1 to {FIRES_MAX}")));
    }
    let cron = Cron::parse(&asked.cron).map_err(|error| invalid(format!("cron: `{}`: {error}", short(&asked.cron))))?;
    let zone = asked.zone.as_deref().filter(|zone| !zone.is_empty());
    let zone = elasticjob::agent::java_zone(zone)
        .ok_or_else(|| invalid(format!("zone: `{}` is not a time zone", short(zone.unwrap_or_default()))))?;
    let mut times = Vec::new();
    let mut after = Timestamp(clock::millis());
    while times.len() < count
        && let Some(next) = cron.next(after, &zone)
    {
        times.push(next.0);
        after = next;
    }
    Ok(Json(Times { times }))
}

/// Runs each enabled item once, now.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/trigger", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn trigger(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    let triggered = on(&state, &centre, async |all| all.trigger(&job).await).await?;
    let notes = triggered.not_run.iter().map(|(item, reason)| format!("item {item}: {reason}")).collect();
    Ok(Json(Done { notes }))
}

/// Disables a job on all servers, also on those that join later.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/disable", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn disable(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.disable(Scope::Job(&job)).await).await
}

/// Enables a job on all servers.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/enable", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn enable(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.enable(Scope::Job(&job)).await).await
}

/// Stops a job in all instances, until their processes restart or reload their file.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/shutdown", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn shutdown(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.shutdown(Scope::Job(&job)).await).await
}

/// Stops a job in all instances, and deletes everything that the registry stores about it.
#[utoipa::path(delete, path = "/api/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn remove(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.remove_job(&job).await).await
}

/// Disables an item.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/items/{item}/disable", tag = "jobs",
    params(("job" = String, Path), ("item" = u32, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn disable_item(
    state: Shared,
    Named((job, item)): Named<(String, u32)>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.disable_items(&job, &[item]).await).await
}

/// Enables an item.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/items/{item}/enable", tag = "jobs",
    params(("job" = String, Path), ("item" = u32, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn enable_item(
    state: Shared,
    Named((job, item)): Named<(String, u32)>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.enable_items(&job, &[item]).await).await
}

/// Works on the registry center of a request.
pub(super) async fn on<T>(
    state: &State,
    centre: &Centre,
    work: impl AsyncFnOnce(&Operations) -> Result<T, OperationError>,
) -> Result<T, Problem> {
    let opened = state.centres.get(centre.name()).await?;
    let opened = opened.ok_or_else(none_connected)?;
    let done = work(&opened.operations).await;
    opened.close().await;
    Ok(done?)
}

pub(super) async fn change(
    state: &State,
    centre: &Centre,
    work: impl AsyncFnOnce(&Operations) -> Result<(), OperationError>,
) -> Result<Json<Done>, Problem> {
    let done = on(state, centre, work).await;
    state.pictures.forget(&state.centres, centre.name()).await;
    done?;
    Ok(Json(Done { notes: Vec::new() }))
}
