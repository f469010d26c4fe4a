//! Every flag of the binary, with its help.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Scheduled jobs on many machines without a central scheduler.
#[derive(Debug, Parser)]
#[command(name = "elasticjob", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The registry: zookeeper://h1:2181,h2:2181/namespace or embedded:PATH. For up and agent it replaces `regCenter`.
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
    /// Prints shell completions.
    Completions {
        /// For which shell.
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobOperation {
    /// Lists all jobs.
    List,
    /// Prints the stored configuration.
    Config {
        /// The job.
        name: String,
    },
    /// Runs it once, now.
    Trigger {
        /// The job.
        name: String,
    },
    /// Lets it rest, on all servers, also after a restart.
    Disable {
        /// The job.
        name: String,
    },
    /// Lets it run again.
    Enable {
        /// The job.
        name: String,
    },
    /// Takes it out of all processes that run it.
    Shutdown {
        /// The job.
        name: String,
    },
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
