//! The jobs of one process: one task owns all their machines. Inputs come in through one channel, effects go out; an idle
//! job needs no task and no timer of its own.

mod effects;
mod leftovers;
mod refusals;
mod slot;
mod slots;
mod timers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use elasticjob_core::job_state;
use elasticjob_core::machine::{
    EndedItem, Input, ItemEnd, JobEvent, JobMachine, MachineContext, RunId, Setup, StepId, StepResult, StopReason,
};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Event, EventKind, Node};
use elasticjob_registry::{Link, Registry};
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::Error;
use crate::clock::{self, Clock};
use crate::committer::Committer;
use crate::execute::Executor;
use crate::metrics::Metrics;
use crate::watches::{self, Watches};
use leftovers::Leftover;
use refusals::Refusals;
use slot::Slot;
use slots::{SlotId, Slots};
use timers::Timers;

/// Maximum number of messages, and of jobs whose time has come, that are processed in one turn.
const AT_ONCE: usize = 256;
/// Maximum number of jobs whose completed items are processed in one turn: starts are urgent, completions can wait.
const ENDS_AT_ONCE: usize = 64;
/// Maximum time for which a completion waits for the starts of other jobs.
const END_WAIT: Duration = Duration::from_secs(1);
/// Pause before a job that could not be read is read again.
const LOAD_RETRY: Duration = Duration::from_secs(1);
/// Maximum time between two checks for completions to process.
const END_LOOK: Duration = Duration::from_millis(2);

/// The state of a started job, as its handle reports it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum JobState {
    /// The job waits for the registry, or for its registration.
    Starting,
    /// The instance is registered.
    Running {
        /// The items that it owns.
        items: Vec<u32>,
        /// `true` if it is the leader.
        leads: bool,
        /// The next scheduled firing.
        next: Option<Timestamp>,
    },
    /// The registry cannot be reached. The job continues when it can.
    Disconnected,
    /// The instance has left the job.
    Stopped(StopReason),
}

/// A job to be started.
pub(crate) struct Start {
    pub(crate) setup: Setup,
    pub(crate) executor: Executor,
    pub(crate) state: watch::Sender<JobState>,
    /// Frees the name of the job in this process when it is dropped.
    pub(crate) name: NameGuard,
}

/// The names of the jobs that this process runs on a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<HashSet<String>>>);

impl Names {
    /// Reserves a name. Returns `None` if a job has it.
    pub(crate) fn reserve(&self, name: &str) -> Option<NameGuard> {
        let is_free = self.0.lock().insert(name.to_owned());
        is_free.then(|| NameGuard { names: self.clone(), name: name.to_owned() })
    }
}

/// A reserved name.
#[derive(Debug)]
pub(crate) struct NameGuard {
    names: Names,
    name: String,
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        self.names.0.lock().remove(&self.name);
    }
}

