//! Clusters that are started, cut, killed and paused, each repeatable from its seed.

use std::collections::BTreeMap;
use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::path::JobPath;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Chance, Entry, Fault, Options, World};

const SESSION: Duration = Duration::from_secs(4);

fn document(items: u32) -> JobDocument {
    let mut document = JobDocument::new("job", items);
    document.cron = Some("* * * * * ?".into());
    document
}

fn options(seed: u64, document: JobDocument, instances: usize) -> Options {
    Options { session_timeout: SESSION, ..Options::new(seed, document, instances) }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two runs of one item overlap only where the session of the first one was over.
fn assert_no_overlap(world: &World, seed: u64) {
    let mut by_item: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
    for entry in world.journal() {
        by_item.entry(entry.item).or_default().push(entry);
    }
    for (item, mut runs) in by_item {
        runs.sort_by_key(|r| r.start);
        for pair in runs.windows(2) {
            let until = pair[0].end.into_iter().chain(pair[0].lease_end).min();
            let over = until.is_some_and(|until| until <= pair[1].start);
            assert!(
                over,
                "seed {seed}: item {item} ran twice at once:\n{:?}\n{:?}\n{}",
                pair[0],
                pair[1],
                world.story()
            );
            assert!(
                pair[0].token < pair[1].token,
                "seed {seed}: item {item}: fencing tokens must rise:\n{:?}\n{:?}",
                pair[0],
                pair[1]
            );
        }
    }
}

/// How often each due time of an item was begun, by schedule or catch-up.
fn begun(world: &World, item: u32) -> BTreeMap<Timestamp, u32> {
    let mut count = BTreeMap::new();
    for entry in world.journal().iter().filter(|e| e.item == item) {
        if matches!(entry.source, Source::Schedule | Source::Misfire) {
            *count.entry(entry.due).or_default() += 1;
        }
    }
    count
}

fn assert_each_second_once(world: &World, items: u32, from: Duration, to: Duration, seed: u64) {
    for item in 0..items {
        let begun = begun(world, item);
        for second in from.as_secs()..to.as_secs() {
            let due = World::moment(secs(second));
            let times = begun.get(&due).copied().unwrap_or_default();
            assert_eq!(times, 1, "seed {seed}: item {item} at second {second}\n{}\n{}", world.story(), world.dump());
        }
    }
}

#[test]
fn without_faults_each_due_time_is_begun_exactly_once_also_while_instances_join() {
    for seed in 0..200 {
        let mut world = World::new(options(seed, document(6), 3));
        world.run_until(secs(12));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 6, secs(5), secs(11), seed);
    }
}

#[test]
fn an_instance_that_leaves_or_comes_back_costs_no_firing() {
    for seed in 0..100 {
        let mut world = World::new(options(seed, document(6), 3));
        world.strike(Duration::from_millis(6_000 + seed * 37 % 1_000), 1, Fault::Stop { restart: None });
        world.run_until(secs(15));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 6, secs(5), secs(13), seed);
    }
}

#[test]
fn short_cuts_of_the_link_lose_nothing_but_the_firings_within() {
    for seed in 0..200 {
        let mut world = World::new(options(seed, document(4), 2));
        let mut chance = Chance::new(seed ^ 77);
        let cut = Duration::from_millis(chance.between(100, 3_500));
        world.strike(Duration::from_millis(chance.between(5_000, 6_000)), 0, Fault::Cut(cut));
        world.run_until(secs(16));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 4, secs(11), secs(15), seed);
    }
}

#[test]
fn the_items_of_a_killed_instance_go_on_elsewhere() {
    for seed in 0..200 {
        let mut failover = document(6);
        failover.failover = seed % 2 == 0;
        let mut world = World::new(options(seed, failover, 3));
        let restart = (seed % 3 == 0).then_some(Duration::from_millis(2_500));
        world.strike(Duration::from_millis(6_000 + seed * 53 % 1_000), 0, Fault::Crash { restart });
        world.run_until(secs(20));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 6, secs(14), secs(19), seed);
    }
}

