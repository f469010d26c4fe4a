//! The evidence of a cluster, which the oracle checks: the registry's history and the journal of runs, with the knowledge of the
//! code that injected the faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::machine::{JobEvent, Source};
use elasticjob_core::path::JobPath;
use elasticjob_core::time::Timestamp;

/// One run of one item.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The process.
    pub process: usize,
    /// The instance id.
    pub instance: String,
    /// Whether the instance is one of Java's: it has no token, and its due time is the second of its start.
    pub java: bool,
    /// Its session when the run began.
    pub session: u64,
    /// The item.
    pub item: u32,
    /// The due time.
    pub due: Timestamp,
    /// Why it ran.
    pub source: Source,
    /// The fencing token, 0 for Java.
    pub token: i64,
    /// When user code began.
    pub start: Timestamp,
    /// When it ended; `None` while it runs, and when its process died.
    pub end: Option<Timestamp>,
    /// Whether it was cancelled before it completed, since its instance had to leave.
    pub cut_off: bool,
    /// Until when the session of its begin lived, as far as is known.
    pub lease_end: Option<Timestamp>,
}

/// Everything that ran, by start.
pub type Journal = Vec<Entry>;

/// One change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The registry's clock.
    pub at: Timestamp,
    /// The transaction.
    pub zxid: i64,
    /// Whose session asked for it; 0 for an operator, and what a session's end took away has that session.
    pub session: u64,
    /// The node; empty for the end of a session.
    pub path: String,
    /// What happened.
    pub what: What,
}

/// What happened to a node, or to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It was created, or its data written.
    Wrote {
        /// The data.
        data: Arc<[u8]>,
        /// The session that it lives with, 0 for a persistent one.
        owner: u64,
    },
    /// It was deleted.
    Deleted,
    /// The session is over.
    SessionEnded,
}

/// A firing that an instance said it does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When it was said.
    pub at: Timestamp,
    /// By which instance.
    pub instance: String,
    /// Which items.
    pub items: Vec<u32>,
    /// The first due time.
    pub first: Timestamp,
    /// The last one; both are included.
    pub last: Timestamp,
    /// What became of it: `misfired`, `skipped`, `lost` or `passed`.
    pub word: &'static str,
}

impl Told {
    /// What a note says about firings; `None` for the others.
    pub fn from_note(at: Timestamp, instance: &str, note: &JobEvent) -> Option<Told> {
        let (word, items, first, last) = match note {
            JobEvent::Misfired { items, due } => ("misfired", items, due, due),
            JobEvent::Skipped { items, due, .. } => ("skipped", items, due, due),
            JobEvent::Lost { items, due } => ("lost", items, due, due),
            JobEvent::Passed { items, first, last, .. } => ("passed", items, first, last),
            _ => return None,
        };
        let (items, first, last) = (items.clone(), *first, *last);
        Some(Told { at, instance: instance.to_owned(), items, first, last, word })
    }
}

/// What the oracle is shown.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The job.
    pub path: JobPath,
    /// The bounds that hold for this cluster.
    pub terms: Terms,
    /// Every change of the registry below the job, by transaction.
    pub history: Vec<Change>,
    /// What ran.
    pub runs: Journal,
    /// Firings that were not begun, as reported by instances.
    pub told: Vec<Told>,
    /// Of each instance of ours, where that is known, its longest row of requests, each of which followed from the answer to
    /// the one before: when it was that long, and how long.
    pub longest_rows: BTreeMap<String, (Timestamp, u32)>,
    /// The instances of Java.
    pub java: BTreeSet<String>,
    /// The instances of ours whose clock was off: they do not see the same firings pass as the others.
    pub off: BTreeSet<String>,
    /// The processes of ours that are up at the end: instance id and session, where that is known.
    pub up: BTreeMap<String, Option<u64>>,
    /// Sessions that the registry ended before their timeout: no process can know that they are over.
    pub expired: BTreeSet<u64>,
    /// Spells in which something was wrong: a fault from its beginning to its end.
    pub troubles: Vec<(Timestamp, Timestamp)>,
    /// Spells in which an instance did nothing while its session lived on: it hears of nothing before their end.
    pub stuck: Vec<(String, Timestamp, Timestamp)>,
}

/// The bounds that hold for a cluster.
#[derive(Clone, Debug)]
pub struct Terms {
    /// After how long without contact the registry ends a session.
    pub session_timeout: Duration,
    /// The time within which every connected process knows of a change, and a request is answered.
    pub round_trip: Duration,
    /// How long a run takes at the most.
    pub run_max: Duration,
    /// Whether a clock was set back: its firings come twice.
    pub stepped_back: bool,
    /// By how much a clock may be off.
    pub clock_error: Duration,
    /// When the last fault was over.
    pub quiet_from: Timestamp,
    /// When the evidence ends.
    pub end: Timestamp,
    /// Whether the last state is to be judged: the cluster was left alone for long enough.
    pub is_at_rest: bool,
}
