//! What the binary `elasticjob` does. Exit codes are made here and nowhere else: 0 done, 1 the operation failed, 2 wrong usage
//! or configuration.

mod agent;
mod args;
mod clock;
mod console;
mod cron;
mod file;
mod log;
mod man;
mod operations;
mod output;
mod serve;
mod signals;
mod up;

use std::process::ExitCode;

use clap::FromArgMatches;

use args::{Args, Command};
use elasticjob::registry::embedded;

/// Why a command did not do its work.
#[derive(Debug)]
enum Failure {
    /// The operation failed.
    Failed(anyhow::Error),
    /// The usage or the configuration is invalid; each line is printed as it is.
    Wrong(Vec<String>),
    /// An agent's file has faults.
    Faults(file::FileFaults),
    /// Who read the output has gone: there is nothing more to do.
    Unread,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Failed(error.into())
    }
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    let matches = match Args::described().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return explain_arguments(&error),
    };
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    keep_damage_quiet();
    let has_digest = |argument: std::ffi::OsString| {
        let argument = argument.to_string_lossy();
        argument.contains("zookeeper://") && argument.contains("digest=")
    };
    if std::env::args_os().any(has_digest) {
        output::tell(
            "elasticjob: warning: other users of this host can read the digest in the command line; set ELASTICJOB_DIGEST instead",
        );
    }
    let is_service = matches!(args.command, Command::Up { .. } | Command::Agent { .. } | Command::Console { .. });
    let _log = log::start(args.log_format, args.verbose, is_service);
    match run(args) {
        Ok(()) | Err(Failure::Unread) => ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => {
            output::tell(&format!("elasticjob: {error:#}"));
            ExitCode::from(1)
        }
        Err(Failure::Wrong(lines)) => {
            lines.iter().for_each(|line| output::tell(line));
            ExitCode::from(2)
        }
        Err(Failure::Faults(faults)) => {
            faults.lines().for_each(|line| output::tell(&line));
            ExitCode::from(2)
        }
    }
}

/// Prints the help that was asked for, or the faults of the arguments.
fn explain_arguments(error: &clap::Error) -> ExitCode {
    match error.print() {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        // The reader of a pipe has gone, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(&format!("elasticjob: cannot write to standard output: {error}"));
            ExitCode::from(1)
        }
    }
}

/// The thread of the registry file reports a panic of the database as damage of that file, so its stack trace says nothing more.
fn keep_damage_quiet() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(embedded::WRITER_THREAD) {
            default(panic);
        }
    }));
}

/// Returns the warnings and faults of an agent's file as `elasticjob check` prints them; nothing if it has no fault.
pub fn faults(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    match agent::load_with(text, "FILE", environment) {
        Ok(_) => Vec::new(),
        Err(Failure::Faults(faults)) => faults.lines().collect(),
        Err(Failure::Wrong(lines)) => lines,
        Err(Failure::Failed(error)) => vec![error.to_string()],
        Err(Failure::Unread) => Vec::new(),
    }
}

fn run(mut args: Args) -> Result<(), Failure> {
    args.registry.take_if(|registry| registry.is_empty()); // a variable that is set and empty
    match args.command {
        Command::Up { file, port, no_console } => {
            let up = up::Up { port, console: !no_console };
            agent::run(file.as_deref(), args.registry.as_deref(), Some(up))
        }
        Command::Agent { file } => agent::run(Some(&file), args.registry.as_deref(), None),
        Command::Console { file, port, listen } => console::run(file.as_deref(), port, listen),
        Command::Check { file } => agent::check(&file, args.output),
        Command::Cron { expression, zone, from, count } => {
            cron::run(&expression, zone.as_deref(), from.as_deref(), count, args.output)
        }
        Command::Job { operation } => operations::job(&operation, args.registry.as_deref(), args.output),
        Command::Server { operation } => operations::server(&operation, args.registry.as_deref(), args.output),
        Command::Shard { operation } => operations::shard(&operation, args.registry.as_deref(), args.output),
        Command::Registry { operation } => operations::registry(&operation),
        Command::Completions { shell } => {
            let mut command = Args::described();
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "elasticjob", &mut text);
            output::raw(&String::from_utf8_lossy(&text))
        }
        Command::Man { folder } => man::write(&folder),
    }
}