#[test]
fn what_a_dead_instance_was_running_is_taken_over_exactly_once_and_in_time() {
    let mut taken = 0;
    for seed in 0..100 {
        let mut failover = document(3);
        failover.failover = true;
        failover.cron = Some("0/20 * * * * ?".into());
        let mut world = World::new(Options { run_millis: (9_000, 9_500), ..options(seed, failover, 3) });
        // The start is at second 20 of its minute: all items begin at second 40.
        let killed = Duration::from_millis(22_000 + seed * 71 % 5_000);
        world.strike(killed, 0, Fault::Crash { restart: None });
        world.run_until(secs(39));
        assert_no_overlap(&world, seed);
        for entry in world.journal().iter().filter(|e| e.process == 0 && e.end.is_none()) {
            let again: Vec<&Entry> =
                world.journal().iter().filter(|e| e.item == entry.item && e.source == Source::Failover).collect();
            assert_eq!(again.len(), 1, "seed {seed}: item {}\n{}", entry.item, world.story());
            let bound = World::moment(killed) + SESSION + secs(1);
            assert!(again[0].start <= bound, "seed {seed}: too late: {:?}", again[0]);
            assert_eq!(again[0].due, entry.due);
            taken += 1;
        }
    }
    assert!(taken >= 80, "{taken} takeovers");
}

#[test]
fn a_pause_longer_than_the_session_starts_nothing_that_was_lost() {
    for seed in 0..200 {
        let mut failover = document(4);
        failover.failover = seed % 2 == 1;
        let mut world = World::new(options(seed, failover, 2));
        let mut chance = Chance::new(seed ^ 99);
        let begin = chance.between(5_000, 6_000);
        world.strike(Duration::from_millis(begin), 0, Fault::Pause(SESSION * 3));
        world.run_until(secs(30));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 4, secs(23), secs(29), seed);
    }
}

#[test]
fn long_runs_are_caught_up_once_and_never_overlap() {
    for seed in 0..50 {
        let mut world = World::new(Options { run_millis: (1_200, 2_700), ..options(seed, document(3), 2) });
        world.run_until(secs(30));
        assert_no_overlap(&world, seed);
        for item in 0..3 {
            let caught_up = world.journal().iter().filter(|e| e.item == item && e.source == Source::Misfire).count();
            assert!(caught_up >= 5, "seed {seed}: item {item} was caught up {caught_up} times\n{}", world.story());
        }
    }
}

#[test]
fn planted_stale_marks_do_not_stop_an_item_for_ten_seconds() {
    let path = JobPath::new("job");
    let ghost = "10.9.9.9@-@1";
    let marks: Vec<(&str, Vec<Op>)> = vec![
        ("running", vec![Op::create(path.item_running(0), ghost)]),
        ("failover", vec![Op::create(path.item_failover(0), ghost)]),
        ("failovering", vec![Op::create(path.item_failovering(0), ghost)]),
        ("misfire", vec![Op::create(path.item_misfire(0), "")]),
        (
            "failover items",
            vec![
                Op::Ensure(path.below("leader/failover")),
                Op::Ensure(path.failover_items()),
                Op::create(path.failover_item(0), ""),
            ],
        ),
        ("processing", vec![Op::create(path.processing(), "")]),
        ("necessary", vec![Op::create(path.necessary(), "")]),
        ("leader", vec![Op::delete(path.leader_instance()), Op::create(path.leader_instance(), ghost)]),
        ("trigger", vec![Op::Ensure(path.triggers()), Op::create(path.trigger(ghost), "")]),
        ("server", vec![Op::create(path.server("10.9.9.9"), "ENABLED")]),
    ];
    for (name, ops) in marks {
        for failover in [false, true] {
            for seed in 0..10 {
                let mut document = document(2);
                document.failover = failover;
                let mut world = World::new(options(seed, document, 2));
                world.strike(Duration::from_millis(6_400), 0, Fault::Operator(ops.clone()));
                world.run_until(secs(25));
                assert_no_overlap(&world, seed);
                for item in 0..2 {
                    let late = World::moment(secs(16));
                    let runs = world.journal().iter().filter(|e| e.item == item && e.start > late).count();
                    assert!(
                        runs >= 8,
                        "{name}, failover {failover}, seed {seed}: item {item} ran {runs} times\n{}\n{}",
                        world.story(),
                        world.dump()
                    );
                }
            }
        }
    }
}

#[test]
fn an_idle_cluster_asks_nothing_and_a_run_costs_two_requests() {
    let mut world = World::new(options(7, document(4), 2));
    world.run_until(secs(10));
    let (requests, runs) = (world.requests(), world.journal().len());
    world.run_until(secs(20));
    // Two instances, one run each a second, two requests a run; ended items of one run may be released in two parts.
    let runs = (world.journal().len() - runs) / 2;
    let requests = world.requests() - requests;
    assert!(requests <= 3 * runs as u64, "{requests} requests for {runs} runs");

    let mut daily = document(4);
    daily.cron = Some("0 0 3 * * ?".into());
    daily.reconcile_interval_minutes = 0;
    let mut world = World::new(options(7, daily, 2));
    world.run_until(secs(30)); // a leader looks at its assignment again, the last time after 20 seconds
    let requests = world.requests();
    world.run_until(secs(3_000));
    assert_eq!(world.requests(), requests, "an idle job asks nothing");
}

