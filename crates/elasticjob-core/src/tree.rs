//! The operations on a registry, and a tree that carries them out in memory the way ZooKeeper does: sessions, ephemeral
//! and sequential nodes, versions, all-or-nothing transactions.
//!
//! The tree is the store of the memory and embedded registries and the world of the simulated clusters, so that the
//! machine meets one semantics everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::path;
use crate::time::Timestamp;

/// One node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's data; ZooKeeper's limit is 1 MB.
    pub data: Arc<[u8]>,
    /// Counts the writes of the data, from 0.
    pub version: i32,
    /// The transaction that created it: distinguishes a node from a later one of the same path.
    pub czxid: i64,
    /// The transaction that wrote it last.
    pub mzxid: i64,
    /// The registry's clock at creation.
    pub created: Timestamp,
    /// The registry's clock at the last write.
    pub modified: Timestamp,
    /// The session that an ephemeral node lives with, 0 for a persistent one.
    pub owner: u64,
}

impl Node {
    /// A node as that transaction creates it.
    pub fn new(data: &str, zxid: i64, owner: u64, now: Timestamp) -> Node {
        let data = data.as_bytes().into();
        Node { data, version: 0, czxid: zxid, mzxid: zxid, created: now, modified: now, owner }
    }

    /// The data as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }

    /// Whether the data is exactly this text.
    pub fn is(&self, text: &str) -> bool {
        self.data.as_ref() == text.as_bytes()
    }
}

/// How long a node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Until it is deleted.
    Persistent,
    /// Until its session ends, or it is deleted.
    Ephemeral,
}

/// One operation of a transaction. A version of `None` means any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes sure that a persistent node exists, empty if it must be created. Its parent must exist. It never
    /// fails for an existing node, and may be executed although the other operations are rejected.
    Ensure(String),
    /// Creates a node; refused when it exists or its parent does not.
    Create {
        /// The node.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// Its life.
        mode: Mode,
    },
    /// Writes the data of a node; refused when it is missing or at another version.
    Set {
        /// The node.
        path: String,
        /// Its new data.
        data: Vec<u8>,
        /// The version that it must have.
        version: Option<i32>,
    },
    /// Deletes a node; refused when it is missing, at another version or has children.
    Delete {
        /// The node.
        path: String,
        /// The version that it must have.
        version: Option<i32>,
    },
    /// Refuses when the node is missing or at another version.
    Check {
        /// The node.
        path: String,
        /// The version that it must have.
        version: Option<i32>,
    },
}

impl Op {
    /// A persistent node with a text.
    pub fn create(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Op {
        Op::Create { path: path.into(), data: data.into(), mode: Mode::Persistent }
    }

    /// An ephemeral node with a text.
    pub fn ephemeral(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Op {
        Op::Create { path: path.into(), data: data.into(), mode: Mode::Ephemeral }
    }

    /// A write at any version.
    pub fn set(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Op {
        Op::Set { path: path.into(), data: data.into(), version: None }
    }

    /// A delete at any version.
    pub fn delete(path: impl Into<String>) -> Op {
        Op::Delete { path: path.into(), version: None }
    }

    /// A check that the node exists.
    pub fn exists(path: impl Into<String>) -> Op {
        Op::Check { path: path.into(), version: None }
    }

    /// A check that the node is at that version.
    pub fn check(path: impl Into<String>, version: i32) -> Op {
        Op::Check { path: path.into(), version: Some(version) }
    }

    /// The node that it is about.
    pub fn path(&self) -> &str {
        match self {
            Op::Ensure(path)
            | Op::Create { path, .. }
            | Op::Set { path, .. }
            | Op::Delete { path, .. }
            | Op::Check { path, .. } => path,
        }
    }
}

/// Why an operation refused its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The node, or the parent of the one to create, is not there.
    Missing,
    /// The node to create is there.
    Exists,
    /// The node is at another version.
    Version,
    /// The node to delete has children.
    NotEmpty,
    /// Not allowed: an ephemeral node as parent, or a right that is lacking.
    Forbidden,
}

/// A rejected transaction: none of its operations was executed, except for `Ensure`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The index of the operation that refused.
    pub op: usize,
    /// Why.
    pub reason: Reason,
}

/// What happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Created,
    /// Its data was written.
    Changed,
    /// It was deleted.
    Deleted,
    /// A child came or went. Subtree watches do not tell this.
    Children,
}

