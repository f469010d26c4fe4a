//! Single items (Java: `ShardingOperateAPI`).

use elasticjob_core::picture::{Detail, Picture};
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;

use super::{Operate, OperateError};

impl Operate {
    /// Lets one item rest, whoever owns it; also after a resharding.
    ///
    /// # Errors
    ///
    /// There is no such job or item, or the registry failed.
    pub async fn disable_item(&self, job: &str, item: u32) -> Result<(), OperateError> {
        self.change_job(job, Detail::Items, false, |picture| {
            known_item(picture, item)?;
            if picture.items.get(&item).is_some_and(|nodes| nodes.disabled.is_some()) {
                return Ok(Vec::new());
            }
            let path = &picture.path;
            let parents = [path.sharding(), path.item(item)].map(Op::Ensure);
            Ok([parents.to_vec(), vec![Op::create(path.item_disabled(item), "")]].concat())
        })
        .await
    }

    /// Undoes [`Operate::disable_item`].
    ///
    /// # Errors
    ///
    /// There is no such job or item, or the registry failed.
    pub async fn enable_item(&self, job: &str, item: u32) -> Result<(), OperateError> {
        self.change_job(job, Detail::Items, false, |picture| {
            // One that the job has no more may still be enabled: its mark would wait for it.
            let disabled = picture.items.get(&item).is_some_and(|nodes| nodes.disabled.is_some());
            if !disabled {
                known_item(picture, item)?;
                return Ok(Vec::new());
            }
            Ok(vec![Op::delete(picture.path.item_disabled(item))])
        })
        .await
    }
}

fn known_item(picture: &Picture, item: u32) -> Result<(), OperateError> {
    let job = || picture.path.job().to_owned();
    let data = picture.view.config.as_ref().map(|node| node.data.clone()).unwrap_or_else(|| [].into());
    let document =
        JobDocument::parse(&data).map_err(|error| OperateError::BadConfig { job: job(), reason: error.to_string() })?;
    let total = u32::try_from(document.sharding_total_count).unwrap_or_default();
    if item < total { Ok(()) } else { Err(OperateError::UnknownItem { job: job(), item, total: total.max(1) }) }
}
