//! The statements of the three databases. Tables, columns and their order are Java's.

use std::collections::BTreeMap;

use elasticjob_core::time::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::super::event::{list, shortened};
use super::super::{Execution, JobRecord, LogPart, Status, TraceEvent};

/// Rows of one statement, at the most. The statements are kept prepared, one for each number of rows; and building one must
/// not hold up what else runs on its thread.
const ROWS_MAX: usize = 50;
/// The same of run logs, whose rows are large.
const LOG_ROWS_MAX: usize = 10;
/// The longest texts of the columns that a job can fill.
const TASK_ID_MAX: usize = 255;
const ITEMS_MAX: usize = 100;

/// A database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    #[cfg_attr(not(feature = "rdb-sqlite"), expect(dead_code, reason = "needs its feature"))]
    Sqlite,
    Postgres,
    /// MariaDB too.
    Mysql,
}

/// One of Java's two tables, or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Execution,
    Status,
    /// Events of jobs. Java has no such table.
    Event,
    /// Parts of run logs. Java has no such table.
    RunLog,
}

const EXECUTION_COLUMNS: [&str; 11] = [
    "id",
    "job_name",
    "task_id",
    "hostname",
    "ip",
    "sharding_item",
    "execution_source",
    "failure_cause",
    "is_success",
    "start_time",
    "complete_time",
];
const STATUS_COLUMNS: [&str; 10] = [
    "id",
    "job_name",
    "original_task_id",
    "task_id",
    "slave_id",
    "execution_type",
    "sharding_item",
    "state",
    "message",
    "creation_time",
];
const EVENT_COLUMNS: [&str; 10] =
    ["id", "job_name", "instance", "level", "event", "items", "first_due", "last_due", "message", "creation_time"];
const RUN_LOG_COLUMNS: [&str; 7] = ["id", "execution_id", "job_name", "item", "part", "text", "creation_time"];
/// What Java 3.0.4 has in the column that 3.0.5 does not write.
const SOURCE: &str = "LITE_EXECUTOR";

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Table::Execution => "JOB_EXECUTION_LOG",
            Table::Status => "JOB_STATUS_TRACE_LOG",
            Table::Event => "JOB_EVENT_LOG",
            Table::RunLog => "JOB_RUN_LOG",
        }
    }

    /// The column by which rows grow old.
    pub(super) fn time(self) -> &'static str {
        match self {
            Table::Execution => "start_time",
            Table::Status | Table::Event | Table::RunLog => "creation_time",
        }
    }
}

/// A value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    OptionalText(Option<String>),
    Int(i32),
    Bool(bool),
    Time(Option<String>),
}

/// Rows of one table, for one statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    table: Table,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Rows {
    /// Each row for itself.
    pub(super) fn apart(&self) -> impl Iterator<Item = Rows> {
        let alone =
            |row: &Vec<Value>| Rows { rows: vec![row.clone()], columns: self.columns.clone(), table: self.table };
        self.rows.iter().map(alone)
    }
}

/// A condition on rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    /// A column has this value.
    Equal(&'static str, String),
    /// A column of texts ends with this text, which has no special characters of `LIKE`.
    EndsWith(&'static str, String),
    /// `is_success` has this value.
    Succeeded(bool),
    /// `complete_time` has a value.
    Ended,
    /// `complete_time` has no value, or a later one.
    OpenAt(String),
    /// The table's time is later.
    After(String),
    /// The table's time is earlier.
    Before(String),
}

/// Rows of one table, in an order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selection {
    pub(super) table: Table,
    pub(super) filters: Vec<Filter>,
    pub(super) sort: &'static str,
    pub(super) descending: bool,
}

impl Selection {
    /// Returns `true` if the selection depends on the values of that column.
    pub(super) fn names(&self, column: &str) -> bool {
        self.filters.iter().any(|filter| matches!(filter, Filter::Equal(name, _) if *name == column))
    }
}

