//! The connection and the state of the registry: what makes everything else possible.

use std::time::Duration;

use super::memory::{Life, Phase, Session, Step};
use super::trigger::DISABLED;
use super::types::Effects;
use super::{Effect, JobEvent, JobMachine, StepResult, StopReason};
use crate::job_state::{JobState, ServerState};
use crate::limits;
use crate::path::Place;
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::Node;

/// Earlier sessions have ended long before so many others began.
const SESSIONS_KEPT: usize = 16;

impl JobMachine {
    pub(super) fn session_lost(&mut self, now: Timestamp, out: &mut Effects) {
        self.drop_step(out);
        self.session = None;
        self.unsettle(now);
    }

    /// What was under way has an unknown end; its answer will be ignored.
    fn drop_step(&mut self, out: &mut Effects) {
        match self.step.take().map(|(_, step)| step) {
            None => {}
            Some(Step::Begin(plan)) => plan.items.iter().for_each(|item| self.set_phase(*item, Phase::Unsettled)),
            Some(Step::Release { items, .. }) => self.release_unknown(&items),
            Some(Step::TakeOver { takeovers, .. }) => {
                self.half_taken.extend(takeovers.iter().map(|takeover| takeover.item));
            }
            Some(Step::Reshard(_)) => self.lead.basis = None, // the stored assignment is read again
            // Their outcome shows in the state that is read after a reconnect.
            Some(
                Step::ReadApplied
                | Step::Join { .. }
                | Step::EnableAgain
                | Step::Publish { .. }
                | Step::ConfirmShutdown
                | Step::AnnounceLeave
                | Step::Leave { .. }
                | Step::AdoptTrigger { .. }
                | Step::DropTriggers { .. }
                | Step::Report { .. }
                | Step::Server
                | Step::Tidy
                | Step::ReadLeader { .. }
                | Step::Elect { .. }
                | Step::Abdicate
                | Step::ReadOwners
                | Step::Claim { .. }
                | Step::ReadOwn { .. }
                | Step::Flag
                | Step::AskForItems
                | Step::ReadQueue { .. }
                | Step::ReadPlaces { .. }
                | Step::LeavePlaces { .. }
                | Step::Survey(_)
                | Step::Settle { .. }
                | Step::Abandon { .. }
                | Step::LookAgain
                | Step::ReadLate { .. }
                | Step::ReleaseLate { .. }
                | Step::Mark { .. }
                | Step::ReadMark { .. }
                | Step::Misfire { .. }
                | Step::Trigger
                | Step::Inspect { .. }
                | Step::InspectTaker { .. }
                | Step::ClearMark { .. }
                | Step::FindOrphans { .. }
                | Step::FindLeft { .. }
                | Step::ReadOrphans { .. }
                | Step::SettleTakeovers { .. },
            ) => {}
        }
        self.release_latch(out);
        self.left_queues.append(&mut self.given_back);
    }

    pub(super) fn unsettle(&mut self, since: Timestamp) {
        self.follow.stale = true;
        self.follow.is_routine = false;
        self.follow.reasons += 1;
        self.follow.unsettled_since.get_or_insert(since);
    }

    pub(super) fn session_back(
        &mut self,
        now: Timestamp,
        session: u64,
        timeout: Duration,
        state: JobState,
        out: &mut Effects,
    ) {
        self.drop_step(out);
        let renewed = self.last_session.replace(session) != Some(session);
        if renewed {
            self.sessions.truncate(SESSIONS_KEPT - 1);
            self.sessions.push_front(session);
        }
        self.session = Some(Session { id: session, timeout });
        self.failures = 0;
        self.rests.clear();
        self.latch_wait = None;
        self.pause_until = Timestamp(0);
        self.unsettle(now);
        self.follow.asked = false;
        self.leaderless_since = None;
        self.leader_seen = None; // what waited while we were cut off did not wait for the leader
        if renewed {
            self.left_queues.clear(); // gone with the session
            // Our `failover` too; whether `failovering` is still ours, and superseded, is looked at.
            self.orphans.extend(std::mem::take(&mut self.abandoned).into_keys());
            self.cut.values_mut().for_each(|taken| *taken = false);
            self.claimed.clear();
            self.comparison.session_renewed();
            self.has_announced_leave = false;
        }
        if renewed && self.life == Life::Joined {
            self.life = Life::Joining;
            // Others may have begun the firing that waits: it is known when the items are read.
            self.follow.hold_until = self.follow.hold_until.map(|_| now + limits::SHARDING_WAIT);
        }
        self.take_view(now, state, out);
        if self.life == Life::Waiting {
            self.life = Life::Joining;
            self.schedule.floor = now;
        }
        self.bereaved.insert(String::new());
    }