/// The messages to the worker. `job` is its number, `epoch` that of the connection on which the request was sent.
pub(crate) enum Message {
    Start(Box<Start>),
    Stop {
        job: String,
        deadline: Timestamp,
    },
    /// Stop every job, and return their states.
    StopAll {
        deadline: Timestamp,
        answer: oneshot::Sender<Vec<watch::Receiver<JobState>>>,
    },
    /// Subscribe to the events of a job.
    Events {
        job: String,
        answer: oneshot::Sender<broadcast::Receiver<JobEvent>>,
    },
    /// Report how the configuration of this start differs from the stored one.
    Compare {
        job: String,
    },
    Link(Link),
    Loaded {
        job: SlotId,
        epoch: u64,
        loaded: Option<(Watches, Box<job_state::JobState>)>,
    },
    Reloaded {
        job: SlotId,
        epoch: u64,
        state: Option<Box<job_state::JobState>>,
    },
    Event {
        job: SlotId,
        epoch: u64,
        event: Event,
    },
    Read {
        job: SlotId,
        epoch: u64,
        path: String,
        ticket: u64,
        node: Option<Node>,
    },
    Watching {
        job: SlotId,
        epoch: u64,
        path: String,
        watch: elasticjob_registry::Watch,
    },
    Done {
        job: SlotId,
        epoch: u64,
        step: StepId,
        result: StepResult,
    },
    /// The registry refused a request.
    Refused {
        job: SlotId,
        epoch: u64,
        error: elasticjob_registry::Error,
    },
    Latched {
        job: SlotId,
        epoch: u64,
        step: StepId,
        node: Option<String>,
    },
    Ended {
        job: SlotId,
        run: RunId,
        item: u32,
        end: ItemEnd,
    },
    ClockChecked {
        job: SlotId,
        epoch: u64,
        difference: Duration,
    },
    /// Nothing of a job that left without a link runs any more.
    Drained {
        name: String,
    },
    /// The remaining nodes of a stopped job were deleted, or could not be deleted.
    Swept {
        name: String,
        epoch: u64,
        done: bool,
    },
    /// Return the state by which a job decides.
    Look {
        job: String,
        answer: oneshot::Sender<Option<Box<job_state::JobState>>>,
    },
}

/// A handle to the task.
#[derive(Clone, Debug)]
pub(crate) struct Worker(mpsc::UnboundedSender<Message>);

impl Worker {
    /// Starts the task. It ends when no handle is left and all jobs have ended.
    pub(crate) fn start(
        registry: Arc<dyn Registry>,
        context: Arc<MachineContext>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Worker {
        // Unbounded: watches and ended runs must never wait. What can be under way is bounded by the number of jobs.
        let (sender, receiver) = mpsc::unbounded_channel();
        let committer = Committer::start(Arc::clone(&registry), Arc::clone(&metrics.commit_queue));
        let task = Task {
            registry: Arc::clone(&registry),
            context,
            metrics,
            clock,
            committer,
            slots: Slots::new(),
            names: HashMap::new(),
            leftovers: HashMap::new(),
            timers: Timers::default(),
            refusals: Refusals::default(),
            ends: VecDeque::new(),
            changed: Vec::new(),
            link: Link::down("not connected yet"),
            own: sender.downgrade(),
        };
        tokio::spawn(follow_link(registry.link(), sender.downgrade()));
        let running = tokio::spawn(task.run(receiver));
        tokio::spawn(async move {
            if running.await.is_err() {
                tracing::error!(
                    "the job worker panicked, which is a bug in ElasticJob; closing the registry session so that other instances take over the items; restart this process"
                );
                registry.close().await;
            }
        });
        Worker(sender)
    }

    pub(crate) fn tell(&self, message: Message) -> Result<(), Error> {
        self.0.send(message).map_err(|_| Error::Ended)
    }
}

/// Waits until the clock is moved.
async fn moved(moves: Option<&mut watch::Receiver<()>>) {
    if let Some(moves) = moves {
        let _ = moves.changed().await; // the clock lives as long as the worker
    }
}

async fn follow_link(mut link: watch::Receiver<Link>, worker: mpsc::WeakUnboundedSender<Message>) {
    loop {
        let now = link.borrow_and_update().clone();
        let Some(worker) = worker.upgrade() else { return };
        let closed = now == Link::Closed;
        if worker.send(Message::Link(now)).is_err() || closed {
            return;
        }
        drop(worker);
        if link.changed().await.is_err() {
            return;
        }
    }
}

struct Task {
    registry: Arc<dyn Registry>,
    context: Arc<MachineContext>,
    metrics: Arc<Metrics>,
    clock: Clock,
    committer: Committer,
    slots: Slots<Slot>,
    names: HashMap<String, SlotId>,
    /// The remaining nodes of jobs that stopped without a connection.
    leftovers: HashMap<String, Leftover>,
    timers: Timers,
    refusals: Refusals,
    /// Jobs of which something has ended that is to be taken in: see [`Slot::ended`].
    ends: VecDeque<(SlotId, Instant)>,
    /// Jobs whose nodes have changed: see [`Task::change`].
    changed: Vec<SlotId>,
    link: Link,
    own: mpsc::WeakUnboundedSender<Message>,
}

impl Task {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        let mut batch = Vec::with_capacity(AT_ONCE);
        let mut moves = self.clock.moves();
        loop {
            let pause = match self.ends.len() {
                0 => self.timers.pause(&self.clock),
                _ if self.committer.waiting() > 0 => END_LOOK.min(self.timers.pause(&self.clock)),
                _ => Duration::ZERO,
            };
            let received = tokio::select! {
                biased;
                received = messages.recv_many(&mut batch, AT_ONCE) => received,
                () = clock::sleep(pause), if !pause.is_zero() => usize::MAX,
                () = moved(moves.as_mut()), if moves.is_some() => usize::MAX,
                () = tokio::task::yield_now(), if pause.is_zero() => usize::MAX,
            };
            if received == 0 && self.ends.is_empty() {
                return;
            }
            self.metrics.worker_queue.store(batch.len() + messages.len() + self.ends.len(), Ordering::Relaxed);
            self.pass(&mut batch);
            self.metrics.worker_queue.store(messages.len() + self.ends.len(), Ordering::Relaxed);
        }
    }

