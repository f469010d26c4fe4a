//! Keeps the machines' pictures of their jobs: sets the watches and reads. A watch says where; what stands there is read.

use std::collections::HashMap;
use std::sync::Arc;

use elasticjob_core::path::JobPath;
use elasticjob_core::view::{Answer, JobView, Query};
use elasticjob_registry::{Error, Registry, Sink, Target, Watch};

/// The watches of a job: the fixed ones, and one for each node that its machine asked for.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    _fixed: Vec<Watch>,
    pub(crate) nodes: HashMap<String, Watch>,
}

/// The picture of a job.
pub(crate) async fn view(registry: &dyn Registry, path: &JobPath) -> Result<JobView, Error> {
    let first = registry.read(JobView::first_queries(path)).await?;
    let queries = JobView::second_queries(path, &first);
    let second: Vec<(Query, Answer)> = if queries.is_empty() {
        Vec::new()
    } else {
        let answers = registry.read(queries.clone()).await?;
        queries.into_iter().zip(answers).collect()
    };
    Ok(JobView::build(path, &first, &second))
}

/// Sets all watches of a job anew, then reads its picture: what changes meanwhile is told.
pub(crate) async fn load(
    registry: &dyn Registry,
    path: &JobPath,
    nodes: Vec<String>,
    sink: &Sink,
) -> Result<(Watches, JobView), Error> {
    let targets = [
        Target::Node(path.config()),
        Target::Subtree(path.servers()),
        Target::Subtree(path.instances()),
        Target::Subtree(path.leader()),
        Target::Subtree(path.triggers()),
    ];
    let fixed = targets.into_iter().map(|target| registry.watch(target, Arc::clone(sink)));
    let single = nodes.iter().map(|node| registry.watch(Target::Node(node.clone()), Arc::clone(sink)));
    let fixed = futures_util::future::try_join_all(fixed).await?;
    let single = futures_util::future::try_join_all(single).await?;
    let watches = Watches { _fixed: fixed, nodes: nodes.into_iter().zip(single).collect() };
    let view = view(registry, path).await?;
    Ok((watches, view))
}
