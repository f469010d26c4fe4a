//! The due ledger: what became of each due time of a job, judged from what was recorded. Pure: everything comes from one [`Record`].
//!
//! Two things are recorded. The event trace has a row for each run of an item, by Java's instances too. Rust instances also record their
//! events: due times at which items did not start, with the reason, and who joined, left, disabled and enabled what. Java's instances
//! record no such events, so a due time without a run is only known to have been missed, and not why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::time::Timestamp;

/// A run is late if it starts so long after its due time.
pub const LATE: Duration = Duration::from_secs(5);
/// A due time is waiting for its runs for so long.
pub const GRACE: Duration = Duration::from_secs(10);

/// Why an item ran, as far as the trace tells: a trigger is recorded like a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The schedule, or a trigger.
    Schedule,
    /// A catch-up of missed firings.
    Misfire,
    /// The takeover of an interrupted run.
    Failover,
}

/// A recorded run of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRun {
    /// The item.
    pub item: u32,
    /// Why it ran.
    pub cause: Cause,
    /// When it started.
    pub start: Timestamp,
    /// When it ended; `None` while it runs, and if its process died.
    pub end: Option<Timestamp>,
    /// Whether it succeeded.
    pub success: bool,
}

/// What an instance said of due times at which it started nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The items were running, and a catch-up follows.
    Misfired,
    /// No catch-up follows.
    Skipped,
    /// No instance started the items.
    Passed,
    /// The run was lost with the connection before it started.
    Lost,
}

/// A recorded account of due times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What was said.
    pub what: NotBegun,
    /// The items; `None` for all.
    pub items: Option<BTreeSet<u32>>,
    /// The first due time.
    pub first: Timestamp,
    /// The last due time.
    pub last: Timestamp,
    /// Why.
    pub reason: String,
}

/// A recorded change of who may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The job was disabled or enabled on all servers.
    Job {
        /// The new state.
        enabled: bool,
    },
    /// The job was disabled or enabled on a server.
    Server {
        /// The IP address.
        server: String,
        /// The new state.
        enabled: bool,
    },
    /// An item was disabled or enabled.
    Item {
        /// The item.
        item: u32,
        /// The new state.
        enabled: bool,
    },
    /// An instance joined.
    Joined {
        /// The id.
        instance: String,
    },
    /// An instance left.
    Left {
        /// The id.
        instance: String,
    },
}

/// What is known of a job.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The due times to judge, ascending.
    pub dues: Vec<Timestamp>,
    /// The due time after the last of them.
    pub next: Option<Timestamp>,
    /// The number of items.
    pub items: u32,
    /// The runs, in any order. Those that started before the first due time tell whether an item was still running.
    pub runs: Vec<ItemRun>,
    /// The accounts of instances.
    pub told: Vec<Told>,
    /// The changes with their times, ascending.
    pub changes: Vec<(Timestamp, Change)>,
    /// Since when runs of the job are recorded; `None` if none is.
    pub since: Option<Timestamp>,
    /// When the schedule changed last, if that is recorded: the due times are those of the present schedule.
    pub changed: Option<Timestamp>,
    /// The present.
    pub now: Timestamp,
}

/// What became of a due time. The order is that of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It ran on time.
    Ran,
    /// It is due, and its runs may still start.
    Waiting,
    /// It ran, and started late.
    Late,
    /// It could not start when it was due; a catch-up ran later.
    CaughtUp,
    /// Nothing is recorded for that time.
    Unknown,
    /// It was not meant to run.
    Skipped,
    /// Its run was lost with a connection or a process, and nothing took it over.
    Lost,
    /// It did not run.
    Missed,
}

impl Fate {
    /// All, by severity.
    pub const ALL: [Fate; 8] =
        [Fate::Ran, Fate::Waiting, Fate::Late, Fate::CaughtUp, Fate::Unknown, Fate::Skipped, Fate::Lost, Fate::Missed];

    /// Returns the word for tables and interfaces.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Ran => "ran",
            Fate::Waiting => "waiting",
            Fate::Late => "late",
            Fate::CaughtUp => "caught-up",
            Fate::Unknown => "unknown",
            Fate::Skipped => "skipped",
            Fate::Lost => "lost",
            Fate::Missed => "missed",
        }
    }
}

