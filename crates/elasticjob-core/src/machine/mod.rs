//! The life of one job on one instance, as a pure machine: inputs in, effects out.
//!
//! Nothing here waits. What takes time (a commit, a read, a latch, a run) is an effect, and its end comes back as an
//! input. At most one registry step of a job is under way; whenever it ends, or anything else happens, the rules (`RULES`) are asked
//! from the top which step comes next. The rules read the state only: a notification causes an evaluation, and decides nothing.
//!
//! ```text
//!   SessionBack          registered            Stop, or own instance node deleted
//!  Waiting ------> Joining ------------> Joined ------------------> Leaving ----------> Left
//!                     ^                    |      runs end, or the deadline passes
//!                     +--------------------+
//!           SessionBack in a new session. SessionLost alone changes no state: items go on running, and nothing is begun;
//!           their marks are looked after on return.
//! ```

// A new step or input must not be forgotten silently.
#![warn(clippy::wildcard_enum_match_arm)]

mod blocked;
mod compare;
mod election;
mod event;
mod failover;
mod follow;
mod lead;
mod memory;
mod release;
mod rest;
mod run;
mod schedule;
mod session;
mod startup;
mod trigger;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use event::{EventFields, JobEvent, Level};
pub use types::{
    Begun, CheckFn, ConfigCheck, Effect, EndedItem, Identity, Input, ItemEnd, MachineContext, Run, RunId, RunItem,
    Setup, Source, StepId, StepResult, StopReason,
};

use crate::config::JobConfig;
use crate::job_state::JobState;
use crate::limits;
use crate::path::JobPath;
use crate::time::Timestamp;
use memory::{Abandoned, Busy, Follow, Item, Latch, LatchWait, Lead, Life, Purpose, Schedule, Session, Step, Taken};
use types::Effects;

