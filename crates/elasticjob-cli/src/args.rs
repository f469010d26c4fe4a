//! Every flag of the binary, with its help.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Scheduled jobs on many machines without a central scheduler.
#[derive(Debug, Parser)]
#[command(name = "elasticjob", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// Registry: zookeeper://h1:2181,h2:2181/namespace or embedded:PATH [default: `regCenter` of FILE, or embedded:elasticjob.db].
    /// ZooKeeper credentials come from ELASTICJOB_DIGEST, as user:password
    #[arg(long, global = true, env = "ELASTICJOB_REGISTRY", hide_env_values = true, value_name = "URL")]
    pub(crate) registry: Option<String>,
    /// Format of data on standard output
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Format of the log on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Log each run; given twice, also debug messages of the libraries
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Returns the command line with its help. Every command accepts the options of [`Args`]; its help shows only those that have a
    /// meaning for it.
    pub(crate) fn described() -> clap::Command {
        let mut command = Args::command();
        command.build();
        hide_unused(&mut command, "");
        command
    }
}

/// The options of [`Args`] that have a meaning for a command, by the names of the commands.
fn used(path: &str) -> &'static [&'static str] {
    match path {
        " up" | " agent" => &["registry", "log_format", "verbose"],
        " console" => &["log_format", "verbose"],
        " check" | " cron" => &["output"],
        " job list" | " job show" | " job config" | " job apply" | " job trigger" | " job history" | " job ledger"
        | " job explain" | " server list" | " server show" | " shard list" => &["registry", "output"],
        _ if path.starts_with(" job ") || path.starts_with(" server ") || path.starts_with(" shard ") => &["registry"],
        _ => &[],
    }
}

/// The help of `--registry`: commands have another default than agents.
const REGISTRY_OF_AGENT: &str = "Registry: zookeeper://h1:2181,h2:2181/namespace or embedded:PATH [default: `regCenter` of FILE, or \
    embedded:elasticjob.db in the folder of FILE]. ZooKeeper credentials come from ELASTICJOB_DIGEST, as user:password";
const REGISTRY_OF_COMMAND: &str = "Registry: zookeeper://h1:2181,h2:2181/namespace or embedded:PATH [default: embedded:elasticjob.db in the \
    working directory]. ZooKeeper credentials come from ELASTICJOB_DIGEST, as user:password";

