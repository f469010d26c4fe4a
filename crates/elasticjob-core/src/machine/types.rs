//! What goes into a machine, and what comes out of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{ConfigError, JobConfig, ZoneLookup};
use crate::job_state::JobState;
use crate::query::{Answer, Query};
use crate::shard::ShardingStrategy;
use crate::time::Timestamp;
use crate::tree::{Node, Op, Refusal};
use crate::wire::{JobDocument, Overwrite};

use super::JobEvent;

/// Who this process is, the same for all of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `<ip>@-@<number>`.
    pub id: String,
    /// The server's IP.
    pub server_ip: String,
}

/// What a start of a job brings along.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration of this start; used when none is stored, or as `overwrite` says.
    pub document: JobDocument,
    /// Which configuration wins where another one is stored already.
    pub overwrite: Overwrite,
    /// The class text at `/<job>`: a start with another one is refused.
    pub class: String,
    /// Whether the job runs only when it is triggered.
    pub one_off: bool,
    /// Who we are.
    pub identity: Identity,
    /// What only the runtime can check of a configuration: properties of the job type, names of plug-ins.
    pub check: ConfigCheck,
}

/// See [`Setup::check`]. The default finds no fault.
#[derive(Clone)]
pub struct ConfigCheck(pub Arc<CheckFn>);

/// Reports every fault of a configuration.
pub type CheckFn = dyn Fn(&JobConfig) -> Vec<ConfigError> + Send + Sync;

impl Default for ConfigCheck {
    fn default() -> ConfigCheck {
        ConfigCheck(Arc::new(|_| Vec::new()))
    }
}

impl fmt::Debug for ConfigCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigCheck")
    }
}

/// What all machines of a process share.
pub struct MachineContext {
    /// Looks up time zones.
    pub zones: Box<ZoneLookup>,
    /// The sharding strategies by name.
    pub strategies: Vec<Arc<dyn ShardingStrategy>>,
}

impl fmt::Debug for MachineContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.strategies.iter().map(|s| s.name()).collect();
        f.debug_struct("MachineContext").field("strategies", &names).finish_non_exhaustive()
    }
}

/// A registry step or a latch that was asked for; its answer carries the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u64);

/// A run: the items that were begun together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// An input of the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The time that [`super::JobMachine::next_wakeup`] named has come, or may have.
    Woke,
    /// Nodes were seen to change; `None` for a missing one.
    Changed(Vec<(String, Option<Node>)>),
    /// The connection to the registry is lost; the session may live on.
    SessionLost,
    /// There is a connection: with the session of before or a new one. The watches are set, the state is fresh.
    SessionBack {
        /// The session.
        session: u64,
        /// After how long without contact the registry ends it.
        timeout: Duration,
        /// The state.
        state: Box<JobState>,
    },
    /// The state that [`Effect::Reload`] asked for.
    Reloaded(Box<JobState>),
    /// A commit or a read has ended.
    Done(StepId, StepResult),
    /// A latch is held, by that node; or could not be had.
    Latched(StepId, Option<String>),
    /// Items have ended, with any outcome: all that ended since the input before, since each input evaluates all items.
    ItemsEnded(Vec<EndedItem>),
    /// Leave: begin nothing, let what runs end until then, take the nodes away.
    Stop {
        /// When to leave even though items are running.
        deadline: Timestamp,
    },
    /// The difference to the registry's clock.
    ClockChecked(Duration),
    /// Report again how the configuration of this start differs from the stored one.
    Compare,
}

/// An item of a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedItem {
    /// The run.
    pub run: RunId,
    /// The item.
    pub item: u32,
    /// How it ended.
    pub end: ItemEnd,
}

/// How an item of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemEnd {
    /// Its code ended well.
    Succeeded,
    /// Its code failed, or was stopped.
    Failed,
    /// Its code was not started: its turn came when the session was over in which it was begun. Others may have begun it by then.
    NotStarted,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult {
    /// The transaction was committed, early enough for its session to be alive now.
    Committed {
        /// Its number.
        zxid: i64,
    },
    /// The transaction was rejected, since one of its operations was not possible.
    Refused(Refusal),
    /// It is unknown whether the transaction was committed.
    Unknown,
    /// The transaction was not committed.
    Failed,
    /// The answers of a read, one for each query.
    Answers(Vec<Answer>),
}

/// What a machine wants done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Carry out one transaction in the current session.
    Commit(StepId, Vec<Op>),
    /// Read after all earlier commits of this instance.
    Read(StepId, Vec<Query>),
    /// Get a latch: a place in the queue below that path, held when it is the first.
    Latch(StepId, String),
    /// Give a latch back, or the place in its queue.
    Unlatch(StepId, Option<String>),
    /// Tell every change of these nodes.
    Watch(Vec<String>),
    /// Stop telling.
    Unwatch(Vec<String>),
    /// Read the whole state again.
    Reload,
    /// Compare the clocks.
    CheckClock,
    /// Run items.
    Run(Run),
    /// Tell everything that runs to end.
    CutOff,
    /// Tell people.
    Report(JobEvent),
    /// The machine has left.
    Stop(StopReason),
}

/// Why a machine has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It was asked to.
    Asked,
    /// Its instance node was deleted: the operation "shutdown" or "remove".
    ShutDown,
    /// It must not start: another class is stored, or its own configuration is wrong.
    Refused(String),
}

/// Why a run was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An instance died while it was running these items.
    Failover,
    /// The schedule.
    Schedule,
    /// A firing was missed and is caught up.
    Misfire,
    /// A trigger of an operator or a program.
    Trigger,
}

impl Source {
    /// The word for logs and for scripts.
    pub fn word(self) -> &'static str {
        match self {
            Source::Failover => "failover",
            Source::Schedule => "schedule",
            Source::Misfire => "misfire",
            Source::Trigger => "trigger",
        }
    }
}

/// Items to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// The session in which it was begun: no item of it is started in another one.
    pub session: u64,
    /// Java's id of the task.
    pub task_id: String,
    /// The due time of the run.
    pub due: Timestamp,
    /// Why.
    pub source: Source,
    /// The configuration at its begin.
    pub config: Arc<JobConfig>,
    /// What to run.
    pub items: Vec<RunItem>,
}

/// One item of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunItem {
    /// The item.
    pub item: u32,
    /// The number of the transaction that began it: later begins of this item have higher ones, in the whole cluster.
    pub fencing_token: i64,
}

/// A begin as it was asked for.
#[derive(Clone, Debug)]
pub struct Begun {
    pub(super) run: RunId,
    pub(super) due: Timestamp,
    pub(super) source: Source,
    pub(super) items: Vec<u32>,
    /// What each operation of the transaction is for.
    pub(super) parts: Vec<super::run::Part>,
    /// The triggers of items that the transaction deletes.
    pub(super) triggers: Vec<(u32, String)>,
}

/// Effects in the order in which they are to be done.
#[derive(Debug, Default)]
pub(super) struct Effects(pub(super) Vec<Effect>);

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(super) fn report(&mut self, event: JobEvent) {
        self.0.push(Effect::Report(event));
    }
}
