//! The nodes of one job by which the machine decides, kept current by watches. `running` nodes are not part of it, because a watch on
//! them would notify every instance of every run.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use litemap::LiteMap;

use crate::path::{JobPath, Place, item_of_trigger};
use crate::query::{Answer, Query};
use crate::shard::descending;
use crate::tree::Node;
use crate::wire::parse_instance;

/// What a server node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// `ENABLED`.
    Enabled,
    /// `DISABLED`.
    Disabled,
    /// Any other text, which counts as not enabled, as in Java.
    Garbled,
}

/// The nodes of one job by which the machine decides, as this process knows them.
#[derive(Clone, Debug, Default)]
pub struct JobState {
    /// `/<job>`.
    pub root: Option<Node>,
    /// `config`.
    pub config: Option<Node>,
    /// Whether the node `servers` exists.
    pub has_servers: bool,
    /// `servers/<ip>`.
    pub servers: LiteMap<String, Node>,
    /// Whether the node `instances` exists.
    pub has_instances: bool,
    /// `instances/<id>`.
    pub instances: LiteMap<String, Node>,
    /// Those of `instances` that Java instances wrote, with their servers.
    pub java: LiteMap<String, String>,
    /// The server of each instance whose node can be read.
    server_ips: LiteMap<String, String>,
    /// [`JobState::available`], worked out once: a leader asks for it at each input.
    available: OnceLock<Arc<[String]>>,
    /// [`JobState::takes_part`], worked out once: half of the rules ask for it.
    takes_part: OnceLock<bool>,
    /// `leader/election/instance`.
    pub leader: Option<Node>,
    /// `leader/sharding/necessary`.
    pub necessary: Option<Node>,
    /// `leader/sharding/processing`.
    pub processing: Option<Node>,
    /// `leader/failover/items/<item>`.
    pub failover_items: BTreeSet<u32>,
    /// `leader/leaving/<id>`: instances that leave, and get no items any more.
    pub leaving: BTreeSet<String>,
    /// `trigger/<id>`.
    pub triggers: BTreeSet<String>,
    /// `trigger/<item>` and `trigger/<item>-<request>`, by item, with the names.
    pub item_triggers: BTreeSet<(u32, String)>,
}

impl JobState {
    /// The first queries; their answers decide which further ones are needed.
    pub fn first_queries(path: &JobPath) -> Vec<Query> {
        vec![
            Query::Node(path.root().to_owned()),
            Query::Node(path.config()),
            Query::Children(path.servers()),
            Query::Children(path.instances()),
            Query::Node(path.leader_instance()),
            Query::Node(path.necessary()),
            Query::Node(path.processing()),
            Query::Children(path.failover_items()),
            Query::Children(path.triggers()),
            Query::Children(path.leaving()),
        ]
    }

    /// The second queries: the nodes with the names that the first answers listed.
    pub fn second_queries(path: &JobPath, first: &[Answer]) -> Vec<Query> {
        let names = |index: usize| first.get(index).map(Answer::children).unwrap_or_default();
        let servers = names(2).iter().map(|ip| Query::Node(path.server(ip)));
        servers.chain(names(3).iter().map(|id| Query::Node(path.instance(id)))).collect()
    }

    /// Puts the answers together.
    pub fn build(path: &JobPath, first: &[Answer], second: &[(Query, Answer)]) -> JobState {
        let node = |index: usize| first.get(index).and_then(Answer::node).cloned();
        let names = |index: usize| first.get(index).map(Answer::children).unwrap_or_default();
        let exists = |index: usize| matches!(first.get(index), Some(Answer::Children(Some(_))));
        let mut state = JobState {
            root: node(0),
            config: node(1),
            has_servers: exists(2),
            has_instances: exists(3),
            leader: node(4),
            necessary: node(5),
            processing: node(6),
            failover_items: names(7).iter().filter_map(|n| crate::path::parse_item(n)).collect(),
            triggers: names(8).iter().filter(|n| item_of_trigger(n).is_none()).cloned().collect(),
            item_triggers: names(8).iter().filter_map(|n| Some((item_of_trigger(n)?, n.clone()))).collect(),
            leaving: names(9).iter().cloned().collect(),
            ..JobState::default()
        };
        for (query, answer) in second {
            if let Query::Node(at) = query {
                state.apply(path, at, answer.node().cloned());
            }
        }
        state
    }

