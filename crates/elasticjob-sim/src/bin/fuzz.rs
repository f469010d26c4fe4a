//! `fuzz`: whole clusters under faults, by seed.
//!
//! ```text
//! fuzz --seeds 0..10000             these schedules, on all processors; exit code 1 when something must not be
//! fuzz --seeds 0..10000 --record F  the same, and one line about it is added to file F
//! fuzz --seed 17                    one schedule with its story
//! fuzz --schedule F                 one schedule from a file, as a violation prints it
//! fuzz --planted                    each planted defect: found with its seed, or missed
//! ```

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{ArgGroup, Parser};
use elasticjob_sim::{Defect, Schedule, shrink};

/// Violations of one call that are shown in full.
const SHOWN: usize = 5;
/// Schedules that a processor takes at one time.
const PART: u64 = 16;

/// Whole clusters under faults, by seed.
#[derive(Debug, Parser)]
#[command(arg_required_else_help = true)]
#[command(group(ArgGroup::new("what").required(true).args(["seeds", "seed", "schedule", "planted"])))]
struct Args {
    /// Schedules by their seeds, the last not included.
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// Adds a row about these seeds to a table: range, commit, seconds, faults, runs, violations.
    #[arg(long, value_name = "FILE", requires = "seeds")]
    record: Option<PathBuf>,
    /// One schedule, with its story.
    #[arg(long)]
    seed: Option<u64>,
    /// One schedule from a file.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Plants each defect and looks whether it is found; for one alone, its name.
    #[arg(long, value_name = "DEFECT", num_args = 0..=1, default_missing_value = "all")]
    planted: Option<String>,
    /// With one schedule: the registry's history and end, and the machines in all detail.
    #[arg(long, conflicts_with_all = ["seeds", "planted"])]
    details: bool,
    /// Leaves a schedule that violates something as large as it is.
    #[arg(long, requires = "seeds")]
    whole: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected A..B")?;
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}`: expected a whole number"));
    let (from, to) = (number(from)?, number(to)?);
    if from >= to { Err(format!("`{text}`: no seed lies in it")) } else { Ok(from..to) }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(which) = &args.planted {
        return planted(which);
    }
    if let Some(path) = &args.schedule {
        let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let schedule: Schedule = text.parse().map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        return Ok(tell_one(&schedule, args.details));
    }
    if let Some(seed) = args.seed {
        return Ok(tell_one(&Schedule::from_seed(seed), args.details));
    }
    let Some(seeds) = args.seeds.clone() else { bail!("expected --seeds, --seed, --schedule or --planted") };
    // Asked for first: what takes minutes must not end without its row.
    let mut table = args.record.as_deref().map(open).transpose()?;
    let start = now();
    let sum = work_off(seeds.clone(), args.whole);
    let took = start.elapsed().as_secs_f64();
    let (from, to) = (seeds.start, seeds.end);
    say(&format!(
        "schedules {}, faults {}, runs {}, violations {}, seeds {from}..{to}, {took:.1} s",
        sum.schedules, sum.faults, sum.runs, sum.violations
    ));
    if let Some(table) = &mut table {
        record(table, &seeds, took, &sum)?;
    }
    Ok(if sum.violations == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What many schedules came to.
#[derive(Debug, Default)]
struct Sum {
    schedules: u64,
    faults: u64,
    runs: u64,
    violations: u64,
}

fn work_off(seeds: Range<u64>, whole: bool) -> Sum {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new(Sum::default());
    let work = || {
        loop {
            let from = next.fetch_add(PART, Ordering::Relaxed);
            if from >= seeds.end {
                return;
            }
            for seed in from..(from + PART).min(seeds.end) {
                let schedule = Schedule::from_seed(seed);
                let (violations, runs) = judge(&schedule, None);
                let Ok(mut sum) = sum.lock() else { return };
                sum.schedules += 1;
                sum.faults += schedule.strikes.len() as u64;
                sum.runs += runs;
                if violations.is_empty() {
                    continue;
                }
                sum.violations += 1;
                let in_full = sum.violations <= SHOWN as u64;
                drop(sum);
                if in_full {
                    show(&schedule, &violations, whole);
                } else {
                    say(&format!("seed {seed}: {}", violations.join("; ")));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let places = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..places).for_each(|_| drop(scope.spawn(work)));
    });
    sum.into_inner().unwrap_or_default()
}

/// The violations of a schedule, a panic included, and the number of runs.
fn judge(schedule: &Schedule, defect: Option<Defect>) -> (Vec<String>, u64) {
    match std::panic::catch_unwind(AssertUnwindSafe(|| schedule.judge(defect))) {
        Ok(outcome) => (outcome.violations.iter().map(ToString::to_string).collect(), outcome.runs as u64),
        Err(_) => (vec!["panic".to_owned()], 0),
    }
}

fn show(schedule: &Schedule, violations: &[String], whole: bool) {
    let smallest = if whole || violations == ["panic"] { schedule.clone() } else { shrink(schedule, None) };
    let mut text = format!("seed {}:\n", schedule.seed);
    for violation in violations.iter().take(3) {
        text += &format!("  {violation}\n");
    }
    text += &format!("the smallest schedule that was found:\n{smallest}");
    say(&text);
}

fn tell_one(schedule: &Schedule, details: bool) -> ExitCode {
    let world = schedule.run(None);
    say(&world.story());
    if details {
        say(&world.history());
        say(&world.dump());
        say(&world.machines());
    }
    say(&format!("{schedule}"));
    let outcome = schedule.judge(None);
    outcome.violations.iter().for_each(|violation| say(&violation.to_string()));
    say(&format!(
        "schedules 1, faults {}, runs {}, violations {}",
        schedule.strikes.len(),
        outcome.runs,
        outcome.violations.len()
    ));
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn planted(which: &str) -> anyhow::Result<ExitCode> {
    let wanted: Vec<Defect> =
        Defect::ALL.into_iter().filter(|defect| which == "all" || defect.to_string() == which).collect();
    if wanted.is_empty() {
        let names: Vec<String> = Defect::ALL.iter().map(ToString::to_string).collect();
        bail!("`{which}`: no such defect; there are {}", names.join(", "));
    }
    let mut missed = 0;
    for defect in wanted {
        let start = now();
        match defect.find() {
            Some((seed, violation)) => say(&format!(
                "found  {defect} ({}) with seed {seed} after {:.1} s: {}",
                defect.about(),
                start.elapsed().as_secs_f64(),
                violation.invariant
            )),
            None => {
                missed += 1;
                say(&format!("missed {defect} ({}) within {} seeds", defect.about(), defect.seeds()));
            }
        }
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// One row about a slice; a commit that was changed since is marked.
fn record(table: &mut File, seeds: &Range<u64>, took: f64, sum: &Sum) -> anyhow::Result<()> {
    let commit =
        Command::new("git").args(["describe", "--always", "--dirty", "--exclude", "*"]).output().context("git")?;
    let commit = String::from_utf8_lossy(&commit.stdout).trim().to_owned();
    let line = format!(
        "| {}..{} | {commit} | {took:.0} | {} | {} | {} |\n",
        seeds.start, seeds.end, sum.faults, sum.runs, sum.violations
    );
    Ok(table.write_all(line.as_bytes())?)
}

fn open(table: &Path) -> anyhow::Result<File> {
    File::options().append(true).create(true).open(table).with_context(|| format!("{}", table.display()))
}

#[expect(clippy::disallowed_methods, reason = "how long this program takes; the worlds have their own time")]
fn now() -> Instant {
    Instant::now()
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
