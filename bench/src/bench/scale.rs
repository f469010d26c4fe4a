//! One job on a thousand instances: what a join, a death and an election cost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use elasticjob::registry::Registry;
use elasticjob_core::query::Query;
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::side::{Side, Workload};
use crate::single::attach;
use crate::{Bench, clock};

const INSTANCES: usize = 1_000;
/// Each has some hundred connections, and as many files may be open.
const PROCESSES: usize = 4;
/// Longer than the two processors are busy with the join of all.
const SESSION_MILLIS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);
/// Requests that come after the assignment is settled belong to the event too.
const AFTER: Duration = Duration::from_secs(10);

/// What one event cost.
#[derive(Debug, Serialize)]
pub(crate) struct Scale {
    event: &'static str,
    instances: usize,
    items: usize,
    session_ms: u64,
    /// From the event, or the end of the session of the dead one, until each instance has the items that it should.
    ms: f64,
    /// Without the heartbeats.
    requests: i64,
    requests_per_instance: f64,
}

struct Crowd<'a> {
    server: &'a ZooKeeper,
    registry: std::sync::Arc<dyn Registry>,
    runtime: tokio::runtime::Runtime,
    /// Requests a second while no instance joins or dies.
    usual: f64,
}

/// As many items as instances, which fire once a day.
pub(crate) fn measure(bench: &Bench) -> anyhow::Result<Vec<Scale>> {
    let folder = bench.folder("scale")?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let hour = (clock::micros() / 3_600_000_000 + 12) % 24;
    let start = |name: &str, instances: usize| {
        let arguments = [
            format!("zk={}", server.address()),
            "ns=scale".into(),
            format!("session={SESSION_MILLIS}"),
            format!("cron=0 0 {hour} * * ?"),
            format!("shards={INSTANCES}"),
            format!("instances={instances}"),
            "seconds=3600".into(),
        ];
        Workload::start(&bench.root, Side::Rust, &arguments, &folder, name)
    };
    let mut leader = start("leader", 1);
    leader.wait_started(PATIENCE)?;
    let others = INSTANCES - 2;
    let share = |number: usize| others / PROCESSES + usize::from(number < others % PROCESSES);
    let mut rest: Vec<Workload> =
        (0..PROCESSES).map(|number| start(&format!("rest-{number}"), share(number))).collect();
    for workload in &mut rest {
        workload.wait_started(PATIENCE)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let registry = runtime.block_on(attach(&server, "scale"))?;
    let mut crowd = Crowd { server: &server, registry, runtime, usual: 0.0 };
    crowd.settle(INSTANCES - 1, None)?;
    // A new leader reads the assignment a last time twenty seconds after its election.
    clock::pause(Duration::from_secs(30));
    let before = server.requests()?;
    clock::pause(AFTER);
    crowd.usual = (server.requests()? - before) as f64 / AFTER.as_secs_f64();

    let mut found = Vec::new();
    let mut joiner = start("joiner", 1);
    found.push(crowd.event("an instance joins", INSTANCES, None, || joiner.wait_started(PATIENCE).map(drop))?);
    let dead = format!("@-@{}", joiner.process.pid());
    found.push(crowd.event("an instance dies", INSTANCES - 1, Some(&dead), || {
        joiner.process.kill();
        Ok(())
    })?);
    let dead = format!("@-@{}", leader.process.pid());
    found.push(crowd.event("the leader dies", INSTANCES - 2, Some(&dead), || {
        leader.process.kill();
        Ok(())
    })?);
    rest.iter_mut().for_each(|workload| workload.process.kill());
    Ok(found)
}

impl Crowd<'_> {
    fn event(
        &mut self,
        event: &'static str,
        instances: usize,
        dead: Option<&str>,
        cause: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Scale> {
        let (before, began) = (self.server.requests()?, clock::instant());
        cause()?;
        let caused = clock::instant();
        let (settled, looks) = self.settle(instances, dead)?;
        clock::pause(AFTER);
        let took = settled.duration_since(caused).as_secs_f64() * 1_000.0;
        let heartbeats = self.usual * began.elapsed().as_secs_f64();
        let requests = i64::try_from(self.server.requests()? - before)? - looks - heartbeats as i64;
        let session = if dead.is_some() { SESSION_MILLIS as f64 } else { 0.0 };
        Ok(Scale {
            event,
            instances,
            items: INSTANCES,
            session_ms: SESSION_MILLIS,
            ms: took - session,
            requests,
            requests_per_instance: requests as f64 / instances as f64,
        })
    }

    /// Waits until the items belong to so many instances, none of them the dead one; returns when that was, and how often it looked.
    fn settle(&self, instances: usize, dead: Option<&str>) -> anyhow::Result<(Instant, i64)> {
        let until = clock::instant() + PATIENCE;
        let mut looks = 0;
        loop {
            let queries = (0..INSTANCES).map(|item| Query::Node(format!("/job/sharding/{item}/instance"))).collect();
            let answers = self.runtime.block_on(self.registry.read(queries))?;
            looks += 1;
            let owners: Vec<String> = answers.iter().filter_map(|a| Some(a.node()?.text())).collect();
            let distinct: BTreeSet<&String> = owners.iter().collect();
            let is_dead = |owner: &String| dead.is_some_and(|dead| owner.ends_with(dead));
            if owners.len() == INSTANCES && distinct.len() == instances && !owners.iter().any(is_dead) {
                return Ok((clock::instant(), looks));
            }
            if clock::instant() > until {
                bail!("{} items of {} instances, where {instances} were expected", owners.len(), distinct.len());
            }
            clock::pause(LOOK);
        }
    }
}