/// One job on one instance. See the module's documentation.
#[derive(Debug)]
pub struct JobMachine {
    path: JobPath,
    setup: Setup,
    context: Arc<MachineContext>,
    life: Life,
    session: Option<Session>,
    last_session: Option<u64>,
    /// The latest sessions of this machine: an instance node of one of them is its own.
    sessions: VecDeque<u64>,
    state: JobState,
    config: Option<Arc<JobConfig>>,
    config_read: Option<i64>,
    /// Whether the stored configuration could not be used when it was read last.
    config_refused: bool,
    schedule: Schedule,
    follow: Follow,
    lead: Lead,
    /// The items that are ours by a claim. Boxed, as `busy`: a node of a map has room for eleven.
    items: BTreeMap<u32, Box<Item>>,
    /// What the registry does not record of items that this instance owned before. Kept until they are read again.
    earlier: BTreeMap<u32, memory::Earlier>,
    /// The items of dead instances that we took over and have not begun, with the version of their ledger and its due time.
    taken: BTreeMap<u32, Taken>,
    /// What runs here, or is about to, or has ended and is still marked.
    busy: BTreeMap<u32, Box<Busy>>,
    /// Items whose begin was rejected because of a `running` mark of another instance, or of a missing right.
    blocked: BTreeMap<u32, memory::Blocked>,
    /// Instances that vanished, and when we saw it.
    gone: BTreeMap<String, Timestamp>,
    /// Instances whose marks are still to be looked for.
    bereaved: BTreeSet<String>,
    /// Items that may be taken over.
    orphans: BTreeSet<u32>,
    /// Items that are read again when a node is deleted: the `failover` of another instance over a stale mark of this one, or the
    /// `disabled` of an item with an interrupted run.
    left_behind: BTreeSet<u32>,
    /// Takeovers that came to nothing: their nodes are to be deleted.
    abandoned: BTreeMap<u32, Abandoned>,
    /// Items that this instance may have taken over: the outcome of the transaction is unknown.
    half_taken: BTreeSet<u32>,
    /// Whether the next takeover takes one item alone, since one of several was refused.
    takes_one: bool,
    /// The items that have a claim of ours.
    claimed: BTreeSet<u32>,
    /// Whether this machine was registered before: what a start writes is written once.
    has_joined: bool,
    /// The instance node of another process that has our id.
    namesake: Option<memory::Namesake>,
    /// Whether the log says that this server is disabled.
    is_disabled_told: bool,
    /// How the configuration of this start differs from the stored one.
    comparison: compare::Comparison,
    /// Whether an operator took it out.
    is_shut_down: bool,
    /// Whether this instance's `leader/leaving/<id>` exists in this session.
    has_announced_leave: bool,
    /// Results of triggers whose caller waits, to be written.
    results: BTreeMap<String, &'static str>,
    /// When the remaining runs were cancelled, since this instance has to leave.
    cut_off: Option<Timestamp>,
    /// What was cut off then and waits for another one, and whether it had been taken over.
    cut: BTreeMap<u32, bool>,
    /// Nodes `failover` of our items: the taker, whether it is gone, and until when it has time.
    takers: BTreeMap<u32, (String, bool, Timestamp)>,
    leader_odd_since: Option<Timestamp>,
    /// Since when an instance that refused the stored configuration sees no leader.
    leaderless_since: Option<Timestamp>,
    /// The leader's node, and since when we see it.
    leader_seen: Option<(i64, Timestamp)>,
    servers_dead_since: BTreeMap<String, Timestamp>,
    /// Servers on which a Java instance was seen that has vanished since.
    java_servers: BTreeSet<String>,
    /// Own items that were enabled: a run that was interrupted while they were disabled is looked for.
    enabled: BTreeSet<u32>,
    step: Option<(StepId, Step)>,
    latch: Option<Latch>,
    /// After a latch was not to be had.
    latch_wait: Option<LatchWait>,
    /// Latches in whose queues a place of this instance may have remained, since the connection broke in the meantime.
    left_queues: BTreeSet<String>,
    /// Latches that were given back on this link: that may not have arrived when it breaks.
    given_back: BTreeSet<String>,
    last_id: u64,
    begins: u64,
    pause_until: Timestamp,
    failures: usize,
    /// The place in `RULES` of the rule whose step is under way.
    rule: usize,
    rests: rest::Rests,
    reconcile_at: Option<Timestamp>,
    watched: BTreeSet<String>,
}

/// Who goes first when several steps could be made: what is due before what keeps house.
const RULES: [fn(&mut JobMachine, Timestamp, &mut Effects) -> bool; 29] = [
    JobMachine::confirm_shutdown,
    JobMachine::settle,
    JobMachine::settle_takeovers,
    JobMachine::release,
    JobMachine::begin,
    JobMachine::leave_queues,
    JobMachine::announce_leave,
    JobMachine::report_results,
    JobMachine::leave,
    JobMachine::join,
    JobMachine::restore_server,
    JobMachine::acknowledge_trigger,
    JobMachine::drop_triggers,
    JobMachine::take_in,
    JobMachine::keep_marks,
    JobMachine::release_late,
    JobMachine::take_over,
    JobMachine::find_orphans,
    JobMachine::inspect_blocked,
    JobMachine::mark_misfires,
    JobMachine::abdicate,
    JobMachine::elect,
    JobMachine::look_at_owners,
    JobMachine::adopt_triggers,
    JobMachine::reshard,
    JobMachine::ask_for_items,
    JobMachine::ask_for_division,
    JobMachine::publish_differences,
    JobMachine::tidy,
];