    /// Takes one change in. Of two reads of one node the later write stays.
    pub fn apply(&mut self, path: &JobPath, at: &str, node: Option<Node>) {
        let place = path.place(at);
        if let Some(Place::Server(_) | Place::Instance(_) | Place::Leaving(_)) = place {
            self.available.take();
            self.takes_part.take();
        }
        match place {
            Some(Place::Root) => replace(&mut self.root, node),
            Some(Place::Config) => replace(&mut self.config, node),
            Some(Place::Server(ip)) => replace_in(&mut self.servers, ip, node),
            Some(Place::Instance(id)) => {
                replace_in(&mut self.instances, id, node);
                let instance = self.instances.get(id).and_then(|n| parse_instance(&n.data));
                match instance.as_ref().filter(|instance| !instance.is_rust) {
                    Some(java) => self.java.insert(id.to_owned(), java.server_ip.clone()),
                    None => self.java.remove(id),
                };
                match instance {
                    Some(instance) => self.server_ips.insert(id.to_owned(), instance.server_ip),
                    None => self.server_ips.remove(id),
                };
            }
            Some(Place::Leader) => replace(&mut self.leader, node),
            Some(Place::Necessary) => replace(&mut self.necessary, node),
            Some(Place::Processing) => replace(&mut self.processing, node),
            Some(Place::FailoverItem(item)) => {
                if node.is_some() {
                    self.failover_items.insert(item);
                } else {
                    self.failover_items.remove(&item);
                }
            }
            Some(Place::Leaving(id)) => {
                if node.is_some() {
                    self.leaving.insert(id.to_owned());
                } else {
                    self.leaving.remove(id);
                }
            }
            Some(Place::ItemTrigger(item, name)) => {
                let entry = (item, name.to_owned());
                if node.is_some() {
                    self.item_triggers.insert(entry);
                } else {
                    self.item_triggers.remove(&entry);
                }
            }
            Some(Place::Trigger(id)) => {
                if node.is_some() {
                    self.triggers.insert(id.to_owned());
                } else {
                    self.triggers.remove(id);
                }
            }
            Some(Place::ItemDisabled(_) | Place::ItemFailover(_) | Place::ItemRunning(_) | Place::Other) | None => {}
        }
        self.has_servers |= !self.servers.is_empty();
        self.has_instances |= !self.instances.is_empty();
    }

    /// The data that the state has of a node, for comparison: `None` where it keeps none, `Some(None)` where the node is
    /// missing in it.
    pub fn watched(&self, path: &JobPath, at: &str) -> Option<Option<&[u8]>> {
        fn data(node: Option<&Node>) -> Option<&[u8]> {
            node.map(|node| node.data.as_ref())
        }
        Some(match path.place(at)? {
            Place::Root => data(self.root.as_ref()),
            Place::Config => data(self.config.as_ref()),
            Place::Server(ip) => data(self.servers.get(ip)),
            Place::Instance(id) => data(self.instances.get(id)),
            Place::Leader => data(self.leader.as_ref()),
            Place::Necessary => data(self.necessary.as_ref()),
            Place::Processing
            | Place::FailoverItem(_)
            | Place::Leaving(_)
            | Place::Trigger(_)
            | Place::ItemTrigger(..)
            | Place::ItemDisabled(_)
            | Place::ItemFailover(_)
            | Place::ItemRunning(_)
            | Place::Other => return None,
        })
    }

    /// What the server's node says; `None` when it is missing.
    pub fn server(&self, ip: &str) -> Option<ServerState> {
        let node = self.servers.get(ip)?;
        Some(match node.data.as_ref() {
            b"ENABLED" => ServerState::Enabled,
            b"DISABLED" => ServerState::Disabled,
            _ => ServerState::Garbled,
        })
    }

    /// The instances that may get items: their node is readable, their server is enabled, and they do not leave. In descending order of their
    /// ids, as strategies take them.
    pub fn available(&self) -> &Arc<[String]> {
        self.available.get_or_init(|| {
            let enabled = |ip: &String| self.server(ip) == Some(ServerState::Enabled);
            let takes_items = |(id, ip): &(&String, &String)| enabled(ip) && !self.leaving.contains(*id);
            descending(self.server_ips.iter().filter(takes_items).map(|(id, _)| id.clone()).collect()).into()
        })
    }

    /// Whether the instance whose state this is is registered, and its server enabled.
    pub(crate) fn takes_part(&self, id: &str, server_ip: &str) -> bool {
        let enabled = || self.server(server_ip) == Some(ServerState::Enabled);
        *self.takes_part.get_or_init(|| self.is_live(id) && enabled())
    }

    /// The names of the triggers of one item.
    pub fn triggers_of(&self, item: u32) -> impl Iterator<Item = &String> {
        let of_item = self.item_triggers.range((item, String::new())..);
        of_item.take_while(move |(other, _)| *other == item).map(|(_, name)| name)
    }

    /// Whether an instance of that id is registered.
    pub fn is_live(&self, id: &str) -> bool {
        self.instances.contains_key(id)
    }

    /// The leader's id.
    pub fn leader_id(&self) -> Option<String> {
        self.leader.as_ref().map(Node::text)
    }
}

fn replace(slot: &mut Option<Node>, node: Option<Node>) {
    match (&slot, &node) {
        (Some(old), Some(new)) if new.mzxid < old.mzxid => {}
        _ => *slot = node,
    }
}

fn replace_in(map: &mut LiteMap<String, Node>, key: &str, node: Option<Node>) {
    match node {
        Some(node) if map.get(key).is_some_and(|old| node.mzxid < old.mzxid) => {}
        Some(node) => {
            map.insert(key.to_owned(), node);
        }
        None => {
            map.remove(key);
        }
    }
}
