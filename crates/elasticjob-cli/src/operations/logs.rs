//! `elasticjob job logs`: the output of runs, from the event trace.

use std::collections::BTreeSet;
use std::time::Duration;

use elasticjob::trace::DataSource;
use elasticjob::trace::rdb::{ExecutionRow, RunLogRow, TraceQuery, TraceReader};
use elasticjob::{Operations, Timestamp};
use serde_json::{Value, json};

use super::history;
use crate::args::{Logs, Output};
use crate::output;
use crate::{Failure, clock};

/// Parts of one query.
const PARTS: u64 = 100;
/// Time from one query to the next while new lines are awaited.
const PAUSE: Duration = Duration::from_secs(1);
/// Rows of a run may be written this long after their time.
const LATE_MILLIS: i64 = 60_000;
/// Characters of the end of an id that identify a run, at least.
const SUFFIX_MIN: usize = 4;

/// What is asked for, and where.
pub(super) struct Wanted {
    job: String,
    named: Option<DataSource>,
    beside: Option<DataSource>,
    run: Option<String>,
    item: Option<u32>,
    follow: bool,
}

pub(super) fn wanted(arguments: &Logs, beside: Option<DataSource>) -> Result<Wanted, Failure> {
    let Logs { name, database, run, item, follow } = arguments;
    if let Some(run) = run
        && (run.len() < SUFFIX_MIN || !run.chars().all(|c| c.is_ascii_hexdigit() || c == '-'))
    {
        let text = format!(
            "elasticjob: --run `{run}`: expected the id of a run in `job history`, or at least its last {SUFFIX_MIN} characters"
        );
        return Err(Failure::Wrong(vec![text]));
    }
    Ok(Wanted {
        job: name.clone(),
        named: history::named(database)?,
        beside,
        run: run.as_ref().map(|run| run.to_lowercase()),
        item: *item,
        follow: *follow,
    })
}

impl Wanted {
    /// Whether the database is known without a registry.
    pub(super) fn names_database(&self) -> bool {
        self.named.is_some()
    }
}

pub(super) fn run_without_registry(wanted: Wanted, format: Output) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let source = wanted.named.clone().unwrap_or_default();
    runtime.block_on(print(&wanted, &source, format))
}

pub(super) async fn run(operations: &Operations, wanted: Wanted, format: Output) -> Result<(), Failure> {
    let beside = wanted.beside.clone();
    let source = history::known(operations, &wanted.job, wanted.named.clone(), beside).await?;
    print(&wanted, &source, format).await
}

async fn print(wanted: &Wanted, source: &DataSource, format: Output) -> Result<(), Failure> {
    let reader = TraceReader::new(source).map_err(anyhow::Error::msg)?.maybe_new();
    let log = Log { wanted, reader, format };
    let printing = async {
        let follows_job = wanted.follow && wanted.run.is_none();
        // What is recorded before the first line is printed is not followed.
        let mut printed = if follows_job { log.recorded().await? } else { BTreeSet::new() };
        match log.latest().await? {
            Some(run) => log.run(&run, &mut printed).await?,
            None if follows_job => {}
            None => return log.none(),
        }
        if follows_job { log.later(printed).await } else { Ok(()) }
    };
    tokio::select! {
        done = printing => done,
        () = output::reader_gone(), if wanted.follow => Err(Failure::Unread),
    }
}

struct Log<'a> {
    wanted: &'a Wanted,
    reader: TraceReader,
    format: Output,
}

