//! The registry at any moment, from its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use elasticjob_core::path::JobPath;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::JobDocument;

use crate::{Change, What};

/// A node as it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its data.
    pub data: Arc<[u8]>,
    /// The session that it lived with, 0 for a persistent one.
    pub owner: u64,
    /// When it was created.
    pub since: Timestamp,
    /// When it was written last.
    pub written: Timestamp,
}

impl Standing {
    /// The data as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }
}

/// The registry while its history goes by.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    nodes: BTreeMap<String, Standing>,
}

impl Replay {
    /// All of a history.
    pub fn of(history: &[Change]) -> Replay {
        let mut replay = Replay::default();
        history.iter().for_each(|change| replay.apply(change));
        replay
    }

    /// Lets one change pass.
    pub fn apply(&mut self, change: &Change) {
        match &change.what {
            What::Wrote { data, owner } => {
                let since = self.nodes.get(&change.path).map_or(change.at, |node| node.since);
                let node = Standing { data: Arc::clone(data), owner: *owner, since, written: change.at };
                self.nodes.insert(change.path.clone(), node);
            }
            What::Deleted => drop(self.nodes.remove(&change.path)),
            What::SessionEnded => {}
        }
    }

    /// The node of that path.
    pub fn get(&self, path: &str) -> Option<&Standing> {
        self.nodes.get(path)
    }

    /// Whether its data is that text.
    pub fn is(&self, path: &str, text: &str) -> bool {
        self.get(path).is_some_and(|node| node.data.as_ref() == text.as_bytes())
    }

    /// The nodes directly below a path, by their names.
    pub fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = (&'a str, &'a Standing)> {
        let prefix = format!("{path}/");
        let from = prefix.clone();
        self.nodes
            .range(from..)
            .map_while(move |(at, node)| Some((at.strip_prefix(&prefix)?, node)))
            .filter(|(name, _)| !name.contains('/'))
    }

    /// The instances that may have items: registered, and their server enabled.
    pub fn available<'a>(&'a self, path: &'a JobPath) -> impl Iterator<Item = &'a str> {
        let instances = path.instances();
        let enabled = |id: &str| self.is(&path.server(id.split("@-@").next().unwrap_or_default()), "ENABLED");
        self.below(&instances).map(|(id, _)| id).filter(move |id| enabled(id)).collect::<Vec<_>>().into_iter()
    }

    /// The stored configuration, where it can be read.
    pub fn document(&self, path: &JobPath) -> Option<JobDocument> {
        JobDocument::parse(&self.get(&path.config())?.data).ok()
    }

    /// Every node.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Standing)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }
}
