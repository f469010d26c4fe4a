//! Joining and leaving (Java: `SetUpFacade`, `JobScheduler`, `SchedulerFacade.shutdownInstance`).

use std::collections::BTreeSet;
use std::time::Duration;

use super::memory::{Busy, Life, Mark, Namesake, Phase, Step};
use super::types::Effects;
use super::{Effect, JobEvent, JobMachine, StepResult, StopReason};
use crate::config::JobConfig;
use crate::job_state::ServerState;
use crate::limits;
use crate::time::Timestamp;
use crate::tree::{Node, Op, Reason};
use crate::wire::{Difference, JobDocument, Overwrite, instance_text};

/// An instance node of another session is that of a former life until its session has ended, and this much longer.
const NAMESAKE_SLACK: Duration = Duration::from_secs(2);

impl JobMachine {
    /// Rule: registers this instance. Configuration, server and instance go in one transaction, in Java's order: its
    /// instances must never see an instance without its server.
    pub(super) fn join(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if self.life != Life::Joining {
            return false;
        }
        if self.is_removed() {
            out.report(JobEvent::Removed);
            self.leave_by_operator(now);
            return true;
        }
        let stored = self.state.root.as_ref().map(|n| n.text()).unwrap_or_default();
        if !stored.is_empty() && stored != self.setup.class {
            let reason = format!(
                "the registry has a job of this name with another class or job type: stored `{stored}`, this start `{}`; use another job \
                 name, or remove the stored job with `elasticjob job remove`",
                self.setup.class
            );
            self.left(StopReason::Refused(reason), out);
            return true;
        }
        if self.read_applied(out) {
            return true;
        }
        let mut ops = Vec::new();
        let Ok(effective) = self.config_ops(&mut ops) else {
            return false; // the stored one is broken: said already, and looked at again when it is written
        };
        let wrote = (!ops.is_empty()).then(|| effective.to_yaml());
        let overwrote = match wrote {
            Some(_) => self.overwritten(&effective),
            None => Vec::new(),
        };
        self.applied_ops(&mut ops);
        // Whether the server is enabled follows from the configuration: an operator who disables the job at this moment is not
        // overrun.
        ops.extend(
            self.state
                .config
                .as_ref()
                .filter(|_| wrote.is_none())
                .map(|node| Op::check(self.path.config(), node.version)),
        );
        if !self.setup.one_off && effective.cron.as_deref().unwrap_or_default().is_empty() {
            if self.has_joined {
                return false; // said already
            }
            let reason = format!(
                "`cron` of job `{}` is empty: expected a cron expression, because the job is scheduled",
                self.path.job()
            );
            self.left(StopReason::Refused(reason), out);
            return true;
        }
        let identity = self.setup.identity.clone();
        let registered = self.state.instances.get(&identity.id).map(|node| (node.czxid, node.owner));
        if let Some((czxid, owner)) = registered {
            if owner == self.session_id() {
                self.joined(now, out);
                return false;
            }
            if owner != 0 && !self.sessions.contains(&owner) {
                self.wait_for_namesake(now, czxid, owner, out);
                return false;
            }
        }
        let server = self.server_ops(&effective, &mut ops, out);
        if !self.state.has_instances {
            ops.push(Op::create(self.path.instances(), ""));
        }
        if registered.is_some() {
            ops.push(Op::delete(self.path.instance(&identity.id)));
        }
        let text = instance_text(&identity.id, &identity.server_ip);
        ops.push(Op::ephemeral(self.path.instance(&identity.id), text));
        self.commit(Step::Join { wrote, server, overwrote }, ops, out)
    }

    /// Whether the registry does not contain the job any more. A job that this instance created has no root in its state.
    pub(super) fn is_removed(&self) -> bool {
        self.has_joined && self.state.root.is_none() && self.state.config.is_none()
    }

    /// The instance node of another process has our id. Either its session ends within the timeout, or that process runs.
    fn wait_for_namesake(&mut self, now: Timestamp, czxid: i64, owner: u64, out: &mut Effects) {
        let seen = self.namesake.filter(|seen| seen.czxid == czxid);
        let mut seen = seen.unwrap_or(Namesake { czxid, since: now, is_told: false });
        let patience = self.session.map(|session| session.timeout).unwrap_or_default() + NAMESAKE_SLACK;
        if !seen.is_told && now >= seen.since + patience {
            seen.is_told = true;
            out.report(JobEvent::IdTaken { instance: self.id().to_owned(), session: owner });
        }
        self.namesake = Some(seen);
    }

