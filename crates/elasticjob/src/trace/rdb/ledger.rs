//! The due ledger of a job, from the rows of the event trace.

use std::collections::VecDeque;
use std::time::Duration;

use elasticjob_core::config::JobConfig;
use elasticjob_core::due_ledger::{Cause, Change, Entry, ItemRun, NotBegun, Record, Told, judge};
use elasticjob_core::ranges;
use elasticjob_core::time::Timestamp;

use super::search::{EventRow, ExecutionRow, TraceQuery, TraceReader};
use crate::clock;

/// Maximum number of items of all due times of an answer together.
const ITEMS_MAX: usize = 50_000;
/// Maximum number of rows that are read.
const ROWS_MAX: u64 = 100_000;
/// Maximum number of events from before the first due time: they tell who was disabled then.
const EARLIER_MAX: u64 = 2_000;
/// Due times are looked for up to so long ago.
const LOOK_BACK_MAX: Duration = Duration::from_secs(400 * 24 * 3_600);
/// Firings that are walked over in one search.
const WALK_MAX: usize = 500_000;
/// Runs and accounts that come so long after the last due time still belong to it.
const AFTERWARDS: Duration = Duration::from_secs(24 * 3_600);
/// The first guess for how long ago the first due time was.
const LOOK_BACK: Duration = Duration::from_secs(60);

/// What became of the due times of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueLedger {
    /// The address of the database, without passwords.
    pub from: String,
    /// The due times, ascending.
    pub entries: Vec<Entry>,
    /// Whether rows are missing, because there are too many: what is said of the last due times may then be wrong.
    pub truncated: bool,
}

impl TraceReader {
    /// Returns what became of the last `count` due times up to `until`. There are fewer if the job has many items: together they have at
    /// most 50,000. A job without a cron expression has none.
    ///
    /// # Errors
    ///
    /// The database does not answer, or has no event trace.
    pub async fn due_ledger(&self, config: &JobConfig, until: Timestamp, count: usize) -> Result<DueLedger, String> {
        let now = clock::now();
        let items = config.sharding_total_count;
        let count = count.min(ITEMS_MAX / items.max(1) as usize).max(1);
        // Searching and judging may take a while: other tasks of the process run jobs.
        let (of, until) = (config.clone(), until.min(now));
        let dues = tokio::task::spawn_blocking(move || last_dues(&of, until, count)).await.unwrap_or_default();
        let (Some(first), Some(last)) = (dues.first().copied(), dues.last().copied()) else {
            return Ok(DueLedger { from: self.describe(), entries: Vec::new(), truncated: false });
        };
        let of_job = TraceQuery {
            equal: vec![("job_name", config.name.clone())],
            limit: ROWS_MAX,
            uncounted: true,
            ..TraceQuery::default()
        };
        let within = TraceQuery {
            after: Some(Timestamp(first.0 - 1)),
            before: Some(last + AFTERWARDS),
            sort: Some(("start_time", false)),
            ..of_job.clone()
        };
        let found = self.executions(&within).await?.rows;
        let mut truncated = found.len() as u64 == ROWS_MAX;
        let mut runs: Vec<ItemRun> = found.iter().filter_map(run).collect();
        // The run before may have gone on, or have no end.
        let before = TraceQuery { before: Some(first), limit: u64::from(items) * 2, ..of_job.clone() };
        runs.extend(self.executions(&before).await?.rows.iter().filter_map(run));
        let oldest = TraceQuery { limit: 1, sort: Some(("start_time", false)), ..of_job.clone() };
        let oldest = self.executions(&oldest).await?.rows.first().and_then(|row| row.start_time);
        let events = TraceQuery { sort: Some(("creation_time", false)), ..within };
        let events = self.events(&events).await?.rows;
        truncated |= events.len() as u64 == ROWS_MAX;
        let earlier = TraceQuery { before: Some(first), limit: EARLIER_MAX, ..of_job };
        let earlier = self.events(&earlier).await?.rows;
        let recorded = earlier.iter().rev().chain(&events);
        let rescheduled = recorded.clone().filter(|row| is_another_schedule(row)).filter_map(|row| row.creation_time);
        let next = config.cron.as_ref().and_then(|cron| cron.next(last, &config.time_zone));
        let record = Record {
            dues,
            next,
            items,
            runs,
            told: recorded.clone().filter_map(told).collect(),
            changes: recorded.clone().filter_map(|row| Some((row.creation_time?, change(row)?))).collect(),
            // Each table loses its old rows by itself: events may be older than the runs that are kept.
            since: oldest.or_else(|| recorded.clone().find_map(|row| row.creation_time)),
            changed: rescheduled.max(),
            now,
        };
        let entries = tokio::task::spawn_blocking(move || judge(&record)).await.map_err(|error| error.to_string())?;
        Ok(DueLedger { from: self.describe(), entries, truncated })
    }
}

/// The last due times up to a moment, ascending.
fn last_dues(config: &JobConfig, until: Timestamp, count: usize) -> Vec<Timestamp> {
    let Some(cron) = &config.cron else { return Vec::new() };
    let mut back = LOOK_BACK;
    loop {
        let mut found = VecDeque::with_capacity(count);
        let (mut after, mut walked) = (until - back, 0);
        while let Some(next) = cron.next(after, &config.time_zone).filter(|next| *next <= until) {
            if found.len() == count {
                found.pop_front();
            }
            found.push_back(next);
            after = next;
            walked += 1;
        }
        // An expression that fired very often some time ago is not searched further.
        if found.len() == count || back >= LOOK_BACK_MAX || walked >= WALK_MAX {
            return found.into();
        }
        back = (back * 4).min(LOOK_BACK_MAX);
    }
}