#[test]
fn a_disabled_job_rests_and_goes_on_when_it_is_enabled() {
    let path = JobPath::new("job");
    let servers = |text: &str| vec![Op::set(path.server("10.0.0.1"), text), Op::set(path.server("10.0.0.2"), text)];
    for seed in 0..50 {
        let mut world = World::new(options(seed, document(4), 2));
        world.strike(Duration::from_millis(6_300), 0, Fault::Operator(servers("DISABLED")));
        world.strike(Duration::from_millis(10_300), 0, Fault::Operator(servers("ENABLED")));
        world.run_until(secs(18));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 4, secs(12), secs(17), seed);
        let rest = (World::moment(Duration::from_millis(6_400)), World::moment(Duration::from_millis(10_300)));
        let ran = world.journal().iter().filter(|e| e.start > rest.0 && e.start < rest.1).count();
        assert_eq!(ran, 0, "seed {seed}\n{}", world.story());
        assert!(world.journal().iter().all(|e| e.due <= rest.0 || e.due >= rest.1), "no firing of the rest is made up");
    }
}

#[test]
fn the_number_of_items_changes_while_the_job_runs() {
    let path = JobPath::new("job");
    for seed in 0..50 {
        let mut world = World::new(options(seed, document(4), 2));
        for (at, items) in [(6_300, 7), (10_400, 2)] {
            let text = document(items).to_yaml();
            let op = Op::set(path.config(), text);
            world.strike(Duration::from_millis(at), 0, Fault::Operator(vec![op]));
        }
        world.run_until(secs(16));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 7, secs(8), secs(10), seed);
        assert_each_second_once(&world, 2, secs(12), secs(15), seed);
        let left: Vec<String> = world.tree().children(&path.sharding()).unwrap_or_default();
        assert_eq!(left, ["0", "1"], "seed {seed}: the others are deleted\n{}", world.story());
    }
}

/// An invalid change is rejected by every instance, also by one that must join again in the meantime.
#[test]
fn a_configuration_that_cannot_be_used_changes_nothing_until_it_is_mended() {
    let path = JobPath::new("job");
    for seed in 0..50 {
        let mut world = World::new(options(seed, document(4), 2));
        let broken = document(4).to_yaml().replace("cron: '* * * * * ?'", "cron: sometimes");
        assert!(broken.contains("sometimes"), "{broken}");
        let write = |text: String| Fault::Operator(vec![Op::set(path.config(), text)]);
        world.strike(Duration::from_millis(5_300), 0, write(broken));
        world.strike(Duration::from_millis(7_400), 1, Fault::Pause(SESSION * 2));
        world.strike(Duration::from_millis(22_400), 0, write(document(6).to_yaml()));
        world.run_until(secs(28));
        assert_no_overlap(&world, seed);
        assert_each_second_once(&world, 4, secs(6), secs(7), seed);
        assert_each_second_once(&world, 4, secs(18), secs(22), seed);
        assert_each_second_once(&world, 6, secs(24), secs(27), seed);
        let second = |e: &&Entry| e.process == 1 && e.start > World::moment(secs(18));
        assert!(world.journal().iter().any(|e| second(&e)), "seed {seed}: it has joined again\n{}", world.story());
    }
}

#[test]
fn an_operator_s_shutdown_is_obeyed_for_good() {
    for seed in 0..20 {
        let mut world = World::new(options(seed, document(4), 2));
        world.run_until(secs(6));
        let instances = world.tree().children("/job/instances").unwrap_or_default();
        let gone = instances.iter().find(|id| id.starts_with("10.0.0.1@")).expect("the first instance").clone();
        let op = Op::delete(format!("/job/instances/{gone}"));
        world.strike(Duration::from_millis(6_400), 0, Fault::Operator(vec![op]));
        world.run_until(secs(14));
        let after = World::moment(secs(8));
        assert!(world.journal().iter().all(|e| e.process != 0 || e.start < after), "seed {seed}");
        assert_each_second_once(&world, 4, secs(9), secs(13), seed);
    }
}

