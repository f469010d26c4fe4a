//! Disable, enable, shut down (Java: `JobOperateAPI`).

use elasticjob_core::job_state::ServerState;
use elasticjob_core::report::{Detail, JobReport};
use elasticjob_core::tree::{Node, Op};
use elasticjob_core::wire::{JobDocument, parse_instance};

use super::{OperationError, Operations, Scope};

impl Operations {
    /// Lets items rest. A whole job rests on every server that it has and on those to come, also after restarts, whatever `overwrite` says; a server rests with each of its jobs. Where the stored configuration cannot be read,
    /// the servers that are there rest.
    ///
    /// # Errors
    ///
    /// There is no such job or server, or the registry failed.
    pub async fn disable(&self, scope: Scope<'_>) -> Result<(), OperationError> {
        self.set_disabled(scope, true).await
    }

    /// Undoes [`Operations::disable`] of the same scope. A job that was disabled as a whole stays so when one of its servers is enabled with
    /// all of its jobs; Java enables it there.
    ///
    /// # Errors
    ///
    /// There is no such job or server, or the registry failed.
    pub async fn enable(&self, scope: Scope<'_>) -> Result<(), OperationError> {
        self.set_disabled(scope, false).await
    }

    async fn set_disabled(&self, scope: Scope<'_>, disabled: bool) -> Result<(), OperationError> {
        let on = |report: &JobReport, ip: &String| switch_server(report, ip, disabled);
        match scope {
            Scope::Job(job) => {
                self.change_job(job, Detail::Brief, false, |report| {
                    let mut ops = switch_servers(report, disabled);
                    ops.extend(disabled_in_config(report, disabled));
                    Ok(ops)
                })
                .await
            }
            Scope::JobOnServer(job, server) => {
                self.change_job(job, Detail::Brief, false, |report| {
                    known_server(report, server)?;
                    Ok(on(report, &server.to_owned()).into_iter().collect())
                })
                .await
            }
            Scope::Server(server) => {
                let jobs = self.jobs_of(server).await?;
                let one = |job: String| async move {
                    let ip = server.to_owned();
                    let ops = |report: &JobReport| match !disabled && is_disabled_as_a_whole(report) {
                        true => Ok(Vec::new()),
                        false => Ok(on(report, &ip).into_iter().collect()),
                    };
                    self.change(&job, Detail::Brief, false, ops).await
                };
                self.each(&jobs, one).await
            }
        }
    }

    /// Takes the job out of the processes that run it, by deleting their instance nodes: what runs there ends first. The
    /// processes live on; the job stays down there until they start it again.
    ///
    /// # Errors
    ///
    /// There is no such job or server, or the registry failed.
    pub async fn shutdown(&self, scope: Scope<'_>) -> Result<(), OperationError> {
        match scope {
            Scope::Job(job) => self.change_job(job, Detail::Items, false, |report| Ok(shut(report, None))).await,
            Scope::JobOnServer(job, server) => {
                self.change_job(job, Detail::Items, false, |report| {
                    let ops = shut(report, Some(server));
                    if ops.is_empty() {
                        known_server(report, server)?;
                    }
                    Ok(ops)
                })
                .await
            }
            Scope::Server(server) => {
                let jobs = self.jobs_of(server).await?;
                let one = |job: String| async move {
                    self.change(&job, Detail::Items, false, |report| Ok(shut(report, Some(server)))).await
                };
                self.each(&jobs, one).await
            }
        }
    }

    /// Of an unknown job nothing is written, not even a parent.
    pub(super) async fn change_job(
        &self,
        job: &str,
        detail: Detail,
        once: bool,
        ops: impl Fn(&JobReport) -> Result<Vec<Op>, OperationError>,
    ) -> Result<(), OperationError> {
        let unknown = OperationError::UnknownJob { job: job.to_owned(), near: None };
        let changed = self.change(job, detail, once, |report| match report.state.config {
            Some(_) => ops(report),
            None => Err(unknown.clone()),
        });
        match changed.await {
            Err(error) if error == unknown => Err(self.unknown_job(job).await),
            changed => changed,
        }
    }

