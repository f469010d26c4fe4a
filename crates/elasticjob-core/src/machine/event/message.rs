//! The sentence of an event. It is the same for each event of a kind, so that it can be searched for.

use std::fmt;

use super::JobEvent;
use crate::limits;
use crate::wire::Differences;

pub(super) struct Message<'a>(pub(super) &'a JobEvent);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            JobEvent::Joined { disabled: true, .. } => f.write_str("joined; the job is disabled on this server and starts nothing here"),
            JobEvent::Joined { next: Some(_), .. } => f.write_str("joined"),
            JobEvent::Joined { next: None, .. } => f.write_str("joined; the job has no cron and runs only when triggered"),
            JobEvent::Left { .. } => f.write_str("left the job"),
            JobEvent::KeptDisabled { everywhere: true, .. } => {
                f.write_str("the job is disabled on all servers; enable it with `elasticjob job enable`")
            }
            JobEvent::KeptDisabled { everywhere: false, .. } => f.write_str(
                "the job is disabled on this server; enable it with `elasticjob job enable` or `elasticjob server enable`",
            ),
            JobEvent::DisabledByStart { .. } => f.write_str(
                "the job starts disabled on this server, because its configuration has `disabled: true`; to enable it, remove that key and run `elasticjob job enable`",
            ),
            JobEvent::ServerSwitched { enabled: false, everywhere: true, .. } => {
                f.write_str("the job was disabled on all servers; no run starts until `elasticjob job enable`")
            }
            JobEvent::ServerSwitched { enabled: false, everywhere: false, .. } => f.write_str(
                "the job was disabled on this server; no run starts here until `elasticjob job enable` or `elasticjob server enable`",
            ),
            JobEvent::ServerSwitched { enabled: true, .. } => f.write_str("the job was enabled on this server"),
            JobEvent::ItemSwitched { enabled: false, .. } => {
                f.write_str("the item was disabled; it does not start until `elasticjob shard enable`")
            }
            JobEvent::ItemSwitched { enabled: true, .. } => f.write_str("the item was enabled"),
            JobEvent::Elected => f.write_str("elected leader"),
            JobEvent::Deposed { .. } => {
                f.write_str("took over leadership: a firing was waiting for a resharding, and the previous leader (see `instance`) did not perform it in time")
            }
            JobEvent::Abdicated => f.write_str("resigned as leader"),
            JobEvent::Resharded { kept, .. } if kept.is_empty() => f.write_str("resharded items"),
            JobEvent::Resharded { .. } => f.write_str("resharded items; the items in `kept` are still running, stay with their owner, and are assigned again when their runs complete"),
            JobEvent::Assigned { items } if items.is_empty() => f.write_str("owns no items"),
            JobEvent::Assigned { .. } => f.write_str("owns items"),
            JobEvent::AskedForItems => {
                f.write_str("requested a resharding: this instance owns no items, or an item has no live owner")
            }
            JobEvent::Begun { .. } => f.write_str("started items"),
            JobEvent::Ended { failed, .. } if failed.is_empty() => f.write_str("completed items"),
            JobEvent::Ended { .. } => f.write_str("completed items; some failed"),
            JobEvent::Misfired { .. } => {
                f.write_str("misfire: the items could not start at their due time; one catch-up run for all of their misfires starts as soon as they can")
            }
            JobEvent::Skipped { items, reason, .. } if items.is_empty() => write!(f, "skipped a firing: {reason}"),
            JobEvent::Skipped { reason, .. } => write!(f, "items skipped a firing: {reason}"),
            JobEvent::Passed { .. } => f.write_str(
                "missed firings: the registry records no start of these items at these due times, and these firings are not caught up; possible causes: a job that an operator shut down, an owner that died, was paused or was disconnected, a run that was still active, a resharding, or a registry that was restored from a backup",
            ),
            JobEvent::Lost { .. } => {
                f.write_str("the registry connection was lost before the run started; the items do not run for this due time, unless another instance ran them")
            }
            JobEvent::Blocked { .. } => f.write_str("cannot start the item: it is still running on another instance"),
            JobEvent::Refused { .. } => f.write_str(
                "the registry rejected the same step repeatedly, although the state that was read before each attempt allows it; possible causes: nodes of this job that this client may not read (ACL), or ZooKeeper servers with different data",
            ),
            JobEvent::ClearedMark { .. } => {
                f.write_str("deleted a stale mark of the item: the instance that set the mark (see `instance`) has left or is not running the item")
            }
            JobEvent::TakenOver { .. } => f.write_str("failover: took over the interrupted run of an instance that has left"),
            JobEvent::TakeoverWaits { .. } => {
                f.write_str("failover: the interrupted run of the item is not taken over yet, because the item is disabled; it is taken over after `elasticjob shard enable`")
            }
            JobEvent::Triggered => f.write_str("received a trigger; running the enabled items of this instance"),
            JobEvent::TriggerAdopted { .. } => {
                f.write_str("an instance (see `instance`) left before it ran its triggered items; the owners of these items run them once instead")
            }
            JobEvent::TriggerDropped { items, reason } if items.is_empty() => {
                write!(f, "dropped a trigger of this instance, so nothing runs: {reason}")
            }
            JobEvent::TriggerDropped { reason, .. } => {
                write!(f, "dropped a trigger, so the items do not run: {reason}")
            }
            JobEvent::Rescheduled { next: Some(_), .. } => f.write_str("rescheduled"),
            JobEvent::Rescheduled { next: None, .. } => {
                f.write_str("rescheduled; the cron expression never fires again, so the job runs only when triggered")
            }
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
                "left the job: the job no longer exists in the registry, because it was removed while this instance was disconnected, or because the registry lost its data; restart the agent to create the job again",
            ),
            JobEvent::IdTaken { .. } => f.write_str(
                "cannot join: another process is registered under the id of this instance (same address and process id); retrying until it leaves; to avoid the conflict, give this process another address with ELASTICJOB_PREFERRED_NETWORK_IP",
            ),
            JobEvent::ClockOff { .. } => f.write_str(
                "the clock of this host differs from the registry's clock by more than maxTimeDiffSeconds; the job keeps running; synchronize the clocks (NTP)",
            ),
            JobEvent::LedgerAhead { counts: true, .. } => f.write_str(
                "items have already started for a due time that is in the future by this host's clock (see `due`); due times up to it do not start again; check NTP",
            ),
            JobEvent::LedgerAhead { counts: false, .. } => write!(
                f,
                "items have started for a due time more than {} s in the future by this host's clock (see `due`), so one of the clocks was wrong; due times up to it may start again; check NTP",
                limits::LEDGER_AHEAD.as_secs()
            ),
            JobEvent::RemovedServer { .. } => f.write_str("deleted the node of a server that has no instance"),
            JobEvent::EnabledAgain => {
                f.write_str("all servers are enabled; `disabled` in the stored configuration is false again")
            }
            JobEvent::BadStrategy { reason, .. } => write!(
                f,
                "the sharding strategy {reason}; the assignment of the items did not change; correct `jobShardingStrategyType`"
            ),
        }
    }
}
