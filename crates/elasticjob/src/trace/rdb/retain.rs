//! Deleting what is old.

use std::time::Duration;

use elasticjob_core::time::Timestamp;

use super::connection::{Connection, Trouble};
use super::dialect::{self, Dialect, Table, Value};
use crate::trace::Retention;

/// How often it is looked for.
pub(super) const INTERVAL: Duration = Duration::from_secs(600);

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keep {
    age: Option<Duration>,
    rows: Option<u64>,
}

impl Keep {
    /// Tables that Java may share are left alone unless somebody asks.
    pub(super) fn of(retention: Retention, dialect: Dialect) -> Keep {
        match (retention, dialect) {
            (Retention::Limited { age, rows }, _) => Keep { age, rows },
            (Retention::Default, Dialect::Sqlite) => Keep { age: Some(DAY * 30), rows: Some(1_000_000) },
            (Retention::Default, Dialect::Postgres | Dialect::Mysql) => Keep { age: None, rows: None },
        }
    }
}

/// Deletes what is older, and the oldest of what is too much.
pub(super) async fn clean(connection: &mut Connection, keep: Keep, now: Timestamp) -> Result<(), Trouble> {
    for table in [Table::Execution, Table::Status] {
        if let Some(age) = keep.age {
            let oldest = Timestamp(now.0 - i64::try_from(age.as_millis()).unwrap_or(i64::MAX).min(now.0));
            delete(connection, table, dialect::time(oldest)).await?;
        }
        if let Some(rows) = keep.rows {
            let (name, time) = (table.name(), table.time());
            let text = match connection.dialect() {
                Dialect::Postgres => format!("to_char({time}, 'YYYY-MM-DD HH24:MI:SS.US')"),
                Dialect::Sqlite => time.to_owned(),
                Dialect::Mysql => format!("DATE_FORMAT({time}, '%Y-%m-%d %H:%i:%s.%f')"),
            };
            let sql = format!(
                "SELECT {text} FROM {name} WHERE {time} IS NOT NULL ORDER BY {time} DESC LIMIT 1 OFFSET {rows}"
            );
            if let Some(beyond) = connection.texts(sql).await?.pop() {
                delete(connection, table, beyond).await?;
            }
        }
    }
    Ok(())
}

async fn delete(connection: &mut Connection, table: Table, before: String) -> Result<(), Trouble> {
    let value = match connection.dialect() {
        Dialect::Postgres => "$1::text::timestamp",
        Dialect::Sqlite | Dialect::Mysql => "?",
    };
    let sql = format!("DELETE FROM {} WHERE {} < {value}", table.name(), table.time());
    connection.execute(sql, &[Value::Time(Some(before))]).await
}
