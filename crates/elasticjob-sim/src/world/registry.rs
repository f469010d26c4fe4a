//! What the registry does: transactions with their history, watches, latches.

use elasticjob_core::latch;
use elasticjob_core::path::Place as Meaning;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Event, EventKind, Mode, Op, Refusal};

use super::{Happening, Parcel, Place, World};
use crate::java::Reply;
use crate::{Change, What};
use elasticjob_core::machine::{Input, StepId};

impl World {
    pub(super) fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::Node(path) => Answer::Node(self.tree.get(path).cloned()),
            Query::Children(path) => Answer::Children(self.tree.children(path)),
        }
    }

    /// Executes a transaction, writes the history, and notifies the watches.
    pub(super) fn transact(&mut self, session: u64, ops: &[Op]) -> Result<i64, Refusal> {
        let (zxid, events) = self.tree.commit(session, ops, self.now)?;
        for op in ops {
            let what = match op {
                Op::Create { data, mode, .. } => {
                    let owner = if *mode == Mode::Ephemeral { session } else { 0 };
                    What::Wrote { data: data.as_slice().into(), owner }
                }
                Op::Set { data, path, .. } => {
                    let owner = self.tree.get(path).map(|node| node.owner).unwrap_or_default();
                    What::Wrote { data: data.as_slice().into(), owner }
                }
                Op::Delete { .. } => What::Deleted,
                Op::Ensure(path) if events.iter().any(|e| e.kind == EventKind::Created && e.path == *path) => {
                    What::Wrote { data: [].into(), owner: 0 }
                }
                Op::Ensure(_) | Op::Check { .. } => continue,
            };
            self.history.push(Change { at: self.now, zxid, session, path: op.path().to_owned(), what });
        }
        self.tell(&events);
        Ok(zxid)
    }

    /// A session is over: its nodes go, and runs that were begun in it have no lease any more.
    pub(super) fn end_session(&mut self, session: u64) {
        let now = self.now;
        for entry in self.journal.iter_mut().filter(|e| e.session == session && e.lease_end.is_none()) {
            entry.lease_end = Some(now);
        }
        let events = self.tree.close_session(session);
        let zxid = self.tree.zxid();
        let deleted = events.iter().filter(|e| e.kind == EventKind::Deleted);
        self.history.extend(deleted.map(|e| Change {
            at: now,
            zxid,
            session,
            path: e.path.clone(),
            what: What::Deleted,
        }));
        self.history.push(Change { at: now, zxid, session, path: String::new(), what: What::SessionEnded });
        self.tell(&events);
    }

    /// A node changed: those who watch it read it in a moment. What changes again before that is one reading.
    fn tell(&mut self, events: &[Event]) {
        let path = self.path.clone();
        for event in events.iter().filter(|e| e.kind != EventKind::Children) {
            if event.path.contains("latch-") {
                self.pass_latches();
                continue;
            }
            let fixed = match path.place(&event.path) {
                Some(
                    Meaning::Config
                    | Meaning::Server(_)
                    | Meaning::Instance(_)
                    | Meaning::Leader
                    | Meaning::Necessary
                    | Meaning::Processing
                    | Meaning::FailoverItem(_)
                    | Meaning::Leaving(_)
                    | Meaning::Trigger(_)
                    | Meaning::ItemTrigger(..),
                ) => true,
                Some(
                    Meaning::Root
                    | Meaning::ItemDisabled(_)
                    | Meaning::ItemFailover(_)
                    | Meaning::ItemRunning(_)
                    | Meaning::Other,
                )
                | None => false,
            };
            for index in 0..self.processes.len() {
                let process = &mut self.processes[index];
                let wants = process.java || fixed || process.watched.contains(&event.path);
                if !process.connected || !wants || !process.unread.insert(event.path.clone()) || process.loading {
                    continue;
                }
                let at = self.now + self.latency();
                let process = &mut self.processes[index];
                process.answered = process.answered.max(at);
                let (at, link, path) = (process.answered, process.link, event.path.clone());
                self.plan(at, Happening::Fetch { process: index, link, path });
            }
        }
    }

    /// Reads a node that a watch named.
    pub(super) fn fetch(&mut self, index: usize, link: u64, path: String) {
        let process = &mut self.processes[index];
        if process.link != link || !process.connected {
            return;
        }
        let blocked = process.mute_until.max(process.deaf_until).max(process.paused_until);
        if blocked > self.now {
            return self.plan(blocked, Happening::Fetch { process: index, link, path });
        }
        process.unread.remove(&path);
        let java = process.java;
        let node = self.tree.get(&path).cloned();
        let parcel = if java {
            Parcel::Changed(path, node)
        } else {
            Parcel::Input(Box::new(Input::Changed(vec![(path, node)])))
        };
        self.deliver(index, self.now, parcel);
    }

    pub(super) fn latch(&mut self, index: usize, ask: u64, path: &str) {
        let session = self.processes[index].session;
        match self.get_in_line(index, session, path) {
            Some(node) => {
                let first = self.first_in_line(path);
                self.processes[index].latches.insert(ask, Place { path: path.to_owned(), node, told: false });
                self.pass_latches();
                self.suspect(index, ask, first);
            }
            None => self.latched(index, ask, None),
        }
    }

    /// Makes a place at the end of a latch's queue.
    pub(super) fn get_in_line(&mut self, index: usize, session: u64, path: &str) -> Option<String> {
        let mut parents = Vec::new();
        let mut at = Some(path);
        while let Some(path) = at.filter(|p| *p != self.path.root()) {
            parents.push(Op::Ensure(path.to_owned()));
            at = elasticjob_core::path::parent(path);
        }
        parents.reverse();
        self.transact(session, &parents).ok()?;
        let prefix = if self.processes[index].java {
            format!("{path}/_c_{index}-latch-")
        } else {
            latch::guarded_prefix(path, &index.to_string())
        };
        let (node, _) = self.tree.create_sequential(session, &prefix, self.now).ok()?;
        let (at, zxid) = (self.now, self.tree.zxid());
        let what = What::Wrote { data: [].into(), owner: session };
        self.history.push(Change { at, zxid, session, path: node.clone(), what });
        Some(node)
    }

    fn first_in_line(&self, path: &str) -> Option<String> {
        let names = self.tree.children(path).unwrap_or_default();
        latch::first(&names).map(|name| format!("{path}/{name}"))
    }

    /// One of ours that waits looks after a while whether the same place is still the first.
    fn suspect(&mut self, index: usize, ask: u64, first: Option<String>) {
        let link = self.processes[index].link;
        if let Some(first) = first.filter(|_| !self.processes[index].java) {
            self.plan(self.now + latch::SILENCE_MAX, Happening::Suspect { process: index, link, ask, first });
        }
    }

    /// A place that was first for so long is of a process that does not act: it is deleted where it is guarded.
    pub(super) fn suspected(&mut self, index: usize, link: u64, ask: u64, first: &str) {
        let process = &self.processes[index];
        if process.link != link || !process.is_heard(self.now) {
            return;
        }
        let Some(place) = process.latches.get(&ask).filter(|place| !place.told) else { return };
        let (path, session) = (place.path.clone(), process.session);
        if self.first_in_line(&path).is_some_and(|still| still == first) && latch::is_guarded(first) {
            let _ = self.transact(session, &[Op::delete(first)]);
        }
        let next = self.first_in_line(&path);
        self.suspect(index, ask, next);
    }

    pub(super) fn unlatch(&mut self, index: usize, ask: u64) {
        let session = self.processes[index].session;
        if let Some(place) = self.processes[index].latches.remove(&ask) {
            let _ = self.transact(session, &[Op::delete(place.node)]);
        }
    }

    /// Notifies those that have become the first in their queue.
    fn pass_latches(&mut self) {
        for index in 0..self.processes.len() {
            let waiting: Vec<(u64, Place)> =
                self.processes[index].latches.iter().filter(|(_, p)| !p.told).map(|(a, p)| (*a, p.clone())).collect();
            for (ask, Place { path, node, .. }) in waiting {
                if self.first_in_line(&path).is_some_and(|first| first == node) {
                    if let Some(place) = self.processes[index].latches.get_mut(&ask) {
                        place.told = true;
                    }
                    self.latched(index, ask, Some(node));
                }
            }
        }
    }

    fn latched(&mut self, index: usize, ask: u64, node: Option<String>) {
        let parcel = if self.processes[index].java {
            Parcel::Reply(ask, Reply::Latched(node.is_some()))
        } else {
            Parcel::Input(Box::new(Input::Latched(StepId(ask), node)))
        };
        self.deliver(index, Timestamp(self.now.0), parcel);
    }
}
