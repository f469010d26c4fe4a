//! Carries out what machines want. Writes for them come from here, from `latch.rs` when asked by this, and from `leftovers.rs` for
//! a job that has left.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::machine::{Effect, JobEvent, Level, StepId, StepResult};
use elasticjob_core::path::JobPath;
use elasticjob_core::query::Query;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Node, Op, Reason};
use elasticjob_registry::{Error, Link, Outcome, Registry, Target};
use tokio::sync::oneshot;

use super::leftovers::Leftover;
use super::slots::SlotId;
use super::{Message, Task};
use crate::clock::{self, Clock};
use crate::committer::Commit;
use crate::latch;
use crate::watches;

/// Pause before a failed request is sent again on the same connection.
const READ_RETRY: Duration = Duration::from_secs(1);

impl Task {
    pub(super) fn carry_out(&mut self, job: SlotId, effect: Effect) {
        match effect {
            Effect::Commit(step, ops) => self.commit(job, step, ops),
            Effect::Read(step, queries) => self.read(job, step, queries),
            Effect::Latch(step, path) => self.latch(job, step, path),
            Effect::Unlatch(step, node) => self.unlatch(job, step, node),
            Effect::Watch(paths) => paths.into_iter().for_each(|path| self.watch(job, path)),
            Effect::Unwatch(paths) => {
                if let Some(slot) = self.slot(job) {
                    for path in paths {
                        slot.wanted.remove(&path);
                        slot.watches.nodes.remove(&path);
                    }
                }
            }
            Effect::Reload => self.reload(job),
            Effect::CheckClock => self.check_clock(job),
            Effect::Run(run) => {
                let Some(worker) = self.own.upgrade() else { return };
                if let Some(slot) = self.slot(job) {
                    slot.executor.run(run, move |run, item, end| {
                        let _ = worker.send(Message::Ended { job, run, item, end });
                    });
                }
            }
            Effect::CutOff => {
                if let Some(slot) = self.slot(job) {
                    slot.executor.cut_off();
                }
            }
            Effect::Report(event) => self.report(job, event),
            Effect::Stop(reason) => {
                if let Some(slot) = self.slots.take(job) {
                    self.timers.disarm(job);
                    self.names.remove(&slot.name);
                    self.metrics.left(&slot.name, slot.executor.meter());
                    let left = slot.session.filter(|_| !slot.connected);
                    let name = slot.name.clone();
                    if let Some(session) = left {
                        self.leftovers.insert(name.clone(), Leftover::new(session));
                    }
                    let worker = self.own.upgrade().filter(|_| left.is_some());
                    tokio::spawn(async move {
                        slot.stop(reason, left.is_some()).await;
                        if let Some(worker) = worker {
                            let _ = worker.send(Message::Drained { name });
                        }
                    });
                }
            }
        }
    }

    fn epoch(&mut self, job: SlotId) -> u64 {
        self.slot(job).map(|slot| slot.epoch).unwrap_or_default()
    }

    fn commit(&mut self, job: SlotId, step: StepId, ops: Vec<Op>) {
        let (Link::Up { session, .. }, Some(worker)) = (&self.link, self.own.upgrade()) else { return };
        let (session, epoch) = (*session, self.epoch(job));
        let done = Box::new(move |outcome, refused: Option<&Op>| {
            let result = match outcome {
                Outcome::Committed { zxid } => StepResult::Committed { zxid },
                Outcome::Refused(refusal) => {
                    if let (Reason::Forbidden, Some(op)) = (refusal.reason, refused) {
                        let error = Error::Denied { path: op.path().to_owned() };
                        let _ = worker.send(Message::Refused { job, epoch, error });
                    }
                    StepResult::Refused(refusal)
                }
                Outcome::Unknown => StepResult::Unknown,
                Outcome::Failed(error) => {
                    if !error.is_retryable() {
                        let _ = worker.send(Message::Refused { job, epoch, error });
                    }
                    StepResult::Failed
                }
            };
            let _ = worker.send(Message::Done { job, epoch, step, result });
        });
        self.committer.submit(Commit { session, ops, done });
    }

