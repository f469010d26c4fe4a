//! `elasticjob job …`.

use elasticjob::{Explained, JobBrief, Operate, OperateError, Scope};
use serde_json::{Map, Value, json};

use super::{Attached, explained, linked, shards};
use crate::Failure;
use crate::args::{JobOperation, Jobs, Output};
use crate::output::{self, Listing};

pub(super) async fn run(operate: &Operate, operation: &JobOperation, format: Output) -> Result<(), Failure> {
    match operation {
        JobOperation::List { server, .. } => output::data(&list(operate, server.as_deref(), format).await?),
        JobOperation::Show { name } => show(operate, name, format).await?,
        JobOperation::Config { name } => output::data(&operate.config(name).await?.text),
        JobOperation::Trigger { names } => each(names, async |name| operate.trigger(name).await).await?,
        JobOperation::Disable(jobs) => on(jobs, async |scope| operate.disable(scope).await).await?,
        JobOperation::Enable(jobs) => on(jobs, async |scope| operate.enable(scope).await).await?,
        JobOperation::Shutdown(jobs) => on(jobs, async |scope| operate.shutdown(scope).await).await?,
        JobOperation::Remove { jobs, keep_config, yes } => remove(operate, jobs, *keep_config, *yes).await?,
        JobOperation::Dump { name, .. } => output::data(&operate.dump(name).await?),
        JobOperation::Apply { .. } | JobOperation::History { .. } | JobOperation::Explain { .. } => {}
    }
    Ok(())
}

/// The same for each job; what fails for one is told at the end, and the others are done.
async fn each(names: &[String], operation: impl AsyncFn(&str) -> Result<(), OperateError>) -> Result<(), Failure> {
    let progress = output::progress();
    let mut failures = Vec::new();
    for (done, name) in names.iter().enumerate() {
        progress(done, names.len());
        failures.extend(operation(name).await.err());
    }
    progress(names.len(), names.len());
    match (failures.len(), names.len()) {
        (0, _) => Ok(()),
        (1, 1) => Err(failures.remove(0).into()),
        (_, all) => Err(OperateError::Partly { done: all - failures.len(), failures }.into()),
    }
}

