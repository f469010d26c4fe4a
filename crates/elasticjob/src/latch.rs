//! The latch of elections and takeovers, as Curator's `LeaderLatch` has it on the wire: a queue of ephemeral sequential
//! nodes; the first one holds it.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::latch::{SILENCE_MAX, guarded_prefix, is_guarded, sort};
use elasticjob_core::path::{self, JobPath};
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::{EventKind, Op};
use elasticjob_registry::{Error, Outcome, Registry, Sink, Target};
use tokio::sync::{Notify, oneshot};

use crate::clock;

/// A place in the queue is abandoned and requested again after this time: the place before it may be stuck.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Queues below `latch` and waits. Returns the node that holds the latch, or `None` if it was not to be had in time.
///
/// If `cancel` fires, or its sender is dropped, the place in the queue is deleted and `None` returned.
///
/// # Errors
///
/// The registry did not create the place. The error names the latch, not the place, whose name is random.
pub(crate) async fn acquire(
    registry: Arc<dyn Registry>,
    session: u64,
    job_root: &str,
    latch: &str,
    mut cancel: oneshot::Receiver<()>,
) -> Result<Option<String>, Error> {
    let prefix = guarded_prefix(latch, &uuid::Uuid::new_v4().to_string());
    let node = registry.create_sequential(session, parents(job_root, latch), prefix).await;
    let node = node.map_err(|error| error.on(latch))?;
    let held = tokio::select! {
        held = wait(&*registry, session, job_root, latch, &node) => held,
        _ = &mut cancel => false,
        () = clock::sleep(WAIT_MAX) => false,
    };
    if held {
        return Ok(Some(node));
    }
    registry.commit(session, &[Op::delete(node)]).await;
    Ok(None)
}

/// Takes away every place of that session in a latch's queue: the one that is held, or what was left behind by an answer that
/// was lost. False when the registry did not answer.
pub(crate) async fn leave(registry: &dyn Registry, session: u64, latch: &str) -> bool {
    let Ok(answers) = registry.read(vec![Query::Children(latch.to_owned())]).await else { return false };
    let places: Vec<String> = answers[0].children().iter().map(|name| format!("{latch}/{name}")).collect();
    let Ok(nodes) = registry.read(places.iter().cloned().map(Query::Node).collect()).await else { return false };
    for (place, _) in places.iter().zip(&nodes).filter(|(_, a)| a.node().is_some_and(|n| n.owner == session)) {
        let outcome = registry.commit(session, &[Op::delete(place.clone())]).await;
        if !matches!(outcome, Outcome::Committed { .. } | Outcome::Refused(_)) {
            return false;
        }
    }
    true
}

/// The nodes between the job and the latch's own, the outermost first. The job itself is never made here.
fn parents(job_root: &str, latch: &str) -> Vec<String> {
    let mut parents = Vec::new();
    let mut at = Some(latch);
    while let Some(path) = at.filter(|p| *p != job_root) {
        parents.push(path.to_owned());
        at = path::parent(path);
    }
    parents.reverse();
    parents
}

async fn wait(registry: &dyn Registry, session: u64, job_root: &str, latch: &str, node: &str) -> bool {
    let mut reported = None;
    loop {
        let Some(places) = places_before(registry, session, latch, node).await else { return false };
        let (Some((first, owner)), Some((before, _))) = (places.first(), places.last()) else { return true };
        let gone = Arc::new(Notify::new());
        let told = Arc::clone(&gone);
        let sink: Sink = Arc::new(move |event| {
            if event.kind == EventKind::Deleted {
                told.notify_one();
            }
        });
        let Ok(_watch) = registry.watch(Target::Node(before.clone()), sink).await else { return false };
        let Ok(answers) = registry.read(vec![Query::Node(before.clone())]).await else { return false };
        if answers[0].node().is_none() || clock::within(SILENCE_MAX, gone.notified()).await.is_some() {
            continue;
        }
        // Those between the first place and ours only wait, as we do.
        let Ok(answers) = registry.read(vec![Query::Node(first.clone())]).await else { return false };
        if answers[0].node().is_none() {
            continue;
        }
        if reported.as_ref() != Some(first) {
            report_silence(registry, job_root, first, *owner).await;
            reported = Some(first.clone());
        }
        if is_guarded(first) {
            registry.commit(session, &[Op::delete(first.clone())]).await;
        }
    }
}

/// Says who holds up a latch, and what to do.
async fn report_silence(registry: &dyn Registry, job_root: &str, place: &str, session: u64) {
    let path = JobPath::new(job_root.trim_start_matches('/'));
    let ids = registry.read(vec![Query::Children(path.instances())]).await;
    let ids = ids.map(|answers| answers[0].children().to_vec()).unwrap_or_default();
    let nodes = registry.read(ids.iter().map(|id| Query::Node(path.instance(id))).collect()).await.unwrap_or_default();
    let of_session = |answer: &Answer| answer.node().is_some_and(|node| node.owner == session);
    let instance = ids.iter().zip(&nodes).find(|(_, answer)| of_session(answer)).map(|(id, _)| id.as_str());
    let (job, session, waited_s) = (path.job(), format!("{session:#x}"), SILENCE_MAX.as_secs());
    if is_guarded(place) {
        tracing::warn!(
            job,
            session,
            instance,
            node = place,
            waited_s,
            "another process holds a lock node for too long: its session is alive, but it does not respond; deleting the node, so that \
             this instance continues; restart that process"
        );
    } else {
        tracing::warn!(
            job,
            session,
            instance,
            node = place,
            waited_s,
            "waiting for a lock node of another process: its session is alive, but it does not respond; end that process, or delete \
             the node if the process is not a Java instance that may still use it"
        );
    }
}

/// The ephemeral places before ours with their sessions, the first in the queue first: none when we are the first, `None` when
/// we are not in the queue.
///
/// Nodes of our own session before it are left over from a place that was given up while the link was down: this process
/// has one place in a queue at a time. They are deleted.
async fn places_before(registry: &dyn Registry, session: u64, latch: &str, node: &str) -> Option<Vec<(String, u64)>> {
    let answers = registry.read(vec![Query::Children(latch.to_owned())]).await.ok()?;
    let mut names = answers[0].children().to_vec();
    sort(&mut names);
    let own = names.iter().position(|name| *name == path::name(node))?;
    let places: Vec<String> = names[..own].iter().map(|name| format!("{latch}/{name}")).collect();
    let nodes = registry.read(places.iter().cloned().map(Query::Node).collect()).await.ok()?;
    let mut before = Vec::new();
    for (place, answer) in places.into_iter().zip(&nodes) {
        match answer.node().map(|n| n.owner) {
            Some(owner) if owner == session => drop(registry.commit(session, &[Op::delete(place)]).await),
            // A node that is not ephemeral has no owner and would never be deleted.
            Some(0) | None => {}
            Some(owner) => before.push((place, owner)),
        }
    }
    Some(before)
}