#[test]
fn a_trigger_that_comes_during_a_run_is_kept_and_runs_once_after_it() {
    let path = JobPath::new("job");
    for seed in 0..50 {
        let mut rare = document(2);
        rare.cron = Some("0/20 * * * * ?".into());
        let mut world = World::new(Options { run_millis: (3_000, 3_500), ..options(seed, rare, 1) });
        world.run_until(secs(19));
        let id = world.tree().children(&path.instances()).unwrap_or_default().remove(0);
        // The start is at second 20 of its minute, so the next firing is at second 20 of the world.
        for after in [500, 1_000, 1_500] {
            let at = Duration::from_millis(20_000 + after);
            let ops = vec![Op::Ensure(path.triggers()), Op::create(path.trigger(&id), "")];
            world.strike(at, 0, Fault::Operator(ops));
        }
        world.run_until(secs(38));
        assert_no_overlap(&world, seed);
        for item in 0..2 {
            let sources: Vec<Source> = world
                .journal()
                .iter()
                .filter(|e| e.item == item && e.start > World::moment(secs(19)))
                .map(|e| e.source)
                .collect();
            assert_eq!(sources, [Source::Schedule, Source::Trigger], "seed {seed} item {item}\n{}", world.story());
        }
    }
}

#[test]
fn a_clock_that_is_off_is_reported_and_the_job_keeps_running() {
    let mut document = document(2);
    document.max_time_diff_seconds = 5;
    for (clock_error, told) in [(secs(2), false), (secs(3_600), true)] {
        let mut world = World::new(Options { clock_error, ..options(1, document.clone(), 1) });
        world.run_until(secs(8));
        assert_eq!(world.story().contains("difference_ms=3600000"), told);
        assert_each_second_once(&world, 2, secs(4), secs(7), 1);
    }
}

/// Faults of every kind, close together, with slow requests among them. Afterwards everything must be as if nothing had been.
#[test]
fn a_storm_of_faults_doubles_nothing_and_leaves_nothing_behind() {
    let path = JobPath::new("job");
    for seed in 0..300 {
        let mut chance = Chance::new(seed ^ 0x0057_0713);
        let mut job = document(4);
        job.failover = chance.below(2) == 0;
        let mut world = World::new(Options {
            run_millis: (5, [300, 900, 2_500][usize::try_from(chance.below(3)).expect("small")]),
            slow_requests: true,
            ..options(seed, job.clone(), 3)
        });
        for _ in 0..chance.between(4, 12) {
            let at = Duration::from_millis(chance.between(4_000, 30_000));
            let process = usize::try_from(chance.below(3)).expect("small");
            let length = Duration::from_millis(chance.between(50, 9_000));
            let ip = format!("10.0.0.{}", process + 1);
            let fault = match chance.below(7) {
                0 => Fault::Crash { restart: Some(length) },
                1 => Fault::Pause(length),
                2 => {
                    let end = at + length;
                    world.strike(end, 0, Fault::Operator(vec![Op::set(path.server(&ip), "ENABLED")]));
                    Fault::Operator(vec![Op::set(path.server(&ip), "DISABLED")])
                }
                3 => {
                    let mut changed = job.clone();
                    changed.sharding_total_count = i64::try_from(chance.between(2, 6)).expect("small");
                    Fault::Operator(vec![Op::set(path.config(), changed.to_yaml())])
                }
                4 => Fault::Operator(vec![Op::Ensure(path.triggers()), Op::create(path.trigger("nobody@-@1"), "")]),
                _ => Fault::Cut(length),
            };
            world.strike(at, process, fault);
        }
        // All faults are over by second 39, and the last sessions by 43.
        world.strike(secs(42), 0, Fault::Operator(vec![Op::set(path.config(), job.to_yaml())]));
        world.run_until(secs(75));
        assert_no_overlap(&world, seed);
        for item in 0..6 {
            for (due, times) in begun(&world, item) {
                assert!(times <= 1, "seed {seed}: item {item} due {due} was begun {times} times\n{}", world.story());
            }
        }
        for item in 0..4 {
            let late = World::moment(secs(60));
            let ran = world.journal().iter().filter(|e| e.item == item && e.start > late).count();
            assert!(
                ran >= 4,
                "seed {seed}: item {item} ran {ran} times at the end\n{}\n{}",
                world.story(),
                world.dump() + &world.machines()
            );
        }
    }
}

