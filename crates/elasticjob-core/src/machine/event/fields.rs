//! The variable data of an event, which its sentence does not repeat.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::JobEvent;
use crate::ranges::Ranges;
use crate::time::Timestamp;

/// The variable data of an event. Fields that do not apply are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFields {
    /// The id of the instance that the event concerns.
    pub instance: Option<String>,
    /// The id of the instance from which something was taken over.
    pub from: Option<String>,
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
    /// The number of due times; 1000 means 1000 or more.
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
    /// The session that it concerns, as `0x…`.
    pub session: Option<String>,
    /// The step of the protocol that the registry rejected.
    pub step: Option<&'static str>,
    /// How often it was tried.
    pub attempts: Option<usize>,
    /// The sharding strategy.
    pub strategy: Option<String>,
    /// The difference between two clocks in milliseconds.
    pub difference_ms: Option<u64>,
    /// The largest difference that the configuration allows, in milliseconds.
    pub limit_ms: Option<u64>,
    /// The keys of the configuration that it concerns.
    pub keys: Option<String>,
}

impl JobEvent {
    /// Returns the data of the log line that is not in its sentence.
    pub fn fields(&self) -> EventFields {
        let mut fields = EventFields::default();
        let list = |items: &[u32]| (!items.is_empty()).then(|| Ranges(items).to_string());
        match self {
            JobEvent::Joined { instance, next, .. } => {
                fields.instance = Some(instance.clone());
                fields.next = *next;
            }
            JobEvent::Left { instance } => fields.instance = Some(instance.clone()),
            JobEvent::IdTaken { instance, session } => {
                fields.instance = Some(instance.clone());
                fields.session = Some(format!("{session:#x}"));
            }
            JobEvent::Refused { step, items, times } => {
                fields.step = Some(step);
                fields.items = list(items);
                fields.attempts = Some(*times);
            }
            JobEvent::DiffersFromStored { differences, .. } | JobEvent::Overwrote { differences } => {
                let keys: Vec<&str> = differences.iter().map(|difference| difference.key.as_str()).collect();
                fields.keys = Some(keys.join(","));
            }
            JobEvent::ClockOff { difference, limit } => {
                fields.difference_ms = Some(milliseconds(*difference));
                fields.limit_ms = Some(milliseconds(*limit));
            }
            JobEvent::BadStrategy { name, .. } => fields.strategy = Some(name.clone()),
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
                fields.late_ms = Some(milliseconds(*late));
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
                fields.last_due = Some(*last).filter(|_| *firings > 1);
                fields.firings = Some(*firings);
            }
            JobEvent::Blocked { item, by: instance } | JobEvent::ClearedMark { item, of: instance } => {
                fields.item = Some(*item);
                fields.instance = Some(instance.clone());
            }
            JobEvent::TakenOver { item, from } => {
                fields.item = Some(*item);
                fields.from = Some(from.clone());
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
            | JobEvent::Triggered
            | JobEvent::BadConfig { .. }
            | JobEvent::GoodConfig
            | JobEvent::SameAsStored
            | JobEvent::ShutDownByOperator
            | JobEvent::Removed
            | JobEvent::EnabledAgain => {}
        }
        fields
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
        field("from", shown(&self.from))?;
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
        field("new", shown(&self.new))?;
        field("session", shown(&self.session))?;
        field("step", shown(&self.step))?;
        field("attempts", shown(&self.attempts))?;
        field("strategy", shown(&self.strategy))?;
        field("difference_ms", shown(&self.difference_ms))?;
        field("limit_ms", shown(&self.limit_ms))?;
        field("keys", shown(&self.keys))
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
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
