//! The configuration of a job (Java: `JobConfigController`).

use std::sync::Arc;

use axum::routing::{get, put};
use axum::{Extension, Router};
use elasticjob::{JobDocument, OperationError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Answer, Centre, Model, Names, Shared, read_one, write};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::server::State;
use crate::sessions::User;
use crate::settings::Role;

/// The stored configuration (Java: `JobConfigurationPOJO`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    job_name: String,
    cron: Option<String>,
    time_zone: Option<String>,
    sharding_total_count: i64,
    sharding_item_parameters: Option<String>,
    job_parameter: Option<String>,
    monitor_execution: bool,
    failover: bool,
    misfire: bool,
    max_time_diff_seconds: i64,
    reconcile_interval_minutes: i64,
    job_sharding_strategy_type: Option<String>,
    /// The name up to ElasticJob 3.0.4.
    job_executor_service_handler_type: Option<String>,
    /// The name from ElasticJob 3.0.5 on.
    job_executor_thread_pool_size_provider_type: Option<String>,
    job_error_handler_type: Option<String>,
    job_listener_types: Vec<String>,
    /// Always null, as in ElasticJob-UI: it has addresses and passwords of databases.
    job_extra_configurations: Option<()>,
    description: Option<String>,
    props: Map<String, Value>,
    disabled: bool,
    overwrite: bool,
    label: Option<String>,
    static_sharding: bool,
}

impl Configuration {
    fn of(document: JobDocument) -> Configuration {
        let stored_as_provider = document.has_thread_pool_size_provider();
        let (provider, handler) = match stored_as_provider {
            true => (document.thread_pool, None),
            false => (None, document.thread_pool),
        };
        Configuration {
            job_name: document.job_name,
            cron: document.cron,
            time_zone: document.time_zone,
            sharding_total_count: document.sharding_total_count,
            sharding_item_parameters: document.sharding_item_parameters,
            job_parameter: document.job_parameter,
            monitor_execution: document.monitor_execution,
            failover: document.failover,
            misfire: document.misfire,
            max_time_diff_seconds: document.max_time_diff_seconds,
            reconcile_interval_minutes: document.reconcile_interval_minutes,
            job_sharding_strategy_type: document.job_sharding_strategy_type,
            job_executor_service_handler_type: handler,
            job_executor_thread_pool_size_provider_type: provider,
            job_error_handler_type: document.job_error_handler_type,
            job_listener_types: document.job_listener_types,
            job_extra_configurations: None,
            description: document.description,
            props: document.props.into_iter().map(|(key, value)| (key, Value::String(value))).collect(),
            disabled: document.disabled,
            overwrite: document.overwrite,
            label: document.label,
            static_sharding: document.static_sharding,
        }
    }
}

/// A configuration from a request. A field that is missing gets Java's default, not the stored value.
fn given(fields: &Fields) -> Result<JobDocument, Failure> {
    let mut document = JobDocument::parse(b"{}").map_err(|error| Failure::failed(error.to_string()))?;
    let flag = |name: &str| fields.flag(name).map(Option::unwrap_or_default);
    document.job_name = fields.required("jobName")?;
    document.cron = fields.text("cron")?.filter(|cron| !cron.is_empty());
    document.time_zone = fields.text("timeZone")?.filter(|zone| !zone.is_empty());
    document.sharding_total_count = fields.number("shardingTotalCount", 0)?;
    document.sharding_item_parameters = fields.text("shardingItemParameters")?;
    document.job_parameter = fields.text("jobParameter")?;
    document.monitor_execution = flag("monitorExecution")?;
    document.failover = flag("failover")?;
    document.misfire = flag("misfire")?;
    document.max_time_diff_seconds = fields.number("maxTimeDiffSeconds", document.max_time_diff_seconds)?;
    document.reconcile_interval_minutes =
        fields.number("reconcileIntervalMinutes", document.reconcile_interval_minutes)?;
    document.job_sharding_strategy_type = fields.text("jobShardingStrategyType")?.filter(|name| !name.is_empty());
    // Front ends of both generations: the one that has a value counts.
    let names = ["jobExecutorThreadPoolSizeProviderType", "jobExecutorServiceHandlerType"];
    for name in names {
        let given = fields.text(name)?.filter(|name| !name.is_empty());
        document.thread_pool = document.thread_pool.or(given);
    }
    document.job_error_handler_type = fields.text("jobErrorHandlerType")?.filter(|name| !name.is_empty());
    document.job_listener_types = fields.texts("jobListenerTypes")?;
    document.description = fields.text("description")?;
    document.props = fields.properties("props")?.into_iter().collect();
    document.disabled = flag("disabled")?;
    document.overwrite = flag("overwrite")?;
    document.label = fields.text("label")?;
    document.static_sharding = flag("staticSharding")?;
    Ok(document)
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/jobs/config", put(change)).route("/jobs/config/{job}", get(show).delete(remove))
}

/// A guest sees no secrets.
async fn show(
    state: Shared,
    centre: Centre,
    Extension(user): Extension<User>,
    Names(job): Names<String>,
) -> Answer<Configuration> {
    let document = read_one(&state, centre, async |all| {
        let stored = all.config(&job).await?;
        let bad = |error: elasticjob::DocumentError| OperationError::BadConfig {
            job: job.clone(),
            reason: error.to_string(),
        };
        let text = match user.role {
            Role::Viewer => elasticjob::agent::masked_config(&stored.text),
            Role::Admin => stored.text,
        };
        JobDocument::parse(text.as_bytes()).map_err(bad)
    });
    Ok(Model(Configuration::of(document.await?)))
}

async fn change(state: Shared, centre: Centre, fields: Fields) -> Answer<bool> {
    let document = given(&fields)?;
    write(&state, centre, async |all| {
        let change = all.plan_config(document).await?;
        all.apply_to_config(&change).await
    })
    .await
}

async fn remove(state: Shared, centre: Centre, Names(job): Names<String>) -> Answer<bool> {
    write(&state, centre, async |all| all.remove_job(&job).await).await
}
