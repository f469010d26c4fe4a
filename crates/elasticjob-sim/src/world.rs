//! The simulated cluster: processes with one machine each, a registry, links between them, and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::machine::{
    ConfigCheck, Effect, Identity, Input, JobMachine, Note, RunId, Setup, StepId, StepResult, Surroundings,
};
use elasticjob_core::path::{JobPath, Place};
use elasticjob_core::shard;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Event, EventKind, Node, Op, Tree};
use elasticjob_core::view::{Answer, JobView, Query};

use crate::{Chance, Entry, Fault, Journal, Options};

/// The job that every world runs.
const JOB: &str = "job";
/// Where every world begins: a whole second, far from any daylight-saving change.
const START: Timestamp = Timestamp(1_700_000_000_000);

#[derive(Debug)]
struct Process {
    machine: Option<JobMachine>,
    id: String,
    session: u64,
    connected: bool,
    paused_until: Timestamp,
    watched: BTreeSet<String>,
    latches: BTreeMap<StepId, (String, Option<String>)>,
    /// Requests of one connection are carried out in order, and so are its answers and events.
    served: Timestamp,
    answered: Timestamp,
    /// Grows with each connection: what is still on an old link is lost.
    link: u64,
    runs: BTreeMap<(RunId, u32), usize>,
    notes: Vec<(Timestamp, String)>,
}

#[derive(Debug)]
enum Happening {
    Deliver { process: usize, link: u64, sent: Timestamp, input: Box<Input> },
    Serve { process: usize, link: u64, request: Effect },
    Wake { process: usize },
    Connect { process: usize },
    Expire { process: usize, session: u64 },
    EndRun { process: usize, run: RunId, item: u32 },
    Start { process: usize },
    Strike { process: usize, fault: Fault },
}

/// A cluster. See [`Options`].
#[derive(Debug)]
pub struct World {
    options: Options,
    now: Timestamp,
    order: u64,
    agenda: BTreeMap<(Timestamp, u64), Happening>,
    tree: Tree,
    path: JobPath,
    processes: Vec<Process>,
    chance: Chance,
    journal: Journal,
    surroundings: Arc<Surroundings>,
    requests: u64,
}

impl World {
    /// A cluster that has just been switched on.
    pub fn new(options: Options) -> World {
        let surroundings = Surroundings {
            zones: Box::new(|name| name.is_none().then_some(jiff::tz::TimeZone::UTC)),
            strategies: shard::built_in(),
        };
        let mut world = World {
            now: START,
            order: 0,
            agenda: BTreeMap::new(),
            tree: Tree::new(),
            path: JobPath::new(JOB),
            processes: Vec::new(),
            chance: Chance::new(options.seed),
            journal: Vec::new(),
            surroundings: Arc::new(surroundings),
            requests: 0,
            options,
        };
        for process in 0..world.options.instances {
            world.processes.push(Process::new(process));
            let delay = Duration::from_millis(world.chance.below(1_500));
            world.plan(START + delay, Happening::Start { process });
        }
        world
    }

    /// Lets something happen to a process at that time after the start.
    pub fn strike(&mut self, after: Duration, process: usize, fault: Fault) {
        self.plan(START + after, Happening::Strike { process, fault });
    }

    /// Lets the time pass until then.
    pub fn run_until(&mut self, after: Duration) {
        let end = START + after;
        while let Some(((at, _), _)) = self.agenda.first_key_value() {
            if *at > end {
                break;
            }
            let Some(((at, _), happening)) = self.agenda.pop_first() else { break };
            self.now = at;
            self.happen(happening);
        }
        self.now = end;
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.since(START)
    }

    /// The moment that long after the start.
    pub fn moment(after: Duration) -> Timestamp {
        START + after
    }

