//! `elasticjob server …`.

use elasticjob::{Operate, OperateError, Scope};
use serde_json::{Value, json};

use super::jobs::on_server;
use crate::Failure;
use crate::args::{Output, ServerOperation};
use crate::output::{self, Listing};

pub(super) async fn run(operate: &Operate, operation: &ServerOperation, format: Output) -> Result<(), Failure> {
    match operation {
        ServerOperation::List => output::data(&listing(operate, None).await?.text(format))?,
        ServerOperation::Show { ip } => show(operate, ip, format).await?,
        ServerOperation::Disable { ip } => operate.disable(Scope::Server(ip)).await?,
        ServerOperation::Enable { ip } => operate.enable(Scope::Server(ip)).await?,
        ServerOperation::Shutdown { ip } => operate.shutdown(Scope::Server(ip)).await?,
        ServerOperation::Remove { ip, yes } => {
            let jobs = operate.jobs_of(ip).await?.len();
            let question = format!("Remove server {ip} from {jobs} jobs, and shut down what runs there?");
            if !output::confirm(&question, *yes).await? {
                return Err(anyhow::anyhow!("nothing was removed").into());
            }
            operate.remove(Scope::Server(ip)).await?;
        }
    }
    Ok(())
}

/// All servers, or one.
async fn listing(operate: &Operate, only: Option<&str>) -> Result<Listing, Failure> {
    let mut listing = Listing::new(&["SERVER", "INSTANCES", "JOBS", "DISABLED"]);
    let servers = operate.servers().await?;
    for server in servers.into_iter().filter(|server| only.is_none_or(|ip| ip == server.server_ip)) {
        let (instances, jobs) = (server.instances.len(), server.job_names.len());
        let object = json!({
            "serverIp": server.server_ip,
            "instances": server.instances,
            "jobNames": server.job_names,
            "instancesNum": instances,
            "jobsNum": jobs,
            "disabledJobsNum": server.disabled_jobs_num,
        });
        let counts = [instances, jobs, server.disabled_jobs_num].map(|count| count.to_string());
        listing.push([vec![server.server_ip], counts.to_vec()].concat(), object);
    }
    Ok(listing)
}

/// A server with its jobs.
async fn show(operate: &Operate, ip: &str, format: Output) -> Result<(), Failure> {
    let jobs = on_server(operate.jobs_on_server(ip).await?);
    let found = listing(operate, Some(ip)).await?;
    if format == Output::Table {
        return output::data(&format!("{}\n{}", found.table(), jobs.table()));
    }
    let unknown = || OperateError::UnknownServer { job: None, server: ip.to_owned() };
    let mut object = found.into_objects().pop().ok_or_else(unknown)?;
    if let Value::Object(entries) = &mut object {
        entries.insert("jobs".into(), Value::Array(jobs.into_objects()));
    }
    output::data(&output::object(&object, format))
}
