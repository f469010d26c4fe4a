//! Searches the two tables of the event trace, for the console (Java: `EventTraceHistoryServiceImpl` of ElasticJob-UI).

use elasticjob_core::time::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::Mutex;

use super::address::Address;
use super::connection::{Connection, Trouble};
use super::dialect::{Filter, Selection, Table, time};
use super::history::moment;
use super::{CONNECT_MAX, DataSource};
use crate::clock;

/// Longest wait for an answer.
const QUERY_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// A table of the event trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceTable {
    /// `JOB_EXECUTION_LOG`: a row for each run of an item.
    Executions,
    /// `JOB_STATUS_TRACE_LOG`: a row for each change of the state of a run.
    Statuses,
    /// `JOB_EVENT_LOG`: a row for each event of a job on a Rust instance.
    Events,
    /// `JOB_RUN_LOG`: a row for each part of the log of a run on a Rust instance.
    RunLogs,
}

impl TraceTable {
    fn table(self) -> Table {
        match self {
            TraceTable::Executions => Table::Execution,
            TraceTable::Statuses => Table::Status,
            TraceTable::Events => Table::Event,
            TraceTable::RunLogs => Table::RunLog,
        }
    }
}

/// The rows to return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceQuery {
    /// Columns with the exact value that they must have.
    pub equal: Vec<(&'static str, String)>,
    /// A column with the end that its values must have: hexadecimal digits and `-`.
    pub ends_with: Option<(&'static str, String)>,
    /// Only rows with this value of `is_success`.
    pub succeeded: Option<bool>,
    /// Only runs that have ended: one without an end may be running.
    pub ended: bool,
    /// Only runs that have not ended, or ended later.
    pub open_at: Option<Timestamp>,
    /// Do not count the rows that match: `total` is that of the page.
    pub uncounted: bool,
    /// Only rows whose time is later.
    pub after: Option<Timestamp>,
    /// Only rows whose time is earlier.
    pub before: Option<Timestamp>,
    /// The column by which rows are sorted, and `true` for descending; by default the time, descending.
    pub sort: Option<(&'static str, bool)>,
    /// Number of rows to skip.
    pub offset: u64,
    /// Maximum number of rows.
    pub limit: u64,
}

/// A part of the rows that a query found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePage<R> {
    /// The number of all rows that were found.
    pub total: u64,
    /// The rows of this part.
    pub rows: Vec<R>,
}

/// A row of `JOB_EXECUTION_LOG`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the column of that name")]
pub struct ExecutionRow {
    pub id: String,
    pub job_name: String,
    pub task_id: String,
    pub hostname: String,
    pub ip: String,
    pub sharding_item: i64,
    pub execution_source: String,
    pub failure_cause: Option<String>,
    pub is_success: bool,
    pub start_time: Option<Timestamp>,
    pub complete_time: Option<Timestamp>,
}

/// A row of `JOB_STATUS_TRACE_LOG`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the column of that name")]
pub struct StatusRow {
    pub id: String,
    pub job_name: String,
    pub original_task_id: String,
    pub task_id: String,
    pub slave_id: String,
    /// `None` in a table of Java 3.0.5, which has no such column.
    pub source: Option<String>,
    pub execution_type: String,
    pub sharding_item: String,
    pub state: String,
    pub message: Option<String>,
    pub creation_time: Option<Timestamp>,
}

/// A row of `JOB_EVENT_LOG`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the column of that name")]
pub struct EventRow {
    pub id: String,
    pub job_name: String,
    pub instance: String,
    pub level: String,
    pub event: String,
    pub items: Option<String>,
    pub first_due: Option<Timestamp>,
    pub last_due: Option<Timestamp>,
    pub message: Option<String>,
    pub creation_time: Option<Timestamp>,
}

/// A row of `JOB_RUN_LOG`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the column of that name")]
pub struct RunLogRow {
    pub id: String,
    pub execution_id: String,
    pub job_name: String,
    pub item: i64,
    pub part: i64,
    pub text: String,
    pub creation_time: Option<Timestamp>,
}

impl RunLogRow {
    /// The lines of this part, each as its time, its source and its text.
    pub fn lines(&self) -> impl Iterator<Item = (Option<Timestamp>, &str, &str)> {
        self.text.lines().map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut next = || words.next().unwrap_or_default();
            let at = next().parse::<jiff::Timestamp>().ok().map(|at| Timestamp(at.as_millisecond()));
            (at, next(), next())
        })
    }
}

/// Reads the event trace of one database, over one connection, which is opened again after an error.
#[derive(Debug)]
pub struct TraceReader {
    address: Address,
    /// Whether a file or a table that is missing means that nothing was recorded yet.
    may_be_new: bool,
    connection: Mutex<Option<Connection>>,
}

