//! The events of a job on one instance. The agent logs each as one line: a fixed sentence, and the variable data in fields.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Source;
use crate::limits;
use crate::ranges::Ranges;
use crate::time::Timestamp;
use crate::wire::{Difference, Differences};

/// An event of a job on one instance.
///
/// Its [`Display`](fmt::Display) is the line that the agent logs: the [message](JobEvent::message), then the
/// [fields](JobEvent::fields) as `key=value`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum JobEvent {
    /// The instance registered itself.
    Joined {
        /// The id of the instance.
        instance: String,
        /// The next scheduled firing. `None` if the job has no cron expression.
        next: Option<Timestamp>,
        /// `true` if the server of the instance is disabled.
        disabled: bool,
    },
    /// The instance left the job.
    Left {
        /// The id of the instance.
        instance: String,
    },
    /// The instance joined while an operator had disabled its server, or the job.
    KeptDisabled {
        /// The IP address of the server.
        server: String,
        /// `true` if the whole job is disabled.
        everywhere: bool,
    },
    /// This start disabled the job on its server, because the configuration has `disabled: true`.
    DisabledByStart {
        /// The IP address of the server.
        server: String,
    },
    /// An operator disabled or enabled the job, on all servers or on this one.
    ServerSwitched {
        /// The IP address of this server.
        server: String,
        /// The new state.
        enabled: bool,
        /// `true` if the whole job was switched.
        everywhere: bool,
    },
    /// An operator disabled or enabled an item.
    ItemSwitched {
        /// The item.
        item: u32,
        /// The new state.
        enabled: bool,
    },
    /// The instance was elected leader.
    Elected,
    /// The instance took over leadership from a leader that did not reshard.
    Deposed {
        /// The id of the old leader.
        leader: String,
    },
    /// The instance resigned as leader.
    Abdicated,
    /// The instance, as leader, assigned the items.
    Resharded {
        /// The owners before, by item.
        old: BTreeMap<u32, String>,
        /// The owners after, by item.
        new: BTreeMap<u32, String>,
        /// The items that move only when their current run ends.
        kept: Vec<u32>,
    },
    /// The items that the instance owns changed.
    Assigned {
        /// All items that it owns now.
        items: Vec<u32>,
    },
    /// The instance asked the leader for a resharding.
    AskedForItems,
    /// A run started.
    Begun {
        /// Why it runs.
        source: Source,
        /// Its due time.
        due: Timestamp,
        /// Its items.
        items: Vec<u32>,
        /// The delay after the due time.
        late: Duration,
    },
    /// Items of a run completed.
    Ended {
        /// The items.
        items: Vec<u32>,
        /// Those of them that failed.
        failed: Vec<u32>,
    },
    /// Items could not start at their due time. They are caught up.
    Misfired {
        /// The items.
        items: Vec<u32>,
        /// The due time.
        due: Timestamp,
    },
    /// Items did not start at their due time. They are not caught up.
    Skipped {
        /// The items. Empty if it concerns the whole firing.
        items: Vec<u32>,
        /// The due time.
        due: Timestamp,
        /// Why.
        reason: &'static str,
    },
    /// No Rust instance started these items at one or more due times.
    Passed {
        /// The items.
        items: Vec<u32>,
        /// The first due time.
        first: Timestamp,
        /// The last due time.
        last: Timestamp,
        /// The number of due times; the largest counted one means "or more".
        firings: usize,
    },
    /// A run was lost with the connection before it started.
    Lost {
        /// Its items.
        items: Vec<u32>,
        /// Its due time.
        due: Timestamp,
    },
    /// An item cannot start, because another instance runs it.
    Blocked {
        /// The item.
        item: u32,
        /// The id of the other instance.
        by: String,
    },
    /// A transaction was rejected again and again, although the state was read again before each attempt.
    Refused {
        /// The transaction.
        what: String,
        /// The number of attempts.
        times: usize,
    },
    /// The instance deleted a mark of an instance that is gone or does not run the item.
    ClearedMark {
        /// The item.
        item: u32,
        /// The id in the mark.
        of: String,
    },
    /// The instance took over the interrupted run of a dead instance.
    TakenOver {
        /// The item.
        item: u32,
        /// The id of the dead instance.
        from: String,
    },
    /// An interrupted run cannot be taken over yet, because its item is disabled.
    TakeoverWaits {
        /// The item.
        item: u32,
    },
    /// The instance received a trigger.
    Triggered,
    /// The instance runs items whose trigger another instance had received and not run.
    TriggerAdopted {
        /// The id of the other instance.
        instance: String,
        /// The items.
        items: Vec<u32>,
    },
    /// The instance dropped a trigger: its items do not run.
    TriggerDropped {
        /// The items. Empty if the trigger was for the whole instance.
        items: Vec<u32>,
        /// Why.
        reason: &'static str,
    },
    /// The schedule changed.
    Rescheduled {
        /// The cron expression.
        cron: String,
        /// The time zone. Empty for the host's zone.
        zone: String,
        /// The next firing. `None` if the expression never fires again.
        next: Option<Timestamp>,
    },
    /// The stored configuration is invalid.
    BadConfig {
        /// Every fault.
        reason: String,
        /// `true` if no valid configuration was in force before: the job is paused.
        paused: bool,
    },
    /// The stored configuration is valid again.
    GoodConfig,
    /// The configuration of this start differs from the stored one, which is in force.
    DiffersFromStored {
        /// The differences.
        differences: Vec<Difference>,
        /// `true` in the mode `overwrite: changed`.
        merges: bool,
    },
    /// The configuration of this start equals the stored one again.
    SameAsStored,
    /// This start changed the stored configuration.
    Overwrote {
        /// The changes.
        differences: Vec<Difference>,
    },
    /// An operator shut down the job on this instance.
    ShutDownByOperator,
    /// The job was removed while this instance was disconnected.
    Removed,
    /// Another process is registered under the id of this instance.
    IdTaken {
        /// The id.
        instance: String,
        /// The session of the other process.
        session: u64,
    },
    /// The clock differs from the registry's clock by more than `maxTimeDiffSeconds`.
    ClockOff {
        /// The difference.
        difference: Duration,
        /// The limit.
        limit: Duration,
    },
    /// Items started for due times that are ahead of this clock.
    LedgerAhead {
        /// The items.
        items: Vec<u32>,
        /// The last due time for which they started.
        due: Timestamp,
        /// `true` if due times up to that one are not started again.
        counts: bool,
    },
    /// The leader deleted the node of a server that has no instance.
    RemovedServer {
        /// The IP address of the server.
        server: String,
    },
    /// All servers are enabled again, so the leader reset `disabled` in the stored configuration.
    EnabledAgain,
    /// The sharding strategy failed or does not exist. The assignment did not change.
    BadStrategy {
        /// The name of the strategy.
        name: String,
        /// What it did.
        reason: &'static str,
    },
}

