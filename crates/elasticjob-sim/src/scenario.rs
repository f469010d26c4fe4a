//! What a world is told, and what it tells: options, faults, and the journal of what ran.

use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// The configuration with which every instance starts.
    pub document: JobDocument,
    /// How many instances start.
    pub instances: usize,
    /// After how long without contact the registry ends a session.
    pub session_timeout: Duration,
    /// How long a run takes, in milliseconds, at least and at most.
    pub run_millis: (u64, u64),
    /// By how much the clocks of the instances differ from the registry's.
    pub clock_error: Duration,
    /// Whether some requests, answers and events take up to 0.7 s.
    pub slow_requests: bool,
}

/// What can go wrong with an instance, and what an operator can do.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The process is killed; another one starts in its place after that long.
    Crash {
        /// When another one starts; never for `None`.
        restart: Option<Duration>,
    },
    /// The link to the registry is cut for that long.
    Cut(Duration),
    /// The process stands still for that long.
    Pause(Duration),
    /// The process is asked to stop.
    Stop,
    /// The registry carries a transaction of an operator out.
    Operator(Vec<Op>),
}

/// One run of one item.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The process.
    pub process: usize,
    /// The instance id.
    pub instance: String,
    /// The item.
    pub item: u32,
    /// The due time.
    pub due: Timestamp,
    /// Why it ran.
    pub source: Source,
    /// The fencing token.
    pub token: i64,
    /// When user code began.
    pub start: Timestamp,
    /// When it ended; `None` while it runs, and when its process died.
    pub end: Option<Timestamp>,
    /// Until when the session of its begin lived, as far as is known.
    pub lease_end: Option<Timestamp>,
}

/// Everything that ran.
pub type Journal = Vec<Entry>;
