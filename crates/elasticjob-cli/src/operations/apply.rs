//! `elasticjob job apply`: stored configurations are changed to those of a file.

use std::io::Read;
use std::path::Path;

use elasticjob::{Change, JobDocument, OperationError, Operations};
use elasticjob_core::wire::yaml;
use serde_json::json;
use similar::TextDiff;

use crate::args::Output;
use crate::file::job::unknown_property;
use crate::output::{self, Listing};
use crate::{Failure, agent};

/// The configurations of a file.
pub(super) enum Wanted {
    /// One as it is stored: each of its keys counts.
    Stored(Box<JobDocument>),
    /// Those of an agent's file.
    OfFile(Vec<JobDocument>),
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Wanted, Failure> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let wrong = |text: String| Failure::Wrong(vec![format!("{name}:{text}")]);
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|error| Failure::Wrong(vec![format!("elasticjob: cannot read {name}: {error}")]))?;
    let root = yaml::parse(&text)
        .map_err(|e| wrong(format!("{}:{}: cannot read it as YAML: {}", e.at.line, e.at.column, e.reason)))?;
    let has = |key: &str| root.map().is_some_and(|entries| entries.iter().any(|entry| entry.key == key));
    if !has("jobName") {
        let file = agent::load_text(&text, &name)?;
        agent::print_warnings(&file, &name);
        return Ok(Wanted::OfFile(file.jobs.into_iter().map(|job| job.document).collect()));
    }
    let document = JobDocument::parse(text.as_bytes()).map_err(|error| wrong(format!(" {error}")))?;
    Ok(Wanted::Stored(Box::new(document)))
}

/// A file without `disabled` does not enable what an operator has disabled.
async fn keep_disabled(operations: &Operations, mut document: JobDocument) -> JobDocument {
    let Ok(stored) = operations.config(&document.job_name).await else { return document };
    let is_disabled = JobDocument::parse(stored.text.as_bytes()).is_ok_and(|stored| stored.disabled);
    if is_disabled && !document.disabled {
        output::tell(&format!(
            "job `{0}` stays disabled; enable it with `elasticjob job enable {0}`",
            document.job_name
        ));
        document.disabled = true;
    }
    document
}

/// The properties of a configuration that nothing reads, except for those that are stored already: another program may read those.
async fn unknown_properties(operations: &Operations, document: &JobDocument) -> Vec<String> {
    let stored = operations.config(&document.job_name).await;
    let stored = stored.ok().and_then(|stored| JobDocument::parse(stored.text.as_bytes()).ok());
    let is_stored = |key: &str| stored.iter().any(|stored| stored.props.contains_key(key));
    let new = document.props.keys().filter(|key| !is_stored(key));
    new.filter_map(|key| unknown_property(key))
        .map(|fault| format!("elasticjob: job `{}`: {fault}", document.job_name))
        .collect()
}

/// Shows every difference, asks once, and writes. Nothing is written when one of them has a fault. Jobs that the registry does not
/// contain yet are skipped, if it contains another one of the file.
pub(super) async fn run(operations: &Operations, wanted: Wanted, yes: bool, format: Output) -> Result<(), Failure> {
    let mut documents = Vec::new();
    match wanted {
        Wanted::Stored(document) => {
            let unknown = unknown_properties(operations, &document).await;
            if !unknown.is_empty() {
                return Err(Failure::Wrong(unknown));
            }
            documents.push(*document);
        }
        Wanted::OfFile(found) => {
            for document in found {
                documents.push(keep_disabled(operations, document).await);
            }
        }
    }
    let (mut changes, mut unknown) = (Vec::new(), Vec::new());
    for document in documents {
        match operations.plan_config(document).await {
            Ok(change) => changes.push(change),
            Err(error @ OperationError::UnknownJob { .. }) => unknown.push(error),
            Err(error) => return Err(wrong_is_wrong(error)),
        }
    }
    if changes.is_empty() && !unknown.is_empty() {
        return Err(anyhow::anyhow!(
            "{}; this command changes jobs that the registry has, and an agent creates a job at its first start",
            unknown.remove(0)
        )
        .into());
    }
    for error in unknown {
        output::tell(&format!("{error}; this job is skipped, because an agent creates it at its first start"));
    }
    let mut listing = Listing::new(&[]);
    for change in &changes {
        for warning in &change.warnings {
            output::tell(&format!(
                "job `{}`: key {warning}; it is stored anyway, because the instances of the job may support this value",
                change.job
            ));
        }
        let difference = difference(change);
        listing
            .push(Vec::new(), json!({"jobName": change.job, "changed": !change.is_empty(), "difference": difference}));
        if format == Output::Table {
            output::data(&difference)?;
        }
    }
    if format != Output::Table {
        output::data(&listing.text(format))?;
    }
    let changed: Vec<&Change> = changes.iter().filter(|change| !change.is_empty()).collect();
    if changed.is_empty() {
        output::tell("nothing to change");
        return Ok(());
    }
    for change in &changed {
        match change.disables() {
            Some(true) => output::tell(&format!("this disables job `{}` on all servers", change.job)),
            Some(false) => output::tell(&format!("this enables job `{}` on all servers", change.job)),
            None => {}
        }
    }
    let names: Vec<&str> = changed.iter().map(|change| change.job.as_str()).collect();
    if !output::confirm(&format!("Change the configuration of {}?", output::quoted(&names)), yes).await? {
        return Err(anyhow::anyhow!("nothing was changed").into());
    }
    for change in changed {
        operations.apply(change).await?;
    }
    Ok(())
}

/// A wrong configuration is wrong input; all else is an operation that failed.
fn wrong_is_wrong(error: OperationError) -> Failure {
    match error {
        OperationError::WrongConfig { .. } | OperationError::UnknownKey { .. } => {
            Failure::Wrong(vec![format!("elasticjob: {error}")])
        }
        error => error.into(),
    }
}

/// The lines that go and come, with some around them; nothing when there are none.
fn difference(change: &Change) -> String {
    let diff = TextDiff::from_lines(change.before.text.as_str(), change.after.as_str());
    let (before, after) = (format!("{} (in the registry)", change.job), format!("{} (new)", change.job));
    diff.unified_diff().context_radius(1).header(&before, &after).to_string()
}
