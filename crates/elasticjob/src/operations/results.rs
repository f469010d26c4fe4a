//! What becomes of the items of a trigger. The caller keeps a node for each; the instance that runs the item, or took the run over,
//! writes the result there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::Op;
use elasticjob_core::wire::Ledger;
use elasticjob_registry::Link;

use super::trigger::{ITEMS_AT_ONCE, LOOK};
use super::{OperationError, Operations, TriggerRequest};
use crate::clock;

/// So long after its run is gone from the registry an item without a result is reported as that.
const RESULT_WAIT: Duration = Duration::from_secs(5);
/// So long a registry may fail to answer while results are awaited.
const LINK_WAIT: Duration = Duration::from_secs(60);

/// The result of one item of a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemResult {
    /// The item.
    pub item: u32,
    /// How its run ended.
    pub outcome: ItemOutcome,
}

impl ItemResult {
    /// Creates a result.
    pub fn new(item: u32, outcome: ItemOutcome) -> ItemResult {
        ItemResult { item, outcome }
    }
}

/// How the run of a triggered item ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It did not run, or nothing is known of its run. The text says why.
    Unknown(String),
}

impl ItemOutcome {
    /// Reads the text that an instance stores as the result.
    fn of(text: String) -> ItemOutcome {
        match text.as_str() {
            "ok" => ItemOutcome::Succeeded,
            "failed" => ItemOutcome::Failed,
            _ => ItemOutcome::Unknown(text),
        }
    }

    /// Returns `true` if the item succeeded.
    pub fn is_success(&self) -> bool {
        *self == ItemOutcome::Succeeded
    }
}

impl fmt::Display for ItemOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ItemOutcome::Succeeded => "ok",
            ItemOutcome::Failed => "failed",
            ItemOutcome::Unknown(text) => text,
        })
    }
}

/// What an item whose result is awaited waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pending {
    /// No instance has begun it.
    NotBegun,
    /// That instance runs it.
    Running(String),
    /// That instance began it and is not registered any more: the run ends there, or is taken over once an instance can.
    Unregistered(String),
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pending::NotBegun => f.write_str("not started by this trigger yet"),
            Pending::Running(instance) => write!(f, "running on {instance}"),
            Pending::Unregistered(instance) => {
                write!(f, "started by {instance}, which has left, and not taken over yet")
            }
        }
    }
}