/// One change of the tree, as watches tell it: where, not what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The node.
    pub path: String,
    /// What happened.
    pub kind: EventKind,
}

#[derive(Clone, Debug)]
struct Entry {
    node: Node,
    children: BTreeSet<String>,
    sequence: u32,
}

/// What an operation has done, to be taken back where a later one of its transaction refuses.
enum Undo {
    Created { path: String },
    Written { path: String, before: Node },
    Deleted { path: String, entry: Entry },
}

/// The tree itself. Every change takes the time from its caller.
#[derive(Clone, Debug)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
    sessions: BTreeSet<u64>,
    last_session: u64,
    zxid: i64,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// An empty tree: only the root.
    pub fn new() -> Tree {
        Tree {
            entries: BTreeMap::from([("/".to_owned(), Entry::new(Vec::new(), 0, 0, Timestamp(0)))]),
            sessions: BTreeSet::new(),
            last_session: 0,
            zxid: 0,
        }
    }

    /// Begins a session. Ids rise and are never 0.
    pub fn open_session(&mut self) -> u64 {
        self.last_session += 1;
        self.sessions.insert(self.last_session);
        self.last_session
    }

    /// Whether the session is open.
    pub fn has_session(&self, session: u64) -> bool {
        self.sessions.contains(&session)
    }

    /// Ends a session: its ephemeral nodes go, in one transaction.
    pub fn close_session(&mut self, session: u64) -> Vec<Event> {
        if !self.sessions.remove(&session) {
            return Vec::new();
        }
        let gone: Vec<String> =
            self.entries.iter().filter(|(_, e)| e.node.owner == session).map(|(p, _)| p.clone()).collect();
        self.zxid += 1;
        let mut events = Vec::new();
        for path in gone {
            self.unlink(&path, &mut events);
        }
        events
    }

    /// Puts a node back that was stored: only while a tree is loaded, parents first.
    pub fn restore(&mut self, path: &str, node: Node) {
        self.zxid = self.zxid.max(node.mzxid).max(node.czxid);
        if let Some(siblings) = self.entries.get_mut(parent_or_root(path)) {
            siblings.children.insert(path::name(path).to_owned());
        }
        self.entries.insert(path.to_owned(), Entry { node, children: BTreeSet::new(), sequence: 0 });
    }

    /// Makes the session ids go on above `last`: a restarted store must not give an old id again.
    pub fn raise_sessions(&mut self, last: u64) {
        self.last_session = self.last_session.max(last);
    }

    /// Makes the transaction numbers continue above `last`: a restarted store must not issue a number again.
    pub fn raise_zxid(&mut self, last: i64) {
        self.zxid = self.zxid.max(last);
    }

    /// The id of the session that was opened last.
    pub fn last_session(&self) -> u64 {
        self.last_session
    }

    /// The number of the last transaction.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// The node of that path.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.entries.get(path).map(|e| &e.node)
    }

    /// The names of its children in text order, `None` when the node is missing.
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        self.entries.get(path).map(|e| e.children.iter().cloned().collect())
    }

    /// Every path with its node, in text order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), &entry.node))
    }

    /// Carries a transaction out, or nothing of it.
    ///
    /// # Errors
    ///
    /// The first operation that cannot be done, and why.
    pub fn commit(&mut self, session: u64, ops: &[Op], now: Timestamp) -> Result<(i64, Vec<Event>), Refusal> {
        let mut undo = Vec::new();
        let mut events = Vec::new();
        self.zxid += 1;
        for (index, op) in ops.iter().enumerate() {
            if let Err(reason) = self.apply(session, op, now, &mut undo, &mut events) {
                undo.into_iter().rev().for_each(|step| self.undo(step));
                self.zxid -= 1;
                return Err(Refusal { op: index, reason });
            }
        }
        Ok((self.zxid, events))
    }

    /// Creates an ephemeral node whose name ends in ten digits that rise with each one below the same parent.
    ///
    /// # Errors
    ///
    /// As [`Tree::commit`] with one operation.
    pub fn create_sequential(
        &mut self,
        session: u64,
        prefix: &str,
        now: Timestamp,
    ) -> Result<(String, Vec<Event>), Refusal> {
        let above = parent_or_root(prefix);
        let sequence = self.entries.get(above).ok_or(Refusal { op: 0, reason: Reason::Missing })?.sequence;
        let path = format!("{prefix}{sequence:010}");
        let (_, events) = self.commit(session, &[Op::ephemeral(path.clone(), "")], now)?;
        Ok((path, events))
    }

    fn apply(
        &mut self,
        session: u64,
        op: &Op,
        now: Timestamp,
        undo: &mut Vec<Undo>,
        events: &mut Vec<Event>,
    ) -> Result<(), Reason> {
        match op {
            Op::Ensure(path) if self.entries.contains_key(path) => Ok(()),
            Op::Ensure(path) => self.link(path, Vec::new(), 0, now, undo, events),
            Op::Create { path, data, mode } => {
                let owner = match mode {
                    Mode::Persistent => 0,
                    Mode::Ephemeral if self.sessions.contains(&session) => session,
                    Mode::Ephemeral => return Err(Reason::Forbidden),
                };
                self.link(path, data.clone(), owner, now, undo, events)
            }
            Op::Set { path, data, version } => {
                self.expect(path, *version)?;
                let zxid = self.zxid;
                let entry = self.entries.get_mut(path).ok_or(Reason::Missing)?;
                let version = entry.node.version + 1;
                let node =
                    Node { data: data.clone().into(), version, mzxid: zxid, modified: now, ..entry.node.clone() };
                undo.push(Undo::Written { path: path.clone(), before: std::mem::replace(&mut entry.node, node) });
                events.push(Event { path: path.clone(), kind: EventKind::Changed });
                Ok(())
            }
            Op::Delete { path, version } => {
                self.expect(path, *version)?;
                if self.entries.get(path).is_some_and(|e| !e.children.is_empty()) {
                    return Err(Reason::NotEmpty);
                }
                let entry = self.unlink(path, events);
                undo.extend(entry.map(|entry| Undo::Deleted { path: path.clone(), entry }));
                Ok(())
            }
            Op::Check { path, version } => self.expect(path, *version),
        }
    }

    fn expect(&self, path: &str, version: Option<i32>) -> Result<(), Reason> {
        let entry = self.entries.get(path).ok_or(Reason::Missing)?;
        match version {
            Some(version) if version != entry.node.version => Err(Reason::Version),
            _ => Ok(()),
        }
    }

    fn link(
        &mut self,
        path: &str,
        data: Vec<u8>,
        owner: u64,
        now: Timestamp,
        undo: &mut Vec<Undo>,
        events: &mut Vec<Event>,
    ) -> Result<(), Reason> {
        if self.entries.contains_key(path) {
            return Err(Reason::Exists);
        }
        let above = parent_or_root(path);
        let parent = self.entries.get_mut(above).ok_or(Reason::Missing)?;
        if parent.node.owner != 0 {
            return Err(Reason::Forbidden);
        }
        undo.push(Undo::Created { path: path.to_owned() });
        parent.children.insert(path::name(path).to_owned());
        parent.sequence += 1;
        events.push(Event { path: path.to_owned(), kind: EventKind::Created });
        events.push(Event { path: above.to_owned(), kind: EventKind::Children });
        self.entries.insert(path.to_owned(), Entry::new(data, owner, self.zxid, now));
        Ok(())
    }

    fn unlink(&mut self, path: &str, events: &mut Vec<Event>) -> Option<Entry> {
        let above = parent_or_root(path).to_owned();
        let entry = self.entries.remove(path);
        if let Some(parent) = self.entries.get_mut(&above) {
            parent.children.remove(path::name(path));
        }
        events.push(Event { path: path.to_owned(), kind: EventKind::Deleted });
        events.push(Event { path: above, kind: EventKind::Children });
        entry
    }

    fn undo(&mut self, step: Undo) {
        match step {
            Undo::Created { path } => {
                self.entries.remove(&path);
                if let Some(parent) = self.entries.get_mut(parent_or_root(&path)) {
                    parent.children.remove(path::name(&path));
                    parent.sequence -= 1;
                }
            }
            Undo::Written { path, before } => {
                if let Some(entry) = self.entries.get_mut(&path) {
                    entry.node = before;
                }
            }
            Undo::Deleted { path, entry } => {
                if let Some(parent) = self.entries.get_mut(parent_or_root(&path)) {
                    parent.children.insert(path::name(&path).to_owned());
                }
                self.entries.insert(path, entry);
            }
        }
    }
}

