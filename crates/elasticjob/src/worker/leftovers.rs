//! What a job leaves behind that stops without a link: its ephemeral nodes end with the session, but other jobs of the
//! process hold that. So they are taken away when the link is back with the same session.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::tree::Op;
use elasticjob_registry::{Error, Link, Outcome, Registry};

use super::{Message, Task};
use crate::{clock, mirror};

/// The pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl Task {
    /// Takes away what that job left, when there is a link. Until that is done its name is not used again.
    pub(super) fn sweep(&mut self, name: &str) {
        let (Link::Up { session, epoch, .. }, Some(worker)) = (&self.link, self.own.upgrade()) else {
            return;
        };
        let (session, epoch, registry) = (*session, *epoch, Arc::clone(&self.registry));
        if self.leftovers.get(name) != Some(&session) {
            self.leftovers.remove(name); // gone with its session
            return;
        }
        let name = name.to_owned();
        tokio::spawn(async move {
            let swept = sweep(&*registry, session, JobPath::new(&name).root()).await;
            if let Err(error) = &swept {
                tracing::warn!(job = name, "cannot take away what the job has left behind: {error}");
            }
            let done = swept == Ok(true);
            if !done {
                clock::sleep(PAUSE).await;
            }
            let _ = worker.send(Message::Swept { name, epoch, done });
        });
    }

    pub(super) fn swept(&mut self, name: &str, epoch: u64, done: bool) {
        if !matches!(self.link, Link::Up { epoch: current, .. } if current == epoch) {
            return; // it is tried again on the next link
        }
        if !done {
            return self.sweep(name);
        }
        self.leftovers.remove(name);
        if let Some(job) = self.names.get(name) {
            self.load(*job);
        }
    }
}

/// Deletes the nodes of the session from that one on; says whether all are known to be gone.
async fn sweep(registry: &dyn Registry, session: u64, root: &str) -> Result<bool, Error> {
    let mut done = true;
    for (path, (node, _)) in mirror::subtree(registry, root).await? {
        if node.owner != session {
            continue;
        }
        let op = Op::Delete { path, version: Some(node.version) };
        match registry.commit(session, vec![op]).await {
            Outcome::Committed { .. } => {}
            Outcome::Refused(_) | Outcome::Unknown => done = false,
            Outcome::Failed(error) => return Err(error),
        }
    }
    Ok(done)
}