    fn read(&mut self, job: SlotId, step: StepId, queries: Vec<Query>) {
        let Some(worker) = self.own.upgrade() else { return };
        let (registry, epoch) = (Arc::clone(&self.registry), self.epoch(job));
        tokio::spawn(async move {
            let result = match registry.read(queries).await {
                Ok(answers) => StepResult::Answers(answers),
                Err(error) => {
                    if !error.is_retryable() {
                        let _ = worker.send(Message::Refused { job, epoch, error });
                    }
                    StepResult::Failed
                }
            };
            let _ = worker.send(Message::Done { job, epoch, step, result });
        });
    }

    /// Reads a node that was seen to change; a later change makes the answer void.
    pub(super) fn read_node(&mut self, job: SlotId, path: String) {
        let Some(worker) = self.own.upgrade() else { return };
        let registry = Arc::clone(&self.registry);
        let Some(slot) = self.slot(job) else { return };
        let (ticket, epoch) = (slot.begin_read(&path), slot.epoch);
        tokio::spawn(async move {
            if let Some(node) = read_until(&*registry, epoch, &path).await {
                let _ = worker.send(Message::Read { job, epoch, path, ticket, node });
            }
        });
    }

    fn watch(&mut self, job: SlotId, path: String) {
        let Some(worker) = self.own.upgrade() else { return };
        let registry = Arc::clone(&self.registry);
        let Some(slot) = self.slot(job) else { return };
        slot.wanted.insert(path.clone());
        let Some(sink) = slot.sink.clone() else { return };
        let (epoch, ticket) = (slot.epoch, slot.begin_read(&path));
        tokio::spawn(async move {
            let watch = loop {
                match registry.watch(Target::Node(path.clone()), Arc::clone(&sink)).await {
                    Ok(watch) => break watch,
                    Err(error) if error.is_retryable() && is_epoch(&*registry, epoch) => clock::sleep(READ_RETRY).await,
                    Err(_) => return,
                }
            };
            let _ = worker.send(Message::Watching { job, epoch, path: path.clone(), watch });
            if let Some(node) = read_until(&*registry, epoch, &path).await {
                let _ = worker.send(Message::Read { job, epoch, path, ticket, node });
            }
        });
    }

    fn latch(&mut self, job: SlotId, step: StepId, path: String) {
        let (Link::Up { session, .. }, Some(worker)) = (&self.link, self.own.upgrade()) else { return };
        let (registry, session) = (Arc::clone(&self.registry), *session);
        let Some(slot) = self.slot(job) else { return };
        let (cancel, cancelled) = oneshot::channel();
        slot.latches.insert(step, cancel);
        let (epoch, root) = (slot.epoch, slot.machine.path().root().to_owned());
        tokio::spawn(async move {
            let acquired = latch::acquire(registry, session, &root, &path, cancelled).await;
            let node = acquired.unwrap_or_else(|error| {
                if !error.is_retryable() {
                    let _ = worker.send(Message::Refused { job, epoch, error });
                }
                None
            });
            let _ = worker.send(Message::Latched { job, epoch, step, node });
        });
    }

    fn unlatch(&mut self, job: SlotId, step: StepId, node: Option<String>) {
        if let Some(slot) = self.slot(job) {
            slot.latches.remove(&step); // dropping the sender takes a waiting one out of the queue
        }
        let (Link::Up { session, .. }, Some(node)) = (&self.link, node) else { return };
        let (registry, session) = (Arc::clone(&self.registry), *session);
        tokio::spawn(async move { registry.commit(session, &[Op::delete(node)]).await });
    }

    fn reload(&mut self, job: SlotId) {
        let Some(worker) = self.own.upgrade() else { return };
        let registry = Arc::clone(&self.registry);
        let Some(slot) = self.slot(job) else { return };
        let (path, epoch) = (slot.machine.path().clone(), slot.epoch);
        slot.reloads += 1;
        tokio::spawn(async move {
            let state = watches::read(&*registry, &path).await.ok().map(Box::new);
            let _ = worker.send(Message::Reloaded { job, epoch, state });
        });
    }

