//! `RDB`: the trace in a database, in the tables of Java's `elasticjob-tracing-rdb`. Only this folder knows SQL.

mod address;
mod connection;
mod dialect;
mod history;
mod ledger;
mod retain;
mod search;

use std::time::Duration;

use elasticjob_core::time::Timestamp;
use jiff::tz::TimeZone;

use super::{DataSource, Retention, TraceError, TraceEvent, TraceSink, TraceStorage};
use crate::clock;
use address::Address;
use connection::{Connection, Trouble};
use dialect::{Dialect, Has, Rows, Table};
pub(crate) use history::history;
pub use history::{History, HistoryEntry, HistoryQuery};
#[doc(hidden)]
pub use ledger::DueLedger;
#[doc(hidden)]
pub use search::{EventRow, ExecutionRow, RunLogRow, StatusRow, TracePage, TraceQuery, TraceReader, TraceTable};

/// Longest wait for a connection, and for one batch.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const BATCH_MAX: Duration = Duration::from_secs(60);

/// The storage `RDB` (Java: `RDBTracingListenerConfiguration`): SQLite, PostgreSQL, MySQL and MariaDB.
///
/// The tables JOB_EXECUTION_LOG and JOB_STATUS_TRACE_LOG are created when they are missing, with Java's columns; of tables
/// that are there the list of columns is read, since Java's generations differ in one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rdb;

impl TraceStorage for Rdb {
    type Sink = Sink;

    fn name(&self) -> &str {
        "RDB"
    }

    fn open(&self, source: &DataSource, retention: Retention) -> Result<Sink, String> {
        let address = Address::parse(source)?;
        let keep = retain::Keep::of(retention, address.dialect());
        Ok(Sink { address, open: None, keep, cleaned: Timestamp(0) })
    }
}

pub(crate) struct Sink {
    address: Address,
    open: Option<Open>,
    keep: retain::Keep,
    cleaned: Timestamp,
}

/// A connection, and the columns of its tables.
struct Open {
    connection: Connection,
    has: Has,
}

impl TraceSink for Sink {
    async fn write(&mut self, events: &[TraceEvent]) -> Result<(), TraceError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let opened = clock::within(CONNECT_MAX, Open::new(&self.address)).await;
                opened.unwrap_or_else(|| Err(away(format!("no connection within {CONNECT_MAX:?}"))))?
            }
        };
        let written = clock::within(BATCH_MAX, open.write(events, &self.address.zone)).await;
        let written = written.unwrap_or_else(|| Err(away(format!("no answer within {BATCH_MAX:?}"))));
        if matches!(written, Err(TraceError::Away(_))) {
            return written; // a connection that has failed is not used again
        }
        let now = clock::now();
        if now.since(self.cleaned) < retain::INTERVAL {
            self.open = Some(open);
            return written;
        }
        self.cleaned = now;
        let cleaning = retain::clean(&mut open.connection, self.keep, now, &self.address.zone);
        match clock::within(retain::CLEAN_MAX, cleaning).await {
            Some(Ok(())) => self.open = Some(open),
            Some(Err(error)) => {
                tracing::error!("cannot delete old rows of the event trace in {}: {error}", self.address);
            }
            // What was deleted until now is; the rest comes next time.
            None => tracing::warn!(
                "deleting old rows of the event trace in {} takes too long; continuing later",
                self.address
            ),
        }
        written
    }

    fn describe(&self) -> String {
        self.address.to_string()
    }
}

fn away(reason: impl ToString) -> TraceError {
    TraceError::Away(reason.to_string())
}

impl Open {
    async fn new(address: &Address) -> Result<Open, TraceError> {
        address.check_trust().map_err(away)?;
        address.create_private();
        let mut connection = Connection::open(address).await.map_err(away)?;
        let dialect = connection.dialect();
        for table in [Table::Execution, Table::Status] {
            let columns = connection.texts(dialect.columns(table)).await.map_err(away)?;
            if columns.is_empty() {
                create(&mut connection, table).await?;
            }
        }
        let columns = connection.texts(dialect.columns(Table::Status)).await.map_err(away)?;
        let source = columns.iter().any(|column| column.eq_ignore_ascii_case("source"));
        let consequence = "events of jobs are not recorded, so `job ledger` cannot tell why items did not start";
        let events = may_create(&mut connection, Table::Event, address, consequence).await?;
        let logs = may_create(&mut connection, Table::RunLog, address, "run logs are not recorded").await?;
        Ok(Open { connection, has: Has { source, events, logs } })
    }

