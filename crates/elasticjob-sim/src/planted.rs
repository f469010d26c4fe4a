//! Defects to be planted into every machine of ours: does the oracle bite?
//!
//! A machine is defined by its inputs and effects. So a defect changes one of them in transit: a machine whose
//! begins lack their checks cannot be distinguished from one that forgot to write them. The product has no switch for it.

use std::fmt;

use elasticjob_core::machine::{Effect, EndedItem, Input, ItemEnd, JobEvent, JobMachine, StepResult};
use elasticjob_core::path::{JobPath, Place};
use elasticjob_core::query::Answer;
use elasticjob_core::tree::{Mode, Op};

use crate::Schedule;
use crate::oracle::Violation;

/// A mistake that a machine could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`Defect::about` says what each one is")]
pub enum Defect {
    NoFence,
    BeginWithoutAssignment,
    EmptyLedger,
    NoRunningMark,
    RunningKept,
    FailoveringKept,
    InstancePersistent,
    LeaderPersistent,
    StaleMembers,
    JoinUnseen,
    NecessaryKept,
    ExcessItemsKept,
    ItemLeftOut,
    ItemWatchDropped,
    ServerWatchDropped,
    ConfigWatchDropped,
    ReshardingUnseen,
    TriggerUnseen,
    TriggerKept,
    TriggerLost,
    LateAnswerCounts,
    RefusalIgnored,
    AnswerForgotten,
    OldSessionKept,
    TakeoverUnmarked,
    TakeoverForgotten,
    RunTwice,
    TokenRepeated,
    MisfireKept,
    ClaimPersistent,
    UnknownPath,
    LatchKept,
    ProcessingKept,
    CutOffCountsAsDone,
    NotToldOfFirings,
    AsksTooOften,
    LeaseUnchecked,
}

impl Defect {
    /// All of them.
    pub const ALL: [Defect; 37] = [
        Defect::NoFence,
        Defect::BeginWithoutAssignment,
        Defect::EmptyLedger,
        Defect::NoRunningMark,
        Defect::RunningKept,
        Defect::FailoveringKept,
        Defect::InstancePersistent,
        Defect::LeaderPersistent,
        Defect::StaleMembers,
        Defect::JoinUnseen,
        Defect::NecessaryKept,
        Defect::ExcessItemsKept,
        Defect::ItemLeftOut,
        Defect::ItemWatchDropped,
        Defect::ServerWatchDropped,
        Defect::ConfigWatchDropped,
        Defect::ReshardingUnseen,
        Defect::TriggerUnseen,
        Defect::TriggerKept,
        Defect::TriggerLost,
        Defect::LateAnswerCounts,
        Defect::RefusalIgnored,
        Defect::AnswerForgotten,
        Defect::OldSessionKept,
        Defect::TakeoverUnmarked,
        Defect::TakeoverForgotten,
        Defect::RunTwice,
        Defect::TokenRepeated,
        Defect::MisfireKept,
        Defect::ClaimPersistent,
        Defect::UnknownPath,
        Defect::LatchKept,
        Defect::ProcessingKept,
        Defect::CutOffCountsAsDone,
        Defect::NotToldOfFirings,
        Defect::AsksTooOften,
        Defect::LeaseUnchecked,
    ];

