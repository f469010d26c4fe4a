//! What can go wrong with a start.

use elasticjob_core::config::ConfigError;

/// Why a job was not started, or an operation not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong; every fault is told.
    #[error("job `{job}`: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config {
        /// The job.
        job: String,
        /// Its faults.
        faults: Vec<ConfigError>,
    },
    /// The job was refused by what the registry has, or has left meanwhile.
    #[error("job `{job}` was not started: {reason}")]
    Refused {
        /// The job.
        job: String,
        /// Why.
        reason: String,
    },
    /// A job of that name runs in this process already.
    #[error("job `{job}` runs in this process already")]
    Duplicate {
        /// The job.
        job: String,
    },
    /// No address of this host can be its name among the servers.
    #[error("no address for this server: {reason}")]
    Identity {
        /// What was looked for.
        reason: String,
    },
    /// The event trace cannot be written as it is asked for.
    #[error("tracing: {reason}")]
    Tracing {
        /// Why.
        reason: String,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] elasticjob_registry::Error),
    /// The process is shutting down.
    #[error("the scheduler of this process has ended")]
    Ended,
}
