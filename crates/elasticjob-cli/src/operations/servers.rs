//! `elasticjob server …`.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use elasticjob::{JobStatus, OperationError, Operations, Scope};
use serde_json::{Value, json};

use super::jobs::on_server;
use crate::Failure;
use crate::args::{Output, ServerOperation};
use crate::output::{self, Listing};

pub(super) async fn run(operations: &Operations, operation: &ServerOperation, format: Output) -> Result<(), Failure> {
    let known = match operation {
        ServerOperation::List => String::new(),
        ServerOperation::Show { ip }
        | ServerOperation::Disable { ip }
        | ServerOperation::Enable { ip }
        | ServerOperation::Shutdown { ip }
        | ServerOperation::Remove { ip, .. } => as_stored(operations, ip).await?,
    };
    let ip = known.as_str();
    match operation {
        ServerOperation::List => {
            output::data(&listing(operations, None).await?.text(format))?;
            if let Some(line) = unevenness(&operations.items_by_server().await?) {
                output::tell(&line);
            }
        }
        ServerOperation::Show { .. } => show(operations, ip, format).await?,
        ServerOperation::Disable { .. } => operations.disable(Scope::Server(ip)).await?,
        ServerOperation::Enable { .. } => {
            operations.enable(Scope::Server(ip)).await?;
            let jobs = operations.jobs_on_server(ip).await?;
            for job in jobs.iter().filter(|job| job.status == JobStatus::Disabled) {
                let name = &job.job_name;
                output::tell(&format!("job `{name}` stays disabled; enable it with `elasticjob job enable {name}`"));
            }
        }
        ServerOperation::Shutdown { .. } => operations.shutdown(Scope::Server(ip)).await?,
        ServerOperation::Remove { yes, .. } => {
            let jobs = operations.jobs_of(ip).await?.len();
            let question = format!("Stop {jobs} jobs on server {ip}, and delete the nodes of this server?");
            if !output::confirm(&question, *yes).await? {
                return Err(anyhow::anyhow!("nothing was removed").into());
            }
            operations.remove(Scope::Server(ip)).await?;
        }
    }
    Ok(())
}

/// Returns the name of the server in the registry. An IPv6 address has several spellings: Java writes all of its groups, people
/// write it in brackets or capital letters. Any other text is returned unchanged.
pub(super) async fn as_stored(operations: &Operations, ip: &str) -> Result<String, OperationError> {
    let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse::<Ipv6Addr>().ok();
    let Some(wanted) = address(ip) else { return Ok(ip.to_owned()) };
    let servers = operations.servers().await?;
    let found = servers.into_iter().find(|server| address(&server.server_ip) == Some(wanted));
    Ok(found.map_or_else(|| wanted.to_string(), |server| server.server_ip))
}

/// All servers, or one.
async fn listing(operations: &Operations, only: Option<&str>) -> Result<Listing, Failure> {
    let mut listing = Listing::new(&["SERVER", "INSTANCES", "JOBS", "DISABLED"]);
    let servers = operations.servers().await?;
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

/// A line about servers that own many more items than others: jobs with few items meet on the same server by default.
fn unevenness(items: &BTreeMap<String, usize>) -> Option<String> {
    let (most, count) = items.iter().max_by_key(|(_, count)| **count)?;
    let (least, fewest) = items.iter().min_by_key(|(_, count)| **count)?;
    let total: usize = items.values().sum();
    // More than twice the average, and with two servers more than three times the other one.
    let is_uneven = count - fewest >= UNEVEN_ITEMS && (*count * items.len() > 2 * total || *count > 3 * *fewest);
    is_uneven.then(|| {
        format!(
            "the items are unevenly distributed: server {most} owns {count} of {total} items, server {least} owns {fewest}; `jobShardingStrategyType: ROUND_ROBIN` distributes jobs with few items over all servers"
        )
    })
}

/// Fewer items more than another server has are no matter.
const UNEVEN_ITEMS: usize = 4;

/// A server with its jobs.
async fn show(operations: &Operations, ip: &str, format: Output) -> Result<(), Failure> {
    let jobs = on_server(operations.jobs_on_server(ip).await?);
    let found = listing(operations, Some(ip)).await?;
    if format == Output::Table {
        return output::data(&format!("{}\n{}", found.table(), jobs.table()));
    }
    let unknown = || OperationError::UnknownServer { job: None, server: ip.to_owned() };
    let mut object = found.into_objects().pop().ok_or_else(unknown)?;
    if let Value::Object(entries) = &mut object {
        entries.insert("jobs".into(), Value::Array(jobs.into_objects()));
    }
    output::data(&output::object(&object, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_own_much_more_than_others_are_named() {
        let line = |items: &[(&str, usize)]| {
            unevenness(&items.iter().map(|(ip, count)| ((*ip).to_owned(), *count)).collect::<BTreeMap<_, _>>())
        };
        let uneven = line(&[("a", 30), ("b", 0), ("c", 0)]).expect("all on one");
        assert!(
            uneven.starts_with("the items are unevenly distributed: server a owns 30 of 30 items, server b owns 0;"),
            "{uneven}"
        );
        for even in
            [&[][..], &[("a", 30)], &[("a", 10), ("b", 12)], &[("a", 3), ("b", 0)], &[("a", 20), ("b", 14), ("c", 10)]]
        {
            assert_eq!(line(even), None, "{even:?}");
        }
    }
}