    /// What it does wrong.
    pub fn about(self) -> &'static str {
        match self {
            Defect::NoFence => "a begin checks neither assignment nor claim nor ledger",
            Defect::BeginWithoutAssignment => "a begin checks the ledger, but not the assignment",
            Defect::EmptyLedger => "a begin does not write its due time",
            Defect::NoRunningMark => "a begin does not create `running`",
            Defect::RunningKept => "`running` stays when a run has ended",
            Defect::FailoveringKept => "`failovering` stays when a taken run has ended",
            Defect::InstancePersistent => "the instance node outlives its session",
            Defect::LeaderPersistent => "the leader node outlives its session",
            Defect::StaleMembers => "the leader does not see that an instance is gone, and assigns from the old list",
            Defect::JoinUnseen => "the leader does not see that an instance has come",
            Defect::NecessaryKept => "a resharding leaves `necessary` behind",
            Defect::ExcessItemsKept => "a resharding leaves items beyond the count behind",
            Defect::ItemLeftOut => "a resharding forgets item 0",
            Defect::ItemWatchDropped => "the nodes `disabled` of items are not watched",
            Defect::ServerWatchDropped => "the nodes of servers are not watched",
            Defect::ConfigWatchDropped => "the configuration is not watched",
            Defect::ReshardingUnseen => "a follower does not see that a resharding was",
            Defect::TriggerUnseen => "triggers are not watched",
            Defect::LateAnswerCounts => "an answer counts however late it comes",
            Defect::RefusalIgnored => "what was refused counts as done",
            Defect::AnswerForgotten => "the answer to each begin that was refused gets lost in the process",
            Defect::OldSessionKept => "a new session is taken for the old one",
            Defect::TakeoverUnmarked => "a takeover does not create `failover`",
            Defect::TakeoverForgotten => "a takeover counts as refused",
            Defect::RunTwice => "user code is called twice",
            Defect::TokenRepeated => "all runs have the same fencing token",
            Defect::TriggerKept => "the trigger of an item stays when it is begun",
            Defect::TriggerLost => "the end of a run takes a trigger of an item along",
            Defect::MisfireKept => "`misfire` stays when a firing is caught up",
            Defect::ClaimPersistent => "a claim outlives its session",
            Defect::UnknownPath => "a begin writes a node that nobody knows",
            Defect::LatchKept => "a latch is not left",
            Defect::ProcessingKept => "a resharding leaves `processing` behind until the session ends",
            Defect::CutOffCountsAsDone => "a run that is cut off since its instance leaves counts as done",
            Defect::NotToldOfFirings => "firings that nobody begins are not told",
            Defect::AsksTooOften => "what is read is asked for again and again",
            Defect::LeaseUnchecked => "code starts although the session of its begin is over",
        }
    }
}

impl Defect {
    /// The invariants that it breaks: it counts as found when one of them says so.
    pub fn breaks(self) -> &'static [&'static str] {
        match self {
            Defect::NoFence | Defect::BeginWithoutAssignment | Defect::NoRunningMark => &["assignment"],
            Defect::EmptyLedger | Defect::ConfigWatchDropped | Defect::NotToldOfFirings => &["firings"],
            Defect::CutOffCountsAsDone => &["takeover"],
            Defect::RunningKept => &["takeover", "marks", "progress"],
            Defect::FailoveringKept
            | Defect::MisfireKept
            | Defect::ClaimPersistent
            | Defect::LatchKept
            | Defect::ProcessingKept
            | Defect::NecessaryKept
            | Defect::TriggerUnseen => &["marks"],
            Defect::InstancePersistent => &["members", "cover"],
            Defect::LeaderPersistent => &["leader"],
            Defect::StaleMembers | Defect::JoinUnseen | Defect::ExcessItemsKept | Defect::ItemLeftOut => &["cover"],
            Defect::ItemWatchDropped | Defect::ServerWatchDropped => &["disabled"],
            Defect::ReshardingUnseen | Defect::AnswerForgotten => &["progress"],
            Defect::LateAnswerCounts => &["overlap", "tokens"],
            Defect::RefusalIgnored => &["overlap", "assignment"],
            Defect::OldSessionKept => &["members", "marks"],
            Defect::TakeoverUnmarked | Defect::TakeoverForgotten => &["takeover", "marks"],
            Defect::TriggerKept | Defect::TriggerLost => &["triggers"],
            Defect::RunTwice => &["overlap"],
            Defect::TokenRepeated => &["tokens"],
            Defect::UnknownPath => &["paths"],
            Defect::AsksTooOften => &["calm"],
            Defect::LeaseUnchecked => &["overlap"],
        }
    }

    /// Within how many seeds it is found.
    pub fn seeds(self) -> u64 {
        match self {
            Defect::LateAnswerCounts | Defect::CutOffCountsAsDone => 20_000,
            Defect::LeaseUnchecked => 5_000,
            _ => 1_000,
        }
    }

    /// The first seed that finds it, and what is violated there.
    pub fn find(self) -> Option<(u64, Violation)> {
        (0..self.seeds()).find_map(|seed| {
            let violations = Schedule::from_seed(seed).judge(Some(self)).violations;
            let found = violations.into_iter().find(|violation| self.breaks().contains(&violation.invariant));
            found.map(|violation| (seed, violation))
        })
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Begin,
    Release,
    Reshard,
    TakeOver,
    Other,
}

