//! A schedule of faults: made from a seed, run, judged, made smaller, written down.

use std::fmt;
use std::time::Duration;

use elasticjob_core::wire::JobDocument;

use crate::oracle::{self, Violation};
use crate::{Chance, Defect, Fault, Mark, Options, Order, World};

/// No fault before this time, so that the cluster is established.
const BEGIN: u64 = 4_000;
/// How long the turn of an item may be off, in milliseconds.
const WAIT_MILLIS: u64 = 4_000;
/// For how long the cluster is left alone at the end, beyond what is needed to settle.
const REST: Duration = Duration::from_secs(9);

/// What a world goes through.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Decides latencies and run times, too.
    pub seed: u64,
    /// Instances of ours.
    pub instances: usize,
    /// Java-like ones beside them.
    pub peers: usize,
    /// Items.
    pub items: u32,
    /// The schedule of the job.
    pub cron: String,
    /// Whether failover is on.
    pub failover: bool,
    /// Whether misfire is on.
    pub misfire: bool,
    /// Whether executions are monitored.
    pub monitored: bool,
    /// How long a run takes, in milliseconds.
    pub run_millis: (u64, u64),
    /// Whether some requests are slow.
    pub slow: bool,
    /// What happens: milliseconds after the start, to which process, what.
    pub strikes: Vec<(u64, usize, Fault)>,
    /// When all is over, in milliseconds.
    pub quiet: u64,
}

/// How a schedule went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What must not be.
    pub violations: Vec<Violation>,
    /// Runs of items.
    pub runs: usize,
    /// What was said, for people.
    pub story: String,
}

impl Schedule {
    /// The schedule of that seed.
    pub fn from_seed(seed: u64) -> Schedule {
        let mut chance = Chance::new(seed ^ 0x005E_ED0F_FA17);
        let mixed = chance.below(3) == 0;
        let instances = to_usize(chance.between(if mixed { 1 } else { 2 }, 3));
        let peers = if mixed { to_usize(chance.between(1, 2)) } else { 0 };
        let items = to_u32(chance.between(1, 5));
        let long = [300, 300, 900, 2_500][to_usize(chance.below(4))];
        let mut schedule = Schedule {
            seed,
            instances,
            peers,
            items,
            cron: ["* * * * * ?", "* * * * * ?", "0/2 * * * * ?", "0/3 * * * * ?"][to_usize(chance.below(4))].into(),
            failover: chance.below(2) == 0,
            misfire: chance.below(4) != 0,
            monitored: mixed || chance.below(20) != 0,
            run_millis: (5, long),
            slow: chance.below(2) == 0,
            strikes: Vec::new(),
            quiet: 0,
        };
        let mut end = BEGIN;
        let processes = instances + peers;
        if chance.below(4) == 0 {
            // Clocks that were never right.
            for process in 0..processes {
                let off = i64::try_from(chance.below(3_000)).unwrap_or_default() - 1_500;
                schedule.strikes.push((0, process, Fault::Clock(off)));
            }
        }
        let last = BEGIN + chance.between(2_000, 14_000);
        let mut restored = false;
        for _ in 0..chance.between(1, 9) {
            let at = chance.between(BEGIN, last);
            let process = to_usize(chance.below(processes as u64));
            let length = match chance.below(3) {
                0 => chance.between(20, 1_500),
                1 => chance.between(1_500, 4_500),
                _ => chance.between(3_500, 7_000),
            };
            let fault = schedule.fault(&mut chance, process, length);
            restored |= matches!(fault, Fault::Order(_));
            let over = match &fault {
                Fault::Crash { .. } | Fault::Stop { .. } => at + length + 1_000,
                Fault::Join | Fault::Expire | Fault::Clock(_) | Fault::Order(_) | Fault::Operator(_) => at,
                Fault::Stuck(length) => at + to_millis(*length),
                _ => at + length,
            };
            end = end.max(over);
            let process = if fault == Fault::Join { processes + to_usize(chance.below(2)) } else { process };
            schedule.strikes.push((at, process, fault));
        }
        // Sessions that were lost on the way are over by then; a leader of Java's may still wait for one.
        schedule.quiet = end + 4_500;
        if restored {
            schedule.strikes.push((end + 1, 0, Fault::Order(Order::Restore)));
        }
        schedule.strikes.sort_by_key(|(at, process, _)| (*at, *process));
        schedule
    }