impl JobMachine {
    /// A machine that waits for a session.
    pub fn new(setup: Setup, context: Arc<MachineContext>) -> JobMachine {
        JobMachine {
            path: JobPath::new(&setup.document.job_name),
            setup,
            context,
            life: Life::Waiting,
            session: None,
            last_session: None,
            sessions: VecDeque::new(),
            state: JobState::default(),
            config: None,
            config_read: None,
            config_refused: false,
            schedule: Schedule::default(),
            follow: Follow::default(),
            lead: Lead::default(),
            items: BTreeMap::new(),
            earlier: BTreeMap::new(),
            taken: BTreeMap::new(),
            busy: BTreeMap::new(),
            blocked: BTreeMap::new(),
            gone: BTreeMap::new(),
            bereaved: BTreeSet::new(),
            orphans: BTreeSet::new(),
            left_behind: BTreeSet::new(),
            abandoned: BTreeMap::new(),
            half_taken: BTreeSet::new(),
            takes_one: false,
            claimed: BTreeSet::new(),
            has_joined: false,
            namesake: None,
            is_disabled_told: false,
            comparison: compare::Comparison::default(),
            is_shut_down: false,
            has_announced_leave: false,
            results: BTreeMap::new(),
            cut_off: None,
            cut: BTreeMap::new(),
            takers: BTreeMap::new(),
            leader_odd_since: None,
            leaderless_since: None,
            leader_seen: None,
            servers_dead_since: BTreeMap::new(),
            java_servers: BTreeSet::new(),
            enabled: BTreeSet::new(),
            step: None,
            latch: None,
            latch_wait: None,
            left_queues: BTreeSet::new(),
            given_back: BTreeSet::new(),
            last_id: 0,
            begins: 0,
            pause_until: Timestamp(0),
            failures: 0,
            rule: 0,
            rests: rest::Rests::new(),
            reconcile_at: None,
            watched: BTreeSet::new(),
        }
    }

    /// Takes one input in and says what is to be done. Never fails.
    pub fn handle(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        let mut out = Effects::default();
        match input {
            Input::Woke => {}
            Input::Changed(changes) => self.changed(now, changes, &mut out),
            Input::SessionLost => self.session_lost(now, &mut out),
            Input::SessionBack { session, timeout, state } => {
                self.session_back(now, session, timeout, *state, &mut out)
            }
            Input::Reloaded(state) => self.reloaded(now, *state, &mut out),
            Input::Done(id, result) => self.done(now, id, result, &mut out),
            Input::Latched(id, node) => self.latched(now, id, node, &mut out),
            Input::ItemsEnded(ended) => self.items_ended(now, &ended, &mut out),
            Input::Stop { deadline } => self.stop(deadline),
            Input::ClockChecked(difference) => self.clock_checked(difference, &mut out),
            Input::Compare => self.compare_again(&mut out),
        }
        self.advance(now, &mut out);
        out.0
    }