    /// What was received, then whose time has come, then what has ended.
    fn pass(&mut self, batch: &mut Vec<Message>) {
        let mut is_busy = false;
        for message in batch.drain(..) {
            is_busy |= !matches!(message, Message::Ended { .. });
            self.take(message);
        }
        for job in std::mem::take(&mut self.changed) {
            self.give_changes(job);
        }
        let now = self.clock.now();
        if let Some(back) = self.timers.look(now) {
            let limit = elasticjob_core::limits::LEDGER_AHEAD;
            let effect = match back <= limit {
                true => "due times that the clock passes a second time do not start again",
                false => "due times that the clock passes a second time start again",
            };
            tracing::warn!("the clock was set back by {:.1} s; {effect}", back.as_secs_f64());
        }
        for _ in 0..AT_ONCE {
            let Some(job) = self.timers.due(now) else { break };
            is_busy = true;
            self.take_ends(job); // else a firing would seem to fall into the run that has ended
            self.input(job, Input::Woke);
        }
        let waits = is_busy || self.committer.waiting() > 0;
        for _ in 0..ENDS_AT_ONCE {
            let next = self.ends.pop_front_if(|(_, since)| !waits || since.elapsed() > END_WAIT);
            let Some((job, _)) = next else { break };
            self.take_ends(job);
        }
    }

