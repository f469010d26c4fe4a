//! The nodes of a job that stops without a connection. It cannot delete its ephemeral nodes, and they do not expire:
//! other jobs of the process keep the session alive. So they are taken away once nothing of the job runs any more and the link
//! is back with the same session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::limits;
use elasticjob_core::path::JobPath;
use elasticjob_core::tree::Op;
use elasticjob_registry::{Error, Link, Outcome, Registry};
use tokio::task::AbortHandle;

use super::{Message, Task};
use crate::{clock, watches};

/// The pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Leftover {
    /// In which session.
    session: u64,
    /// Whether nothing of the job runs any more: until then its nodes keep others from its items.
    drained: bool,
    /// The sweep that is under way.
    sweep: Option<AbortHandle>,
}

impl Leftover {
    pub(super) fn new(session: u64) -> Leftover {
        Leftover { session, drained: false, sweep: None }
    }
}

impl Task {
    pub(super) fn drained(&mut self, name: &str) {
        if let Some(leftover) = self.leftovers.get_mut(name) {
            leftover.drained = true;
            self.sweep(name);
        }
    }

    /// Takes away what that job left, when there is a link. Until that is done its name is not used again.
    pub(super) fn sweep(&mut self, name: &str) {
        let (Link::Up { session, epoch, .. }, Some(worker)) = (&self.link, self.own.upgrade()) else { return };
        let (session, epoch, registry) = (*session, *epoch, Arc::clone(&self.registry));
        let Some(leftover) = self.leftovers.get_mut(name).filter(|leftover| leftover.drained) else { return };
        // One of another link would go on with what it saw then.
        leftover.sweep.take().iter().for_each(AbortHandle::abort);
        if leftover.session != session {
            return self.forget_leftover(name); // gone with its session
        }
        let name = name.to_owned();
        let task = tokio::spawn(async move {
            let swept = sweep(&*registry, session, JobPath::new(&name).root()).await;
            match &swept {
                Ok(true) => {}
                Ok(false) => tracing::warn!(job = name, "cannot delete all nodes of the stopped job yet; retrying"),
                Err(error) => {
                    tracing::warn!(job = name, "cannot delete the nodes of the stopped job: {error}; retrying")
                }
            }
            let done = swept == Ok(true);
            if !done {
                clock::sleep(PAUSE).await;
            }
            let _ = worker.send(Message::Swept { name, epoch, done });
        });
        leftover.sweep = Some(task.abort_handle());
    }

    pub(super) fn swept(&mut self, name: &str, epoch: u64, done: bool) {
        if !matches!(self.link, Link::Up { epoch: current, .. } if current == epoch) {
            return; // it is tried again on the next link
        }
        if done { self.forget_leftover(name) } else { self.sweep(name) }
    }

    /// The name may be used again.
    fn forget_leftover(&mut self, name: &str) {
        self.leftovers.remove(name);
        if let Some(job) = self.names.get(name) {
            self.load(*job);
        }
    }
}

/// Deletes the nodes of the session from that one on; says whether none is left. The instance goes last: whoever hears of
/// that looks at what is left of the items.
async fn sweep(registry: &dyn Registry, session: u64, root: &str) -> Result<bool, Error> {
    let nodes = watches::subtree(registry, root).await?;
    let ours = nodes.into_iter().rev().filter(|(_, (node, _))| node.owner == session);
    let mut ops: VecDeque<Op> =
        ours.map(|(path, (node, _))| Op::Delete { path, version: Some(node.version) }).collect();
    while !ops.is_empty() {
        let part: Vec<Op> = ops.drain(..ops.len().min(limits::ITEMS_PER_COMMIT)).collect();
        match registry.commit(session, &part).await {
            Outcome::Committed { .. } => {}
            // Something changed in the meantime, such as an earlier queued request: everything is read again.
            Outcome::Refused(_) | Outcome::Unknown => return Ok(false),
            Outcome::Failed(error) => return Err(error),
        }
    }
    Ok(true)
}
