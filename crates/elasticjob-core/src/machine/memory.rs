//! What a machine remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::types::{Begun, RunId, Source, StepId};
use crate::limits;
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op};
use crate::wire::{Difference, Ledger};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Waiting,
    Joining,
    Joined,
    Leaving { deadline: Timestamp },
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) timeout: Duration,
}

/// The instance node of another process that has our id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namesake {
    pub(super) czxid: i64,
    /// Since when we see it.
    pub(super) since: Timestamp,
    pub(super) is_told: bool,
}

/// The clockwork of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    pub(super) next_due: Option<Timestamp>,
    /// The latest due time that has passed since the machine knows the schedule, and the one before.
    pub(super) last_due: Option<Timestamp>,
    pub(super) due_before: Option<Timestamp>,
    /// Due times up to here need no account: they are from before the schedule.
    pub(super) untold: Timestamp,
    /// The first and the last due time that passed while we were disabled.
    pub(super) rested: Option<(Timestamp, Timestamp)>,
    /// Due times up to here are accounted for: from before the start, or abandoned.
    pub(super) floor: Timestamp,
    pub(super) last_tick: Timestamp,
    /// Expression, zone, and whether it fires twice in repeated hours.
    pub(super) cron: Option<(String, String, bool)>,
}

/// An item that this instance owns.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) owner_version: i32,
    pub(super) ledger_version: i32,
    /// The transaction that created its node: one that was created again has no earlier ledger.
    pub(super) made: i64,
    /// Due times up to here were begun, or are abandoned.
    pub(super) accounted: Timestamp,
    /// Up to which due time people know what became of it.
    pub(super) told: Timestamp,
    pub(super) disabled: bool,
    /// Who took it over.
    pub(super) taken_by: Option<String>,
    /// Since when, by the registry's clock.
    pub(super) taken_at: Timestamp,
    /// In which session, 0 for a persistent node.
    pub(super) taken_in: u64,
    /// Whether a `failovering` of a taker that is gone may stand there: a begin supersedes what it asks for.
    pub(super) superseded: bool,
    /// Whether its `misfire` node exists.
    pub(super) misfire_node: bool,
    /// A missed due time that is to be caught up.
    pub(super) missed: Option<Timestamp>,
    pub(super) triggered: bool,
    /// Until when its catch-up waits, so that it can move.
    pub(super) yields_until: Timestamp,
}

/// What an instance remembers of an item that it has lost. No instance began the firings during which the item was disabled, and the
/// registry does not record which firing was missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    pub(super) accounted: Timestamp,
    pub(super) missed: Option<Timestamp>,
}

impl Item {
    pub(super) fn earlier(&self) -> Earlier {
        Earlier { accounted: self.accounted, missed: self.missed }
    }

    /// A due time that it could not take. Without misfire what was missed before waits until misfire is on again, as in Java.
    pub(super) fn miss(&mut self, due: Timestamp, misfire: bool) {
        if misfire {
            self.missed = Some(due);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The begin is under way.
    Beginning,
    /// The outcome of the begin is unknown.
    Unsettled,
    /// User code runs.
    Running,
    /// It has ended; the mark is still there.
    Ended { at: Timestamp },
}

#[derive(Clone, Debug)]
pub(super) struct Busy {
    pub(super) run: RunId,
    pub(super) due: Timestamp,
    pub(super) source: Source,
    pub(super) phase: Phase,
    pub(super) token: i64,
    /// The text of the ledger that its begin writes, and the version of the item's node that it checks.
    pub(super) ledger: String,
    pub(super) version: i32,
    /// The transaction that created the item's node.
    pub(super) made: i64,
    pub(super) taken: bool,
    /// The firings between these two were missed. They are logged once the begin of this one is confirmed.
    pub(super) passed: (Timestamp, Timestamp),
    /// Whether `running` was created, and whether persistent.
    pub(super) mark: Mark,
    /// The session of the mark, 0 if the mark must be read first.
    pub(super) session: u64,
    /// Whether a mark in a later session was asked for.
    pub(super) remarked: bool,
    /// The triggers that this run answers and whose caller waits; almost always none.
    pub(super) requests: Vec<String>,
}

/// An item that was taken over and is to be begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// The version of the item's node, which its begin raises.
    pub(super) ledger_version: i32,
    /// The due time of the run that was cut off.
    pub(super) due: Timestamp,
    /// The transaction that created the item's node.
    pub(super) made: i64,
    /// The triggers that the run which was cut off answered, and whose callers wait.
    pub(super) requests: Vec<String>,
}

impl Taken {
    /// Reads the item's node. Without a ledger in it, the due time is the given one.
    pub(super) fn of(node: &Node, otherwise: Timestamp) -> Taken {
        let ledger = Ledger::parse(&node.data);
        let due = ledger.as_ref().map_or(otherwise, |ledger| ledger.due);
        let requests = ledger.map(|ledger| ledger.requests).unwrap_or_default();
        Taken { ledger_version: node.version, due, made: node.czxid, requests }
    }
}

/// A takeover that came to nothing: its `failovering` is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abandoned {
    /// And its `failover`.
    pub(super) failover: bool,
    /// The version of `failovering`, where it was seen.
    pub(super) seen: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    Ephemeral,
    Persistent,
}