/// The log level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each run.
    Debug,
    /// The ordinary life of a job.
    Info,
    /// Something to check.
    Warn,
    /// Something that keeps the job from running.
    Error,
}

/// The variable data of an event. Fields that do not apply are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFields {
    /// The id of the instance that the event concerns.
    pub instance: Option<String>,
    /// The IP address of the server that it concerns.
    pub server: Option<String>,
    /// The item that it concerns.
    pub item: Option<u32>,
    /// The items that it concerns, as `[0, 2-5]`.
    pub items: Option<String>,
    /// Those of `items` that failed.
    pub failed: Option<String>,
    /// Those of `items` that move later.
    pub kept: Option<String>,
    /// `schedule`, `misfire`, `failover` or `trigger`.
    pub source: Option<&'static str>,
    /// The due time, or the first of several.
    pub due: Option<Timestamp>,
    /// The last of several due times.
    pub last_due: Option<Timestamp>,
    /// The number of due times.
    pub firings: Option<usize>,
    /// The delay after the due time in milliseconds.
    pub late_ms: Option<u64>,
    /// The next firing.
    pub next: Option<Timestamp>,
    /// The cron expression.
    pub cron: Option<String>,
    /// The time zone.
    pub zone: Option<String>,
    /// The owners before a resharding.
    pub old: Option<String>,
    /// The owners after it.
    pub new: Option<String>,
}

