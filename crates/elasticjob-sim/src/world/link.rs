//! The way between a process and the registry: latency, order, cuts, sessions, answers that are lost or late.

use std::time::Duration;

use elasticjob_core::job_state::JobState;
use elasticjob_core::machine::{Effect, Input, StepResult};
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Op;

use super::{Happening, News, Parcel, Request, World};
use crate::Defect;
use crate::java::Reply;

impl World {
    pub(super) fn latency(&mut self) -> Duration {
        // Now and then something is slow: a collection of garbage, a packet sent twice.
        let slow = self.options.slow_requests && self.chance.below(25) == 0;
        Duration::from_millis(if slow { self.chance.between(50, 700) } else { self.chance.between(0, 4) })
    }

    /// The process connects: with its session if that lives, else with a new one.
    pub(super) fn connect(&mut self, index: usize, life: u64) {
        let process = &self.processes[index];
        if !process.is_up() || process.life != life || process.connected {
            return;
        }
        // A paused process does not connect, and none does while the connection or the registry is down.
        let ways = [process.mute_until, process.deaf_until, process.cut_until];
        let blocked = ways.into_iter().chain([process.paused_until, self.registry_down_until]);
        let free = blocked.max().unwrap_or(self.now);
        if free > self.now {
            let at = free + Duration::from_millis(self.chance.between(0, 200));
            return self.plan(at, Happening::Connect { process: index, life });
        }
        if process.unaware {
            return self.plan(self.now + Duration::from_millis(1), Happening::Connect { process: index, life });
        }
        let former = self.processes[index].session;
        let renewed = !self.tree.has_session(former);
        if self.processes[index].java {
            // Curator starts over: its old places go.
            for place in std::mem::take(&mut self.processes[index].latches).into_values() {
                let _ = self.transact(former, &[Op::delete(place.node)]);
            }
        }
        let session = if renewed { self.tree.open_session() } else { former };
        let (now, latency) = (self.now, self.latency());
        let process = &mut self.processes[index];
        process.session = session;
        process.connected = true;
        process.link += 1;
        process.heard = now;
        process.served = now;
        process.answered = now + latency;
        process.latches.clear();
        process.watched = process.wanted.clone();
        process.unread.clear();
        process.loading = true;
        let (at, link) = (process.answered, process.link);
        self.plan(at, Happening::Load { process: index, link, first: None, renewed });
    }

    /// Reads the state in two requests, as the runtime does; what changes in the meantime is read again afterwards.
    pub(super) fn load(&mut self, index: usize, link: u64, first: Option<Vec<Answer>>, renewed: bool) {
        if self.processes[index].link != link || !self.processes[index].connected {
            return;
        }
        if let Some(at) = self.hindrance(index) {
            return self.plan(at, Happening::Load { process: index, link, first, renewed });
        }
        if self.processes[index].java {
            self.processes[index].loading = false;
            return self.java_connected(index, renewed);
        }
        let Some(first) = first else {
            let first = JobState::first_queries(&self.path).iter().map(|q| self.answer(q)).collect();
            let at = self.now + self.latency();
            return self.plan(at, Happening::Load { process: index, link, first: Some(first), renewed });
        };
        let state = Box::new(self.second_half(&first));
        let (session, timeout) = (self.processes[index].session, self.options.session_timeout);
        self.deliver(index, self.now, Parcel::Input(Box::new(Input::SessionBack { session, timeout, state })));
        self.read_again(index);
    }

    pub(super) fn second_half(&self, first: &[Answer]) -> JobState {
        let second = JobState::second_queries(&self.path, first);
        let second: Vec<(Query, Answer)> = second.into_iter().map(|q| (q.clone(), self.answer(&q))).collect();
        JobState::build(&self.path, first, &second)
    }

    /// What changed while the state was read is read afterwards.
    pub(super) fn read_again(&mut self, index: usize) {
        self.processes[index].loading = false;
        let link = self.processes[index].link;
        let at = self.processes[index].answered;
        for path in std::mem::take(&mut self.processes[index].unread) {
            self.processes[index].unread.insert(path.clone());
            self.plan(at, Happening::Fetch { process: index, link, path });
        }
    }

    /// Until when nothing passes between this process and the registry, as the registry answers.
    fn hindrance(&self, index: usize) -> Option<Timestamp> {
        let process = &self.processes[index];
        Some(process.mute_until.max(process.deaf_until)).filter(|until| *until > self.now)
    }

