//! What can go wrong with a registry.

use std::path::PathBuf;

/// A failed request or connection. [`Error::is_retryable`] says whether trying again can help.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no link, or it broke.
    #[error("no connection to {registry}: {reason}")]
    Unreachable {
        /// Which registry.
        registry: String,
        /// Why.
        reason: String,
    },
    /// An answer did not come in time.
    #[error("{registry} did not answer in time")]
    TimedOut {
        /// Which registry.
        registry: String,
    },
    /// The node, or its parent, is not there.
    #[error("node `{path}` does not exist")]
    Missing {
        /// The node.
        path: String,
    },
    /// The access is refused.
    #[error(
        "access to `{path}` in the namespace is denied: set the digest of a user who may access it (`regCenter.digest` or ELASTICJOB_DIGEST), or change the ACL of this node and of its parent"
    )]
    Denied {
        /// The node.
        path: String,
    },
    /// The registry rejects the request permanently, for another reason than a right: a quota, a read-only server.
    #[error("{registry} rejects a request on `{path}`: {reason}")]
    Rejected {
        /// The registry.
        registry: String,
        /// The node.
        path: String,
        /// The reason that the registry gave.
        reason: String,
    },
    /// The transaction is larger than a registry takes.
    #[error(
        "a transaction on `{path}` has {bytes} bytes, more than the registry's limit of {limit}: shorten the parameters or properties of the job"
    )]
    TooLarge {
        /// Its first node.
        path: String,
        /// The bytes of its paths and data.
        bytes: usize,
        /// The most that is sent.
        limit: usize,
    },
    /// Another user controls the file of an embedded registry, and so could decide what this process executes.
    #[error("the embedded registry {} is not used: {reason}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Who controls it, and what to do.
        reason: String,
    },
    /// The address of a registry is wrong.
    #[error("registry address `{}`: {expected}", elasticjob_core::wire::masked(address))]
    Address {
        /// The address.
        address: String,
        /// What was expected.
        expected: String,
    },
    /// A setting is wrong.
    #[error("`{key}`: `{value}` is invalid: {expected}")]
    Setting {
        /// The key, as Java names it.
        key: &'static str,
        /// Its value.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// Another process holds the file of an embedded registry.
    #[error("the embedded registry {} is in use by another process; stop that process, or use another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file of an embedded registry does not exist.
    #[error("the embedded registry {} does not exist; start an agent that uses this file, or name another registry with `--registry`", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// The file of an embedded registry fails its checksums, or what it holds cannot be decoded.
    #[error(
        "the embedded registry {0} is damaged: {reason}; restore a backup with `elasticjob registry restore {0} BACKUP`, \
         or move the file away to start with an empty registry",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The file of an embedded registry cannot be used.
    #[error("the embedded registry {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The registry said something that we do not understand.
    #[error("{registry}: {reason}")]
    Protocol {
        /// Which registry.
        registry: String,
        /// What.
        reason: String,
    },
}

impl Error {
    /// Whether the same request may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::TimedOut { .. } | Error::Protocol { .. } => true,
            Error::Missing { .. }
            | Error::Denied { .. }
            | Error::Rejected { .. }
            | Error::TooLarge { .. }
            | Error::Address { .. }
            | Error::Setting { .. }
            | Error::InUse { .. }
            | Error::Absent { .. }
            | Error::Damaged { .. }
            | Error::Untrusted { .. }
            | Error::File { .. } => false,
        }
    }

    /// Returns the same error about another node.
    #[must_use]
    pub fn on(self, node: &str) -> Error {
        match self {
            Error::Denied { .. } => Error::Denied { path: node.to_owned() },
            Error::Rejected { registry, reason, .. } => Error::Rejected { registry, path: node.to_owned(), reason },
            Error::Missing { .. } => Error::Missing { path: node.to_owned() },
            other => other,
        }
    }

    /// The cause alone, without what it happened to.
    pub(crate) fn reason(&self) -> String {
        match self {
            Error::Unreachable { reason, .. }
            | Error::File { reason, .. }
            | Error::Untrusted { reason, .. }
            | Error::Protocol { reason, .. }
            | Error::Rejected { reason, .. } => reason.clone(),
            Error::Damaged { reason, .. } => format!("it is damaged: {reason}"),
            Error::InUse { .. } => "in use by another process".to_owned(),
            Error::TimedOut { .. }
            | Error::Missing { .. }
            | Error::Denied { .. }
            | Error::TooLarge { .. }
            | Error::Address { .. }
            | Error::Setting { .. }
            | Error::Absent { .. } => self.to_string(),
        }
    }
}
