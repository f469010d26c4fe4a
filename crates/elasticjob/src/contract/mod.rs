//! What the runtime and the code that it calls agree on: the traits that a program implements, and the values that they receive.
//! A leaf: it knows no other module of this crate but the clock.

mod context;
pub(crate) mod error_handler;
pub(crate) mod gate;
mod job;
pub(crate) mod lease;
mod listener;
pub(crate) mod props;
pub(crate) mod trace;
pub(crate) mod trace_event;

use std::fmt::Write;

pub(crate) use context::RunLines;
pub use context::{Cancelled, Context};
pub use error_handler::{ErrorHandler, Failure, Messenger};
pub use job::{BlockingJob, DataflowJob, JobType, SimpleJob};
pub(crate) use job::{DynJobType, ItemExecutor, Registered};
pub(crate) use listener::DynListener;
pub use listener::{ListenedRun, Listener, OnceListener, OnceTimeouts};
pub use props::Props;

/// The result of an item or a listener. Any error type converts with `?`.
pub type JobResult = Result<(), JobError>;

/// The reason why an item or a listener failed. The job's error handler receives it.
pub type JobError = Box<dyn std::error::Error + Send + Sync>;

/// Returns an error with its causes in one line. A cause that the error already quotes is not repeated.
pub(crate) fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            let _ = write!(text, ": {cause_text}"); // a string takes all
        }
        source = cause.source();
    }
    text
}

/// Returns the message of a panic.
pub(crate) fn panic_text(who: &str, panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into());
    format!("{who} panicked: {text}")
}
