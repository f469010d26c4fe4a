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
    let mut by_item: BTreeMap<u32, Vec<&ItemRun>> = BTreeMap::new();
    for run in &record.runs {
        by_item.entry(run.item).or_default().push(run);
    }
    by_item.values_mut().for_each(|runs| runs.sort_by_key(|run| run.start));
    let mut state = State::default();
    let mut changes = record.changes.iter().peekable();
    let nexts = record.dues.iter().skip(1).copied().map(Some).chain([record.next]);
    let mut entries = Vec::with_capacity(record.dues.len());
    for (due, next) in record.dues.iter().copied().zip(nexts) {
        while let Some((_, change)) = changes.next_if(|(at, _)| *at <= due) {
            state.apply(change);
        }
        let next = next.unwrap_or(Timestamp(i64::MAX));
        let items = (0..record.items).map(|item| {
            let runs = by_item.get(&item).map(Vec::as_slice).unwrap_or_default();
            let (fate, reason, run) = of_item(record, &state, item, runs, (due, next));
            ItemFate { item, fate, reason, run: run.cloned() }
        });
        let items: Vec<ItemFate> = items.collect();
        let worst = items.iter().map(|item| item.fate).max().unwrap_or(Fate::Unknown);
        let reason = items.iter().find(|item| item.fate == worst).map(|item| item.reason.clone()).unwrap_or_default();
        entries.push(Entry { due, fate: worst, reason, items });
    }
    entries
}

fn of_item<'a>(
    record: &Record,
    state: &State,
    item: u32,
    runs: &[&'a ItemRun],
    (due, next): (Timestamp, Timestamp),
) -> (Fate, String, Option<&'a ItemRun>) {
    let started = |run: &&&ItemRun| run.start >= due && run.start < next;
    let later = |cause: Cause| runs.iter().find(|run| run.cause == cause && run.start >= due).copied();
    let covers = |told: &&Told| {
        told.first <= due && due <= told.last && told.items.as_ref().is_none_or(|items| items.contains(&item))
    };
    // An account of the due time comes first: a run within its period is one of a trigger then.
    if let Some(told) = record.told.iter().find(covers) {
        return match told.what {
            NotBegun::Misfired => caught_up(later(Cause::Misfire), due),
            NotBegun::Skipped => (Fate::Skipped, told.reason.clone(), None),
            NotBegun::Passed => (Fate::Missed, missed(state, item, &told.reason), None),
            NotBegun::Lost => match later(Cause::Failover).filter(|run| run.start < next) {
                Some(run) => (Fate::Late, "taken over after a lost connection".to_owned(), Some(run)),
                None => (Fate::Lost, told.reason.clone(), None),
            },
        };
    }
    if let Some(run) = runs.iter().find(|run| run.cause == Cause::Schedule && started(run)).copied() {
        return ran(run, runs, due, record.now);
    }
    // A catch-up or a takeover that began in this period, with no run of its own.
    let before = runs.iter().rev().find(|run| run.start < due).copied();
    let was_running = before.is_some_and(|run| run.end.is_none_or(|end| end > due) && !is_superseded(run, runs));
    if let Some(run) = runs.iter().find(|run| run.cause == Cause::Misfire && run.start >= due).copied()
        && (was_running || started(&&run))
    {
        return caught_up(Some(run), due);
    }
    if let Some(run) = runs.iter().find(|run| run.cause == Cause::Failover && started(run)).copied() {
        return (Fate::Late, "only a takeover ran".to_owned(), Some(run));
    }
    if let Some(reason) = state.resting(item) {
        return (Fate::Skipped, reason, None);
    }
    if record.now < due + GRACE {
        return (Fate::Waiting, "its run may still start".to_owned(), None);
    }
    if was_running {
        return (Fate::Skipped, "the previous run of the item had not ended".to_owned(), None);
    }
    if record.since.is_none_or(|since| due < since) {
        let reason = match record.since {
            Some(_) => "the recorded history begins later",
            None => "no run of this job is recorded",
        };
        return (Fate::Unknown, reason.to_owned(), None);
    }
    (Fate::Missed, missed(state, item, "no run is recorded, and no instance gave a reason"), None)
}

