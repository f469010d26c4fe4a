//! Triggering a job (Java: `JobOperateAPI.trigger`).

use std::collections::BTreeSet;
use std::time::Duration;

use elasticjob_core::config::JobConfig;
use elasticjob_core::report::{Detail, JobReport};
use elasticjob_core::tree::Op;
use elasticjob_core::wire::{Claim, JobDocument};
use elasticjob_registry::Outcome;

use super::{ItemResult, OperationError, Operations};
use crate::clock;

/// An owner that has not claimed an item after this is an instance of Java, or one that hangs.
const CLAIM_WAIT: Duration = Duration::from_secs(1);
/// Pause between two reads of the awaited nodes.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// Items that are triggered in one transaction.
pub(super) const ITEMS_AT_ONCE: usize = 1_000;

/// What a trigger came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Triggered {
    /// The items that run once each.
    pub items: Vec<u32>,
    /// The instances of Java that were asked to run their items.
    pub instances: Vec<String>,
    /// The items that do not run, and why.
    pub not_run: Vec<(u32, &'static str)>,
}

/// A trigger whose results can be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriggerRequest {
    pub(super) job: String,
    /// Distinguishes this trigger from others of the job.
    pub(super) id: String,
    /// What was triggered.
    pub triggered: Triggered,
}

/// Whom a trigger goes to.
#[derive(Default)]
struct Plan {
    items: Vec<u32>,
    instances: BTreeSet<String>,
    not_run: Vec<(u32, &'static str)>,
    /// Whether an item has no owner that is known to be ours.
    is_unsure: bool,
}

impl Operations {
    /// Runs the job once, now: each enabled item once, on whichever instance owns it. An item that is running runs again after
    /// that. A trigger survives the death of the owner and every resharding. Instances of Java are asked as a whole, as Java's
    /// operation does.
    ///
    /// # Errors
    ///
    /// There is no such job, it has no instance, it or all of its items are disabled, or the registry failed.
    pub async fn trigger(&self, job: &str) -> Result<Triggered, OperationError> {
        self.trigger_as(job, None).await
    }

    /// The same, and waits until each item has run.
    ///
    /// Items of Java instances are not waited for: they report no result.
    ///
    /// # Errors
    ///
    /// As of [`Operations::trigger`].
    ///
    /// # Cancel safety
    ///
    /// The items run although the caller stopped waiting.
    pub async fn trigger_and_wait(&self, job: &str) -> Result<(Triggered, Vec<ItemResult>), OperationError> {
        let request = self.trigger_with_results(job).await?;
        let results = self.results(&request, None, |_| {}).await?;
        Ok((request.triggered, results))
    }

    /// Whether a trigger of the job would run anything.
    ///
    /// # Errors
    ///
    /// As of [`Operations::trigger`].
    pub async fn check_trigger(&self, job: &str) -> Result<(), OperationError> {
        plan(&self.known_report(job, Detail::Full).await?).map(drop)
    }

    /// The first half of [`Operations::trigger_and_wait`]: triggers, and returns what [`Operations::results`] waits for.
    ///
    /// # Errors
    ///
    /// As of [`Operations::trigger`].
    pub async fn trigger_with_results(&self, job: &str) -> Result<TriggerRequest, OperationError> {
        let id = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
        let triggered = self.trigger_as(job, Some(&id)).await?;
        Ok(TriggerRequest { job: job.to_owned(), id, triggered })
    }

    async fn trigger_as(&self, job: &str, request: Option<&str>) -> Result<Triggered, OperationError> {
        let until = clock::instant() + CLAIM_WAIT;
        for _ in 0..super::TRIES * 10 {
            let report = self.known_report(job, Detail::Full).await?;
            let plan = plan(&report)?;
            if plan.is_unsure && clock::instant() < until {
                clock::sleep(LOOK).await;
                continue;
            }
            if self.write_triggers(&report, &plan, request).await? {
                let instances = plan.instances.into_iter().collect();
                return Ok(Triggered { items: plan.items, instances, not_run: plan.not_run });
            }
            clock::sleep(super::TRY_AGAIN).await;
        }
        Err(OperationError::Conflict { job: job.to_owned() })
    }

