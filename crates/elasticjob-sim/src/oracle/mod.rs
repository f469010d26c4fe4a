//! The oracle: one file for each invariant. Each judges the registry's history and the journal of runs, within the
//! limits that the code that injected the faults gives. It does not depend on how the cluster was run.

mod assignment;
mod calm;
mod cover;
mod disabled;
mod firings;
mod leader;
mod marks;
mod members;
mod overlap;
mod paths;
mod progress;
mod replay;
mod takeover;
mod tokens;
mod triggers;

use std::fmt;

use elasticjob_core::path::Place;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::Ledger;

use crate::{Entry, Evidence, What};
pub use replay::{Replay, Standing};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, by its file's name.
    pub invariant: &'static str,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.invariant, self.at, self.what)
    }
}

type Invariant = fn(&Evidence) -> Vec<Violation>;

/// Every invariant by its name.
pub const INVARIANTS: [(&str, Invariant); 14] = [
    (overlap::NAME, overlap::judge),
    (assignment::NAME, assignment::judge),
    (tokens::NAME, tokens::judge),
    (firings::NAME, firings::judge),
    (takeover::NAME, takeover::judge),
    (cover::NAME, cover::judge),
    (leader::NAME, leader::judge),
    (marks::NAME, marks::judge),
    (disabled::NAME, disabled::judge),
    (paths::NAME, paths::judge),
    (progress::NAME, progress::judge),
    (members::NAME, members::judge),
    (triggers::NAME, triggers::judge),
    (calm::NAME, calm::judge),
];

impl Evidence {
    /// Whether a node's text names a live instance of Java's.
    fn is_java_s(&self, replay: &Replay, path: &str) -> bool {
        let id = replay.get(path).map(Standing::text).unwrap_or_default();
        self.java.contains(&id) && replay.get(&self.path.instance(&id)).is_some()
    }

    /// Whether a run of ours was begun in a session that the registry had ended before its time: it could not know.
    fn is_beyond_its_lease(&self, run: &Entry) -> bool {
        run.lease_end.is_some_and(|lease| lease <= run.start) && self.expired.contains(&run.session)
    }

    /// When a run's begin was sent, by its instance's clock, and when it was committed: it may have been in transit for a
    /// long time.
    fn begin_of(&self, run: &Entry) -> (Timestamp, Timestamp) {
        let from = self.history.partition_point(|change| change.zxid < run.token);
        let begin = || self.history[from..].iter().take_while(|change| change.zxid == run.token);
        let texts = begin().filter_map(|change| match &change.what {
            What::Wrote { data, .. } => Ledger::parse(data)?.at,
            What::Deleted | What::SessionEnded => None,
        });
        let begun = begin().next().map_or(run.start, |change| change.at);
        // By a clock that may be ahead: no request is later than its effect.
        (texts.min().unwrap_or(run.start).min(begun), begun)
    }

    /// Whether a session was one of Java's: it registered one of its instances.
    fn is_java_s_session(&self, session: u64) -> bool {
        self.history.iter().any(|change| {
            change.session == session
                && matches!(change.what, What::Wrote { .. })
                && matches!(self.path.place(&change.path), Some(Place::Instance(id)) if self.java.contains(id))
        })
    }
}

/// Asks every invariant.
pub fn judge(evidence: &Evidence) -> Vec<Violation> {
    INVARIANTS.iter().flat_map(|(_, judge)| judge(evidence)).collect()
}