async fn on(jobs: &Jobs, operation: impl AsyncFn(Scope<'_>) -> Result<(), OperateError>) -> Result<(), Failure> {
    let scoped = async |name: &str| match &jobs.server {
        Some(server) => operation(Scope::JobOnServer(name, server)).await,
        None => operation(Scope::Job(name)).await,
    };
    each(&jobs.names, scoped).await
}

async fn remove(operate: &Operate, jobs: &Jobs, keep_config: bool, yes: bool) -> Result<(), Failure> {
    let names = jobs.names.join(", ");
    let question = match (&jobs.server, keep_config) {
        (Some(server), _) => format!("Remove server {server} from {names}, and shut down what runs there?"),
        (None, true) => format!("Remove all instances and servers of {names}?"),
        (None, false) => format!("Remove {names} with configuration and all marks, and shut down what runs?"),
    };
    // What is not there is told before anything is asked.
    for name in &jobs.names {
        if !keep_config && jobs.server.is_none() {
            continue; // also one without configuration can be removed
        }
        operate.config(name).await?;
    }
    if !output::confirm(&question, yes)? {
        return Err(anyhow::anyhow!("nothing was removed").into());
    }
    match keep_config || jobs.server.is_some() {
        true => on(jobs, async |scope| operate.remove(scope).await).await,
        false => each(&jobs.names, async |name| operate.remove_job(name).await).await,
    }
}

pub(super) async fn list(operate: &Operate, server: Option<&str>, format: Output) -> Result<String, Failure> {
    match server {
        None => Ok(listing(operate.jobs().await?).text(format)),
        Some(server) => Ok(on_server(operate.jobs_on_server(server).await?).text(format)),
    }
}

/// Java's `JobBriefInfo`; what it does not have is left out. `fault` is ours: why a configuration cannot be read.
fn brief(job: &JobBrief) -> Value {
    let mut object = Map::new();
    object.insert("jobName".into(), json!(job.job_name));
    object.insert("status".into(), json!(job.status.word()));
    let mut put = |key: &str, value: Option<Value>| drop(value.map(|value| object.insert(key.into(), value)));
    put("description", job.description.as_ref().map(|text| json!(text)));
    put("cron", job.cron.as_ref().map(|text| json!(text)));
    put("instanceCount", Some(json!(job.instance_count)));
    put("shardingTotalCount", Some(json!(job.sharding_total_count)));
    put("fault", job.fault.as_ref().map(|text| json!(text)));
    Value::Object(object)
}

fn listing(jobs: Vec<JobBrief>) -> Listing {
    let mut listing = Listing::new(&["JOB", "STATUS", "CRON", "INSTANCES", "ITEMS", "DESCRIPTION"]);
    for job in jobs {
        let object = brief(&job);
        let cron = job.cron.filter(|c| !c.is_empty()).unwrap_or_else(|| "-".into());
        let items = job.sharding_total_count.to_string();
        let description = match job.fault {
            Some(fault) => format!("configuration: {fault}"),
            None => job.description.unwrap_or_default(),
        };
        let instances = job.instance_count.to_string();
        listing.push(vec![job.job_name, job.status.word().to_owned(), cron, instances, items, description], object);
    }
    listing
}

/// A server's jobs: as Java has it, only name, status and number of instances.
pub(super) fn on_server(jobs: Vec<JobBrief>) -> Listing {
    let mut listing = Listing::new(&["JOB", "STATUS", "INSTANCES"]);
    for job in jobs {
        let object = brief(&job);
        listing.push(vec![job.job_name, job.status.word().to_owned(), job.instance_count.to_string()], object);
    }
    listing
}

/// A job with its items.
async fn show(operate: &Operate, name: &str, format: Output) -> Result<(), Failure> {
    let job = operate.job(name).await?;
    let items = shards::listing(operate.items(name).await?);
    let mut object = brief(&job);
    if format == Output::Table {
        output::data(&format!("{}\n{}", output::object(&object, format), items.table()));
        return Ok(());
    }
    if let Value::Object(entries) = &mut object {
        entries.insert("items".into(), Value::Array(items.into_objects()));
    }
    output::data(&output::object(&object, format));
    Ok(())
}

/// Asks a running process.
pub(super) fn dump_from(name: &str, from: &str) -> Result<(), Failure> {
    let parts = from.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        let line = format!("elasticjob: --from `{from}`: expected HOST:PORT, as 10.0.0.1:9888");
        return Err(Failure::Wrong(vec![line]));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    output::data(&runtime.block_on(elasticjob::dump_from(host.trim_matches(['[', ']']), port, name))?);
    Ok(())
}

/// Every check, then what they come to. A registry that does not answer is the first cause, and the operation failed.
pub(super) async fn explain(registry: Attached, name: &str, format: Output) -> Result<(), Failure> {
    let found = match linked(registry).await {
        Ok(registry) => Operate::new(registry).explain(name).await?,
        Err(Failure::Failed(error)) => Explained::without_registry(&format!("{error:#}")),
        Err(wrong) => return Err(wrong),
    };
    output::data(&explained(&found).text(format));
    let causes: Vec<&str> = found.causes().map(|cause| cause.name.word()).collect();
    match (causes.as_slice(), found.next) {
        (["registry"], _) => Err(anyhow::anyhow!("the registry does not answer").into()),
        ([], Some(next)) => {
            output::tell(&format!("nothing keeps `{name}` from running; it fires next at {next}"));
            Ok(())
        }
        ([], None) => {
            output::tell(&format!("nothing keeps `{name}` from running"));
            Ok(())
        }
        (causes, _) => {
            output::tell(&format!("`{name}` does not run as it should: {}", causes.join(", ")));
            Ok(())
        }
    }
}
