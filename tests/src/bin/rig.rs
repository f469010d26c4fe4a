//! `rig`: living clusters on hosts of their own under faults, judged; `cargo xtask rig` builds and installs what it needs.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, value_parser};
use elasticjob_tests::rig::{self, Plan};

/// Living clusters on hosts of their own under faults, judged by the oracle.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Two of the four agents are Java's.
    #[arg(long)]
    mixed: bool,
    /// For so many minutes under faults.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..))]
    minutes: u64,
    /// With a cluster of its own for so many of them; the last one has what is left.
    #[arg(long, value_name = "MINUTES", default_value_t = 15, value_parser = value_parser!(u64).range(1..))]
    chapter: u64,
    /// The faults of the first cluster; the next has one more.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What upstream is known for, done to a cluster of Java's and to one of ours: a table.
    Beside {
        /// That row alone.
        row: Option<String>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(What::Beside { row }) = args.what {
        return match rig::beside(row.as_deref(), say) {
            Ok((table, good)) => {
                say(&format!("\n{table}"));
                if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => {
                say(&error);
                ExitCode::from(2)
            }
        };
    }
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let plan =
        Plan { seed: args.seed, length: minutes(args.minutes), chapter: minutes(args.chapter), mixed: args.mixed, say };
    let report = rig::run(&plan);
    say(&format!("\n{report}"));
    if report.violations.is_empty() && report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
