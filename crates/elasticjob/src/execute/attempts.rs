//! One item, from its first attempt to its last: time limit, retries, cancelling. Whatever the job does, this ends.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use futures_util::FutureExt;
use tokio::sync::watch;

use crate::clock;
use crate::contract::lease::{SessionOver, Start};
use crate::contract::{Cancelled, Context, ItemExecutor, JobResult, Props, error_text, panic_text};

/// How long a run of an item may take, attempts and pauses together; no limit by default.
pub(crate) const TIMEOUT: &str = "props.elasticjob.run.timeout.milliseconds";
/// How often a failed item is tried again; 0 by default.
pub(crate) const RETRIES: &str = "props.elasticjob.retry.count";
/// The pause before the first retry, doubled for each further one; a random half of it is left out, so that instances that
/// fail together do not come again together.
pub(crate) const DELAY: &str = "props.elasticjob.retry.delay.milliseconds";
/// The longest pause.
pub(crate) const DELAY_MAX: &str = "props.elasticjob.retry.delay.max.milliseconds";

const WEEK_MILLIS: u64 = 7 * 24 * 3_600 * 1_000;

/// The bounds that a configuration sets to the runs of its items.
#[derive(Debug)]
struct Bounds {
    timeout: Option<Duration>,
    retries: u64,
    delay: Duration,
    delay_max: Duration,
}

impl Bounds {
    fn read(props: &mut Props<'_>) -> Bounds {
        let timeout = props.given(TIMEOUT).map(|_| props.millis(TIMEOUT, 1..=WEEK_MILLIS, WEEK_MILLIS));
        let delay = props.number(DELAY, 0..=WEEK_MILLIS, 1_000);
        Bounds {
            timeout,
            retries: props.number(RETRIES, 0..=1_000, 0),
            delay: Duration::from_millis(delay),
            delay_max: props.millis(DELAY_MAX, 0..=WEEK_MILLIS, delay.max(60_000)),
        }
    }

    /// The pause before a retry, counted from 0; `chance` is from 0 to 1.
    fn pause(&self, retry: u32, chance: f64) -> Duration {
        let full = self.delay.saturating_mul(2_u32.saturating_pow(retry)).min(self.delay_max);
        full.mul_f64(0.5 + 0.5 * chance)
    }
}

/// The faults of the properties that are read here.
pub(super) fn check(config: &JobConfig) -> Vec<ConfigError> {
    let mut props = Props::of(config);
    let bounds = Bounds::read(&mut props);
    if bounds.delay > bounds.delay_max && props.given(DELAY).is_some() {
        props.fault(DELAY_MAX, format!("expected at least {}, the first delay", bounds.delay.as_millis()));
    }
    props.into_faults()
}

/// Runs one item. Each attempt starts while the session of the run is certain to be alive. When the job is `leaving`, the code is told
/// to end; code on a thread cannot be stopped and is awaited until the job has `left`.
pub(super) async fn run(
    items: &dyn ItemExecutor,
    mut context: Context,
    leaving: &Cancelled,
    left: &Cancelled,
) -> JobResult {
    let bounds = Bounds::read(&mut Props::of(context.config()));
    // Without a time limit of its own, an item is cancelled by the signal of the whole job.
    let stop = bounds.timeout.map(|_| watch::Sender::new(false));
    if let Some(stop) = &stop {
        context.set_cancelled(Cancelled(stop.subscribe()));
    }
    let mut limit = pin!(async {
        match bounds.timeout {
            Some(timeout) => clock::sleep(timeout).await,
            None => std::future::pending().await,
        }
    });
    let mut retry = 0;
    loop {
        let attempt = Attempt { items, context: &context, stop: stop.as_ref(), bounds: &bounds };
        let error = match attempt.run(leaving, left, limit.as_mut()).await {
            Ended::By(Ok(())) => return Ok(()),
            Ended::Stopped(result) => return result,
            Ended::By(Err(error)) if error.is::<SessionOver>() && retry == 0 => return Err(error),
            Ended::By(Err(error)) if error.is::<SessionOver>() => {
                return Err("not retried, because the registry session has ended".into());
            }
            Ended::By(Err(error)) if u64::from(retry) >= bounds.retries => {
                return Err(if retry == 0 {
                    error
                } else {
                    format!("failed {} times, no retry is left: {}", retry + 1, error_text(&*error)).into()
                });
            }
            Ended::By(Err(error)) => error_text(&*error),
        };
        let pause = bounds.pause(retry, rand::random());
        retry += 1;
        // Also in the log of the run: this event is in its span.
        tracing::warn!(
            job = context.job_name(),
            item = context.item(),
            retry,
            retries = bounds.retries,
            delay_ms = pause.as_millis(),
            "item failed; retrying: {error}"
        );
        let mut cancelled = leaving.clone();
        tokio::select! {
            () = clock::sleep(pause) => {}
            () = limit.as_mut() => return Err(format!("{} was exceeded before the next retry; last error: {error}", over(&bounds)).into()),
            () = cancelled.wait() => return Err(format!("not retried, because the job is stopping on this instance; last error: {error}").into()),
        }
        let start = tokio::select! {
            start = context.lease().wait(leaving) => start,
            () = limit.as_mut() => return Err(format!("{} was exceeded before the next retry; last error: {error}", over(&bounds)).into()),
        };
        let reason = match start {
            Start::Now => continue,
            Start::Leaving => "the job is stopping on this instance",
            Start::Over => "the registry session has ended",
        };
        return Err(format!("not retried, because {reason}; last error: {error}").into());
    }
}

fn over(bounds: &Bounds) -> String {
    let millis = bounds.timeout.unwrap_or_default().as_millis();
    format!("the time limit of {millis} ms ({})", TIMEOUT.trim_start_matches("props."))
}