    pub(super) fn reloaded(&mut self, now: Timestamp, state: JobState, out: &mut Effects) {
        if self.session.is_some() {
            let is_routine = !self.follow.stale || self.follow.is_routine;
            self.unsettle(now);
            self.follow.is_routine = is_routine;
            if self.config_refused {
                self.config_read = None; // what it lacked may be there now, as a file that it names
            }
            self.take_view(now, state, out);
        }
    }

    fn take_view(&mut self, now: Timestamp, state: JobState, out: &mut Effects) {
        let old = std::mem::replace(&mut self.state, state);
        for id in old.instances.keys().filter(|id| !self.state.is_live(id)) {
            self.java_servers.extend(old.java.get(id).cloned());
            self.gone.insert(id.clone(), now);
            self.bereaved.insert(id.clone());
        }
        let kept: Vec<String> = self.gone.keys().filter(|id| self.state.is_live(id)).cloned().collect();
        self.gone.retain(|id, _| !kept.contains(id));
        if !self.lead.kept.is_empty() {
            self.lead.kept.clear();
            self.lead.basis = None;
        }
        if old.processing.is_some() && self.state.processing.is_none() {
            self.look_at_owners_later(now);
        }
        self.refresh_config(now, out);
        self.tell_disabled(out);
        self.orphans.extend(self.state.failover_items.iter().copied());
        // What was seen of others' marks may be out of date.
        self.blocked.values_mut().for_each(|blocked| blocked.inspect = true);
        if self.state.triggers.contains(self.id()) {
            self.trigger(now, out);
        }
    }

    /// Logs when an operator disables or enables this server.
    pub(super) fn tell_disabled(&mut self, out: &mut Effects) {
        let server = &self.setup.identity.server_ip;
        let Some(state) = self.state.server(server) else { return };
        let is_disabled = state == ServerState::Disabled;
        if self.life == Life::Joined && self.is_disabled_told != is_disabled {
            self.is_disabled_told = is_disabled;
            let (server, everywhere) = (server.clone(), self.is_disabled_everywhere());
            out.push(Effect::Report(JobEvent::ServerSwitched { server, enabled: !is_disabled, everywhere }));
        }
    }

    pub(super) fn before_change(&mut self, now: Timestamp, place: Option<&Place<'_>>, node: Option<&Node>) {
        // A Java leader leaves it while it reshards; a Rust leader creates and deletes it in one transaction.
        if let (Some(Place::Processing), None) = (place, node)
            && self.state.processing.is_some()
        {
            self.look_at_owners_later(now);
        }
        if let (Some(Place::Instance(id)), None) = (place, node)
            && self.state.is_live(id)
        {
            self.gone.insert((*id).to_owned(), now);
            self.bereaved.insert((*id).to_owned());
            self.java_servers.extend(self.state.java.get(*id).cloned());
            self.blocked.values_mut().for_each(|blocked| blocked.inspect = true);
        }
    }

