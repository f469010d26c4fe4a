//! `elasticjob job trigger`, and the wait for its results.

use std::time::Duration;

use elasticjob::{ItemOutcome, ItemResult, Operations, Pending, Scope, Triggered};
use elasticjob_core::ranges::Ranges;
use serde_json::json;

use crate::args::Output;
use crate::output::{self, Listing};
use crate::{Failure, clock};

/// First report of what the results wait for.
const SAY_FIRST: Duration = Duration::from_secs(5);
/// Interval of further reports.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Triggers jobs, and reports the items that do not run.
pub(super) async fn all(operations: &Operations, names: &[String]) -> Result<(), Failure> {
    for name in names {
        operations.check(Scope::Job(name)).await?;
    }
    let trigger = async |job: &str| operations.trigger(job).await.map(|triggered| not_run(job, &triggered));
    super::jobs::each(names, trigger).await
}

/// Says which items a trigger does not run.
fn not_run(job: &str, triggered: &Triggered) {
    for (item, reason) in &triggered.not_run {
        output::tell(&format!("job `{job}`: item {item} does not run: {reason}"));
    }
}

/// The results of all items; exit code 1 where one did not succeed, or its result is not known. All jobs are triggered before the
/// first result is awaited.
pub(super) async fn and_wait(
    operations: &Operations,
    names: &[String],
    timeout: Option<u32>,
    format: Output,
) -> Result<(), Failure> {
    for name in names {
        operations.check(Scope::Job(name)).await?;
    }
    for name in names {
        operations.check_trigger(name).await?;
    }
    let mut requests = Vec::new();
    let (mut failed, mut refused) = (0, 0);
    for name in names {
        match operations.trigger_with_results(name).await {
            Ok(request) => requests.push((name, request)),
            Err(error) => {
                output::tell(&format!("elasticjob: {error}"));
                refused += 1;
            }
        }
    }
    let mut listing = Listing::new(&["JOB", "ITEM", "RESULT"]);
    let (started, limit) = (clock::instant(), timeout.map(|seconds| Duration::from_secs(seconds.into())));
    for (name, request) in requests {
        not_run(name, &request.triggered);
        for id in &request.triggered.instances {
            output::tell(&format!(
                "job `{name}`: instance {id} has no claims on its items, so it is probably a Java instance; it was triggered as a whole and reports no results"
            ));
        }
        let results = match operations
            .results(&request, limit.map(|limit| limit.saturating_sub(started.elapsed())), waiting(name))
            .await
        {
            Ok(results) => results,
            Err(error) => {
                let text = format!(
                    "unknown: the job was triggered, but the connection to the registry was lost before the result arrived: {error}"
                );
                let unknown = |item: &u32| ItemResult::new(*item, ItemOutcome::Unknown(text.clone()));
                request.triggered.items.iter().map(unknown).collect()
            }
        };
        failed += results.iter().filter(|result| !result.outcome.is_success()).count();
        for result in results {
            let (item, text) = (result.item, result.outcome.to_string());
            let object = json!({"jobName": name, "item": item, "result": text});
            listing.push(vec![name.clone(), item.to_string(), text], object);
        }
    }
    output::data(&listing.text(format))?;
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let mut causes = Vec::new();
    if refused > 0 {
        causes.push(format!("{} not triggered", count(refused, "job")));
    }
    if failed > 0 {
        causes.push(format!("{} failed or without a known result", count(failed, "item")));
    }
    if causes.is_empty() { Ok(()) } else { Err(anyhow::anyhow!("{}", causes.join(", ")).into()) }
}

/// Says what the results of a job wait for, when they take long.
fn waiting(job: &str) -> impl FnMut(&[(u32, Pending)]) {
    let mut next = clock::instant() + SAY_FIRST;
    move |pending| {
        if clock::instant() < next {
            return;
        }
        next = clock::instant() + SAY_AGAIN;
        let mut told: Vec<(&Pending, Vec<u32>)> = Vec::new();
        for (item, state) in pending {
            match told.iter_mut().find(|(other, _)| *other == state) {
                Some((_, items)) => items.push(*item),
                None => told.push((state, vec![*item])),
            }
        }
        for (state, items) in told {
            let hint = match state {
                Pending::NotBegun => format!("; `elasticjob job explain {job}` shows why"),
                _ => String::new(),
            };
            output::tell(&format!("waiting for job `{job}`, items {}: {state}{hint}", Ranges(&items)));
        }
    }
}