    async fn write(&mut self, events: &[TraceEvent], zone: &TimeZone) -> Result<(), TraceError> {
        let batches = dialect::rows(events, self.has, zone);
        match self.write_together(&batches).await {
            Ok(()) => Ok(()),
            Err(Trouble::Away(reason)) => Err(away(reason)),
            Err(Trouble::Refused(_)) => self.write_apart(&batches).await,
        }
    }

    async fn write_together(&mut self, batches: &[Rows]) -> Result<(), Trouble> {
        self.does("BEGIN").await?;
        let written = async {
            for rows in batches {
                let (sql, values) = self.connection.dialect().write(rows);
                self.connection.execute(sql, &values).await?;
            }
            self.does("COMMIT").await
        };
        let written = written.await;
        if matches!(written, Err(Trouble::Refused(_))) {
            self.does("ROLLBACK").await?;
        }
        written
    }

    async fn does(&mut self, statement: &str) -> Result<(), Trouble> {
        self.connection.execute(statement.to_owned(), &[]).await.map(drop)
    }

    /// Row by row, since one that cannot be written must not take the others with it; still in one transaction.
    async fn write_apart(&mut self, batches: &[Rows]) -> Result<(), TraceError> {
        let (mut refused, mut first) = (0, None);
        self.does("BEGIN").await.map_err(away)?;
        for row in batches.iter().flat_map(Rows::apart) {
            let (sql, values) = self.connection.dialect().write(&row);
            self.does("SAVEPOINT one_row").await.map_err(away)?;
            match self.connection.execute(sql, &values).await {
                Ok(_) => self.does("RELEASE SAVEPOINT one_row").await.map_err(away)?,
                Err(Trouble::Refused(reason)) => {
                    refused += 1;
                    first.get_or_insert(reason);
                    self.does("ROLLBACK TO SAVEPOINT one_row").await.map_err(away)?;
                }
                Err(Trouble::Away(reason)) => return Err(away(reason)),
            }
        }
        self.does("COMMIT").await.map_err(away)?;
        first.map_or(Ok(()), |reason| Err(TraceError::Refused { events: refused, reason }))
    }
}

/// Whether a table that Java does not have exists, or was created. Java's tables may be shared with a user who must not create
/// others.
async fn may_create(
    connection: &mut Connection,
    table: Table,
    address: &Address,
    consequence: &str,
) -> Result<bool, TraceError> {
    if !connection.texts(connection.dialect().columns(table)).await.map_err(away)?.is_empty() {
        return Ok(true);
    }
    let created = create(connection, table).await;
    if let Err(error) = &created {
        tracing::warn!("{address}: {error}; {consequence}");
    }
    Ok(created.is_ok())
}

/// Creates a table. Another instance may do the same at the same moment: the call succeeds if the table then exists.
async fn create(connection: &mut Connection, table: Table) -> Result<(), TraceError> {
    let dialect = connection.dialect();
    for sql in dialect.create(table) {
        if let Err(error) = connection.execute(sql, &[]).await {
            let columns = connection.texts(dialect.columns(table)).await.map_err(away)?;
            if columns.is_empty() {
                return Err(away(format!("table {} cannot be created: {error}", table.name())));
            }
            tracing::debug!(
                "cannot create {} or its indexes, but the table exists now; continuing: {error}",
                table.name()
            );
        }
    }
    Ok(())
}

/// The databases, for the check of a file: the fault of a data source, if any.
///
/// # Errors
///
/// The address is not one of a database that is supported.
pub fn check(source: &DataSource) -> Result<(), String> {
    Address::parse(source).map(drop)
}
