//! Keeps the state of each job current: sets the watches and reads the nodes that changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use elasticjob_core::job_state::JobState;
use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::Node;
use elasticjob_registry::{Error, Registry, Sink, Target, Watch};

/// The watches of a job: the fixed ones, and one for each node that its machine asked for.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    _fixed: Vec<Watch>,
    pub(crate) nodes: HashMap<String, Watch>,
}

/// The state of a job.
pub(crate) async fn read(registry: &dyn Registry, path: &JobPath) -> Result<JobState, Error> {
    let first = registry.read(JobState::first_queries(path)).await?;
    let queries = JobState::second_queries(path, &first);
    let second: Vec<(Query, Answer)> = if queries.is_empty() {
        Vec::new()
    } else {
        let answers = registry.read(queries.clone()).await?;
        queries.into_iter().zip(answers).collect()
    };
    Ok(JobState::build(path, &first, &second))
}

/// Sets all watches of a job again, then reads its state: changes in the meantime reach the sink.
pub(crate) async fn load(
    registry: &dyn Registry,
    path: &JobPath,
    nodes: Vec<String>,
    sink: &Sink,
) -> Result<(Watches, JobState), Error> {
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
    let state = read(registry, path).await?;
    Ok((watches, state))
}

/// Every node from that one on, with the paths of its children in text order; a node that is deleted in the meantime is left out.
pub(crate) async fn subtree(
    registry: &dyn Registry,
    root: &str,
) -> Result<BTreeMap<String, (Node, Vec<String>)>, Error> {
    let mut found = BTreeMap::new();
    let mut level = vec![root.to_owned()];
    while !level.is_empty() {
        let queries = level.iter().flat_map(|at| [Query::Node(at.clone()), Query::Children(at.clone())]).collect();
        let answers = registry.read(queries).await?;
        let mut next = Vec::new();
        for (at, pair) in level.into_iter().zip(answers.chunks(2)) {
            let Some(node) = pair[0].node() else { continue };
            let below: Vec<String> = pair[1].children().iter().map(|name| format!("{at}/{name}")).collect();
            next.extend(below.iter().cloned());
            found.insert(at, (node.clone(), below));
        }
        level = next;
    }
    Ok(found)
}