fn purpose(path: &JobPath, ops: &[Op]) -> Purpose {
    let is = |op: &Op, mark: &str| item_node(path, op.path()).is_some_and(|(_, rest)| rest == mark);
    if ops.iter().any(|op| matches!(op, Op::Set { .. }) && is(op, "")) {
        Purpose::Begin
    } else if ops.iter().any(|op| matches!(op, Op::Create { .. }) && is(op, "failover")) {
        Purpose::TakeOver
    } else if ops.iter().any(|op| op.path() == path.processing()) {
        Purpose::Reshard
    } else if ops.iter().any(|op| matches!(op, Op::Delete { .. }) && (is(op, "running") || is(op, "failover"))) {
        Purpose::Release
    } else {
        Purpose::Other
    }
}

/// `sharding/<item>/<rest>`.
fn item_node<'a>(path: &JobPath, at: &'a str) -> Option<(u32, &'a str)> {
    let rest = at.strip_prefix(&path.sharding())?.strip_prefix('/')?;
    let (item, rest) = rest.split_once('/').unwrap_or((rest, ""));
    Some((elasticjob_core::path::parse_item(item)?, rest))
}

/// What a machine with that defect takes in; `None` when it takes nothing in.
pub(crate) fn spoil_input(defect: Option<Defect>, machine: &JobMachine, input: Input) -> Option<Input> {
    let Some(defect) = defect else { return Some(input) };
    let path = machine.path();
    let own = |id: &str| machine.state().is_some_and(|v| v.leader_id().as_deref() == Some(id));
    Some(match input {
        Input::Changed(changes) => {
            let kept = changes.into_iter().filter(|(at, node)| match (defect, path.place(at)) {
                (Defect::StaleMembers, Some(Place::Instance(id))) => node.is_some() || !own(id) && !machine.leads(),
                (Defect::JoinUnseen, Some(Place::Instance(_))) => node.is_none() || !machine.leads(),
                (Defect::ItemWatchDropped, Some(Place::ItemDisabled(_)))
                | (Defect::ServerWatchDropped, Some(Place::Server(_)))
                | (Defect::ConfigWatchDropped, Some(Place::Config))
                | (Defect::ReshardingUnseen, Some(Place::Processing | Place::Necessary))
                | (Defect::TriggerUnseen, Some(Place::Trigger(_))) => false,
                _ => true,
            });
            Input::Changed(kept.collect())
        }
        Input::Done(id, StepResult::Refused(_)) if defect == Defect::RefusalIgnored => {
            Input::Done(id, StepResult::Committed { zxid: 1 })
        }
        Input::Done(_, StepResult::Refused(_)) if defect == Defect::AnswerForgotten => return None,
        Input::Done(id, StepResult::Answers(answers)) if defect == Defect::TakeoverForgotten && is_orphan(&answers) => {
            let nothing = answers.into_iter().enumerate().map(|(n, a)| if n == 0 { a } else { Answer::Node(None) });
            Input::Done(id, StepResult::Answers(nothing.collect()))
        }
        Input::ItemsEnded(ended) if defect == Defect::CutOffCountsAsDone => {
            let succeeded = |ended: EndedItem| EndedItem { end: ItemEnd::Succeeded, ..ended };
            Input::ItemsEnded(ended.into_iter().map(succeeded).collect())
        }
        Input::SessionBack { session, timeout, state } if defect == Defect::OldSessionKept => {
            let first = state.instances.values().map(|n| n.owner).min();
            Input::SessionBack { session: first.unwrap_or(session).min(session), timeout, state }
        }
        other => other,
    })
}

/// The answers of a takeover's read of orphans: the instances, then six nodes, the claims and another node of each.
fn is_orphan(answers: &[Answer]) -> bool {
    let of_orphan =
        |part: &[Answer]| matches!(part, [nodes @ .., Answer::Children(_), Answer::Node(_)] if nodes.len() == 6);
    matches!(answers, [Answer::Children(_), rest @ ..] if !rest.is_empty() && rest.chunks(8).all(of_orphan))
}