    fn fault(&self, chance: &mut Chance, process: usize, length: u64) -> Fault {
        let time = Duration::from_millis(length);
        let item = to_u32(chance.below(u64::from(self.items)));
        // The first process always comes back, so that an instance exists in the end.
        let restart = (process == 0 || chance.below(4) != 0).then_some(time);
        match chance.below(24) {
            0..=3 => Fault::Crash { restart },
            4..=5 => Fault::Cut(time),
            6 => Fault::Silence(time),
            7..=8 => Fault::Deaf(time),
            9 => Fault::Mute(time),
            // Long enough for the others to go on without it, now and then.
            12 if length.is_multiple_of(4) => Fault::Stuck(time * 3),
            10..=12 => Fault::Pause(time),
            13 => Fault::Stop { restart },
            14 => Fault::Join,
            15 => Fault::Expire,
            // An embedded registry has no instances of Java.
            16 if self.peers == 0 && length.is_multiple_of(3) => Fault::Full(time),
            16 => Fault::Failover(time),
            17 => {
                // In some schedules the clock is corrected after a long time.
                let far = if chance.below(5) == 0 { 50 } else { 1 };
                let step = i64::try_from(chance.below(12_000)).unwrap_or_default() - 6_000;
                Fault::Clock(step * far)
            }
            // Java's instances take no triggers of items.
            18 if self.peers == 0 && length.is_multiple_of(2) => Fault::Order(Order::TriggerItems),
            18 => Fault::Order(Order::Trigger),
            19 => Fault::Order(match chance.below(5) {
                0 if process != 0 => Order::ShutDown,
                0..=2 => Order::Disable,
                _ => Order::Enable,
            }),
            20 => Fault::Order(if chance.below(3) == 0 { Order::EnableItem(item) } else { Order::DisableItem(item) }),
            21 => Fault::Order(Order::Items(to_u32(chance.between(1, 6)))),
            22 => Fault::Order(match chance.below(5) {
                0 => Order::BadConfig,
                1 => Order::Cron("0/2 * * * * ?".into()),
                2 => Order::Cron("* * * * * ?".into()),
                3 => Order::Failover(!self.failover),
                _ => Order::Misfire(!self.misfire),
            }),
            _ => Fault::Order(Order::Mark(Mark::ALL[to_usize(chance.below(Mark::ALL.len() as u64))], item)),
        }
    }

    fn options(&self, defect: Option<Defect>) -> Options {
        let mut document = JobDocument::new("job", self.items);
        document.cron = Some(self.cron.clone());
        document.failover = self.failover;
        document.misfire = self.misfire;
        document.monitor_execution = self.monitored;
        Options {
            peers: self.peers,
            run_millis: self.run_millis,
            slow_requests: self.slow,
            failing: 5,
            defect,
            // By the seed itself: what it decides beyond that stays as it is.
            wait_millis: if self.seed % 4 == 3 { WAIT_MILLIS } else { 0 },
            ..Options::new(self.seed, document, self.instances)
        }
    }

    /// The world of this schedule, at its end.
    pub fn run(&self, defect: Option<Defect>) -> World {
        let mut world = World::new(self.options(defect));
        for (at, process, fault) in &self.strikes {
            world.strike(Duration::from_millis(*at), *process, fault.clone());
        }
        let settle =
            Duration::from_secs(4) + Duration::from_millis((self.run_millis.1 + WAIT_MILLIS) * 2) + self.period() * 3;
        world.run_until(self.quiet() + settle + REST);
        world
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(self.quiet)
    }

    fn period(&self) -> Duration {
        Duration::from_secs(if self.cron.starts_with('*') { 1 } else { 3 })
    }