/// The items that an instance does not run when it is asked to stop move immediately; the one that runs follows when its run ends.
#[test]
fn an_instance_that_stops_during_a_long_run_hands_over_its_idle_items_immediately() {
    for seed in 0..150 {
        let mut document = document(6);
        document.failover = seed % 2 == 0;
        let long_item = Some((to_u32(seed % 6), 9_000));
        let mut world = World::new(Options { long_item, ..options(seed, document, 3) });
        let stop = Duration::from_millis(8_000 + seed * 37 % 1_000);
        // The leader or another one; the third one's grace is short.
        world.strike(stop, to_usize(seed % 2), Fault::Stop { restart: None });
        world.run_until(secs(20));
        assert_no_overlap(&world, seed);
        let long = to_u32(seed % 6);
        for item in (0..6).filter(|item| *item != long) {
            let begun = begun(&world, item);
            for second in 5..18 {
                let due = World::moment(secs(second));
                assert_eq!(begun.get(&due), Some(&1), "seed {seed}: item {item} at second {second}\n{}", world.story());
            }
            let late = world.journal().iter().filter(|entry| entry.item == item && entry.due >= World::moment(secs(5)));
            let latest = late.map(|entry| entry.start.since(entry.due)).max().unwrap_or_default();
            assert!(latest <= secs(1), "seed {seed}: item {item} waited {latest:?}\n{}", world.story());
        }
        let after =
            world.journal().iter().any(|entry| entry.item == long && entry.start > World::moment(stop + secs(1)));
        assert!(after, "seed {seed}: item {long} follows when its run has ended\n{}", world.story());
    }
}

/// One trigger of an item is one run of it, whichever instance dies, leaves, joins or is cut off around it.
#[test]
fn a_trigger_of_items_runs_each_of_them_once_whatever_happens_around_it() {
    let path = JobPath::new("job");
    let faults = [
        None,
        Some(Fault::Crash { restart: None }),
        Some(Fault::Stop { restart: None }),
        Some(Fault::Stop { restart: Some(secs(1)) }),
        Some(Fault::Cut(Duration::from_millis(700))),
        Some(Fault::Expire),
        Some(Fault::Pause(secs(6))),
        Some(Fault::Failover(Duration::from_millis(400))),
        Some(Fault::Join),
    ];
    for seed in 0..400_u64 {
        let fault = &faults[to_usize(seed % faults.len() as u64)];
        let mut document = document(5);
        document.cron = Some("0 0 0 1 1 ?".into()); // nothing but triggers
        document.failover = seed % 2 == 0;
        let mut world = World::new(Options { run_millis: (5, 900), ..options(seed, document, 3) });
        let mut chance = Chance::new(seed ^ 4_242);
        let at = Duration::from_millis(chance.between(5_000, 6_000));
        let before = Duration::from_millis(chance.between(0, 600));
        let strike = if seed % 3 == 0 { at + before } else { at - before };
        if let Some(fault) = fault {
            let process = if *fault == Fault::Join { 4 } else { to_usize(chance.below(3)) };
            world.strike(strike, process, fault.clone());
        }
        let triggers = (0..5).map(|item| Op::create(path.trigger(&item.to_string()), ""));
        let ops = std::iter::once(Op::Ensure(path.triggers())).chain(triggers).collect();
        world.strike(at, 0, Fault::Operator(ops));
        world.run_until(secs(30));
        assert_no_overlap(&world, seed);
        for item in 0..5 {
            let runs = world.journal().iter().filter(|e| e.item == item && e.source == Source::Trigger).count();
            // Where the begin was committed and its process died, or lost its session, before it knew, nothing ran: a failover
            // job has it taken over, another one reports it.
            let lost =
                matches!(fault, Some(Fault::Crash { .. } | Fault::Expire | Fault::Pause(_) | Fault::Failover(_)));
            let taken = world.journal().iter().filter(|e| e.item == item && e.source == Source::Failover).count();
            let expected = runs == 1 || (lost && runs == 0 && (taken == 1 || seed % 2 == 1));
            assert!(expected, "seed {seed}, {fault:?}: item {item} ran {runs} times, taken {taken}\n{}", world.story());
        }
        let left = world.tree().children(&path.triggers()).unwrap_or_default();
        assert!(left.is_empty(), "seed {seed}: {left:?} is left\n{}", world.story());
    }
}

