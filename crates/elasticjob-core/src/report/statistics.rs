//! A line about each job, server and item, with Java's rules for its status (Java: `JobStatisticsAPI`, `ServerStatisticsAPI`,
//! `ShardingStatisticsAPI`).

use std::collections::{BTreeMap, BTreeSet};

use super::JobReport;
use crate::job_state::ServerState;
use crate::tree::Node;
use crate::wire::{JobDocument, parse_instance};

/// The status of a job (Java: `JobBriefInfo.JobStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobStatus {
    /// It has instances, and each item that is assigned belongs to one of them.
    Ok,
    /// It has no instance.
    Crashed,
    /// All of its servers are disabled.
    Disabled,
    /// No item is assigned, or one to an instance that is not there: to be sharded.
    ShardingFlag,
}

impl JobStatus {
    /// Java's word.
    pub fn word(self) -> &'static str {
        match self {
            JobStatus::Ok => "OK",
            JobStatus::Crashed => "CRASHED",
            JobStatus::Disabled => "DISABLED",
            JobStatus::ShardingFlag => "SHARDING_FLAG",
        }
    }
}

/// One line about a job (Java: `JobBriefInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobBrief {
    /// The job's name.
    pub job_name: String,
    /// The status.
    pub status: JobStatus,
    /// Its description; none of a line that is about one server, as in Java.
    pub description: Option<String>,
    /// Its cron expression, if it has one.
    pub cron: Option<String>,
    /// How many instances it has; of a line that is about one server, how many there.
    pub instance_count: usize,
    /// Into how many items it is cut; 0 of a line that is about one server, as in Java.
    pub sharding_total_count: i64,
    /// Why the configuration, or another node of the job, cannot be read. Java fails for all jobs then.
    pub fault: Option<String>,
}

/// One line about a server (Java: `ServerBriefInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerBrief {
    /// Its IP.
    pub server_ip: String,
    /// The ids of its instances, of all jobs.
    pub instances: BTreeSet<String>,
    /// The jobs that know it.
    pub job_names: BTreeSet<String>,
    /// How many of these have it disabled.
    pub disabled_jobs_num: usize,
}

/// The status of an item (Java: `ShardingInfo.ShardingStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardStatus {
    /// An operator disabled it.
    Disabled,
    /// It runs.
    Running,
    /// It has no owner that is there: to be sharded.
    ShardingFlag,
    /// It waits for its next firing.
    Pending,
}

impl ShardStatus {
    /// Java's word.
    pub fn word(self) -> &'static str {
        match self {
            ShardStatus::Disabled => "DISABLED",
            ShardStatus::Running => "RUNNING",
            ShardStatus::ShardingFlag => "SHARDING_FLAG",
            ShardStatus::Pending => "PENDING",
        }
    }
}

/// One line about an item (Java: `ShardingInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Its number.
    pub item: u32,
    /// Its owner's server; `None` when it has no owner.
    pub server_ip: Option<String>,
    /// Its owner's id; `None` when it has none. Java fails when the owner is not there.
    pub instance_id: Option<String>,
    /// The status.
    pub status: ShardStatus,
    /// Whether another instance has taken it over from one that died.
    pub failover: bool,
}

/// The line about a job. Returns `None` if the job has no configuration.
pub fn job_brief(report: &JobReport) -> Option<JobBrief> {
    let denied = report.denied.first().map(|path| format!("access to `{path}` is denied"));
    let (document, fault) = match report.state.config.as_ref().map(|config| JobDocument::parse(&config.data)) {
        Some(Ok(document)) => (Some(document), denied),
        Some(Err(error)) => (None, denied.or_else(|| Some(error.to_string()))),
        None => (None, Some(denied?)),
    };
    Some(JobBrief {
        job_name: report.path.job().to_owned(),
        status: job_status(report),
        description: Some(document.as_ref().and_then(|d| d.description.clone()).unwrap_or_default()),
        cron: document.as_ref().and_then(|d| d.cron.clone()),
        instance_count: report.state.instances.len(),
        sharding_total_count: document.as_ref().map_or(0, |d| d.sharding_total_count),
        fault,
    })
}

/// Java's rules, the first that fits.
fn job_status(report: &JobReport) -> JobStatus {
    let state = &report.state;
    let disabled = state.servers.keys().filter(|ip| state.server(ip) == Some(ServerState::Disabled)).count();
    let owners: BTreeSet<String> = report.items.values().filter_map(super::ItemReport::owner_id).collect();
    if state.instances.is_empty() {
        JobStatus::Crashed
    } else if disabled == state.servers.len() {
        JobStatus::Disabled
    } else if owners.is_empty() || !owners.iter().all(|id| state.is_live(id)) {
        JobStatus::ShardingFlag
    } else {
        JobStatus::Ok
    }
}

impl JobBrief {
    /// The line about a job on one server; `None` when the job does not know it.
    pub fn on_server(report: &JobReport, ip: &str) -> Option<JobBrief> {
        let server = report.state.servers.get(ip)?;
        let here = |node: &&Node| parse_instance(&node.data).is_some_and(|i| i.server_ip == ip);
        Some(JobBrief {
            job_name: report.path.job().to_owned(),
            status: if is_disabled_in_any_case(server) { JobStatus::Disabled } else { JobStatus::Ok },
            description: None,
            cron: None,
            instance_count: report.state.instances.values().filter(here).count(),
            sharding_total_count: 0,
            fault: None,
        })
    }
}

fn is_disabled_in_any_case(server: &Node) -> bool {
    server.text().eq_ignore_ascii_case("DISABLED")
}

/// The lines about all servers of these jobs, in text order.
pub fn server_briefs<'a>(reports: impl IntoIterator<Item = &'a JobReport> + Clone) -> Vec<ServerBrief> {
    let mut briefs: BTreeMap<&str, ServerBrief> = BTreeMap::new();
    for report in reports.clone() {
        for (ip, node) in &report.state.servers {
            let brief = briefs.entry(ip).or_default();
            brief.server_ip.clone_from(ip);
            brief.job_names.insert(report.path.job().to_owned());
            brief.disabled_jobs_num += usize::from(is_disabled_in_any_case(node));
        }
    }
    for report in reports {
        for (id, node) in &report.state.instances {
            let ip = parse_instance(&node.data).map(|i| i.server_ip);
            if let Some(brief) = ip.and_then(|ip| briefs.get_mut(ip.as_str())) {
                brief.instances.insert(id.clone());
            }
        }
    }
    briefs.into_values().collect()
}

/// The lines about a job's items, by number.
pub fn shard_infos(report: &JobReport) -> Vec<ShardInfo> {
    let line = |(item, nodes): (&u32, &super::ItemReport)| {
        let owner = nodes.owner_id();
        let node = owner.as_ref().and_then(|id| report.state.instances.get(id));
        let status = if nodes.disabled.is_some() {
            ShardStatus::Disabled
        } else if nodes.running.is_some() {
            ShardStatus::Running
        } else if node.is_none() {
            ShardStatus::ShardingFlag
        } else {
            ShardStatus::Pending
        };
        let told = node.and_then(|n| parse_instance(&n.data)).map(|i| i.server_ip);
        let server_ip = told.or_else(|| Some(owner.as_deref()?.split("@-@").next()?.to_owned()));
        ShardInfo { item: *item, server_ip, instance_id: owner, status, failover: nodes.failover.is_some() }
    };
    report.items.iter().map(line).collect()
}
