//! The events of a job on one instance. The agent logs each as one line: a fixed sentence, and the variable data in fields.

mod fields;
mod kind;
mod message;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use fields::EventFields;
use message::Message;

use super::Source;
use crate::time::Timestamp;
use crate::wire::Difference;

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
        /// The step of the protocol.
        step: &'static str,
        /// The items that it concerns.
        items: Vec<u32>,
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

impl Level {
    /// Returns the word of the level, in capitals as in a log.
    pub fn word(self) -> &'static str {
        match self {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        }
    }
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
            | JobEvent::Rescheduled { next: Some(_), .. }
            | JobEvent::GoodConfig
            | JobEvent::SameAsStored
            | JobEvent::Overwrote { .. }
            | JobEvent::RemovedServer { .. }
            | JobEvent::EnabledAgain => Level::Info,
            JobEvent::Rescheduled { next: None, .. }
            | JobEvent::KeptDisabled { .. }
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
}

impl fmt::Display for JobEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message(), self.fields())
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
                "failover: took over the interrupted run of an instance that has left from=10.0.0.1@-@7 item=4",
            ),
        ];
        for (event, line) in cases {
            assert_eq!(event.to_string(), line);
        }
        let passed = |firings| JobEvent::Passed { items: vec![0], first: due, last: due, firings }.to_string();
        assert!(!passed(1).contains("last_due") && passed(1).ends_with(" firings=1"), "{}", passed(1));
        assert!(passed(3).contains(" last_due=") && passed(3).ends_with(" firings=3"), "{}", passed(3));
    }
}
