//! The queue of a data source and the task that writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{TraceError, TraceEvent};
use crate::clock;
use crate::contract::trace::DynTraceSink;

/// Events that wait, at the most, and their memory.
const EVENTS_MAX: usize = 50_000;
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Of these, the memory of run logs: they must not push out the ends of runs.
const LOG_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Events that are written together.
const BATCH_MAX: usize = 2_000;
/// A batch that is not full waits so long for more: begin and end of a short run then are one row that is written once.
const LINGER: Duration = Duration::from_millis(500);
/// A storage that is away is asked again after this, doubled each time up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// One line a minute says that a storage is still away.
const STILL_AWAY: Duration = Duration::from_secs(60);

enum Message {
    Event(TraceEvent),
    Flush(oneshot::Sender<()>),
}

/// Takes events in.
pub(super) struct Bus {
    sender: mpsc::Sender<Message>,
    load: Arc<Load>,
}

#[derive(Default)]
struct Load {
    bytes: AtomicUsize,
    log_bytes: AtomicUsize,
    /// Since the start.
    dropped: AtomicU64,
}

impl Bus {
    /// Starts the task; it ends when the bus is dropped and everything is written.
    pub(super) fn start(sink: Box<dyn DynTraceSink>) -> Bus {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let load = Arc::new(Load::default());
        let writer = Writer { sink, receiver, load: Arc::clone(&load), ended: false, told: 0 };
        tokio::spawn(writer.run());
        Bus { sender, load }
    }

