//! What people are told: one line each, at the level that [`Note::level`] says.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Source;
use crate::limits;
use crate::ranges::Ranges;
use crate::time::Timestamp;
use crate::wire::{Difference, Differences};

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant's line is its documentation")]
pub enum Note {
    Joined { instance: String, next: Option<Timestamp>, disabled: bool },
    Left { instance: String },
    KeptDisabled { server: String, everywhere: bool },
    DisabledByStart { server: String },
    ServerSwitched { server: String, enabled: bool, everywhere: bool },
    ItemSwitched { item: u32, enabled: bool },
    Elected,
    Deposed { leader: String },
    Abdicated,
    Resharded { old: BTreeMap<u32, String>, new: BTreeMap<u32, String>, kept: Vec<u32> },
    Assigned { items: Vec<u32> },
    AskedForItems,
    Begun { source: Source, due: Timestamp, items: Vec<u32>, late: Duration },
    Ended { items: Vec<u32>, failed: Vec<u32> },
    Misfired { items: Vec<u32>, due: Timestamp },
    Skipped { items: Vec<u32>, due: Timestamp, reason: &'static str },
    Passed { items: Vec<u32>, first: Timestamp, last: Timestamp, firings: usize },
    Lost { items: Vec<u32>, due: Timestamp },
    Blocked { item: u32, by: String },
    Refused { what: String, times: usize },
    ClearedMark { item: u32, of: String },
    TakenOver { item: u32, from: String },
    TakeoverWaits { item: u32 },
    Triggered,
    TriggerAdopted { instance: String, items: Vec<u32> },
    TriggerDropped { items: Vec<u32>, reason: &'static str },
    Rescheduled { cron: String, zone: String, next: Option<Timestamp> },
    BadConfig { reason: String, rests: bool },
    GoodConfig,
    DiffersFromStored { differences: Vec<Difference>, merges: bool },
    SameAsStored,
    Overwrote { differences: Vec<Difference> },
    ShutDownByOperator,
    Removed,
    IdTaken { instance: String, session: u64 },
    ClockOff { difference: Duration, limit: Duration },
    LedgerAhead { items: Vec<u32>, due: Timestamp, counts: bool },
    RemovedServer { server: String },
    EnabledAgain,
    BadStrategy { name: String, reason: &'static str },
}

/// How loud a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For those who search a fault.
    Debug,
    /// The ordinary life of a job.
    Info,
    /// Something to look at.
    Warn,
    /// Something that keeps the job from running.
    Error,
}

impl Note {
    /// How loud it is.
    pub fn level(&self) -> Level {
        match self {
            Note::Begun { .. } | Note::Ended { .. } => Level::Debug,
            Note::Joined { .. }
            | Note::Left { .. }
            | Note::ServerSwitched { .. }
            | Note::ItemSwitched { .. }
            | Note::Elected
            | Note::Abdicated
            | Note::Resharded { .. }
            | Note::Assigned { .. }
            | Note::Triggered
            | Note::Rescheduled { .. }
            | Note::GoodConfig
            | Note::SameAsStored
            | Note::Overwrote { .. }
            | Note::RemovedServer { .. }
            | Note::EnabledAgain => Level::Info,
            Note::KeptDisabled { .. }
            | Note::DisabledByStart { .. }
            | Note::AskedForItems
            | Note::Deposed { .. }
            | Note::Misfired { .. }
            | Note::Skipped { .. }
            | Note::Passed { .. }
            | Note::Lost { .. }
            | Note::Blocked { .. }
            | Note::Refused { .. }
            | Note::ClearedMark { .. }
            | Note::TakenOver { .. }
            | Note::TakeoverWaits { .. }
            | Note::TriggerDropped { .. }
            | Note::TriggerAdopted { .. }
            | Note::LedgerAhead { .. }
            | Note::DiffersFromStored { .. }
            | Note::ShutDownByOperator
            | Note::Removed => Level::Warn,
            Note::BadConfig { .. } | Note::IdTaken { .. } | Note::ClockOff { .. } | Note::BadStrategy { .. } => {
                Level::Error
            }
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Joined { instance, disabled: true, .. } => write!(f, "joined as {instance}, which is disabled"),
            Note::Joined { instance, next: Some(next), .. } => write!(f, "joined as {instance}, next firing {next}"),
            Note::Joined { instance, next: None, .. } => write!(f, "joined as {instance}, runs when triggered"),
            Note::Left { instance } => write!(f, "{instance} left"),
            Note::KeptDisabled { everywhere: true, .. } => {
                write!(f, "the job is disabled in the registry and stays so: `elasticjob job enable` lets it run")
            }
            Note::KeptDisabled { server, everywhere: false } => {
                write!(
                    f,
                    "server {server} is DISABLED in the registry and stays so: `elasticjob job enable` or `elasticjob server enable` lets the job run there"
                )
            }
            Note::ServerSwitched { enabled: false, everywhere: true, .. } => {
                write!(f, "the job was disabled: no run starts until `elasticjob job enable`")
            }
            Note::ServerSwitched { server, enabled: false, everywhere: false } => {
                write!(
                    f,
                    "server {server} was disabled: no run starts there until `elasticjob job enable` or `elasticjob server enable`"
                )
            }
            Note::ServerSwitched { server, enabled: true, .. } => write!(f, "server {server} was enabled"),
            Note::ItemSwitched { item, enabled: false } => {
                write!(f, "item {item} was disabled: it does not start until `elasticjob shard enable`")
            }
            Note::ItemSwitched { item, enabled: true } => write!(f, "item {item} was enabled"),
            Note::DisabledByStart { server } => write!(
                f,
                "server {server} is disabled by this start, since its configuration says `disabled: true`: the job does not run there; remove that key, and enable the job with `elasticjob job enable`"
            ),
            Note::Elected => write!(f, "elected leader"),
            Note::Deposed { leader } => {
                write!(f, "took the leadership from {leader}: it did not divide the items while a firing waited for it")
            }
            Note::Abdicated => write!(f, "gave up the leadership"),
            Note::Resharded { old, new, kept } => {
                write!(f, "resharded from {} to {}", Owners(old), Owners(new))?;
                if !kept.is_empty() {
                    write!(f, "; items {} stay with their owner until their run ends", Ranges(kept))?;
                }
                Ok(())
            }
            Note::Assigned { items } if items.is_empty() => write!(f, "has no items"),
            Note::Assigned { items } => write!(f, "has items {}", Ranges(items)),
            Note::AskedForItems => {
                write!(f, "asks the leader for a resharding: it has no items, or an item has no live owner")
            }
            Note::Begun { source, due, items, late } => {
                write!(
                    f,
                    "begins items {} due {due} ({}), {} ms after it",
                    Ranges(items),
                    source.word(),
                    late.as_millis()
                )
            }
            Note::Ended { items, failed } if failed.is_empty() => write!(f, "ended items {}", Ranges(items)),
            Note::Ended { items, failed } => {
                write!(f, "ended items {}, of which {} failed", Ranges(items), Ranges(failed))
            }
            Note::Misfired { items, due } => {
                write!(f, "misfire: items {} could not begin at {due}; they are caught up once they can", Ranges(items))
            }
            Note::Skipped { items, due, reason } if items.is_empty() => {
                write!(f, "skips the firing due {due}: {reason}")
            }
            Note::Skipped { items, due, reason } => {
                write!(f, "skips the firing of items {} due {due}: {reason}", Ranges(items))
            }
            Note::Passed { items, first, last, firings } if *firings >= limits::PASSED_MAX => write!(
                f,
                "no Rust instance began items {} at {firings} firings or more from {first} to {last}: they were still running, were changing hands, or their instance was held up or cut off",
                Ranges(items)
            ),
            Note::Passed { items, first, firings: 1, .. } => write!(
                f,
                "no Rust instance began items {} due {first}: they were still running, were changing hands, or their instance was held up or cut off",
                Ranges(items)
            ),
            Note::Passed { items, first, last, firings } => write!(
                f,
                "no Rust instance began items {} at {firings} firings from {first} to {last}: they were still running, were changing hands, or their instance was held up or cut off",
                Ranges(items)
            ),
            Note::Lost { items, due } => {
                write!(
                    f,
                    "the run of items {} due {due} was lost with the connection before it began, unless another instance has run it",
                    Ranges(items)
                )
            }
            Note::Blocked { item, by } => write!(f, "item {item} is still running on {by}"),
            Note::Refused { what, times } => write!(
                f,
                "{what} was rejected {times} times although the state was re-read: reads and writes disagree; check whether the servers of the registry have diverged"
            ),
            Note::ClearedMark { item, of } => {
                write!(f, "cleared a mark of item {item}: {of}, which set it, is gone or does not run it")
            }
            Note::TakenOver { item, from } => write!(f, "failover: takes item {item} over from {from}"),
            Note::TakeoverWaits { item } => {
                write!(f, "item {item} is disabled: its interrupted run is taken over when it is enabled")
            }
            Note::Triggered => write!(f, "triggered"),
            Note::TriggerAdopted { instance, items } => {
                write!(
                    f,
                    "{instance} is gone and did not take up its trigger: items {} run once in its place",
                    Ranges(items)
                )
            }
            Note::TriggerDropped { items, reason } if items.is_empty() => {
                write!(f, "dropped the trigger: this instance is {reason}")
            }
            Note::TriggerDropped { items, reason } => {
                write!(f, "dropped the trigger of items {}, which do not run: they are {reason}", Ranges(items))
            }
            Note::Rescheduled { cron, zone, next } => {
                write!(f, "rescheduled to `{cron}`")?;
                if !zone.is_empty() {
                    write!(f, " in {zone}")?;
                }
                match next {
                    Some(next) => write!(f, ", next firing {next}"),
                    None => write!(f, ", which never fires"),
                }
            }
            Note::BadConfig { reason, rests: true } => {
                write!(f, "the stored configuration cannot be used, the job rests until it is corrected: {reason}")
            }
            Note::BadConfig { reason, rests: false } => {
                write!(
                    f,
                    "the stored configuration was changed to one that cannot be used; the one before stays: {reason}"
                )
            }
            Note::GoodConfig => write!(f, "the stored configuration can be used again"),
            Note::DiffersFromStored { differences, merges: true } => write!(
                f,
                "the stored configuration was changed in keys that did not change here since they were applied, and counts: {}; store those of this start with `elasticjob job apply FILE`",
                Differences(differences)
            ),
            Note::DiffersFromStored { differences, merges: false } => write!(
                f,
                "the configuration of this start differs from the stored one, which counts: {}; apply it with `elasticjob job apply FILE`, or start with `overwrite: changed` or `overwrite: true`",
                Differences(differences)
            ),
            Note::SameAsStored => write!(f, "the stored configuration is that of this start again"),
            Note::Overwrote { differences } => {
                let changes: Vec<String> =
                    differences.iter().map(|d| format!("`{}` from `{}` to `{}`", d.key, d.stored, d.here)).collect();
                write!(f, "changed the stored configuration: {}", changes.join(", "))
            }
            Note::ShutDownByOperator => write!(f, "was shut down: its instance node was deleted"),
            Note::Removed => write!(
                f,
                "leaves the job, which the registry does not contain any more: it was removed while this instance was disconnected, or the registry lost its data; restart the agent to create it again"
            ),
            Note::IdTaken { instance, session } => write!(
                f,
                "cannot join: another process, in session {session:016x}, is registered as {instance}. Two hosts or containers with the same address and process id have the same id: give this one another address (elasticjob.preferred.network.ip); it joins when the other one has left"
            ),
            Note::ClockOff { difference, limit } => write!(
                f,
                "the clock differs from the registry's by {:.1} s, more than maxTimeDiffSeconds {}",
                difference.as_secs_f64(),
                limit.as_secs()
            ),
            Note::LedgerAhead { items, due, counts: true } => write!(
                f,
                "items {} were begun for due times up to {due}, which is ahead of this clock: they are not begun again, and wait until then",
                Ranges(items)
            ),
            Note::LedgerAhead { items, due, counts: false } => write!(
                f,
                "items {} were begun for due times up to {due}, more than {} s ahead of this clock: one of the clocks was wrong, and due times up to then may be begun again",
                Ranges(items),
                limits::LEDGER_AHEAD.as_secs()
            ),
            Note::RemovedServer { server } => write!(f, "removed the node of server {server}: it has no instance"),
            Note::EnabledAgain => write!(f, "all servers are enabled: `disabled` in the configuration is false again"),
            Note::BadStrategy { name, reason } => {
                write!(f, "jobShardingStrategyType `{name}` {reason}; the assignment stays as it is")
            }
        }
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
            return write!(f, "nobody");
        }
        let parts: Vec<String> = by_owner.iter().map(|(owner, items)| format!("{}={owner}", Ranges(items))).collect();
        write!(f, "{}", parts.join(" "))
    }
}
