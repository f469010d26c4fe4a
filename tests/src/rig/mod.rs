//! The rig: three ZooKeeper servers and agents, each on a host of its own, under everything that happens to hosts, processes,
//! links, disks and clocks, and then judged by the oracle that judges simulated clusters.
//!
//! A run is made of chapters. Each has its cluster, three jobs that every agent runs, faults from a seed, and a quiet time at
//! its end. `cargo xtask rig` is its command.

mod beside;
mod cluster;
mod faults;
mod keepers;
mod network;
mod report;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;

use elasticjob_sim::Chance;

use crate::wait::{pause, wall_clock_millis};
pub use beside::beside;
use cluster::{Cluster, Job, SESSION, Side, wait_until};
pub use faults::{Fault, Kind};
pub use report::Report;

/// How long a cluster is left alone before it is judged.
const QUIET: Duration = Duration::from_secs(30);
/// How long a link that flaps is cut, and then whole, in milliseconds.
const FLAP: u64 = 250;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides faults and jobs.
    pub seed: u64,
    /// How long the faults of a chapter go on.
    pub chapter: Duration,
    /// How many chapters.
    pub chapters: usize,
    /// Whether two of the four agents are Java's.
    pub mixed: bool,
    /// Told what goes on.
    pub say: fn(&str),
}

/// Runs all chapters.
///
/// # Panics
///
/// When no cluster can be made: without root's rights, or where something is not installed.
pub fn run(plan: &Plan) -> Report {
    let mut report = Report { mixed: plan.mixed, ..Report::default() };
    for chapter in 0..plan.chapters {
        let number = chapter + 1;
        let seed = plan.seed + chapter as u64;
        let folder = tempfile::Builder::new().prefix("rig-").tempdir().expect("a folder").keep();
        let before = report.violations.len();
        let run = AssertUnwindSafe(|| run_chapter(plan, seed, folder.clone(), &mut report));
        if let Err(panic) = std::panic::catch_unwind(run) {
            let what = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".to_owned());
            report.violations.push(format!("seed {seed}: {what}"));
        }
        report.chapters += 1;
        let found = report.violations.len() - before;
        (plan.say)(&format!(
            "chapter {number} of {} (seed {seed}): {} runs, {found} violations",
            plan.chapters,
            report.ours + report.java
        ));
        if found == 0 {
            let _ = std::fs::remove_dir_all(&folder);
        } else {
            (plan.say)(&format!("  what it left behind is in {}", folder.display()));
        }
    }
    report
}

/// An event of a chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    End,
    Begin,
    Flap(bool),
}

fn run_chapter(plan: &Plan, seed: u64, folder: PathBuf, report: &mut Report) {
    let sides = if plan.mixed { [Side::Java, Side::Rust, Side::Java, Side::Rust] } else { [Side::Rust; 4] };
    let mut cluster = Cluster::start(&folder, &sides, 0, jobs(seed));
    let length = u64::try_from(plan.chapter.as_millis()).expect("a short time");
    let faults = faults::plan(seed, length, u8::try_from(sides.len()).expect("few"));
    report.add_faults(&faults);
    let mut turns: Vec<(u64, Turn, Fault)> = Vec::new();
    for fault in &faults {
        turns.push((fault.at, Turn::Begin, *fault));
        turns.push((fault.at + fault.length, Turn::End, *fault));
        if fault.kind == Kind::Flap {
            let flaps =
                (1..=fault.length / FLAP).map(|turn| (fault.at + turn * FLAP, Turn::Flap(turn % 2 == 0), *fault));
            // Whole at the end.
            turns.extend(flaps.filter(|(at, _, _)| *at < fault.at + fault.length));
        }
    }
    turns.sort_by_key(|(at, turn, _)| (*at, *turn));
    let from = wall_clock_millis();
    let mut began = Vec::new();
    let mut is_cut = std::collections::BTreeMap::new();
    for (at, turn, fault) in turns {
        wait_until(from + i64::try_from(at).expect("small"));
        match turn {
            Turn::Begin => {
                (plan.say)(&format!("{at:>7} ms: {}, host {}, for {} ms", fault.kind, fault.target, fault.length));
                began.push((fault, wall_clock_millis()));
                is_cut.insert(fault.target, fault.kind == Kind::Flap);
                cluster.begin(fault);
            }
            Turn::Flap(off) => {
                if is_cut.insert(fault.target, off) != Some(off) {
                    cluster.flap(fault, off);
                }
            }
            Turn::End => {
                if fault.kind == Kind::Flap && is_cut.get(&fault.target) == Some(&true) {
                    cluster.flap(fault, false);
                }
                cluster.end(fault);
                let since = began.iter().rposition(|(other, _)| *other == fault).map(|index| began.remove(index).1);
                // The servers come back by themselves, sessions end later.
                let after = i64::from(SESSION) + if fault.kind.is_keeper_s() { 6_000 } else { 0 };
                cluster.troubles.push((since.unwrap_or(from), wall_clock_millis() + after));
            }
        }
    }
    report.seconds += u64::try_from(wall_clock_millis() - from).unwrap_or_default() / 1_000;
    let whole = cluster.wait_for_keepers();
    let quiet_from =
        cluster.troubles.iter().map(|(_, to)| *to).chain([whole + i64::from(SESSION)]).max().unwrap_or(whole);
    cluster.wait_for_runs("each agent of ours runs again", quiet_from, false);
    pause(QUIET);
    for index in 0..cluster.jobs.len() {
        let living = cluster.living(index, quiet_from);
        let silent = |pid: &u32| !living.runs.iter().any(|run| run.pid == *pid && run.start > quiet_from);
        report.java_silent += cluster.java().iter().filter(|pid| silent(pid)).count();
        let evidence = living.evidence();
        report.add(&format!("seed {seed}, job {}", cluster.jobs[index].0.name), &evidence);
    }
    cluster.keep();
}

/// The jobs of a chapter: each agent runs all three.
fn jobs(seed: u64) -> Vec<Job> {
    let mut chance = Chance::new(seed ^ 0x6a6f_6273);
    let mut coin = || chance.below(2) == 0;
    vec![
        Job {
            name: "taken-over",
            cron: "* * * * * ?",
            items: 6,
            run: 400,
            failover: true,
            misfire: coin(),
            monitored: true,
            slow: None,
        },
        Job {
            name: "plain",
            cron: "* * * * * ?",
            items: 5,
            run: 100,
            failover: false,
            misfire: coin(),
            monitored: true,
            slow: None,
        },
        // Runs that are longer than the time between two firings, and a job that is not monitored.
        if coin() {
            Job {
                name: "long",
                cron: "0/2 * * * * ?",
                items: 4,
                run: 2_600,
                failover: coin(),
                misfire: true,
                monitored: true,
                slow: None,
            }
        } else {
            Job {
                name: "unmonitored",
                cron: "0/2 * * * * ?",
                items: 8,
                run: 50,
                failover: false,
                misfire: false,
                monitored: false,
                slow: None,
            }
        },
    ]
}
