//! Java 3.0.4 beside us: what upstream's users have reported, done in the same way to a cluster of Java's and to one of ours.
//!
//! Each row makes its own cluster, does one thing, and says what it saw; whether that is as it should be is decided by one
//! bound, the same for both.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cluster::{Cluster, Job, SESSION, Side};
use crate::journal::Run;
use crate::wait::{eventually, pause, wall_clock_millis};

const PATIENCE: Duration = Duration::from_secs(90);
/// The job of every row.
const JOB: Job = Job {
    name: "job",
    cron: "* * * * * ?",
    period: 1,
    items: 4,
    run: 100,
    slow: None,
    failover: false,
    misfire: true,
    monitored: true,
};

/// Something that upstream is known for.
struct Row {
    name: &'static str,
    what: &'static str,
    issues: &'static str,
    run: fn(Side) -> Saw,
}

/// What was seen, and whether it is as it should be.
struct Saw {
    good: bool,
    what: String,
}

const ROWS: [Row; 7] = [
    Row {
        name: "many-items",
        what: "failover on, an instance is killed in runs of three items: all are taken over within the session timeout (4 s) and \
               3 s, though the other one's own runs last longer",
        issues: "#523 #526 #571 #577 #669 #1777",
        run: many_items,
    },
    Row {
        name: "long-run",
        what: "an instance joins while one item runs for 20 s: no other item rests for more than 5 s",
        issues: "#61 #69 #778",
        run: long_run,
    },
    Row {
        name: "death-in-resharding",
        what: "an instance joins while one item runs for 15 s, and is killed before that ends: every item runs on within 40 s",
        issues: "#1388 #1471 #2395",
        run: death_in_resharding,
    },
    Row {
        name: "rolling",
        what: "an instance joins and is stopped, five times, with misfire on: no firing of an item is lost or doubled",
        issues: "#394 #525 #643 #1995 #2031 #2126",
        run: rolling,
    },
    Row {
        name: "restart-disabled",
        what: "an operator disables a server, and its agent is killed and started again: it begins nothing",
        issues: "#84 #189 #388 #518 #537 #554",
        run: restart_disabled,
    },
    Row {
        name: "catch-up",
        what: "misfire on, a firing falls into a run, four times: it is caught up within 2 s of that run's end",
        issues: "#250 #390 #470 #596 #727 #2222",
        run: catch_up,
    },
    Row {
        name: "trigger",
        what: "an operator triggers the job while it runs: it runs once more within 2 s of that run's end",
        issues: "#246 #390 #436 #470 #643 #1456",
        run: trigger,
    },
];

/// Runs all rows, or the one of that name, and gives the table, and whether all is as it should be on our side.
///
/// # Errors
///
/// When there is no such row.
pub fn beside(which: Option<&str>, say: fn(&str)) -> Result<(String, bool), String> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| which.is_none_or(|name| name == row.name)).collect();
    if rows.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("`{}`: no such row; there are {}", which.unwrap_or_default(), names.join(", ")));
    }
    let mut table = String::from("| | issues | Java 3.0.4 | Rust | command |\n| --- | --- | --- | --- | --- |\n");
    let mut good = true;
    for row in rows {
        let cells = [Side::Java, Side::Rust].map(|side| {
            let saw = std::panic::catch_unwind(|| (row.run)(side));
            let saw = saw.unwrap_or_else(|panic| Saw { good: false, what: super::words(&*panic) });
            good &= saw.good || side == Side::Java;
            let cell = format!("{}: {}", if saw.good { "green" } else { "**red**" }, saw.what);
            say(&format!("{} {side:?}: {cell}", row.name));
            cell
        });
        let [java, rust] = cells;
        let command = format!("`cargo xtask rig beside {}`", row.name);
        table += &format!("| {} | {} | {java} | {rust} | {command} |\n", row.what, row.issues);
    }
    Ok((table, good))
}

