//! Servers: the hosts that run jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Json, Router};
use elasticjob::{Scope, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::jobs::{Done, change};
use super::{Asked, Centre, Named, Problem, Shared, none_connected};
use crate::clock;
use crate::fields::short;
use crate::pictures::Picture;
use crate::server::State;
use crate::view::{JobDetail, JobView};

/// All servers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Servers {
    /// The registry; null if no center is connected.
    registry: Option<String>,
    /// When it was read, in milliseconds since 1970.
    read_at: i64,
    /// The servers, by address.
    servers: Vec<ServerLine>,
}

/// A line about a server.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct ServerLine {
    /// The address.
    ip: String,
    /// The number of processes that are registered from it, each with at least one job.
    processes: usize,
    /// Whether Java instances are among them.
    java: bool,
    /// Whether Rust instances are among them.
    rust: bool,
    /// The number of jobs that know the server.
    jobs: usize,
    /// The number of jobs that are disabled on it.
    disabled: usize,
    /// The number of items that its instances own.
    items: usize,
    /// The number of items that are running on it.
    running: usize,
}

/// A server with its jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerDetail {
    /// The server.
    server: ServerLine,
    /// The jobs that know it, by name.
    jobs: Vec<JobOnServer>,
}

/// A job on a server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct JobOnServer {
    /// The name.
    job: String,
    /// Whether it is disabled on this server.
    disabled: bool,
    /// The ids of its instances on this server; none if it does not run here now.
    instances: Vec<String>,
    /// The items that they own.
    items: Vec<u32>,
    /// The items that are running on them.
    running: Vec<u32>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/servers", get(list))
        .route("/servers/{ip}", get(show).delete(remove))
        .route("/servers/{ip}/disable", post(disable))
        .route("/servers/{ip}/enable", post(enable))
        .route("/servers/{ip}/shutdown", post(shutdown))
        .route("/servers/{ip}/jobs/{job}", axum::routing::delete(remove_job))
        .route("/servers/{ip}/jobs/{job}/disable", post(disable_job))
        .route("/servers/{ip}/jobs/{job}/enable", post(enable_job))
        .route("/servers/{ip}/jobs/{job}/shutdown", post(shutdown_job))
}

/// The servers of a picture, each with its jobs.
fn servers(picture: &Picture) -> BTreeMap<String, (ServerLine, Vec<JobOnServer>)> {
    let mut found: BTreeMap<String, (ServerLine, Vec<JobOnServer>)> = BTreeMap::new();
    let mut processes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for report in &picture.jobs {
        let detail = JobView::new(report, Timestamp(picture.at)).detail(String::new());
        // An instance whose server has no node, as one that is joining, is on a server too.
        let known = detail.servers.iter().map(|server| &server.ip);
        let ips: BTreeSet<&String> = known.chain(detail.instances.iter().map(|instance| &instance.server)).collect();
        for ip in ips {
            let (line, jobs) = found.entry(ip.clone()).or_default();
            let job = on_server(&detail, ip);
            let kinds = || detail.instances.iter().filter(|one| one.server == *ip).map(|one| one.kind);
            line.ip.clone_from(ip);
            line.jobs += 1;
            line.disabled += usize::from(job.disabled);
            line.items += job.items.len();
            line.running += job.running.len();
            line.java |= kinds().any(|kind| kind == "java");
            line.rust |= kinds().any(|kind| kind == "rust");
            processes.entry(ip.clone()).or_default().extend(job.instances.iter().cloned());
            jobs.push(job);
        }
    }
    for (ip, ids) in processes {
        if let Some((line, _)) = found.get_mut(&ip) {
            line.processes = ids.len();
        }
    }
    found
}

fn on_server(detail: &JobDetail, ip: &str) -> JobOnServer {
    let instances: Vec<String> =
        detail.instances.iter().filter(|instance| instance.server == ip).map(|instance| instance.id.clone()).collect();
    let is_here = |id: &Option<String>| id.as_ref().is_some_and(|id| instances.contains(id));
    let items = |is: &dyn Fn(&crate::view::Item) -> bool| {
        detail.items.iter().filter(|item| is(item)).map(|item| item.item).collect::<Vec<_>>()
    };
    JobOnServer {
        job: detail.job.name.clone(),
        disabled: detail.servers.iter().any(|server| server.ip == ip && server.disabled),
        items: items(&|item| is_here(&item.owner)),
        running: items(&|item| is_here(&item.running_on)),
        instances,
    }
}

