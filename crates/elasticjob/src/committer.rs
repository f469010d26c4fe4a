//! The one commit queue of a process: transactions of many jobs that are due at one time travel together.
//!
//! Each member is a transaction of its own to its job. Where one refuses the whole, it is taken out and told, and the rest
//! go again; after three refusals the batch is halved, so that a bad one costs the others little.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use elasticjob_core::tree::{Op, Refusal};
use elasticjob_registry::{Error, Outcome, Registry};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};

/// Batches that are under way at one time.
const IN_FLIGHT: usize = 4;
/// Operations of one batch: large enough that a batch costs little beside them, small enough that the answer to the first comes
/// while the others are being written.
const OPS_MAX: usize = 500;
/// Bytes of paths and data in one batch.
const BYTES_MAX: usize = 400_000;
/// Bytes of paths and data of one transaction at the most. ZooKeeper closes the connection, that of all jobs, on a request of more
/// than `jute.maxbuffer`, 1,048,575 bytes by default; what is counted here has some 30 bytes more for each operation there.
const TRANSACTION_BYTES_MAX: usize = 900_000;
/// After so many refusals a batch is halved.
const REFUSALS_MAX: usize = 3;

/// Takes the outcome of a transaction, with the operation that refused it.
type Done = Box<dyn FnOnce(Outcome, Option<&Op>) + Send>;

/// One transaction of one job.
pub(crate) struct Commit {
    pub(crate) session: u64,
    pub(crate) ops: Vec<Op>,
    pub(crate) done: Done,
}

/// Hands transactions to the queue.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    queue: mpsc::UnboundedSender<Commit>,
    waiting: Arc<AtomicUsize>,
}

impl Committer {
    /// Starts the queue; it ends with its last handle. `waiting` is where it says how many transactions wait.
    pub(crate) fn start(registry: Arc<dyn Registry>, waiting: Arc<AtomicUsize>) -> Committer {
        // Unbounded, since a job has at most one commit under way.
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(registry, receiver, Arc::clone(&waiting)));
        Committer { queue: sender, waiting }
    }

    /// The transactions that wait for those before them.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a transaction. One that is too large for the registry is refused here: sent, it would break the connection of all.
    pub(crate) fn submit(&self, commit: Commit) {
        let bytes = size(&commit);
        if bytes > TRANSACTION_BYTES_MAX {
            let path = commit.ops.first().map(|op| op.path().to_owned()).unwrap_or_default();
            let error = Error::TooLarge { path, bytes, limit: TRANSACTION_BYTES_MAX };
            return (commit.done)(Outcome::Failed(error), None);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(mpsc::error::SendError(commit)) = self.queue.send(commit) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            (commit.done)(Outcome::Unknown, None);
        }
    }
}

/// Transactions of one session that travel together. Their operations stand in one list, so that none is copied.
struct Batch {
    session: u64,
    ops: Vec<Op>,
    members: Vec<Member>,
}

/// One of them: its operations follow those of the member before.
struct Member {
    ops: usize,
    done: Done,
}

async fn run(registry: Arc<dyn Registry>, mut queue: mpsc::UnboundedReceiver<Commit>, waiting: Arc<AtomicUsize>) {
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
        let mut bytes = size(&first);
        let mut batch = Batch::of(first);
        while let Ok(commit) = queue.try_recv() {
            bytes += size(&commit);
            let is_full = batch.ops.len() + commit.ops.len() > OPS_MAX || bytes > BYTES_MAX;
            if is_full || commit.session != batch.session {
                next = Some(commit);
                break;
            }
            batch.add(commit);
        }
        waiting.fetch_sub(batch.members.len(), Ordering::Relaxed);
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            carry_out(&*registry, batch).await;
            drop(slot);
        });
    }
}

/// The bytes of its paths and data.
fn size(commit: &Commit) -> usize {
    let bytes = commit.ops.iter().map(|op| {
        let data = match op {
            Op::Create { data, .. } | Op::Set { data, .. } => data.len(),
            Op::Ensure(_) | Op::Delete { .. } | Op::Check { .. } => 0,
        };
        op.path().len() + data
    });
    bytes.sum()
}

