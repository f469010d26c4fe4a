//! Clusters in a box: the very machines that ship, on one simulated registry, in virtual time.
//!
//! Everything comes from one seed: latencies, run times, faults. [`World`] runs a cluster and keeps a [`Journal`] of what
//! ran where; the tests of this crate judge journals and registries. The fault library, the oracle as a crate of its own
//! and the `fuzz` command build on this.

mod chance;
mod scenario;
mod world;

pub use chance::Chance;
pub use scenario::{Entry, Fault, Journal, Options};
pub use world::World;
