//! Calls listeners before and after a run (Java: `ElasticJobListener`; manual: "Job Listener"), and the built-in ones.

mod once;
mod script;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

pub use once::DistributeOnce;

use crate::contract::{DynListener, JobResult, ListenedRun, error_text, panic_text};

/// Returns the built-in listeners.
pub(crate) fn built_in() -> Vec<Arc<dyn DynListener>> {
    vec![Arc::new(script::Script), Arc::new(script::OnceScript::listener())]
}

/// Which of the two methods is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    After,
}

/// Calls one listener; a panic is an error.
pub(crate) async fn call(listener: &dyn DynListener, moment: Moment, run: &ListenedRun) -> JobResult {
    let work = AssertUnwindSafe(async {
        match moment {
            Moment::Before => listener.before(run).await,
            Moment::After => listener.after(run).await,
        }
    });
    let result = work.catch_unwind().await.unwrap_or_else(|panic| Err(panic_text("the listener", &*panic).into()));
    let name = listener.name();
    result.map_err(|error| format!("listener `{name}` failed {}: {}", moment.word(), error_text(&*error)).into())
}

impl Moment {
    fn word(self) -> &'static str {
        match self {
            Moment::Before => "before the run",
            Moment::After => "after the run",
        }
    }
}
