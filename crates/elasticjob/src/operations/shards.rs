//! Single items (Java: `ShardingOperateAPI`).

use std::collections::BTreeSet;

use elasticjob_core::report::{Detail, JobReport};
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;

use super::{OperationError, Operations};

impl Operations {
    /// Disables items, whichever instance owns them; they stay disabled after a resharding. Either all of them or none.
    ///
    /// # Errors
    ///
    /// There is no such job or item, or the registry failed.
    pub async fn disable_items(&self, job: &str, items: &[u32]) -> Result<(), OperationError> {
        self.change_job(job, Detail::Items, false, |report| {
            let path = &report.path;
            let (mut parents, mut marks) = (vec![Op::Ensure(path.sharding())], Vec::new());
            for item in BTreeSet::from_iter(items) {
                known_item(report, *item)?;
                if !is_disabled(report, *item) {
                    parents.push(Op::Ensure(path.item(*item)));
                    marks.push(Op::create(path.item_disabled(*item), ""));
                }
            }
            let Some(config) = report.state.config.as_ref().filter(|_| !marks.is_empty()) else {
                return Ok(Vec::new());
            };
            // With the count of items that they were checked against.
            let check = vec![Op::check(path.config(), config.version)];
            Ok([parents, check, marks].concat())
        })
        .await
    }

    /// Undoes [`Operations::disable_items`].
    ///
    /// # Errors
    ///
    /// There is no such job or item, or the registry failed.
    pub async fn enable_items(&self, job: &str, items: &[u32]) -> Result<(), OperationError> {
        self.change_job(job, Detail::Items, false, |report| {
            let mut ops = Vec::new();
            for item in BTreeSet::from_iter(items) {
                // One that the job has no more may still be enabled: its mark would wait for it.
                match is_disabled(report, *item) {
                    true => ops.push(Op::delete(report.path.item_disabled(*item))),
                    false => known_item(report, *item)?,
                }
            }
            Ok(ops)
        })
        .await
    }
}

fn is_disabled(report: &JobReport, item: u32) -> bool {
    report.items.get(&item).is_some_and(|nodes| nodes.disabled.is_some())
}

fn known_item(report: &JobReport, item: u32) -> Result<(), OperationError> {
    let job = || report.path.job().to_owned();
    let data = report.state.config.as_ref().map(|node| node.data.clone()).unwrap_or_else(|| [].into());
    let document = JobDocument::parse(&data)
        .map_err(|error| OperationError::BadConfig { job: job(), reason: error.to_string() })?;
    let total = u32::try_from(document.sharding_total_count).unwrap_or_default();
    if item < total { Ok(()) } else { Err(OperationError::UnknownItem { job: job(), item, total: total.max(1) }) }
}