    fn take_ends(&mut self, job: SlotId) {
        let ended = self.slot(job).map(|slot| std::mem::take(&mut slot.ended)).unwrap_or_default();
        if !ended.is_empty() {
            self.input(job, Input::ItemsEnded(ended));
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Start(start) => self.start_job(*start),
            Message::Stop { job, deadline } => {
                if let Some(job) = self.names.get(&job) {
                    self.input(*job, Input::Stop { deadline });
                }
            }
            Message::StopAll { deadline, answer } => {
                let jobs = self.slots.ids();
                let states = jobs.iter().filter_map(|job| Some(self.slots.get(*job)?.states())).collect();
                let _ = answer.send(states);
                jobs.into_iter().for_each(|job| self.input(job, Input::Stop { deadline }));
            }
            Message::Events { job, answer } => {
                let job = self.names.get(&job).copied();
                if let Some(slot) = job.and_then(|job| self.slot(job)) {
                    let _ = answer.send(slot.subscribe());
                }
            }
            Message::Compare { job } => {
                if let Some(job) = self.names.get(&job) {
                    self.input(*job, Input::Compare);
                }
            }
            Message::Link(link) => self.link_changed(link),
            Message::Loaded { job, epoch, loaded } => self.loaded(job, epoch, loaded),
            Message::Reloaded { job, epoch, state } => {
                let Some(slot) = self.slot(job).filter(|s| s.epoch == epoch) else { return };
                slot.reloads -= 1;
                if let Some(state) = state {
                    self.input(job, Input::Reloaded(state));
                }
                self.read_touched(job);
            }
            Message::Event { job, epoch, event } => self.event(job, epoch, event),
            Message::Read { job, epoch, path, ticket, node } => {
                let Some(slot) = self.slot(job).filter(|s| s.epoch == epoch) else { return };
                if slot.settle_read(&path, ticket) {
                    self.change(job, path, node);
                }
            }
            Message::Watching { job, epoch, path, watch } => {
                if let Some(slot) = self.slot(job).filter(|s| s.epoch == epoch && s.wanted.contains(&path)) {
                    slot.watches.nodes.insert(path, watch);
                }
            }
            Message::Done { job, epoch, step, result } => {
                if self.is_current(job, epoch) {
                    self.accepted(job, &result);
                    self.input(job, Input::Done(step, result));
                }
            }
            Message::Refused { job, epoch, error } => {
                if self.is_current(job, epoch) {
                    self.refused(job, &error);
                }
            }
            Message::Latched { job, epoch, step, node } => {
                if self.is_current(job, epoch) {
                    if let Some(slot) = self.slot(job) {
                        slot.latches.remove(&step); // nobody waits in its queue any more
                    }
                    self.input(job, Input::Latched(step, node));
                }
            }
            Message::Ended { job, run, item, end } => {
                let Some(slot) = self.slot(job) else { return };
                slot.ended.push(EndedItem { run, item, end });
                if slot.ended.len() == 1 {
                    self.ends.push_back((job, clock::instant()));
                }
            }
            Message::Drained { name } => self.drained(&name),
            Message::Swept { name, epoch, done } => self.swept(&name, epoch, done),
            Message::Look { job, answer } => {
                let job = self.names.get(&job).copied();
                let state = job.and_then(|job| self.slot(job)).and_then(|slot| slot.machine.state().cloned());
                let _ = answer.send(state.map(Box::new));
            }
            Message::ClockChecked { job, epoch, difference } => {
                if self.is_current(job, epoch) {
                    self.input(job, Input::ClockChecked(difference));
                }
            }
        }
    }

    fn slot(&mut self, job: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(job)
    }

    fn is_current(&self, job: SlotId, epoch: u64) -> bool {
        self.slots.get(job).is_some_and(|slot| slot.epoch == epoch)
    }

    fn start_job(&mut self, start: Start) {
        let name = start.setup.document.job_name.clone();
        let machine = JobMachine::new(start.setup, Arc::clone(&self.context));
        self.metrics.started(&name, start.executor.meter());
        let slot = Slot::new(start.name, name.clone(), machine, start.executor, start.state);
        let job = self.slots.insert(slot);
        self.names.insert(name, job);
        self.load(job);
    }

    fn link_changed(&mut self, link: Link) {
        self.link = link;
        for job in self.slots.ids() {
            if let Some(slot) = self.slot(job) {
                let connected = slot.disconnect();
                if connected {
                    self.input(job, Input::SessionLost);
                }
                self.load(job);
            }
        }
        for name in self.leftovers.keys().cloned().collect::<Vec<_>>() {
            self.sweep(&name);
        }
    }