    /// When to call [`JobMachine::handle`] with [`Input::Woke`] at the latest.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        if self.life == Life::Left {
            return None;
        }
        let leaves = match self.life {
            Life::Leaving { deadline } => Some(self.cut_off.map_or(deadline, |since| since + limits::CUT_OFF)),
            Life::Waiting | Life::Joining | Life::Joined | Life::Left => None,
        };
        let reads_anew = self.reconcile_at.filter(|_| self.session.is_some());
        let rules = if self.session.is_some() && self.step.is_none() { self.rules_at() } else { None };
        [self.schedule.next_due, leaves, reads_anew, rules].into_iter().flatten().min()
    }

    /// When the rules are to be asked again: when the pause is over, and when one of their own times comes.
    fn rules_at(&self) -> Option<Timestamp> {
        let own = [
            self.release_at(),
            self.follow.wake_at(self.schedule.last_tick),
            self.lead.wake_at(),
            self.lead.stands_in_for.as_ref().map(|stands_in| stands_in.until),
            self.second_look_at(),
            self.leader_odd_since.map(|t| t + limits::LEADER_UNREGISTERED),
            self.leaderless_since.map(|t| t + self.candidacy_wait()),
            self.leader_seen.map(|(_, since)| since + limits::LEADER_WAIT),
            self.tidy_at(),
            self.namesake_at(),
            self.yield_ends_at(),
            self.latch_wait.map(|wait| wait.until),
        ];
        let rested = self.rests.values().map(|rest| rest.until);
        let own = own.into_iter().flatten().chain(rested).map(|at| at.max(self.pause_until));
        // A time that has passed without an act waits for something else, which will be an input.
        own.chain([self.pause_until]).filter(|at| *at > self.schedule.last_tick).min()
    }

    /// Whether the job has left the registry permanently: nothing will happen any more.
    pub fn is_left(&self) -> bool {
        self.life == Life::Left
    }

    /// The configuration in force; `None` before the first one that could be used.
    pub fn config(&self) -> Option<&Arc<JobConfig>> {
        self.config.as_ref()
    }

    /// Whether this instance is registered and its state of the registry is in use.
    pub fn is_joined(&self) -> bool {
        self.life == Life::Joined && self.session.is_some()
    }

    /// Whether this instance leads the job.
    pub fn leads(&self) -> bool {
        self.is_leader()
    }

    /// The items that are ours at the moment, in rising order.
    pub fn owned(&self) -> impl ExactSizeIterator<Item = u32> {
        self.items.keys().copied()
    }

    /// The items whose code runs here.
    pub fn running(&self) -> impl Iterator<Item = u32> {
        self.busy.iter().filter(|(_, busy)| busy.phase == memory::Phase::Running).map(|(item, _)| *item)
    }

    /// Whether a run of this item that goes on for as long as there is work should end after its current piece: the items
    /// are being resharded, the item or its server was disabled, the job leaves, the session is lost, or the item is due
    /// again.
    pub fn should_yield(&self, item: u32) -> bool {
        let is_resharding = self.state.necessary.is_some() || self.state.processing.is_some();
        // The look of each `reconcileIntervalMinutes` is no reason: where it finds less, it takes the item away.
        let is_unknown = self.follow.stale && !self.follow.is_routine;
        if self.session.is_none() || is_resharding || is_unknown || !self.is_available() {
            return true;
        }
        if self.busy.get(&item).is_some_and(|busy| busy.taken) {
            return false;
        }
        let waits = |item: &Item| item.disabled || item.taken_by.is_some() || item.missed.is_some() || item.triggered;
        self.items.get(&item).is_none_or(|item| waits(item))
    }

    /// The state that decides; `None` while there is no session.
    pub fn state(&self) -> Option<&JobState> {
        self.session.as_ref().map(|_| &self.state)
    }

    /// The job's paths.
    pub fn path(&self) -> &JobPath {
        &self.path
    }

    /// The next scheduled firing; `None` once the instance leaves the job.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.schedule.next_due.filter(|_| !matches!(self.life, Life::Leaving { .. }))
    }

    fn advance(&mut self, now: Timestamp, out: &mut Effects) {
        if self.life == Life::Left {
            return;
        }
        self.tick(now, out);
        if self.session.is_none() {
            self.leave_offline(now, out);
            return;
        }
        if now < self.pause_until {
            return;
        }
        // One rule may settle something without a step of its own; the bound keeps a mistake from looping.
        for _ in 0..4 {
            if self.step.is_some() || self.life == Life::Left {
                return;
            }
            let acted = RULES.iter().enumerate().find_map(|(place, rule)| {
                let acts = !self.is_resting(place, now) && rule(self, now, out);
                acts.then_some(place)
            });
            match acted {
                Some(place) => self.rule = place,
                None => return,
            }
        }
    }

    fn done(&mut self, now: Timestamp, id: StepId, result: StepResult, out: &mut Effects) {
        let Some((current, step)) = self.step.take() else { return };
        if current != id {
            self.step = Some((current, step));
            return;
        }
        match &result {
            StepResult::Failed | StepResult::Unknown => self.pause(now),
            StepResult::Committed { .. } => {
                self.failures = 0;
                self.rests.remove(&self.rule);
            }
            StepResult::Answers(_) => self.failures = 0,
            StepResult::Refused(refusal) => self.rest(now, self.rule, &step, refusal.reason, out),
        }
        match step {
            Step::ReadApplied => self.applied_read(result),
            Step::Publish { text } => self.published(now, text, result, out),
            Step::Join { wrote, server, overwrote } => self.join_done(now, wrote, server, overwrote, result, out),
            Step::EnableAgain => self.enabled_again(now, result, out),
            Step::ConfirmShutdown => self.shutdown_confirmed(now, result, out),
            Step::AnnounceLeave => self.leave_announced(now, result, out),
            Step::AdoptTrigger { id, items } => self.trigger_adopted(now, id, items, result, out),
            Step::DropTriggers { triggers, reason } => self.triggers_dropped(now, triggers, reason, result, out),
            Step::Report { results } => self.results_reported(now, results, result),
            Step::Leave { ops } => self.leave_done(now, ops, result, out),
            Step::Server | Step::Tidy => self.housekeeping_done(now, result, out),
            Step::ReadLeader { latch } => self.leader_read(now, latch, result, out),
            Step::Elect { latch } => self.elect_done(now, &latch, result, out),
            Step::Abdicate => self.abdicate_done(result, out),
            Step::ReadOwners => self.owners_read(now, result, out),
            Step::Claim { own, ops } => self.claim_done(now, own, ops, result, out),
            Step::ReadOwn { own } => self.own_read(now, &own, result, out),
            Step::Flag => self.flag_done(now, result),
            Step::AskForItems => self.asked_for_items(result, out),
            Step::ReadQueue { path } => self.queue_read(now, &path, result, out),
            Step::ReadPlaces { path, names } => self.places_read(&path, &names, result, out),
            Step::LeavePlaces { path } => self.places_left(now, &path, result),
            Step::Survey(survey) => self.surveyed(now, *survey, result, out),
            Step::Reshard(plan) => self.resharded(now, *plan, result, out),
            Step::Begin(plan) => self.begin_done(now, *plan, result, out),
            Step::Settle { items } => self.settled(now, &items, result, out),
            Step::Release { items, remnants } => self.release_done(now, items, remnants, result, out),
            Step::Abandon { item } => self.abandoned(now, item, result, out),
            Step::LookAgain => self.looked_again(now, result),
            Step::ReadLate { item, latch } => self.late_read(now, item, &latch, result, out),
            Step::ReleaseLate { item, latch } => self.late_released(item, &latch, result, out),
            Step::Mark { items, ops } => self.marks_kept(now, items, ops, result, out),
            Step::ReadMark { item } => self.mark_read(now, item, result),
            Step::Misfire { items, ops } => self.misfires_marked(now, items, ops, result),
            Step::Trigger => self.trigger_acknowledged(now, result),
            Step::Inspect { item } => self.inspected(now, item, result, out),
            Step::InspectTaker { item, taker } => self.taker_inspected(now, item, &taker, result, out),
            Step::ClearMark { item, of } => self.mark_cleared(now, item, of, result, out),
            Step::FindOrphans { items } => self.orphans_found(now, &items, result, out),
            Step::FindLeft { items } => self.left_found(now, &items, result, out),
            Step::ReadOrphans { items, latch } => self.orphans_read(now, &items, latch, result, out),
            Step::TakeOver { takeovers, latch } => self.taken_over(now, takeovers, &latch, result, out),
            Step::SettleTakeovers { items } => self.takeovers_settled(now, &items, result),
        }
    }

    fn changed(&mut self, now: Timestamp, changes: Vec<(String, Option<crate::tree::Node>)>, out: &mut Effects) {
        if self.session.is_none() {
            return; // the state is read again when the session is back
        }
        let path = self.path.clone();
        for (at, node) in changes {
            let place = path.place(&at);
            self.before_change(now, place.as_ref(), node.as_ref());
            self.state.apply(&path, &at, node.clone());
            self.after_change(now, place.as_ref(), node.as_ref(), out);
        }
        self.tell_disabled(out);
    }

    /// Starts a registry step with a commit.
    fn commit(&mut self, step: Step, ops: Vec<crate::tree::Op>, out: &mut Effects) -> bool {
        let id = self.next_id();
        self.step = Some((id, step));
        out.push(Effect::Commit(id, ops));
        true
    }

    /// Starts a registry step with a read.
    fn read(&mut self, step: Step, queries: Vec<crate::query::Query>, out: &mut Effects) -> bool {
        let id = self.next_id();
        self.step = Some((id, step));
        out.push(Effect::Read(id, queries));
        true
    }

    fn next_id(&mut self) -> StepId {
        self.last_id += 1;
        StepId(self.last_id)
    }

    /// Asks for a latch; the answer is kept in `self.latch` until a rule uses it.
    /// Asks for a latch, less and less often while the registry gives none.
    fn ask_latch(&mut self, now: Timestamp, purpose: Purpose, out: &mut Effects) {
        if self.latch_wait.is_some_and(|wait| now < wait.until) {
            return;
        }
        let path = self.latch_path(purpose);
        let id = self.next_id();
        self.latch = Some(Latch { id, purpose, node: None });
        out.push(Effect::Latch(id, path));
    }

    fn latch_path(&self, purpose: Purpose) -> String {
        match purpose {
            Purpose::Election => self.path.election_latch(),
            Purpose::TakeOver | Purpose::LateRelease => self.path.failover_latch(),
        }
    }

    fn latched(&mut self, now: Timestamp, id: StepId, node: Option<String>, out: &mut Effects) {
        match (&mut self.latch, node) {
            (Some(latch), Some(node)) if latch.id == id => {
                latch.node = Some(node);
                self.latch_wait = None;
            }
            (Some(latch), None) if latch.id == id => {
                let times = self.latch_wait.map_or(0, |wait| wait.times);
                self.latch_wait = Some(LatchWait { times: times + 1, until: now + back_off(times) });
                // The place may have been created although its answer was lost; the connection may be up, or its loss be reported later.
                let purpose = latch.purpose;
                self.latch = None;
                self.left_queues.insert(self.latch_path(purpose));
            }
            (_, Some(node)) => out.push(Effect::Unlatch(id, Some(node))), // it was given up meanwhile
            (_, None) => {}
        }
    }

    /// The latch node, when it is held for that purpose.
    fn held_latch(&mut self, purpose: Purpose) -> Option<String> {
        match &self.latch {
            Some(Latch { purpose: held, node: Some(node), .. }) if *held == purpose => Some(node.clone()),
            _ => None,
        }
    }

    fn release_latch(&mut self, out: &mut Effects) {
        if let Some(latch) = self.latch.take() {
            self.given_back.insert(self.latch_path(latch.purpose));
            out.push(Effect::Unlatch(latch.id, latch.node));
        }
    }

    fn pause(&mut self, now: Timestamp) {
        self.pause_until = now + back_off(self.failures);
        self.failures += 1;
    }

    /// After a rejection that the next read of the registry must explain: reads everything again, a little later.
    fn look_again(&mut self, now: Timestamp, out: &mut Effects) {
        self.pause(now);
        out.push(Effect::Reload);
    }

    fn id(&self) -> &str {
        &self.setup.identity.id
    }

    fn session_id(&self) -> u64 {
        self.session.map(|s| s.id).unwrap_or_default()
    }

    /// Whether this instance may own items and lead: registered, and its server enabled.
    fn is_available(&self) -> bool {
        self.life == Life::Joined && self.state.takes_part(self.id(), &self.setup.identity.server_ip)
    }

    fn watch(&mut self, paths: Vec<String>, out: &mut Effects) {
        let new: Vec<String> = paths.into_iter().filter(|p| self.watched.insert(p.clone())).collect();
        if !new.is_empty() {
            out.push(Effect::Watch(new));
        }
    }

    fn unwatch(&mut self, paths: Vec<String>, out: &mut Effects) {
        let old: Vec<String> = paths.into_iter().filter(|p| self.watched.remove(p)).collect();
        if !old.is_empty() {
            out.push(Effect::Unwatch(old));
        }
    }
}

/// The pause after that many failed attempts.
fn back_off(tries: usize) -> Duration {
    (limits::RETRY_BASE * (1 << tries.min(10))).min(limits::RETRY_MAX)
}
