//! A registry that somebody has damaged: the job that is hit says so and rests, the others run on; marks of nobody are
//! cleared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elasticjob::registry::Connection;
use elasticjob::registry::zookeeper::{Settings, Zookeeper};
use elasticjob::{JobHandle, ScheduleJob};
use elasticjob_core::path::JobPath;
use elasticjob_core::tree::Op;
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{ZooKeeper, eventually, pause, wall_clock_millis};

type Runs = Arc<Mutex<BTreeMap<(String, u32), Vec<i64>>>>;

async fn connect(zookeeper: &ZooKeeper) -> Connection {
    let settings =
        Settings { session_timeout: Duration::from_secs(4), ..Settings::new(&zookeeper.address(), "damage") };
    let registry = Arc::new(Zookeeper::connect(settings).expect("right settings"));
    Connection::on(registry).connect().await.expect("an address")
}

async fn job(connection: &Connection, name: &str, failover: bool, runs: &Runs) -> JobHandle {
    let (runs, key) = (Arc::clone(runs), name.to_owned());
    let job = ScheduleJob::new(name, 2).cron("* * * * * ?").failover(failover).simple(move |context| {
        let (runs, key) = (Arc::clone(&runs), key.clone());
        async move {
            runs.lock().expect("a lock").entry((key, context.item())).or_default().push(wall_clock_millis());
            Ok(())
        }
    });
    job.start(connection).await.expect("starts")
}

fn runs_after(runs: &Runs, job: &str, item: u32, moment: i64) -> usize {
    let runs = runs.lock().expect("a lock");
    runs.get(&(job.to_owned(), item)).map_or(0, |r| r.iter().filter(|at| **at > moment).count())
}

async fn plant(registry: &dyn Registry, ops: Vec<Op>) {
    let session = conformance::session(registry).await;
    let outcome = registry.commit(session, &ops).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{ops:?}: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_job_rests_and_the_others_run_on() {
    let zookeeper = ZooKeeper::start();
    let connection = connect(&zookeeper).await;
    let runs = Runs::default();
    let names = ["no-yaml", "megabyte", "foreign", "no-leader", "healthy"];
    let mut handles = Vec::new();
    for name in names {
        handles.push(job(&connection, name, false, &runs).await);
    }
    let from = wall_clock_millis();
    tokio::task::block_in_place(|| {
        eventually("all run", Duration::from_secs(20), || {
            names.iter().all(|n| (0..2).all(|i| runs_after(&runs, n, i, from) > 0)).then_some(())
        });
    });
    let registry = connection.registry();
    let good = registry.read(vec![elasticjob_core::query::Query::Node("/no-yaml/config".into())]).await.expect("reads")
        [0]
    .node()
    .expect("is there")
    .text();
    plant(&**registry, vec![Op::set("/no-yaml/config", "{ this is: [not YAML")]).await;
    plant(&**registry, vec![Op::set("/megabyte/config", vec![b'a'; 900_000])]).await;
    plant(
        &**registry,
        vec![
            Op::create("/foreign/sharding/not-a-number", "?"),
            Op::create("/foreign/instances/somebody", "what is this"),
            Op::create("/foreign/servers/not-an-ip", "?"),
            Op::create("/foreign/unknown", "?"),
        ],
    )
    .await;
    // The whole subtree of the leader goes.
    plant(&**registry, vec![Op::delete("/no-leader/leader/election/instance")]).await;
    tokio::task::block_in_place(|| pause(Duration::from_millis(2_500)));
    let from = wall_clock_millis();
    tokio::task::block_in_place(|| pause(Duration::from_secs(4)));
    for name in ["foreign", "no-leader", "healthy"] {
        for item in 0..2 {
            assert!(runs_after(&runs, name, item, from) >= 3, "{name} item {item} runs on");
        }
    }
    for name in ["no-yaml", "megabyte"] {
        assert_eq!(runs_after(&runs, name, 0, from), 0, "{name} rests");
    }
    plant(&**registry, vec![Op::set("/no-yaml/config", good)]).await;
    let from = wall_clock_millis();
    tokio::task::block_in_place(|| {
        eventually("the corrected job runs", Duration::from_secs(10), || {
            (runs_after(&runs, "no-yaml", 1, from) > 0).then_some(())
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_marks_of_every_kind_do_not_stop_an_item_for_ten_seconds() {
    let zookeeper = ZooKeeper::start();
    let connection = connect(&zookeeper).await;
    let runs = Runs::default();
    let ghost = "10.9.9.9@-@1";
    let registry = connection.registry();
    let mut handles = Vec::new();
    for failover in [false, true] {
        let kinds =
            ["running", "failover", "failovering", "misfire", "items", "processing", "leader", "trigger", "servers"];
        let names: Vec<String> = kinds.iter().map(|k| format!("{k}-{failover}")).collect();
        for name in &names {
            handles.push(job(&connection, name, failover, &runs).await);
        }
        let from = wall_clock_millis();
        tokio::task::block_in_place(|| {
            eventually("all run", Duration::from_secs(30), || {
                names.iter().all(|n| (0..2).all(|i| runs_after(&runs, n, i, from) > 0)).then_some(())
            });
        });
        for (kind, name) in kinds.iter().zip(&names) {
            let path = JobPath::new(name);
            let ops = match *kind {
                "running" => vec![Op::create(path.item_running(0), ghost), Op::create(path.item_running(1), ghost)],
                "failover" => vec![Op::create(path.item_failover(0), ghost)],
                "failovering" => vec![Op::create(path.item_failovering(0), ghost)],
                "misfire" => vec![Op::create(path.item_misfire(0), "")],
                "items" => vec![
                    Op::Ensure(path.below("leader/failover")),
                    Op::Ensure(path.failover_items()),
                    Op::create(path.failover_item(0), ""),
                ],
                "processing" => vec![Op::Ensure(path.below("leader/sharding")), Op::create(path.processing(), "")],
                "leader" => vec![Op::delete(path.leader_instance()), Op::create(path.leader_instance(), ghost)],
                "trigger" => vec![Op::Ensure(path.triggers()), Op::create(path.trigger(ghost), "")],
                _ => vec![Op::create(path.server("10.9.9.9"), "ENABLED")],
            };
            // The item may be running at this very moment: then once more.
            tokio::task::block_in_place(|| {
                eventually("planted", Duration::from_secs(10), || {
                    let session = futures_block(conformance::session(&**registry));
                    let outcome = futures_block(registry.commit(session, &ops));
                    matches!(outcome, Outcome::Committed { .. }).then_some(())
                });
            });
        }
        let planted = wall_clock_millis();
        tokio::task::block_in_place(|| {
            eventually("every item runs within ten seconds", Duration::from_secs(10), || {
                names.iter().all(|n| (0..2).all(|i| runs_after(&runs, n, i, planted + 1_000) > 0)).then_some(())
            });
            pause(Duration::from_secs(4));
        });
        let late = wall_clock_millis() - 3_500;
        for name in &names {
            assert!(
                (0..2).all(|i| runs_after(&runs, name, i, late) >= 3),
                "{name} goes on: {:?}",
                handles.iter().find(|h| h.name() == name).map(JobHandle::state)
            );
        }
    }
}

fn futures_block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Handle::current().block_on(future)
}