/// How an attempt ended.
enum Ended {
    /// By itself.
    By(JobResult),
    /// It was stopped.
    Stopped(JobResult),
}

struct Attempt<'a> {
    items: &'a dyn ItemExecutor,
    context: &'a Context,
    stop: Option<&'a watch::Sender<bool>>,
    bounds: &'a Bounds,
}

impl Attempt<'_> {
    async fn run(
        self,
        leaving: &Cancelled,
        left: &Cancelled,
        limit: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Ended {
        let context = self.context;
        let work = AssertUnwindSafe(async { self.items.execute(context.clone()).await }).catch_unwind();
        let mut work = pin!(work.map(|ended| ended.unwrap_or_else(|panic| Err(panic_text("the job", &*panic).into()))));
        // Most items complete without waiting for anything, so the cancellation signal is not polled for those.
        if let Poll::Ready(result) = futures_util::poll!(work.as_mut()) {
            return Ended::By(result);
        }
        let mut leaving = leaving.clone();
        let timed_out = tokio::select! {
            biased;
            result = work.as_mut() => return Ended::By(result),
            () = leaving.wait() => false,
            () = limit => true,
        };
        if let Some(stop) = self.stop {
            stop.send_replace(true);
        }
        let reason = if timed_out {
            format!("{} was exceeded", over(self.bounds))
        } else {
            "the job is stopping on this instance".to_owned()
        };
        let ended = tokio::select! {
            result = work.as_mut() => Some(result),
            () = clock::sleep(self.items.grace(context.config())) => None,
        };
        let goes_on = ended.is_none() && !self.items.ends_when_dropped();
        let ended = if goes_on {
            // Its thread cannot be stopped. The item stays marked as running, else it would run twice.
            let (job, item) = (context.job_name(), context.item());
            let mut left = left.clone();
            tracing::error!(
                job,
                item,
                "{reason}, but the item runs blocking code, which cannot be interrupted; the item stays marked as running, and starts nowhere, until the code returns"
            );
            tokio::select! {
                result = work => Some(result),
                () = left.wait() => None,
            }
        } else {
            ended
        };
        Ended::Stopped(match ended {
            Some(Err(error)) => Err(format!("{reason}: {}", error_text(&*error)).into()),
            Some(Ok(())) if !timed_out => Ok(()),
            Some(Ok(())) | None => Err(format!("stopped: {reason}").into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use elasticjob_core::machine::{Run, RunId, RunItem, Source};
    use elasticjob_core::time::Timestamp;
    use elasticjob_core::wire::JobDocument;
    use elasticjob_registry::Registry;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::contract::lease::Lease;

    /// Fails so often, then its session is over.
    struct Fails(u32, AtomicU32);

    impl ItemExecutor for Fails {
        fn execute(&self, _: Context) -> BoxFuture<'static, JobResult> {
            let failures = self.1.fetch_add(1, Ordering::Relaxed);
            let over = failures == self.0;
            async move { if over { Err(SessionOver.into()) } else { Err("it failed".into()) } }.boxed()
        }
    }

    /// A blocking item may wait for one of the 256 threads until its session ends.
    #[tokio::test]
    async fn an_item_whose_session_ends_before_its_code_starts_is_not_retried_and_does_not_count_as_failed() {
        let mut document = JobDocument::new("job", 1);
        document.props.insert("elasticjob.retry.count".into(), "5".into());
        document.props.insert("elasticjob.retry.delay.milliseconds".into(), "0".into());
        let config = Arc::new(JobConfig::check(&document, &crate::clock::zone).expect("right"));
        let registry: Arc<dyn Registry> = Arc::new(elasticjob_registry::memory::Memory::new().connect());
        let mut link = registry.link();
        let link_up = |link: &elasticjob_registry::Link| matches!(link, elasticjob_registry::Link::Up { .. });
        let elasticjob_registry::Link::Up { session, .. } = *link.wait_for(link_up).await.expect("a link") else {
            panic!("it is up")
        };
        for (failures, has_started) in [(0, false), (2, true)] {
            let item = RunItem { item: 0, fencing_token: 1 };
            let (id, due, source) = (RunId(1), Timestamp(0), Source::Schedule);
            let (task_id, config) = (String::new(), Arc::clone(&config));
            let run = Run { id, session, task_id, due, source, config, items: vec![item.clone()] };
            let never = || Cancelled(watch::Sender::new(false).subscribe());
            let yields = watch::Sender::new(BTreeSet::new()).subscribe();
            let lease = Lease::new(&registry, &registry.link(), session);
            let context = Context::new(Arc::new(run), &item, "instance".into(), never(), yields, lease);
            let items = Fails(failures, AtomicU32::new(0));
            let (leaving, left) = (watch::Sender::new(false), watch::Sender::new(false));
            let ended =
                super::run(&items, context, &Cancelled(leaving.subscribe()), &Cancelled(left.subscribe())).await;
            let error = ended.expect_err("it was not executed, or failed");
            assert_eq!(!error.is::<SessionOver>(), has_started, "{error}");
            assert_eq!(items.1.load(Ordering::Relaxed), failures + 1, "not tried after that");
        }
    }

    #[test]
    fn pauses_double_up_to_their_bound_and_half_of_them_is_chance() {
        let bounds = Bounds {
            timeout: None,
            retries: 9,
            delay: Duration::from_millis(100),
            delay_max: Duration::from_millis(500),
        };
        for (retry, least, most) in [(0, 50, 100), (1, 100, 200), (2, 200, 400), (3, 250, 500), (60, 250, 500)] {
            assert_eq!(bounds.pause(retry, 0.0), Duration::from_millis(least));
            assert_eq!(bounds.pause(retry, 1.0), Duration::from_millis(most));
        }
    }
}