/// A cluster of one side, with its folder.
struct Place {
    cluster: Cluster,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new(side: Side, members: usize, later: usize, jobs: Vec<Job>) -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start(folder.path(), &vec![side; members], later, jobs);
        Place { cluster, _folder: folder }
    }

    fn runs(&self) -> Vec<Run> {
        self.cluster.jobs[0].1.runs()
    }

    /// The items of a member's latest runs.
    fn items_of(&self, member: usize) -> BTreeSet<u32> {
        let (runs, pid) = (self.runs(), self.cluster.pid(member));
        let latest = runs.iter().map(|run| run.start).max().unwrap_or_default();
        runs.iter().filter(|run| run.pid == pid && run.start + 900 > latest).map(|run| run.item).collect()
    }

    /// Waits for the start of a firing that all items take part in; gives when the last of them began.
    fn wait_for_firing(&self) -> i64 {
        let from = wall_clock_millis();
        eventually("all items run", PATIENCE, || {
            let runs = self.runs();
            let later: BTreeSet<u32> = runs.iter().filter(|run| run.start > from).map(|run| run.item).collect();
            let last = runs.last().map(|run| run.start)?;
            (later.len() == self.cluster.jobs[0].0.items as usize).then_some(last)
        })
    }
}

fn many_items(side: Side) -> Saw {
    let job = Job { cron: "0/30 * * * * ?", items: 6, run: 8_000, failover: true, ..JOB };
    let mut place = Place::new(side, 2, 0, vec![job]);
    let fired = place.wait_for_firing();
    let lost = place.items_of(0);
    place.cluster.leave(0, false);
    let killed = wall_clock_millis();
    pause(Duration::from_secs(25));
    let runs = place.runs();
    let again =
        |item: &u32| runs.iter().find(|run| run.item == *item && run.start > fired + 500).map(|run| run.start - killed);
    let times: Vec<Option<i64>> = lost.iter().map(again).collect();
    let bound = i64::from(SESSION) + 3_000;
    let text: Vec<String> =
        times.iter().map(|time| time.map_or("never".to_owned(), |time| format!("{:.1} s", seconds(time)))).collect();
    Saw {
        good: !times.is_empty() && times.iter().all(|time| time.is_some_and(|time| time <= bound)),
        what: format!("taken over after {}", text.join(", ")),
    }
}

/// How long the items but the first rest at the most in a spell, in milliseconds.
fn longest_rest(runs: &[Run], items: u32, from: i64, to: i64) -> i64 {
    let rest = |item: u32| {
        let starts =
            runs.iter().filter(|run| run.item == item && run.start > from && run.start < to).map(|run| run.start);
        let times: Vec<i64> = [from].into_iter().chain(starts).chain([to]).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    };
    (1..items).map(rest).max().unwrap_or_default()
}

fn long_run(side: Side) -> Saw {
    let mut place = Place::new(side, 3, 1, vec![Job { run: 20_000, slow: Some(0), ..JOB }]);
    let begun = wait_for_slow(&place);
    place.cluster.join(2);
    let from = wall_clock_millis();
    pause(Duration::from_millis(u64::try_from(begun + 18_000 - from).unwrap_or_default()));
    let rest = longest_rest(&place.runs(), JOB.items, from, wall_clock_millis());
    Saw { good: rest <= 5_000, what: format!("the longest rest was {:.1} s", seconds(rest)) }
}

/// Waits for a fresh run of the slow item; gives its begin.
fn wait_for_slow(place: &Place) -> i64 {
    let from = wall_clock_millis();
    let fresh = || place.runs().iter().find(|run| run.item == 0 && run.start > from).map(|run| run.start);
    eventually("the slow item runs", PATIENCE, fresh)
}

fn death_in_resharding(side: Side) -> Saw {
    let mut place = Place::new(side, 3, 1, vec![Job { run: 15_000, slow: Some(0), ..JOB }]);
    wait_for_slow(&place);
    place.cluster.join(2);
    pause(Duration::from_secs(2));
    place.cluster.leave(2, false);
    pause(Duration::from_secs(40));
    let from = wall_clock_millis();
    pause(Duration::from_secs(20));
    let runs = place.runs();
    let items: BTreeSet<u32> =
        runs.iter().filter(|run| run.end.is_none_or(|end| end > from)).map(|run| run.item).collect();
    Saw { good: items.len() == JOB.items as usize, what: format!("{} of {} items run", items.len(), JOB.items) }
}