fn hide_unused(command: &mut clap::Command, path: &str) {
    for child in command.get_subcommands_mut() {
        let path = format!("{path} {}", child.get_name());
        hide_unused(child, &path);
        let is_unused = |id: &str| {
            let is_general = ["registry", "output", "log_format", "verbose"].contains(&id);
            is_general && !used(&path).contains(&id)
        };
        let runs_jobs = [" up", " agent"].contains(&path.as_str());
        *child = std::mem::take(child).mut_args(|argument| match argument.get_id().as_str() {
            id if is_unused(id) => argument.hide(true),
            "verbose" if path == " console" => {
                argument.help("Log debug messages of the console; given twice, also those of the libraries")
            }
            "registry" if runs_jobs => argument.help(REGISTRY_OF_AGENT),
            "registry" => argument.help(REGISTRY_OF_COMMAND),
            _ => argument,
        });
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the jobs of FILE (default: two quick-start jobs) and the web console in one process, on an embedded registry unless FILE has
    /// `regCenter`
    Up {
        /// Agent file: YAML in the form of Java's Spring Boot starter configuration
        file: Option<PathBuf>,
        /// Port of the console, on 127.0.0.1 [default: 8899, or any free port if it is in use]
        #[arg(short, long)]
        port: Option<u16>,
        /// Run the jobs without the web console
        #[arg(long, conflicts_with = "port")]
        no_console: bool,
    },
    /// Run the jobs of FILE
    Agent {
        /// Agent file: YAML in the form of Java's Spring Boot starter configuration
        file: PathBuf,
    },
    /// Serve the web console, with the API of ElasticJob-UI 3.x
    Console {
        /// Settings: `application.properties` of ElasticJob-UI 3.x
        file: Option<PathBuf>,
        /// Port [default: `server.port` of FILE, or 8899]
        #[arg(short, long)]
        port: Option<u16>,
        /// IP address to listen on [default: `server.address` of FILE; without it, all addresses, or 127.0.0.1 while the password is the
        /// default one]
        #[arg(long, value_name = "IP")]
        listen: Option<IpAddr>,
    },
    /// Check FILE and print every fault with its line and column
    Check {
        /// Agent file
        file: PathBuf,
    },
    /// Print the next fire times of a cron expression
    Cron {
        /// Cron expression in Quartz's dialect, seconds first: "0/5 * * * * ?"
        expression: String,
        /// Time zone: an IANA name or GMT+8 [default: the host's zone]
        #[arg(long)]
        zone: Option<String>,
        /// Print times after this one (RFC 3339) [default: now]
        #[arg(long)]
        from: Option<String>,
        /// Number of fire times to print
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        count: u32,
    },
    /// Operate on jobs
    Job {
        #[command(subcommand)]
        operation: JobOperation,
    },
    /// Operate on servers, with all of their jobs
    Server {
        #[command(subcommand)]
        operation: ServerOperation,
    },
    /// Operate on the items of a job
    Shard {
        #[command(subcommand)]
        operation: ShardOperation,
    },
    /// Check, back up or restore the file of an embedded registry
    Registry {
        #[command(subcommand)]
        operation: RegistryOperation,
    },
    /// Print shell completions
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Write a man page for each command into FOLDER
    Man {
        /// Output folder; created if missing
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobOperation {
    /// List all jobs
    List {
        /// List only the jobs of this server, with their status on this server
        #[arg(long, value_name = "IP")]
        server: Option<String>,
        /// Print the list again whenever it changes, until interrupted
        #[arg(long)]
        watch: bool,
    },
    /// Show one job with its items
    Show {
        /// Job name
        name: String,
    },
    /// Print the stored configuration
    Config {
        /// Job name
        name: String,
    },
    /// Store the job configurations of FILE, after showing the differences and asking for confirmation
    Apply {
        /// A configuration as `job config` prints it, or an agent file; - reads standard input
        file: PathBuf,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Run each enabled item of the jobs once, immediately, in addition to the schedule
    Trigger {
        /// Job names
        #[arg(required = true)]
        names: Vec<String>,
        /// Wait until each item has run, and print its result
        #[arg(long)]
        wait: bool,
        /// Maximum time that --wait waits; the items run even if it is exceeded [default: no limit]
        #[arg(long, value_name = "SECONDS", requires = "wait")]
        timeout: Option<u32>,
    },
    /// Disable jobs on all servers, or on one server with --server; they stay disabled after restarts
    Disable(Jobs),
    /// Enable jobs on all servers, or on one server with --server
    Enable(Jobs),
    /// Stop jobs in all running instances, or in those on one server with --server, until their processes restart or reload their file
    Shutdown(Jobs),
    /// Stop jobs in all instances, and delete everything that the registry stores about them; with --server or --keep-config, only a part of it
    Remove {
        #[command(flatten)]
        jobs: Jobs,
        /// Stop the jobs and delete their instance and server nodes, but keep their configuration
        #[arg(long, conflicts_with = "server")]
        keep_config: bool,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Print all nodes of a job, with IP addresses masked
    Dump {
        /// Job name
        name: String,
        /// Read the dump from the dump service of a running process at this address, instead of from the registry
        #[arg(long, value_name = "HOST:PORT")]
        from: Option<String>,
    },
    /// Print the latest runs of a job from the event trace
    History(History),
    /// Print what became of the latest due times of a job: ran, late, caught up, skipped, lost or missed, and why
    Ledger(DueLedger),
    /// Print the output of a run: of the latest one that has a log, or of the one that --run names
    Logs(Logs),
    /// Explain why a job does not run: one line per check, with the evidence
    Explain {
        /// Job name
        name: String,
    },
}

/// The database of the event trace.
#[derive(Debug, ClapArgs)]
pub(crate) struct Database {
    /// Database: sqlite://PATH, postgres://HOST:PORT/NAME or mysql://HOST:PORT/NAME [default: `tracing` of --file, the database that Java stored in the job's configuration, or the history that `up` keeps beside an embedded registry].
    /// The password comes from ELASTICJOB_DATABASE_PASSWORD
    #[arg(long, value_name = "URL")]
    pub(crate) database: Option<String>,
    /// Database user, if the address has none
    #[arg(long, requires = "database")]
    pub(crate) user: Option<String>,
    /// Agent file whose `tracing` names the database
    #[arg(long, conflicts_with = "database")]
    pub(crate) file: Option<PathBuf>,
}

/// A history to print.
#[derive(Debug, ClapArgs)]
pub(crate) struct History {
    /// Job name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) database: Database,
    /// Only failed runs
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only runs that started at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Maximum number of runs, the latest first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

/// A run log to print.
#[derive(Debug, ClapArgs)]
pub(crate) struct Logs {
    /// Job name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) database: Database,
    /// The run: its id in `job history`, or at least the last 4 characters of it
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// Only runs of this item
    #[arg(long)]
    pub(crate) item: Option<u32>,
    /// Go on with the lines that are recorded later: until the run that --run names has ended, or for ever
    #[arg(long)]
    pub(crate) follow: bool,
}

/// A due ledger to print.
#[derive(Debug, ClapArgs)]
pub(crate) struct DueLedger {
    /// Job name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) database: Database,
    /// Only due times at which an item did not run on time
    #[arg(long)]
    pub(crate) missed: bool,
    /// Only due times up to this one (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Number of due times to judge, the latest first; fewer for a job with many items
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

/// Jobs, on all servers or on one.
#[derive(Debug, ClapArgs)]
pub(crate) struct Jobs {
    /// Job names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Restrict the command to this server of the jobs
    #[arg(long, value_name = "IP")]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerOperation {
    /// List all servers
    List,
    /// Show one server with its jobs
    Show {
        /// IP address of the server
        ip: String,
    },
    /// Disable all jobs on a server; they stay disabled after restarts
    Disable {
        /// IP address of the server
        ip: String,
    },
    /// Enable all jobs on a server
    Enable {
        /// IP address of the server
        ip: String,
    },
    /// Stop all jobs in the instances on a server
    Shutdown {
        /// IP address of the server
        ip: String,
    },
    /// Stop all jobs on a server, and remove its nodes
    Remove {
        /// IP address of the server
        ip: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShardOperation {
    /// List the items of a job
    List {
        /// Job name
        name: String,
    },
    /// Disable items, whichever instance owns them; they stay disabled after restarts and resharding
    Disable(Items),
    /// Enable items
    Enable(Items),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RegistryOperation {
    /// Verify every page of FILE; an agent may be using it
    Check {
        /// Registry file
        file: PathBuf,
    },
    /// Copy FILE to the new file COPY; an agent may be using FILE
    Backup {
        /// Registry file
        file: PathBuf,
        /// New file
        copy: PathBuf,
    },
    /// Replace FILE with BACKUP; the previous FILE is kept as FILE.before-restore-1
    Restore {
        /// Registry file to replace; no process may be using it
        file: PathBuf,
        /// Backup that replaces FILE
        backup: PathBuf,
    },
}

/// Items of a job.
#[derive(Debug, ClapArgs)]
pub(crate) struct Items {
    /// Job name
    pub(crate) name: String,
    /// Item numbers; the first item is 0
    #[arg(required = true)]
    pub(crate) items: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text per event
    Text,
    /// One JSON object per event
    Json,
}
