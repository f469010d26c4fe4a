//! The contents of a process: a machine of this implementation whose effects are executed, or a Java-like peer.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::ConfigError;
use elasticjob_core::machine::{
    ConfigCheck, Effect, EndedItem, Identity, Input, ItemEnd, JobEvent, JobMachine, RunId, RunItem, Setup, Source,
};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Node;
use elasticjob_core::wire::Overwrite;

use super::{BegunItem, Body, Happening, Parcel, Request, World};
use crate::java::{Ask, Peer, Reply};
use crate::{Defect, Entry, Told, planted};

impl World {
    pub(super) fn start(&mut self, index: usize) {
        if self.processes[index].is_up() {
            return;
        }
        let process = &mut self.processes[index];
        let server_ip = format!("10.0.0.{}", index + 1);
        process.id = format!("{server_ip}@-@{}", 100 + self.order);
        process.wanted.clear();
        process.watched.clear();
        process.session = 0;
        process.connected = false;
        process.unaware = false;
        process.asked.clear();
        process.life += 1;
        process.is_cut_off = false;
        process.paused_until = Timestamp(0);
        process.stuck_until = Timestamp(0);
        if process.clock != 0 {
            self.off.insert(process.id.clone());
        }
        let process = &self.processes[index];
        let (java, life) = (process.java, process.life);
        let document = self.options.document.clone();
        if java {
            self.java_ids.insert(self.processes[index].id.clone());
            let peer = Peer::new(document, self.processes[index].id.clone(), server_ip, self.now);
            self.processes[index].body = Body::Java(Box::new(peer));
        } else {
            let setup = Setup {
                document,
                overwrite: Overwrite::Never,
                class: "SCRIPT".into(),
                one_off: false,
                identity: Identity { id: self.processes[index].id.clone(), server_ip },
                check: if self.options.refuser == Some(index) { refusing() } else { ConfigCheck::default() },
            };
            let machine = JobMachine::new(setup, Arc::clone(&self.context));
            self.processes[index].body = Body::Ours(Box::new(machine));
        }
        self.plan(self.now, Happening::Connect { process: index, life });
    }

    /// The process is no more.
    pub(super) fn end(&mut self, index: usize) {
        self.not_heard(index);
        let process = &mut self.processes[index];
        process.body = Body::Down;
        process.connected = false;
        process.unaware = false;
        process.runs.clear();
        process.life += 1;
    }

    fn local(&self, index: usize) -> Timestamp {
        Timestamp(self.now.0 + self.processes[index].clock)
    }

    pub(super) fn wake(&mut self, index: usize) {
        if self.processes[index].paused_until > self.now {
            let (at, life) = (self.processes[index].paused_until, self.processes[index].life);
            return self.plan(at, Happening::Wake { process: index, life });
        }
        self.input(index, Input::Woke);
    }

    pub(super) fn input(&mut self, index: usize, input: Input) {
        let local = self.local(index);
        let defect = self.options.defect;
        let process = &mut self.processes[index];
        let Body::Ours(machine) = &mut process.body else { return };
        let Some(input) = planted::spoil_input(defect, machine, input) else { return };
        process.is_answered = matches!(input, Input::Done(..));
        let mut effects = machine.handle(local, input);
        if let Some(defect) = defect {
            effects = planted::spoil_effects(defect, machine, effects);
        }
        let next = machine.next_wakeup();
        let (life, clock) = (process.life, process.clock);
        for effect in effects {
            self.carry_out(index, effect);
        }
        if let Some(at) = next {
            let at = Timestamp(at.0 - clock).max(self.now + Duration::from_millis(1));
            self.plan(at, Happening::Wake { process: index, life });
        }
    }