impl Batch {
    fn of(first: Commit) -> Batch {
        let member = Member { ops: first.ops.len(), done: first.done };
        Batch { session: first.session, ops: first.ops, members: vec![member] }
    }

    fn add(&mut self, mut commit: Commit) {
        self.members.push(Member { ops: commit.ops.len(), done: commit.done });
        self.ops.append(&mut commit.ops);
    }

    /// Keeps the first half of its members.
    fn halve(&mut self) -> Batch {
        let members = self.members.split_off(self.members.len() / 2);
        let kept = self.members.iter().map(|member| member.ops).sum();
        Batch { session: self.session, ops: self.ops.split_off(kept), members }
    }

    /// Tells the member whose operation refused, and takes it out.
    fn refuse(&mut self, refusal: Refusal) {
        let (mut index, mut before) = (0, 0);
        while let Some(member) = self.members.get(index)
            && refusal.op >= before + member.ops
            && index + 1 < self.members.len()
        {
            before += member.ops;
            index += 1;
        }
        let member = self.members.remove(index);
        let ops: Vec<Op> = self.ops.drain(before..before + member.ops).collect();
        let op = refusal.op - before;
        (member.done)(Outcome::Refused(Refusal { op, ..refusal }), ops.get(op));
    }
}

/// Boxed, since a halved batch calls it again.
fn carry_out(registry: &dyn Registry, mut batch: Batch) -> BoxFuture<'_, ()> {
    async move {
        let mut refusals = 0;
        while !batch.members.is_empty() {
            if refusals >= REFUSALS_MAX && batch.members.len() > 1 {
                let second = batch.halve();
                carry_out(registry, batch).await;
                carry_out(registry, second).await;
                return;
            }
            match registry.commit(batch.session, &batch.ops).await {
                Outcome::Refused(refusal) => {
                    refusals += 1;
                    batch.refuse(refusal);
                }
                // What is wrong with one must not keep the others from going.
                Outcome::Failed(error) if !error.is_retryable() && batch.members.len() > 1 => refusals = REFUSALS_MAX,
                outcome => return batch.members.into_iter().for_each(|member| (member.done)(outcome.clone(), None)),
            }
        }
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use elasticjob_core::tree::Reason;
    use elasticjob_registry::conformance;
    use elasticjob_registry::memory::Memory;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_rejected_member_is_reported_and_the_others_are_committed() {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
        let session = conformance::session(&*registry).await;
        registry.commit(session, &[Op::create("/taken", "")]).await;
        let committer = Committer::start(Arc::clone(&registry), Arc::default());
        let mut answers = Vec::new();
        for number in 0..200 {
            let (done, answer) = oneshot::channel();
            let bad = number % 7 == 3;
            let path = if bad { "/taken".to_owned() } else { format!("/n{number}") };
            let ops = vec![Op::exists("/taken"), Op::create(path, "")];
            let done = Box::new(move |outcome, _: Option<&Op>| drop(done.send(outcome)));
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

    #[tokio::test]
    async fn a_transaction_that_no_registry_takes_is_refused_alone() {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
        let session = conformance::session(&*registry).await;
        let committer = Committer::start(Arc::clone(&registry), Arc::default());
        let mut answers = Vec::new();
        for (path, bytes) in [("/small", 10), ("/large", 1_100_000), ("/other", 10)] {
            let (done, answer) = oneshot::channel();
            let done = Box::new(move |outcome, _: Option<&Op>| drop(done.send(outcome)));
            committer.submit(Commit { session, ops: vec![Op::create(path, vec![b'x'; bytes])], done });
            answers.push(answer);
        }
        let mut outcomes = Vec::new();
        for answer in answers {
            outcomes.push(answer.await.expect("answered"));
        }
        assert!(matches!(outcomes[0], Outcome::Committed { .. }) && matches!(outcomes[2], Outcome::Committed { .. }));
        let Outcome::Failed(error) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
        assert!(error.to_string().contains("a transaction on `/large` has 1100006 bytes"), "{error}");
    }
}