    /// Whether an operation with that scope has something to work on: before one that changes the first of many.
    ///
    /// # Errors
    ///
    /// There is no such job or server, or the registry failed.
    pub async fn check(&self, scope: Scope<'_>) -> Result<(), OperationError> {
        match scope {
            Scope::Job(job) => self.known_report(job, Detail::Brief).await.map(drop),
            Scope::JobOnServer(job, server) => {
                let report = self.known_report(job, Detail::Items).await?;
                if shut(&report, Some(server)).is_empty() { known_server(&report, server) } else { Ok(()) }
            }
            Scope::Server(server) => self.jobs_of(server).await.map(drop),
        }
    }

    /// The jobs that know a server, or have an instance on it.
    ///
    /// # Errors
    ///
    /// No job has that server, or the registry failed.
    pub async fn jobs_of(&self, server: &str) -> Result<Vec<String>, OperationError> {
        let names = self.names().await?;
        let here =
            |report: &JobReport| report.state.servers.contains_key(server) || !shut(report, Some(server)).is_empty();
        let reports = self.reports(&names, Detail::Servers).await?;
        let jobs: Vec<String> = reports.iter().filter(|p| here(p)).map(|p| p.path.job().to_owned()).collect();
        match jobs.is_empty() {
            true => Err(OperationError::UnknownServer { job: None, server: server.to_owned() }),
            false => Ok(jobs),
        }
    }
}

/// Disables or enables a job on all of its servers.
pub(super) fn switch_servers(report: &JobReport, disabled: bool) -> Vec<Op> {
    report.state.servers.keys().filter_map(|ip| switch_server(report, ip, disabled)).collect()
}

/// The same on one server; `None` if it is so already.
fn switch_server(report: &JobReport, ip: &str, disabled: bool) -> Option<Op> {
    let (text, wanted) = if disabled { ("DISABLED", ServerState::Disabled) } else { ("ENABLED", ServerState::Enabled) };
    let (path, node) = (report.path.server(ip), report.state.servers.get(ip)?);
    let differs = report.state.server(ip) != Some(wanted);
    differs.then(|| Op::Set { path, data: text.into(), version: Some(node.version) })
}

fn is_disabled_as_a_whole(report: &JobReport) -> bool {
    let document = report.state.config.as_ref().and_then(|node| JobDocument::parse(&node.data).ok());
    document.is_some_and(|document| document.disabled)
}

/// `disabled` in the configuration, for instances yet to come. One that cannot be read must not keep servers from resting.
fn disabled_in_config(report: &JobReport, disabled: bool) -> Option<Op> {
    let (node, job) = (report.state.config.as_ref()?, report.path.job());
    let mut document = match JobDocument::parse(&node.data) {
        Ok(document) => document,
        Err(error) => {
            tracing::warn!(
                job,
                "invalid stored configuration: {error}; changing only the server nodes, so servers that join later are not affected"
            );
            return None;
        }
    };
    if document.disabled == disabled {
        return None;
    }
    document.disabled = disabled;
    let data = document.to_yaml().into_bytes();
    Some(Op::Set { path: report.path.config(), data, version: Some(node.version) })
}

pub(super) fn known_server(report: &JobReport, server: &str) -> Result<(), OperationError> {
    if report.state.servers.contains_key(server) {
        return Ok(());
    }
    Err(OperationError::UnknownServer { job: Some(report.path.job().to_owned()), server: server.to_owned() })
}

/// Deletes the instance nodes, of one server or of all. A node that cannot be read belongs to the server in its name.
pub(super) fn shut(report: &JobReport, server: Option<&str>) -> Vec<Op> {
    let on = |(id, node): &(&String, &Node)| server.is_none_or(|server| server == server_of(id, node));
    report.state.instances.iter().filter(on).map(|(id, _)| Op::delete(report.path.instance(id))).collect()
}

/// The server of an instance: the one that its node names, else the one in its id.
pub(super) fn server_of(id: &str, node: &Node) -> String {
    let named = parse_instance(&node.data).map(|instance| instance.server_ip);
    named.unwrap_or_else(|| id.split("@-@").next().unwrap_or_default().to_owned())
}