    /// When it is known that another process with our id lives.
    pub(super) fn namesake_at(&self) -> Option<Timestamp> {
        let timeout = self.session.map(|session| session.timeout).unwrap_or_default();
        self.namesake.filter(|seen| !seen.is_told).map(|seen| seen.since + timeout + NAMESAKE_SLACK)
    }

    /// The operations that make the configuration what it must be, and that configuration.
    fn config_ops(&self, ops: &mut Vec<Op>) -> Result<JobDocument, ()> {
        let class = self.setup.class.as_str();
        let Some(node) = &self.state.config else {
            if self.has_joined {
                return Err(()); // the job was removed: it is not brought back
            }
            match &self.state.root {
                None => ops.push(Op::create(self.path.root(), class)),
                Some(root) if root.data.is_empty() => ops.push(Op::set(self.path.root(), class)),
                Some(_) => {}
            }
            ops.push(Op::create(self.path.config(), self.setup.document.to_yaml()));
            return Ok(self.setup.document.clone());
        };
        let stored = JobDocument::parse(&node.data);
        if self.setup.overwrite == Overwrite::Never || self.has_joined {
            // What `refresh_config` has said of it counts: a change that was refused does not keep us from joining again.
            return match (&self.config, stored) {
                (Some(_), Ok(document)) if !self.config_refused => Ok(document),
                (Some(config), _) => Ok(self.document_of(config)),
                // A first start without cron is reported as such.
                (None, Ok(document))
                    if !self.setup.one_off && document.cron.as_deref().unwrap_or_default().is_empty() =>
                {
                    Ok(document)
                }
                (None, _) => Err(()),
            };
        }
        let document = match &stored {
            Ok(stored) => self.setup.document.overwriting(stored, self.setup.overwrite, self.applied().as_ref()),
            Err(_) => self.setup.document.clone(),
        };
        // What means the same is not written again: another program may have written it in another way.
        if stored.as_ref().ok() != Some(&document) {
            let data = document.to_yaml().into_bytes();
            ops.push(Op::Set { path: self.path.config(), data, version: Some(node.version) });
            if self.state.root.as_ref().is_some_and(|n| n.data.is_empty()) {
                ops.push(Op::set(self.path.root(), class));
            }
        }
        Ok(document)
    }

    /// What joining needs of the configuration in force.
    fn document_of(&self, config: &JobConfig) -> JobDocument {
        let cron = config.cron.as_ref().map(|cron| cron.text().to_owned());
        JobDocument { cron, disabled: config.disabled, ..self.setup.document.clone() }
    }

