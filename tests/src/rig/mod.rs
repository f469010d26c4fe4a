//! The rig: three ZooKeeper servers and agents, each on a host of its own, under everything that happens to hosts, processes,
//! links, disks and clocks, and then judged by the oracle that judges simulated clusters.
//!
//! A run is made of chapters. Each has its cluster, three jobs that every agent runs, faults from a seed, and a quiet time at
//! its end. `cargo xtask rig` is its command.

mod beside;
mod cluster;
mod faults;
pub(crate) mod keepers;
mod network;
mod report;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use elasticjob_sim::Chance;

use crate::evidence::Living;
use crate::wait::{eventually, pause, wall_clock_millis};
pub use beside::beside;
use cluster::{Cluster, Job, SESSION, Side, wait_until};
pub use faults::{Fault, Kind};
use keepers::Keepers;
use network::Network;
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
    /// How long there are faults.
    pub length: Duration,
    /// For how much of that a cluster is used; the last one has what is left.
    pub chapter: Duration,
    /// Whether two of the four agents are Java's.
    pub mixed: bool,
    /// Receives lines of progress.
    pub say: fn(&str),
}

/// Runs all chapters.
pub fn run(plan: &Plan) -> Report {
    let mut report = Report { mixed: plan.mixed, ..Report::default() };
    let chapters = usize::try_from(plan.length.as_millis().div_ceil(plan.chapter.as_millis())).expect("not that many");
    let (mut left, mut seeds) = (plan.length, plan.seed..);
    while !left.is_zero()
        && let Some(seed) = seeds.next()
    {
        let length = left.min(plan.chapter);
        let folder = tempfile::Builder::new().prefix("rig-").tempdir().expect("a folder").keep();
        let mut own = Report { chapters: 1, ..Report::default() };
        let run = AssertUnwindSafe(|| run_chapter(plan, seed, length, &folder, &mut own));
        if let Err(panic) = std::panic::catch_unwind(run) {
            own.failures.push(format!("seed {seed}: {}", words(&*panic)));
        }
        let (runs, found) = (own.ours + own.java, own.violations.len() + own.failures.len());
        let number = report.chapters + 1;
        (plan.say)(&format!("chapter {number} of {chapters} (seed {seed}): {runs} runs, {found} complaints"));
        own.violations.iter().chain(&own.failures).for_each(|what| (plan.say)(&format!("  {what}")));
        if found == 0 {
            let _ = std::fs::remove_dir_all(&folder);
        } else {
            (plan.say)(&format!("  what it left behind is in {}", folder.display()));
        }
        if own.is_void() && report.void < chapters {
            (plan.say)(
                "  not counted, since ZooKeeper's servers contradict each other: one with the next seed takes its place",
            );
            report.void += 1;
            continue;
        }
        left -= length;
        report.join(own);
    }
    report
}

/// Damages the log of one of three servers and waits until all serve again; gives how many of them have begun anew.
///
/// # Panics
///
/// When they do not.
pub fn heal_a_damaged_log() -> u32 {
    let folder = tempfile::tempdir().expect("a folder");
    let network = Network::new(3);
    let mut keepers = Keepers::start(&network, folder.path());
    keepers.kill(1);
    keepers.damage(1);
    keepers.launch(&network, 1);
    eventually("the servers are whole", Duration::from_secs(90), || {
        keepers.revive(&network);
        keepers.are_whole(&network).then_some(())
    });
    keepers.damaged()
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// An event of a chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    End,
    Begin,
    /// A link that flaps is cut, or whole again.
    Flap(bool),
}

fn turns(faults: &[Fault]) -> Vec<(u64, Turn, Fault)> {
    let mut turns = Vec::new();
    for fault in faults {
        turns.push((fault.at, Turn::Begin, *fault));
        turns.push((fault.at + fault.length, Turn::End, *fault));
        if fault.kind == Kind::Flap {
            let flaps = (1..).map(|turn| (fault.at + turn * FLAP, Turn::Flap(turn % 2 == 0), *fault));
            turns.extend(flaps.take_while(|(at, _, _)| *at < fault.at + fault.length));
        }
    }
    turns.sort_by_key(|(at, turn, _)| (*at, *turn));
    turns
}