/// Why an item cannot begin: a `running` mark of another instance, or a missing right.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocked {
    /// Whether it is to be read (again).
    pub(super) inspect: bool,
    /// When its owner was first found missing.
    pub(super) orphan_since: Option<Timestamp>,
    /// When it is read again, since no notification will come.
    pub(super) again: Option<Timestamp>,
    /// Whether it is the mark of an orphan. It exists until the run is taken over, or is found to be alive.
    pub(super) is_orphan: bool,
}

/// Taking in what a leader assigned.
#[derive(Clone, Debug, Default)]
pub(super) struct Follow {
    /// The assignment must be read again.
    pub(super) stale: bool,
    /// Whether the reload of each `reconcileIntervalMinutes` is the only reason.
    pub(super) is_routine: bool,
    /// Counts the reasons to read it, and how many there were when the reading began. A later one counts.
    pub(super) reasons: u64,
    pub(super) read_for: u64,
    /// Since when the assignment is not settled.
    pub(super) unsettled_since: Option<Timestamp>,
    /// The owners as they were last read.
    pub(super) owners: BTreeMap<u32, String>,
    /// Whether there were nodes of items beyond the count when they were read.
    pub(super) has_excess: bool,
    /// Whether `owners` was read at all in this session.
    pub(super) known: bool,
    /// The firing that waits for the assignment waits until then.
    pub(super) hold_until: Option<Timestamp>,
    /// When to ask for items that we were not given.
    pub(super) ask_at: Option<Timestamp>,
    pub(super) asked: bool,
    /// The owners for whose sake a division was asked: once is enough.
    pub(super) asked_for: Option<BTreeMap<u32, String>>,
    /// Since when an item has an owner that is gone, or none, and no instance reshards.
    pub(super) unowned_since: Option<Timestamp>,
    /// Of each item the owner before, and since when that one cannot have begun it.
    pub(super) handover: BTreeMap<u32, (Option<String>, Timestamp)>,
    /// A trigger came while the assignment was not settled.
    pub(super) trigger_held: bool,
    /// When the first trigger of an own item was seen that no run has answered yet.
    pub(super) triggered_at: Option<Timestamp>,
    /// When to read the owners again: a leader that lost its leadership may have been in the middle of a resharding.
    pub(super) recheck: Vec<Timestamp>,
}

impl Follow {
    pub(super) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ask = self.ask_at.filter(|_| !self.asked);
        let unowned = self.unowned_since.map(|since| since + limits::LEADER_WAIT);
        let recheck = self.recheck.iter().copied();
        let gathered = self.triggered_at.map(|since| since + limits::TRIGGER_GATHER);
        let times = self
            .hold_until
            .into_iter()
            .chain(gathered)
            .chain(ask)
            .chain(self.depose_at())
            .chain(unowned)
            .chain(recheck);
        times.filter(|at| *at > now).min()
    }

    /// When the leader has kept a firing waiting for long enough.
    pub(super) fn depose_at(&self) -> Option<Timestamp> {
        self.hold_until.map(|until| until - (limits::SHARDING_WAIT - limits::LEADER_WAIT))
    }
}

