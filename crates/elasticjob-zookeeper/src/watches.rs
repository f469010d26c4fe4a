//! Which watches are set on a connection, and who takes an event.
//!
//! The server knows one watch a path and connection: persistent (Java: `AddWatchMode`), of one node with its children's coming and
//! going, or of a node and all below. Several callers may want the same one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::client::Sink;
use crate::record::{EventKind, WatchEvent};

#[derive(Default)]
pub(crate) struct Watches {
    paths: HashMap<Arc<str>, Watched>,
    by_number: HashMap<u64, Arc<str>>,
}

struct Watched {
    recursive: bool,
    sinks: Vec<(u64, Sink)>,
}

impl Watches {
    /// Notes a watch. False when the path has one of the other kind, which the server would replace.
    pub(crate) fn add(&mut self, number: u64, path: &str, recursive: bool, sink: Sink) -> bool {
        let (name, watched) = match self.paths.get_key_value(path) {
            Some((name, _)) => {
                let name = Arc::clone(name);
                let Some(watched) = self.paths.get_mut(path) else { return false };
                (name, watched)
            }
            None => {
                let name: Arc<str> = path.into();
                let watched = self.paths.entry(Arc::clone(&name));
                (name, watched.or_insert(Watched { recursive, sinks: Vec::new() }))
            }
        };
        if watched.recursive != recursive {
            return false;
        }
        watched.sinks.push((number, sink));
        self.by_number.insert(number, name);
        true
    }

    /// Forgets a watch; gives the path when it was the last one there, so that the server forgets it too.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Arc<str>> {
        let path = self.by_number.remove(&number)?;
        let watched = self.paths.get_mut(&path)?;
        watched.sinks.retain(|(other, _)| *other != number);
        if !watched.sinks.is_empty() {
            return None;
        }
        self.paths.remove(&path);
        Some(path)
    }

    /// Hands an event to those who want it.
    pub(crate) fn tell(&self, event: &WatchEvent) {
        if let Some(watched) = self.paths.get(&*event.path).filter(|watched| !watched.recursive) {
            watched.tell(event);
        }
        // A watch of a subtree hears of the child itself.
        if event.kind == EventKind::Children {
            return;
        }
        let mut above = Some(event.path.as_str());
        while let Some(path) = above {
            if let Some(watched) = self.paths.get(path).filter(|watched| watched.recursive) {
                watched.tell(event);
            }
            above = match path.rsplit_once('/') {
                Some(("", "")) | None => None,
                Some(("", _)) => Some("/"),
                Some((parent, _)) => Some(parent),
            };
        }
    }
}

impl Watched {
    fn tell(&self, event: &WatchEvent) {
        for (_, sink) in &self.sinks {
            sink(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn events_go_to_the_node_s_own_watches_and_to_those_of_subtrees() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = |name: &'static str| -> Sink {
            let told = Arc::clone(&told);
            Arc::new(move |event: &WatchEvent| {
                told.lock().expect("a lock").push((name, event.kind, event.path.clone()))
            })
        };
        let mut watches = Watches::default();
        assert!(watches.add(1, "/a", true, sink("tree a")));
        assert!(watches.add(2, "/a/b", false, sink("node b")));
        assert!(watches.add(3, "/a/b", false, sink("node b too")));
        assert!(watches.add(4, "/", true, sink("root")));
        assert!(!watches.add(5, "/a", false, sink("refused")), "the server would replace the first one");
        let tell = |kind: EventKind, path: &str| {
            watches.tell(&WatchEvent { kind, path: path.into() });
            let mut told = std::mem::take(&mut *told.lock().expect("a lock"));
            told.sort_by_key(|(name, ..)| *name);
            told.into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
        };
        assert_eq!(tell(EventKind::Changed, "/a/b"), ["node b", "node b too", "root", "tree a"]);
        assert_eq!(tell(EventKind::Children, "/a/b"), ["node b", "node b too"]);
        assert_eq!(tell(EventKind::Created, "/ab"), ["root"]);
        assert_eq!(tell(EventKind::Deleted, "/a"), ["root", "tree a"]);
        assert_eq!(watches.remove(2), None, "another one is there");
        assert_eq!(watches.remove(3).as_deref(), Some("/a/b"));
        assert_eq!(watches.remove(3), None);
    }
}