    /// Runs and judges it.
    pub fn judge(&self, defect: Option<Defect>) -> Outcome {
        let world = self.run(defect);
        let violations = oracle::judge(&world.evidence(self.quiet()));
        let story = if violations.is_empty() { String::new() } else { world.story() };
        Outcome { violations, runs: world.journal().len(), story }
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn to_millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or_default()
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// The smallest schedule found that still violates the same invariant: faults are left out one by one, then instances.
pub fn shrink(schedule: &Schedule, defect: Option<Defect>) -> Schedule {
    let Some(invariant) = schedule.judge(defect).violations.first().map(|v| v.invariant) else {
        return schedule.clone();
    };
    let fails = |s: &Schedule| s.judge(defect).violations.iter().any(|v| v.invariant == invariant);
    let mut best = schedule.clone();
    loop {
        let mut smaller: Vec<Schedule> = (0..best.strikes.len())
            .map(|index| {
                let mut less = best.clone();
                less.strikes.remove(index);
                less
            })
            .collect();
        let change = |change: &dyn Fn(&mut Schedule)| {
            let mut less = best.clone();
            change(&mut less);
            less
        };
        smaller.push(change(&|s| s.slow = false));
        smaller.push(change(&|s| s.items = (s.items - 1).max(1)));
        smaller.push(change(&|s| s.run_millis = (5, 300)));
        match smaller.into_iter().find(|less| *less != best && fails(less)) {
            Some(less) => best = less,
            None => return best,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} instances {} peers {} items {} failover {} misfire {} monitored {} run {}..{} slow {} quiet {}",
            self.seed,
            self.instances,
            self.peers,
            self.items,
            self.failover,
            self.misfire,
            self.monitored,
            self.run_millis.0,
            self.run_millis.1,
            self.slow,
            self.quiet
        )?;
        writeln!(f, "cron {}", self.cron)?;
        for (at, process, fault) in &self.strikes {
            writeln!(f, "at {at} process {process} {fault}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Schedule {
    type Err = String;

    /// Reads what `Display` writes; lines that begin with `#` are remarks.
    fn from_str(text: &str) -> Result<Schedule, String> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let first: Vec<&str> = lines.next().ok_or("expected a line that begins with `seed`")?.split(' ').collect();
        let value = |key: &str| -> Result<&str, String> {
            let at = first.iter().position(|word| *word == key).ok_or_else(|| format!("`{key}` is missing"))?;
            first.get(at + 1).copied().ok_or_else(|| format!("`{key}` has no value"))
        };
        fn read<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("`{key}`: `{text}` cannot be read"))
        }
        let (low, high) = value("run")?.split_once("..").ok_or("`run`: expected `low..high`")?;
        let cron = lines.next().and_then(|line| line.strip_prefix("cron ")).ok_or("expected a line `cron ...`")?;
        let mut schedule = Schedule {
            seed: read("seed", value("seed")?)?,
            instances: read("instances", value("instances")?)?,
            peers: read("peers", value("peers")?)?,
            items: read("items", value("items")?)?,
            cron: cron.to_owned(),
            failover: read("failover", value("failover")?)?,
            misfire: read("misfire", value("misfire")?)?,
            monitored: read("monitored", value("monitored")?)?,
            run_millis: (read("run", low)?, read("run", high)?),
            slow: read("slow", value("slow")?)?,
            strikes: Vec::new(),
            quiet: read("quiet", value("quiet")?)?,
        };
        for line in lines {
            let wrong = || format!("`{line}`: expected `at <ms> process <n> <fault>`");
            let rest = line.strip_prefix("at ").ok_or_else(wrong)?;
            let (at, rest) = rest.split_once(" process ").ok_or_else(wrong)?;
            let (process, fault) = rest.split_once(' ').ok_or_else(wrong)?;
            schedule.strikes.push((read("at", at)?, read("process", process)?, fault.parse()?));
        }
        Ok(schedule)
    }
}