    fn carry_out(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Watch(ref paths) => {
                self.processes[index].wanted.extend(paths.iter().cloned());
                self.send(index, Request::Ours(effect));
            }
            Effect::Unwatch(paths) => {
                self.processes[index].wanted.retain(|path| !paths.contains(path));
                self.processes[index].watched.retain(|path| !paths.contains(path));
            }
            Effect::Commit(..) | Effect::Read(..) | Effect::Latch(..) | Effect::Unlatch(..) | Effect::Reload => {
                self.send(index, Request::Ours(effect));
            }
            Effect::CheckClock => {
                let off = Duration::from_millis(self.processes[index].clock.unsigned_abs());
                let input = Input::ClockChecked(self.options.clock_error + off);
                self.deliver(index, self.now, Parcel::Input(Box::new(input)));
            }
            Effect::Run(run) => {
                for RunItem { item, fencing_token: token } in run.items {
                    let (session, due, source) = (run.session, run.due, run.source);
                    let begun = BegunItem { run: run.id, session, item, due, source, token };
                    let waits = self.options.wait_millis > 0 && self.turns.below(4) == 0;
                    if waits {
                        let at = self.now + Duration::from_millis(self.turns.below(self.options.wait_millis));
                        let life = self.processes[index].life;
                        self.plan(at, Happening::StartRun { process: index, life, begun });
                    } else {
                        self.start_item(index, begun);
                    }
                }
            }
            Effect::CutOff => {
                self.processes[index].is_cut_off = true;
                let life = self.processes[index].life;
                let runs: Vec<(RunId, u32)> = self.processes[index].runs.keys().copied().collect();
                for (run, item) in runs {
                    let entry = self.processes[index].runs[&(run, item)];
                    self.journal[entry].cut_off = true;
                    let at = self.now + Duration::from_millis(self.chance.between(0, 1_000));
                    self.plan(at, Happening::EndRun { process: index, life, run, item });
                }
            }
            Effect::Report(note) => self.note(index, &note),
            Effect::Stop(reason) => {
                let session = self.processes[index].session;
                self.end_session(session);
                let process = &mut self.processes[index];
                process.notes.push((self.now, format!("stopped: {reason:?}")));
                self.end(index);
            }
        }
    }

    fn note(&mut self, index: usize, note: &JobEvent) {
        self.told.extend(Told::from_note(self.now, &self.processes[index].id, note));
        self.processes[index].notes.push((self.now, note.to_string()));
    }

    /// The turn of an item has come: its code starts while its session lives, and waits while that is not known (`lease.rs` of the
    /// runtime).
    pub(super) fn start_item(&mut self, index: usize, begun: BegunItem) {
        let BegunItem { run, session, item, .. } = begun;
        let process = &self.processes[index];
        let (life, now) = (process.life, self.now);
        if process.paused_until > now {
            return self.plan(process.paused_until, Happening::StartRun { process: index, life, begun });
        }
        if process.is_cut_off {
            return self.input(index, Input::ItemsEnded(vec![EndedItem { run, item, end: ItemEnd::Failed }]));
        }
        // A registry that ends a session before its time notifies no process.
        let lives = self.tree.has_session(session) || self.expired.contains(&session);
        let is_unchecked = matches!(self.options.defect, Some(Defect::LeaseUnchecked | Defect::LateAnswerCounts));
        if is_unchecked || (process.connected && process.session == session && lives) {
            self.begin_run(index, begun);
        } else if process.connected && process.session != session {
            self.input(index, Input::ItemsEnded(vec![EndedItem { run, item, end: ItemEnd::NotStarted }]));
        } else {
            self.plan(now + Duration::from_millis(50), Happening::StartRun { process: index, life, begun });
        }
    }

    /// User code begins; gives the moment of its end.
    fn begin_run(&mut self, index: usize, begun: BegunItem) -> Timestamp {
        let BegunItem { run, session, item, due, source, token } = begun;
        let (low, high) = self.options.run_millis;
        let length = self.chance.between(low, high);
        let length = self.options.long_item.filter(|(long, _)| *long == item).map_or(length, |(_, millis)| millis);
        let end = self.now + Duration::from_millis(length);
        let alive = self.tree.has_session(session);
        let process = &mut self.processes[index];
        process.runs.insert((run, item), self.journal.len());
        let life = process.life;
        self.journal.push(Entry {
            process: index,
            instance: process.id.clone(),
            java: process.java,
            session,
            item,
            due,
            source,
            token,
            start: self.now,
            end: None,
            cut_off: false,
            // Its answer may have arrived after the end of its session.
            lease_end: (!alive).then_some(self.now),
        });
        if !process.java {
            self.plan(end, Happening::EndRun { process: index, life, run, item });
        }
        end
    }

    pub(super) fn end_run(&mut self, index: usize, run: RunId, item: u32) {
        if self.processes[index].paused_until > self.now {
            let (at, life) = (self.processes[index].paused_until, self.processes[index].life);
            self.plan(at, Happening::EndRun { process: index, life, run, item });
            return;
        }
        let Some(entry) = self.processes[index].runs.remove(&(run, item)) else { return };
        self.journal[entry].end = Some(self.now);
        let failed = self.chance.below(100) < self.options.failing || self.journal[entry].cut_off;
        let end = if failed { ItemEnd::Failed } else { ItemEnd::Succeeded };
        self.input(index, Input::ItemsEnded(vec![EndedItem { run, item, end }]));
    }

    /// Lets a Java-like peer go on, and does what it asks.
    fn go_on(&mut self, index: usize) {
        let local = self.local(index);
        let Body::Java(peer) = &mut self.processes[index].body else { return };
        let asks = peer.go_on(local);
        for (ask, what) in asks {
            self.java_asks(index, ask, what);
        }
    }

    fn java_asks(&mut self, index: usize, ask: u64, what: Ask) {
        let connected = self.processes[index].connected;
        let (life, clock) = (self.processes[index].life, self.processes[index].clock);
        match what {
            // Curator retries for a while, and stops; the requested node then counts as missing.
            Ask::Commit(_) | Ask::Read(_) | Ask::Latch(_) if !connected => {
                let at = self.now + Duration::from_millis(1_000);
                self.plan(at, Happening::Sleep { process: index, life, ask });
            }
            Ask::Commit(ops) => self.send(index, Request::Commit(ask, ops)),
            Ask::Read(query) => self.send(index, Request::Read(ask, query)),
            Ask::Latch(path) => self.send(index, Request::Latch(ask, path)),
            Ask::Unlatch(of) => self.send(index, Request::Unlatch(of)),
            Ask::Sleep(until) => {
                self.plan(Timestamp(until.0 - clock), Happening::Sleep { process: index, life, ask });
            }
            Ask::Run(run, item, due) => {
                let session = self.processes[index].session;
                let (run, source) = (RunId(run), Source::Schedule);
                let end = self.begin_run(index, BegunItem { run, session, item, due, source, token: 0 });
                self.reply(index, ask, Reply::Until(Timestamp(end.0 + clock)));
            }
            Ask::Ended(run, item) => {
                if let Some(entry) = self.processes[index].runs.remove(&(RunId(run), item)) {
                    self.journal[entry].end = Some(self.now);
                }
            }
            Ask::Exit => {
                self.processes[index].notes.push((self.now, "stopped".to_owned()));
                self.end(index);
            }
            Ask::Say(line) => self.processes[index].notes.push((self.now, line)),
        }
    }

    pub(super) fn reply(&mut self, index: usize, ask: u64, reply: Reply) {
        if self.processes[index].paused_until > self.now {
            let (at, life) = (self.processes[index].paused_until, self.processes[index].life);
            return self.plan(at, Happening::Sleep { process: index, life, ask });
        }
        let Body::Java(peer) = &mut self.processes[index].body else { return };
        peer.answer(ask, reply);
        self.go_on(index);
    }

    pub(super) fn java_connected(&mut self, index: usize, renewed: bool) {
        let cache: Vec<(String, Node)> = self.tree.iter().map(|(path, node)| (path.to_owned(), node.clone())).collect();
        let Body::Java(peer) = &mut self.processes[index].body else { return };
        peer.connected(cache, renewed);
        self.go_on(index);
        self.read_again(index);
    }

    pub(super) fn java_lost(&mut self, index: usize) {
        let Body::Java(peer) = &mut self.processes[index].body else { return };
        let open = peer.lost();
        let life = self.processes[index].life;
        for ask in open {
            let at = self.now + Duration::from_millis(1_000);
            self.plan(at, Happening::Sleep { process: index, life, ask });
        }
        self.go_on(index);
    }

    pub(super) fn java_changed(&mut self, index: usize, path: String, node: Option<Node>) {
        let Body::Java(peer) = &mut self.processes[index].body else { return };
        peer.changed(path, node);
        self.go_on(index);
    }

    pub(super) fn java_stop(&mut self, index: usize) {
        let Body::Java(peer) = &mut self.processes[index].body else { return };
        peer.stop();
        self.go_on(index);
    }
}

/// Of a program that lacks a plug-in which others have.
fn refusing() -> ConfigCheck {
    ConfigCheck(Arc::new(|config| match config.error_handler.as_str() {
        "" | "LOG" => Vec::new(),
        other => {
            vec![ConfigError::new("jobErrorHandlerType", other, "expected LOG")]
        }
    }))
}
