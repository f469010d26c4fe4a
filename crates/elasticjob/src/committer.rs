//! The one commit queue of a process: transactions of many jobs that are due at one time travel together.
//!
//! Each member is a transaction of its own to its job. Where one refuses the whole, it is taken out and told, and the rest
//! go again; after three refusals the batch is halved, so that a bad one costs the others little.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use elasticjob_core::tree::{Op, Refusal};
use elasticjob_registry::{Outcome, Registry};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};

use crate::metrics::Metrics;

/// Batches that are under way at one time.
const IN_FLIGHT: usize = 4;
/// Operations of one batch: ZooKeeper takes requests of 1 MB, and half of that is 500 bytes for each.
const OPS_MAX: usize = 1_000;
/// Bytes of paths and data in one batch.
const BYTES_MAX: usize = 400_000;
/// After so many refusals a batch is halved.
const REFUSALS_MAX: usize = 3;

/// One transaction of one job.
pub(crate) struct Commit {
    pub(crate) session: u64,
    pub(crate) ops: Vec<Op>,
    pub(crate) done: Box<dyn FnOnce(Outcome) + Send>,
}

/// Hands transactions to the queue.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    queue: mpsc::UnboundedSender<Commit>,
    metrics: Arc<Metrics>,
}

impl Committer {
    /// Starts the queue; it ends with its last handle.
    pub(crate) fn start(registry: Arc<dyn Registry>, metrics: Arc<Metrics>) -> Committer {
        // Unbounded, since a job has at most one commit under way.
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(registry, receiver, Arc::clone(&metrics)));
        Committer { queue: sender, metrics }
    }

    pub(crate) fn submit(&self, commit: Commit) {
        self.metrics.commit_queue.fetch_add(1, Ordering::Relaxed);
        if let Err(mpsc::error::SendError(commit)) = self.queue.send(commit) {
            self.metrics.commit_queue.fetch_sub(1, Ordering::Relaxed);
            (commit.done)(Outcome::Unknown);
        }
    }
}

async fn run(registry: Arc<dyn Registry>, mut queue: mpsc::UnboundedReceiver<Commit>, metrics: Arc<Metrics>) {
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut next: Option<Commit> = None;
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Some(first) = (match next.take() {
            Some(first) => Some(first),
            None => queue.recv().await,
        }) else {
            return;
        };
        let (mut ops, mut bytes) = size(&first);
        let mut batch = vec![first];
        while let Ok(commit) = queue.try_recv() {
            let (more_ops, more_bytes) = size(&commit);
            ops += more_ops;
            bytes += more_bytes;
            if ops > OPS_MAX || bytes > BYTES_MAX || commit.session != batch[0].session {
                next = Some(commit);
                break;
            }
            batch.push(commit);
        }
        metrics.commit_queue.fetch_sub(batch.len(), Ordering::Relaxed);
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            carry_out(&*registry, batch).await;
            drop(slot);
        });
    }
}

fn size(commit: &Commit) -> (usize, usize) {
    let bytes = commit.ops.iter().map(|op| {
        let data = match op {
            Op::Create { data, .. } | Op::Set { data, .. } => data.len(),
            Op::Ensure(_) | Op::Delete { .. } | Op::Check { .. } => 0,
        };
        op.path().len() + data
    });
    (commit.ops.len(), bytes.sum())
}

/// Boxed, since a halved batch calls it again.
fn carry_out(registry: &dyn Registry, mut batch: Vec<Commit>) -> BoxFuture<'_, ()> {
    async move {
        let mut refusals = 0;
        while !batch.is_empty() {
            if refusals >= REFUSALS_MAX && batch.len() > 1 {
                let second = batch.split_off(batch.len() / 2);
                carry_out(registry, batch).await;
                carry_out(registry, second).await;
                return;
            }
            let ops = match batch.as_mut_slice() {
                [only] => std::mem::take(&mut only.ops),
                all => all.iter().flat_map(|c| c.ops.iter().cloned()).collect(),
            };
            match registry.commit(batch[0].session, ops).await {
                Outcome::Refused(refusal) => {
                    refusals += 1;
                    refuse(&mut batch, refusal);
                }
                outcome => return batch.into_iter().for_each(|c| (c.done)(outcome.clone())),
            }
        }
    }
    .boxed()
}

/// Tells the member whose operation refused, and takes it out.
fn refuse(batch: &mut Vec<Commit>, refusal: Refusal) {
    let mut before = 0;
    let found = match batch.len() {
        1 => Some(0),
        _ => batch.iter().position(|c| {
            let here = refusal.op < before + c.ops.len();
            if !here {
                before += c.ops.len();
            }
            here
        }),
    };
    let index = found.unwrap_or(0);
    let commit = batch.remove(index);
    (commit.done)(Outcome::Refused(Refusal { op: refusal.op - before, ..refusal }));
}

#[cfg(test)]
mod tests {
    use elasticjob_core::tree::Reason;
    use elasticjob_registry::conformance;
    use elasticjob_registry::memory::Memory;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_refused_member_is_told_and_the_others_are_carried_out() {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
        let session = conformance::session(&*registry).await;
        registry.commit(session, vec![Op::create("/taken", "")]).await;
        let committer = Committer::start(Arc::clone(&registry), Arc::default());
        let mut answers = Vec::new();
        for number in 0..200 {
            let (done, answer) = oneshot::channel();
            let bad = number % 7 == 3;
            let path = if bad { "/taken".to_owned() } else { format!("/n{number}") };
            let ops = vec![Op::exists("/taken"), Op::create(path, "")];
            let done = Box::new(move |outcome| drop(done.send(outcome)));
            committer.submit(Commit { session, ops, done });
            answers.push((bad, answer));
        }
        for (bad, answer) in answers {
            let outcome = answer.await.expect("answered");
            if bad {
                assert_eq!(outcome, Outcome::Refused(Refusal { op: 1, reason: Reason::Exists }));
            } else {
                assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
            }
        }
    }
}