impl Log<'_> {
    /// The conditions on rows of either table, whose columns for items have these names.
    fn query(&self, item: &'static str) -> TraceQuery {
        let mut equal = vec![("job_name", self.wanted.job.clone())];
        equal.extend(self.wanted.item.map(|number| (item, number.to_string())));
        TraceQuery { equal, uncounted: true, ..TraceQuery::default() }
    }

    /// The id of the run to print: the one that is asked for, or the latest one with a log.
    async fn latest(&self) -> Result<Option<String>, Failure> {
        let mut query = self.query("item");
        query.limit = 1;
        if let Some(end) = &self.wanted.run {
            query.ends_with = Some(("execution_id", end.clone()));
            let logs = self.reader.run_logs(&query).await.map_err(anyhow::Error::msg)?;
            let found: Option<String> = logs.rows.into_iter().next().map(|row| row.execution_id);
            if found.is_some() || !self.wanted.follow {
                return Ok(found);
            }
            // A run that has not written a line yet.
            let mut query = self.query("sharding_item");
            (query.ends_with, query.limit) = (Some(("id", end.clone())), 1);
            let runs = self.reader.executions(&query).await.map_err(anyhow::Error::msg)?;
            return Ok(runs.rows.into_iter().next().map(|row| row.id));
        }
        let logs = self.reader.run_logs(&query).await.map_err(anyhow::Error::msg)?;
        Ok(logs.rows.into_iter().next().map(|row| row.execution_id))
    }

    /// Why nothing is printed.
    fn none(&self) -> Result<(), Failure> {
        let Wanted { job, run, .. } = self.wanted;
        let place = self.reader.describe();
        let advice = "only failed runs are recorded unless `runLog: all` is below `tracing` in the agent's file, or the job has \
                      the property `elasticjob.run.log: all`; Java records none";
        match run {
            Some(run) => Err(anyhow::anyhow!("no log of a run `{run}` of job `{job}` in {place}: {advice}").into()),
            None => {
                output::tell(&format!("no run log of job `{job}` in {place}: {advice}"));
                Ok(())
            }
        }
    }

    async fn execution(&self, id: &str) -> Result<Option<ExecutionRow>, Failure> {
        let equal = vec![("id", id.to_owned())];
        let query = TraceQuery { equal, uncounted: true, limit: 1, ..TraceQuery::default() };
        let runs = self.reader.executions(&query).await.map_err(anyhow::Error::msg)?;
        Ok(runs.rows.into_iter().next())
    }

    /// Prints the log of a run, and notes the parts in `printed`. Follows it to its end, if that is asked for.
    async fn run(&self, id: &str, printed: &mut BTreeSet<String>) -> Result<(), Failure> {
        let (mut read, mut next) = (0, 0);
        let mut heading = true;
        loop {
            // Asked first: the end is written after the last part.
            let execution = self.execution(id).await?;
            if std::mem::take(&mut heading) {
                output::tell(&heading_of(id, execution.as_ref()));
            }
            let query = TraceQuery {
                equal: vec![("execution_id", id.to_owned())],
                sort: Some(("part", false)),
                uncounted: true,
                offset: read,
                limit: PARTS,
                ..TraceQuery::default()
            };
            let page = self.reader.run_logs(&query).await.map_err(anyhow::Error::msg)?;
            read += page.rows.len() as u64;
            for row in &page.rows {
                if row.part > next {
                    output::tell(&format!("… parts of the log that were not recorded: {}", row.part - next));
                }
                next = row.part + 1;
                printed.insert(row.id.clone());
                self.part(row, false)?;
            }
            let has_ended = execution.is_some_and(|row| row.complete_time.is_some());
            if page.rows.len() as u64 == PARTS {
                continue;
            }
            if has_ended || !self.wanted.follow || self.wanted.run.is_none() {
                return Ok(());
            }
            clock::sleep(PAUSE).await;
        }
    }

    /// The parts of all runs that were recorded in the last minute.
    async fn recorded(&self) -> Result<BTreeSet<String>, Failure> {
        let mut found = BTreeSet::new();
        self.recent(&mut |row| {
            found.insert(row.id.clone());
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Gives the parts of the last minute, the oldest first. Clocks of hosts may differ, and rows be late, by as much.
    async fn recent(&self, take: &mut dyn FnMut(&RunLogRow) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut query = self.query("item");
        query.after = Some(Timestamp(clock::now().0 - LATE_MILLIS));
        (query.sort, query.limit) = (Some(("creation_time", false)), PARTS);
        loop {
            let page = self.reader.run_logs(&query).await.map_err(anyhow::Error::msg)?;
            page.rows.iter().try_for_each(&mut *take)?;
            if (page.rows.len() as u64) < PARTS {
                return Ok(());
            }
            query.offset += PARTS;
        }
    }

    /// Prints the parts of all runs that are not printed yet, for ever.
    async fn later(&self, mut printed: BTreeSet<String>) -> Result<(), Failure> {
        loop {
            let mut seen = BTreeSet::new();
            self.recent(&mut |row| {
                seen.insert(row.id.clone());
                if printed.contains(&row.id) { Ok(()) } else { self.part(row, true) }
            })
            .await?;
            // Older ones do not come again.
            printed = seen;
            clock::sleep(PAUSE).await;
        }
    }

    fn part(&self, row: &RunLogRow, with_item: bool) -> Result<(), Failure> {
        if self.format == Output::Table {
            let item = if with_item { format!("item {} ", row.item) } else { String::new() };
            let lines = row.lines().map(|(at, source, text)| format!("{} {item}{source} {text}\n", moment(at)));
            return output::data(&lines.collect::<String>());
        }
        let objects = row.lines().map(|(at, source, text)| object(row, at, source, text).to_string() + "\n");
        output::data(&objects.collect::<String>())
    }
}

fn moment(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), |at| at.to_string())
}

/// A line, for programs. One object a line, which is JSON and YAML: a log has no end that a list could wait for.
fn object(row: &RunLogRow, at: Option<Timestamp>, source: &str, text: &str) -> Value {
    json!({"run": row.execution_id, "item": row.item, "at": at.map(|at| at.to_string()), "source": source, "text": text})
}

/// What a run was.
fn heading_of(id: &str, execution: Option<&ExecutionRow>) -> String {
    let Some(run) = execution else { return format!("run {id}: its start is not recorded") };
    let start = moment(run.start_time);
    let end = match run.complete_time.zip(run.start_time) {
        None => "no end yet".to_owned(),
        Some((end, start)) => {
            let outcome = if run.is_success { "SUCCESS" } else { "FAILURE" };
            format!("{outcome} after {} ms", end.since(start).as_millis())
        }
    };
    format!("run {id}: item {} on {}, started {start}: {end}", run.sharding_item, run.ip)
}
