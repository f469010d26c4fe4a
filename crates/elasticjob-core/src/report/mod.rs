//! A whole job as an operator sees it: the machine's own state ([`JobState`]) and every item's nodes. Statistics and
//! explanations are computed from it alone, so that they tell of one moment and by the kernel's own rules.

mod explain;
mod statistics;

use std::collections::BTreeMap;

pub use explain::{Check, CheckName, Explained, Facts, Verdict, explain};
pub use statistics::{JobBrief, JobStatus, ServerBrief, ShardInfo, ShardStatus, job_brief, server_briefs, shard_infos};

use crate::job_state::JobState;
use crate::latch;
use crate::path::{JobPath, item_of_trigger, parse_item};
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::Node;
use crate::wire::Difference;

/// How much of a job is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What a line about each job needs: configuration, servers, names of instances, owners.
    Brief,
    /// What a line about each server needs: servers, instances.
    Servers,
    /// What a line about each item needs: instances, owners and marks.
    Items,
    /// Everything that decides.
    Full,
}

/// What was read of a registry.
pub type Known = BTreeMap<Query, Answer>;

/// One job at one moment.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Its paths.
    pub path: JobPath,
    /// What the kernel sees of it.
    pub state: JobState,
    /// The children of `sharding` that are numbers; also those beyond the count of items.
    pub items: BTreeMap<u32, ItemReport>,
    /// The first places of the queues for elections and takeovers, by their paths.
    pub latches: BTreeMap<String, Node>,
    /// The instances that were started with another configuration than the stored one, with the differences.
    pub differences: BTreeMap<String, Vec<Difference>>,
    /// The nodes that the registry refused to show. The report lacks them.
    pub denied: Vec<String>,
}

/// The nodes of one item.
#[derive(Clone, Debug, Default)]
pub struct ItemReport {
    /// `sharding/<i>`, with our ledger.
    pub item: Option<Node>,
    /// `instance`: the owner.
    pub owner: Option<Node>,
    /// `instance/claim-*`: what instances of ours have claimed.
    pub claims: Vec<Node>,
    /// `running`.
    pub running: Option<Node>,
    /// `misfire`.
    pub misfire: Option<Node>,
    /// `disabled`.
    pub disabled: Option<Node>,
    /// `failover`.
    pub failover: Option<Node>,
    /// `failovering`.
    pub failovering: Option<Node>,
}

impl ItemReport {
    /// The owner's id; none for an empty text, as Java has it.
    pub fn owner_id(&self) -> Option<String> {
        self.owner.as_ref().map(Node::text).filter(|id| !id.is_empty())
    }
}

impl JobReport {
    /// Every query that the report needs, as far as is known. Called again with the answers, it adds the missing ones,
    /// until nothing is missing: names first, then the nodes with these names.
    pub fn queries(path: &JobPath, detail: Detail, known: &Known) -> Vec<Query> {
        let mut queries = vec![Query::Children(path.servers()), Query::Children(path.instances())];
        let names = |at: String| known.get(&Query::Children(at)).map(Answer::children).unwrap_or_default();
        queries.extend(names(path.servers()).iter().map(|ip| Query::Node(path.server(ip))));
        if detail != Detail::Brief {
            queries.extend(names(path.instances()).iter().map(|id| Query::Node(path.instance(id))));
        }
        if detail == Detail::Servers {
            return queries;
        }
        queries.push(Query::Node(path.config()));
        queries.push(Query::Children(path.sharding()));
        for item in names(path.sharding()).iter().filter_map(|name| parse_item(name)) {
            queries.push(Query::Node(path.item_owner(item)));
            if detail == Detail::Brief {
                continue;
            }
            let marks = [path.item_disabled(item), path.item_running(item), path.item_failover(item)];
            queries.extend(marks.map(Query::Node));
            if detail == Detail::Full {
                let more = [path.item(item), path.item_misfire(item), path.item_failovering(item)];
                queries.extend(more.map(Query::Node));
                let owner = path.item_owner(item);
                queries.push(Query::Children(owner.clone()));
                queries.extend(names(owner.clone()).iter().map(|claim| Query::Node(format!("{owner}/{claim}"))));
            }
        }
        if detail == Detail::Full {
            let leader = [path.root().to_owned(), path.leader_instance(), path.necessary(), path.processing()];
            queries.extend(leader.map(Query::Node));
            let folders = [path.failover_items(), path.triggers(), path.applied(), path.leaving()];
            queries.extend(folders.map(Query::Children));
            for latch in [path.election_latch(), path.failover_latch()] {
                queries.push(Query::Children(latch.clone()));
                queries.extend(latch::first(names(latch.clone())).map(|name| Query::Node(format!("{latch}/{name}"))));
            }
            queries.extend(names(path.applied()).iter().map(|id| Query::Node(path.applied_by(id))));
        }
        queries
    }

