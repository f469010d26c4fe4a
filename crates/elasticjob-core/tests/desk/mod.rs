//! A machine on a tree that answers immediately: the cost of the kernel, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::job_state::JobState;
use elasticjob_core::latch;
use elasticjob_core::machine::{
    ConfigCheck, Effect, EndedItem, Identity, Input, ItemEnd, JobMachine, Level, MachineContext, Run, RunItem, Setup,
    StepResult,
};
use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Op, Refusal, Tree};
use elasticjob_core::wire::{JobDocument, Overwrite};

/// Its instance id.
pub(crate) const ID: &str = "10.0.0.1@-@1";
const START: Timestamp = Timestamp(1_700_000_000_000);

/// A machine on a tree that answers immediately.
pub(crate) struct Desk {
    machine: JobMachine,
    tree: Tree,
    path: JobPath,
    session: u64,
    now: Timestamp,
    runs: Vec<Run>,
    /// Called around each step of the machine.
    meter: fn() -> (u64, u64),
    /// By how much the meter has risen in them.
    pub(crate) cost: (u64, u64),
    /// What the tree refuses, beside what cannot be.
    pub(crate) refuse: fn(&[Op]) -> Option<Refusal>,
    /// The items that were begun, one entry a begin.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) begun: Vec<u32>,
    /// The transactions that it was asked for.
    pub(crate) commits: u64,
    /// The reads that it was asked for.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) reads: u64,
    /// How often it created `necessary`.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) flags: u32,
    /// The warnings and errors that it reported.
    pub(crate) warnings: Vec<String>,
    /// How often it asked for a latch in vain.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) latches: u32,
    /// The registry refuses to create latch nodes.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) denies_latches: bool,
    /// Whether a running item ever received a yield request.
    pub(crate) yielded: bool,
}

impl Desk {
    /// With so many items, all of them its own, and idle except for its firings each second.
    pub(crate) fn new(items: u32, meter: fn() -> (u64, u64)) -> Desk {
        Desk::with_cron("* * * * * ?", items, meter)
    }

    /// The same with another schedule.
    pub(crate) fn with_cron(cron: &str, items: u32, meter: fn() -> (u64, u64)) -> Desk {
        let document = JobDocument { monitor_execution: true, ..JobDocument::new("job", items) };
        Desk::with(JobDocument { cron: Some(cron.into()), ..document }, meter)
    }

    /// The same with another configuration.
    pub(crate) fn with(document: JobDocument, meter: fn() -> (u64, u64)) -> Desk {
        let items = document.sharding_total_count;
        let setup = Setup {
            document,
            overwrite: Overwrite::Never,
            class: "SCRIPT".into(),
            one_off: false,
            identity: Identity { id: ID.into(), server_ip: "10.0.0.1".into() },
            check: ConfigCheck::default(),
        };
        let context = MachineContext {
            zones: Box::new(|_| Some(jiff::tz::TimeZone::UTC)),
            strategies: elasticjob_core::shard::built_in(),
        };
        let mut tree = Tree::new();
        let session = tree.open_session();
        let mut desk = Desk {
            machine: JobMachine::new(setup, Arc::new(context)),
            tree,
            path: JobPath::new("job"),
            session,
            now: START,
            runs: Vec::new(),
            meter,
            cost: (0, 0),
            refuse: |_| None,
            begun: Vec::new(),
            commits: 0,
            reads: 0,
            flags: 0,
            warnings: Vec::new(),
            latches: 0,
            denies_latches: false,
            yielded: false,
        };
        let state = Box::new(desk.state());
        desk.input(Input::SessionBack { session: desk.session, timeout: Duration::from_secs(40), state });
        // It reads its owners again for the last time 20 seconds after its election.
        desk.pass(Duration::from_secs(30));
        assert_eq!(desk.machine.owned().len(), items as usize);
        (desk.cost, desk.commits) = ((0, 0), 0);
        desk.warnings.clear();
        desk
    }

    fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::Node(path) => Answer::Node(self.tree.get(path).cloned()),
            Query::Children(path) => Answer::Children(self.tree.children(path)),
        }
    }

    fn state(&self) -> JobState {
        let first: Vec<Answer> = JobState::first_queries(&self.path).iter().map(|q| self.answer(q)).collect();
        let second = JobState::second_queries(&self.path, &first);
        let second: Vec<(Query, Answer)> = second.into_iter().map(|q| (q.clone(), self.answer(&q))).collect();
        JobState::build(&self.path, &first, &second)
    }

    /// Hands that in, and everything that follows from it; a run waits for [`Desk::end`].
    fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        let patience = self.commits.max(self.reads) + 1_000_000;
        while let Some(input) = inputs.pop() {
            let before = (self.meter)();
            let effects = self.machine.handle(self.now, input);
            let after = (self.meter)();
            self.yielded |= self.machine.running().any(|item| self.machine.should_yield(item));
            self.cost = (self.cost.0 + after.0 - before.0, self.cost.1 + after.1 - before.1);
            for effect in effects {
                match effect {
                    Effect::Commit(id, ops) => {
                        self.commits += 1;
                        assert!(self.commits < patience, "it asks and asks at {}", self.now);
                        let refused = (self.refuse)(&ops).map_or(Ok(()), Err);
                        let result = match refused.and_then(|()| self.tree.commit(self.session, &ops, self.now)) {
                            Ok((zxid, _)) => {
                                let necessary = self.path.necessary();
                                let is_flag = |op: &Op| matches!(op, Op::Create { path, .. } if *path == necessary);
                                self.flags += u32::from(ops.iter().any(is_flag));
                                StepResult::Committed { zxid }
                            }
                            Err(refusal) => StepResult::Refused(refusal),
                        };
                        inputs.push(Input::Done(id, result));
                    }
                    Effect::Read(id, queries) => {
                        self.reads += 1;
                        assert!(self.reads < patience, "it reads and reads at {}", self.now);
                        let answers = queries.iter().map(|query| self.answer(query)).collect();
                        inputs.push(Input::Done(id, StepResult::Answers(answers)));
                    }
                    Effect::Latch(id, _) if self.denies_latches => {
                        self.latches += 1;
                        inputs.push(Input::Latched(id, None));
                    }
                    Effect::Latch(id, path) => {
                        let parents: Vec<Op> = path
                            .match_indices('/')
                            .skip(1)
                            .map(|(end, _)| path[..end].to_owned())
                            .chain([path.clone()])
                            .map(Op::Ensure)
                            .collect();
                        self.tree.commit(self.session, &parents, self.now).expect("parents");
                        let prefix = latch::guarded_prefix(&path, "1");
                        let place = self.tree.create_sequential(self.session, &prefix, self.now);
                        inputs.push(Input::Latched(id, Some(place.expect("a place").0)));
                    }
                    Effect::Reload => inputs.push(Input::Reloaded(Box::new(self.state()))),
                    Effect::Run(run) => {
                        self.begun.extend(run.items.iter().map(|item| item.item));
                        self.runs.push(run);
                    }
                    Effect::Report(note) if matches!(note.level(), Level::Warn | Level::Error) => {
                        self.warnings.push(note.to_string())
                    }
                    _ => {}
                }
            }
        }
    }

    /// How many items it has.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn owned(&self) -> usize {
        self.machine.owned().len()
    }

    /// Another process replaces a text in the stored configuration.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn reconfigure(&mut self, from: &str, to: &str) {
        let path = self.path.config();
        let text = self.tree.get(&path).expect("it is stored").text();
        assert!(text.contains(from), "{text}");
        self.tree.commit(self.session, &[Op::set(&path, text.replace(from, to))], self.now).expect("written");
        let node = self.tree.get(&path).cloned();
        self.input(Input::Changed(vec![(path, node)]));
    }

    /// The session ends and the machine reconnects with a new one. Before that, another session commits these operations.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn come_back(&mut self, before: &[Op]) -> u64 {
        self.tree.close_session(self.session);
        let other = self.tree.open_session();
        self.tree.commit(other, before, self.now).expect("committed");
        self.session = self.tree.open_session();
        self.input(Input::SessionLost);
        let state = Box::new(self.state());
        self.input(Input::SessionBack { session: self.session, timeout: Duration::from_secs(40), state });
        other
    }

    /// The link is lost for so long.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn cut_off(&mut self, time: Duration) {
        self.input(Input::SessionLost);
        self.pass(time);
    }

    /// The moment.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// That session ends, and the machine hears of its instance node.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn leaves(&mut self, session: u64, id: &str) {
        self.tree.close_session(session);
        self.input(Input::Changed(vec![(self.path.instance(id), None)]));
    }

    /// An operator removes the job while the machine is disconnected.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn remove_job(&mut self) {
        self.tree.close_session(self.session);
        let mut paths: Vec<String> = self.tree.iter().map(|(path, _)| path.to_owned()).collect();
        paths.retain(|path| path.starts_with(self.path.root()));
        paths.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
        let ops: Vec<Op> = paths.into_iter().map(Op::delete).collect();
        let operator = self.tree.open_session();
        self.tree.commit(operator, &ops, self.now).expect("removed");
    }

    /// Another session commits these operations, and the machine hears of each node.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn others(&mut self, ops: &[Op]) -> u64 {
        let other = self.tree.open_session();
        self.tree.commit(other, ops, self.now).expect("committed");
        let changed = ops.iter().map(|op| (op.path().to_owned(), self.tree.get(op.path()).cloned())).collect();
        self.input(Input::Changed(changed));
        other
    }

    /// Whether the registry has that node.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.tree.get(path).is_some()
    }

    /// Whether it takes part.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn is_joined(&self) -> bool {
        self.machine.is_joined()
    }

    /// Whether it has left.
    #[allow(dead_code, reason = "each test file that has a desk compiles it")]
    pub(crate) fn is_left(&self) -> bool {
        self.machine.is_left()
    }

    /// Lets the time pass to the next moment that the machine asks for.
    fn wake(&mut self) {
        self.now = self.machine.next_wakeup().expect("it waits for a firing");
        self.input(Input::Woke);
    }

    /// Ends what runs.
    pub(crate) fn end(&mut self) {
        for run in std::mem::take(&mut self.runs) {
            let ended = |item: &RunItem| EndedItem { run: run.id, item: item.item, end: ItemEnd::Succeeded };
            self.input(Input::ItemsEnded(run.items.iter().map(ended).collect()));
        }
    }

    /// Advances the time, with runs that complete immediately.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.pass_with(time, true);
    }

    /// The same, with runs that complete immediately or not at all.
    pub(crate) fn pass_with(&mut self, time: Duration, ends: bool) {
        let until = self.now + time;
        while self.now < until {
            self.wake();
            if ends {
                self.end();
            }
        }
    }

    /// A firing from its due time to the end of its release.
    pub(crate) fn fire(&mut self) {
        let due = self.machine.next_due().expect("it is scheduled");
        while self.now < due {
            self.wake();
        }
        assert!(!self.runs.is_empty(), "it runs");
        self.now = self.now + Duration::from_millis(10);
        self.end();
    }
}
