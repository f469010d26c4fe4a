//! Lists of jobs and items, and operations on them (Java: `JobOperationController`).

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Json, Router};
use elasticjob::{JobBrief, OperationError, Scope, ShardInfo, ShardStatus};
use serde::Serialize;

use super::{Answer, Centre, Model, Names, Shared, number, read, read_one, write};
use crate::failure::Failure;
use crate::server::State;

/// A line about a job (Java: `JobBriefInfo`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Brief {
    job_name: String,
    status: &'static str,
    description: Option<String>,
    cron: Option<String>,
    instance_count: usize,
    sharding_total_count: i64,
}

impl From<JobBrief> for Brief {
    fn from(brief: JobBrief) -> Brief {
        Brief {
            job_name: brief.job_name,
            status: brief.status.word(),
            // One job whose configuration cannot be read does not hide the others.
            description: brief.fault.map(|fault| format!("invalid configuration: {fault}")).or(brief.description),
            cron: brief.cron,
            instance_count: brief.instance_count,
            sharding_total_count: brief.sharding_total_count,
        }
    }
}

/// A line about an item (Java: `ShardingInfo`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sharding {
    item: u32,
    server_ip: Option<String>,
    instance_id: Option<String>,
    status: &'static str,
    failover: bool,
}

impl From<ShardInfo> for Sharding {
    fn from(info: ShardInfo) -> Sharding {
        // An owner that is gone is no owner.
        let is_owned = info.status != ShardStatus::ShardingFlag;
        Sharding {
            item: info.item,
            server_ip: info.server_ip.filter(|_| is_owned),
            instance_id: info.instance_id.filter(|_| is_owned),
            status: info.status.word(),
            failover: info.failover,
        }
    }
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/jobs/count", get(count))
        .route("/jobs/getAllJobsBriefInfo", get(list))
        .route("/jobs/{job}/trigger", post(trigger))
        .route("/jobs/{job}/disable", post(disable))
        .route("/jobs/{job}/enable", post(enable))
        .route("/jobs/{job}/shutdown", post(shutdown))
        .route("/jobs/{job}/sharding", get(items))
        .route("/jobs/{job}/sharding/{item}/disable", post(disable_item))
        .route("/jobs/{job}/sharding/{item}/enable", post(enable_item))
}

/// A bare number, as in ElasticJob-UI: the nodes below the namespace.
async fn count(state: Shared, centre: Centre) -> Result<Json<usize>, Failure> {
    Ok(Json(read_one(&state, centre, async |all| all.jobs_total_count().await).await?))
}

async fn list(state: Shared, centre: Centre) -> Answer<Vec<Brief>> {
    let jobs = read(&state, centre, async |all| all.jobs().await).await?.unwrap_or_default();
    Ok(Model(jobs.into_iter().map(Brief::from).collect()))
}

async fn trigger(state: Shared, centre: Centre, Names(job): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.trigger_instances(&job).await).await
}

async fn disable(state: Shared, centre: Centre, Names(job): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.switch_known_servers(&job, true).await).await
}

async fn enable(state: Shared, centre: Centre, Names(job): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.switch_known_servers(&job, false).await).await
}

async fn shutdown(state: Shared, centre: Centre, Names(job): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.shutdown(Scope::Job(&job)).await).await
}

/// An unknown job has no items, as in ElasticJob-UI.
async fn items(state: Shared, centre: Centre, Names(job): Names<String>) -> Answer<Vec<Sharding>> {
    let items = read_one(&state, centre, async |all| match all.items(&job).await {
        Err(OperationError::UnknownJob { .. }) => Ok(Vec::new()),
        found => found,
    });
    Ok(Model(items.await?.into_iter().map(Sharding::from).collect()))
}

async fn disable_item(state: Shared, centre: Centre, Names((job, item)): Names<(String, String)>) -> Answer<bool> {
    let item = number::<u32>(&item, "the number of an item")?;
    write(&state, centre, async |all| all.disable_items(&job, &[item]).await).await
}

async fn enable_item(state: Shared, centre: Centre, Names((job, item)): Names<(String, String)>) -> Answer<bool> {
    let item = number::<u32>(&item, "the number of an item")?;
    write(&state, centre, async |all| all.enable_items(&job, &[item]).await).await
}