/// What became of one item at a due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFate {
    /// The item.
    pub item: u32,
    /// What became of it.
    pub fate: Fate,
    /// Why; empty if it ran on time.
    pub reason: String,
    /// The run, if there is one.
    pub run: Option<ItemRun>,
}

/// What became of a due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The due time.
    pub due: Timestamp,
    /// The most severe fate of its items.
    pub fate: Fate,
    /// Why, of the first item with that fate.
    pub reason: String,
    /// The items.
    pub items: Vec<ItemFate>,
}

impl Entry {
    /// The number of items with that fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.items.iter().filter(|item| item.fate == fate).count()
    }

    /// The number of items whose run failed.
    pub fn failed(&self) -> usize {
        let failed = |item: &&ItemFate| item.run.as_ref().is_some_and(|run| run.end.is_some() && !run.success);
        self.items.iter().filter(failed).count()
    }
}

/// Judges each due time.
pub fn judge(record: &Record) -> Vec<Entry> {
    let mut by_item: BTreeMap<u32, Runs<'_>> = BTreeMap::new();
    for run in &record.runs {
        by_item.entry(run.item).or_default().0.push(run);
    }
    by_item.values_mut().for_each(|runs| runs.0.sort_by_key(|run| run.start));
    let nothing = Runs::default();
    let mut state = State::default();
    let mut changes = record.changes.iter().peekable();
    let nexts: Vec<Timestamp> = record.dues.iter().skip(1).copied().chain([record.next.unwrap_or(END)]).collect();
    let accounts: Vec<Vec<&Told>> = record
        .dues
        .iter()
        .map(|due| record.told.iter().filter(|told| told.first <= *due && *due <= told.last).collect())
        .collect();
    let mut entries = Vec::with_capacity(record.dues.len());
    for (place, due) in record.dues.iter().copied().enumerate() {
        while let Some((_, change)) = changes.next_if(|(at, _)| *at <= due) {
            state.apply(change);
        }
        let items = (0..record.items).map(|item| {
            let runs = by_item.get(&item).unwrap_or(&nothing);
            let of_item = OfItem { record, state: &state, item, runs, accounts: &accounts, nexts: &nexts };
            let (fate, reason, run) = of_item.judge(place, due);
            ItemFate { item, fate, reason, run: run.cloned() }
        });
        let mut items: Vec<ItemFate> = items.collect();
        hide_new_items(&mut items, &by_item, due);
        let worst = items.iter().map(|item| item.fate).max().unwrap_or(Fate::Unknown);
        let reason = items.iter().find(|item| item.fate == worst).map(|item| item.reason.clone()).unwrap_or_default();
        entries.push(Entry { due, fate: worst, reason, items });
    }
    entries
}

/// After all due times.
const END: Timestamp = Timestamp(i64::MAX);

/// An item that ran for the first time later, while others ran at this due time, may not have existed.
fn hide_new_items(items: &mut [ItemFate], by_item: &BTreeMap<u32, Runs<'_>>, due: Timestamp) {
    if !items.iter().any(|item| item.run.is_some()) {
        return;
    }
    let ran_first_later =
        |item: u32| by_item.get(&item).and_then(|runs| runs.0.first()).is_some_and(|run| run.start > due);
    for item in items.iter_mut().filter(|item| item.fate == Fate::Missed && item.reason == NO_REASON) {
        if ran_first_later(item.item) {
            item.fate = Fate::Unknown;
            "no earlier run of this item is recorded".clone_into(&mut item.reason);
        }
    }
}

/// The reason of a due time that nothing explains.
const NO_REASON: &str = "no run is recorded, and no instance gave a reason";

/// The runs of an item, by their start.
#[derive(Debug, Default)]
struct Runs<'a>(Vec<&'a ItemRun>);

