//! What becomes of firings that fall into the time in which an item or its server is disabled.

use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Entry, Fault, Options, Order, World};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The ledger does not record it: no instance began it.
#[test]
fn a_firing_of_a_disabled_item_is_not_begun_when_its_server_is_enabled_later() {
    let document = JobDocument { cron: Some("0/20 * * * * ?".into()), ..JobDocument::new("job", 3) };
    for seed in 0..20 {
        let options = Options { run_millis: (500, 500), ..Options::new(seed, document.clone(), 1) };
        let mut world = World::new(options);
        for (at, order) in
            [(38, Order::DisableItem(2)), (43, Order::EnableItem(2)), (46, Order::Disable), (49, Order::Enable)]
        {
            world.strike(secs(at), 0, Fault::Order(order));
        }
        world.run_until(secs(70));
        let due = World::moment(secs(40));
        let begun = |item: u32| world.journal().iter().filter(|entry| entry.item == item && entry.due == due).count();
        assert_eq!([begun(0), begun(1), begun(2)], [1, 1, 0], "seed {seed}: {}", world.story());
        let next = |entry: &&Entry| entry.item == 2 && entry.due == World::moment(secs(60));
        assert!(world.journal().iter().any(|entry| next(&entry)), "seed {seed}: it runs again");
    }
}

/// The node `misfire` does not say which firing was missed.
#[test]
fn a_catch_up_after_a_disabled_time_has_the_due_time_of_the_firing_that_was_missed() {
    let document = JobDocument { cron: Some("0/5 * * * * ?".into()), misfire: true, ..JobDocument::new("job", 1) };
    for seed in 0..20 {
        let options = Options { run_millis: (7_000, 7_000), ..Options::new(seed, document.clone(), 1) };
        let mut world = World::new(options);
        world.strike(secs(11), 0, Fault::Order(Order::Disable));
        world.strike(secs(33), 0, Fault::Order(Order::Enable));
        world.run_until(secs(40));
        let story = world.story();
        let enabled = |entry: &&Entry| entry.start >= World::moment(secs(33));
        let first = world.journal().iter().find(enabled).unwrap_or_else(|| panic!("seed {seed}: it runs\n{story}"));
        let disabled = World::moment(secs(11))..World::moment(secs(33));
        assert!(!disabled.contains(&first.due), "seed {seed}: {first:?}\n{story}");
        assert_eq!((first.source, first.due), (Source::Misfire, World::moment(secs(10))), "seed {seed}\n{story}");
    }
}

/// An operator disables an item whose run does harm, and kills the process.
#[test]
fn an_interrupted_run_of_a_disabled_item_is_taken_over_once_when_it_is_enabled() {
    let mut document = JobDocument { cron: Some("0/20 * * * * ?".into()), ..JobDocument::new("job", 6) };
    document.failover = true;
    for seed in 0..20 {
        let session_timeout = secs(4);
        let mut world = World::new(Options {
            run_millis: (6_000, 6_000),
            session_timeout,
            ..Options::new(seed, document.clone(), 3)
        });
        (0..6).for_each(|item| world.strike(secs(22), 1, Fault::Order(Order::DisableItem(item))));
        world.strike(secs(23), 0, Fault::Crash { restart: None });
        (0..6).for_each(|item| world.strike(secs(50), 1, Fault::Order(Order::EnableItem(item))));
        world.run_until(secs(58));
        let story = world.story();
        let killed = World::moment(secs(23));
        let dead = |entry: &&Entry| entry.process == 0 && entry.start <= killed && entry.end.is_none();
        let lost: Vec<u32> = world.journal().iter().filter(dead).map(|entry| entry.item).collect();
        assert_eq!(lost.len(), 2, "seed {seed}: its items ran\n{story}");
        for item in lost {
            let taken = |entry: &&Entry| entry.item == item && entry.source == Source::Failover;
            let taken: Vec<&Entry> = world.journal().iter().filter(taken).collect();
            assert_eq!(taken.len(), 1, "seed {seed}: item {item}\n{story}");
            assert!(taken[0].start >= World::moment(secs(50)), "seed {seed}: {:?}\n{story}", taken[0]);
            assert_eq!(taken[0].due, World::moment(secs(20)), "seed {seed}\n{story}");
        }
        let waits = story.matches("is not taken over yet, because the item is disabled").count();
        assert!(waits > 0, "seed {seed}: it is in the log\n{story}");
    }
}
