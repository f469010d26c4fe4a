//! One job of the process: its machine, its watches, and what is under way for it.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use elasticjob_core::machine::{EndedItem, JobEvent, JobMachine, StepId, StopReason};
use elasticjob_core::path::Place;
use elasticjob_core::tree::Node;
use elasticjob_registry::Sink;
use tokio::sync::{broadcast, oneshot, watch};

use super::{JobState, NameGuard};
use crate::execute::Executor;
use crate::watches::Watches;

pub(super) struct Slot {
    _reserved: NameGuard,
    pub(super) name: String,
    pub(super) machine: JobMachine,
    pub(super) executor: Executor,
    pub(super) watches: Watches,
    /// The nodes that the machine watches in addition to the fixed ones.
    pub(super) wanted: BTreeSet<String>,
    pub(super) sink: Option<Sink>,
    pub(super) latches: HashMap<StepId, oneshot::Sender<()>>,
    pub(super) epoch: u64,
    pub(super) connected: bool,
    /// The session in which it was connected last.
    pub(super) session: Option<u64>,
    /// States that are being read, and the nodes that changed in the meantime.
    pub(super) reloads: u32,
    pub(super) touched: BTreeSet<String>,
    /// Changed nodes that the machine has not received yet.
    pub(super) changed: Vec<(String, Option<Node>)>,
    /// Items that completed, with their outcome, which the machine has not received yet.
    pub(super) ended: Vec<EndedItem>,
    /// When the registry refused a request of the job last.
    pub(super) refused_at: Option<Instant>,
    /// The items whose streams are to end.
    yielding: BTreeSet<u32>,
    reads: HashMap<String, u64>,
    last_ticket: u64,
    state: watch::Sender<JobState>,
    /// The subscribers to the events of the job. Created with the first of them, since its buffer takes memory.
    events: Option<broadcast::Sender<JobEvent>>,
}

/// Maximum number of events that a subscriber may be late.
const EVENTS_MAX: usize = 1_024;

impl Slot {
    pub(super) fn new(
        reserved: NameGuard,
        name: String,
        machine: JobMachine,
        executor: Executor,
        state: watch::Sender<JobState>,
    ) -> Slot {
        Slot {
            _reserved: reserved,
            name,
            machine,
            executor,
            watches: Watches::default(),
            wanted: BTreeSet::new(),
            sink: None,
            latches: HashMap::new(),
            epoch: 0,
            connected: false,
            session: None,
            reloads: 0,
            touched: BTreeSet::new(),
            changed: Vec::new(),
            ended: Vec::new(),
            refused_at: None,
            yielding: BTreeSet::new(),
            reads: HashMap::new(),
            last_ticket: 0,
            state,
            events: None,
        }
    }

    /// Returns the states of the job.
    pub(super) fn states(&self) -> watch::Receiver<JobState> {
        self.state.subscribe()
    }

    /// Returns the events from now on.
    pub(super) fn subscribe(&mut self) -> broadcast::Receiver<JobEvent> {
        self.events.get_or_insert_with(|| broadcast::channel(EVENTS_MAX).0).subscribe()
    }

    pub(super) fn announce(&mut self, event: JobEvent) {
        // Without a subscriber the buffer is dropped.
        if self.events.take_if(|events| events.receiver_count() == 0).is_none()
            && let Some(events) = &self.events
        {
            let _ = events.send(event); // the last subscriber may have gone in this moment
        }
    }

    /// Forgets what hung on the link; says whether there was one.
    pub(super) fn disconnect(&mut self) -> bool {
        self.watches = Watches::default();
        self.latches.clear();
        self.reads.clear();
        self.touched.clear();
        self.changed.clear();
        self.reloads = 0;
        self.sink = None;
        self.epoch = 0;
        std::mem::take(&mut self.connected)
    }

    /// Nodes of which only the being there matters: no need to read them.
    pub(super) fn is_flag(&self, path: &str) -> bool {
        matches!(
            self.machine.path().place(path),
            Some(
                Place::Trigger(_)
                    | Place::ItemTrigger(..)
                    | Place::Leaving(_)
                    | Place::FailoverItem(_)
                    | Place::ItemDisabled(_)
            )
        )
    }

    /// A new read of a node makes void those that are under way.
    pub(super) fn begin_read(&mut self, path: &str) -> u64 {
        self.last_ticket += 1;
        self.reads.insert(path.to_owned(), self.last_ticket);
        self.last_ticket
    }

    /// Whether that read is still the last word on its node.
    pub(super) fn settle_read(&mut self, path: &str, ticket: u64) -> bool {
        let counts = self.reads.get(path) == Some(&ticket);
        if counts {
            self.reads.remove(path);
        }
        counts
    }

    pub(super) fn void_reads(&mut self, path: &str) {
        self.reads.remove(path);
    }

    /// Publishes the state of the job to its handles if it has changed.
    pub(super) fn tell_state(&mut self) {
        let machine = &self.machine;
        let (joined, leads, next) = (machine.is_joined(), machine.leads(), machine.next_due());
        if joined {
            self.executor.meter().stands(true, machine.owned().len(), leads);
        } else {
            self.executor.meter().stands(false, 0, false);
        }
        let waits = if self.connected { JobState::Starting } else { JobState::Disconnected };
        self.state.send_if_modified(|old| {
            // Each input comes here: the list of items is made only for those who have not heard of it.
            let same = match &*old {
                JobState::Stopped(_) => true,
                JobState::Running { items, leads: led, next: before } if joined => {
                    (*led, *before) == (leads, next) && items.iter().copied().eq(machine.owned())
                }
                before => !joined && *before == waits,
            };
            if !same {
                *old = if joined { JobState::Running { items: machine.owned().collect(), leads, next } } else { waits };
            }
            !same
        });
    }

    /// Tells streaming runs whether they should end. Once told it stays so until the run has ended: what it should make room
    /// for may look as if it were over, as a resharding that leaves running items with their owner.
    pub(super) fn tell_yielding(&mut self) {
        if self.executor.streams() {
            let running: BTreeSet<u32> = self.machine.running().collect();
            let yielding = |item: &u32| self.yielding.contains(item) || self.machine.should_yield(*item);
            let yielding: BTreeSet<u32> = running.into_iter().filter(yielding).collect();
            self.executor.set_yielding(&yielding);
            self.yielding = yielding;
        }
    }

    /// Tells the handles that it is over, once what was cut off has ended.
    pub(super) fn stop(self, reason: StopReason, has_nodes: bool) -> impl Future<Output = ()> + Send + 'static {
        let (state, drained) = (self.state, self.executor.drain(has_nodes));
        async move {
            drained.await;
            state.send_replace(JobState::Stopped(reason));
        }
    }
}