    /// Takes an event in; when there is no room it is dropped and counted. Never waits.
    pub(super) fn post(&self, event: TraceEvent) {
        let (bytes, log_bytes) = (event.bytes(), event.log_bytes());
        let fits = self.load.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= BYTES_MAX;
        let logs_fit = self.load.log_bytes.fetch_add(log_bytes, Ordering::Relaxed) + log_bytes <= LOG_BYTES_MAX;
        // Without a log, `log_bytes` is 0, and the logs of others do not matter.
        let fits = fits && (log_bytes == 0 || logs_fit);
        if !fits || self.sender.try_send(Message::Event(event)).is_err() {
            self.load.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.load.log_bytes.fetch_sub(log_bytes, Ordering::Relaxed);
            self.load.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events wait, and how many were dropped since the start.
    pub(super) fn load(&self) -> (usize, u64) {
        let dropped = self.load.dropped.load(Ordering::Relaxed);
        (self.sender.max_capacity() - self.sender.capacity(), dropped)
    }

    /// Waits until all accepted events are written or dropped.
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

struct Writer {
    sink: Box<dyn DynTraceSink>,
    receiver: mpsc::Receiver<Message>,
    load: Arc<Load>,
    ended: bool,
    /// Number of dropped events that were logged.
    told: u64,
}

impl Writer {
    async fn run(mut self) {
        while !self.ended {
            let (events, flushes) = self.gather().await;
            if !events.is_empty() {
                self.write(&events).await;
            }
            let bytes = events.iter().map(TraceEvent::bytes).sum();
            self.load.bytes.fetch_sub(bytes, Ordering::Relaxed);
            let log_bytes = events.iter().map(TraceEvent::log_bytes).sum();
            self.load.log_bytes.fetch_sub(log_bytes, Ordering::Relaxed);
            for done in flushes {
                let _ = done.send(());
            }
            self.tell_dropped();
        }
    }

    /// Collects events until the batch is full, a caller waits for it, or its time is over.
    async fn gather(&mut self) -> (Vec<TraceEvent>, Vec<oneshot::Sender<()>>) {
        let (mut events, mut flushes) = (Vec::new(), Vec::new());
        let mut messages = Vec::new();
        let mut linger = None;
        while events.len() < BATCH_MAX && flushes.is_empty() {
            let room = BATCH_MAX - events.len();
            let more = self.receiver.recv_many(&mut messages, room);
            let received = match linger.take() {
                None => more.await,
                Some(until) => match futures_util::future::select(std::pin::pin!(more), until).await {
                    futures_util::future::Either::Left((received, until)) => {
                        linger = Some(until);
                        received
                    }
                    futures_util::future::Either::Right(_) => break,
                },
            };
            if received == 0 {
                self.ended = true;
                break;
            }
            linger.get_or_insert_with(|| Box::pin(clock::sleep(LINGER)));
            for message in messages.drain(..) {
                match message {
                    Message::Event(event) => events.push(event),
                    Message::Flush(done) => flushes.push(done),
                }
            }
        }
        (events, flushes)
    }

    async fn write(&mut self, events: &[TraceEvent]) {
        let mut pause = RETRY;
        let (mut away, mut silent) = (false, Duration::ZERO);
        loop {
            match self.sink.write(events).await {
                Ok(()) => break,
                Err(error @ TraceError::Refused { .. }) => {
                    tracing::error!("event trace in {}: {error}", self.sink.describe());
                    break;
                }
                Err(error @ TraceError::Away(_)) => {
                    if !away || silent >= STILL_AWAY {
                        let waiting = self.receiver.len() + events.len();
                        let dropped = self.load.dropped.load(Ordering::Relaxed) - self.told;
                        tracing::error!(
                            waiting,
                            dropped,
                            "cannot write the event trace to {}: {error}; retrying; jobs keep running",
                            self.sink.describe()
                        );
                        silent = Duration::ZERO;
                    }
                    away = true;
                }
            }
            if self.receiver.is_closed() {
                let lost = events.len() + self.receiver.len();
                tracing::error!(
                    events = lost,
                    "lost the last events of the event trace: {} was unreachable until the shutdown",
                    self.sink.describe()
                );
                return;
            }
            clock::sleep(pause).await;
            silent += pause;
            pause = (pause * 2).min(RETRY_MAX);
        }
        if away {
            tracing::info!("the event trace is written to {} again", self.sink.describe());
        }
    }

    fn tell_dropped(&mut self) {
        let all = self.load.dropped.load(Ordering::Relaxed);
        let dropped = all - std::mem::replace(&mut self.told, all);
        if dropped > 0 {
            tracing::error!(
                events = dropped,
                "dropped events of the event trace to {}, because the queue was full",
                self.sink.describe()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use elasticjob_core::time::Timestamp;

    use super::super::{State, Status, TraceSink};
    use super::*;

    fn event(number: usize, message: String) -> TraceEvent {
        TraceEvent::Status(Status {
            id: uuid::Uuid::from_u128(number as u128),
            job: "a".into(),
            task_id: "t".into(),
            ip: "10.0.0.1".into(),
            items: vec![0],
            state: State::Running,
            message,
            at: Timestamp(0),
        })
    }

    /// A storage that is away for so many calls.
    struct Shaky {
        away: u32,
        written: Arc<Mutex<Vec<Vec<TraceEvent>>>>,
    }

    impl TraceSink for Shaky {
        async fn write(&mut self, events: &[TraceEvent]) -> Result<(), TraceError> {
            if self.away > 0 {
                self.away -= 1;
                return Err(TraceError::Away("no".into()));
            }
            self.written.lock().expect("a lock").push(events.to_vec());
            Ok(())
        }

        fn describe(&self) -> String {
            "a test".into()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_for_a_storage_that_is_away_and_come_in_order() {
        let written: Arc<Mutex<Vec<Vec<TraceEvent>>>> = Arc::default();
        let bus = Bus::start(Box::new(Shaky { away: 7, written: Arc::clone(&written) }));
        let events: Vec<TraceEvent> = (0..5_000).map(|n| event(n, String::new())).collect();
        events.iter().for_each(|e| bus.post(e.clone()));
        bus.flush().await;
        let batches = written.lock().expect("a lock");
        assert!(batches.len() <= 4, "in batches: {}", batches.len());
        assert_eq!(batches.concat(), events);
        assert_eq!(bus.load.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_do_not_fit_are_dropped_and_counted_without_waiting() {
        for (text, most) in [(String::new(), EVENTS_MAX + BATCH_MAX), ("x".repeat(4_000), BYTES_MAX / 4_000)] {
            let written: Arc<Mutex<Vec<Vec<TraceEvent>>>> = Arc::default();
            let bus = Bus::start(Box::new(Shaky { away: 3, written: Arc::clone(&written) }));
            (0..100_000).for_each(|n| bus.post(event(n, text.clone())));
            let dropped = bus.load.dropped.load(Ordering::Relaxed);
            assert!(dropped as usize >= 100_000 - most, "{dropped}");
            bus.flush().await;
            let kept: usize = written.lock().expect("a lock").iter().map(Vec::len).sum();
            assert_eq!(kept + dropped as usize, 100_000);
        }
    }
}