/// The rows of a batch of events. Begin and end of one execution become one row.
pub(super) fn rows(events: &[TraceEvent], has: Has, zone: &TimeZone) -> Vec<Rows> {
    let mut executions: BTreeMap<(Timestamp, Uuid), &Execution> = BTreeMap::new();
    let (mut statuses, mut records, mut logs) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            TraceEvent::Execution(execution) => {
                let latest = executions.entry((execution.start, execution.id)).or_insert(execution);
                if execution.end.is_some() {
                    *latest = execution;
                }
            }
            TraceEvent::Status(status) => statuses.push(status_row(status, has.source, zone)),
            TraceEvent::Job(record) if has.events => records.push(record_row(record, zone)),
            TraceEvent::Log(part) if has.logs => logs.push(log_row(part, zone)),
            TraceEvent::Job(_) | TraceEvent::Log(_) => {}
        }
    }
    let executions: Vec<Vec<Value>> = executions.into_values().map(|e| execution_row(e, zone)).collect();
    let mut columns = STATUS_COLUMNS.to_vec();
    if has.source {
        columns.insert(5, "source");
    }
    let tables = [
        // Before the ends of their runs: a reader of the end has then the whole log.
        (Table::RunLog, RUN_LOG_COLUMNS.to_vec(), logs),
        (Table::Execution, EXECUTION_COLUMNS.to_vec(), executions),
        (Table::Status, columns, statuses),
        (Table::Event, EVENT_COLUMNS.to_vec(), records),
    ];
    let mut found = Vec::new();
    for (table, columns, rows) in tables {
        let parts = rows.chunks(if table == Table::RunLog { LOG_ROWS_MAX } else { ROWS_MAX });
        found.extend(parts.map(|rows| Rows { table, columns: columns.clone(), rows: rows.to_vec() }));
    }
    found
}

/// What the tables of a database have beyond what every version of Java has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Has {
    /// Whether the status table has Java 3.0.4's column `source`.
    pub(super) source: bool,
    /// Whether there is a table for events.
    pub(super) events: bool,
    /// Whether there is a table for run logs.
    pub(super) logs: bool,
}

fn execution_row(execution: &Execution, zone: &TimeZone) -> Vec<Value> {
    let failure = execution.end.as_ref().and_then(|end| end.failure.clone());
    let succeeded = execution.end.as_ref().is_some_and(|end| end.failure.is_none());
    vec![
        Value::Text(execution.id.to_string()),
        Value::Text(execution.job.to_string()),
        Value::Text(shortened(&execution.task_id, TASK_ID_MAX)),
        Value::Text(shortened(&execution.hostname, 255)),
        Value::Text(execution.ip.to_string()),
        Value::Int(i32::try_from(execution.item).unwrap_or(i32::MAX)),
        Value::Text(execution.source.to_owned()),
        Value::OptionalText(failure),
        Value::Bool(succeeded),
        Value::Time(Some(time(execution.start, zone))),
        Value::Time(execution.end.as_ref().map(|end| time(end.at, zone))),
    ]
}

fn status_row(status: &Status, has_source: bool, zone: &TimeZone) -> Vec<Value> {
    let mut items = list(&status.items);
    if items.len() > ITEMS_MAX {
        items = format!("{}...", &items[..ITEMS_MAX - 3]);
    }
    let mut row = vec![
        Value::Text(status.id.to_string()),
        Value::Text(status.job.to_string()),
        Value::Text(String::new()),
        Value::Text(shortened(&status.task_id, TASK_ID_MAX)),
        Value::Text(status.ip.to_string()),
        Value::Text("READY".into()),
        Value::Text(items),
        Value::Text(status.state.word().into()),
        Value::OptionalText(Some(status.message.clone())),
        Value::Time(Some(time(status.at, zone))),
    ];
    if has_source {
        row.insert(5, Value::Text(SOURCE.into()));
    }
    row
}

fn record_row(record: &JobRecord, zone: &TimeZone) -> Vec<Value> {
    vec![
        Value::Text(record.id.to_string()),
        Value::Text(record.job.to_string()),
        Value::Text(shortened(&record.instance, 255)),
        Value::Text(record.level.to_owned()),
        Value::Text(record.kind.to_owned()),
        Value::OptionalText(record.items.clone()),
        Value::Time(record.first_due.map(|due| time(due, zone))),
        Value::Time(record.last_due.map(|due| time(due, zone))),
        Value::OptionalText(Some(record.message.clone())),
        Value::Time(Some(time(record.at, zone))),
    ]
}