impl JobEvent {
    /// Returns the level at which the agent logs the event.
    pub fn level(&self) -> Level {
        match self {
            JobEvent::Begun { .. } | JobEvent::Ended { .. } => Level::Debug,
            JobEvent::Joined { .. }
            | JobEvent::Left { .. }
            | JobEvent::ServerSwitched { .. }
            | JobEvent::ItemSwitched { .. }
            | JobEvent::Elected
            | JobEvent::Abdicated
            | JobEvent::Resharded { .. }
            | JobEvent::Assigned { .. }
            | JobEvent::Triggered
            | JobEvent::Rescheduled { .. }
            | JobEvent::GoodConfig
            | JobEvent::SameAsStored
            | JobEvent::Overwrote { .. }
            | JobEvent::RemovedServer { .. }
            | JobEvent::EnabledAgain => Level::Info,
            JobEvent::KeptDisabled { .. }
            | JobEvent::DisabledByStart { .. }
            | JobEvent::AskedForItems
            | JobEvent::Deposed { .. }
            | JobEvent::Misfired { .. }
            | JobEvent::Skipped { .. }
            | JobEvent::Passed { .. }
            | JobEvent::Lost { .. }
            | JobEvent::Blocked { .. }
            | JobEvent::Refused { .. }
            | JobEvent::ClearedMark { .. }
            | JobEvent::TakenOver { .. }
            | JobEvent::TakeoverWaits { .. }
            | JobEvent::TriggerDropped { .. }
            | JobEvent::TriggerAdopted { .. }
            | JobEvent::LedgerAhead { .. }
            | JobEvent::DiffersFromStored { .. }
            | JobEvent::ShutDownByOperator
            | JobEvent::Removed => Level::Warn,
            JobEvent::BadConfig { .. }
            | JobEvent::IdTaken { .. }
            | JobEvent::ClockOff { .. }
            | JobEvent::BadStrategy { .. } => Level::Error,
        }
    }

    /// Returns the sentence of the log line.
    pub fn message(&self) -> impl fmt::Display + '_ {
        Message(self)
    }

    /// Returns the data of the log line that is not in its sentence.
    pub fn fields(&self) -> EventFields {
        let mut fields = EventFields::default();
        let list = |items: &[u32]| (!items.is_empty()).then(|| Ranges(items).to_string());
        match self {
            JobEvent::Joined { instance, next, .. } => {
                fields.instance = Some(instance.clone());
                fields.next = *next;
            }
            JobEvent::Left { instance } | JobEvent::IdTaken { instance, .. } => {
                fields.instance = Some(instance.clone());
            }
            JobEvent::KeptDisabled { server, .. }
            | JobEvent::DisabledByStart { server }
            | JobEvent::ServerSwitched { server, .. }
            | JobEvent::RemovedServer { server } => fields.server = Some(server.clone()),
            JobEvent::ItemSwitched { item, .. } | JobEvent::TakeoverWaits { item } => fields.item = Some(*item),
            JobEvent::Deposed { leader } => fields.instance = Some(leader.clone()),
            JobEvent::Resharded { old, new, kept } => {
                fields.old = Some(Owners(old).to_string());
                fields.new = Some(Owners(new).to_string());
                fields.kept = list(kept);
            }
            JobEvent::Assigned { items } => fields.items = list(items),
            JobEvent::Begun { source, due, items, late } => {
                fields.items = list(items);
                fields.due = Some(*due);
                fields.source = Some(source.word());
                fields.late_ms = Some(u64::try_from(late.as_millis()).unwrap_or(u64::MAX));
            }
            JobEvent::Ended { items, failed } => {
                fields.items = list(items);
                fields.failed = list(failed);
            }
            JobEvent::Misfired { items, due }
            | JobEvent::Skipped { items, due, .. }
            | JobEvent::Lost { items, due }
            | JobEvent::LedgerAhead { items, due, .. } => {
                fields.items = list(items);
                fields.due = Some(*due);
            }
            JobEvent::Passed { items, first, last, firings } => {
                fields.items = list(items);
                fields.due = Some(*first);
                if *firings > 1 {
                    fields.last_due = Some(*last);
                    fields.firings = Some(*firings);
                }
            }
            JobEvent::Blocked { item, by: instance }
            | JobEvent::ClearedMark { item, of: instance }
            | JobEvent::TakenOver { item, from: instance } => {
                fields.item = Some(*item);
                fields.instance = Some(instance.clone());
            }
            JobEvent::TriggerAdopted { instance, items } => {
                fields.instance = Some(instance.clone());
                fields.items = list(items);
            }
            JobEvent::TriggerDropped { items, .. } => fields.items = list(items),
            JobEvent::Rescheduled { cron, zone, next } => {
                fields.cron = Some(cron.clone());
                fields.zone = Some(zone.clone()).filter(|zone| !zone.is_empty());
                fields.next = *next;
            }
            JobEvent::Elected
            | JobEvent::Abdicated
            | JobEvent::AskedForItems
            | JobEvent::Refused { .. }
            | JobEvent::Triggered
            | JobEvent::BadConfig { .. }
            | JobEvent::GoodConfig
            | JobEvent::DiffersFromStored { .. }
            | JobEvent::SameAsStored
            | JobEvent::Overwrote { .. }
            | JobEvent::ShutDownByOperator
            | JobEvent::Removed
            | JobEvent::ClockOff { .. }
            | JobEvent::EnabledAgain
            | JobEvent::BadStrategy { .. } => {}
        }
        fields
    }
}

