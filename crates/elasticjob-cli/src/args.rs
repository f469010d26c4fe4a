//! Every flag of the binary, with its help.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Scheduled jobs on many machines without a central scheduler.
#[derive(Debug, Parser)]
#[command(name = "elasticjob", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The registry: zookeeper://h1:2181,h2:2181/namespace or embedded:PATH. For up and agent it replaces `regCenter`. The
    /// variable ELASTICJOB_DIGEST has ZooKeeper's credentials, as user:password.
    #[arg(long, global = true, env = "ELASTICJOB_REGISTRY", value_name = "URL")]
    pub(crate) registry: Option<String>,
    /// How data is printed.
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// How the log is printed, on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// More log: each run; twice: the registry's requests too.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the jobs of FILE, or two quick-start jobs; on the embedded registry where FILE names none.
    Up {
        /// The jobs, in the YAML of the Java starter.
        file: Option<PathBuf>,
    },
    /// Runs the jobs of FILE.
    Agent {
        /// The jobs, in the YAML of the Java starter.
        file: PathBuf,
    },
    /// Checks FILE and prints every fault with its place.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Prints the next fire times of a cron expression.
    Cron {
        /// In Quartz's dialect, seconds first: "0/5 * * * * ?".
        expression: String,
        /// An IANA name or GMT+8; the host's zone by default.
        #[arg(long)]
        zone: Option<String>,
        /// Times after this one (RFC 3339); now by default.
        #[arg(long)]
        from: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        count: u32,
    },
    /// Operations on jobs.
    Job {
        #[command(subcommand)]
        operation: JobOperation,
    },
    /// Operations on servers, with all of their jobs.
    Server {
        #[command(subcommand)]
        operation: ServerOperation,
    },
    /// Operations on the items of a job.
    Shard {
        #[command(subcommand)]
        operation: ShardOperation,
    },
    /// Check, save or restore the file of an embedded registry.
    Registry {
        #[command(subcommand)]
        operation: RegistryOperation,
    },
    /// Prints shell completions.
    Completions {
        /// For which shell.
        shell: Shell,
    },
    /// Writes a man page for each command into FOLDER.
    Man {
        /// Where to; it is made when it is missing.
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobOperation {
    /// Lists all jobs.
    List {
        /// Only the jobs of this server, as they stand there.
        #[arg(long, value_name = "IP")]
        server: Option<String>,
        /// Goes on, and prints the list again when it has changed.
        #[arg(long)]
        watch: bool,
    },
    /// Shows one job with its items.
    Show {
        /// The job.
        name: String,
    },
    /// Prints the stored configuration.
    Config {
        /// The job.
        name: String,
    },
    /// Changes stored configurations to those of FILE: shows the difference and asks.
    Apply {
        /// A configuration as `job config` prints it, or the file of an agent; - reads standard input.
        file: PathBuf,
        /// Does not ask.
        #[arg(short, long)]
        yes: bool,
    },
    /// Run each enabled item of jobs once, now.
    Trigger {
        /// The jobs.
        #[arg(required = true)]
        names: Vec<String>,
        /// Wait until each item has run, and print its result.
        #[arg(long)]
        wait: bool,
        /// Wait so long at most; the items run all the same [default: without a limit]
        #[arg(long, value_name = "SECONDS", requires = "wait")]
        timeout: Option<u32>,
    },
    /// Lets jobs rest, on all servers, also after a restart.
    Disable(Jobs),
    /// Lets jobs run again.
    Enable(Jobs),
    /// Takes jobs out of all processes that run them.
    Shutdown(Jobs),
    /// Removes jobs with all that the registry has of them.
    Remove {
        #[command(flatten)]
        jobs: Jobs,
        /// Keeps the configuration: only instances and servers go.
        #[arg(long, conflicts_with = "server")]
        keep_config: bool,
        /// Does not ask.
        #[arg(short, long)]
        yes: bool,
    },
    /// Prints all nodes of a job, with IP addresses masked.
    Dump {
        /// The job.
        name: String,
        /// Asks the dump service of a running process instead of the registry.
        #[arg(long, value_name = "HOST:PORT")]
        from: Option<String>,
    },
    /// Prints the latest runs of a job, from the event trace.
    History {
        /// The job.
        name: String,
        /// The database: sqlite://PATH, postgres://HOST:PORT/NAME, mysql://HOST:PORT/NAME; by default the one in the job's
        /// configuration. The password comes from ELASTICJOB_DATABASE_PASSWORD.
        #[arg(long, value_name = "URL")]
        database: Option<String>,
        /// The user of the database, when its address has none.
        #[arg(long, requires = "database")]
        user: Option<String>,
        /// The file of an agent, whose `tracing` says where the database is.
        #[arg(long, conflicts_with = "database")]
        file: Option<PathBuf>,
        /// Only runs that failed.
        #[arg(long)]
        failed: bool,
        /// Only runs that began at this time (RFC 3339) or later.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// How many, the latest.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Says why a job does not run: one line for each check, with what it was judged by.
    Explain {
        /// The job.
        name: String,
    },
}

/// Jobs, on all servers or on one.
#[derive(Debug, ClapArgs)]
pub(crate) struct Jobs {
    /// The jobs.
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Only on this server.
    #[arg(long, value_name = "IP")]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerOperation {
    /// Lists all servers.
    List,
    /// Shows one server with its jobs.
    Show {
        /// Its IP.
        ip: String,
    },
    /// Lets all jobs rest on a server.
    Disable {
        /// Its IP.
        ip: String,
    },
    /// Lets them run again there.
    Enable {
        /// Its IP.
        ip: String,
    },
    /// Takes all jobs out of the processes on a server.
    Shutdown {
        /// Its IP.
        ip: String,
    },
    /// Shuts down, and forgets the server.
    Remove {
        /// Its IP.
        ip: String,
        /// Does not ask.
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShardOperation {
    /// Lists the items of a job.
    List {
        /// The job.
        name: String,
    },
    /// Lets items rest, whoever owns them.
    Disable(Items),
    /// Lets them run again.
    Enable(Items),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RegistryOperation {
    /// Verify every page of FILE, also while an agent uses it.
    Check {
        /// Registry file.
        file: PathBuf,
    },
    /// Copy FILE to COPY, also while an agent uses it.
    Backup {
        /// Registry file.
        file: PathBuf,
        /// New file.
        copy: PathBuf,
    },
    /// Replace FILE by a backup; the file before is kept beside it.
    Restore {
        /// Registry file, which no agent uses.
        file: PathBuf,
        /// Backup.
        copy: PathBuf,
    },
}

/// Items of a job.
#[derive(Debug, ClapArgs)]
pub(crate) struct Items {
    /// The job.
    pub(crate) name: String,
    /// The items, counted from 0.
    #[arg(required = true)]
    pub(crate) items: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For both.
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text each.
    Text,
    /// A JSON object each.
    Json,
}
