//! Clusters in a box: the very machines that ship, on one simulated registry, in virtual time, beside Java-like peers.
//!
//! Everything comes from one seed: latencies, run times, faults. A [`Schedule`] lists the faults with their times, a [`World`] runs
//! it and produces [`Evidence`], the [`oracle`] judges that. The program `fuzz` does so for millions of seeds. The
//! oracle does not depend on worlds: it also judges the same evidence of a real cluster.

mod chance;
mod java;
mod journal;
pub mod oracle;
mod planted;
mod scenario;
mod schedule;
mod world;

pub use chance::Chance;
pub use journal::{Change, Entry, Evidence, Journal, Terms, Told, What};
pub use planted::Defect;
pub use scenario::{Fault, Mark, Options, Order};
pub use schedule::{Outcome, Schedule, shrink};
pub use world::World;
