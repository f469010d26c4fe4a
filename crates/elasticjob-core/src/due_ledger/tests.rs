//! Tables of recorded runs and accounts, and the verdicts that follow from them.

use super::*;

/// A job of one item that is due every ten seconds, five times from second 100 on; it is second 200.
fn record() -> Record {
    let at = |seconds: i64| Timestamp(seconds * 1_000);
    Record {
        dues: (10..15).map(|ten| at(ten * 10)).collect(),
        next: Some(at(150)),
        items: 1,
        since: Some(at(0)),
        now: at(200),
        ..Record::default()
    }
}

fn run(cause: Cause, start: f64, end: Option<f64>) -> ItemRun {
    let at = |seconds: f64| Timestamp((seconds * 1_000.0) as i64);
    ItemRun { item: 0, cause, start: at(start), end: end.map(at), success: true }
}

fn on_time(seconds: f64) -> ItemRun {
    run(Cause::Schedule, seconds + 0.01, Some(seconds + 1.0))
}

fn told(what: NotBegun, first: i64, last: i64) -> Told {
    let (first, last) = (Timestamp(first * 1_000), Timestamp(last * 1_000));
    Told { what, items: None, first, last, reason: "because".to_owned() }
}

fn fates(record: &Record) -> Vec<(&'static str, String)> {
    judge(record).into_iter().map(|entry| (entry.fate.word(), entry.reason)).collect()
}

#[track_caller]
fn expect(record: &Record, expected: [&str; 5]) -> Vec<String> {
    let found = fates(record);
    assert_eq!(found.iter().map(|(word, _)| *word).collect::<Vec<_>>(), expected, "{found:?}");
    found.into_iter().map(|(_, reason)| reason).collect()
}

#[test]
fn what_ran_is_on_time_or_late() {
    let mut record = record();
    record.runs = [100.0, 110.0, 120.0, 140.0].map(on_time).into();
    record.runs.push(run(Cause::Schedule, 137.0, Some(137.5)));
    let reasons = expect(&record, ["ran", "ran", "ran", "late", "ran"]);
    assert_eq!(reasons[3], "started 7 s late");
}

#[test]
fn nothing_recorded_is_missed_unknown_or_waiting() {
    let mut record = record();
    record.since = Some(Timestamp(115_000));
    record.now = Timestamp(144_000);
    let reasons = expect(&record, ["unknown", "unknown", "missed", "missed", "waiting"]);
    assert_eq!(reasons[0], "the recorded history begins later");
    assert_eq!(reasons[2], "no run is recorded, and no instance gave a reason");
    record.since = None;
    expect(&record, ["unknown", "unknown", "unknown", "unknown", "waiting"]);
}

#[test]
fn what_an_instance_said_comes_before_what_the_runs_suggest() {
    let mut record = record();
    record.runs = vec![on_time(100.0), run(Cause::Schedule, 113.0, Some(114.0))];
    record.told = vec![
        Told { items: Some([0].into()), ..told(NotBegun::Skipped, 110, 110) },
        told(NotBegun::Passed, 120, 130),
        told(NotBegun::Lost, 140, 140),
    ];
    let reasons = expect(&record, ["ran", "skipped", "missed", "missed", "lost"]);
    assert_eq!(reasons[1..], ["because"; 4], "the run of second 113 was triggered");
}

#[test]
fn a_catch_up_follows_what_was_missed_with_an_account_or_without() {
    let mut record = record();
    record.runs = vec![
        run(Cause::Schedule, 100.0, Some(125.0)),
        run(Cause::Misfire, 125.1, Some(126.0)),
        on_time(130.0),
        on_time(140.0),
    ];
    let reasons = expect(&record, ["ran", "caught-up", "caught-up", "ran", "ran"]);
    assert_eq!(reasons[1], "the item was still running; a catch-up started 15 s later");
    record.told = vec![told(NotBegun::Misfired, 110, 110), told(NotBegun::Misfired, 120, 120)];
    expect(&record, ["ran", "caught-up", "caught-up", "ran", "ran"]);
    // Without a catch-up (`misfire: false` of Java).
    record.told.clear();
    record.runs.remove(1);
    let reasons = expect(&record, ["ran", "skipped", "skipped", "ran", "ran"]);
    assert_eq!(reasons[1], "the previous run of the item had not ended");
}

#[test]
fn a_run_without_an_end_goes_on_or_was_taken_over_or_is_lost() {
    let mut record = record();
    record.runs = vec![
        run(Cause::Schedule, 100.0, None),
        run(Cause::Failover, 104.0, Some(105.0)),
        run(Cause::Schedule, 110.0, None),
        on_time(120.0),
        on_time(130.0),
        run(Cause::Schedule, 140.0, None),
    ];
    let reasons = expect(&record, ["late", "lost", "ran", "ran", "ran"]);
    assert_eq!(reasons[0], "its instance died; another one took the run over");
    // The session of the dead instance ends after the next due times.
    record.runs = vec![run(Cause::Schedule, 100.0, None), run(Cause::Failover, 131.0, Some(132.0)), on_time(140.0)];
    record.told = vec![told(NotBegun::Passed, 110, 130)];
    expect(&record, ["late", "missed", "missed", "missed", "ran"]);
}

