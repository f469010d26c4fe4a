//! What has run, from the event trace.

use elasticjob_core::wire::JobDocument;

pub use crate::trace::rdb::{History, HistoryEntry, HistoryQuery};

use super::{OperationError, Operations};
use crate::trace::{DataSource, rdb};

impl Operations {
    /// The latest runs of a job, by Java's instances and by ours, from that database; where none is given, from the one that
    /// Java has written into the job's configuration.
    ///
    /// # Errors
    ///
    /// There is no such job, it names no database and none is given, or the database has no such history.
    pub async fn history(
        &self,
        job: &str,
        source: Option<DataSource>,
        query: &HistoryQuery,
    ) -> Result<History, OperationError> {
        if let Some(source) = source {
            return history(&source, job, query).await;
        }
        let stored = self.config(job).await?;
        let document = JobDocument::parse(stored.text.as_bytes()).ok();
        let source = document.and_then(|document| stored_source(&document));
        let reason = || "the stored configuration names no event trace database; name the database with --database URL, or with --file FILE, an agent file that has `tracing`";
        let source = source.ok_or_else(|| OperationError::History { reason: format!("job `{job}`: {}", reason()) })?;
        history(&source, job, query).await
    }
}

/// The database that Java has written into a configuration, if there is one.
#[doc(hidden)]
pub fn stored_source(document: &JobDocument) -> Option<DataSource> {
    document.tracing().map(|element| DataSource::of(&element))
}

/// The latest runs of a job from that database; no registry is asked.
///
/// # Errors
///
/// The database cannot be reached, or has no such history.
pub async fn history(source: &DataSource, job: &str, query: &HistoryQuery) -> Result<History, OperationError> {
    rdb::history(source, job, query).await.map_err(|reason| OperationError::History { reason })
}