    fn check_clock(&mut self, job: SlotId) {
        let (Link::Up { session, .. }, Some(worker)) = (&self.link, self.own.upgrade()) else { return };
        let (registry, session) = (Arc::clone(&self.registry), *session);
        let Some(slot) = self.slot(job) else { return };
        let (path, epoch) = (slot.machine.path().clone(), slot.epoch);
        let clock = self.clock.clone();
        tokio::spawn(async move {
            if let Some(difference) = clock_difference(&*registry, session, &path, &clock).await {
                let _ = worker.send(Message::ClockChecked { job, epoch, difference });
            }
        });
    }

    fn report(&mut self, job: SlotId, event: JobEvent) {
        let Some(slot) = self.slot(job) else { return };
        slot.executor.meter().count(&event);
        if let (JobEvent::Misfired { items, .. }, Some(config)) = (&event, slot.machine.config()) {
            slot.executor.missed(config, items);
        }
        slot.executor.record(&slot.name, slot.machine.config().map(|config| &**config), &event);
        log(&slot.name, &event);
        slot.announce(event);
    }
}

/// Logs an event: its sentence, and its data in fields. What the level filters out costs nothing.
fn log(job: &str, event: &JobEvent) {
    macro_rules! line {
        ($level:ident) => {
            if tracing::enabled!(tracing::Level::$level) {
                let fields = event.fields();
                let shown = |text: &Option<String>| text.clone().map(tracing::field::display);
                let time = |time: Option<Timestamp>| time.map(tracing::field::display);
                tracing::event!(
                    tracing::Level::$level,
                    job,
                    instance = shown(&fields.instance),
                    from = shown(&fields.from),
                    server = shown(&fields.server),
                    item = fields.item,
                    items = shown(&fields.items),
                    failed = shown(&fields.failed),
                    kept = shown(&fields.kept),
                    source = fields.source,
                    due = time(fields.due),
                    last_due = time(fields.last_due),
                    firings = fields.firings,
                    late_ms = fields.late_ms,
                    next = time(fields.next),
                    cron = fields.cron,
                    zone = fields.zone,
                    old = fields.old,
                    new = fields.new,
                    session = shown(&fields.session),
                    step = fields.step,
                    attempts = fields.attempts,
                    strategy = fields.strategy,
                    difference_ms = fields.difference_ms,
                    limit_ms = fields.limit_ms,
                    keys = fields.keys,
                    "{}",
                    event.message()
                );
            }
        };
    }
    match event.level() {
        Level::Debug => line!(DEBUG),
        Level::Info => line!(INFO),
        Level::Warn => line!(WARN),
        Level::Error => line!(ERROR),
    }
}

/// The registry's clock is read from the time of a write, as Java does it (`systemTime/current`).
async fn clock_difference(registry: &dyn Registry, session: u64, path: &JobPath, clock: &Clock) -> Option<Duration> {
    let (parent, node) = (path.below("systemTime"), path.below("systemTime/current"));
    let ops = vec![Op::Ensure(parent), Op::Ensure(node.clone()), Op::set(node.clone(), "")];
    let before = clock.now();
    if !matches!(registry.commit(session, &ops).await, Outcome::Committed { .. }) {
        return None;
    }
    let after = clock.now();
    let answers = registry.read(vec![Query::Node(node)]).await.ok()?;
    let theirs = answers[0].node()?.modified;
    // The write happened between the two readings of our clock.
    Some(theirs.since(after).max(before.since(theirs)))
}

/// Reads a node; retries failures while the connection is up. `None` when it is not up any more.
async fn read_until(registry: &dyn Registry, epoch: u64, path: &str) -> Option<Option<Node>> {
    loop {
        match registry.read(vec![Query::Node(path.to_owned())]).await {
            Ok(answers) => return Some(answers.first().and_then(|answer| answer.node()).cloned()),
            Err(error) if error.is_retryable() && is_epoch(registry, epoch) => clock::sleep(READ_RETRY).await,
            Err(_) => return None,
        }
    }
}

fn is_epoch(registry: &dyn Registry, epoch: u64) -> bool {
    matches!(&*registry.link().borrow(), Link::Up { epoch: current, .. } if *current == epoch)
}