impl Operations {
    /// Waits until each item of a trigger has run, and returns the results. Every tenth of a second, `on_wait` is told of the items
    /// that are still awaited. Items without a result when `limit` is over get one that says what they wait for; they run all
    /// the same. Without a limit, an item that no instance can run is awaited for ever.
    ///
    /// # Errors
    ///
    /// The registry did not answer for a minute, or came back with another session: the results are lost. The items run all the
    /// same.
    pub async fn results(
        &self,
        request: &TriggerRequest,
        limit: Option<Duration>,
        mut on_wait: impl FnMut(&[(u32, Pending)]),
    ) -> Result<Vec<ItemResult>, OperationError> {
        let path = JobPath::new(&request.job);
        let items = &request.triggered.items;
        let name = |item: u32| format!("{item}-{}", request.id);
        let mut awaited: BTreeMap<u32, Awaited> = items.iter().map(|item| (*item, Awaited::new(name(*item)))).collect();
        let mut results = BTreeMap::new();
        let session = self.session().await?;
        let until = limit.and_then(|limit| clock::instant().checked_add(limit));
        let mut silent_since: Option<Instant> = None;
        while !awaited.is_empty() {
            let asked: Vec<u32> = awaited.keys().copied().collect();
            let queries = asked.iter().flat_map(|item| {
                let name = name(*item);
                let nodes = [path.result(&name), path.trigger(&name), path.item(*item), path.item_running(*item)];
                nodes.map(Query::Node)
            });
            let queries = std::iter::once(Query::Children(path.instances())).chain(queries).collect();
            let answers = match self.registry.read(queries).await {
                Ok(answers) => answers,
                // The results stand in the registry as long as this session.
                Err(error) if error.is_retryable() && self.registry.reconnects() => {
                    let since = *silent_since.get_or_insert_with(clock::instant);
                    if clock::instant() >= since + LINK_WAIT || !self.is_back(session).await {
                        return Err(error.into());
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            silent_since = None;
            let (instances, answers) = answers.split_first().map_or((&[][..], &[][..]), |(i, a)| (i.children(), a));
            let mut pending = Vec::new();
            for (item, answers) in asked.iter().zip(answers.chunks(4)) {
                let Some(of) = awaited.get_mut(item) else { continue };
                match of.look(answers, instances) {
                    Ok(result) => {
                        results.insert(*item, result);
                        awaited.remove(item);
                    }
                    Err(state) => pending.push((*item, state)),
                }
            }
            if until.is_some_and(|until| clock::instant() >= until) {
                for (item, state) in pending {
                    results.insert(
                        item,
                        format!("unknown: the wait ended before the result arrived; the item is {state}"),
                    );
                    awaited.remove(&item);
                }
            } else if !pending.is_empty() {
                on_wait(&pending);
                clock::sleep(LOOK).await;
            }
        }
        // They would go with the session; a program's may last.
        let deletions: Vec<Op> = items.iter().map(|item| Op::delete(path.result(&name(*item)))).collect();
        for part in deletions.chunks(ITEMS_AT_ONCE) {
            self.registry.commit(self.session().await?, part).await;
        }
        let result = |(item, text): (u32, String)| ItemResult { item, outcome: ItemOutcome::of(text) };
        Ok(results.into_iter().map(result).collect())
    }

    /// Waits until the link is up; `false` when it comes back with another session, or not in time.
    async fn is_back(&self, session: u64) -> bool {
        let mut link = self.registry.link();
        let up = clock::within(LINK_WAIT, link.wait_for(|link| matches!(link, Link::Up { .. })));
        let is_same = match up.await {
            Some(Ok(up)) => matches!(&*up, Link::Up { session: current, .. } if *current == session),
            Some(Err(_)) | None => false,
        };
        clock::sleep(LOOK).await;
        is_same
    }
}

/// What is known of an item whose result is awaited.
struct Awaited {
    /// Its trigger.
    name: String,
    /// Who was last seen to run it.
    runner: Option<String>,
    /// Whether its run had a mark: then it is over when the mark is gone, even if a process with the same id is registered.
    had_mark: bool,
    /// Since when nothing shows that it still runs.
    gone_since: Option<Instant>,
}

impl Awaited {
    fn new(name: String) -> Awaited {
        Awaited { name, runner: None, had_mark: false, gone_since: None }
    }

    /// Looks at result, trigger, ledger and mark: the result where it is known, else what is awaited.
    fn look(&mut self, answers: &[Answer], instances: &[String]) -> Result<String, Pending> {
        let node = |index: usize| answers.get(index).and_then(Answer::node);
        if let Some(result) = node(0).map(|node| node.text()).filter(|text| !text.is_empty()) {
            return Ok(result);
        }
        if node(1).is_some() {
            return Err(Pending::NotBegun);
        }
        // The begin that answers the trigger, or the takeover of that run.
        let ledger = node(2).and_then(|node| Ledger::parse(&node.data));
        if let Some(ledger) = ledger.filter(|ledger| ledger.requests.contains(&self.name)) {
            let runner = ledger.instance;
            self.runner = Some(runner.clone());
            let is_marked = node(3).is_some_and(|mark| mark.is(&runner));
            self.had_mark |= is_marked;
            let pending = match (instances.contains(&runner), is_marked) {
                (true, true) => Some(Pending::Running(runner)),
                (true, false) => (!self.had_mark).then_some(Pending::Running(runner)),
                // With failover its mark stays until the run is taken over.
                (false, true) => Some(Pending::Unregistered(runner)),
                (false, false) => None,
            };
            if let Some(pending) = pending {
                self.gone_since = None;
                return Err(pending);
            }
        }
        if node(2).is_none() {
            return Ok("unknown: the job or the item was removed before the result arrived".to_owned());
        }
        let since = *self.gone_since.get_or_insert_with(clock::instant);
        let runner = self.runner.clone().unwrap_or_else(|| "its instance".to_owned());
        if since.elapsed() < RESULT_WAIT {
            return Err(Pending::Running(runner));
        }
        Ok(format!(
            "unknown: the run on {runner} ended without a result; see the log of that instance, or the event trace"
        ))
    }
}

#[cfg(test)]
mod tests {
    use elasticjob_core::tree::Tree;

    use super::*;

    /// A runner that crashed and came back under its id, as process 1 of a container does, is registered again.
    #[test]
    fn a_run_whose_mark_is_gone_is_over_although_a_process_with_its_id_is_registered() {
        let path = JobPath::new("job");
        let (mut tree, id) = (Tree::new(), "10.0.0.1@-@1");
        let session = tree.open_session();
        let ledger = format!("due=1 by={id} session=00000000000000ab begin=1 at=1 for=0-x");
        let ops = ["/job", "/job/sharding"].map(|path| Op::Ensure(path.into()));
        tree.commit(session, &ops, Default::default()).expect("made");
        let ops = [Op::create(path.item(0), ledger), Op::ephemeral(path.item_running(0), id)];
        tree.commit(session, &ops, Default::default()).expect("made");
        let answers = |tree: &Tree| {
            let nodes = [path.result("0-x"), path.trigger("0-x"), path.item(0), path.item_running(0)];
            nodes.map(|path| Answer::Node(tree.get(&path).cloned()))
        };
        let mut awaited = Awaited::new("0-x".into());
        let instances = [id.to_owned()];
        assert_eq!(awaited.look(&answers(&tree), &instances), Err(Pending::Running(id.into())));
        tree.close_session(session);
        assert_eq!(awaited.look(&answers(&tree), &instances), Err(Pending::Running(id.into())));
        awaited.gone_since = clock::instant().checked_sub(RESULT_WAIT);
        assert!(awaited.look(&answers(&tree), &instances).expect("given up").starts_with("unknown: "));
    }
}
