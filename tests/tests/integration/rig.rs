//! The short form of `cargo xtask rig`: the first minutes of what it does for hours.

use std::time::Duration;

use elasticjob_tests::rig::{self, Plan};

fn run(mixed: bool, seed: u64) {
    let say: fn(&str) = |line| println!("{line}");
    let report = rig::run(&Plan { seed, chapter: Duration::from_secs(60), chapters: 1, mixed, say });
    println!("{report}");
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
    assert!(report.jobs == 3 && report.faults.len() >= 5, "{report}");
    assert!(report.ours > 300 && report.changes > 1_000 && (report.java > 50) == mixed, "{report}");
}

#[test]
fn four_of_ours_on_hosts_of_their_own() {
    run(false, 11);
}

#[test]
fn two_of_ours_and_two_of_java_s_on_hosts_of_their_own() {
    run(true, 12);
}