/// What a leader knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Lead {
    /// What the current assignment was made from.
    pub(super) basis: Option<Basis>,
    /// The expected owners. Different ones mean that another leader has resharded since.
    pub(super) owners: Option<BTreeMap<u32, String>>,
    /// When a resharding continues.
    pub(super) at: Option<Timestamp>,
    /// Whether `necessary` needs not be written: a resharding has just been.
    pub(super) direct_until: Option<Timestamp>,
    /// Until when the instances take in the resharding before.
    pub(super) rests_until: Option<Timestamp>,
    /// Items that stayed with their owner because they were running.
    pub(super) kept: BTreeSet<u32>,
    /// One of them has ended: divide again.
    pub(super) forced: bool,
    /// Of a leader that rejected the stored configuration.
    pub(super) stands_in_for: Option<StandIn>,
}

impl Lead {
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.at
    }
}

/// Leads although it rejected the stored configuration, since no other instance did. It assigns the items by the configuration in
/// force.
#[derive(Clone, Debug)]
pub(super) struct StandIn {
    /// The instances that did not become leader; without those that left since.
    pub(super) others: BTreeSet<String>,
    /// Then they get another chance.
    pub(super) until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) available: Arc<[String]>,
    pub(super) total: u32,
    pub(super) strategy: String,
}

/// A resharding while its state is read.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) basis: Basis,
    pub(super) queries: Vec<Query>,
    pub(super) answers: Vec<Answer>,
}

/// A resharding while it is committed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) basis: Basis,
    pub(super) old: BTreeMap<u32, String>,
    pub(super) new: BTreeMap<u32, String>,
    pub(super) kept: BTreeSet<u32>,
    /// The transactions that created the flags which this one deletes.
    pub(super) necessary: Option<i64>,
    pub(super) processing: Option<i64>,
    pub(super) parts: Vec<Vec<Op>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Election,
    TakeOver,
    LateRelease,
}

/// The pause before the next request for a latch, after the registry gave none.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatchWait {
    /// Requests in vain, in a row.
    pub(super) times: usize,
    pub(super) until: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Latch {
    pub(super) id: StepId,
    pub(super) purpose: Purpose,
    pub(super) node: Option<String>,
}

/// The registry step that is under way, with what its end needs to know.
#[derive(Clone, Debug)]
pub(super) enum Step {
    ReadApplied,
    Join { wrote: Option<String>, server: Option<&'static str>, overwrote: Vec<Difference> },
    EnableAgain,
    Publish { text: Option<String> },
    ConfirmShutdown,
    AnnounceLeave,
    Leave { ops: Vec<Op> },
    AdoptTrigger { id: String, items: Vec<u32> },
    DropTriggers { triggers: Vec<(u32, String)>, reason: &'static str },
    Report { results: Vec<(String, &'static str)> },
    Server,
    Tidy,
    ReadLeader { latch: String },
    Elect { latch: String },
    Abdicate,
    ReadOwners,
    Claim { own: Vec<u32>, ops: Vec<Op> },
    ReadOwn { own: Vec<u32> },
    Flag,
    AskForItems,
    ReadQueue { path: String },
    ReadPlaces { path: String, names: Vec<String> },
    LeavePlaces { path: String },
    Survey(Box<Survey>),
    Reshard(Box<Plan>),
    Begin(Box<Begun>),
    Settle { items: Vec<u32> },
    Release { items: Vec<u32>, remnants: Vec<(u32, super::release::Remnant)> },
    Abandon { item: u32 },
    LookAgain,
    ReadLate { item: u32, latch: String },
    ReleaseLate { item: u32, latch: String },
    Mark { items: Vec<u32>, ops: Vec<Op> },
    ReadMark { item: u32 },
    Misfire { items: Vec<u32>, ops: Vec<Op> },
    Trigger,
    Inspect { item: u32 },
    InspectTaker { item: u32, taker: String },
    ClearMark { item: u32, of: String },
    FindOrphans { items: Vec<u32> },
    FindLeft { items: Vec<u32> },
    ReadOrphans { items: Vec<u32>, latch: String },
    TakeOver { takeovers: Vec<super::failover::Takeover>, latch: String },
    SettleTakeovers { items: Vec<u32> },
}

impl Blocked {
    pub(super) fn look_at(&self) -> Option<Timestamp> {
        self.times().min()
    }

    pub(super) fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.orphan_since.map(|t| t + limits::SECOND_LOOK).into_iter().chain(self.again)
    }
}
