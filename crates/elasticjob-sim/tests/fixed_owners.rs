//! `staticSharding`: items stay with their owner while it can run them.

use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Fault, Options, World};

fn document() -> JobDocument {
    let mut document = JobDocument::new("job", 6);
    document.cron = Some("* * * * * ?".into());
    document.static_sharding = true;
    document
}

/// The longest time without a start of an item, between two moments.
fn longest_gap(world: &World, item: u32, from: Duration, to: Duration) -> Duration {
    let (from, to) = (World::moment(from), World::moment(to));
    let starts = world.journal().iter().filter(|run| run.item == item).map(|run| run.start);
    let mut moments: Vec<_> = starts.filter(|start| *start > from && *start < to).collect();
    moments.extend([from, to]);
    moments.sort_unstable();
    moments.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or_default()
}

/// An instance that stops keeps its node until its runs end. Its idle items waited for that.
#[test]
fn idle_items_of_an_instance_that_stops_move_immediately() {
    let struck = Duration::from_millis(12_300);
    let mut checked = 0;
    for seed in 0..800 {
        let options = Options { run_millis: (5, 9_000), ..Options::new(seed, document(), 2) };
        let mut world = World::new(options);
        world.strike(struck, 0, Fault::Stop { restart: None });
        world.run_until(Duration::from_secs(30));
        let at = World::moment(struck);
        for item in 0..6 {
            let runs = || world.journal().iter().filter(|run| run.item == item);
            let before = runs().filter(|run| run.start < at).max_by_key(|run| run.start);
            let is_idle = before.is_some_and(|run| run.process == 0 && run.end.is_some_and(|end| end < at));
            let stays = world
                .journal()
                .iter()
                .any(|run| run.process == 0 && run.start < at && run.end > Some(at + Duration::from_secs(4)));
            if !is_idle || !stays {
                continue;
            }
            checked += 1;
            let next = runs().filter(|run| run.start >= at).map(|run| run.start).min();
            let late = at + Duration::from_secs(3);
            assert!(
                next.is_some_and(|next| next <= late),
                "seed {seed}: item {item} starts at {next:?}\n{}",
                world.story()
            );
        }
    }
    assert!(checked >= 10, "only {checked} items were idle while another one ran on");
}

/// A disabled server keeps its instances. Its items never ran again.
#[test]
fn items_of_a_disabled_server_move_to_the_other_one_and_stay_there() {
    let path = JobPath::new("job");
    for seed in 0..40 {
        let options = Options { run_millis: (5, 60), ..Options::new(seed, document(), 2) };
        let mut world = World::new(options);
        let set = |text: &str| Op::Set { path: path.server("10.0.0.1"), data: text.into(), version: None };
        world.strike(Duration::from_secs(12), 0, Fault::Operator(vec![set("DISABLED")]));
        world.strike(Duration::from_secs(22), 0, Fault::Operator(vec![set("ENABLED")]));
        world.run_until(Duration::from_secs(32));
        for item in 0..6 {
            let gap = longest_gap(&world, item, Duration::from_secs(12), Duration::from_secs(31));
            assert!(gap <= Duration::from_secs(3), "seed {seed}: item {item} rested for {gap:?}\n{}", world.story());
        }
        let last: Vec<_> =
            world.journal().iter().filter(|run| run.start > World::moment(Duration::from_secs(26))).collect();
        assert!(last.iter().all(|run| run.process == 1), "seed {seed}: items moved back\n{}", world.story());
    }
}
