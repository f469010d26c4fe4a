//! A wall clock that is set back, by an administrator or a time server.

use std::path::Path;
use std::time::Duration;

use elasticjob_tests::{Process, agent_with_clock_file, eventually, field};

const PATIENCE: Duration = Duration::from_secs(60);

/// The due times that were begun, in the order of the log.
fn begun(process: &Process) -> Vec<jiff::Timestamp> {
    let log = process.log();
    let due = |line: &str| line.contains("started items").then(|| field(line, "due"))??.parse().ok();
    log.lines().filter_map(due).collect()
}

fn set(clock: &Path, seconds: i64) {
    // Written beside it first: a half-written one would be read.
    let draft = clock.with_extension("draft");
    std::fs::write(&draft, format!("{seconds:+}\n")).expect("a file");
    std::fs::rename(&draft, clock).expect("a file");
}

#[test]
fn a_clock_that_is_set_back_is_noticed_and_what_was_begun_in_the_last_minute_is_not_begun_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, clock) = (folder.path().join("jobs.yaml"), folder.path().join("clock"));
    let job =
        "a: {elasticJobType: SCRIPT, cron: '* * * * * ?', shardingTotalCount: 1, props: {script.command.line: 'true'}}";
    std::fs::write(&file, format!("elasticjob:\n  jobs:\n    {job}\n")).expect("a file");
    set(&clock, 0);
    let mut first = agent_with_clock_file(&file, &folder.path().join("first"), &clock);
    eventually("it runs", PATIENCE, || (begun(&first).len() > 3).then_some(()));
    let set_back = |process: &Process, seconds: i64, line: &str| {
        set(&clock, seconds);
        eventually(line, PATIENCE, || process.log().contains(line).then_some(()));
        let before = begun(process).len();
        eventually("it runs by the new time", PATIENCE, || (begun(process).len() > before + 2).then_some(()));
    };

    set_back(&first, -5, "due times that the clock passes a second time do not start again");
    let due = begun(&first);
    assert!(due.is_sorted_by(|a, b| a < b), "no due time is begun twice: {due:?}");

    set_back(&first, -3_605, "due times that the clock passes a second time start again");
    let due = begun(&first);
    let last = due.len() - 1;
    assert!(due[last] < due[0], "an hour earlier: {due:?}");
    first.signal("TERM");
    assert_eq!(first.wait(PATIENCE).code(), Some(0), "{}", first.log());

    set(&clock, -3_625);
    let mut second = agent_with_clock_file(&file, &folder.path().join("second"), &clock);
    eventually("a start says that it waits", PATIENCE, || {
        second
            .log()
            .contains("in the future by this host's clock (see `due`); due times up to it do not start again")
            .then_some(())
    });
    eventually("it runs", PATIENCE, || (!begun(&second).is_empty()).then_some(()));
    assert!(begun(&second)[0] > due[last], "{:?} after {due:?}", begun(&second));
    second.signal("TERM");
    assert_eq!(second.wait(PATIENCE).code(), Some(0), "{}", second.log());

    set(&clock, -7_200);
    let third = agent_with_clock_file(&file, &folder.path().join("third"), &clock);
    eventually("a start says that due times come again", PATIENCE, || {
        third.log().contains("more than 60 s in the future by this host's clock").then_some(())
    });
    eventually("it runs", PATIENCE, || (!begun(&third).is_empty()).then_some(()));
}