fn log_row(part: &LogPart, zone: &TimeZone) -> Vec<Value> {
    let number = |number: u32| Value::Int(i32::try_from(number).unwrap_or(i32::MAX));
    vec![
        Value::Text(part.id.to_string()),
        Value::Text(part.execution.to_string()),
        Value::Text(part.job.to_string()),
        number(part.item),
        number(part.part),
        Value::Text(part.text.replace('\0', "\u{fffd}")),
        Value::Time(Some(time(part.at, zone))),
    ]
}

/// A moment as a clock in that zone shows it: the columns have no zone.
pub(super) fn time(at: Timestamp, zone: &TimeZone) -> String {
    let moment = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    moment.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S.%3f").to_string()
}

impl Dialect {
    /// Writes rows; if the row of an execution exists, only its end is written.
    pub(super) fn write(self, rows: &Rows) -> (String, Vec<Value>) {
        let mut sql = format!("INSERT INTO {} ({}) VALUES ", rows.table.name(), rows.columns.join(", "));
        let mut number = 0;
        for (index, row) in rows.rows.iter().enumerate() {
            sql.push_str(if index == 0 { "(" } else { ", (" });
            for (column, value) in row.iter().enumerate() {
                number += 1;
                sql.push_str(if column == 0 { "" } else { ", " });
                match (self, value) {
                    (Dialect::Postgres, Value::Time(_)) => sql.push_str(&format!("${number}::text::timestamp")),
                    (Dialect::Postgres, _) => sql.push_str(&format!("${number}")),
                    (Dialect::Sqlite | Dialect::Mysql, _) => sql.push('?'),
                }
            }
            sql.push(')');
        }
        sql.push_str(match (rows.table, self) {
            // A batch whose answer was lost comes again; a row that has its end keeps it.
            (Table::Execution, Dialect::Mysql) => {
                " ON DUPLICATE KEY UPDATE \
                 is_success = IF(VALUES(complete_time) IS NULL, is_success, VALUES(is_success)), \
                 failure_cause = IF(VALUES(complete_time) IS NULL, failure_cause, VALUES(failure_cause)), \
                 complete_time = IF(VALUES(complete_time) IS NULL, complete_time, VALUES(complete_time))"
            }
            (Table::Execution, Dialect::Postgres | Dialect::Sqlite) => {
                " ON CONFLICT (id) DO UPDATE SET is_success = excluded.is_success, \
                 failure_cause = excluded.failure_cause, complete_time = excluded.complete_time \
                 WHERE excluded.complete_time IS NOT NULL"
            }
            (Table::Status, Dialect::Mysql) => " ON DUPLICATE KEY UPDATE state = VALUES(state)",
            (Table::Event, Dialect::Mysql) => " ON DUPLICATE KEY UPDATE event = VALUES(event)",
            (Table::RunLog, Dialect::Mysql) => " ON DUPLICATE KEY UPDATE part = VALUES(part)",
            (Table::Status | Table::Event | Table::RunLog, Dialect::Postgres | Dialect::Sqlite) => {
                " ON CONFLICT (id) DO NOTHING"
            }
        });
        (sql, rows.rows.iter().flatten().cloned().collect())
    }

    /// A column of time as text.
    fn shown(self, time: &str) -> String {
        match self {
            Dialect::Postgres => format!("to_char({time}, 'YYYY-MM-DD HH24:MI:SS.US')"),
            Dialect::Sqlite => time.to_owned(),
            Dialect::Mysql => format!("DATE_FORMAT({time}, '%Y-%m-%d %H:%i:%s.%f')"),
        }
    }

