//! What is done with a failure (Java: `JobErrorHandler`; manual: "Error Handler"). Whatever a handler does, no run waits for
//! it.

#[cfg(feature = "mail")]
mod email;
pub(crate) mod throttle;
#[cfg(feature = "webhook")]
mod webhook;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use crate::clock;
use crate::contract::error_handler::DynErrorHandler;
use crate::contract::{ErrorHandler, Failure};
use crate::plugins::Plugins;
#[cfg(feature = "webhook")]
use crate::web::Clients;

/// The time limit of a handler.
const HANDLER_MAX: Duration = Duration::from_secs(60);
/// Maximum number of failures that are handled at one time. Further ones are logged.
const HANDLERS_MAX: usize = 256;

/// Returns the built-in handlers.
pub(crate) fn built_in(#[cfg(feature = "webhook")] clients: &Clients) -> Vec<Arc<dyn DynErrorHandler>> {
    vec![
        Arc::new(Log { name: "LOG" }),
        // In Java the exception goes up to the scheduler, which logs it. Nothing is above the handler here: it logs.
        Arc::new(Log { name: "THROW" }),
        Arc::new(Ignore),
        #[cfg(feature = "mail")]
        Arc::new(throttle::Throttled::new(email::Email)),
        #[cfg(feature = "webhook")]
        Arc::new(throttle::Throttled::new(webhook::WebHook::wechat(clients))),
        #[cfg(feature = "webhook")]
        Arc::new(throttle::Throttled::new(webhook::WebHook::dingtalk(clients))),
    ]
}

/// Calls the handlers of this process.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    plugins: Arc<Plugins>,
    places: Arc<Semaphore>,
}

impl Dispatcher {
    pub(crate) fn new(plugins: Arc<Plugins>) -> Dispatcher {
        Dispatcher { plugins, places: Arc::new(Semaphore::new(HANDLERS_MAX)) }
    }

    /// How many failures are being handled.
    pub(crate) fn busy(&self) -> usize {
        HANDLERS_MAX - self.places.available_permits()
    }

    /// Has a failure handled, beside the run.
    pub(crate) fn dispatch(&self, failure: Failure) {
        let name = &failure.config().error_handler;
        let Some(handler) = self.plugins.find_error_handler(name) else {
            let job = failure.job_name();
            return tracing::error!(
                job,
                item = failure.item(),
                "jobErrorHandlerType `{name}` is not registered in this process, so the failure is only logged: {failure}"
            );
        };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let job = failure.job_name();
            let text = format!(
                "the error handler `{name}` was not called, because {HANDLERS_MAX} failures are already being handled; unhandled failure"
            );
            return tracing::error!(job, item = failure.item(), "{text}: {failure}");
        };
        tokio::spawn(async move {
            let work = AssertUnwindSafe(handler.handle(&failure)).catch_unwind();
            let (job, item, name) = (failure.job_name(), failure.item(), handler.name());
            match clock::within(HANDLER_MAX, work).await {
                Some(Ok(())) => {}
                Some(Err(_)) => tracing::error!(
                    job,
                    item,
                    handler = name,
                    "error handler `{name}` panicked while handling: {failure}"
                ),
                None => {
                    tracing::error!(
                        job,
                        item,
                        handler = name,
                        "error handler `{name}` timed out; the failure that it handled: {failure}"
                    )
                }
            }
            drop(place);
        });
    }
}

/// `LOG` and `THROW`: an error line.
struct Log {
    name: &'static str,
}

impl ErrorHandler for Log {
    fn name(&self) -> &str {
        self.name
    }

    async fn handle(&self, failure: &Failure) {
        log(failure);
    }
}

/// Logs a failure as an error line.
fn log(failure: &Failure) {
    match failure.item() {
        Some(item) => tracing::error!(job = failure.job_name(), item, "item failed: {failure}"),
        None => tracing::error!(job = failure.job_name(), "listener failed: {failure}; the items are not affected"),
    }
}

/// `IGNORE`: nothing.
struct Ignore;

impl ErrorHandler for Ignore {
    fn name(&self) -> &str {
        "IGNORE"
    }

    async fn handle(&self, _failure: &Failure) {}
}