struct Message<'a>(&'a JobEvent);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            JobEvent::Joined { disabled: true, .. } => f.write_str("joined; this server is disabled"),
            JobEvent::Joined { next: Some(_), .. } => f.write_str("joined"),
            JobEvent::Joined { next: None, .. } => f.write_str("joined; the job has no cron and runs only when triggered"),
            JobEvent::Left { .. } => f.write_str("left"),
            JobEvent::KeptDisabled { everywhere: true, .. } => {
                f.write_str("the job is disabled on all servers; enable it with `elasticjob job enable`")
            }
            JobEvent::KeptDisabled { everywhere: false, .. } => f.write_str(
                "the server is disabled in the registry; enable it with `elasticjob job enable` or `elasticjob server enable`",
            ),
            JobEvent::DisabledByStart { .. } => f.write_str(
                "the job starts disabled on this server, because its configuration has `disabled: true`; to enable it, remove that key and run `elasticjob job enable`",
            ),
            JobEvent::ServerSwitched { enabled: false, everywhere: true, .. } => {
                f.write_str("the job was disabled on all servers; no run starts until `elasticjob job enable`")
            }
            JobEvent::ServerSwitched { enabled: false, everywhere: false, .. } => f.write_str(
                "the server was disabled; no run starts on it until `elasticjob job enable` or `elasticjob server enable`",
            ),
            JobEvent::ServerSwitched { enabled: true, .. } => f.write_str("the server was enabled"),
            JobEvent::ItemSwitched { enabled: false, .. } => {
                f.write_str("the item was disabled; it does not start until `elasticjob shard enable`")
            }
            JobEvent::ItemSwitched { enabled: true, .. } => f.write_str("the item was enabled"),
            JobEvent::Elected => f.write_str("elected leader"),
            JobEvent::Deposed { .. } => {
                f.write_str("took over leadership: the previous leader did not reshard while a firing waited")
            }
            JobEvent::Abdicated => f.write_str("resigned as leader"),
            JobEvent::Resharded { kept, .. } if kept.is_empty() => f.write_str("resharded items"),
            JobEvent::Resharded { .. } => f.write_str("resharded items; the items in `kept` move when their current run completes"),
            JobEvent::Assigned { items } if items.is_empty() => f.write_str("owns no items"),
            JobEvent::Assigned { .. } => f.write_str("owns items"),
            JobEvent::AskedForItems => {
                f.write_str("requested a resharding: this instance owns no items, or an item has no live owner")
            }
            JobEvent::Begun { .. } => f.write_str("started items"),
            JobEvent::Ended { failed, .. } if failed.is_empty() => f.write_str("completed items"),
            JobEvent::Ended { .. } => f.write_str("completed items; some failed"),
            JobEvent::Misfired { .. } => {
                f.write_str("misfire: items could not start at their due time; they are caught up when they can start")
            }
            JobEvent::Skipped { items, reason, .. } if items.is_empty() => write!(f, "skipped a firing: {reason}"),
            JobEvent::Skipped { reason, .. } => write!(f, "items skipped a firing: {reason}"),
            JobEvent::Passed { firings, .. } => write!(
                f,
                "items missed {}: no Rust instance started them; possible causes: a run that was still active, resharding, or an owner that was paused or disconnected",
                match *firings {
                    1 => "a firing".to_owned(),
                    limits::PASSED_MAX.. => format!("{firings} or more firings"),
                    _ => format!("{firings} firings"),
                }
            ),
            JobEvent::Lost { .. } => {
                f.write_str("the connection was lost before the run started; its items missed this firing unless another instance ran them")
            }
            JobEvent::Blocked { .. } => f.write_str("cannot start the item: it is still running on another instance"),
            JobEvent::Refused { what, times } => write!(
                f,
                "{what} was rejected {times} times although the state was re-read: reads and writes of the registry disagree; check that the ZooKeeper servers are consistent"
            ),
            JobEvent::ClearedMark { .. } => {
                f.write_str("deleted a stale mark of the item: its instance has left or does not run the item")
            }
            JobEvent::TakenOver { .. } => f.write_str("failover: took over the interrupted run of the item"),
            JobEvent::TakeoverWaits { .. } => {
                f.write_str("the interrupted run of this item waits: the item is disabled, and takeover follows when it is enabled")
            }
            JobEvent::Triggered => f.write_str("triggered"),
            JobEvent::TriggerAdopted { .. } => {
                f.write_str("another instance left before it ran its triggered items; this instance runs them once")
            }
            JobEvent::TriggerDropped { items, reason } if items.is_empty() => {
                write!(f, "dropped the trigger: {reason}")
            }
            JobEvent::TriggerDropped { reason, .. } => {
                write!(f, "dropped the trigger of items; they do not run: {reason}")
            }
            JobEvent::Rescheduled { next: Some(_), .. } => f.write_str("rescheduled"),
            JobEvent::Rescheduled { next: None, .. } => f.write_str("rescheduled; the expression never fires again"),
            JobEvent::BadConfig { reason, paused: true } => {
                write!(f, "invalid stored configuration; the job is paused until it is corrected: {reason}")
            }
            JobEvent::BadConfig { reason, paused: false } => {
                write!(f, "the new stored configuration is invalid; the previous configuration stays in force: {reason}")
            }
            JobEvent::GoodConfig => f.write_str("the stored configuration is valid again"),
            JobEvent::DiffersFromStored { differences, merges: true } => write!(
                f,
                "the stored configuration was changed by another writer and stays in force: {}; to store the values of this start, run `elasticjob job apply FILE`",
                Differences(differences)
            ),
            JobEvent::DiffersFromStored { differences, merges: false } => write!(
                f,
                "the local configuration differs from the stored one, which stays in force: {}; to store the local one, run `elasticjob job apply FILE`, or start with `overwrite: changed` or `overwrite: true`",
                Differences(differences)
            ),
            JobEvent::SameAsStored => f.write_str("the local configuration matches the stored one again"),
            JobEvent::Overwrote { differences } => {
                let changes: Vec<String> =
                    differences.iter().map(|d| format!("`{}` from `{}` to `{}`", d.key, d.stored, d.here)).collect();
                write!(f, "changed the stored configuration: {}", changes.join(", "))
            }
            JobEvent::ShutDownByOperator => f.write_str("shut down by an operator: the instance node was deleted; restart the agent or send SIGHUP to start the job again"),
            JobEvent::Removed => f.write_str(
                "left the job: it no longer exists in the registry; it was removed while this instance was disconnected, or the registry lost its data; restart the agent to create the job again",
            ),
            JobEvent::IdTaken { session, .. } => write!(
                f,
                "cannot join: another process, in session {session:016x}, is registered under the id of this instance (same address and process id); retrying until it leaves; to avoid the conflict, give this process another address (elasticjob.preferred.network.ip)"
            ),
            JobEvent::ClockOff { difference, limit } => write!(
                f,
                "this clock differs from the registry's clock by {:.1} s, more than maxTimeDiffSeconds {}; synchronize the clocks",
                difference.as_secs_f64(),
                limit.as_secs()
            ),
            JobEvent::LedgerAhead { counts: true, .. } => f.write_str(
                "items have already started for due times later than this clock; earlier due times do not start again",
            ),
            JobEvent::LedgerAhead { counts: false, .. } => write!(
                f,
                "items have started for due times more than {} s ahead of this clock, so a clock was wrong; due times up to those may start again; check NTP",
                limits::LEDGER_AHEAD.as_secs()
            ),
            JobEvent::RemovedServer { .. } => f.write_str("deleted the node of a server that has no instance"),
            JobEvent::EnabledAgain => {
                f.write_str("all servers are enabled; `disabled` in the stored configuration is false again")
            }
            JobEvent::BadStrategy { name, reason } => {
                write!(f, "sharding strategy `{name}` {reason}; the assignment did not change")
            }
        }
    }
}

