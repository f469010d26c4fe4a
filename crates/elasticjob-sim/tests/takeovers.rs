//! How the runs of a dead instance are taken over, and how fast.

use std::collections::BTreeMap;
use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Entry, Fault, Options, World};

const SESSION: Duration = Duration::from_secs(4);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn alone_with_runs_of_twelve_seconds(seed: u64, document: &JobDocument) -> World {
    let run_millis = (12_000, 12_000);
    World::new(Options { run_millis, session_timeout: SESSION, ..Options::new(seed, document.clone(), 1) })
}

/// Five instances with a hundred items each, one is killed while all of them run: four survivors share its runs.
#[test]
fn all_runs_of_a_dead_instance_are_taken_over_within_a_second_of_the_end_of_its_session() {
    let mut document = JobDocument::new("job", 500);
    document.failover = true;
    document.cron = Some("0/10 * * * * ?".into());
    for seed in 0..3 {
        let options =
            Options { run_millis: (6_000, 6_000), session_timeout: SESSION, ..Options::new(seed, document.clone(), 5) };
        let mut world = World::new(options);
        world.run_until(secs(22));
        world.strike(secs(22), 0, Fault::Crash { restart: None });
        world.run_until(secs(29));
        let killed = World::moment(secs(22));
        let dead = |entry: &&Entry| entry.process == 0 && entry.start <= killed && entry.end.is_none();
        let lost: Vec<u32> = world.journal().iter().filter(dead).map(|entry| entry.item).collect();
        assert_eq!(lost.len(), 100, "seed {seed}: all of its items ran");
        let mut by_survivor: BTreeMap<usize, usize> = BTreeMap::new();
        for item in lost {
            let taken = |entry: &&Entry| entry.item == item && entry.source == Source::Failover;
            let taken = world.journal().iter().find(taken).unwrap_or_else(|| panic!("seed {seed}: item {item}"));
            let limit = killed + SESSION + secs(1);
            assert!(taken.start <= limit, "seed {seed}: item {item} at {}, after {limit}", taken.start);
            *by_survivor.entry(taken.process).or_default() += 1;
        }
        assert!(by_survivor.len() >= 3, "seed {seed}: they share them: {by_survivor:?}");
    }
}

/// The new owner did not see the missed firing; its catch-up has that due time nevertheless.
#[test]
fn a_catch_up_by_another_instance_has_the_due_time_of_the_firing_that_was_missed() {
    let document = JobDocument { cron: Some("0/10 * * * * ?".into()), misfire: true, ..JobDocument::new("job", 1) };
    for seed in 0..20 {
        let mut world = alone_with_runs_of_twelve_seconds(seed, &document);
        world.strike(Duration::from_millis(20_500), 1, Fault::Join);
        world.strike(Duration::from_millis(21_500), 0, Fault::Stop { restart: None });
        world.run_until(secs(36));
        let caught_up: Vec<&Entry> = world.journal().iter().filter(|entry| entry.source == Source::Misfire).collect();
        assert!(!caught_up.is_empty(), "seed {seed}: {}", world.story());
        assert_eq!(caught_up[0].process, 1, "seed {seed}: by the other one");
        assert_eq!(caught_up[0].due, World::moment(secs(20)), "seed {seed}: {}", world.story());
    }
}

/// A firing that falls into a run of an instance that is leaving is caught up by its next start.
#[test]
fn a_firing_in_the_last_run_before_a_restart_is_caught_up() {
    let document = JobDocument { cron: Some("0/10 * * * * ?".into()), misfire: true, ..JobDocument::new("job", 2) };
    for seed in 0..20 {
        let mut world = alone_with_runs_of_twelve_seconds(seed, &document);
        world.strike(secs(23), 0, Fault::Stop { restart: Some(secs(1)) });
        world.run_until(secs(39));
        let missed = World::moment(secs(30));
        let caught_up = world.journal().iter().filter(|entry| entry.source == Source::Misfire && entry.due == missed);
        let story = world.story();
        assert_eq!(caught_up.count(), 2, "seed {seed}: {story}");
        assert!(!story.contains("no Rust instance started"), "seed {seed}: the firing was caught up\n{story}");
    }
}

/// With static sharding the items of the one that was cut off stay with their new owner.
#[test]
fn an_item_whose_run_goes_on_in_a_new_session_is_not_begun_by_its_new_owner() {
    let document = JobDocument {
        cron: Some("0/20 * * * * ?".into()),
        static_sharding: true,
        monitor_execution: true,
        ..JobDocument::new("job", 4)
    };
    let mut moved = 0;
    for seed in 0..20 {
        let options = Options {
            run_millis: (30_000, 30_000),
            session_timeout: SESSION,
            ..Options::new(seed, document.clone(), 2)
        };
        let mut world = World::new(options);
        world.strike(secs(22), 0, Fault::Cut(secs(8)));
        world.run_until(secs(60));
        let of_before = |entry: &&Entry| entry.process == 0 && entry.start < World::moment(secs(22));
        for before in world.journal().iter().filter(of_before) {
            let end = before.end.expect("it ends");
            let overlaps =
                |entry: &&Entry| entry.item == before.item && before.start < entry.start && entry.start < end;
            let overlap = world.journal().iter().find(overlaps);
            assert!(overlap.is_none(), "seed {seed}: {overlap:?}\n{}", world.story());
            let later = |entry: &&Entry| entry.item == before.item && entry.process == 1 && entry.start >= end;
            moved += world.journal().iter().filter(later).count();
        }
    }
    assert!(moved > 0, "the other one runs them after that");
}
