//! Schedules of faults, judged by the oracle: a fixed set of seeds, those that found something once, and planted defects.
//! `fuzz` runs the same for millions of seeds.

use std::path::Path;

use elasticjob_sim::{Defect, Schedule};

/// Variations of a regression: the same faults with other latencies and run times.
const VARIATIONS: u64 = 10;

fn assert_clean(name: &str, schedule: &Schedule) {
    let outcome = schedule.judge(None);
    let violations: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{name}:\n{}\n{schedule}\n{}", violations.join("\n"), outcome.story);
}

#[test]
fn a_fixed_set_of_seeds_violates_nothing() {
    let (mut runs, mut faults) = (0, 0);
    for seed in 0..200 {
        let schedule = Schedule::from_seed(seed);
        assert_clean(&format!("seed {seed}"), &schedule);
        faults += schedule.strikes.len();
        runs += schedule.judge(None).runs;
    }
    assert!(runs > 8_000 && faults > 1_000, "{runs} runs and {faults} faults: the schedules do too little");
}

#[test]
fn what_was_found_once_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the regressions") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a schedule");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let schedule: Schedule = text.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
        for variation in 0..VARIATIONS {
            let varied = Schedule { seed: schedule.seed + variation, ..schedule.clone() };
            assert_clean(&name, &varied);
        }
        count += 1;
    }
    assert!(count >= 57, "{count} regressions");
}

#[test]
fn the_same_seed_gives_the_same_story() {
    for seed in [3, 57, 238] {
        let schedule = Schedule::from_seed(seed);
        let (first, second) = (schedule.run(None), schedule.run(None));
        assert!(first.story().lines().count() > 20);
        assert_eq!(first.story(), second.story(), "seed {seed}");
        assert_eq!(first.history(), second.history(), "seed {seed}");
    }
}

#[test]
fn a_schedule_reads_back_as_it_was_written() {
    for seed in 0..500 {
        let schedule = Schedule::from_seed(seed);
        let text = format!("# a remark\n{schedule}");
        assert_eq!(text.parse(), Ok(schedule), "{text}");
    }
    for (text, told) in [
        ("", "`seed`"),
        ("seed 1 instances 2", "`run` is missing"),
        (
            "seed x instances 2 peers 0 items 1 failover true misfire true monitored true run 5..9 slow true quiet 9\ncron *",
            "`seed`",
        ),
        (
            "seed 1 instances 2 peers 0 items 1 failover true misfire true monitored true run 5..9 slow true quiet 9\ncron *\nat 5 process 0 fire",
            "`fire`",
        ),
    ] {
        let error = text.parse::<Schedule>().expect_err("it is wrong");
        assert!(error.contains(told), "`{error}` does not tell {told}");
    }
}

#[test]
fn every_planted_defect_is_found() {
    let missed: Vec<&str> = Defect::ALL.iter().filter(|d| d.find().is_none()).map(|d| d.about()).collect();
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