    /// The link breaks, as the process sees it.
    pub(super) fn disconnect(&mut self, index: usize, back_after: Duration) {
        self.not_heard(index);
        let process = &mut self.processes[index];
        if !process.is_up() {
            return;
        }
        let life = process.life;
        if process.connected {
            process.connected = false;
            process.loading = false;
            process.unaware = true;
            self.learn(index, News::Lost);
        }
        let process = &mut self.processes[index];
        process.cut_until = process.cut_until.max(self.now + back_after);
        self.plan(self.now + back_after, Happening::Connect { process: index, life });
    }

    /// Sends a process an input, immediately or when it continues; whether before or after its own step is random.
    pub(super) fn learn(&mut self, index: usize, news: News) {
        let process = &self.processes[index];
        if process.paused_until > self.now {
            let (at, life) = (process.paused_until, process.life);
            let at = at + Duration::from_millis(if self.chance.below(2) == 0 { 0 } else { 15 });
            return self.plan(at, Happening::Learn { process: index, life, news });
        }
        match news {
            News::Input(input) => self.input(index, *input),
            News::Lost => {
                self.processes[index].unaware = false;
                if self.processes[index].java {
                    self.java_lost(index);
                } else {
                    // A request for a place is answered with none, before the machine is notified of the broken connection.
                    for id in std::mem::take(&mut self.processes[index].asked) {
                        self.input(index, Input::Latched(id, None));
                    }
                    self.input(index, Input::SessionLost);
                }
            }
            News::Stop => self.java_stop(index),
        }
    }

    /// From now on the registry does not hear of this process: its session ends unless that changes.
    pub(super) fn not_heard(&mut self, index: usize) {
        let (now, timeout) = (self.now, self.options.session_timeout);
        let process = &mut self.processes[index];
        if process.is_heard(now) {
            process.heard = now;
        }
        let (session, at) = (process.session, process.heard + timeout);
        if session != 0 {
            self.plan(at, Happening::Expire { process: index, session });
        }
    }

    /// The process has heard nothing for two thirds of the timeout: it gives the link up, unless it works again.
    pub(super) fn notice(&mut self, index: usize, link: u64) {
        let process = &self.processes[index];
        if process.link != link || !process.connected {
            return;
        }
        if process.paused_until > self.now {
            let at = process.paused_until;
            return self.plan(at, Happening::Notice { process: index, link });
        }
        if process.mute_until.max(process.deaf_until) > self.now {
            self.disconnect(index, Duration::from_millis(50));
        }
    }

    /// The registry's clock for a session has expired, unless it received a heartbeat in the meantime.
    pub(super) fn expire(&mut self, index: usize, session: u64) {
        if !self.tree.has_session(session) {
            return;
        }
        let process = &self.processes[index];
        let timeout = self.options.session_timeout;
        if process.session == session {
            if process.is_heard(self.now) && self.registry_down_until <= self.now {
                return; // it is back in time
            }
            // A new leader of the registry counts from its own beginning.
            let due = process.heard.max(self.registry_down_until) + timeout;
            if due > self.now {
                return self.plan(due, Happening::Expire { process: index, session });
            }
        }
        self.end_session(session);
        // One that was not heard of but is connected learns it when it speaks again.
        if self.processes[index].session == session && self.processes[index].connected {
            let free = self.processes[index].mute_until.max(self.processes[index].paused_until);
            let link = self.processes[index].link;
            self.plan(free, Happening::Deliver { process: index, link, asked: self.now, parcel: Parcel::Connected });
        }
    }

    pub(super) fn send(&mut self, index: usize, request: Request) {
        let latency = self.latency();
        let process = &mut self.processes[index];
        if !process.connected {
            return;
        }
        self.requests += 1;
        if matches!(request, Request::Ours(Effect::Commit(..) | Effect::Read(..))) {
            process.row = if process.is_answered { process.row + 1 } else { 1 };
            if process.longest_row.is_none_or(|(_, longest)| longest < process.row) {
                process.longest_row = Some((self.now, process.row));
            }
        }
        if let Request::Ours(Effect::Latch(id, _)) = &request {
            process.asked.insert(*id);
        }
        process.served = process.served.max(self.now + latency);
        let (at, link, asked) = (process.served, process.link, self.now);
        self.plan(at, Happening::Serve { process: index, link, asked, request });
    }

    pub(super) fn deliver(&mut self, index: usize, asked: Timestamp, parcel: Parcel) {
        let at = self.now + self.latency();
        let process = &mut self.processes[index];
        process.answered = process.answered.max(at);
        let (at, link) = (process.answered, process.link);
        self.plan(at, Happening::Deliver { process: index, link, asked, parcel });
    }