fn ran<'a>(
    run: &'a ItemRun,
    runs: &[&'a ItemRun],
    due: Timestamp,
    now: Timestamp,
) -> (Fate, String, Option<&'a ItemRun>) {
    if run.end.is_none() && is_superseded(run, runs) {
        let taken = runs.iter().find(|other| other.cause == Cause::Failover && other.start > run.start).copied();
        return match taken {
            Some(taken) => (Fate::Late, "its instance died; another one took the run over".to_owned(), Some(taken)),
            None => (Fate::Lost, "its run has no end, and nothing took it over".to_owned(), Some(run)),
        };
    }
    let delay = run.start.since(due);
    match delay >= LATE && run.start <= now {
        true => (Fate::Late, format!("started {} s late", delay.as_secs()), Some(run)),
        false => (Fate::Ran, String::new(), Some(run)),
    }
}

/// Whether the item ran again later, so that a run without an end cannot be going on.
fn is_superseded(run: &ItemRun, runs: &[&ItemRun]) -> bool {
    run.end.is_none() && runs.iter().any(|other| other.start > run.start)
}

fn caught_up(run: Option<&ItemRun>, due: Timestamp) -> (Fate, String, Option<&ItemRun>) {
    match run {
        Some(run) => {
            let seconds = run.start.since(due).as_secs();
            (Fate::CaughtUp, format!("the item was still running; a catch-up started {seconds} s later"), Some(run))
        }
        None => (Fate::Waiting, "the item is still running; a catch-up follows".to_owned(), None),
    }
}

