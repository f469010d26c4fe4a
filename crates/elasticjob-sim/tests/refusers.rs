//! Instances that refuse a stored configuration which others use, as in a rolling deployment: they follow, and do not lead.

use std::collections::BTreeSet;
use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Fault, Options, World};

const SESSION: Duration = Duration::from_secs(2);

fn document(items: u32, handler: Option<&str>) -> JobDocument {
    JobDocument {
        cron: Some("* * * * * ?".into()),
        job_error_handler_type: handler.map(str::to_owned),
        ..JobDocument::new("job", items)
    }
}

fn owners(world: &World, path: &JobPath, items: u32) -> Vec<Option<String>> {
    (0..items).map(|item| world.tree().get(&path.item_owner(item)).map(|node| node.text())).collect()
}

#[test]
fn one_that_refuses_the_new_configuration_hands_the_leadership_to_one_that_uses_it() {
    let path = JobPath::new("job");
    for seed in 0..60 {
        let refuser = Some(seed as usize % 3);
        let options = Options { session_timeout: SESSION, refuser, ..Options::new(seed, document(3, None), 3) };
        let mut world = World::new(options);
        let write = |items| {
            let text = document(items, Some("ELSEWHERE")).to_yaml();
            Fault::Operator(vec![Op::set(path.config(), text)])
        };
        world.strike(Duration::from_millis(6_400), 0, write(6));
        world.strike(Duration::from_millis(14_400), 0, write(2));
        world.run_until(Duration::from_secs(14));
        let story = world.story();
        let leader = world.tree().get(&path.leader_instance()).map(|node| node.text()).unwrap_or_default();
        let refused = format!("10.0.0.{}@-@", seed % 3 + 1);
        assert!(!leader.is_empty() && !leader.starts_with(&refused), "seed {seed}: `{leader}` leads\n{story}");
        let six = owners(&world, &path, 6);
        assert!(six.iter().all(Option::is_some), "seed {seed}: {six:?}\n{story}");
        let different: BTreeSet<_> = six.iter().flatten().collect();
        assert_eq!(different.len(), 3, "seed {seed}: all three have items: {six:?}");
        world.run_until(Duration::from_secs(22));
        let left = owners(&world, &path, 6);
        assert!(left[..2].iter().all(Option::is_some), "seed {seed}: {left:?}");
        assert!(left[2..].iter().all(Option::is_none), "seed {seed}: {left:?}\n{}", world.story());
    }
}

/// An instance must assign the items even if none supports the configuration.
#[test]
fn where_all_refuse_one_of_them_leads_and_the_items_of_the_dead_are_divided() {
    let path = JobPath::new("job");
    for seed in 0..60 {
        let options = Options { session_timeout: SESSION, ..Options::new(seed, document(6, None), 3) };
        let mut world = World::new(options);
        let bad = JobDocument { cron: Some("sometimes".into()), ..document(4, None) };
        world.strike(Duration::from_millis(6_400), 0, Fault::Operator(vec![Op::set(path.config(), bad.to_yaml())]));
        world.strike(Duration::from_secs(14), seed as usize % 3, Fault::Crash { restart: None });
        world.run_until(Duration::from_secs(30));
        let dead = format!("10.0.0.{}@-@", seed % 3 + 1);
        let owners = owners(&world, &path, 6);
        let lives = |owner: &Option<String>| owner.as_ref().is_some_and(|owner| !owner.starts_with(&dead));
        assert!(owners.iter().all(lives), "seed {seed}: {owners:?}\n{}", world.story());
        let divided = world.story().matches("resharded items").count();
        assert!(divided < 20, "seed {seed}: divided {divided} times\n{}", world.story());
    }
}