impl fmt::Display for JobEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message(), self.fields())
    }
}

impl fmt::Display for EventFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut field = |name: &str, value: Option<&dyn fmt::Display>| match value {
            Some(value) => write!(f, " {name}={value}"),
            None => Ok(()),
        };
        fn shown<T: fmt::Display>(value: &Option<T>) -> Option<&dyn fmt::Display> {
            value.as_ref().map(|value| value as &dyn fmt::Display)
        }
        field("instance", shown(&self.instance))?;
        field("server", shown(&self.server))?;
        field("item", shown(&self.item))?;
        field("items", shown(&self.items))?;
        field("failed", shown(&self.failed))?;
        field("kept", shown(&self.kept))?;
        field("source", shown(&self.source))?;
        field("due", shown(&self.due))?;
        field("last_due", shown(&self.last_due))?;
        field("firings", shown(&self.firings))?;
        field("late_ms", shown(&self.late_ms))?;
        field("next", shown(&self.next))?;
        field("cron", shown(&self.cron))?;
        field("zone", shown(&self.zone))?;
        field("old", shown(&self.old))?;
        field("new", shown(&self.new))
    }
}

/// An assignment in one line: `[0, 2]=10.0.0.1@-@7 [1]=10.0.0.2@-@9`.
struct Owners<'a>(&'a BTreeMap<u32, String>);