impl<'a> Runs<'a> {
    /// The first run of that cause that started at `from` or later, before `to`.
    fn first(&self, cause: Cause, from: Timestamp, to: Timestamp) -> Option<&'a ItemRun> {
        let begin = self.0.partition_point(|run| run.start < from);
        self.0[begin..].iter().take_while(|run| run.start < to).find(|run| run.cause == cause).copied()
    }

    /// The last run that started before.
    fn before(&self, moment: Timestamp) -> Option<&'a ItemRun> {
        self.0[..self.0.partition_point(|run| run.start < moment)].last().copied()
    }

    /// When the next scheduled run started after that one.
    fn next_schedule(&self, after: Timestamp) -> Timestamp {
        self.first(Cause::Schedule, Timestamp(after.0.saturating_add(1)), END).map_or(END, |run| run.start)
    }

    /// Whether the item ran again later, so that a run without an end cannot be going on.
    fn is_superseded(&self, run: &ItemRun) -> bool {
        run.end.is_none() && self.0.last().is_some_and(|last| last.start > run.start)
    }
}

type Verdict<'a> = (Fate, String, Option<&'a ItemRun>);

/// One item, for one due time after the other.
struct OfItem<'a> {
    record: &'a Record,
    state: &'a State,
    item: u32,
    runs: &'a Runs<'a>,
    /// By the place of the due time.
    accounts: &'a [Vec<&'a Told>],
    nexts: &'a [Timestamp],
}

impl<'a> OfItem<'a> {
    /// What was said of this item at a due time.
    fn account(&self, place: usize) -> Option<&'a Told> {
        let covers = |told: &&&Told| told.items.as_ref().is_none_or(|items| items.contains(&self.item));
        self.accounts.get(place)?.iter().find(covers).copied()
    }

    fn judge(&self, place: usize, due: Timestamp) -> Verdict<'a> {
        let next = self.nexts[place];
        let account = self.account(place);
        let own = self.runs.first(Cause::Schedule, due, next);
        // An instance knows of its own items that they did not start: a run in their period is one of a trigger then. Of what other
        // instances ran, those of Java too, it knows nothing.
        let is_certain =
            |told: &&Told| matches!(told.what, NotBegun::Misfired | NotBegun::Skipped) && told.items.is_some();
        if let Some(run) = own.filter(|_| account.filter(is_certain).is_none()) {
            return self.ran(run, due);
        }
        if let Some(told) = account {
            return match told.what {
                NotBegun::Misfired => self.caught_up(due),
                NotBegun::Skipped => (Fate::Skipped, told.reason.clone(), None),
                NotBegun::Passed => (Fate::Missed, self.missed(&told.reason), None),
                NotBegun::Lost => match self.takeover(due) {
                    Some(run) => (Fate::Late, "taken over after a lost connection".to_owned(), Some(run)),
                    None => (Fate::Lost, told.reason.clone(), None),
                },
            };
        }
        // A run that waited for a thread until after the next due times, which were skipped or missed for that reason.
        let follows = |place: &usize| self.account(*place).is_some_and(|told| is_certain(&told));
        let last = (place + 1..self.nexts.len()).take_while(follows).last();
        if let Some(run) = last.and_then(|last| self.runs.first(Cause::Schedule, next, self.nexts[last])) {
            return self.ran(run, due);
        }
        let before = self.runs.before(due);
        let was_running =
            before.is_some_and(|run| run.end.is_none_or(|end| end > due) && !self.runs.is_superseded(run));
        let catch_up = self.runs.first(Cause::Misfire, due, self.runs.next_schedule(due));
        if catch_up.is_some_and(|run| was_running || run.start < next) {
            return self.caught_up(due);
        }
        if let Some(run) = self.takeover(due) {
            return (Fate::Late, "only a takeover ran".to_owned(), Some(run));
        }
        if self.record.changed.is_some_and(|changed| due < changed) {
            return (Fate::Unknown, "the schedule was another one".to_owned(), None);
        }
        if let Some(reason) = self.state.resting(self.item) {
            return (Fate::Skipped, reason, None);
        }
        if self.record.now < due + GRACE {
            return (Fate::Waiting, "its run may still start".to_owned(), None);
        }
        if was_running {
            return (Fate::Skipped, "the previous run of the item had not ended".to_owned(), None);
        }
        if self.record.since.is_none_or(|since| due < since) {
            let reason = match self.record.since {
                Some(_) => "the recorded history begins later",
                None => "no run of this job is recorded",
            };
            return (Fate::Unknown, reason.to_owned(), None);
        }
        (Fate::Missed, self.missed(NO_REASON), None)
    }

    /// The takeover of a run of this due time: before the item ran by its schedule again.
    fn takeover(&self, from: Timestamp) -> Option<&'a ItemRun> {
        let until = self.runs.next_schedule(from);
        self.runs.first(Cause::Failover, from, until)
    }

    fn ran(&self, run: &'a ItemRun, due: Timestamp) -> Verdict<'a> {
        if self.runs.is_superseded(run) {
            return match self.takeover(run.start) {
                Some(taken) => (Fate::Late, "its instance died; another one took the run over".to_owned(), Some(taken)),
                None => (Fate::Lost, "its run has no end, and nothing took it over".to_owned(), Some(run)),
            };
        }
        let delay = run.start.since(due);
        match delay >= LATE {
            true => (Fate::Late, format!("started {} s late", delay.as_secs()), Some(run)),
            false => (Fate::Ran, String::new(), Some(run)),
        }
    }

    fn caught_up(&self, due: Timestamp) -> Verdict<'a> {
        if let Some(run) = self.runs.first(Cause::Misfire, due, self.runs.next_schedule(due)) {
            let seconds = run.start.since(due).as_secs();
            return (
                Fate::CaughtUp,
                format!("the item was still running; a catch-up started {seconds} s later"),
                Some(run),
            );
        }
        let is_running = self.runs.0.last().is_some_and(|last| last.start < due && last.end.is_none());
        match is_running || self.record.now < due + GRACE {
            true => (Fate::Waiting, "the item is still running; a catch-up follows".to_owned(), None),
            false => {
                let told = "the item was still running, and no catch-up is recorded";
                (Fate::Missed, self.missed(told), None)
            }
        }
    }

    fn missed(&self, told: &str) -> String {
        match self.state.resting(self.item) {
            Some(reason) => reason,
            None if self.state.has_no_instance() => "no instance was running".to_owned(),
            None => told.to_owned(),
        }
    }
}