impl Entry {
    fn new(data: Vec<u8>, owner: u64, zxid: i64, now: Timestamp) -> Entry {
        let node = Node { data: data.into(), version: 0, czxid: zxid, mzxid: zxid, created: now, modified: now, owner };
        Entry { node, children: BTreeSet::new(), sequence: 0 }
    }
}

fn parent_or_root(path: &str) -> &str {
    path::parent(path).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    #[test]
    fn a_refused_transaction_leaves_no_trace() {
        let mut tree = Tree::new();
        let session = tree.open_session();
        tree.commit(session, &[Op::create("/a", "x"), Op::create("/a/b", "")], NOW).expect("creates");
        tree.create_sequential(session, "/a/latch-", NOW).expect("creates");
        let report = |tree: &Tree| -> Vec<_> {
            tree.iter().map(|(path, node)| (path.to_owned(), node.clone(), tree.children(path))).collect()
        };
        let (before, zxid) = (report(&tree), tree.zxid());
        let ops = [
            Op::set("/a", "y"),
            Op::set("/a", "z"),
            Op::delete("/a/b"),
            Op::create("/a/b", "made anew"),
            Op::create("/a/b/d", ""),
            Op::delete("/a/b/d"),
            Op::ephemeral("/a/c", ""),
            Op::delete("/a/latch-0000000001"),
            Op::check("/a", 7),
        ];
        let refusal = tree.commit(session, &ops, NOW).expect_err("the last check fails");
        assert_eq!(refusal, Refusal { op: 8, reason: Reason::Version });
        assert_eq!((report(&tree), tree.zxid()), (before, zxid));
        let (next, _) = tree.create_sequential(session, "/a/latch-", NOW).expect("creates");
        assert_eq!(next, "/a/latch-0000000002", "the numbers go on behind the two children that were made");
    }

    #[test]
    fn ephemeral_nodes_end_with_their_session_and_have_no_children() {
        let mut tree = Tree::new();
        let session = tree.open_session();
        tree.commit(session, &[Op::ephemeral("/e", "x")], NOW).expect("creates");
        let refusal = tree.commit(session, &[Op::create("/e/below", "")], NOW).expect_err("no child");
        assert_eq!(refusal.reason, Reason::Forbidden);
        let events = tree.close_session(session);
        assert_eq!(events[0], Event { path: "/e".into(), kind: EventKind::Deleted });
        assert!(tree.get("/e").is_none());
        assert_eq!(
            tree.commit(session, &[Op::ephemeral("/e", "x")], NOW).expect_err("closed").reason,
            Reason::Forbidden
        );
    }

    #[test]
    fn one_transaction_may_create_and_delete_the_same_node() {
        let mut tree = Tree::new();
        let session = tree.open_session();
        let (_, events) = tree.commit(session, &[Op::ephemeral("/p", ""), Op::delete("/p")], NOW).expect("both");
        assert_eq!(events.iter().filter(|e| e.path == "/p").count(), 2);
        assert!(tree.get("/p").is_none());
    }

    #[test]
    fn sequences_rise_below_one_parent() {
        let mut tree = Tree::new();
        let session = tree.open_session();
        tree.commit(session, &[Op::create("/l", "")], NOW).expect("creates");
        let (first, _) = tree.create_sequential(session, "/l/latch-", NOW).expect("first");
        tree.commit(session, &[Op::delete(first.clone())], NOW).expect("deletes");
        let (second, _) = tree.create_sequential(session, "/l/latch-", NOW).expect("second");
        assert_eq!((first.as_str(), second.as_str()), ("/l/latch-0000000000", "/l/latch-0000000001"));
    }
}