    /// What ran.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The registry.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Requests that processes have sent to the registry.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// What the machines told people, in one text: for a failing test.
    pub fn story(&self) -> String {
        let mut lines: Vec<(Timestamp, String)> = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            lines.extend(process.notes.iter().map(|(at, note)| (*at, format!("{at} p{index} {note}"))));
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line + "\n").collect()
    }

    /// The machines in all detail: for a failing test.
    pub fn machines(&self) -> String {
        self.processes.iter().map(|p| format!("{:#?}\n", p.machine)).collect()
    }

    /// The registry as `path | value` lines, with the session of ephemeral nodes.
    pub fn dump(&self) -> String {
        let line =
            |(path, node): (&str, &Node)| format!("{path} | {} | {:x}\n", node.text().replace('\n', "\\n"), node.owner);
        self.tree.iter().map(line).collect()
    }

    fn plan(&mut self, at: Timestamp, happening: Happening) {
        self.order += 1;
        self.agenda.insert((at.max(self.now), self.order), happening);
    }

    fn latency(&mut self) -> Duration {
        // Now and then something is slow: a collection of garbage, a packet sent twice.
        let slow = self.options.slow_requests && self.chance.below(25) == 0;
        Duration::from_millis(if slow { self.chance.between(50, 700) } else { self.chance.between(0, 4) })
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Start { process } => self.start(process),
            Happening::Connect { process } => self.connect(process),
            Happening::Expire { process, session } => self.expire(process, session),
            Happening::Wake { process } => self.input(process, Input::Woke),
            Happening::Serve { process, link, request } => self.serve(process, link, request),
            Happening::EndRun { process, run, item } => self.end_run(process, run, item),
            Happening::Strike { process, fault } => self.fault(process, fault),
            Happening::Deliver { process, link, sent, input } => {
                let target = &self.processes[process];
                if target.link != link || !target.connected {
                    return;
                }
                let input = match *input {
                    // What comes back too late may be of a session that is over: its outcome is not known any more.
                    Input::Done(id, StepResult::Committed { .. })
                        if self.now.since(sent) > self.options.session_timeout * 2 / 3 =>
                    {
                        Input::Done(id, StepResult::Unknown)
                    }
                    input => input,
                };
                self.input(process, input);
            }
        }
    }

    fn start(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let server_ip = format!("10.0.0.{}", index + 1);
        process.id = format!("{server_ip}@-@{}", 100 + self.order);
        process.watched.clear();
        let setup = Setup {
            document: self.options.document.clone(),
            class: "SCRIPT".into(),
            one_off: false,
            identity: Identity { id: process.id.clone(), server_ip },
            check: ConfigCheck::default(),
        };
        process.machine = Some(JobMachine::new(setup, Arc::clone(&self.surroundings)));
        process.session = 0;
        self.plan(self.now, Happening::Connect { process: index });
    }

    fn connect(&mut self, index: usize) {
        if self.processes[index].machine.is_none() {
            return;
        }
        // A process that stands still does not connect; and a new link begins with the end of the old one.
        let paused_until = self.processes[index].paused_until;
        if paused_until > self.now {
            return self.plan(paused_until, Happening::Connect { process: index });
        }
        self.input(index, Input::SessionLost);
        let session = match self.processes[index].session {
            session if self.tree.has_session(session) => session,
            _ => self.tree.open_session(),
        };
        let view = self.view();
        let (sent, timeout) = (self.now, self.options.session_timeout);
        let at = self.now + self.latency();
        let process = &mut self.processes[index];
        process.session = session;
        process.connected = true;
        process.link += 1;
        process.answered = at;
        process.served = sent;
        process.latches.clear();
        let link = process.link;
        let input = Box::new(Input::SessionBack { session, timeout, view: Box::new(view) });
        self.plan(at, Happening::Deliver { process: index, link, sent, input });
    }

    fn view(&self) -> JobView {
        let first: Vec<Answer> = JobView::first_queries(&self.path).iter().map(|q| self.answer(q)).collect();
        let second = JobView::second_queries(&self.path, &first);
        let second: Vec<(Query, Answer)> = second.into_iter().map(|q| (q.clone(), self.answer(&q))).collect();
        JobView::build(&self.path, &first, &second)
    }

    fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::Node(path) => Answer::Node(self.tree.get(path).cloned()),
            Query::Children(path) => Answer::Children(self.tree.children(path)),
        }
    }

    fn expire(&mut self, index: usize, session: u64) {
        let process = &self.processes[index];
        if process.session == session
            && process.connected
            && process.machine.is_some()
            && process.paused_until <= self.now
        {
            return; // it is back in time
        }
        for entry in self.journal.iter_mut().filter(|e| e.process == index && e.lease_end.is_none()) {
            entry.lease_end = Some(self.now);
        }
        let events = self.tree.close_session(session);
        self.tell(&events);
    }

    fn fault(&mut self, index: usize, fault: Fault) {
        let timeout = self.options.session_timeout;
        let session = self.processes[index].session;
        let up = self.processes[index].machine.is_some();
        match fault {
            // Nobody is there to be hit.
            Fault::Crash { .. } | Fault::Cut(_) | Fault::Pause(_) | Fault::Stop if !up => {}
            Fault::Crash { restart } => {
                self.processes[index].machine = None;
                self.processes[index].connected = false;
                self.processes[index].runs.clear();
                self.plan(self.now + timeout, Happening::Expire { process: index, session });
                if let Some(restart) = restart {
                    self.plan(self.now + restart, Happening::Start { process: index });
                }
            }
            Fault::Cut(length) => {
                self.processes[index].connected = false;
                self.plan(self.now + timeout, Happening::Expire { process: index, session });
                self.plan(self.now + length, Happening::Connect { process: index });
                self.input(index, Input::SessionLost);
            }
            Fault::Pause(length) => {
                let until = self.now + length;
                self.processes[index].paused_until = until;
                if length >= timeout {
                    self.plan(self.now + timeout, Happening::Expire { process: index, session });
                    // The connection broke meanwhile, which the process learns when it goes on.
                    self.plan(until, Happening::Strike { process: index, fault: Fault::Cut(Duration::ZERO) });
                }
            }
            Fault::Stop => {
                let deadline = self.now + Duration::from_secs(30);
                self.input(index, Input::Stop { deadline });
            }
            Fault::Operator(ops) => {
                if let Ok((_, events)) = self.tree.commit(0, &ops, self.now) {
                    self.tell(&events);
                }
            }
        }
    }

    fn input(&mut self, index: usize, input: Input) {
        let process = &mut self.processes[index];
        if process.paused_until > self.now {
            let (until, link) = (process.paused_until, process.link);
            let happening = match input {
                Input::Woke => Happening::Wake { process: index },
                input => Happening::Deliver { process: index, link, sent: self.now, input: Box::new(input) },
            };
            self.plan(until, happening);
            return;
        }
        let Some(machine) = process.machine.as_mut() else { return };
        let effects = machine.handle(self.now, input);
        let next = machine.next_wakeup();
        for effect in effects {
            self.carry_out(index, effect);
        }
        if let Some(at) = next {
            self.plan(at.max(self.now + Duration::from_millis(1)), Happening::Wake { process: index });
        }
    }

    fn carry_out(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Commit(..) | Effect::Read(..) | Effect::Latch(..) | Effect::Unlatch(..) | Effect::Reload => {
                self.send(index, effect);
            }
            Effect::Watch(paths) => {
                for path in paths {
                    self.processes[index].watched.insert(path.clone());
                    let node = self.tree.get(&path).cloned();
                    self.deliver(index, Input::Changed(vec![(path, node)]));
                }
            }
            Effect::Unwatch(paths) => self.processes[index].watched.retain(|watched| !paths.contains(watched)),
            Effect::CheckClock => self.deliver(index, Input::ClockChecked(self.options.clock_error)),
            Effect::Run(run) => {
                for item in run.items {
                    let (low, high) = self.options.run_millis;
                    let end = self.now + Duration::from_millis(self.chance.between(low, high));
                    let process = &mut self.processes[index];
                    process.runs.insert((run.id, item.item), self.journal.len());
                    self.journal.push(Entry {
                        process: index,
                        instance: process.id.clone(),
                        item: item.item,
                        due: run.due,
                        source: run.source,
                        token: item.fencing_token,
                        start: self.now,
                        end: None,
                        lease_end: None,
                    });
                    self.plan(end, Happening::EndRun { process: index, run: run.id, item: item.item });
                }
            }
            Effect::Note(note) => self.note(index, &note),
            Effect::Stop(reason) => {
                let session = self.processes[index].session;
                let events = self.tree.close_session(session);
                self.tell(&events);
                let process = &mut self.processes[index];
                process.notes.push((self.now, format!("stopped: {reason:?}")));
                process.machine = None;
            }
        }
    }

    fn note(&mut self, index: usize, note: &Note) {
        self.processes[index].notes.push((self.now, note.to_string()));
    }

    fn end_run(&mut self, index: usize, run: RunId, item: u32) {
        if self.processes[index].paused_until > self.now {
            let at = self.processes[index].paused_until;
            self.plan(at, Happening::EndRun { process: index, run, item });
            return;
        }
        let Some(entry) = self.processes[index].runs.remove(&(run, item)) else { return };
        self.journal[entry].end = Some(self.now);
        self.input(index, Input::ItemEnded { run, item, failed: false });
    }

    fn send(&mut self, index: usize, request: Effect) {
        let latency = self.latency();
        let process = &mut self.processes[index];
        if !process.connected {
            return;
        }
        self.requests += 1;
        process.served = process.served.max(self.now + latency);
        let (at, link) = (process.served, process.link);
        self.plan(at, Happening::Serve { process: index, link, request });
    }

    fn deliver(&mut self, index: usize, input: Input) {
        let at = self.now + self.latency();
        let process = &mut self.processes[index];
        process.answered = process.answered.max(at);
        let (at, link, sent) = (process.answered, process.link, self.now);
        self.plan(at, Happening::Deliver { process: index, link, sent, input: Box::new(input) });
    }

    fn serve(&mut self, index: usize, link: u64, request: Effect) {
        let (session, current) = (self.processes[index].session, self.processes[index].link);
        // What was on its way when the link broke may arrive all the same.
        if link != current || !self.processes[index].connected {
            let arrives = self.chance.below(2) == 0 && self.tree.has_session(session) && link == current;
            if let (true, Effect::Commit(_, ops)) = (arrives, request)
                && let Ok((_, events)) = self.tree.commit(session, &ops, self.now)
            {
                self.tell(&events);
            }
            return;
        }
        if !self.tree.has_session(session) {
            return;
        }
        match request {
            Effect::Commit(id, ops) => {
                let result = match self.tree.commit(session, &ops, self.now) {
                    Ok((zxid, events)) => {
                        self.tell(&events);
                        StepResult::Committed { zxid }
                    }
                    Err(refusal) => StepResult::Refused(refusal),
                };
                self.deliver(index, Input::Done(id, result));
            }
            Effect::Read(id, queries) => {
                let answers = queries.iter().map(|q| self.answer(q)).collect();
                self.deliver(index, Input::Done(id, StepResult::Answers(answers)));
            }
            Effect::Reload => {
                let view = Box::new(self.view());
                self.deliver(index, Input::Reloaded(view));
            }
            Effect::Latch(id, path) => self.latch(index, id, &path),
            Effect::Unlatch(id, _) => {
                if let Some((_, Some(node))) = self.processes[index].latches.remove(&id)
                    && let Ok((_, events)) = self.tree.commit(session, &[Op::delete(node)], self.now)
                {
                    self.tell(&events);
                }
            }
            _ => {}
        }
    }

    fn latch(&mut self, index: usize, id: StepId, path: &str) {
        let mut parents = Vec::new();
        let mut at = Some(path);
        while let Some(path) = at.filter(|p| *p != self.path.root()) {
            parents.push(Op::Ensure(path.to_owned()));
            at = elasticjob_core::path::parent(path);
        }
        parents.reverse();
        let session = self.processes[index].session;
        if self.tree.commit(session, &parents, self.now).is_err() {
            return self.deliver(index, Input::Latched(id, None));
        }
        match self.tree.create_sequential(session, &format!("{path}/_c_{index}-latch-"), self.now) {
            Ok((node, _)) => {
                self.processes[index].latches.insert(id, (path.to_owned(), Some(node)));
                self.pass_latches();
            }
            Err(_) => self.deliver(index, Input::Latched(id, None)),
        }
    }

    /// Tells those who have become the first in their queue.
    fn pass_latches(&mut self) {
        for index in 0..self.processes.len() {
            let waiting: Vec<(StepId, String, String)> = self.processes[index]
                .latches
                .iter()
                .filter_map(|(id, (path, node))| Some((*id, path.clone(), node.clone()?)))
                .collect();
            for (id, path, node) in waiting {
                let sequence = |name: &String| name.rsplit("latch-").next().map(str::to_owned);
                let first = self.tree.children(&path).unwrap_or_default().into_iter().min_by_key(sequence);
                if first.is_some_and(|name| node.ends_with(&format!("/{name}"))) {
                    self.deliver(index, Input::Latched(id, Some(node)));
                }
            }
        }
    }

    fn tell(&mut self, events: &[Event]) {
        let path = self.path.clone();
        for event in events.iter().filter(|e| e.kind != EventKind::Children) {
            if event.path.contains("latch-") {
                self.pass_latches();
                continue;
            }
            let fixed = match path.place(&event.path) {
                Some(
                    Place::Config
                    | Place::Server(_)
                    | Place::Instance(_)
                    | Place::Leader
                    | Place::Necessary
                    | Place::Processing
                    | Place::FailoverItem(_)
                    | Place::Trigger(_),
                ) => true,
                Some(
                    Place::Root
                    | Place::ItemDisabled(_)
                    | Place::ItemFailover(_)
                    | Place::ItemRunning(_)
                    | Place::Other,
                )
                | None => false,
            };
            let node = self.tree.get(&event.path).cloned();
            for index in 0..self.processes.len() {
                let process = &self.processes[index];
                if process.connected && (fixed || process.watched.contains(&event.path)) {
                    self.deliver(index, Input::Changed(vec![(event.path.clone(), node.clone())]));
                }
            }
        }
    }
}

impl Process {
    fn new(index: usize) -> Process {
        Process {
            machine: None,
            id: format!("10.0.0.{}@-@0", index + 1),
            session: 0,
            connected: false,
            paused_until: Timestamp(0),
            watched: BTreeSet::new(),
            latches: BTreeMap::new(),
            served: Timestamp(0),
            answered: Timestamp(0),
            link: 0,
            runs: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}
