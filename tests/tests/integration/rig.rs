//! The short form of `cargo xtask rig`: the first minutes of what it does for hours.

use std::time::Duration;

use elasticjob_tests::rig::{self, Kind, Plan};

#[expect(clippy::print_stdout, reason = "a failing test shows what was done")]
fn run(mixed: bool, seed: u64) {
    let say: fn(&str) = |line| println!("{line}");
    let length = Duration::from_secs(130);
    let report = rig::run(&Plan { seed, length, chapter: length, mixed, say });
    println!("{report}");
    let complaints: Vec<String> = report.violations.iter().chain(&report.failures).cloned().collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(report.jobs == 3 && report.faults.len() == Kind::ALL.len(), "each kind of fault: {report}");
    assert!(report.ours > 500 && report.changes > 2_000 && (report.java > 50) == mixed, "{report}");
}

#[test]
fn a_server_whose_log_is_damaged_starts_empty() {
    assert_eq!(rig::heal_a_damaged_log(), 1);
}

#[test]
fn four_of_ours_on_hosts_of_their_own() {
    run(false, 11);
}

#[test]
fn two_of_ours_and_two_of_java_s_on_hosts_of_their_own() {
    run(true, 12);
}
