//! One connection to one of the three databases.

use std::fmt;

use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

use super::address::{Address, Options};
use super::dialect::{Dialect, Value};
use crate::web::chain;

/// Why a statement was not carried out.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Its values cannot be stored, now or ever.
    Refused(String),
    /// The database does not answer, or does not work.
    Away(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused(reason) | Trouble::Away(reason) => f.write_str(reason),
        }
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Trouble {
        let code = error.as_database_error().and_then(|e| e.code()).unwrap_or_default();
        let class: String = code.chars().take(2).collect();
        // SQLSTATE classes 22 (data) and 23 (constraints); SQLite: 18 too big, 19 constraint, 20 mismatch.
        let refused = match code.len() {
            5 => class == "22" || class == "23",
            _ => matches!(code.parse().map(|c: u32| c & 0xff), Ok(18..=20)),
        };
        if refused { Trouble::Refused(chain(&error)) } else { Trouble::Away(chain(&error)) }
    }
}

pub(super) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

/// A statement with its values.
macro_rules! statement {
    ($sql:expr, $values:expr) => {{
        // The text is ours (`dialect.rs`); what comes from outside is bound.
        let mut query = sqlx::query(AssertSqlSafe($sql));
        for value in $values {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::OptionalText(text) | Value::Time(text) => query.bind(text),
                Value::Int(int) => query.bind(int),
                Value::Bool(bool) => query.bind(bool),
            };
        }
        query
    }};
}

impl Connection {
    pub(super) async fn open(address: &Address) -> Result<Connection, Trouble> {
        Ok(match &address.options {
            Options::Sqlite(options) => {
                Connection::Sqlite(options.clone().disable_statement_logging().connect().await?)
            }
            Options::Postgres(options) => {
                Connection::Postgres(options.clone().disable_statement_logging().connect().await?)
            }
            Options::Mysql(options) => Connection::Mysql(options.clone().disable_statement_logging().connect().await?),
        })
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Connection::Sqlite(_) => Dialect::Sqlite,
            Connection::Postgres(_) => Dialect::Postgres,
            Connection::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Carries one statement out. One without values goes as plain text, since not every statement can be prepared.
    pub(super) async fn execute(&mut self, sql: String, values: &[Value]) -> Result<(), Trouble> {
        if values.is_empty() {
            let sql = sqlx::raw_sql(AssertSqlSafe(sql));
            match self {
                Connection::Sqlite(connection) => connection.execute(sql).await.map(|_| ())?,
                Connection::Postgres(connection) => connection.execute(sql).await.map(|_| ())?,
                Connection::Mysql(connection) => connection.execute(sql).await.map(|_| ())?,
            }
            return Ok(());
        }
        match self {
            Connection::Sqlite(connection) => statement!(sql, values).execute(connection).await.map(|_| ())?,
            Connection::Postgres(connection) => statement!(sql, values).execute(connection).await.map(|_| ())?,
            Connection::Mysql(connection) => statement!(sql, values).execute(connection).await.map(|_| ())?,
        }
        Ok(())
    }

    /// The first column of every row, as text.
    pub(super) async fn texts(&mut self, sql: String) -> Result<Vec<String>, Trouble> {
        let sql = AssertSqlSafe(sql);
        let first = |row: Result<String, sqlx::Error>| row.map_err(Trouble::from);
        match self {
            Connection::Sqlite(connection) => {
                let rows = connection.fetch_all(sqlx::query(sql)).await?;
                rows.iter().map(|row| first(row.try_get(0))).collect()
            }
            Connection::Postgres(connection) => {
                let rows = connection.fetch_all(sqlx::query(sql)).await?;
                rows.iter().map(|row| first(row.try_get(0))).collect()
            }
            Connection::Mysql(connection) => {
                let rows = connection.fetch_all(sqlx::query(sql)).await?;
                rows.iter().map(|row| first(row.try_get(0))).collect()
            }
        }
    }
}