fn run(row: &ExecutionRow) -> Option<ItemRun> {
    let cause = match row.execution_source.as_str() {
        "MISFIRE" => Cause::Misfire,
        "FAILOVER" => Cause::Failover,
        _ => Cause::Schedule,
    };
    Some(ItemRun {
        item: u32::try_from(row.sharding_item).ok()?,
        cause,
        start: row.start_time?,
        end: row.complete_time,
        success: row.is_success,
    })
}

fn told(row: &EventRow) -> Option<Told> {
    let what = match row.event.as_str() {
        "misfired" => NotBegun::Misfired,
        "skipped" => NotBegun::Skipped,
        "passed" => NotBegun::Passed,
        "lost" => NotBegun::Lost,
        _ => return None,
    };
    // The data behind the sentence is in columns of its own.
    let message = row.message.clone().unwrap_or_default();
    let sentence = message.split(" items=").next().unwrap_or_default().split(" due=").next().unwrap_or_default();
    let reason = sentence.split_once(": ").map_or(sentence, |(_, reason)| reason);
    let reason = reason.split(';').next().unwrap_or_default();
    let items = match row.items.as_deref().filter(|items| !items.is_empty()) {
        Some(items) => Some(ranges::parse(items)?),
        None => None,
    };
    Some(Told {
        what,
        items: items.map(|items| items.into_iter().collect()),
        first: row.first_due?,
        last: row.last_due.or(row.first_due)?,
        reason: reason.to_owned(),
    })
}

/// Whether the due times before the event were those of another expression.
fn is_another_schedule(row: &EventRow) -> bool {
    let names = |key: &str| row.message.as_ref().is_some_and(|message| message.contains(&format!("`{key}` is ")));
    row.event == "rescheduled" || (row.event == "overwrote" && (names("cron") || names("timeZone")))
}

fn change(row: &EventRow) -> Option<Change> {
    let server = || row.instance.split("@-@").next().unwrap_or_default().to_owned();
    let item = || row.items.as_deref().and_then(|item| item.parse().ok());
    Some(match row.event.as_str() {
        "joined" => Change::Joined { instance: row.instance.clone() },
        "left" => Change::Left { instance: row.instance.clone() },
        "job-enabled" => Change::Job { enabled: true },
        "job-disabled" => Change::Job { enabled: false },
        "server-enabled" => Change::Server { server: server(), enabled: true },
        "server-disabled" | "kept-disabled" | "disabled-by-start" => {
            Change::Server { server: server(), enabled: false }
        }
        "item-enabled" => Change::Item { item: item()?, enabled: true },
        "item-disabled" => Change::Item { item: item()?, enabled: false },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(event: &str, items: Option<&str>, message: &str) -> EventRow {
        EventRow {
            event: event.to_owned(),
            instance: "10.0.0.1@-@7".to_owned(),
            items: items.map(str::to_owned),
            first_due: Some(Timestamp(1_000)),
            last_due: Some(Timestamp(3_000)),
            message: Some(message.to_owned()),
            ..EventRow::default()
        }
    }

    #[test]
    fn the_reason_of_an_event_is_its_sentence_without_the_data() {
        let skipped = row(
            "skipped",
            Some("0, 2-4"),
            "items skipped a firing: the previous run has not completed, and misfire is off items=[0, 2-4] due=2026-01-01T00:00:00.000Z",
        );
        let told = told(&skipped).expect("an account");
        assert_eq!(told.reason, "the previous run has not completed, and misfire is off");
        assert_eq!(told.items, Some([0, 2, 3, 4].into()));
        assert_eq!(super::told(&row("joined", None, "joined")), None);
        assert_eq!(super::told(&row("skipped", Some("0-4294967295"), "skipped")), None, "no text fills the memory");
        let whole = super::told(&row("skipped", Some(""), "skipped a firing: why due=x")).expect("an account");
        assert_eq!((whole.items, whole.reason.as_str()), (None, "why"));
    }

    #[test]
    fn changes_are_those_of_the_reporting_instance() {
        let server = "10.0.0.1".to_owned();
        assert_eq!(change(&row("server-disabled", None, "")), Some(Change::Server { server, enabled: false }));
        assert_eq!(change(&row("item-disabled", Some("3"), "")), Some(Change::Item { item: 3, enabled: false }));
        assert_eq!(change(&row("job-enabled", None, "")), Some(Change::Job { enabled: true }));
        assert_eq!(change(&row("elected", None, "")), None);
    }

    #[test]
    fn the_last_due_times_are_found_however_rare_they_are() {
        let zone = |_: Option<&str>| Some(jiff::tz::TimeZone::UTC);
        let dues = |cron: &str, count| {
            let mut document = elasticjob_core::wire::JobDocument::new("job", 1);
            document.cron = Some(cron.to_owned());
            let (config, _) = JobConfig::best_effort(&document, &zone);
            last_dues(&config, Timestamp(1_767_225_600_000), count)
                .into_iter()
                .map(|due| due.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(dues("0/20 * * * * ?", 2), ["2025-12-31T23:59:40.000Z", "2026-01-01T00:00:00.000Z"]);
        assert_eq!(dues("0 0 3 1 * ?", 2), ["2025-11-01T03:00:00.000Z", "2025-12-01T03:00:00.000Z"]);
        assert_eq!(dues("0 0 3 1 1 ?", 5), ["2025-01-01T03:00:00.000Z"]);
        assert_eq!(dues("0 0 0 1 1 ? 2099", 5), Vec::<String>::new());
    }
}