impl TraceReader {
    /// Creates a reader. The database is not contacted. An SQLite file that does not exist is not created.
    ///
    /// # Errors
    ///
    /// The address is invalid, or of a database that is not supported.
    pub fn new(source: &DataSource) -> Result<TraceReader, String> {
        let address = Address::parse(source)?.of_existing();
        Ok(TraceReader { address, may_be_new: false, connection: Mutex::default() })
    }

    /// Makes a missing file or table no error: the process that writes the trace creates them with its first event.
    #[must_use]
    pub fn maybe_new(self) -> TraceReader {
        TraceReader { may_be_new: true, ..self }
    }

    /// The address of the database, without passwords.
    pub fn describe(&self) -> String {
        self.address.to_string()
    }

    /// Connects, if there is no connection.
    ///
    /// # Errors
    ///
    /// The database does not answer, or rejects the login.
    pub async fn connect(&self) -> Result<(), String> {
        self.with(async |_| Ok(())).await
    }

    /// Returns rows of `JOB_EXECUTION_LOG`.
    ///
    /// # Errors
    ///
    /// The database does not answer, or has no such table.
    pub async fn executions(&self, query: &TraceQuery) -> Result<TracePage<ExecutionRow>, String> {
        let page = self.page(TraceTable::Executions, query).await?;
        let row = |columns: Vec<Option<String>>| {
            let mut columns = columns.into_iter();
            let mut next = || columns.next().flatten();
            ExecutionRow {
                id: next().unwrap_or_default(),
                job_name: next().unwrap_or_default(),
                task_id: next().unwrap_or_default(),
                hostname: next().unwrap_or_default(),
                ip: next().unwrap_or_default(),
                sharding_item: next().and_then(|text| text.parse().ok()).unwrap_or_default(),
                execution_source: next().unwrap_or_default(),
                failure_cause: next(),
                is_success: next().as_deref() == Some("1"),
                start_time: moment(next(), &self.address.zone),
                complete_time: moment(next(), &self.address.zone),
            }
        };
        Ok(TracePage { total: page.total, rows: page.rows.into_iter().map(row).collect() })
    }

    /// Returns rows of `JOB_STATUS_TRACE_LOG`.
    ///
    /// # Errors
    ///
    /// As of [`TraceReader::executions`].
    pub async fn statuses(&self, query: &TraceQuery) -> Result<TracePage<StatusRow>, String> {
        let page = self.page(TraceTable::Statuses, query).await?;
        let row = |columns: Vec<Option<String>>| {
            let mut columns = columns.into_iter();
            let mut next = || columns.next().flatten();
            StatusRow {
                id: next().unwrap_or_default(),
                job_name: next().unwrap_or_default(),
                original_task_id: next().unwrap_or_default(),
                task_id: next().unwrap_or_default(),
                slave_id: next().unwrap_or_default(),
                source: next(),
                execution_type: next().unwrap_or_default(),
                sharding_item: next().unwrap_or_default(),
                state: next().unwrap_or_default(),
                message: next(),
                creation_time: moment(next(), &self.address.zone),
            }
        };
        Ok(TracePage { total: page.total, rows: page.rows.into_iter().map(row).collect() })
    }