    /// What an operator disabled stays disabled. The configuration decides where there is no server node, and where this start
    /// itself disables the job. Returns the text that is written into the own server node, if any.
    fn server_ops(&self, effective: &JobDocument, ops: &mut Vec<Op>, out: &mut Effects) -> Option<&'static str> {
        let ip = &self.setup.identity.server_ip;
        let path = self.path.server(ip);
        if !self.state.has_servers {
            ops.push(Op::create(self.path.servers(), ""));
        }
        let stored = self.state.config.as_ref().and_then(|n| JobDocument::parse(&n.data).ok());
        let disables = stored.is_some_and(|s| !s.disabled) && effective.disabled && !self.has_joined;
        let wanted = if effective.disabled { "DISABLED" } else { "ENABLED" };
        match self.state.server(ip) {
            None => ops.push(Op::create(path, wanted)),
            Some(ServerState::Garbled) => ops.push(Op::set(path, wanted)),
            Some(ServerState::Enabled) if disables => ops.push(Op::set(path, wanted)),
            Some(ServerState::Disabled) => {
                out.report(JobEvent::KeptDisabled { server: ip.clone(), everywhere: self.is_disabled_everywhere() });
                return None;
            }
            Some(ServerState::Enabled) => return None,
        }
        Some(wanted)
    }

    pub(super) fn join_done(
        &mut self,
        now: Timestamp,
        wrote: Option<String>,
        server: Option<&'static str>,
        overwrote: Vec<Difference>,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { zxid } => {
                if let Some(text) = wrote {
                    if !overwrote.is_empty() {
                        out.report(JobEvent::Overwrote { differences: overwrote });
                    }
                    self.state.config = Some(Node::new(&text, zxid, 0, now));
                    self.refresh_config(now, out);
                }
                // A firing may fall due before we hear of what we have written ourselves.
                let path = self.path.clone();
                if let Some(text) = server {
                    let server = self.setup.identity.server_ip.clone();
                    if text == "DISABLED" && self.setup.document.disabled {
                        out.report(JobEvent::DisabledByStart { server });
                    } else if text == "DISABLED" {
                        out.report(JobEvent::KeptDisabled { server, everywhere: true });
                    }
                    let at = path.server(&self.setup.identity.server_ip);
                    self.state.apply(&path, &at, Some(Node::new(text, zxid, 0, now)));
                }
                let identity = &self.setup.identity;
                let text = instance_text(&identity.id, &identity.server_ip);
                let node = Node::new(&text, zxid, self.session_id(), now);
                let at = path.instance(&identity.id);
                self.state.apply(&path, &at, Some(node));
                self.joined(now, out);
            }
            StepResult::Refused(_) | StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                self.comparison.applied = None; // another start may have been faster
                self.look_again(now, out);
            }
        }
    }

    /// What this start replaces in the stored configuration.
    fn overwritten(&self, effective: &JobDocument) -> Vec<Difference> {
        let stored = self.state.config.as_ref().and_then(|node| JobDocument::parse(&node.data).ok());
        stored.map(|stored| effective.differences(&stored)).unwrap_or_default()
    }

    fn joined(&mut self, now: Timestamp, out: &mut Effects) {
        self.has_joined = true;
        if self.life != Life::Joining {
            return; // asked to leave meanwhile
        }
        self.life = Life::Joined;
        self.follow.ask_at = Some(now + limits::LEFT_OUT_WAIT);
        let disabled = !self.is_available();
        self.is_disabled_told = self.state.server(&self.setup.identity.server_ip) == Some(ServerState::Disabled);
        out.report(JobEvent::Joined { instance: self.id().to_owned(), next: self.schedule.next_due, disabled });
        self.compare(out);
    }

    /// Rule: brings the own server node back when it vanished while we are alive (Java then writes DISABLED).
    pub(super) fn restore_server(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if self.life != Life::Joined || self.is_available() || !self.state.is_live(self.id()) {
            return false;
        }
        let ip = self.setup.identity.server_ip.clone();
        let op = match self.state.server(&ip) {
            None => Op::create(self.path.server(&ip), "ENABLED"),
            Some(ServerState::Garbled) => Op::set(self.path.server(&ip), "ENABLED"),
            Some(ServerState::Enabled | ServerState::Disabled) => return false,
        };
        self.commit(Step::Server, vec![Op::Ensure(self.path.servers()), op], out)
    }

    pub(super) fn housekeeping_done(&mut self, now: Timestamp, result: StepResult, out: &mut Effects) {
        if !matches!(result, StepResult::Committed { .. }) {
            self.look_again(now, out);
        }
    }

    pub(super) fn enabled_again(&mut self, now: Timestamp, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Committed { .. } => out.report(JobEvent::EnabledAgain),
            // The state may have lagged: an operator is disabling it.
            StepResult::Refused(_) | StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                self.look_again(now, out);
            }
        }
    }

    /// Rule: an instance that leaves while items run here says so, so that the leader reassigns its idle items immediately. It gives
    /// the leadership up with the same transaction.
    pub(super) fn announce_leave(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let is_leaving =
            matches!(self.life, Life::Leaving { .. }) && !self.has_announced_leave && self.cut_off.is_none();
        let registered = self.state.instances.get(self.id()).is_some_and(|n| n.owner == self.session_id());
        if !is_leaving || !registered || self.busy.is_empty() {
            return false;
        }
        let mut ops = vec![
            Op::Ensure(self.path.leader()),
            Op::Ensure(self.path.leaving()),
            Op::ephemeral(self.path.leaving_instance(self.id()), ""),
        ];
        if self.is_leader() {
            ops.push(Op::delete(self.path.leader_instance()));
        }
        self.commit(Step::AnnounceLeave, ops, out)
    }

    pub(super) fn leave_announced(&mut self, now: Timestamp, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Committed { .. } => {
                self.has_announced_leave = true;
                if self.is_leader() {
                    self.state.leader = None;
                    out.report(JobEvent::Abdicated);
                }
            }
            // Of an answer that was lost; or the leadership went at this moment.
            StepResult::Refused(refusal) if refusal.reason == Reason::Exists => self.has_announced_leave = true,
            StepResult::Refused(_) | StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                self.look_again(now, out);
            }
        }
    }

    /// Rule: leaves once nothing runs, or at the deadline.
    pub(super) fn leave(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let Life::Leaving { deadline } = self.life else { return false };
        let has_time = now < deadline && self.cut_off.is_none();
        if !self.busy.is_empty() && (has_time || !self.has_cut_off(now, out)) {
            return false;
        }
        let unsure = |b: &Busy| b.mark == Mark::Ephemeral && b.remarked && b.session != self.session_id();
        if let Some(item) = self.busy.iter().find(|(_, b)| unsure(b)).map(|(item, _)| *item) {
            return self.read_mark(item, out);
        }
        let mut ops = Vec::new();
        if self.state.instances.get(self.id()).is_some_and(|n| n.owner == self.session_id()) {
            ops.push(Op::delete(self.path.instance(self.id())));
        }
        if self.is_leader() {
            ops.push(Op::delete(self.path.leader_instance()));
        }
        let session = self.session_id();
        ops.extend(self.claimed.iter().map(|item| Op::delete(self.path.item_claim(*item, session))));
        // The remaining runs did not react to their cancellation: nothing waits for them any longer.
        let cut = |b: &Busy| b.mark == Mark::Ephemeral && b.session == session && b.phase != Phase::Unsettled;
        let cut_off = self.busy.iter().filter(|(_, b)| cut(b));
        ops.extend(cut_off.map(|(item, _)| Op::delete(self.path.item_running(*item))));
        // Takeovers that were not begun, or cut off: `failovering` stays, so that others find them.
        let failover =
            |item| Op::Delete { path: self.path.item_failover(item), version: Some(super::failover::TAKEN_VERSION) };
        let cut = self.cut.iter().filter(|(_, taken)| **taken).map(|(item, _)| item);
        let deaf = self.busy.iter().filter(|(_, b)| b.taken && b.session == session).map(|(item, _)| item);
        ops.extend(self.taken.keys().chain(cut).chain(deaf).map(|item| failover(*item)));
        if self.is_shut_down && !self.cut.is_empty() && !self.is_removed() {
            // The other instances looked for interrupted runs when the instance node was deleted, and these were still running then.
            let folders =
                [self.path.leader(), self.path.below("leader/failover"), self.path.below("leader/failover/items")];
            ops.extend(folders.into_iter().map(Op::Ensure));
            ops.extend(self.cut.keys().map(|item| Op::Ensure(self.path.failover_item(*item))));
        }
        self.unpublish(&mut ops);
        if self.has_announced_leave {
            ops.push(Op::delete(self.path.leaving_instance(self.id())));
        }
        if ops.is_empty() {
            self.left(self.leave_reason(), out);
            return true;
        }
        self.leave_with(ops, out)
    }

    /// Cancels the remaining runs. Returns `true` once they have ended and were released, or their time is over.
    fn has_cut_off(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if !self.busy.values().any(|b| matches!(b.phase, Phase::Running | Phase::Ended { .. })) {
            return true;
        }
        let since = *self.cut_off.get_or_insert_with(|| {
            out.push(Effect::CutOff);
            now
        });
        since + limits::CUT_OFF <= now
    }

    fn leave_with(&mut self, ops: Vec<Op>, out: &mut Effects) -> bool {
        let part = ops.iter().take(limits::ITEMS_PER_COMMIT).cloned().collect();
        self.commit(Step::Leave { ops }, part, out)
    }

    pub(super) fn leave_reason(&self) -> StopReason {
        if self.is_shut_down { StopReason::ShutDown } else { StopReason::Asked }
    }

    pub(super) fn leave_done(&mut self, now: Timestamp, mut ops: Vec<Op>, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Refused(refusal)
                if matches!(refusal.reason, Reason::Missing | Reason::Version) && ops.len() > 1 =>
            {
                ops.remove(refusal.op);
                self.leave_with(ops, out);
            }
            StepResult::Committed { .. } if ops.len() > limits::ITEMS_PER_COMMIT => {
                ops.drain(..limits::ITEMS_PER_COMMIT);
                self.leave_with(ops, out);
            }
            StepResult::Unknown | StepResult::Failed => self.look_again(now, out),
            StepResult::Committed { .. } | StepResult::Refused(_) | StepResult::Answers(_) => {
                let reason = self.leave_reason();
                self.left(reason, out);
            }
        }
    }

    /// Rule, of the leader: deletes nodes of servers that have no instance, and resets the `disabled` of a configuration whose
    /// servers an operator has enabled.
    pub(super) fn tidy(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if !self.is_leader() || self.is_held() {
            return false;
        }
        let enabled = |ip: &String| self.state.server(ip) == Some(ServerState::Enabled);
        if self.config.as_ref().is_some_and(|c| c.disabled)
            && self.state.servers.keys().all(enabled)
            && let Some(node) = &self.state.config
            && let Ok(mut document) = JobDocument::parse(&node.data)
        {
            document.disabled = false;
            let data = document.to_yaml().into_bytes();
            let mut ops = vec![Op::Set { path: self.path.config(), data, version: Some(node.version) }];
            // An operator may be disabling them at this moment.
            ops.extend(self.state.servers.iter().map(|(ip, node)| Op::check(self.path.server(ip), node.version)));
            return self.commit(Step::EnableAgain, ops, out);
        }
        if self.config.as_ref().is_some_and(|c| !c.failover) && !self.state.failover_items.is_empty() {
            // Requested before failover was switched off: later they would be runs for which nothing waits.
            let items = self.state.failover_items.iter().take(limits::ITEMS_PER_COMMIT);
            let ops = items.map(|item| Op::delete(self.path.failover_item(*item))).collect();
            return self.commit(Step::Tidy, ops, out);
        }
        // This comes at each idle input: a few are compared without a set of their own.
        let mut hosts = self.state.instances.keys().filter_map(|id| id.split("@-@").next());
        let is_large = self.state.servers.len() * self.state.instances.len() > COMPARED_MAX;
        let set: BTreeSet<&str> = if is_large { hosts.by_ref().collect() } else { BTreeSet::new() };
        let is_dead = |ip: &&String| {
            let lives = if is_large { set.contains(ip.as_str()) } else { hosts.clone().any(|host| host == *ip) };
            !lives && enabled(ip)
        };
        let dead: BTreeSet<String> = self.state.servers.keys().filter(is_dead).cloned().collect();
        self.servers_dead_since.retain(|ip, _| dead.contains(ip));
        for ip in &dead {
            self.servers_dead_since.entry(ip.clone()).or_insert(now);
        }
        let old = self.servers_dead_since.iter().find(|(_, since)| **since + SERVER_REST <= now);
        let Some((ip, _)) = old.map(|(ip, since)| (ip.clone(), *since)) else { return false };
        self.servers_dead_since.remove(&ip);
        let Some(node) = self.state.servers.get(&ip) else { return false };
        if !self.state.java.is_empty() || self.java_servers.contains(&ip) {
            // A Java instance that was cut off would write the missing node as `DISABLED` when it is back.
            return false;
        }
        let op = Op::Delete { path: self.path.server(&ip), version: Some(node.version) };
        out.push(Effect::Report(JobEvent::RemovedServer { server: ip }));
        self.commit(Step::Tidy, vec![op], out)
    }

    pub(super) fn tidy_at(&self) -> Option<Timestamp> {
        self.servers_dead_since.values().min().map(|since| *since + SERVER_REST)
    }
}

/// Servers times instances that are compared one by one.
const COMPARED_MAX: usize = 1_000;
/// How long a server may be without an instance before its node goes: a restart of the process must not lose it.
const SERVER_REST: Duration = Duration::from_secs(600);
