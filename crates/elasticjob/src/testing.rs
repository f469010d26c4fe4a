//! A test kit for jobs: a clock that can be moved, so that a scheduled job is tested in milliseconds.
//!
//! ```
//! use elasticjob::{ScheduleJob, testing::TestClock};
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! let clock = TestClock::new();
//! let connection = clock.connect().await?;
//! let job = ScheduleJob::new("nightly", 2)
//!     .cron("0 30 2 * * ?")
//!     .simple(|context| async move { if context.item() == 1 { Err("no paper".into()) } else { Ok(()) } })
//!     .start(&connection)
//!     .await?;
//! let firing = clock.fire_next(&job).await?;
//! assert_eq!(firing.due.to_string().get(11..16).is_some(), true);
//! assert_eq!((firing.items, firing.failed), (vec![0, 1], vec![1]));
//! # Ok::<(), elasticjob::Error>(()) }).unwrap();
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::machine::JobEvent;
use elasticjob_core::time::Timestamp;
use elasticjob_registry::memory::Memory;

use crate::clock::Clock;
use crate::connection::{Connection, ConnectionBuilder};
use crate::handle::JobHandle;
use crate::worker::JobState;
use crate::{Error, NetworkPreference};

/// A wall clock that runs on and can be moved forward. Schedules, misfires and log lines of the connections on it follow it;
/// timeouts and delays of retries pass in real time.
#[derive(Clone, Debug)]
pub struct TestClock {
    clock: Clock,
    memory: Memory,
}

/// A firing that [`TestClock::fire_next`] waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Firing {
    /// The due time.
    pub due: Timestamp,
    /// The items that completed, in order.
    pub items: Vec<u32>,
    /// Those of them that failed.
    pub failed: Vec<u32>,
}

impl Default for TestClock {
    fn default() -> TestClock {
        TestClock::new()
    }
}

impl TestClock {
    /// Creates a clock that shows the host's time, with an empty registry in memory.
    pub fn new() -> TestClock {
        let clock = Clock::movable();
        let of_registry = clock.clone();
        TestClock { clock, memory: Memory::with_clock(move || of_registry.now()) }
    }

    /// Returns the time of this clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock forward. Jobs that become due start immediately. A job with several due times in that span runs once, for
    /// the last of them, as after a pause of the host.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Connects to the registry of this clock. Each connection is an instance of its own, as another process would be.
    ///
    /// # Errors
    ///
    /// None in practice: the registry is in memory, and the loopback address is used.
    pub async fn connect(&self) -> Result<Connection, Error> {
        self.builder().connect().await
    }

    /// Returns a builder for such a connection, to add plug-ins.
    pub fn builder(&self) -> ConnectionBuilder {
        let network = NetworkPreference::default().address("127.0.0.1");
        Connection::on(Arc::new(self.memory.connect())).network(network).clock(self.clock.clone())
    }

    /// Waits until the job owns items, moves the clock to its next firing, and waits until all items that this instance starts for it
    /// have completed.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] if the job stops before, or has no further firing.
    pub async fn fire_next(&self, job: &JobHandle) -> Result<Firing, Error> {
        let stopped = || Error::Stopped { job: job.name().to_owned() };
        let mut events = job.events().await?;
        let mut states = job.states();
        let is_ready = |state: &JobState| match state {
            JobState::Running { items, next, .. } => !items.is_empty() && next.is_some(),
            JobState::Stopped(_) => true,
            JobState::Starting | JobState::Disconnected => false,
        };
        let state = states.wait_for(is_ready).await.map_err(|_| stopped())?.clone();
        let JobState::Running { items: owned, next: Some(next), .. } = state else { return Err(stopped()) };
        self.advance(next.since(self.now()));
        let mut open: BTreeSet<u32> = owned.into_iter().collect();
        let (mut running, mut items, mut failed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        while !open.is_empty() || !running.is_empty() {
            match events.next().await.ok_or_else(stopped)? {
                JobEvent::Begun { due, items, .. } if due == next => {
                    open.retain(|item| !items.contains(item));
                    running.extend(items);
                }
                JobEvent::Ended { items: ended, failed: of_them } => {
                    let of_firing = |item: &u32| running.remove(item);
                    items.extend(ended.into_iter().filter(of_firing));
                    failed.extend(of_them.into_iter().filter(|item| items.contains(item)));
                }
                JobEvent::Skipped { due, items, .. } if due == next => {
                    open.retain(|item| !items.is_empty() && !items.contains(item));
                }
                JobEvent::Misfired { due, items } if due == next => open.retain(|item| !items.contains(item)),
                _ => {}
            }
        }
        Ok(Firing { due: next, items: items.into_iter().collect(), failed: failed.into_iter().collect() })
    }
}
