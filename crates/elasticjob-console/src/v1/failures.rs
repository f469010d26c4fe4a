//! Failed runs, grouped by what they failed with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use elasticjob::Timestamp;
use elasticjob::trace::rdb::{ExecutionRow, TraceQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Asked, Problem, Shared};
use crate::clock;
use crate::failure::Failure;
use crate::server::State;

/// Failed runs that are read, the latest first.
const RUNS_MAX: u64 = 5_000;
/// Groups of an answer.
const GROUPS_MAX: usize = 500;
/// The hours to look back by default, and at most.
const HOURS: i64 = 24;
const HOURS_MAX: i64 = 31 * 24;
const HOUR_MILLIS: i64 = 3_600_000;
/// Characters of a group's text.
const TEXT_MAX: usize = 300;

/// The failed runs to group.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// The name of the registry center, whose trace store is read; the connected one by default.
    centre: Option<String>,
    /// The name of the job; all jobs by default.
    job: Option<String>,
    /// Only runs that started within this number of hours, 1 to 744; 24 by default.
    hours: Option<i64>,
}

/// Failed runs in groups.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Failures {
    /// Whether a trace store is connected. Without one, no run is known.
    recorded: bool,
    /// The number of failed runs.
    total: u64,
    /// The number of them that were read, the latest first; at most 5000.
    read: usize,
    /// The groups of the runs that were read, the one with the latest run first.
    groups: Vec<Group>,
}

/// Runs of a job that failed with the same text, apart from numbers in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Group {
    /// The job.
    job: String,
    /// The first line of what the runs failed with, with `#` for each number.
    text: String,
    /// The number of runs.
    count: usize,
    /// The start of the first run, in milliseconds since 1970.
    first: Option<i64>,
    /// The start of the latest run.
    last: Option<i64>,
    /// The items.
    items: BTreeSet<i64>,
    /// The addresses of the servers.
    servers: BTreeSet<String>,
    /// The id of the latest run.
    run: String,
    /// The whole text with which the latest run failed.
    latest: String,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/failures", get(failures))
}

/// Groups failed runs by what they failed with.
#[utoipa::path(get, path = "/api/v1/failures", tag = "runs", params(Since),
    responses((status = 200, body = Failures), (status = 400, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn failures(state: Shared, Asked(since): Asked<Since>) -> Result<Json<Failures>, Problem> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let hours = since.hours.unwrap_or(HOURS);
    if !(1..=HOURS_MAX).contains(&hours) {
        return Err(Failure::invalid(format!("hours: {hours} is not a number from 1 to {HOURS_MAX}")).into());
    }
    let Some(reader) = state.stores.reader(given(since.centre).as_deref())? else {
        return Ok(Json(Failures { recorded: false, total: 0, read: 0, groups: Vec::new() }));
    };
    let query = TraceQuery {
        equal: given(since.job).map(|job| ("job_name", job)).into_iter().collect(),
        succeeded: Some(false),
        ended: true,
        after: Some(Timestamp(clock::millis() - hours * HOUR_MILLIS)),
        limit: RUNS_MAX,
        ..TraceQuery::default()
    };
    let page = reader.executions(&query).await.map_err(Failure::failed)?;
    Ok(Json(Failures { recorded: true, total: page.total, read: page.rows.len(), groups: grouped(page.rows) }))
}

/// Groups rows, which are the latest first.
fn grouped(rows: Vec<ExecutionRow>) -> Vec<Group> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let failure = row.failure_cause.unwrap_or_default();
        let text = pattern(failure.lines().next().unwrap_or_default());
        let place = *places.entry((row.job_name.clone(), text.clone())).or_insert_with(|| {
            groups.push(Group {
                job: row.job_name,
                text,
                count: 0,
                first: None,
                last: row.start_time.map(|at| at.0),
                items: BTreeSet::new(),
                servers: BTreeSet::new(),
                run: row.id,
                latest: failure,
            });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.count += 1;
        group.first = row.start_time.map(|at| at.0);
        group.items.insert(row.sharding_item);
        group.servers.insert(row.ip);
    }
    groups.truncate(GROUPS_MAX);
    groups
}

/// A text with `#` for each number, so that texts that differ only in a time, an id or a count are the same. A word of hexadecimal
/// digits with at least one decimal one, of eight characters or more, is a number too.
fn pattern(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if end == 0 {
            found.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let word = &rest[..end];
        let is_id =
            word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit()) && word.chars().any(|c| c.is_ascii_digit());
        if is_id {
            found.push('#');
        } else {
            let mut was_digit = false;
            for c in word.chars() {
                if !c.is_ascii_digit() {
                    found.push(c);
                } else if !was_digit {
                    found.push('#');
                }
                was_digit = c.is_ascii_digit();
            }
        }
        rest = &rest[end..];
    }
    found.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_numbers_are_the_same() {
        for (text, expected) in [
            ("the script ended with exit code 3", "the script ended with exit code #"),
            ("timeout after 1200 ms at 10:03:59", "timeout after # ms at #:#:#"),
            ("row 3f2a9c81d04e not found", "row # not found"),
            ("facade is no number, deadbeef neither", "facade is no number, deadbeef neither"),
            ("v2x: ü 7", "v#x: ü #"),
            ("", ""),
        ] {
            assert_eq!(pattern(text), expected);
        }
    }

    #[test]
    fn runs_are_grouped_by_job_and_text_with_the_latest_first() {
        let row = |id: &str, job: &str, item, start, failure: &str| ExecutionRow {
            id: id.into(),
            job_name: job.into(),
            sharding_item: item,
            ip: format!("10.0.0.{item}"),
            start_time: Some(Timestamp(start)),
            failure_cause: Some(failure.into()),
            ..ExecutionRow::default()
        };
        let groups = grouped(vec![
            row("5", "a", 1, 50, "exit code 3\nmore"),
            row("4", "b", 0, 40, "exit code 3"),
            row("3", "a", 2, 30, "exit code 4"),
            row("2", "a", 1, 20, "no such file"),
            row("1", "a", 1, 10, "exit code 5"),
        ]);
        let found: Vec<_> = groups
            .iter()
            .map(|group| {
                (group.job.as_str(), group.text.as_str(), group.count, group.first, group.last, group.run.as_str())
            })
            .collect();
        assert_eq!(
            found,
            [
                ("a", "exit code #", 3, Some(10), Some(50), "5"),
                ("b", "exit code #", 1, Some(40), Some(40), "4"),
                ("a", "no such file", 1, Some(20), Some(20), "2"),
            ]
        );
        assert_eq!(groups[0].items, BTreeSet::from([1, 2]));
        assert_eq!(groups[0].servers, BTreeSet::from(["10.0.0.1".to_owned(), "10.0.0.2".to_owned()]));
        assert_eq!(groups[0].latest, "exit code 3\nmore");
    }
}
