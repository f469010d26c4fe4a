//! Real databases: PostgreSQL and MariaDB, each with its data in a temporary folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Row};

use crate::process::Process;
use crate::wait::eventually;
use crate::zookeeper::free_port;

const PATIENCE: Duration = Duration::from_secs(60);
/// The user of the databases, and the database's name.
pub const USER: &str = "tracer";
/// Its password; not one that could stand in an address as it is.
pub const PASSWORD: &str = "p@ss/w:rd";

/// A database of one of the two kinds.
pub struct Database {
    kind: Kind,
    port: u16,
    folder: tempfile::TempDir,
    process: Option<Process>,
    runtime: tokio::runtime::Runtime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Postgres,
    Mariadb,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.kind, self.port)
    }
}

/// Whether this process is root. PostgreSQL refuses to run as root, and only root can act as another user.
pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    id.stdout == b"0\n"
}

fn must(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program of PostgreSQL, as a user that it accepts.
fn postgres(program: &str) -> Command {
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL").flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let program = versions.last().expect("a version").join("bin").join(program);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

impl Database {
    /// PostgreSQL, empty.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn postgres() -> Database {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, password) = (folder.path().join("data"), folder.path().join("password"));
        std::fs::create_dir(&data).expect("a folder");
        std::fs::write(&password, PASSWORD).expect("a file");
        if is_root() {
            must(Command::new("chown").arg("-R").arg("postgres").arg(folder.path()));
        }
        let mut init = postgres("initdb");
        init.arg("-D").arg(&data).args([
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]);
        must(init.current_dir("/").arg(format!("--pwfile={}", password.display())));
        let mut database = Database::new(Kind::Postgres, folder);
        database.restart();
        database.eventually_runs("CREATE DATABASE trace", "postgres");
        database
    }

    /// MariaDB, empty.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn mariadb() -> Database {
        let folder = tempfile::tempdir().expect("a folder");
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        must(install.arg(format!("--datadir={}", folder.path().join("data").display())).args(as_root()));
        let mut database = Database::new(Kind::Mariadb, folder);
        database.restart();
        database.eventually_runs("CREATE DATABASE trace", "mysql");
        for host in ["127.0.0.1", "localhost"] {
            let user = format!("'{USER}'@'{host}'");
            database.eventually_runs(&format!("CREATE USER {user} IDENTIFIED BY '{PASSWORD}'"), "mysql");
            database.eventually_runs(&format!("GRANT ALL ON *.* TO {user}"), "mysql");
        }
        database
    }

    fn new(kind: Kind, folder: tempfile::TempDir) -> Database {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Database { kind, port: free_port(), folder, process: None, runtime }
    }

    /// Starts it again, with its data.
    pub fn restart(&mut self) {
        let data = self.folder.path().join("data");
        let command = match self.kind {
            Kind::Postgres => {
                let mut command = postgres("postgres");
                command.arg("-D").arg(&data).arg("-k").arg(self.folder.path()).current_dir("/");
                command.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-p", &self.port.to_string()]);
                command
            }
            Kind::Mariadb => {
                let mut command = Command::new("/usr/sbin/mariadbd");
                command.args(["--no-defaults", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"]);
                command.arg(format!("--datadir={}", data.display())).arg(format!("--port={}", self.port));
                command.arg(format!("--socket={}", self.folder.path().join("socket").display())).args(as_root());
                command
            }
        };
        self.process = Some(Process::start(command, &self.folder.path().join("log")));
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process = None;
        // What PostgreSQL's first process has started ends by itself when it sees that one gone.
        if self.kind == Kind::Postgres {
            let _ = std::fs::remove_file(self.folder.path().join("data/postmaster.pid"));
        }
    }

    fn eventually_runs(&self, sql: &str, name: &str) {
        eventually(&format!("the database does `{sql}`"), PATIENCE, || self.run(sql, name).ok());
    }

    /// Its address, as the agent takes it; user and password stand beside it.
    pub fn url(&self) -> String {
        self.url_of("trace")
    }

    fn url_of(&self, name: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://127.0.0.1:{}/{name}", self.port),
            Kind::Mariadb => format!("mysql://127.0.0.1:{}/{name}", self.port),
        }
    }

    /// The part `tracing:` of a file for an agent, ours or Java's.
    pub fn tracing(&self) -> String {
        format!(
            "  tracing:\n    type: RDB\n    dataSource:\n      url: {}\n      username: {USER}\n      password: '{PASSWORD}'\n",
            self.url()
        )
    }

    /// Carries a statement out.
    ///
    /// # Errors
    ///
    /// What the database says.
    fn run(&self, sql: &str, name: &str) -> Result<(), sqlx::Error> {
        self.runtime.block_on(async {
            let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
            match self.kind {
                Kind::Postgres => {
                    let mut connection = self.connect_postgres(name).await?;
                    sqlx::Executor::execute(&mut connection, sql).await.map(drop)
                }
                Kind::Mariadb => {
                    let mut connection = self.connect_mariadb(name).await?;
                    sqlx::Executor::execute(&mut connection, sql).await.map(drop)
                }
            }
        })
    }

    async fn connect_postgres(&self, name: &str) -> Result<sqlx::PgConnection, sqlx::Error> {
        let options = sqlx::postgres::PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.port);
        sqlx::PgConnection::connect_with(&options.username(USER).password(PASSWORD).database(name)).await
    }

    async fn connect_mariadb(&self, name: &str) -> Result<sqlx::MySqlConnection, sqlx::Error> {
        let options = sqlx::mysql::MySqlConnectOptions::new().host("127.0.0.1").port(self.port);
        let options = options.username("root").database(name).timezone(None::<String>);
        sqlx::MySqlConnection::connect_with(&options).await
    }

    /// Carries a statement out in the database of the trace.
    ///
    /// # Panics
    ///
    /// When it cannot.
    pub fn execute(&self, sql: &str) {
        self.run(sql, "trace").unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    /// Asks for rows of texts; nothing when the table is not there yet, or the database is away.
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let sql = AssertSqlSafe(sql.to_owned());
        let rows = self.runtime.block_on(async {
            Ok::<_, sqlx::Error>(match self.kind {
                Kind::Postgres => {
                    let mut connection = self.connect_postgres("trace").await?;
                    sql_rows(sqlx::query(sql).fetch_all(&mut connection).await?)
                }
                Kind::Mariadb => {
                    let mut connection = self.connect_mariadb("trace").await?;
                    sql_rows(sqlx::query(sql).fetch_all(&mut connection).await?)
                }
            })
        });
        rows.unwrap_or_default()
    }
}

fn as_root() -> &'static [&'static str] {
    if is_root() { &["--user=root"] } else { &[] }
}

fn sql_rows<R: Row>(rows: Vec<R>) -> Vec<Vec<Option<String>>>
where
    usize: sqlx::ColumnIndex<R>,
    for<'r> Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let texts = |row: &R| (0..row.len()).map(|column| row.get(column)).collect();
    rows.iter().map(texts).collect()
}

/// Rows of an SQLite file.
///
/// # Panics
///
/// When the file cannot be read.
pub fn sqlite_rows(file: &Path, sql: &str) -> Vec<Vec<Option<String>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        let Ok(mut connection) = sqlx::SqliteConnection::connect_with(&options).await else { return Vec::new() };
        let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await;
        // SQLite gives every value as text, whatever type its column says.
        let texts = |row: &sqlx::sqlite::SqliteRow| (0..row.len()).map(|column| row.get_unchecked(column)).collect();
        rows.map(|rows| rows.iter().map(texts).collect()).unwrap_or_default()
    })
}