/// Who may run, at one moment, as far as changes tell.
#[derive(Debug, Default)]
struct State {
    /// Of servers that were named, whether they are enabled.
    servers: BTreeMap<String, bool>,
    is_job_disabled: bool,
    disabled_items: BTreeSet<u32>,
    /// The instances; `None` before the first was heard of.
    instances: Option<BTreeSet<String>>,
}

impl State {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Job { enabled } => {
                self.is_job_disabled = !enabled;
                self.servers.values_mut().for_each(|server| *server = *enabled);
            }
            Change::Server { server, enabled } => {
                self.servers.insert(server.clone(), *enabled);
                // Some server is enabled: the job is not disabled as a whole any more.
                self.is_job_disabled &= !enabled;
            }
            Change::Item { item, enabled: true } => drop(self.disabled_items.remove(item)),
            Change::Item { item, enabled: false } => drop(self.disabled_items.insert(*item)),
            Change::Joined { instance } => {
                let server = instance.split("@-@").next().unwrap_or_default().to_owned();
                self.servers.entry(server).or_insert(!self.is_job_disabled);
                self.instances.get_or_insert_default().insert(instance.clone());
            }
            Change::Left { instance } => drop(self.instances.get_or_insert_default().remove(instance)),
        }
    }

    /// Why the item was not meant to run.
    fn resting(&self, item: u32) -> Option<String> {
        let all = !self.servers.is_empty() && self.servers.values().all(|enabled| !enabled);
        if self.is_job_disabled || all {
            return Some("the job was disabled".to_owned());
        }
        self.disabled_items.contains(&item).then(|| "the item was disabled".to_owned())
    }

    fn has_no_instance(&self) -> bool {
        self.instances.as_ref().is_some_and(BTreeSet::is_empty)
    }
}

#[cfg(test)]
mod tests;
