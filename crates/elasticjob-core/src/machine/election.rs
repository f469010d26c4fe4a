//! Who leads (Java: `LeaderService`, `ElectionListenerManager`). Elections happen only below the latch: a Java winner
//! replaces whatever was created outside of it.

use std::time::Duration;

use super::memory::{Lead, Life, Purpose, StandIn, Step};
use super::types::Effects;
use super::{Effect, JobEvent, JobMachine, StepResult};
use crate::job_state::ServerState;
use crate::limits;
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op};

impl JobMachine {
    /// Whether this very session leads. The text alone may be of a former life.
    pub(super) fn is_leader(&self) -> bool {
        let session = self.session_id();
        self.state.leader.as_ref().is_some_and(|n| session != 0 && n.owner == session && n.is(self.id()))
    }

    /// Rule: runs for election if no instance leads, or if the leader is gone.
    pub(super) fn elect(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if !self.is_available() {
            self.leader_odd_since = None;
            self.leaderless_since = None;
        }
        if !self.is_available() || !self.needs_leader(now) {
            if self.latch.as_ref().is_some_and(|l| l.purpose == Purpose::Election) {
                self.release_latch(out);
            }
            return false;
        }
        if self.latch.is_none() {
            self.ask_latch(now, Purpose::Election, out);
            return false;
        }
        let Some(latch) = self.held_latch(Purpose::Election) else { return false };
        if self.state.leader.is_some() {
            // The state lags: the previous holder of the latch may be the leader by now.
            let query = Query::Node(self.path.leader_instance());
            return self.read(Step::ReadLeader { latch }, vec![query], out);
        }
        self.stand(latch, out)
    }

    pub(super) fn leader_read(&mut self, now: Timestamp, latch: String, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else {
            self.release_latch(out);
            return self.look_again(now, out);
        };
        self.state.leader = answers.first().and_then(Answer::node).cloned();
        if self.is_available() && self.needs_leader(now) {
            self.stand(latch, out);
        } else {
            self.release_latch(out);
        }
    }

    fn stand(&mut self, latch: String, out: &mut Effects) -> bool {
        let mut ops = vec![Op::delete(latch.clone())];
        if let Some(node) = &self.state.leader {
            ops.push(Op::Delete { path: self.path.leader_instance(), version: Some(node.version) });
        }
        ops.push(Op::ephemeral(self.path.leader_instance(), self.id()));
        self.commit(Step::Elect { latch }, ops, out)
    }

    fn needs_leader(&mut self, now: Timestamp) -> bool {
        let Some(node) = &self.state.leader else {
            self.leader_odd_since = None;
            return now >= *self.leaderless_since.get_or_insert(now) + self.candidacy_wait();
        };
        self.leaderless_since = None;
        let id = String::from_utf8_lossy(&node.data);
        if self.leader_seen.is_none_or(|(czxid, _)| czxid != node.czxid) {
            self.leader_seen = Some((node.czxid, now));
        }
        if id == self.id() {
            self.leader_odd_since = None;
            return node.owner != self.session_id();
        }
        if self.state.is_live(&id) {
            self.leader_odd_since = None;
            return self.is_kept_waiting(now);
        }
        let since = *self.leader_odd_since.get_or_insert(now);
        now >= since + limits::LEADER_UNREGISTERED
    }

    /// How long the job must be without a leader before this instance runs for election. The first instances by their ids do so
    /// immediately, the others in groups that double: each place in the latch's queue is an event for every instance of the job.
    pub(super) fn candidacy_wait(&self) -> Duration {
        if self.config_refused && !self.is_alone() {
            return limits::REFUSER_WAIT;
        }
        let rank = self.state.instances.keys().position(|id| id == self.id()).unwrap_or_default();
        (rank / limits::CANDIDATES).checked_ilog2().map_or(Duration::ZERO, |group| limits::CANDIDATE_WAIT * (group + 1))
    }

    /// Whether a firing of ours has waited for so long for the leader's resharding that another one must do it.
    fn is_kept_waiting(&self, now: Timestamp) -> bool {
        let waits = self.state.necessary.is_some() || self.state.processing.is_some();
        let had_time = self.leader_seen.is_some_and(|(_, since)| since + limits::LEADER_WAIT <= now);
        // An instance that cannot reshard does not become the leader.
        waits && had_time && self.desired(now).is_some() && self.follow.depose_at().is_some_and(|at| at <= now)
    }

