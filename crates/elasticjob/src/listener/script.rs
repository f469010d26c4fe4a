//! `SCRIPT` and `DISTRIBUTE_ONCE`: listeners that are commands, for jobs that have no code of their own.

use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::wire::json_text;
use tokio::sync::watch;

use super::once::DistributeOnce;
use crate::clock;
use crate::contract::{Cancelled, JobResult, ListenedRun, Listener, OnceListener, OnceTimeouts, Props};
use crate::execute::script;

const BEFORE: &str = "props.elasticjob.listener.before.command.line";
const AFTER: &str = "props.elasticjob.listener.after.command.line";
const STARTED: &str = "props.elasticjob.listener.started.command.line";
const COMPLETED: &str = "props.elasticjob.listener.completed.command.line";
const STARTED_TIMEOUT: &str = "props.elasticjob.listener.started.timeout.milliseconds";
const COMPLETED_TIMEOUT: &str = "props.elasticjob.listener.completed.timeout.milliseconds";

/// How long one of these commands may take.
const TIMEOUT: &str = "props.elasticjob.listener.command.timeout.milliseconds";

/// Runs a command before and after each run.
pub(super) struct Script;

impl Listener for Script {
    fn name(&self) -> &str {
        "SCRIPT"
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        check(config, [BEFORE, AFTER])
    }

    async fn before(&self, run: &ListenedRun) -> JobResult {
        command(run, BEFORE).await
    }

    async fn after(&self, run: &ListenedRun) -> JobResult {
        command(run, AFTER).await
    }
}

/// Runs a command when all items of a firing have started, and one when all have completed, each on one instance.
pub(super) struct OnceScript;

impl OnceScript {
    pub(super) fn listener() -> DistributeOnce<OnceScript> {
        DistributeOnce::new(OnceScript, Duration::ZERO, Duration::ZERO)
    }
}

fn timeouts(props: &mut Props<'_>) -> OnceTimeouts {
    let mut millis = |key| Some(props.millis(key, 1..=86_400_000, 60_000));
    OnceTimeouts { started: millis(STARTED_TIMEOUT), completed: millis(COMPLETED_TIMEOUT) }
}

impl OnceListener for OnceScript {
    fn name(&self) -> &str {
        "DISTRIBUTE_ONCE"
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut faults = check(config, [STARTED, COMPLETED]);
        let mut props = Props::of(config);
        timeouts(&mut props);
        faults.extend(props.into_faults());
        faults
    }

    fn timeouts(&self, config: &JobConfig) -> Option<OnceTimeouts> {
        Some(timeouts(&mut Props::of(config)))
    }

    async fn all_started(&self, run: &ListenedRun) -> JobResult {
        command(run, STARTED).await
    }

    async fn all_completed(&self, run: &ListenedRun) -> JobResult {
        command(run, COMPLETED).await
    }
}

fn check(config: &JobConfig, keys: [&'static str; 2]) -> Vec<ConfigError> {
    let mut props = Props::of(config);
    if keys.iter().all(|key| props.given(key).is_none()) {
        let other = keys[1].trim_start_matches("props.");
        props.fault(keys[0], format!("expected a command, here or in `{other}`"));
    }
    timeout(&mut props);
    for key in keys {
        if props.given(key).is_some() {
            script::command(&mut props, key);
        }
    }
    props.into_faults()
}

/// Runs the command of that property, when there is one.
async fn command(run: &ListenedRun, key: &'static str) -> JobResult {
    let mut props = Props::of(run.config());
    if props.given(key).is_none() {
        return Ok(());
    }
    let mut command = script::command(&mut props, key);
    props.ok()?;
    let list = |items: &mut dyn Iterator<Item = u32>| items.map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let items = list(&mut run.items().into_keys());
    let failed = list(&mut run.failed().iter().copied());
    command.last_argument = format!(
        r#"{{"jobName":{},"taskId":{},"shardingTotalCount":{},"jobParameter":{},"shardingItems":[{items}],"failedItems":[{failed}]}}"#,
        json_text(run.job_name()),
        json_text(run.task_id()),
        run.sharding_total_count(),
        json_text(run.job_parameter()),
    );
    command.environment = vec![
        ("ELASTICJOB_JOB_NAME", run.job_name().to_owned()),
        ("ELASTICJOB_TASK_ID", run.task_id().to_owned()),
        ("ELASTICJOB_SHARDING_TOTAL_COUNT", run.sharding_total_count().to_string()),
        ("ELASTICJOB_JOB_PARAMETER", run.job_parameter().to_owned()),
        ("ELASTICJOB_SHARDING_ITEMS", items),
        ("ELASTICJOB_FAILED_ITEMS", failed),
        ("ELASTICJOB_DUE_TIME", run.due().to_string()),
        ("ELASTICJOB_SOURCE", run.source().word().to_owned()),
    ];
    let limit = timeout(&mut Props::of(run.config()));
    let (stop, mut leaving) = (watch::Sender::new(false), run.cancelled());
    let work = command.run(run.job_name(), None, Cancelled(stop.subscribe()));
    tokio::pin!(work);
    let reason = tokio::select! {
        result = work.as_mut() => return result,
        () = clock::sleep(limit) => format!("timed out after {} ms", limit.as_millis()),
        () = leaving.wait() => "the job is stopping on this instance".to_owned(),
    };
    stop.send_replace(true);
    work.await.map_err(|error| format!("{reason}: {error}").into())
}

fn timeout(props: &mut Props<'_>) -> Duration {
    props.millis(TIMEOUT, 1..=86_400_000, 60_000)
}