fn rolling(side: Side) -> Saw {
    let mut place = Place::new(side, 3, 1, vec![Job { run: 0, ..JOB }]);
    place.wait_for_firing();
    let from = wall_clock_millis() / 1_000 + 2;
    for _ in 0..5 {
        place.cluster.join(2);
        pause(Duration::from_secs(4));
        place.cluster.leave(2, true);
        pause(Duration::from_secs(3));
    }
    let to = wall_clock_millis() / 1_000;
    pause(Duration::from_secs(3));
    // By number and not by moment: what is caught up counts; two at one moment are one too many.
    let runs: Vec<Run> = place.runs().into_iter().filter(|r| r.start / 1_000 >= from && r.start / 1_000 < to).collect();
    let twice = |run: &&Run| {
        let near = |other: &&Run| other.item == run.item && other.start > run.start && other.start < run.start + 400;
        runs.iter().any(|other| near(&other))
    };
    let doubled = runs.iter().filter(twice).count();
    let due = usize::try_from(to - from).unwrap_or_default() * JOB.items as usize;
    let lost = (due + doubled).saturating_sub(runs.len());
    Saw { good: lost == 0 && doubled == 0, what: format!("{lost} of {due} lost, {doubled} doubled") }
}

fn restart_disabled(side: Side) -> Saw {
    let mut place = Place::new(side, 2, 0, vec![Job { run: 0, ..JOB }]);
    place.wait_for_firing();
    place.cluster.operations(&["server", "disable", &place.cluster.address(0)]);
    place.cluster.leave(0, false);
    pause(Duration::from_millis(u64::from(SESSION) + 2_000));
    place.cluster.join(0);
    pause(Duration::from_secs(15));
    let pid = place.cluster.pid(0);
    let runs = place.runs().iter().filter(|run| run.pid == pid).count();
    Saw { good: runs == 0, what: format!("{runs} runs in 15 s") }
}

/// Waits for the firing at a half or a whole minute, does something in its run of eight seconds, and sees whether that is
/// followed by one more, and soon.
fn after_a_run(place: &Place, meanwhile: impl FnOnce(&Place)) -> Saw {
    let from = wall_clock_millis();
    let is_first = |run: &&Run| run.start > from && run.start % 30_000 < 4_000;
    let begun = eventually("the firing", PATIENCE, || place.runs().iter().find(is_first).map(|run| run.start));
    pause(Duration::from_secs(2));
    meanwhile(place);
    pause(Duration::from_millis(u64::try_from(begun + 24_000 - wall_clock_millis()).unwrap_or_default()));
    let runs = place.runs();
    let end = runs.iter().find(|run| run.start == begun).and_then(|run| run.end).unwrap_or(begun);
    // At the same moment too: the marks of time are of different processes.
    let later: Vec<i64> = runs.iter().filter(|run| run.start > begun).map(|run| run.start - end).collect();
    let times: Vec<String> = later.iter().map(|after| format!("{:.1} s", seconds(*after))).collect();
    let what = if later.is_empty() { "it never ran".to_owned() } else { format!("ran {} behind it", times.join(", ")) };
    Saw { good: matches!(later.as_slice(), [after] if *after <= 2_000), what }
}

fn catch_up(side: Side) -> Saw {
    // Of two firings in a minute the first one's run covers the second.
    let job = Job { cron: "0,6,30,36 * * * * ?", items: 1, run: 8_000, ..JOB };
    let place = Place::new(side, 1, 0, vec![job]);
    let rounds: Vec<Saw> = (0..4).map(|_| after_a_run(&place, |_| ())).collect();
    let good = rounds.iter().filter(|saw| saw.good).count();
    Saw { good: good == rounds.len(), what: format!("{good} of {} caught up", rounds.len()) }
}

fn trigger(side: Side) -> Saw {
    let place = Place::new(side, 1, 0, vec![Job { cron: "0,30 * * * * ?", items: 1, run: 8_000, ..JOB }]);
    after_a_run(&place, |place| place.cluster.operations(&["job", "trigger", "job"]))
}

fn seconds(millis: i64) -> f64 {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default()).as_secs_f64()
}