/// All of them lack what the configuration names, until one comes that has it.
#[test]
fn one_that_comes_later_and_uses_the_configuration_leads() {
    let path = JobPath::new("job");
    for seed in 0..40 {
        let document = document(3, None);
        let mut world =
            World::new(Options { session_timeout: SESSION, refuser: Some(0), ..Options::new(seed, document, 1) });
        let text = self::document(5, Some("ELSEWHERE")).to_yaml();
        world.strike(Duration::from_millis(6_400), 0, Fault::Operator(vec![Op::set(path.config(), text)]));
        world.run_until(Duration::from_secs(12));
        assert!(owners(&world, &path, 3).iter().all(Option::is_some), "seed {seed}: it goes on by the one in force");
        world.strike(Duration::from_secs(12), 1, Fault::Join);
        world.run_until(Duration::from_secs(22));
        let leader = world.tree().get(&path.leader_instance()).map(|node| node.text()).unwrap_or_default();
        assert!(leader.starts_with("10.0.0.2@-@"), "seed {seed}: `{leader}` leads\n{}", world.story());
        let five = owners(&world, &path, 5);
        assert!(five.iter().all(Option::is_some), "seed {seed}: {five:?}\n{}", world.story());
    }
}

/// Its session lives, and another refuser takes the leadership from it once firings wait for it.
#[test]
fn one_that_deposes_a_stuck_leader_keeps_the_lead_where_all_refuse() {
    let path = JobPath::new("job");
    let mut deposed = 0;
    for seed in 0..60 {
        let options = Options { session_timeout: SESSION, ..Options::new(seed, document(6, None), 4) };
        let mut world = World::new(options);
        let bad = JobDocument { cron: Some("sometimes".into()), ..document(4, None) };
        world.strike(Duration::from_millis(6_400), 0, Fault::Operator(vec![Op::set(path.config(), bad.to_yaml())]));
        world.run_until(Duration::from_secs(14));
        let leader = world.tree().get(&path.leader_instance()).map(|node| node.text()).unwrap_or_default();
        let leads = (0..4).find(|index| leader.starts_with(&format!("10.0.0.{}@-@", index + 1))).expect("one leads");
        world.strike(Duration::from_secs(14), leads, Fault::Stuck(Duration::from_secs(30)));
        world.strike(Duration::from_millis(14_100), (leads + 1) % 4, Fault::Crash { restart: None });
        let before = world.story().matches("resigned as leader").count();
        world.run_until(Duration::from_secs(40));
        let story = world.story();
        deposed += story.matches("took over leadership").count();
        let gave_up = story.matches("resigned as leader").count() - before;
        assert!(gave_up == 0, "seed {seed}: {gave_up} times\n{story}");
    }
    assert!(deposed > 0, "some were deposed");
}

/// It was stuck while the leadership was vacant.
#[test]
fn one_that_missed_its_chance_gets_another_after_ten_minutes() {
    let path = JobPath::new("job");
    let mut stood_in = 0;
    let every_minute = |handler| JobDocument { cron: Some("0 * * * * ?".into()), ..document(2, handler) };
    for seed in 0..10 {
        let options = Options {
            session_timeout: Duration::from_secs(20),
            refuser: Some(0),
            ..Options::new(seed, every_minute(None), 2)
        };
        let mut world = World::new(options);
        let text = every_minute(Some("ELSEWHERE")).to_yaml();
        world.strike(Duration::from_secs(6), 1, Fault::Stuck(Duration::from_secs(12)));
        world.strike(Duration::from_millis(6_400), 0, Fault::Operator(vec![Op::set(path.config(), text)]));
        let leader = |world: &World| world.tree().get(&path.leader_instance()).map(|node| node.text());
        world.run_until(Duration::from_secs(60));
        stood_in += usize::from(leader(&world).is_some_and(|leader| leader.starts_with("10.0.0.1@-@")));
        world.run_until(Duration::from_secs(660));
        let leads = leader(&world).is_some_and(|leader| leader.starts_with("10.0.0.2@-@"));
        assert!(leads, "seed {seed}\n{}", world.story());
    }
    assert!(stood_in > 0, "the refuser led for a while");
}