impl fmt::Display for Owners<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_owner: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (item, owner) in self.0 {
            by_owner.entry(owner).or_default().push(*item);
        }
        if by_owner.is_empty() {
            return f.write_str("none");
        }
        let parts: Vec<String> = by_owner.iter().map(|(owner, items)| format!("{}={owner}", Ranges(items))).collect();
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_fixed_sentence_and_its_data_in_fields() {
        let due = Timestamp(1_700_000_000_000);
        let cases = [
            (JobEvent::Assigned { items: vec![0, 1, 2, 5] }, "owns items items=[0-2, 5]"),
            (JobEvent::Assigned { items: vec![] }, "owns no items"),
            (
                JobEvent::Ended { items: vec![1, 2], failed: vec![2] },
                "completed items; some failed items=[1, 2] failed=[2]",
            ),
            (
                JobEvent::Skipped { items: vec![3], due, reason: "the job is leaving" },
                "items skipped a firing: the job is leaving items=[3] due=2023-11-14T22:13:20.000Z",
            ),
            (
                JobEvent::TakenOver { item: 4, from: "10.0.0.1@-@7".into() },
                "failover: took over the interrupted run of the item instance=10.0.0.1@-@7 item=4",
            ),
        ];
        for (event, line) in cases {
            assert_eq!(event.to_string(), line);
        }
        let passed = |firings| JobEvent::Passed { items: vec![0], first: due, last: due, firings }.to_string();
        assert!(passed(1).starts_with("items missed a firing: ") && !passed(1).contains("last_due"), "{}", passed(1));
        assert!(passed(3).starts_with("items missed 3 firings: ") && passed(3).contains(" firings=3"), "{}", passed(3));
        assert!(passed(limits::PASSED_MAX).contains(" or more firings: "), "{}", passed(limits::PASSED_MAX));
    }
}
