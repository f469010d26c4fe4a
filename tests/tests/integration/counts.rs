//! What jobs cost ZooKeeper, by the server's own counters: requests, znodes and watches, which do not depend on the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elasticjob::registry::zookeeper::{Settings, Zookeeper};
use elasticjob::registry::{Connection, Link};
use elasticjob::{JobHandle, Operations, ScheduleJob};
use elasticjob_core::tree::Op;
use elasticjob_registry::Outcome;
use elasticjob_tests::{ZooKeeper, eventually, pause, wall_clock_millis};
use futures_util::FutureExt as _;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(180);
/// Each connection says that it is there some nine times in this.
const SESSION: Duration = Duration::from_secs(60);
/// An idle job.
const NEVER_NOW: &str = "0 0 0 1 1 ?";

/// One of the server's counters.
fn counter(zookeeper: &ZooKeeper, name: &str) -> usize {
    // Where it has just started it does not count yet.
    eventually(&format!("{name} of ZooKeeper"), PATIENCE, || {
        zookeeper.says("mntr")?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    })
}

/// Requests of clients; each look is one of them.
fn requests(zookeeper: &ZooKeeper) -> usize {
    counter(zookeeper, "zk_packets_received\t")
}

fn connect(zookeeper: &ZooKeeper, namespace: &str) -> Connection {
    let settings = Settings { session_timeout: SESSION, ..Settings::new(&zookeeper.address(), namespace) };
    let registry = Arc::new(Zookeeper::connect(settings).expect("right settings"));
    Connection::on(registry).connect().now_or_never().expect("it does not wait").expect("an address")
}

async fn start(connection: &Connection, jobs: usize, cron: &str, runs: &Arc<AtomicUsize>) -> Vec<JobHandle> {
    let mut handles = Vec::new();
    for number in 0..jobs {
        let runs = Arc::clone(runs);
        let job = ScheduleJob::new(&format!("job-{number}"), 1).cron(cron).simple(move |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        });
        handles.push(job.submit(connection).expect("a right job"));
    }
    for handle in &handles {
        handle.joined().await.expect("it joins");
    }
    handles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_jobs_on_three_instances_cost_nothing_but_heartbeats() {
    const JOBS: usize = 1_000;
    const INSTANCES: usize = 3;
    let zookeeper = ZooKeeper::start();
    let (znodes, watches) = (counter(&zookeeper, "zk_znode_count\t"), counter(&zookeeper, "zk_watch_count\t"));
    let runs = Arc::new(AtomicUsize::default());
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        let connection = connect(&zookeeper, "idle");
        let handles = start(&connection, JOBS, NEVER_NOW, &runs).await;
        instances.push((connection, handles));
    }
    tokio::task::block_in_place(|| {
        // A leader reads the owners again, the last time twelve seconds after the time before.
        let (length, mut since, mut last) = (15_000, wall_clock_millis(), requests(&zookeeper));
        eventually("nobody asks anything any more", PATIENCE, || {
            let (now, count) = (wall_clock_millis(), requests(&zookeeper));
            let asked = count > last + 1 + INSTANCES;
            last = count;
            if asked {
                since = now;
            }
            (now >= since + length).then_some(())
        });
        let before = requests(&zookeeper);
        pause(SESSION / 3);
        let (asked, heartbeats) = (requests(&zookeeper) - before - 1, 4 * INSTANCES);
        assert!(asked <= heartbeats, "{asked} requests of {INSTANCES} connections in a third of a session timeout");
    });
    let znodes = (counter(&zookeeper, "zk_znode_count\t") - znodes) as f64 / JOBS as f64;
    let watches = (counter(&zookeeper, "zk_watch_count\t") - watches) as f64 / (JOBS * INSTANCES) as f64;
    assert!(znodes <= 18.0, "{znodes} znodes a job");
    assert!(watches <= 12.0, "{watches} watches a job and instance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_costs_two_requests_and_many_together_cost_far_less() {
    const FIRINGS: usize = 10;
    let zookeeper = ZooKeeper::start();
    for jobs in [1, 200] {
        let runs = Arc::new(AtomicUsize::default());
        let connection = connect(&zookeeper, &format!("busy-{jobs}"));
        let all = start(&connection, jobs, "* * * * * ?", &runs).await;
        tokio::task::block_in_place(|| {
            let after = |count: usize| {
                eventually(&format!("{count} runs"), PATIENCE, || {
                    (runs.load(Ordering::Relaxed) >= count).then_some(())
                });
            };
            after(3 * jobs);
            let first = runs.load(Ordering::Relaxed);
            let before = requests(&zookeeper);
            after(first + FIRINGS * jobs);
            // The runs are counted last: where this thread is held up between, there are only more of them.
            let asked = requests(&zookeeper) - before - 1;
            let ran = runs.load(Ordering::Relaxed) - first;
            // In addition to the runs: one that is beginning, a read of the owners of each job, and a heartbeat.
            let most = if jobs == 1 { 2 * ran + 5 } else { ran / 2 + 4 * jobs };
            assert!(asked <= most, "{asked} requests for {ran} runs of {jobs} jobs");
        });
        drop(all);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_come_and_go_leave_no_node_and_no_watch() {
    const JOBS: usize = 100;
    let zookeeper = ZooKeeper::start();
    let connection = connect(&zookeeper, "churn");
    connection.registry().link().wait_for(|link| matches!(link, Link::Up { .. })).await.expect("a link");
    let operations = Arc::new(Operations::new(Arc::clone(connection.registry())));
    let count =
        || ["zk_znode_count\t", "zk_watch_count\t", "zk_ephemerals_count\t"].map(|name| counter(&zookeeper, name));
    let Link::Up { session, .. } = *connection.registry().link().borrow() else { panic!("there is no link") };
    // ZooKeeper takes the namespace away where it is empty.
    let outcome = connection.registry().commit(session, &[Op::create("/kept", "")]).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    let at_rest = count();
    assert_eq!((at_rest[1], at_rest[2]), (0, 0), "watches, ephemeral nodes");
    for round in 0..3 {
        let handles = start(&connection, JOBS, NEVER_NOW, &Arc::default()).await;
        let mut removing = JoinSet::new();
        for handle in handles {
            let operations = Arc::clone(&operations);
            removing.spawn(async move {
                handle.stop().await;
                operations.remove_job(handle.name()).await
            });
        }
        for removed in removing.join_all().await {
            removed.expect("it is removed");
        }
        tokio::task::block_in_place(|| {
            eventually(&format!("round {round}: {at_rest:?} znodes, watches, ephemeral nodes"), PATIENCE, || {
                (count() == at_rest).then_some(())
            });
        });
    }
}
