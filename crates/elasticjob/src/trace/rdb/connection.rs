//! One connection to one of the three databases.

use std::fmt;

#[cfg(feature = "rdb-mysql")]
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
#[cfg(feature = "rdb-postgres")]
use sqlx::postgres::PgConnection;
#[cfg(feature = "rdb-sqlite")]
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

use super::address::{Address, Options};
use super::dialect::{Dialect, Value};
use crate::contract::error_text;

/// Why a statement failed.
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

/// Errors of MySQL that are about a value; their SQLSTATE is the general one: null, out of range, cut, wrong characters,
/// no default, too long.
const MYSQL_VALUES: [u16; 9] = [1048, 1264, 1265, 1292, 1364, 1366, 1406, 1690, 3988];

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Trouble {
        let database = error.as_database_error();
        let code = database.and_then(|e| e.code()).unwrap_or_default();
        #[cfg(feature = "rdb-mysql")]
        let mysql = database.and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>()).map(MySqlDatabaseError::number);
        #[cfg(not(feature = "rdb-mysql"))]
        let mysql: Option<u16> = None;
        // SQLSTATE classes 22 (data) and 23 (constraints); SQLite: 18 too big, 19 constraint, 20 mismatch.
        let refused = match code.len() {
            5 => code.starts_with("22") || code.starts_with("23") || mysql.is_some_and(|n| MYSQL_VALUES.contains(&n)),
            _ => matches!(code.parse().map(|c: u32| c & 0xff), Ok(18..=20)),
        };
        if refused { Trouble::Refused(error_text(&error)) } else { Trouble::Away(error_text(&error)) }
    }
}

/// A connection to a database.
pub(super) enum Connection {
    #[cfg(feature = "rdb-sqlite")]
    Sqlite(SqliteConnection),
    #[cfg(feature = "rdb-postgres")]
    Postgres(PgConnection),
    #[cfg(feature = "rdb-mysql")]
    Mysql(MySqlConnection),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.dialect()).finish()
    }
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
            #[cfg(feature = "rdb-sqlite")]
            Options::Sqlite(options) => {
                let mut connection = options.clone().disable_statement_logging().connect().await?;
                // SQLite opens the file, and those beside it, with the first statement.
                connection.execute("SELECT COUNT(*) FROM sqlite_master").await?;
                Connection::Sqlite(connection)
            }
            #[cfg(feature = "rdb-postgres")]
            Options::Postgres(options) => {
                Connection::Postgres(options.clone().disable_statement_logging().connect().await?)
            }
            #[cfg(feature = "rdb-mysql")]
            Options::Mysql(options) => Connection::Mysql(options.clone().disable_statement_logging().connect().await?),
        })
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            #[cfg(feature = "rdb-sqlite")]
            Connection::Sqlite(_) => Dialect::Sqlite,
            #[cfg(feature = "rdb-postgres")]
            Connection::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "rdb-mysql")]
            Connection::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Carries one statement out; gives how many rows it touched. One without values goes as plain text, since not every
    /// statement can be prepared.
    pub(super) async fn execute(&mut self, sql: String, values: &[Value]) -> Result<u64, Trouble> {
        if values.is_empty() {
            let sql = sqlx::raw_sql(AssertSqlSafe(sql));
            return Ok(match self {
                #[cfg(feature = "rdb-sqlite")]
                Connection::Sqlite(connection) => connection.execute(sql).await?.rows_affected(),
                #[cfg(feature = "rdb-postgres")]
                Connection::Postgres(connection) => connection.execute(sql).await?.rows_affected(),
                #[cfg(feature = "rdb-mysql")]
                Connection::Mysql(connection) => connection.execute(sql).await?.rows_affected(),
            });
        }
        Ok(match self {
            #[cfg(feature = "rdb-sqlite")]
            Connection::Sqlite(connection) => statement!(sql, values).execute(connection).await?.rows_affected(),
            #[cfg(feature = "rdb-postgres")]
            Connection::Postgres(connection) => statement!(sql, values).execute(connection).await?.rows_affected(),
            #[cfg(feature = "rdb-mysql")]
            Connection::Mysql(connection) => statement!(sql, values).execute(connection).await?.rows_affected(),
        })
    }

    /// The first column of every row, as text.
    pub(super) async fn texts(&mut self, sql: String) -> Result<Vec<String>, Trouble> {
        let sql = AssertSqlSafe(sql);
        let first = |row: Result<String, sqlx::Error>| row.map_err(Trouble::from);
        match self {
            #[cfg(feature = "rdb-sqlite")]
            Connection::Sqlite(connection) => {
                let rows = connection.fetch_all(sqlx::query(sql)).await?;
                rows.iter().map(|row| first(row.try_get(0))).collect()
            }
            #[cfg(feature = "rdb-postgres")]
            Connection::Postgres(connection) => {
                let rows = connection.fetch_all(sqlx::query(sql)).await?;
                rows.iter().map(|row| first(row.try_get(0))).collect()
            }
            #[cfg(feature = "rdb-mysql")]
            Connection::Mysql(connection) => {
                let rows = connection.fetch_all(sqlx::query(sql)).await?;
                rows.iter().map(|row| first(row.try_get(0))).collect()
            }
        }
    }

    /// Every row of a query, so many columns of it, as texts.
    pub(super) async fn rows(
        &mut self,
        sql: String,
        values: &[Value],
        columns: usize,
    ) -> Result<Vec<Vec<Option<String>>>, Trouble> {
        fn texts<R: Row>(rows: &[R], columns: usize) -> Result<Vec<Vec<Option<String>>>, Trouble>
        where
            usize: sqlx::ColumnIndex<R>,
            for<'r> Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
        {
            let row = |row: &R| (0..columns).map(|column| row.try_get(column).map_err(Trouble::from)).collect();
            rows.iter().map(row).collect()
        }
        match self {
            #[cfg(feature = "rdb-sqlite")]
            Connection::Sqlite(connection) => texts(&statement!(sql, values).fetch_all(connection).await?, columns),
            #[cfg(feature = "rdb-postgres")]
            Connection::Postgres(connection) => texts(&statement!(sql, values).fetch_all(connection).await?, columns),
            #[cfg(feature = "rdb-mysql")]
            Connection::Mysql(connection) => texts(&statement!(sql, values).fetch_all(connection).await?, columns),
        }
    }
}
