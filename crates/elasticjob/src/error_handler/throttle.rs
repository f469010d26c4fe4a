//! Handlers that send messages: at most one per job and interval, with the number of failures that were held back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::time::Timestamp;
use parking_lot::Mutex;

use crate::clock;
use crate::contract::{ErrorHandler, Failure, Messenger, Props, error_text};

/// Seconds between two messages about one job; 0 sends each.
const INTERVAL: &str = "props.elasticjob.error.handler.interval.seconds";
/// Time limit for sending a message.
const SEND_MAX: Duration = Duration::from_secs(15);

/// A messenger that does not flood.
pub(crate) struct Throttled<M> {
    messenger: Arc<M>,
    jobs: Arc<Mutex<HashMap<String, State>>>,
}

/// What is known of the messages about one job.
#[derive(Default)]
struct State {
    /// Not before this the next one goes.
    next: Timestamp,
    /// Failures since the last message, and the latest of them.
    held_back: u64,
    latest: String,
}

impl<M: Messenger> Throttled<M> {
    pub(crate) fn new(messenger: M) -> Throttled<M> {
        Throttled { messenger: Arc::new(messenger), jobs: Arc::default() }
    }
}

fn interval(props: &mut Props<'_>) -> Duration {
    Duration::from_secs(props.number(INTERVAL, 0..=86_400, 60))
}

impl<M: Messenger> ErrorHandler for Throttled<M> {
    fn name(&self) -> &str {
        self.messenger.name()
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut props = Props::of(config);
        interval(&mut props);
        let mut faults = self.messenger.check(config);
        faults.extend(props.into_faults());
        faults
    }

    async fn handle(&self, failure: &Failure) {
        super::log(failure);
        let (now, interval) = (clock::now(), interval(&mut Props::of(failure.config())));
        let message = message(failure);
        let turn = self.jobs.lock().entry(failure.job_name().to_owned()).or_default().turn(now, interval, &message);
        match turn {
            Turn::Now => send(&*self.messenger, failure.config(), &message).await,
            Turn::After(wait) => self.send_later(failure, wait, interval),
            Turn::Held => {}
        }
    }
}

/// When a failure is sent.
#[derive(Debug, PartialEq)]
enum Turn {
    Now,
    /// It waits, and is the first that does.
    After(Duration),
    /// It waits with others, in one message.
    Held,
}

impl State {
    fn turn(&mut self, now: Timestamp, interval: Duration, message: &str) -> Turn {
        if now >= self.next && self.held_back == 0 {
            self.next = now + interval;
            return Turn::Now;
        }
        self.held_back += 1;
        message.clone_into(&mut self.latest);
        if self.held_back == 1 { Turn::After(self.next.since(now)) } else { Turn::Held }
    }

    /// What was held back, in one message: the latest failure, and how many there were beside it.
    fn held_back(&mut self, now: Timestamp, interval: Duration) -> String {
        self.next = now + interval;
        let others = std::mem::take(&mut self.held_back).saturating_sub(1);
        let latest = std::mem::take(&mut self.latest);
        if others == 0 { latest } else { format!("{latest}{others} earlier failures were not reported separately.\n") }
    }
}

impl<M: Messenger> Throttled<M> {
    /// Sends the failures that were held back in one message after the interval, or immediately when the job stops.
    fn send_later(&self, failure: &Failure, wait: Duration, interval: Duration) {
        let (messenger, jobs) = (Arc::clone(&self.messenger), Arc::clone(&self.jobs));
        let (config, mut keep) = (failure.config().clone(), failure.keep().clone());
        tokio::spawn(async move {
            tokio::select! {
                () = clock::sleep(wait) => {}
                () = keep.leaving.wait() => {}
            }
            let message = jobs.lock().entry(config.name.clone()).or_default().held_back(clock::now(), interval);
            send(&*messenger, &config, &message).await;
            drop(keep);
        });
    }
}

async fn send(messenger: &impl Messenger, config: &JobConfig, message: &str) {
    let (job, name) = (config.name.as_str(), messenger.name());
    match clock::within(SEND_MAX, messenger.send(config, message)).await {
        Some(Ok(())) => tracing::info!(job, handler = name, "sent failure notification by {name}"),
        Some(Err(error)) => tracing::error!(
            job,
            handler = name,
            "cannot send failure notification by {name}: {}; not retrying",
            error_text(&*error)
        ),
        None => tracing::error!(
            job,
            handler = name,
            "cannot send failure notification by {name}: timed out after {} s; not retrying",
            SEND_MAX.as_secs()
        ),
    }
}

/// Java's sentence, the causes, and where it was.
fn message(failure: &Failure) -> String {
    let mut text =
        format!("Job '{}' exception occur in job processing, caused by {}\n", failure.job_name(), failure.error());
    let mut cause = failure.error().source();
    while let Some(error) = cause {
        text.push_str(&format!("Caused by: {error}\n"));
        cause = error.source();
    }
    let what = failure.item().map_or("a listener".to_owned(), |item| format!("item {item}"));
    text.push_str(&format!("In {what} on {}, task {}\n", failure.instance(), failure.task_id()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_within_the_interval_go_in_one_message_with_their_number() {
        let (mut state, minute) = (State::default(), Duration::from_secs(60));
        let at = |seconds: u64| Timestamp(1_000_000) + Duration::from_secs(seconds);
        assert_eq!(state.turn(at(0), minute, "a\n"), Turn::Now);
        assert_eq!(state.turn(at(1), minute, "b\n"), Turn::After(Duration::from_secs(59)));
        assert_eq!(state.turn(at(2), minute, "c\n"), Turn::Held);
        assert_eq!(state.turn(at(60), minute, "d\n"), Turn::Held, "the message of those before it is about to go");
        assert_eq!(state.held_back(at(60), minute), "d\n2 earlier failures were not reported separately.\n");
        assert_eq!(state.turn(at(61), minute, "e\n"), Turn::After(Duration::from_secs(59)));
        assert_eq!(state.held_back(at(120), minute), "e\n");
        assert_eq!(state.turn(at(180), minute, "f\n"), Turn::Now);
        assert_eq!(
            state.turn(at(180), Duration::ZERO, "g\n"),
            Turn::After(minute),
            "an interval counts from its message"
        );
    }
}