    /// Asks for the latest executions of a job, which is bound first; then, when asked for, the time since when. Every column
    /// is a text.
    pub(super) fn history(self, since: bool, failed: bool, limit: u32) -> String {
        let (name, time) = (Table::Execution.name(), Table::Execution.time());
        let (job, moment) = match self {
            Dialect::Postgres => ("$1", "$2::text::timestamp"),
            Dialect::Sqlite | Dialect::Mysql => ("?", "?"),
        };
        let (text, flag) = (self.text(), self.success());
        let (start, end) = (self.shown("start_time"), self.shown("complete_time"));
        let since = if since { format!(" AND start_time >= {moment}") } else { String::new() };
        // A run without an end is not one that failed: it may be on its way.
        let failed = if failed { format!(" AND NOT ({flag}) AND complete_time IS NOT NULL") } else { String::new() };
        format!(
            "SELECT id, CAST(sharding_item AS {text}), execution_source, ip, hostname, task_id, {start}, {end}, \
             CASE WHEN {flag} THEN '1' ELSE '0' END, failure_cause \
             FROM {name} WHERE job_name = {job}{since}{failed} ORDER BY {time} DESC, sharding_item LIMIT {limit}"
        )
    }

    /// The place of a value in a statement, by its number, which begins at 1.
    fn place(self, number: usize) -> String {
        match self {
            Dialect::Postgres => format!("${number}"),
            Dialect::Sqlite | Dialect::Mysql => "?".to_owned(),
        }
    }

