//! `elasticjob job …`.

use elasticjob::{Difference, Explained, JobBrief, OperationError, Operations, Scope};
use elasticjob_core::wire::yaml::{self, Typed, Yaml};
use serde_json::{Map, Value, json};

use super::{Attached, explained, linked, servers, shards};
use crate::Failure;
use crate::args::{Jobs, Output};
use crate::output::{self, Listing};

/// `job list`.
pub(super) async fn print_list(operations: &Operations, server: Option<&str>, format: Output) -> Result<(), Failure> {
    if server.is_none() {
        let jobs = operations.jobs().await?;
        if jobs.is_empty() {
            output::tell("this registry contains no job; check its address and its namespace");
        }
        return output::data(&listing(jobs).text(format));
    }
    output::data(&list(operations, server, format).await?)
}

/// `job config`.
pub(super) async fn print_config(operations: &Operations, name: &str, format: Output) -> Result<(), Failure> {
    output::data(&config(&operations.config(name).await?.text, format)?)
}

/// The stored text; as JSON, with Java's keys, where that is asked for.
fn config(text: &str, format: Output) -> Result<String, Failure> {
    if format != Output::Json {
        return Ok(text.to_owned());
    }
    Ok(format!("{}\n", json_of(&yaml::parse(text)?)))
}

/// A YAML value with the types that Java gives it.
fn json_of(value: &Yaml) -> Value {
    match &value.value {
        yaml::Value::List(members) => members.iter().map(json_of).collect(),
        yaml::Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.value))).collect(),
        yaml::Value::Scalar { text, .. } => match value.typed() {
            Some(Typed::Null) => Value::Null,
            Some(Typed::Bool(flag)) => json!(flag),
            Some(Typed::Int(number)) => json!(number),
            Some(Typed::Float(number)) => json!(number),
            Some(Typed::Date | Typed::Text) | None => json!(text),
        },
    }
}

/// Applies an operation to each job. Failures are reported at the end; the other jobs are done.
pub(super) async fn each(
    names: &[String],
    operation: impl AsyncFn(&str) -> Result<(), OperationError>,
) -> Result<(), Failure> {
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
        (_, all) => Err(OperationError::Partly { done: all - failures.len(), failures }.into()),
    }
}

