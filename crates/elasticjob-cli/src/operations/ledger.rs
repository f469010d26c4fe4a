//! `elasticjob job ledger`: what became of the due times of a job, from its schedule and the event trace.

use elasticjob::trace::DataSource;
use elasticjob::trace::rdb::TraceReader;
use elasticjob::{Operations, Timestamp};
use elasticjob_core::due_ledger::{Entry, Fate, ItemFate};
use serde_json::{Value, json};

use super::history;
use crate::args::{DueLedger, Output};
use crate::output::{self, Listing};
use crate::{Failure, clock};

/// What is asked for, and where.
pub(super) struct Wanted {
    named: Option<DataSource>,
    beside: Option<DataSource>,
    only_missed: bool,
    until: Timestamp,
    limit: usize,
}

pub(super) fn wanted(arguments: &DueLedger, beside: Option<DataSource>) -> Result<Wanted, Failure> {
    let DueLedger { name: _, database, missed, until, limit } = arguments;
    let until = until.as_deref().map(|text| history::moment("--until", text)).transpose()?;
    Ok(Wanted {
        named: history::named(database)?,
        beside,
        only_missed: *missed,
        until: until.unwrap_or_else(clock::now),
        limit: usize::try_from(*limit).unwrap_or(usize::MAX),
    })
}

pub(super) async fn run(operations: &Operations, job: &str, wanted: Wanted, format: Output) -> Result<(), Failure> {
    let stored = operations.config(job).await?;
    let config = Operations::checked_config(stored.text.as_bytes())
        .map_err(|faults| anyhow::anyhow!("job `{job}`: the stored configuration is invalid: {faults}"))?;
    if config.cron.is_none() {
        return Err(anyhow::anyhow!("job `{job}` has no cron expression, so it has no due times").into());
    }
    let source = history::known(operations, job, wanted.named, wanted.beside).await?;
    let reader = TraceReader::new(&source).map_err(anyhow::Error::msg)?;
    let ledger = reader.due_ledger(&config, wanted.until, wanted.limit).await.map_err(anyhow::Error::msg)?;
    let mut listing = Listing::new(&["DUE", "FATE", "ITEMS", "DELAY", "TOOK", "WHY"]);
    let is_shown = |entry: &&Entry| !wanted.only_missed || entry.fate > Fate::Waiting;
    for entry in ledger.entries.iter().rev().filter(is_shown) {
        listing.push(row(entry), object(entry));
    }
    output::data(&listing.text(format))?;
    if ledger.truncated {
        output::tell("the event trace has too many rows for these due times; ask for fewer with --limit");
    }
    Ok(())
}

fn row(entry: &Entry) -> Vec<String> {
    let runs = || entry.items.iter().filter_map(|item| item.run.as_ref());
    let millis =
        |most: Option<std::time::Duration>| most.map_or("-".to_owned(), |most| format!("{} ms", most.as_millis()));
    let fates: Vec<String> = Fate::ALL
        .into_iter()
        .filter_map(|fate| {
            let count = entry.count(fate);
            (count > 0).then(|| format!("{count} {}", fate.word()))
        })
        .collect();
    let failed = entry.failed();
    let failed = if failed > 0 { format!(" ({failed} failed)") } else { String::new() };
    vec![
        entry.due.to_string(),
        entry.fate.word().to_owned(),
        format!("{}{failed}", fates.join(", ")),
        millis(runs().map(|run| run.start.since(entry.due)).max()),
        millis(runs().filter_map(|run| Some(run.end?.since(run.start))).max()),
        entry.reason.clone(),
    ]
}

fn object(entry: &Entry) -> Value {
    let item = |item: &ItemFate| {
        let run = item.run.as_ref();
        json!({
            "item": item.item,
            "fate": item.fate.word(),
            "reason": item.reason,
            "start": run.map(|run| run.start.to_string()),
            "end": run.and_then(|run| run.end).map(|end| end.to_string()),
            "success": run.filter(|run| run.end.is_some()).map(|run| run.success),
        })
    };
    json!({
        "due": entry.due.to_string(),
        "fate": entry.fate.word(),
        "reason": entry.reason,
        "items": entry.items.iter().map(item).collect::<Vec<_>>(),
    })
}
