//! `staticSharding`: items stay with their owner as long as that instance is alive.

use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Fault, Options, World};

fn owners(world: &World, path: &JobPath) -> Vec<String> {
    let owner = |item| world.tree().get(&path.item_owner(item)).map(|node| node.text()).unwrap_or_default();
    (0..6).map(owner).collect()
}

#[test]
fn the_items_of_the_dead_get_an_owner_and_the_others_stay() {
    let path = JobPath::new("job");
    let seconds = Duration::from_secs;
    for seed in 0..60 {
        let document = JobDocument {
            cron: Some("* * * * * ?".into()),
            static_sharding: true,
            misfire: true,
            ..JobDocument::new("job", 6)
        };
        let mut world = World::new(Options { session_timeout: seconds(2), ..Options::new(seed, document, 3) });
        world.run_until(seconds(8));
        let before = owners(&world, &path);
        let killed = seed as usize % 3;
        world.strike(seconds(8), killed, Fault::Crash { restart: None });
        // One that comes gets nothing while all items have an owner.
        world.strike(seconds(16), killed, Fault::Join);
        world.run_until(seconds(22));
        let after = owners(&world, &path);
        let dead = format!("10.0.0.{}@-@", killed + 1);
        for (item, (before, after)) in before.iter().zip(&after).enumerate() {
            let stays = !before.starts_with(&dead);
            let story = world.story();
            assert!(!after.starts_with(&dead) && !after.is_empty(), "seed {seed}: item {item}: {after}\n{story}");
            assert!(!stays || before == after, "seed {seed}: item {item} moved from {before} to {after}\n{story}");
        }
        // All instances restart with new ids.
        (0..3).for_each(|process| world.strike(seconds(22), process, Fault::Crash { restart: Some(seconds(1)) }));
        world.run_until(seconds(34));
        let live: Vec<String> = world.tree().children(&path.instances()).unwrap_or_default();
        let renewed = owners(&world, &path);
        let lives = |owner: &String| live.iter().any(|path| path.ends_with(owner.as_str()));
        assert!(renewed.iter().all(|owner| !owner.is_empty() && lives(owner)), "seed {seed}: {renewed:?} of {live:?}");
    }
}
