//! Why a request did not do what it asked for.

use elasticjob::OperationError;

/// A failed request of the API of ElasticJob-UI: a code, which is not the HTTP status, and a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// The codes of ElasticJob-UI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The request is invalid. Nothing was written.
    Invalid,
    /// No login, an expired one, or one that may not do this.
    Forbidden,
    /// Everything else.
    Failed,
}

impl Code {
    pub(crate) fn number(self) -> u16 {
        match self {
            Code::Invalid => 400,
            Code::Forbidden => 403,
            Code::Failed => 500,
        }
    }
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure { code: Code::Invalid, text: text.into() }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Failure {
        Failure { code: Code::Failed, text: text.into() }
    }

    /// ElasticJob-UI's only text for all causes, so that nothing can be learnt from it.
    pub(crate) fn unauthorized() -> Failure {
        Failure { code: Code::Forbidden, text: "Unauthorized.".into() }
    }

    /// A read that failed: ElasticJob-UI has one code for all causes.
    pub(crate) fn of_read(error: &OperationError) -> Failure {
        Failure::failed(error.to_string())
    }

    /// A write that failed. One that named something unknown, or something invalid, is the caller's fault.
    pub(crate) fn of_write(error: &OperationError) -> Failure {
        let code = match error {
            OperationError::UnknownJob { .. }
            | OperationError::UnknownServer { .. }
            | OperationError::UnknownItem { .. }
            | OperationError::WrongConfig { .. }
            | OperationError::UnknownKey { .. } => Code::Invalid,
            _ => Code::Failed,
        };
        Failure { code, text: error.to_string() }
    }
}