    /// Sets the watches and reads the state, when there is a link.
    fn load(&mut self, job: SlotId) {
        let Link::Up { epoch, .. } = self.link else { return };
        let Some(worker) = self.own.upgrade() else { return };
        let registry = Arc::clone(&self.registry);
        let Some(slot) = self.slots.get_mut(job) else { return };
        if self.leftovers.contains_key(&slot.name) {
            return; // what the job of that name before has left is taken away first
        }
        slot.epoch = epoch;
        let path = slot.machine.path().clone();
        let nodes: Vec<String> = slot.wanted.iter().cloned().collect();
        let events = worker.downgrade();
        let sink: elasticjob_registry::Sink = Arc::new(move |event| {
            if let Some(worker) = events.upgrade() {
                let _ = worker.send(Message::Event { job, epoch, event });
            }
        });
        slot.sink = Some(Arc::clone(&sink));
        tokio::spawn(async move {
            let loaded = watches::load(&*registry, &path, nodes, &sink).await;
            let loaded = match loaded {
                Ok((watches, state)) => Some((watches, Box::new(state))),
                Err(error) => {
                    // The loss of the link is reported by the link.
                    if !error.is_retryable() {
                        let _ = worker.send(Message::Refused { job, epoch, error });
                    }
                    clock::sleep(LOAD_RETRY).await;
                    None
                }
            };
            let _ = worker.send(Message::Loaded { job, epoch, loaded });
        });
    }

    fn loaded(&mut self, job: SlotId, epoch: u64, loaded: Option<(Watches, Box<job_state::JobState>)>) {
        let Link::Up { session, timeout, epoch: current } = self.link else { return };
        if epoch != current || !self.is_current(job, epoch) {
            return;
        }
        let Some((watches, state)) = loaded else { return self.load(job) };
        if let Some(slot) = self.slot(job) {
            slot.watches = watches;
            slot.connected = true;
            slot.session = Some(session);
        }
        self.input(job, Input::SessionBack { session, timeout, state });
        self.read_touched(job);
    }

    /// Reads again what changed while a state was read.
    fn read_touched(&mut self, job: SlotId) {
        let Some(slot) = self.slot(job).filter(|s| s.reloads == 0) else { return };
        for path in std::mem::take(&mut slot.touched) {
            self.read_node(job, path);
        }
    }

    /// Handles the event of a watch. The node is read, unless only its existence matters.
    fn event(&mut self, job: SlotId, epoch: u64, event: Event) {
        let now = self.clock.now();
        let Some(slot) = self.slot(job).filter(|s| s.epoch == epoch) else { return };
        let path = event.path;
        if !slot.connected || slot.reloads > 0 {
            slot.touched.insert(path.clone()); // the state that is being read may be older: see `read_touched`
        }
        if !slot.connected {
            return;
        }
        match event.kind {
            EventKind::Children => {}
            EventKind::Deleted => {
                slot.void_reads(&path);
                self.change(job, path, None);
            }
            EventKind::Created if slot.is_flag(&path) => {
                slot.void_reads(&path);
                self.change(job, path, Some(Node::new("", 0, 0, now)));
            }
            EventKind::Created | EventKind::Changed => self.read_node(job, path),
        }
    }

    /// Gathers a change: a machine gets all changes of a pass together, since each input evaluates all items.
    fn change(&mut self, job: SlotId, path: String, node: Option<Node>) {
        let Some(slot) = self.slots.get_mut(job) else { return };
        slot.changed.push((path, node));
        if slot.changed.len() == 1 {
            self.changed.push(job);
        }
    }

    /// Gives the machine an input, after the changes that came earlier.
    fn input(&mut self, job: SlotId, input: Input) {
        self.give_changes(job);
        self.give(job, input);
    }

    fn give_changes(&mut self, job: SlotId) {
        let changed = self.slot(job).map(|slot| std::mem::take(&mut slot.changed)).unwrap_or_default();
        if !changed.is_empty() {
            self.give(job, Input::Changed(changed));
        }
    }

    fn give(&mut self, job: SlotId, input: Input) {
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(job) else { return };
        let effects = slot.machine.handle(now, input);
        let wake = slot.machine.next_wakeup();
        slot.tell_state();
        slot.tell_yielding();
        if let Some(at) = wake {
            // Never immediately: a step that is not possible now would be retried in a loop.
            self.timers.arm(job, at.max(now + Duration::from_millis(1)));
        }
        for effect in effects {
            self.carry_out(job, effect);
        }
    }
}