    /// Returns `false` if something changed before anything was written.
    async fn write_triggers(
        &self,
        report: &JobReport,
        plan: &Plan,
        request: Option<&str>,
    ) -> Result<bool, OperationError> {
        let (path, state) = (&report.path, &report.state);
        let mut all: Vec<Vec<Op>> = Vec::new();
        for item in &plan.items {
            let name = request.map_or_else(|| item.to_string(), |request| format!("{item}-{request}"));
            // One that waits already is this one too.
            if state.item_triggers.contains(&(*item, name.clone())) {
                continue;
            }
            let result = request.map(|_| Op::ephemeral(path.result(&name), ""));
            all.push(result.into_iter().chain([Op::create(path.trigger(&name), "")]).collect());
        }
        let waiting = plan.instances.iter().filter(|id| !state.triggers.contains(*id));
        // An instance that leaves in the meantime gets no trigger.
        all.extend(waiting.map(|id| vec![Op::exists(path.instance(id)), Op::create(path.trigger(id), "")]));
        for (number, part) in all.chunks(ITEMS_AT_ONCE).enumerate() {
            let parents = request.map(|_| path.results()).into_iter().chain([path.triggers()]).map(Op::Ensure);
            let ops: Vec<Op> = parents.chain(part.iter().flatten().cloned()).collect();
            let paths: Vec<String> = ops.iter().map(|op| op.path().to_owned()).collect();
            match self.registry.commit(self.session().await?, &ops).await {
                Outcome::Committed { .. } => {}
                Outcome::Refused(refusal) if number == 0 => {
                    super::refused(refusal, &paths)?;
                    return Ok(false);
                }
                Outcome::Refused(_) | Outcome::Unknown => {
                    return Err(OperationError::Unsettled { job: path.job().to_owned() });
                }
                Outcome::Failed(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

fn plan(report: &JobReport) -> Result<Plan, OperationError> {
    let (state, job) = (&report.state, report.path.job());
    if state.instances.is_empty() {
        return Err(OperationError::NoInstance { job: job.to_owned() });
    }
    if state.available().is_empty() {
        let is_leaving = state.instances.keys().all(|id| state.leaving.contains(id));
        let job = job.to_owned();
        return Err(if is_leaving { OperationError::NoInstance { job } } else { OperationError::Disabled { job } });
    }
    let data = state.config.as_ref().map(|node| node.data.as_ref()).unwrap_or_default();
    let document = JobDocument::parse(data)
        .map_err(|error| OperationError::BadConfig { job: job.to_owned(), reason: error.to_string() })?;
    let config = JobConfig::check(&document, &clock::zone).map_err(|faults| OperationError::BadConfig {
        job: job.to_owned(),
        reason: faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    })?;
    let total = config.sharding_total_count;
    let mut plan = Plan::default();
    let has_rust = state.available().iter().any(|id| !state.java.contains_key(id));
    let has_claims = report.items.values().any(|item| !item.claims.is_empty());
    for item in 0..total {
        let nodes = report.items.get(&item).cloned().unwrap_or_default();
        if nodes.disabled.is_some() {
            plan.not_run.push((item, "disabled"));
            continue;
        }
        let owner = nodes.owner_id().filter(|owner| state.is_live(owner));
        let claims = || nodes.claims.iter().filter_map(|node| Claim::parse(&node.data)).map(|claim| claim.instance);
        match owner {
            Some(owner) if claims().any(|claimed| claimed == owner) => plan.items.push(item),
            Some(owner) if state.java.contains_key(&owner) => {
                plan.is_unsure = true;
                plan.instances.insert(owner);
            }
            // A Rust instance claims it soon.
            Some(_) => plan.items.push(item),
            // It gets an owner soon: a Rust instance, if there is one.
            None if has_claims || has_rust => plan.items.push(item),
            None => {
                plan.is_unsure = true;
                plan.instances.extend(state.available().iter().cloned());
            }
        }
    }
    if plan.items.is_empty() && plan.instances.is_empty() {
        return Err(OperationError::Disabled { job: job.to_owned() });
    }
    Ok(plan)
}