    /// Returns rows of `JOB_EVENT_LOG`; none if the database has no such table, as one that only Java writes.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn events(&self, query: &TraceQuery) -> Result<TracePage<EventRow>, String> {
        let page = self.page(TraceTable::Events, query).await?;
        let row = |columns: Vec<Option<String>>| {
            let mut columns = columns.into_iter();
            let mut next = || columns.next().flatten();
            EventRow {
                id: next().unwrap_or_default(),
                job_name: next().unwrap_or_default(),
                instance: next().unwrap_or_default(),
                level: next().unwrap_or_default(),
                event: next().unwrap_or_default(),
                items: next(),
                first_due: moment(next(), &self.address.zone),
                last_due: moment(next(), &self.address.zone),
                message: next(),
                creation_time: moment(next(), &self.address.zone),
            }
        };
        Ok(TracePage { total: page.total, rows: page.rows.into_iter().map(row).collect() })
    }

    /// Returns rows of `JOB_RUN_LOG`; none if the database has no such table, as one that only Java writes.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn run_logs(&self, query: &TraceQuery) -> Result<TracePage<RunLogRow>, String> {
        let page = self.page(TraceTable::RunLogs, query).await?;
        let row = |columns: Vec<Option<String>>| {
            let mut columns = columns.into_iter();
            let mut next = || columns.next().flatten();
            RunLogRow {
                id: next().unwrap_or_default(),
                execution_id: next().unwrap_or_default(),
                job_name: next().unwrap_or_default(),
                item: next().and_then(|text| text.parse().ok()).unwrap_or_default(),
                part: next().and_then(|text| text.parse().ok()).unwrap_or_default(),
                text: next().unwrap_or_default(),
                creation_time: moment(next(), &self.address.zone),
            }
        };
        Ok(TracePage { total: page.total, rows: page.rows.into_iter().map(row).collect() })
    }

    /// Returns the distinct values of a column that match `prefix` as SQL's `LIKE` does, in the order of the database.
    ///
    /// # Errors
    ///
    /// As of [`TraceReader::executions`].
    pub async fn distinct(&self, table: TraceTable, column: &'static str, prefix: &str) -> Result<Vec<String>, String> {
        let prefix = format!("{prefix}%");
        self.with(async |connection| {
            let (sql, values) = connection.dialect().distinct(table.table(), column, &prefix);
            let rows = connection.rows(sql, &values, 1).await?;
            Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
        })
        .await
    }

    async fn page(&self, table: TraceTable, query: &TraceQuery) -> Result<TracePage<Vec<Option<String>>>, String> {
        if self.may_be_new && self.address.is_missing_file() {
            return Ok(TracePage { total: 0, rows: Vec::new() });
        }
        let selection = selection(table.table(), query, &self.address.zone);
        self.with(async |connection| {
            let dialect = connection.dialect();
            let columns = connection.texts(dialect.columns(table.table())).await?;
            let is_of_java = matches!(table, TraceTable::Executions | TraceTable::Statuses);
            if columns.is_empty() && (!is_of_java || self.may_be_new) {
                return Ok(TracePage { total: 0, rows: Vec::new() });
            }
            if columns.is_empty() {
                return Err(Trouble::Away(format!("the database has no table {}", table.table().name())));
            }
            let has_source = columns.iter().any(|column| column.eq_ignore_ascii_case("source"));
            // A column that the table lacks has no value: no row has the value that is looked for.
            if !has_source && selection.names("source") {
                return Ok(TracePage { total: 0, rows: Vec::new() });
            }
            let count = match query.uncounted {
                true => None,
                false => {
                    let (sql, values) = dialect.count(&selection);
                    let count = connection.rows(sql, &values, 1).await?;
                    count.into_iter().next().and_then(|row| row.into_iter().next()).flatten()
                }
            };
            let (sql, values, columns) = dialect.page(&selection, has_source, query.offset, query.limit);
            let rows = connection.rows(sql, &values, columns).await?;
            let total = count.and_then(|text| text.parse().ok()).unwrap_or(rows.len() as u64);
            Ok(TracePage { total, rows })
        })
        .await
    }

    /// Runs `work` on the connection. A connection on which something failed is closed: the database may have restarted.
    async fn with<T>(&self, work: impl AsyncFnOnce(&mut Connection) -> Result<T, Trouble>) -> Result<T, String> {
        let named = |reason: String| format!("{}: {reason}", self.address);
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => {
                let opened = clock::within(CONNECT_MAX, Connection::open(&self.address)).await;
                let opened = opened.ok_or_else(|| named(format!("no connection within {CONNECT_MAX:?}")))?;
                match (opened, self.address.as_it_is()) {
                    (Ok(connection), _) => connection,
                    (Err(trouble), None) => return Err(named(trouble.to_string())),
                    // SQLite cannot write beside the file: no space, or no permission.
                    (Err(trouble), Some(as_it_is)) => {
                        Connection::open(&as_it_is).await.map_err(|_| named(trouble.to_string()))?
                    }
                }
            }
        };
        let done = clock::within(QUERY_MAX, work(&mut connection)).await;
        let done = done.ok_or_else(|| named(format!("no answer within {QUERY_MAX:?}")))?;
        let done = done.map_err(|error| named(error.to_string()))?;
        *place = Some(connection);
        Ok(done)
    }
}

fn selection(table: Table, query: &TraceQuery, zone: &TimeZone) -> Selection {
    let mut filters: Vec<Filter> =
        query.equal.iter().map(|(column, value)| Filter::Equal(column, value.clone())).collect();
    filters.extend(query.ends_with.clone().map(|(column, end)| Filter::EndsWith(column, end)));
    filters.extend(query.succeeded.map(Filter::Succeeded));
    filters.extend(query.ended.then_some(Filter::Ended));
    filters.extend(query.open_at.map(|at| Filter::OpenAt(time(at, zone))));
    filters.extend(query.after.map(|after| Filter::After(time(after, zone))));
    filters.extend(query.before.map(|before| Filter::Before(time(before, zone))));
    let (sort, descending) = query.sort.unwrap_or((table.time(), true));
    Selection { table, filters, sort, descending }
}
