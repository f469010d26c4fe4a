//! The words of the events, for records that programs read.

use super::JobEvent;

impl JobEvent {
    /// Returns the word of the event's kind, as `taken-over`. It never changes: recorded events are found by it.
    pub fn kind(&self) -> &'static str {
        match self {
            JobEvent::Joined { .. } => "joined",
            JobEvent::Left { .. } => "left",
            JobEvent::KeptDisabled { .. } => "kept-disabled",
            JobEvent::DisabledByStart { .. } => "disabled-by-start",
            JobEvent::ServerSwitched { enabled: true, everywhere: true, .. } => "job-enabled",
            JobEvent::ServerSwitched { enabled: false, everywhere: true, .. } => "job-disabled",
            JobEvent::ServerSwitched { enabled: true, everywhere: false, .. } => "server-enabled",
            JobEvent::ServerSwitched { enabled: false, everywhere: false, .. } => "server-disabled",
            JobEvent::ItemSwitched { enabled: true, .. } => "item-enabled",
            JobEvent::ItemSwitched { enabled: false, .. } => "item-disabled",
            JobEvent::Elected => "elected",
            JobEvent::Deposed { .. } => "deposed",
            JobEvent::Abdicated => "abdicated",
            JobEvent::Resharded { .. } => "resharded",
            JobEvent::Assigned { .. } => "assigned",
            JobEvent::AskedForItems => "asked-for-items",
            JobEvent::Begun { .. } => "begun",
            JobEvent::Ended { .. } => "ended",
            JobEvent::Misfired { .. } => "misfired",
            JobEvent::Skipped { .. } => "skipped",
            JobEvent::Passed { .. } => "passed",
            JobEvent::Lost { .. } => "lost",
            JobEvent::Blocked { .. } => "blocked",
            JobEvent::Refused { .. } => "refused",
            JobEvent::ClearedMark { .. } => "cleared-mark",
            JobEvent::TakenOver { .. } => "taken-over",
            JobEvent::TakeoverWaits { .. } => "takeover-waits",
            JobEvent::Triggered => "triggered",
            JobEvent::TriggerAdopted { .. } => "trigger-adopted",
            JobEvent::TriggerDropped { .. } => "trigger-dropped",
            JobEvent::Rescheduled { .. } => "rescheduled",
            JobEvent::BadConfig { .. } => "bad-config",
            JobEvent::GoodConfig => "good-config",
            JobEvent::DiffersFromStored { .. } => "differs-from-stored",
            JobEvent::SameAsStored => "same-as-stored",
            JobEvent::Overwrote { .. } => "overwrote",
            JobEvent::ShutDownByOperator => "shut-down-by-operator",
            JobEvent::Removed => "removed",
            JobEvent::IdTaken { .. } => "id-taken",
            JobEvent::ClockOff { .. } => "clock-off",
            JobEvent::LedgerAhead { .. } => "ledger-ahead",
            JobEvent::RemovedServer { .. } => "removed-server",
            JobEvent::EnabledAgain => "enabled-again",
            JobEvent::BadStrategy { .. } => "bad-strategy",
        }
    }
}
