//! Lists of servers, and operations on them (Java: `ServerOperationController`).

use std::sync::Arc;

use axum::routing::{delete, get, post};
use axum::{Json, Router};
use elasticjob::agent::dump_from;
use elasticjob::{OperationError, Scope, ServerBrief};
use serde::Serialize;

use super::jobs::Brief;
use super::{Answer, Centre, Model, Names, Shared, number, read, read_one, write};
use crate::failure::Failure;
use crate::server::State;

/// A line about a server (Java: `ServerBriefInfo`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    server_ip: String,
    instances: Vec<String>,
    job_names: Vec<String>,
    instances_num: usize,
    jobs_num: usize,
    disabled_jobs_num: usize,
}

impl From<ServerBrief> for Server {
    fn from(brief: ServerBrief) -> Server {
        Server {
            server_ip: brief.server_ip,
            instances_num: brief.instances.len(),
            jobs_num: brief.job_names.len(),
            instances: brief.instances.into_iter().collect(),
            job_names: brief.job_names.into_iter().collect(),
            disabled_jobs_num: brief.disabled_jobs_num,
        }
    }
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/servers/count", get(count))
        .route("/servers/getAllServersBriefInfo", get(list))
        .route("/servers/{ip}", delete(remove))
        .route("/servers/{ip}/jobs", get(jobs))
        .route("/servers/{ip}/disable", post(disable))
        .route("/servers/{ip}/enable", post(enable))
        .route("/servers/{ip}/shutdown", post(shutdown))
        .route("/servers/{ip}/jobs/{job}", delete(remove_job))
        .route("/servers/{ip}/jobs/{job}/disable", post(disable_job))
        .route("/servers/{ip}/jobs/{job}/enable", post(enable_job))
        .route("/servers/{ip}/jobs/{job}/shutdown", post(shutdown_job))
        .route("/servers/{ip}/{port}/jobs/{job}/dump", post(dump))
}

/// A bare number, as in ElasticJob-UI.
async fn count(state: Shared, centre: Centre) -> Result<Json<usize>, Failure> {
    Ok(Json(read_one(&state, centre, async |all| all.servers_total_count().await).await?))
}

async fn list(state: Shared, centre: Centre) -> Answer<Vec<Server>> {
    let servers = read(&state, centre, async |all| all.servers().await).await?.unwrap_or_default();
    Ok(Model(servers.into_iter().map(Server::from).collect()))
}

/// An unknown server has no jobs, as in ElasticJob-UI.
async fn jobs(state: Shared, centre: Centre, Names(ip): Names<String>) -> Answer<Vec<Brief>> {
    let jobs = read_one(&state, centre, async |all| match all.jobs_on_server(&ip).await {
        Err(OperationError::UnknownServer { .. }) => Ok(Vec::new()),
        found => found,
    });
    Ok(Model(jobs.await?.into_iter().map(Brief::from).collect()))
}

async fn disable(state: Shared, centre: Centre, Names(ip): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.disable(Scope::Server(&ip)).await).await
}

async fn enable(state: Shared, centre: Centre, Names(ip): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.enable(Scope::Server(&ip)).await).await
}

async fn shutdown(state: Shared, centre: Centre, Names(ip): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.shutdown(Scope::Server(&ip)).await).await
}

async fn remove(state: Shared, centre: Centre, Names(ip): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.remove(Scope::Server(&ip)).await).await
}

async fn disable_job(state: Shared, centre: Centre, Names((ip, job)): Names<(String, String)>) -> Answer<bool> {
    write(&state, centre, async |all| all.disable(Scope::JobOnServer(&job, &ip)).await).await
}

async fn enable_job(state: Shared, centre: Centre, Names((ip, job)): Names<(String, String)>) -> Answer<bool> {
    write(&state, centre, async |all| all.enable(Scope::JobOnServer(&job, &ip)).await).await
}

async fn shutdown_job(state: Shared, centre: Centre, Names((ip, job)): Names<(String, String)>) -> Answer<bool> {
    write(&state, centre, async |all| all.shutdown(Scope::JobOnServer(&job, &ip)).await).await
}

async fn remove_job(state: Shared, centre: Centre, Names((ip, job)): Names<(String, String)>) -> Answer<bool> {
    write(&state, centre, async |all| all.remove(Scope::JobOnServer(&job, &ip)).await).await
}

/// Asks the dump service of an instance. Only of an instance of that job: the console does not connect to any other address.
async fn dump(
    state: Shared,
    centre: Centre,
    Names((ip, port, job)): Names<(String, String, String)>,
) -> Answer<String> {
    let port: u16 = number(&port, "a port, 1 to 65535")?;
    let servers = read_one(&state, centre, async |all| all.live_servers(&job).await).await;
    let servers = servers.map_err(|failure| Failure::invalid(failure.text))?;
    if !servers.contains(&ip) {
        let text = format!("job `{job}` has no running instance on server `{}`", crate::fields::short(&ip));
        return Err(Failure::invalid(text));
    }
    let text = dump_from(&ip, port, &job).await.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Model(text))
}
