//! The election among many instances.

use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::wire::JobDocument;
use elasticjob_sim::{Change, Fault, Options, What, World};

const SESSION: Duration = Duration::from_secs(4);

/// A place in the queue of the election is an event for every instance: a thousand candidates kept a server busy for twenty seconds.
#[test]
fn few_of_many_instances_run_for_election_and_one_of_them_leads_soon() {
    let mut document = JobDocument::new("job", 3);
    document.cron = Some("* * * * * ?".into());
    let mut elections = 0;
    for seed in 0..40 {
        let mut world = World::new(Options { session_timeout: SESSION, ..Options::new(seed, document.clone(), 24) });
        let killed = Duration::from_secs(8);
        // The first one to start usually leads.
        world.strike(killed, 0, Fault::Crash { restart: None });
        world.run_until(Duration::from_secs(20));
        let path = JobPath::new("job");
        let evidence = world.evidence(Duration::from_secs(15));
        let after = |change: &&Change| change.at >= World::moment(killed);
        let written = |change: &&Change| matches!(change.what, What::Wrote { .. });
        let changes: Vec<&Change> = evidence.history.iter().filter(after).filter(written).collect();
        let Some(leads) = changes.iter().find(|change| change.path == path.leader_instance()) else { continue };
        elections += 1;
        let places = changes.iter().filter(|change| change.path.starts_with(&path.election_latch())).count();
        assert!(places <= 16, "seed {seed}: {places} candidates");
        let end = World::moment(killed) + SESSION;
        assert!(leads.at <= end + Duration::from_secs(1), "seed {seed}: it leads at {}, after {end}", leads.at);
    }
    assert!(elections > 0, "no leader was killed");
}
