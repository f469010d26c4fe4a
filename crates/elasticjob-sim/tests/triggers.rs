//! Triggers of a job whose runs take longer than its period.

use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::path::JobPath;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Fault, Options, World};

/// Each run misses a firing, so a catch-up is due at its end. A trigger that always came after the catch-ups never ran.
#[test]
fn a_trigger_of_a_job_that_is_always_late_runs_after_the_current_run() {
    let path = JobPath::new("job");
    for seed in 0..60_u64 {
        let mut document = JobDocument::new("job", 2);
        document.cron = Some("* * * * * ?".into());
        document.misfire = seed % 2 == 0;
        document.failover = seed % 3 == 0;
        let options = Options { run_millis: (2_500, 2_900), ..Options::new(seed, document, 2) };
        let mut world = World::new(options);
        let mut ops = vec![Op::Ensure(path.triggers())];
        ops.extend([0, 1].map(|item: u32| Op::create(path.trigger(&item.to_string()), "")));
        world.strike(Duration::from_secs(12), 0, Fault::Operator(ops));
        world.run_until(Duration::from_secs(30));
        for item in [0, 1] {
            let runs = || world.journal().iter().filter(|run| run.item == item);
            let triggered: Vec<_> = runs().filter(|run| run.source == Source::Trigger).collect();
            assert_eq!(triggered.len(), 1, "seed {seed}: item {item}\n{}", world.story());
            let late = World::moment(Duration::from_secs(16));
            assert!(
                triggered[0].start <= late,
                "seed {seed}: item {item} runs at {}\n{}",
                triggered[0].start,
                world.story()
            );
            // The schedule goes on.
            let after = runs().filter(|run| run.start > triggered[0].start && run.source != Source::Trigger).count();
            assert!(after >= 3, "seed {seed}: item {item} ran {after} times after the trigger\n{}", world.story());
        }
    }
}