    pub(super) fn elect_done(&mut self, now: Timestamp, latch: &str, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Committed { zxid } => {
                self.latch = None; // its node went with the transaction
                let deposed = self.state.leader_id().filter(|id| self.state.is_live(id) && id != self.id());
                self.state.leader = Some(Node::new(self.id(), zxid, self.session_id(), now));
                self.leader_odd_since = None;
                self.leaderless_since = None;
                let others = || self.state.available().iter().cloned().collect();
                let stands_in_for =
                    self.config_refused.then(|| StandIn { others: others(), until: now + limits::STAND_IN });
                self.lead = Lead { stands_in_for, ..Lead::default() };
                self.look_at_owners_later(now);
                out.0.extend(deposed.map(|leader| Effect::Report(JobEvent::Deposed { leader })));
                out.report(JobEvent::Elected);
            }
            StepResult::Refused(_) | StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                debug_assert!(self.latch.as_ref().is_none_or(|l| l.node.as_deref() == Some(latch)));
                self.release_latch(out);
                self.look_again(now, out);
            }
        }
    }

    /// Rule: deletes places in latch queues that remained when the connection broke and the session lived on. All other instances
    /// would wait for them.
    pub(super) fn leave_queues(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let Some(path) = self.left_queues.first().cloned() else { return false };
        self.release_latch(out);
        self.read(Step::ReadQueue { path: path.clone() }, vec![Query::Children(path)], out)
    }

    pub(super) fn queue_read(&mut self, now: Timestamp, path: &str, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return self.pause(now) };
        let names = answers[0].children().to_vec();
        if names.is_empty() {
            self.left_queues.remove(path);
            return;
        }
        let queries = names.iter().map(|name| Query::Node(format!("{path}/{name}"))).collect();
        self.read(Step::ReadPlaces { path: path.to_owned(), names }, queries, out);
    }

    pub(super) fn places_read(&mut self, path: &str, names: &[String], result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        let session = self.session_id();
        let ours = names.iter().zip(&answers).filter(|(_, a)| a.node().is_some_and(|n| n.owner == session));
        let ops: Vec<Op> = ours.map(|(name, _)| Op::delete(format!("{path}/{name}"))).collect();
        if ops.is_empty() {
            self.left_queues.remove(path);
        } else {
            self.commit(Step::LeavePlaces { path: path.to_owned() }, ops, out);
        }
    }

    pub(super) fn places_left(&mut self, now: Timestamp, path: &str, result: StepResult) {
        if matches!(result, StepResult::Committed { .. }) {
            self.left_queues.remove(path);
        } else {
            self.pause(now);
        }
    }

    /// Whether no other instance could lead.
    pub(super) fn is_alone(&self) -> bool {
        self.state.available().iter().all(|id| id == self.id())
    }

    /// Rule: a leader abdicates when its server is disabled, or when it rejected the stored configuration and another instance may
    /// support it.
    pub(super) fn abdicate(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if self.life != Life::Joined || !self.is_leader() {
            return false;
        }
        let server = self.state.server(&self.setup.identity.server_ip);
        let is_disabled = !self.is_available() && server == Some(ServerState::Disabled);
        let refuses = self.config_refused && self.another_may_lead(now);
        if !is_disabled && !refuses {
            return false;
        }
        let ops = vec![Op::delete(self.path.leader_instance())];
        self.commit(Step::Abdicate, ops, out)
    }

    /// Whether an instance may support the configuration that this leader rejected: one that joined later, or any after a while.
    fn another_may_lead(&mut self, now: Timestamp) -> bool {
        let available = self.state.available();
        if let Some(stands_in) = &mut self.lead.stands_in_for {
            stands_in.others.retain(|id| available.contains(id));
        }
        let stands_in = self.lead.stands_in_for.as_ref().filter(|stands_in| now < stands_in.until);
        let had_its_chance = |id: &String| stands_in.is_some_and(|stands_in| stands_in.others.contains(id));
        available.iter().any(|id| id != self.id() && !had_its_chance(id))
    }

    pub(super) fn abdicate_done(&mut self, result: StepResult, out: &mut Effects) {
        if matches!(result, StepResult::Committed { .. } | StepResult::Refused(_)) {
            self.state.leader = None;
            self.lead = Lead::default();
            out.report(JobEvent::Abdicated);
        }
    }
}