#[test]
fn a_trigger_of_a_disabled_item_is_dropped_and_does_not_run_when_it_is_enabled() {
    let path = JobPath::new("job");
    for seed in 0..50 {
        let mut document = document(2);
        document.cron = Some("0 0 0 1 1 ?".into());
        let mut world = World::new(options(seed, document, 2));
        let operator = |ops: Vec<Op>| Fault::Operator(ops);
        world.strike(secs(5), 0, operator(vec![Op::create(path.item_disabled(0), "")]));
        let triggers = [0, 1].map(|item: u32| Op::create(path.trigger(&item.to_string()), ""));
        let by_item = seed % 2 == 0;
        let ops = std::iter::once(Op::Ensure(path.triggers())).chain(triggers).collect();
        match by_item {
            true => world.strike(secs(6), 0, operator(ops)),
            false => world.strike(secs(6), 0, Fault::Order(elasticjob_sim::Order::Trigger)),
        }
        world.strike(secs(9), 0, operator(vec![Op::delete(path.item_disabled(0))]));
        world.run_until(secs(15));
        let runs = |item: u32| world.journal().iter().filter(|e| e.item == item && e.source == Source::Trigger).count();
        assert_eq!((runs(0), runs(1)), (0, 1), "seed {seed}\n{}", world.story());
        assert!(world.story().contains("dropped a trigger, so the items do not run"), "seed {seed}\n{}", world.story());
    }
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).expect("small")
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

/// Java's console triggers instances, not items.
#[test]
fn a_trigger_of_an_instance_that_is_gone_is_run_by_those_who_get_its_items() {
    for seed in 0..100 {
        let mut document = document(6);
        document.cron = Some("0 0 0 1 1 ?".into());
        let mut world = World::new(options(seed, document, 3));
        world.strike(Duration::from_millis(6_000), to_usize(seed % 3), Fault::Crash { restart: None });
        world.strike(Duration::from_millis(6_500), 0, Fault::Order(elasticjob_sim::Order::Trigger));
        world.run_until(secs(20));
        for item in 0..6 {
            let runs = world.journal().iter().filter(|e| e.item == item && e.source == Source::Trigger).count();
            assert_eq!(runs, 1, "seed {seed}: item {item}\n{}", world.story());
        }
        let left = world.tree().children(&JobPath::new("job").triggers()).unwrap_or_default();
        assert!(left.is_empty(), "seed {seed}: {left:?} is left\n{}", world.story());
    }
}

/// The first in the queue of an election does nothing, and its session lives: one of the others leads after
/// `latch::SILENCE_MAX`, and what the first one wanted is refused when it wakes up.
#[test]
fn the_others_go_on_without_an_instance_that_holds_a_latch_and_does_nothing() {
    let mut held = 0;
    for seed in 0..40 {
        let mut world = World::new(options(seed, document(4), 3));
        world.run_until(secs(4));
        let leader = |world: &World| world.tree().get("/job/leader/election/instance").map(|node| node.owner);
        let of = |world: &World, session: u64| {
            (0..3).find(|index| {
                let instances = world.tree().children("/job/instances").unwrap_or_default();
                let id = instances.iter().find(|id| id.starts_with(&format!("10.0.0.{}@", index + 1)));
                id.is_some_and(|id| {
                    world.tree().get(&format!("/job/instances/{id}")).is_some_and(|node| node.owner == session)
                })
            })
        };
        let first = leader(&world).and_then(|session| of(&world, session)).expect("a leader");
        world.strike(secs(4), first, Fault::Crash { restart: None });
        let place = |world: &World| {
            let queue = world.tree().children("/job/leader/election/latch").unwrap_or_default();
            let first = elasticjob_core::latch::first(&queue)?;
            world.tree().get(&format!("/job/leader/election/latch/{first}")).map(|node| node.owner)
        };
        let mut at = secs(4);
        while place(&world).is_none() && at < secs(12) {
            at += Duration::from_millis(1);
            world.run_until(at);
        }
        let holder = place(&world).and_then(|session| of(&world, session)).expect("a place");
        world.strike(at, holder, Fault::Stuck(secs(40)));
        world.run_until(at + secs(2));
        let session = place(&world);
        if session.and_then(|session| of(&world, session)) != Some(holder) || leader(&world).is_some() {
            continue; // its transaction was on its way: it leads, and its items stay where they are
        }
        held += 1;
        world.run_until(at + secs(14));
        let next = leader(&world).unwrap_or_else(|| panic!("seed {seed}: nobody leads\n{}", world.story()));
        assert_ne!(Some(next), session, "seed {seed}");
        world.run_until(at + secs(60));
        assert_eq!(leader(&world), Some(next), "seed {seed}: the silent one does not take the lead when it wakes up");
        assert_no_overlap(&world, seed);
    }
    assert!(held >= 10, "the holder was caught in {held} of 40 worlds");
}