fn missed(state: &State, item: u32, told: &str) -> String {
    match state.resting(item) {
        Some(reason) => reason,
        None if state.has_no_instance() => "no instance was running".to_owned(),
        None => told.to_owned(),
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
mod tests {
    use super::*;

    /// A job of one item that is due every ten seconds, five times from second 100 on; it is second 200.
    fn record() -> Record {
        let at = |seconds: i64| Timestamp(seconds * 1_000);
        Record {
            dues: (10..15).map(|ten| at(ten * 10)).collect(),
            next: Some(at(150)),
            items: 1,
            since: Some(at(0)),
            now: at(200),
            ..Record::default()
        }
    }

    fn run(cause: Cause, start: f64, end: Option<f64>) -> ItemRun {
        let at = |seconds: f64| Timestamp((seconds * 1_000.0) as i64);
        ItemRun { item: 0, cause, start: at(start), end: end.map(at), success: true }
    }

    fn on_time(seconds: f64) -> ItemRun {
        run(Cause::Schedule, seconds + 0.01, Some(seconds + 1.0))
    }

    fn told(what: NotBegun, first: i64, last: i64) -> Told {
        let (first, last) = (Timestamp(first * 1_000), Timestamp(last * 1_000));
        Told { what, items: None, first, last, reason: "because".to_owned() }
    }

    fn fates(record: &Record) -> Vec<(&'static str, String)> {
        judge(record).into_iter().map(|entry| (entry.fate.word(), entry.reason)).collect()
    }

    #[track_caller]
    fn expect(record: &Record, expected: [&str; 5]) -> Vec<String> {
        let found = fates(record);
        assert_eq!(found.iter().map(|(word, _)| *word).collect::<Vec<_>>(), expected, "{found:?}");
        found.into_iter().map(|(_, reason)| reason).collect()
    }

    #[test]
    fn what_ran_is_on_time_or_late() {
        let mut record = record();
        record.runs = [100.0, 110.0, 120.0, 140.0].map(on_time).into();
        record.runs.push(run(Cause::Schedule, 137.0, Some(137.5)));
        let reasons = expect(&record, ["ran", "ran", "ran", "late", "ran"]);
        assert_eq!(reasons[3], "started 7 s late");
    }

    #[test]
    fn nothing_recorded_is_missed_unknown_or_waiting() {
        let mut record = record();
        record.since = Some(Timestamp(115_000));
        record.now = Timestamp(144_000);
        let reasons = expect(&record, ["unknown", "unknown", "missed", "missed", "waiting"]);
        assert_eq!(reasons[0], "the recorded history begins later");
        assert_eq!(reasons[2], "no run is recorded, and no instance gave a reason");
        record.since = None;
        expect(&record, ["unknown", "unknown", "unknown", "unknown", "waiting"]);
    }

    #[test]
    fn what_an_instance_said_comes_before_what_the_runs_suggest() {
        let mut record = record();
        record.runs = vec![on_time(100.0), run(Cause::Schedule, 113.0, Some(114.0))];
        record.told =
            vec![told(NotBegun::Skipped, 110, 110), told(NotBegun::Passed, 120, 130), told(NotBegun::Lost, 140, 140)];
        let reasons = expect(&record, ["ran", "skipped", "missed", "missed", "lost"]);
        assert_eq!(reasons[1..], ["because"; 4], "the run of second 113 was triggered");
    }

    #[test]
    fn a_catch_up_follows_what_was_missed_with_an_account_or_without() {
        let mut record = record();
        record.runs = vec![
            run(Cause::Schedule, 100.0, Some(125.0)),
            run(Cause::Misfire, 125.1, Some(126.0)),
            on_time(130.0),
            on_time(140.0),
        ];
        let reasons = expect(&record, ["ran", "caught-up", "caught-up", "ran", "ran"]);
        assert_eq!(reasons[1], "the item was still running; a catch-up started 15 s later");
        record.told = vec![told(NotBegun::Misfired, 110, 110), told(NotBegun::Misfired, 120, 120)];
        expect(&record, ["ran", "caught-up", "caught-up", "ran", "ran"]);
        // Without a catch-up (`misfire: false` of Java).
        record.told.clear();
        record.runs.remove(1);
        let reasons = expect(&record, ["ran", "skipped", "skipped", "ran", "ran"]);
        assert_eq!(reasons[1], "the previous run of the item had not ended");
    }

    #[test]
    fn a_run_without_an_end_goes_on_or_was_taken_over_or_is_lost() {
        let mut record = record();
        record.runs = vec![
            run(Cause::Schedule, 100.0, None),
            run(Cause::Failover, 104.0, Some(105.0)),
            run(Cause::Schedule, 110.0, None),
            on_time(120.0),
            on_time(130.0),
            run(Cause::Schedule, 140.0, None),
        ];
        let reasons = expect(&record, ["late", "lost", "ran", "ran", "ran"]);
        assert_eq!(reasons[0], "its instance died; another one took the run over");
    }

    #[test]
    fn a_disabled_job_skips_and_without_an_instance_it_misses() {
        let mut record = record();
        let id = "10.0.0.1@-@1".to_owned();
        let other = |enabled| Change::Server { server: "10.0.0.2".into(), enabled };
        let at = |seconds: i64, change: Change| (Timestamp(seconds * 1_000), change);
        record.changes = vec![
            at(90, Change::Joined { instance: id.clone() }),
            at(95, other(true)),
            at(96, Change::Server { server: "10.0.0.1".into(), enabled: false }),
            at(105, other(false)),
            at(115, Change::Job { enabled: true }),
            at(116, Change::Item { item: 0, enabled: false }),
            at(125, Change::Item { item: 0, enabled: true }),
            at(135, Change::Left { instance: id }),
        ];
        let reasons = expect(&record, ["missed", "skipped", "skipped", "missed", "missed"]);
        assert_eq!(reasons[1], "the job was disabled");
        assert_eq!(reasons[2], "the item was disabled");
        assert_eq!(reasons[4], "no instance was running");
    }

    #[test]
    fn the_fate_of_a_due_time_is_the_most_severe_of_its_items() {
        let mut record = record();
        record.items = 2;
        record.runs = vec![on_time(100.0), ItemRun { item: 1, success: false, ..on_time(100.0) }, on_time(110.0)];
        let entries = judge(&record);
        assert_eq!((entries[0].fate, entries[0].failed(), entries[0].count(Fate::Ran)), (Fate::Ran, 1, 2));
        assert_eq!(
            (entries[1].fate, entries[1].count(Fate::Ran), entries[1].count(Fate::Missed)),
            (Fate::Missed, 1, 1)
        );
        assert!(Fate::ALL.is_sorted());
    }
}