    pub(super) fn after_change(
        &mut self,
        now: Timestamp,
        place: Option<&Place<'_>>,
        node: Option<&Node>,
        out: &mut Effects,
    ) {
        match place {
            Some(Place::Config) => self.refresh_config(now, out),
            Some(Place::Necessary | Place::Processing) => match node {
                Some(node) => {
                    // Their clock shows which firings were held, if it is near ours.
                    let near = node.created.since(now).max(now.since(node.created)) < Duration::from_secs(1);
                    let since = if near { node.created.min(now) } else { now };
                    self.follow.unsettled_since.get_or_insert(since);
                }
                None => self.unsettle(now),
            },
            // Our own that is gone: we were shut down, or the session is over and we are about to learn it; the rule
            // `confirm_shutdown` asks which.
            Some(Place::Instance(id)) if node.is_some() => {
                self.gone.remove(*id);
            }
            Some(Place::ItemDisabled(item)) => {
                if node.is_none() && self.left_behind.remove(item) {
                    self.orphans.insert(*item);
                    if !self.items.contains_key(item) && !self.claimed.contains(item) {
                        self.unwatch(vec![self.path.item_disabled(*item)], out);
                    }
                }
                if let Some(own) = self.items.get_mut(item) {
                    if own.disabled != node.is_some() {
                        out.report(JobEvent::ItemSwitched { item: *item, enabled: node.is_none() });
                    }
                    let was_disabled = std::mem::replace(&mut own.disabled, node.is_some());
                    if was_disabled && !own.disabled {
                        self.enabled.insert(*item);
                        self.orphans.extend(self.state.failover_items.get(item));
                        self.blocked.entry(*item).and_modify(|blocked| blocked.inspect = true);
                    }
                    if own.disabled && std::mem::take(&mut own.triggered) {
                        out.report(JobEvent::TriggerDropped { items: vec![*item], reason: DISABLED });
                    }
                }
            }
            Some(Place::ItemFailover(item)) => {
                if node.is_none() {
                    if self.left_behind.remove(item) || self.state.failover_items.contains(item) {
                        self.orphans.insert(*item);
                    }
                    if !self.items.contains_key(item) && !self.claimed.contains(item) {
                        self.unwatch(vec![self.path.item_failover(*item)], out);
                    }
                }
                if let Some(item) = self.items.get_mut(item) {
                    item.taken_by = node.map(Node::text);
                    item.taken_at = node.map(|n| n.created).unwrap_or_default();
                    item.taken_in = node.map(|n| n.owner).unwrap_or_default();
                }
            }
            Some(Place::ItemRunning(item)) if node.is_none() => {
                self.blocked.remove(item);
                self.lead.forced |= self.lead.kept.remove(item);
                if self.state.failover_items.contains(item) {
                    self.orphans.insert(*item);
                }
                self.unwatch(vec![self.path.item_running(*item)], out);
            }
            Some(Place::ItemTrigger(item, _)) if node.is_some() && self.items.contains_key(item) => {
                self.follow.triggered_at.get_or_insert(now);
            }
            Some(Place::FailoverItem(item)) if node.is_some() => drop(self.orphans.insert(*item)),
            Some(Place::Trigger(id)) if node.is_some() && *id == self.id() => self.trigger(now, out),
            _ => {}
        }
    }

    /// Rule: an own instance node that is gone means "shut down" only while our session lives, which an answer shows.
    pub(super) fn confirm_shutdown(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if self.life != Life::Joined || !self.gone.contains_key(self.id()) || self.state.is_live(self.id()) {
            return false;
        }
        let query = Query::Node(self.path.instance(self.id()));
        self.read(Step::ConfirmShutdown, vec![query], out)
    }

    pub(super) fn shutdown_confirmed(&mut self, now: Timestamp, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        match answers.first().and_then(Answer::node) {
            Some(node) => {
                let (path, at) = (self.path.clone(), self.path.instance(self.id()));
                self.state.apply(&path, &at, Some(node.clone()));
                self.gone.remove(&self.setup.identity.id);
            }
            None => self.shut_down_by_operator(now, out),
        }
    }

    fn shut_down_by_operator(&mut self, now: Timestamp, out: &mut Effects) {
        out.report(JobEvent::ShutDownByOperator);
        self.leave_by_operator(now);
    }

    pub(super) fn leave_by_operator(&mut self, now: Timestamp) {
        self.stop(now + Duration::from_secs(30));
        self.is_shut_down = true;
        self.schedule.next_due = None;
        self.gone.remove(&self.setup.identity.id);
    }

    pub(super) fn clock_checked(&mut self, difference: Duration, out: &mut Effects) {
        if let Some(limit) = self.config.as_ref().and_then(|c| c.max_time_diff)
            && difference > limit
        {
            out.report(JobEvent::ClockOff { difference, limit });
        }
    }

    pub(super) fn stop(&mut self, deadline: Timestamp) {
        match self.life {
            Life::Left => {}
            // A second stop can only shorten it.
            Life::Leaving { deadline: first } => self.life = Life::Leaving { deadline: first.min(deadline) },
            Life::Waiting | Life::Joining | Life::Joined => {
                self.life = Life::Leaving { deadline };
            }
        }
    }

    /// Leaves without a connection: what is ours in the registry ends with the session.
    pub(super) fn leave_offline(&mut self, now: Timestamp, out: &mut Effects) {
        if let Life::Leaving { deadline } = self.life
            && (now >= deadline || !self.busy.values().any(|b| b.phase == Phase::Running))
        {
            self.left(self.leave_reason(), out);
        }
    }

    pub(super) fn left(&mut self, reason: StopReason, out: &mut Effects) {
        self.life = Life::Left;
        self.step = None;
        self.release_latch(out);
        out.report(JobEvent::Left { instance: self.id().to_owned() });
        out.push(Effect::Stop(reason));
    }
}