/// Found by a review: an account was taken for more than its instance knows.
#[test]
fn what_others_ran_is_not_denied_by_an_instance_that_did_not_run_it() {
    let mut record = record();
    record.runs = [100.0, 110.0, 120.0].map(on_time).into();
    record.told = vec![told(NotBegun::Skipped, 100, 100), told(NotBegun::Passed, 110, 130)];
    expect(&record, ["ran", "ran", "ran", "missed", "missed"]);
    let of_item = |what, due| Told { items: Some([0].into()), ..told(what, due, due) };
    record.told = vec![of_item(NotBegun::Skipped, 110), of_item(NotBegun::Skipped, 120)];
    // Of its own items it knows: these runs were triggered.
    expect(&record, ["ran", "skipped", "skipped", "missed", "missed"]);
}

#[test]
fn a_catch_up_that_never_comes_is_missed_and_one_of_later_is_another_s() {
    let mut record = record();
    let misfired = |due| Told { items: Some([0].into()), ..told(NotBegun::Misfired, due, due) };
    record.runs = vec![run(Cause::Schedule, 100.0, Some(115.0)), on_time(120.0)];
    record.runs.extend([run(Cause::Schedule, 130.0, Some(141.0)), run(Cause::Misfire, 141.2, Some(142.0))]);
    record.told = vec![misfired(110), misfired(140)];
    let reasons = expect(&record, ["ran", "missed", "ran", "ran", "caught-up"]);
    assert_eq!(reasons[1], "the item was still running, and no catch-up is recorded");
    record.runs = vec![run(Cause::Schedule, 100.0, None)];
    record.told = [110, 120, 130, 140].map(misfired).into();
    expect(&record, ["ran", "waiting", "waiting", "waiting", "waiting"]);
}

#[test]
fn a_run_that_waited_for_a_thread_is_late_and_not_missed() {
    let mut record = record();
    record.runs = vec![run(Cause::Schedule, 112.0, Some(113.0)), on_time(120.0), on_time(130.0), on_time(140.0)];
    record.told = vec![Told { items: Some([0].into()), ..told(NotBegun::Skipped, 110, 110) }];
    let reasons = expect(&record, ["late", "skipped", "ran", "ran", "ran"]);
    assert_eq!(reasons[0], "started 12 s late");
}

#[test]
fn due_times_of_another_schedule_and_items_of_a_later_count_are_unknown() {
    let mut record = record();
    record.changed = Some(Timestamp(115_000));
    record.items = 2;
    record.runs = [120.0, 130.0, 140.0].map(on_time).into();
    record.runs.push(ItemRun { item: 1, ..on_time(140.0) });
    let reasons = expect(&record, ["unknown", "unknown", "unknown", "unknown", "ran"]);
    assert_eq!(reasons[1], "the schedule was another one");
    assert_eq!(reasons[2], "no earlier run of this item is recorded");
}

#[test]
fn a_disabled_job_skips_and_without_an_instance_it_misses() {
    let mut record = record();
    let id = "10.0.0.1@-@1".to_owned();
    let other = |enabled| Change::Server { server: "10.0.0.2".into(), enabled };
    let at = |seconds: i64, change: Change| (Timestamp(seconds * 1_000), change);
    record.changes = vec![
        at(90, Change::Joined { instance: id.clone() }),
        at(95, other(true)),
        at(96, Change::Server { server: "10.0.0.1".into(), enabled: false }),
        at(105, other(false)),
        at(115, Change::Job { enabled: true }),
        at(116, Change::Item { item: 0, enabled: false }),
        at(125, Change::Item { item: 0, enabled: true }),
        at(135, Change::Left { instance: id }),
    ];
    let reasons = expect(&record, ["missed", "skipped", "skipped", "missed", "missed"]);
    assert_eq!(reasons[1], "the job was disabled");
    assert_eq!(reasons[2], "the item was disabled");
    assert_eq!(reasons[4], "no instance was running");
}

#[test]
fn the_fate_of_a_due_time_is_the_most_severe_of_its_items() {
    let mut record = record();
    record.items = 2;
    record.runs = vec![on_time(100.0), ItemRun { item: 1, success: false, ..on_time(100.0) }, on_time(110.0)];
    let entries = judge(&record);
    assert_eq!((entries[0].fate, entries[0].failed(), entries[0].count(Fate::Ran)), (Fate::Ran, 1, 2));
    assert_eq!((entries[1].fate, entries[1].count(Fate::Ran), entries[1].count(Fate::Missed)), (Fate::Missed, 1, 1));
    assert!(Fate::ALL.is_sorted());
}
