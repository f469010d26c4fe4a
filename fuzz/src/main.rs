//! `inputs`: hostile inputs to everything that reads what others wrote, by seed.
//!
//! Each seed makes one input for one reader. A finding is a panic, a reader that does not come back within ten seconds, or
//! one that wants more than 512 MiB. Seeds are worked off in processes of their own, so that a stack that runs over is told
//! as well: then each seed of the part is tried alone.
//!
//! ```text
//! inputs --seconds 60            seeds from 0 on, for a minute
//! inputs --seeds 0..100000       these seeds
//! inputs --seed 17 [--print]     one seed, here; --print shows its input
//! ```

mod answers;
mod mutate;
mod readers;
mod watch;

use std::alloc::System;
use std::io::Write;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use cap::Cap;
use clap::Parser;
use watch::{Watch, now};

/// Everything that a process of this program may hold at one time.
const MEMORY_MAX: usize = 512 * 1024 * 1024;
/// Seeds of one process.
const PART: u64 = 2_000;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY_MAX);

/// Hostile inputs by seed.
#[derive(Debug, Parser)]
struct Args {
    /// For how long, from seed 0 on.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seeds, the last not included.
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// One seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Shows the input of that seed.
    #[arg(long, requires = "seed")]
    print: bool,
    /// Works seeds off in this process.
    #[arg(long, hide = true, value_parser = seeds)]
    part: Option<Range<u64>>,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected A..B")?;
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}`: expected a whole number"));
    Ok(number(from)?..number(to)?)
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(part) = args.part {
        return Ok(if work_off(part) == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    if let Some(seed) = args.seed {
        if args.print {
            say(&format!("{:?}", readers::input(seed)));
        }
        let findings = work_off(seed..seed + 1);
        return Ok(finish(seed..seed + 1, findings, Duration::ZERO));
    }
    let all = match (&args.seeds, args.seconds) {
        (Some(seeds), _) => seeds.clone(),
        (None, Some(_)) => 0..u64::MAX,
        (None, None) => anyhow::bail!("expected --seconds, --seeds or --seed"),
    };
    let limit = args.seconds.map(Duration::from_secs);
    let (start, mut next, mut findings) = (now(), all.start, 0);
    while next < all.end && limit.is_none_or(|limit| start.elapsed() < limit) {
        // As many at one time as there are processors.
        let places = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        let parts: Vec<Range<u64>> = (0..places)
            .map(|place| next + place * PART..(next + (place + 1) * PART).min(all.end))
            .filter(|part| part.start < part.end)
            .collect();
        let children: Vec<_> = parts.iter().map(child).collect::<anyhow::Result<_>>()?;
        for (part, mut child) in parts.iter().zip(children) {
            if !child.wait()?.success() {
                findings += single_out(part)?;
            }
            next = part.end;
        }
    }
    Ok(finish(all.start..next, findings, start.elapsed()))
}

fn child(part: &Range<u64>) -> anyhow::Result<std::process::Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--part").arg(format!("{}..{}", part.start, part.end));
    command.spawn().context("a process of its own")
}

/// Which seeds of a part fail; each in a process of its own.
fn single_out(part: &Range<u64>) -> anyhow::Result<usize> {
    let mut findings = 0;
    for seed in part.clone() {
        let status = child(&(seed..seed + 1))?.wait()?;
        if !status.success() {
            findings += 1;
            say(&format!("seed {seed}: {}: {status}; `inputs --seed {seed} --print` shows it", readers::name(seed)));
        }
    }
    Ok(findings)
}

/// Gives how many of the seeds panicked.
fn work_off(seeds: Range<u64>) -> usize {
    let watch = Watch::start();
    let mut findings = 0;
    for seed in seeds {
        watch.begin(seed);
        if std::panic::catch_unwind(AssertUnwindSafe(|| readers::read(seed))).is_err() {
            findings += 1;
        }
    }
    watch.end();
    findings
}

fn finish(seeds: Range<u64>, findings: usize, took: Duration) -> ExitCode {
    let inputs = seeds.end - seeds.start;
    let (from, to) = (seeds.start, seeds.end);
    say(&format!("inputs {inputs}, seeds {from}..{to}, {} s, findings {findings}", took.as_secs()));
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use elasticjob_sim::Chance;

    use super::*;

    #[test]
    fn every_reader_gets_its_inputs_and_none_panics() {
        let mut met = std::collections::BTreeSet::new();
        for seed in 0..150 {
            met.insert(readers::name(seed));
            readers::read(seed);
        }
        assert_eq!(met.len(), readers::NAMES.len(), "{met:?}");
    }

    /// What was found, and mended: text that aliases repeat, a zone of letters, a key that is too long to be simple, a range of
    /// two billion years.
    #[test]
    fn what_was_found_once_is_read() {
        for seed in [1_499, 3_705, 7_254, 10_542, 20_951, 24_096, 24_143, 30_180, 38_664, 1_235_312] {
            readers::read(seed);
        }
    }

    #[test]
    fn an_input_depends_on_its_seed_alone() {
        for seed in 0..200 {
            assert_eq!(readers::input(seed), readers::input(seed));
        }
        let mut chance = (Chance::new(1), Chance::new(2));
        assert_ne!(chance.0.below(1_000_000), chance.1.below(1_000_000));
    }
}