/// Lists all servers.
#[utoipa::path(get, path = "/api/v1/servers", tag = "servers", params(Centre),
    responses((status = 200, body = Servers), (status = 502, body = Problem)))]
pub(super) async fn list(state: Shared, Asked(centre): Asked<Centre>) -> Result<Json<Servers>, Problem> {
    Ok(Json(match state.pictures.get(&state.centres, centre.name()).await? {
        Some(picture) => Servers {
            registry: Some(picture.registry.clone()),
            read_at: picture.at,
            servers: servers(&picture).into_values().map(|(line, _)| line).collect(),
        },
        None => Servers { registry: None, read_at: clock::millis(), servers: Vec::new() },
    }))
}

/// Returns a server with its jobs.
#[utoipa::path(get, path = "/api/v1/servers/{ip}", tag = "servers", params(("ip" = String, Path), Centre),
    responses((status = 200, body = ServerDetail), (status = 404, body = Problem)))]
pub(super) async fn show(
    state: Shared,
    Named(ip): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<ServerDetail>, Problem> {
    let picture = state.pictures.get(&state.centres, centre.name()).await?.ok_or_else(none_connected)?;
    let unknown = || Problem::not_found(format!("server `{}` not found", short(&ip)));
    let (server, jobs) = servers(&picture).remove(&ip).ok_or_else(unknown)?;
    Ok(Json(ServerDetail { server, jobs }))
}

/// Disables all jobs on a server.
#[utoipa::path(post, path = "/api/v1/servers/{ip}/disable", tag = "servers", params(("ip" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn disable(
    state: Shared,
    Named(ip): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.disable(Scope::Server(&ip)).await).await
}

/// Enables all jobs on a server.
#[utoipa::path(post, path = "/api/v1/servers/{ip}/enable", tag = "servers", params(("ip" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn enable(
    state: Shared,
    Named(ip): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.enable(Scope::Server(&ip)).await).await
}

/// Stops all jobs in the instances on a server, until their processes restart or reload their file.
#[utoipa::path(post, path = "/api/v1/servers/{ip}/shutdown", tag = "servers", params(("ip" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn shutdown(
    state: Shared,
    Named(ip): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.shutdown(Scope::Server(&ip)).await).await
}

/// Stops all jobs on a server, and deletes its nodes.
#[utoipa::path(delete, path = "/api/v1/servers/{ip}", tag = "servers", params(("ip" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn remove(
    state: Shared,
    Named(ip): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.remove(Scope::Server(&ip)).await).await
}

/// Disables a job on a server.
#[utoipa::path(post, path = "/api/v1/servers/{ip}/jobs/{job}/disable", tag = "servers",
    params(("ip" = String, Path), ("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn disable_job(
    state: Shared,
    Named((ip, job)): Named<(String, String)>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.disable(Scope::JobOnServer(&job, &ip)).await).await
}

/// Enables a job on a server.
#[utoipa::path(post, path = "/api/v1/servers/{ip}/jobs/{job}/enable", tag = "servers",
    params(("ip" = String, Path), ("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn enable_job(
    state: Shared,
    Named((ip, job)): Named<(String, String)>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.enable(Scope::JobOnServer(&job, &ip)).await).await
}

/// Stops a job in its instances on a server.
#[utoipa::path(post, path = "/api/v1/servers/{ip}/jobs/{job}/shutdown", tag = "servers",
    params(("ip" = String, Path), ("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn shutdown_job(
    state: Shared,
    Named((ip, job)): Named<(String, String)>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.shutdown(Scope::JobOnServer(&job, &ip)).await).await
}

/// Stops a job on a server, and deletes the node of the server in the job.
#[utoipa::path(delete, path = "/api/v1/servers/{ip}/jobs/{job}", tag = "servers",
    params(("ip" = String, Path), ("job" = String, Path), Centre),
    responses((status = 200, body = Done), (status = 404, body = Problem)))]
pub(super) async fn remove_job(
    state: Shared,
    Named((ip, job)): Named<(String, String)>,
    Asked(centre): Asked<Centre>,
) -> Result<Json<Done>, Problem> {
    change(&state, &centre, async |all| all.remove(Scope::JobOnServer(&job, &ip)).await).await
}
