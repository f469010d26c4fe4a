//! The errors of the library.

use elasticjob_core::config::ConfigError;

use crate::operations::OperationError;

/// The reason why a connection, a job or an operation on it failed. [`Error::is_retryable`] returns whether to try again.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid.
    #[error("job `{job}`: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config {
        /// The name of the job.
        job: String,
        /// Every fault.
        faults: Vec<ConfigError>,
    },
    /// The job was not started, because of the registry's content or because it was stopped before.
    #[error("job `{job}` was not started: {reason}")]
    Refused {
        /// The name of the job.
        job: String,
        /// The reason.
        reason: String,
    },
    /// This process runs a job of that name on this connection already.
    #[error("job `{job}` is already running in this process")]
    Duplicate {
        /// The name of the job.
        job: String,
    },
    /// The job is not registered with this process, because it has stopped or is still starting.
    #[error("job `{job}` is not running in this process: it is still starting, or has stopped")]
    Stopped {
        /// The name of the job.
        job: String,
    },
    /// This process has no address or id that other instances could know it by.
    #[error("cannot choose the instance id of this process: {reason}")]
    Identity {
        /// The reason, and the addresses that were found.
        reason: String,
    },
    /// The settings of the event trace are invalid.
    #[error("tracing: {reason}")]
    Tracing {
        /// The reason.
        reason: String,
    },
    /// An operation on a job failed.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] elasticjob_registry::Error),
    /// The connection is closed.
    #[error("the registry connection of this process is closed")]
    Ended,
}

impl Error {
    /// Returns `true` if the same call may succeed later without a change of its arguments.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Registry(error) => error.is_retryable(),
            Error::Operation(error) => error.is_retryable(),
            Error::Config { .. }
            | Error::Refused { .. }
            | Error::Duplicate { .. }
            | Error::Stopped { .. }
            | Error::Identity { .. }
            | Error::Tracing { .. }
            | Error::Ended => false,
        }
    }
}