/// What a machine with that defect asks for.
pub(crate) fn spoil_effects(defect: Defect, machine: &JobMachine, effects: Vec<Effect>) -> Vec<Effect> {
    let path = machine.path();
    let mut spoiled = Vec::with_capacity(effects.len());
    for effect in effects {
        match effect {
            Effect::Commit(id, mut ops) if defect == Defect::TriggerLost => {
                if purpose(path, &ops) == Purpose::Release {
                    let waiting = machine.state().and_then(|state| state.item_triggers.first());
                    ops.extend(waiting.map(|(_, name)| Op::delete(path.trigger(name))));
                }
                spoiled.push(Effect::Commit(id, ops));
            }
            Effect::Commit(id, ops) => spoiled.push(Effect::Commit(id, spoil_ops(defect, path, ops))),
            Effect::Run(mut run) => {
                if defect == Defect::TokenRepeated {
                    run.items.iter_mut().for_each(|item| item.fencing_token = 1);
                }
                if defect == Defect::RunTwice {
                    spoiled.push(Effect::Run(run.clone()));
                }
                spoiled.push(Effect::Run(run));
            }
            Effect::Unlatch(..) if defect == Defect::LatchKept => {}
            Effect::Read(..) if defect == Defect::AsksTooOften => spoiled.extend(vec![effect; 100]),
            Effect::Report(JobEvent::Passed { .. } | JobEvent::Skipped { .. })
                if defect == Defect::NotToldOfFirings => {}
            other => spoiled.push(other),
        }
    }
    spoiled
}

fn spoil_ops(defect: Defect, path: &JobPath, ops: Vec<Op>) -> Vec<Op> {
    let purpose = purpose(path, &ops);
    let begins = purpose == Purpose::Begin;
    let mut spoiled = Vec::with_capacity(ops.len());
    for op in ops {
        let item = item_node(path, op.path()).map(|(item, rest)| (item, rest.to_owned()));
        let rest = item.as_ref().map(|(_, rest)| rest.as_str());
        let is = |mark: &str| rest == Some(mark);
        let drops = match (defect, &op) {
            (Defect::NoFence | Defect::BeginWithoutAssignment, Op::Check { .. }) => begins,
            (Defect::NoRunningMark, Op::Create { .. }) => begins && is("running"),
            (Defect::RunningKept, Op::Delete { .. }) => purpose == Purpose::Release && is("running"),
            (Defect::FailoveringKept, Op::Delete { .. }) => purpose == Purpose::Release && is("failovering"),
            (Defect::StaleMembers, Op::Check { .. }) => purpose == Purpose::Reshard,
            (Defect::NecessaryKept, Op::Delete { path: at, .. }) => *at == path.necessary(),
            (Defect::ProcessingKept, Op::Delete { path: at, .. }) => *at == path.processing(),
            (Defect::ExcessItemsKept, Op::Delete { .. }) => purpose == Purpose::Reshard && item.is_some(),
            (Defect::ItemLeftOut, Op::Create { .. } | Op::Set { .. }) => {
                purpose == Purpose::Reshard
                    && item.as_ref().is_some_and(|(number, rest)| *number == 0 && rest == "instance")
            }
            (Defect::TakeoverUnmarked, Op::Create { .. }) => purpose == Purpose::TakeOver && is("failover"),
            (Defect::MisfireKept, Op::Delete { .. }) => begins && is("misfire"),
            (Defect::TriggerKept, Op::Delete { path: at, .. }) => {
                begins && matches!(path.place(at), Some(Place::ItemTrigger(..)))
            }
            _ => false,
        };
        if drops {
            continue;
        }
        spoiled.push(match (defect, op) {
            (Defect::NoFence, Op::Set { path, data, .. }) if begins && is("") => Op::Set { path, data, version: None },
            (Defect::EmptyLedger, Op::Set { path, version, .. }) if begins && is("") => {
                Op::Set { path, data: Vec::new(), version }
            }
            (Defect::InstancePersistent, Op::Create { path: at, data, .. }) if is_instance(path, &at) => {
                Op::Create { path: at, data, mode: Mode::Persistent }
            }
            (Defect::LeaderPersistent, Op::Create { path: at, data, .. }) if at == path.leader_instance() => {
                Op::Create { path: at, data, mode: Mode::Persistent }
            }
            (Defect::ClaimPersistent, Op::Create { path: at, data, .. }) if at.contains("/claim-") => {
                Op::Create { path: at, data, mode: Mode::Persistent }
            }
            (_, op) => op,
        });
        if defect == Defect::UnknownPath && begins && spoiled.len() == 1 {
            spoiled.insert(0, Op::Ensure(path.below("scratch")));
        }
    }
    spoiled
}

fn is_instance(path: &JobPath, at: &str) -> bool {
    matches!(path.place(at), Some(Place::Instance(_)))
}