fn run_chapter(plan: &Plan, seed: u64, length: Duration, folder: &Path, report: &mut Report) {
    let is_ours: fn(u8) -> bool = if plan.mixed { |agent| agent % 2 == 1 } else { |_| true };
    let sides = [0, 1, 2, 3].map(|agent| if is_ours(agent) { Side::Rust } else { Side::Java });
    let mut cluster = Cluster::start(folder, &sides, 0, jobs(seed));
    let length = u64::try_from(length.as_millis()).expect("a short time");
    let faults = faults::plan(seed, length, u8::try_from(sides.len()).expect("few"), is_ours);
    let from = wall_clock_millis();
    let mut began = Vec::new();
    for (at, turn, fault) in turns(&faults) {
        wait_until(from + i64::try_from(at).expect("small"));
        match turn {
            Turn::Begin => {
                (plan.say)(&format!("{at:>7} ms: {}, host {}, for {} ms", fault.kind, fault.target, fault.length));
                began.push((fault, wall_clock_millis()));
                cluster.begin(fault);
                report.add_fault(fault.kind);
            }
            Turn::Flap(off) => cluster.cut(fault, off),
            Turn::End => {
                cluster.end(fault);
                cluster.revive_keepers();
                let since = began.iter().find(|(other, _)| *other == fault).map(|(_, since)| *since);
                // The servers come back by themselves, sessions end later.
                let after = i64::from(SESSION) + if fault.kind.is_keeper_s() { 6_000 } else { 0 };
                cluster.troubles.push((since.unwrap_or(from), wall_clock_millis() + after));
            }
        }
    }
    report.seconds = u64::try_from(wall_clock_millis() - from).unwrap_or_default() / 1_000;
    let whole = cluster.keepers_whole();
    report.failures.extend(whole.as_ref().err().map(|what| format!("seed {seed}: {what}")));
    let whole = whole.unwrap_or_else(|_| wall_clock_millis()) + i64::from(SESSION);
    let quiet_from = cluster.troubles.iter().map(|(_, to)| *to).chain([whole]).max().unwrap_or(whole);
    // A firing of a Java instance may have been lost permanently.
    report.violations.extend(cluster.all_run(quiet_from, false).err().map(|what| format!("seed {seed}: {what}")));
    pause(QUIET);
    for member in 0..cluster.size() {
        cluster.look_after(member);
    }
    let jobs: Vec<(&Job, Living<'_>)> =
        cluster.jobs.iter().enumerate().map(|(index, (job, _))| (job, cluster.living(index, quiet_from))).collect();
    cluster.keep();
    let transactions = cluster.transactions();
    report.contradictions = transactions.unexplained().len();
    if let [first, more @ ..] = transactions.unexplained() {
        let count = more.len() + 1;
        let what = format!(
            "{count} transactions cannot follow from those before, or are in a snapshot alone, the first is {first:x}"
        );
        (plan.say)(&format!("ZooKeeper's servers contradict each other: {what}; judged as they are"));
    }
    for (job, living) in jobs {
        let silent = |pid: &u32| !living.runs.iter().any(|run| run.pid == *pid && run.start > quiet_from);
        report.java_silent += cluster.java().iter().filter(|pid| silent(pid)).count();
        report.add(&format!("seed {seed}, job {}", job.name), job.period, &living.evidence(&transactions));
    }
    report.forced = cluster.forced;
    report.damaged = cluster.damaged_keepers();
    report.violations.extend(cluster.complaints.iter().map(|what| format!("seed {seed}: {what}")));
}

/// The jobs of a chapter: each agent runs all three.
fn jobs(seed: u64) -> Vec<Job> {
    let mut chance = Chance::new(seed ^ 0x6a6f_6273);
    let mut coin = || chance.below(2) == 0;
    vec![
        Job {
            name: "taken-over",
            cron: "* * * * * ?",
            period: 1,
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
            period: 1,
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
                period: 2,
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
                period: 2,
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