/// The same for jobs, on all servers or on one. Unknown names are reported before anything is changed.
pub(super) async fn each_in(
    operations: &Operations,
    jobs: &Jobs,
    operation: impl AsyncFn(Scope<'_>) -> Result<(), OperationError>,
) -> Result<(), Failure> {
    let jobs = &jobs.as_stored(operations).await?;
    for name in &jobs.names {
        operations.check(jobs.scope(name)).await?;
    }
    each(&jobs.names, async |name| operation(jobs.scope(name)).await).await
}

impl Jobs {
    /// The same with the server's name as the registry has it.
    async fn as_stored(&self, operations: &Operations) -> Result<Jobs, OperationError> {
        let server = match &self.server {
            Some(server) => Some(servers::as_stored(operations, server).await?),
            None => None,
        };
        Ok(Jobs { names: self.names.clone(), server })
    }

    fn scope<'a>(&'a self, name: &'a str) -> Scope<'a> {
        match &self.server {
            Some(server) => Scope::JobOnServer(name, server),
            None => Scope::Job(name),
        }
    }
}

pub(super) async fn remove(operations: &Operations, jobs: &Jobs, keep_config: bool, yes: bool) -> Result<(), Failure> {
    let jobs = &jobs.as_stored(operations).await?;
    let names = output::quoted(&jobs.names);
    let (noun, their) = if jobs.names.len() == 1 { ("job", "its") } else { ("jobs", "their") };
    let wholly = !keep_config && jobs.server.is_none();
    for name in &jobs.names {
        match wholly {
            true => operations.check_removable(name).await?,
            false => operations.check(jobs.scope(name)).await?,
        }
    }
    let question = match (&jobs.server, keep_config) {
        (Some(server), _) => format!("Stop {noun} {names} on server {server}, and delete the nodes of this server?"),
        (None, true) => format!("Stop {noun} {names} in all instances, and delete {their} instance and server nodes?"),
        (None, false) => {
            format!("Stop {noun} {names} in all instances, and delete {their} configuration and all of {their} data?")
        }
    };
    if !output::confirm(&question, yes).await? {
        return Err(anyhow::anyhow!("nothing was removed").into());
    }
    match wholly {
        true => each(&jobs.names, async |name| operations.remove_job(name).await).await,
        false => each_in(operations, jobs, async |scope| operations.remove(scope).await).await,
    }
}

pub(super) async fn list(operations: &Operations, server: Option<&str>, format: Output) -> Result<String, Failure> {
    match server {
        None => Ok(listing(operations.jobs().await?).text(format)),
        Some(server) => {
            let server = servers::as_stored(operations, server).await?;
            Ok(on_server(operations.jobs_on_server(&server).await?).text(format))
        }
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
            Some(fault) => format!("cannot read the job: {fault}"),
            None => output::beginning(&job.description.unwrap_or_default()),
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

fn differences(found: Vec<(String, Vec<Difference>)>) -> Listing {
    let mut listing = Listing::new(&["INSTANCE", "KEY", "STARTED WITH", "STORED"]);
    for (instance, differences) in found {
        for Difference { key, here, stored, .. } in differences {
            let object = json!({"instance": instance, "key": key, "startedWith": here, "stored": stored});
            let (here, stored) = (output::beginning(&here), output::beginning(&stored));
            listing.push(vec![instance.clone(), key, here, stored], object);
        }
    }
    listing
}

/// A job with its items.
pub(super) async fn show(operations: &Operations, name: &str, format: Output) -> Result<(), Failure> {
    let job = operations.job(name).await?;
    let items = shards::listing(operations.items(name).await?);
    let differences = differences(operations.differences(name).await?);
    let mut object = brief(&job);
    if format == Output::Table {
        let differences = match differences.is_empty() {
            true => String::new(),
            false => format!("\nInstances that were started with another configuration:\n{}", differences.table()),
        };
        return output::data(&format!("{}\n{}{differences}", output::object(&object, format), items.table()));
    }
    if let Value::Object(entries) = &mut object {
        entries.insert("items".into(), Value::Array(items.into_objects()));
        if !differences.is_empty() {
            entries.insert("differences".into(), Value::Array(differences.into_objects()));
        }
    }
    output::data(&output::object(&object, format))
}

/// Asks a running process.
pub(super) fn dump_from(name: &str, from: &str) -> Result<(), Failure> {
    let parts = from.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        let line = format!("elasticjob: --from `{from}`: expected HOST:PORT, such as 10.0.0.1:9888");
        return Err(Failure::Wrong(vec![line]));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    output::data(&runtime.block_on(elasticjob::agent::dump_from(host.trim_matches(['[', ']']), port, name))?)
}

/// Every check, then what they come to. A registry that does not answer is the first cause, and the operation failed.
pub(super) async fn explain(registry: Attached, name: &str, format: Output) -> Result<(), Failure> {
    let found = match linked(registry).await {
        Ok(registry) => Operations::new(registry).explain(name).await?,
        Err(Failure::Failed(error)) => Explained::without_registry(&format!("{error:#}")),
        Err(wrong) => return Err(wrong),
    };
    output::data(&explained(&found).text(format))?;
    let causes: Vec<&str> = found.causes().map(|cause| cause.name.word()).collect();
    match (causes.as_slice(), found.next) {
        (["registry"], _) => Err(anyhow::anyhow!("cannot explain the job, because the registry cannot be read").into()),
        ([], Some(next)) => {
            output::tell(&format!("nothing keeps `{name}` from running; it fires next at {next}"));
            Ok(())
        }
        ([], None) => {
            output::tell(&format!("nothing keeps `{name}` from running"));
            Ok(())
        }
        (causes, _) => {
            output::tell(&format!(
                "causes that keep job `{name}`, or a part of it, from running: {}",
                causes.join(", ")
            ));
            Ok(())
        }
    }
}