    /// Something comes to the process, unless its link is another one by now.
    pub(super) fn arrive(&mut self, index: usize, link: u64, asked: Timestamp, parcel: Parcel) {
        let process = &self.processes[index];
        if process.link != link || !process.connected {
            return;
        }
        if process.deaf_until.max(process.paused_until) > self.now {
            let at = process.deaf_until.max(process.paused_until);
            return self.plan(at, Happening::Deliver { process: index, link, asked, parcel });
        }
        match parcel {
            // The registry says that the session is over.
            Parcel::Connected => self.disconnect(index, Duration::ZERO),
            Parcel::Reply(ask, reply) => self.reply(index, ask, reply),
            Parcel::Changed(path, node) => self.java_changed(index, path, node),
            Parcel::Input(input) => {
                if let Input::Latched(id, _) = &*input {
                    self.processes[index].asked.remove(id);
                }
                let input = match *input {
                    // What comes back too late may be of a session that is over: its outcome is not known any more.
                    Input::Done(id, StepResult::Committed { .. })
                        if self.now.since(asked) > self.options.session_timeout * 2 / 3
                            && self.options.defect != Some(Defect::LateAnswerCounts) =>
                    {
                        Input::Done(id, StepResult::Unknown)
                    }
                    input => input,
                };
                self.input(index, input);
            }
        }
    }

    /// The registry carries a request out.
    pub(super) fn serve(&mut self, index: usize, link: u64, asked: Timestamp, request: Request) {
        let process = &self.processes[index];
        let (session, current) = (process.session, process.link);
        let broken = link != current || !process.connected;
        if !broken && process.mute_until > self.now {
            let at = process.mute_until;
            return self.plan(at, Happening::Serve { process: index, link, asked, request });
        }
        if broken {
            // A request in transit when the connection broke may still arrive, but never after a new connection.
            let arrives = self.chance.below(2) == 0 && link == current && self.tree.has_session(session);
            match request {
                Request::Ours(Effect::Commit(_, ops)) | Request::Commit(_, ops) if arrives => {
                    self.processes[index].heard = self.now;
                    let _ = self.transact(session, &ops);
                }
                Request::Ours(Effect::Latch(_, path)) if arrives => {
                    self.processes[index].heard = self.now;
                    self.get_in_line(index, session, &path);
                }
                _ => {}
            }
            return;
        }
        if !self.tree.has_session(session) {
            return;
        }
        // What was held up on its way is heard too, though its sender stand still by now.
        self.processes[index].heard = self.now;
        match request {
            Request::Ours(effect) => self.serve_ours(index, session, asked, effect),
            Request::Commit(ask, ops) => {
                let result = self.transact(session, &ops);
                self.deliver(index, asked, Parcel::Reply(ask, Reply::Done(result)));
            }
            Request::Read(ask, query) => {
                let answer = self.answer(&query);
                self.deliver(index, asked, Parcel::Reply(ask, Reply::Answer(answer)));
            }
            Request::Latch(ask, path) => self.latch(index, ask, &path),
            Request::Unlatch(ask) => self.unlatch(index, ask),
        }
    }

    fn serve_ours(&mut self, index: usize, session: u64, asked: Timestamp, effect: Effect) {
        let done = |id, result| Parcel::Input(Box::new(Input::Done(id, result)));
        match effect {
            Effect::Commit(id, ops) => {
                let result = match self.transact(session, &ops) {
                    Ok(zxid) => StepResult::Committed { zxid },
                    Err(refusal) => StepResult::Refused(refusal),
                };
                self.deliver(index, asked, done(id, result));
            }
            Effect::Read(id, queries) => {
                let answers = queries.iter().map(|q| self.answer(q)).collect();
                self.deliver(index, asked, done(id, StepResult::Answers(answers)));
            }
            Effect::Reload => {
                // Both halves at one moment here; a connection's first state is read in two.
                let first: Vec<Answer> = JobState::first_queries(&self.path).iter().map(|q| self.answer(q)).collect();
                let state = Box::new(self.second_half(&first));
                self.deliver(index, asked, Parcel::Input(Box::new(Input::Reloaded(state))));
            }
            Effect::Latch(id, path) => self.latch(index, id.0, &path),
            Effect::Unlatch(id, node) => {
                self.unlatch(index, id.0);
                if let Some(node) = node {
                    let _ = self.transact(session, &[Op::delete(node)]);
                }
            }
            Effect::Watch(paths) => {
                for path in
                    paths.into_iter().filter(|path| self.processes[index].wanted.contains(path)).collect::<Vec<_>>()
                {
                    self.processes[index].watched.insert(path.clone());
                    let node = self.tree.get(&path).cloned();
                    self.deliver(index, asked, Parcel::Input(Box::new(Input::Changed(vec![(path, node)]))));
                }
            }
            Effect::Unwatch(_)
            | Effect::CheckClock
            | Effect::Run(_)
            | Effect::CutOff
            | Effect::Report(_)
            | Effect::Stop(_) => {}
        }
    }
}
