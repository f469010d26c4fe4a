//! `elasticjob job …`: operations, directly on the registry.

use elasticjob::{Operate, OperateError};

use crate::Failure;
use crate::args::{JobOperation, Output};
use crate::output;

/// The registry of commands that name none.
const DEFAULT_REGISTRY: &str = "embedded:elasticjob.db";

pub(crate) fn run(operation: &JobOperation, registry: Option<&str>, format: Output) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(async {
        let address = crate::agent::with_digest(registry.unwrap_or(DEFAULT_REGISTRY));
        let registry = elasticjob::registry::attach(&address).await.map_err(|error| match error {
            elasticjob::registry::Error::Address { .. } | elasticjob::registry::Error::Setting { .. } => {
                Failure::Wrong(vec![format!("elasticjob: --registry: {error}")])
            }
            error => error.into(),
        })?;
        wait_for_link(&*registry).await?;
        let operate = Operate::new(registry.clone());
        let done = carry_out(&operate, operation, format).await;
        registry.close().await;
        Ok(done?)
    })
}

/// A command does not wait for ever for a registry that is not there.
async fn wait_for_link(registry: &dyn elasticjob::registry::Registry) -> Result<(), Failure> {
    let mut link = registry.link();
    let up = link.wait_for(|l| matches!(l, elasticjob::registry::Link::Up { .. }));
    match tokio::time::timeout(std::time::Duration::from_secs(15), up).await {
        Ok(Ok(_)) => Ok(()),
        _ => {
            let reason = format!("{:?}", *registry.link().borrow());
            Err(anyhow::anyhow!("{} does not answer: {reason}", registry.describe()).into())
        }
    }
}

async fn carry_out(operate: &Operate, operation: &JobOperation, format: Output) -> Result<(), OperateError> {
    match operation {
        JobOperation::List => list(operate, format).await?,
        JobOperation::Config { name } => output::data(&operate.config(name).await?),
        JobOperation::Trigger { name } => operate.trigger(name).await?,
        JobOperation::Disable { name } => operate.disable(name).await?,
        JobOperation::Enable { name } => operate.enable(name).await?,
        JobOperation::Shutdown { name } => operate.shutdown(name).await?,
    }
    Ok(())
}

async fn list(operate: &Operate, format: Output) -> Result<(), OperateError> {
    let jobs = operate.list().await?;
    let objects: Vec<serde_json::Value> = jobs
        .iter()
        .map(|job| {
            let mut object = serde_json::json!({
                "jobName": job.job_name,
                "status": job.status,
                "description": job.description,
                "instanceCount": job.instance_count,
                "shardingTotalCount": job.sharding_total_count,
            });
            if let (Some(cron), Some(map)) = (&job.cron, object.as_object_mut()) {
                map.insert("cron".into(), cron.clone().into());
            }
            object
        })
        .collect();
    output::data(&match format {
        Output::Json => format!("{}\n", serde_json::Value::Array(objects)),
        // Each object on a line of its own: JSON is YAML.
        Output::Yaml => objects.iter().map(|o| format!("- {o}\n")).collect(),
        Output::Table => {
            let rows: Vec<Vec<String>> = jobs
                .into_iter()
                .map(|job| {
                    let cron = job.cron.unwrap_or_else(|| "-".into());
                    let counts = (job.instance_count.to_string(), job.sharding_total_count.to_string());
                    vec![job.job_name, job.status.to_owned(), cron, counts.0, counts.1, job.description]
                })
                .collect();
            output::table(&["JOB", "STATUS", "CRON", "INSTANCES", "ITEMS", "DESCRIPTION"], &rows)
        }
    });
    Ok(())
}
