//! Reads what the trace has written: the runs of a job, by Java's instances and by ours.

use elasticjob_core::time::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::address::Address;
use super::connection::{Connection, Trouble};
use super::dialect::{Table, Value, time};
use super::{CONNECT_MAX, DataSource};
use crate::clock;

/// Longest wait for the rows.
const QUERY_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The runs to return.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryQuery {
    /// Only failed runs.
    pub failed: bool,
    /// Only runs that started at this time or later.
    pub since: Option<Timestamp>,
    /// Maximum number of runs, the latest first.
    pub limit: u32,
}

impl HistoryQuery {
    /// Asks for the latest runs, at most so many.
    pub fn latest(limit: u32) -> HistoryQuery {
        HistoryQuery { failed: false, since: None, limit }
    }
}

/// The run of one item, from a row of JOB_EXECUTION_LOG.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The id of the row, and of the run's log.
    pub id: String,
    /// The item.
    pub item: u32,
    /// `NORMAL_TRIGGER`, `MISFIRE` or `FAILOVER`.
    pub source: String,
    /// The server's IP.
    pub ip: String,
    /// The server's name.
    pub hostname: String,
    /// Java's id of the task.
    pub task_id: String,
    /// The start.
    pub start: Option<Timestamp>,
    /// The end. `None` while it runs, and if its process died.
    pub end: Option<Timestamp>,
    /// `true` if it succeeded.
    pub succeeded: bool,
    /// Why it failed.
    pub failure: Option<String>,
}

/// The runs of a job, the latest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// The address of the database, without passwords.
    pub from: String,
    /// The runs.
    pub entries: Vec<HistoryEntry>,
}

/// Reads the runs of a job.
///
/// # Errors
///
/// The address is not one of a database that is supported; it does not answer, or has no such table.
pub(crate) async fn history(source: &DataSource, job: &str, query: &HistoryQuery) -> Result<History, String> {
    let address = Address::parse(source)?.of_existing();
    let told = |reason: String| format!("history from {address}: {reason}");
    let late = |what: &str, limit: std::time::Duration| told(format!("{what} within {limit:?}"));
    let connection = clock::within(CONNECT_MAX, Connection::open(&address)).await;
    let connection = connection.ok_or_else(|| late("no connection", CONNECT_MAX))?;
    let mut connection = match (connection, address.as_it_is()) {
        (Ok(connection), _) => connection,
        (Err(trouble), None) => return Err(told(trouble.to_string())),
        // On a full or read-only disk SQLite cannot share the file.
        (Err(trouble), Some(as_it_is)) => Connection::open(&as_it_is).await.map_err(|_| told(trouble.to_string()))?,
    };
    let rows = clock::within(QUERY_MAX, read(&mut connection, job, query, &address.zone)).await;
    let rows = rows.ok_or_else(|| late("no answer", QUERY_MAX))?.map_err(|trouble| told(trouble.to_string()))?;
    let rows = rows.ok_or_else(|| {
        told(format!("there is no table {}, so no run was ever recorded in this database", TABLE.name()))
    })?;
    let entries = rows.into_iter().map(|row| entry(row, &address.zone)).collect();
    Ok(History { from: address.to_string(), entries })
}

const TABLE: Table = Table::Execution;

async fn read(
    connection: &mut Connection,
    job: &str,
    query: &HistoryQuery,
    zone: &TimeZone,
) -> Result<Option<Vec<Vec<Option<String>>>>, Trouble> {
    let dialect = connection.dialect();
    if connection.texts(dialect.columns(TABLE)).await?.is_empty() {
        return Ok(None);
    }
    let mut values = vec![Value::Text(job.to_owned())];
    values.extend(query.since.map(|since| Value::Time(Some(time(since, zone)))));
    let sql = dialect.history(query.since.is_some(), query.failed, query.limit);
    connection.rows(sql, &values, HISTORY_COLUMNS).await.map(Some)
}

/// How many columns [`super::dialect::Dialect::history`] gives, in the order of [`entry`].
const HISTORY_COLUMNS: usize = 10;

fn entry(row: Vec<Option<String>>, zone: &TimeZone) -> HistoryEntry {
    let mut columns = row.into_iter();
    let mut next = || columns.next().flatten();
    HistoryEntry {
        id: next().unwrap_or_default(),
        item: next().and_then(|text| text.parse().ok()).unwrap_or_default(),
        source: next().unwrap_or_default(),
        ip: next().unwrap_or_default(),
        hostname: next().unwrap_or_default(),
        task_id: next().unwrap_or_default(),
        start: moment(next(), zone),
        end: moment(next(), zone),
        succeeded: next().as_deref() == Some("1"),
        failure: next().filter(|text| !text.is_empty()),
    }
}

/// A time of a row, whose column has no zone.
pub(super) fn moment(text: Option<String>, zone: &TimeZone) -> Option<Timestamp> {
    let civil: DateTime = text?.parse().ok()?;
    Some(Timestamp(zone.to_ambiguous_timestamp(civil).compatible().ok()?.as_millisecond()))
}