    /// Puts what is known together.
    pub fn build(path: &JobPath, known: &Known) -> JobReport {
        let names = |at: String| known.get(&Query::Children(at));
        let node = |at: String| known.get(&Query::Node(at)).and_then(Answer::node).cloned();
        let children = |at: String| names(at).map(Answer::children).unwrap_or_default().to_vec();
        let exists = |at: String| matches!(names(at), Some(Answer::Children(Some(_))));
        let mut state = JobState::default();
        state.has_servers = exists(path.servers());
        state.has_instances = exists(path.instances());
        state.failover_items = children(path.failover_items()).iter().filter_map(|n| parse_item(n)).collect();
        let (items, instances): (Vec<String>, Vec<String>) =
            children(path.triggers()).into_iter().partition(|name| item_of_trigger(name).is_some());
        state.triggers = instances.into_iter().collect();
        state.item_triggers = items.into_iter().filter_map(|name| Some((item_of_trigger(&name)?, name))).collect();
        state.leaving = children(path.leaving()).into_iter().collect();
        let single =
            [path.root().to_owned(), path.config(), path.leader_instance(), path.necessary(), path.processing()];
        let servers = children(path.servers()).into_iter().map(|ip| path.server(&ip));
        for at in single.into_iter().chain(servers) {
            let found = node(at.clone());
            state.apply(path, &at, found);
        }
        for id in children(path.instances()) {
            let at = path.instance(&id);
            // Where only names were read, a name counts as a node without data.
            let found = known
                .get(&Query::Node(at.clone()))
                .map_or_else(|| Some(Node::new("", 0, 0, Timestamp(0))), |a| a.node().cloned());
            state.apply(path, &at, found);
        }
        let items = children(path.sharding()).iter().filter_map(|name| parse_item(name)).collect::<Vec<u32>>();
        let item_view = |item: u32| {
            let owner = path.item_owner(item);
            ItemReport {
                claims: children(owner.clone()).iter().filter_map(|name| node(format!("{owner}/{name}"))).collect(),
                owner: node(owner),
                item: node(path.item(item)),
                running: node(path.item_running(item)),
                misfire: node(path.item_misfire(item)),
                disabled: node(path.item_disabled(item)),
                failover: node(path.item_failover(item)),
                failovering: node(path.item_failovering(item)),
            }
        };
        let items = items.into_iter().map(|item| (item, item_view(item))).collect();
        let differences = children(path.applied()).into_iter().filter_map(|id| {
            let found = Difference::parse(&node(path.applied_by(&id))?.data);
            (!found.is_empty()).then_some((id, found))
        });
        let latches = [path.election_latch(), path.failover_latch()].into_iter().filter_map(|latch| {
            let place = format!("{latch}/{}", latch::first(&children(latch.clone()))?);
            Some((place.clone(), node(place)?))
        });
        let (latches, differences) = (latches.collect(), differences.collect());
        JobReport { path: path.clone(), state, items, latches, differences, denied: Vec::new() }
    }

    /// Whether two answers have the same names everywhere, so that what was read by the names of the first is complete for
    /// the second.
    pub fn same_names(one: &Known, other: &Known) -> bool {
        let names = |known: &Known| -> Vec<(Query, Answer)> {
            let children = known.iter().filter(|(query, _)| matches!(query, Query::Children(_)));
            children.map(|(query, answer)| (query.clone(), answer.clone())).collect()
        };
        names(one) == names(other)
    }
}
