//! Deleting what is old.

use std::time::Duration;

use elasticjob_core::time::Timestamp;
use jiff::tz::TimeZone;

use super::connection::{Connection, Trouble};
use super::dialect::{self, Dialect, Table, Value};
use crate::trace::Retention;

/// How often it is looked for, and how long that may take.
pub(super) const INTERVAL: Duration = Duration::from_secs(600);
pub(super) const CLEAN_MAX: Duration = Duration::from_secs(30);
/// Rows that are deleted at one time.
const PORTION: u64 = 5_000;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keep {
    age: Option<Duration>,
    rows: Option<u64>,
    /// The same of run logs, which take more space.
    run_logs: (Option<Duration>, Option<u64>),
}

impl Keep {
    /// Rows of tables that Java may share are kept unless the file sets a retention.
    pub(super) fn of(retention: Retention, dialect: Dialect) -> Keep {
        // A setting for rows of a few hundred bytes is not meant for rows of sixteen thousand.
        let (days, rows) = (DAY * 7, 100_000);
        let run_logs = match retention {
            Retention::Limited { age, rows: most } => (age.unwrap_or(days).min(days), most.unwrap_or(rows).min(rows)),
            Retention::Default => (days, rows),
        };
        let run_logs = (Some(run_logs.0), Some(run_logs.1));
        match (retention, dialect) {
            (Retention::Limited { age, rows }, _) => Keep { age, rows, run_logs },
            (Retention::Default, Dialect::Sqlite) => Keep { age: Some(DAY * 30), rows: Some(1_000_000), run_logs },
            (Retention::Default, Dialect::Postgres | Dialect::Mysql) => Keep { age: None, rows: None, run_logs },
        }
    }
}

/// Deletes what is older, and the oldest of what is too much, in portions.
pub(super) async fn clean(
    connection: &mut Connection,
    keep: Keep,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<(), Trouble> {
    for table in [Table::Execution, Table::Status, Table::Event, Table::RunLog] {
        let is_of_java = matches!(table, Table::Execution | Table::Status);
        if !is_of_java && connection.texts(connection.dialect().columns(table)).await?.is_empty() {
            continue; // it could not be created
        }
        let (age, rows) = if table == Table::RunLog { keep.run_logs } else { (keep.age, keep.rows) };
        if let Some(age) = age {
            let oldest = Timestamp(now.0 - i64::try_from(age.as_millis()).unwrap_or(i64::MAX).min(now.0));
            delete(connection, table, dialect::time(oldest, zone)).await?;
        }
        if let Some(rows) = rows
            && let Some(oldest) = connection.texts(connection.dialect().time_of_row(table, rows)).await?.pop()
        {
            delete(connection, table, oldest).await?;
        }
    }
    Ok(())
}

async fn delete(connection: &mut Connection, table: Table, before: String) -> Result<(), Trouble> {
    loop {
        let sql = connection.dialect().delete(table, PORTION);
        let deleted = connection.execute(sql, &[Value::Time(Some(before.clone()))]).await?;
        if deleted < PORTION {
            return Ok(());
        }
    }
}