    /// The type of a text in a `CAST`.
    fn text(self) -> &'static str {
        match self {
            Dialect::Postgres | Dialect::Sqlite => "TEXT",
            Dialect::Mysql => "CHAR",
        }
    }

    /// The column `is_success` as a condition.
    fn success(self) -> &'static str {
        match self {
            Dialect::Postgres => "is_success",
            Dialect::Sqlite | Dialect::Mysql => "is_success <> 0",
        }
    }

    /// The conditions of a selection with their values.
    fn conditions(self, selection: &Selection) -> (String, Vec<Value>) {
        let (mut sql, mut values) = (String::new(), Vec::new());
        let column = selection.table.time();
        for filter in &selection.filters {
            let place = self.place(values.len() + 1);
            let moment = if self == Dialect::Postgres { format!("{place}::text::timestamp") } else { place.clone() };
            sql.push_str(if sql.is_empty() { " WHERE " } else { " AND " });
            match filter {
                Filter::Equal(column, value) => {
                    sql.push_str(&format!("{column} = {place}"));
                    let is_number = matches!(
                        (selection.table, *column),
                        (Table::Execution, "sharding_item") | (Table::RunLog, "item" | "part")
                    );
                    // What is no number is the value of no row.
                    let number = is_number.then(|| Value::Int(value.parse().unwrap_or(-1)));
                    values.push(number.unwrap_or_else(|| Value::Text(value.clone())));
                }
                Filter::EndsWith(column, end) => {
                    sql.push_str(&format!("{column} LIKE {place}"));
                    values.push(Value::Text(format!("%{end}")));
                }
                Filter::Succeeded(true) => sql.push_str(&format!("({})", self.success())),
                Filter::Succeeded(false) => sql.push_str(&format!("NOT ({})", self.success())),
                Filter::Ended => sql.push_str("complete_time IS NOT NULL"),
                Filter::OpenAt(time) => {
                    sql.push_str(&format!("(complete_time IS NULL OR complete_time > {moment})"));
                    values.push(Value::Time(Some(time.clone())));
                }
                Filter::After(time) => {
                    sql.push_str(&format!("{column} > {moment}"));
                    values.push(Value::Time(Some(time.clone())));
                }
                Filter::Before(time) => {
                    sql.push_str(&format!("{column} < {moment}"));
                    values.push(Value::Time(Some(time.clone())));
                }
            }
        }
        (sql, values)
    }

    /// Asks for the number of rows of a selection, as a text.
    pub(super) fn count(self, selection: &Selection) -> (String, Vec<Value>) {
        let (conditions, values) = self.conditions(selection);
        (format!("SELECT CAST(COUNT(*) AS {}) FROM {}{conditions}", self.text(), selection.table.name()), values)
    }

    /// Asks for rows of a selection; gives also the number of their columns. Every column is a text. The columns are those of the
    /// table, with `source` after `slave_id`: empty if the table does not have it.
    pub(super) fn page(
        self,
        selection: &Selection,
        has_source: bool,
        offset: u64,
        limit: u64,
    ) -> (String, Vec<Value>, usize) {
        let mut columns = match selection.table {
            Table::Execution => EXECUTION_COLUMNS.to_vec(),
            Table::Status => STATUS_COLUMNS.to_vec(),
            Table::Event => EVENT_COLUMNS.to_vec(),
            Table::RunLog => RUN_LOG_COLUMNS.to_vec(),
        };
        if selection.table == Table::Status {
            columns.insert(5, "source");
        }
        let (text, success) = (self.text(), self.success());
        let shown = |column: &&str| match *column {
            "start_time" | "complete_time" | "creation_time" | "first_due" | "last_due" => self.shown(column),
            "is_success" => format!("CASE WHEN {success} THEN '1' ELSE '0' END"),
            "source" if !has_source => format!("CAST(NULL AS {text})"),
            "text" => (*column).to_owned(),
            _ => format!("CAST({column} AS {text})"),
        };
        let shown = columns.iter().map(shown).collect::<Vec<_>>().join(", ");
        let (conditions, values) = self.conditions(selection);
        let (name, direction) = (selection.table.name(), if selection.descending { "DESC" } else { "ASC" });
        let sort = if selection.sort == "source" && !has_source { "id" } else { selection.sort };
        // Rows with the same value keep their order from page to page.
        let order = format!("{sort} {direction}, id {direction}");
        let sql = format!("SELECT {shown} FROM {name}{conditions} ORDER BY {order} LIMIT {limit} OFFSET {offset}");
        (sql, values, columns.len())
    }

    /// Asks for the distinct values of a column of texts.
    pub(super) fn distinct(self, table: Table, column: &str, pattern: &str) -> (String, Vec<Value>) {
        let (name, text, place) = (table.name(), self.text(), self.place(1));
        let sql = format!("SELECT DISTINCT CAST({column} AS {text}) FROM {name} WHERE {column} LIKE {place}");
        (sql, vec![Value::Text(pattern.to_owned())])
    }

    /// Asks for the time of the row that so many are newer than; nothing when there are not so many.
    pub(super) fn time_of_row(self, table: Table, rows: u64) -> String {
        let (name, time) = (table.name(), table.time());
        let text = self.shown(time);
        format!("SELECT {text} FROM {name} WHERE {time} IS NOT NULL ORDER BY {time} DESC LIMIT 1 OFFSET {rows}")
    }

    /// Deletes rows that are older than the time that is bound, so many at the most.
    pub(super) fn delete(self, table: Table, rows: u64) -> String {
        let (name, time) = (table.name(), table.time());
        match self {
            Dialect::Postgres => format!(
                "DELETE FROM {name} WHERE ctid IN \
                 (SELECT ctid FROM {name} WHERE {time} < $1::text::timestamp LIMIT {rows})"
            ),
            Dialect::Sqlite => {
                format!("DELETE FROM {name} WHERE rowid IN (SELECT rowid FROM {name} WHERE {time} < ? LIMIT {rows})")
            }
            Dialect::Mysql => format!("DELETE FROM {name} WHERE {time} < ? LIMIT {rows}"),
        }
    }

    /// Asks for the names of a table's columns; none when it is not there.
    pub(super) fn columns(self, table: Table) -> String {
        let name = table.name();
        match self {
            Dialect::Sqlite => format!("SELECT name FROM pragma_table_info('{name}')"),
            Dialect::Postgres => format!(
                "SELECT column_name::text FROM information_schema.columns \
                 WHERE table_schema = ANY (current_schemas(false)) AND lower(table_name) = lower('{name}')"
            ),
            Dialect::Mysql => format!(
                "SELECT CAST(column_name AS CHAR) FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND table_name = '{name}'"
            ),
        }
    }

    /// Creates a table with its index.
    pub(super) fn create(self, table: Table) -> Vec<String> {
        let (int, flag) = match self {
            Dialect::Postgres => ("INT", "BOOLEAN"),
            Dialect::Sqlite | Dialect::Mysql => ("INT", "INT"),
        };
        // Java's tables in MySQL have whole seconds.
        let moment = if self == Dialect::Mysql { "TIMESTAMP(3)" } else { "TIMESTAMP" };
        let lines = if self == Dialect::Mysql { "MEDIUMTEXT" } else { "TEXT" };
        let columns = match table {
            Table::Execution => format!(
                "id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL, task_id VARCHAR(255) NOT NULL, \
                 hostname VARCHAR(255) NOT NULL, ip VARCHAR(50) NOT NULL, sharding_item {int} NOT NULL, \
                 execution_source VARCHAR(20) NOT NULL, failure_cause VARCHAR(4000) NULL, is_success {flag} NOT NULL, \
                 start_time TIMESTAMP NULL, complete_time TIMESTAMP NULL"
            ),
            // Java 3.0.4 writes `source` and 3.0.5 does not: both must be able to insert.
            Table::Status => format!(
                "id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL, original_task_id VARCHAR(255) NOT NULL, \
                 task_id VARCHAR(255) NOT NULL, slave_id VARCHAR(50) NOT NULL, \
                 source VARCHAR(50) NULL DEFAULT '{SOURCE}', execution_type VARCHAR(20) NOT NULL, \
                 sharding_item VARCHAR(100) NOT NULL, state VARCHAR(20) NOT NULL, message VARCHAR(4000) NULL, \
                 creation_time TIMESTAMP NULL"
            ),
            Table::Event => format!(
                "id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL, instance VARCHAR(255) NOT NULL, \
                 level VARCHAR(10) NOT NULL, event VARCHAR(40) NOT NULL, items VARCHAR(4000) NULL, \
                 first_due {moment} NULL, last_due {moment} NULL, message VARCHAR(4000) NULL, creation_time {moment} NULL"
            ),
            Table::RunLog => format!(
                "id VARCHAR(40) NOT NULL, execution_id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL, item INT NOT NULL, \
                 part INT NOT NULL, text {lines} NOT NULL, creation_time {moment} NULL"
            ),
        };
        let name = table.name();
        let mut statements = vec![match self {
            Dialect::Sqlite | Dialect::Postgres => {
                format!("CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY (id))")
            }
            // Java's statement: a number of the row as its key. Failures may be reported in any language.
            Dialect::Mysql => {
                let unique = if table == Table::Status { "" } else { ", UNIQUE KEY id (id)" };
                format!(
                    "CREATE TABLE IF NOT EXISTS {name} (auto_id INT NOT NULL AUTO_INCREMENT, {columns}, \
                     PRIMARY KEY (auto_id){unique}) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"
                )
            }
        }];
        let index = |on: &str| format!("INDEX TASK_ID_STATE_INDEX ON {name} ({on})");
        match (self, table) {
            (Dialect::Mysql, Table::Status) => statements.push(format!("CREATE {}", index("task_id(128), state"))),
            (Dialect::Postgres, Table::Status) => statements.push(format!("CREATE {}", index("task_id, state"))),
            (Dialect::Sqlite, Table::Status) => statements.push(format!("CREATE {}", index("task_id, state"))),
            // In databases that Java shares, the tables are as Java creates them.
            (Dialect::Sqlite, Table::Execution) => {
                statements.push(format!("CREATE INDEX JOB_EXECUTION_TIME_INDEX ON {name} (job_name, start_time)"));
            }
            (_, Table::Execution) => {}
            (_, Table::RunLog) => {
                statements.push(format!("CREATE INDEX JOB_RUN_LOG_RUN_INDEX ON {name} (execution_id, part)"));
                statements.push(format!("CREATE INDEX JOB_RUN_LOG_TIME_INDEX ON {name} (job_name, creation_time)"));
            }
            (_, Table::Event) => {
                statements.push(format!("CREATE INDEX JOB_EVENT_TIME_INDEX ON {name} (job_name, creation_time)"));
            }
        }
        statements
    }
}

#[cfg(test)]
mod tests;
