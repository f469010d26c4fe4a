//! Links that are cut, and servers that go away: everything runs again, everywhere, by itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elasticjob::registry::zookeeper::{Settings, Zookeeper};
use elasticjob::registry::{Connection, Link, Registry};
use elasticjob::{BlockingJob, Context, JobHandle, JobResult, JobState, Operations, ScheduleJob};
use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use elasticjob_registry::{Outcome, conformance};
use elasticjob_tests::{Ensemble, Process, Proxy, ZooKeeper, agent, eventually, pause, wall_clock_millis};

use crate::job_file;

const JOBS: usize = 50;
const SESSION: Duration = Duration::from_secs(2);

/// When each job last ran on each instance.
type LastRuns = Arc<Mutex<BTreeMap<(String, usize), i64>>>;

async fn start_all(servers: &str, instance: usize, runs: &LastRuns) -> (Connection, Vec<JobHandle>) {
    let settings = Settings {
        session_timeout: SESSION,
        base_sleep: Duration::from_millis(100),
        max_sleep: Duration::from_millis(500),
        ..Settings::new(servers, "links")
    };
    let registry = Arc::new(Zookeeper::connect(settings).expect("right settings"));
    let connection = Connection::on(registry).connect().await.expect("an address");
    let mut handles = Vec::new();
    for number in 0..JOBS {
        let name = format!("job-{number}");
        let (runs, key) = (Arc::clone(runs), name.clone());
        let job = ScheduleJob::new(&name, 2).cron("* * * * * ?").simple(move |_| {
            let (runs, key) = (Arc::clone(&runs), key.clone());
            async move {
                runs.lock().expect("a lock").insert((key, instance), wall_clock_millis());
                Ok(())
            }
        });
        handles.push(job.start(&connection).await.expect("starts"));
    }
    (connection, handles)
}

/// Waits until each job has run on each of two instances after that moment.
fn all_run_after(runs: &LastRuns, moment: i64, what: &str) {
    let wanted = JOBS * 2;
    eventually(what, Duration::from_secs(40), || {
        let count = runs.lock().expect("a lock").values().filter(|at| **at > moment).count();
        (count == wanted).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_of_twenty_cuts_all_jobs_run_again_on_all_instances() {
    let zookeeper = ZooKeeper::start();
    let proxy = Proxy::to(zookeeper.port()).await;
    let runs = LastRuns::default();
    let (_one, _jobs_of_one) = start_all(&proxy.address(), 0, &runs).await;
    let (_two, _jobs_of_two) = start_all(&zookeeper.address(), 1, &runs).await;
    tokio::task::block_in_place(|| all_run_after(&runs, wall_clock_millis(), "all jobs run on both instances"));
    for cut in 0..20_u32 {
        // From a tenth of a session timeout to three of them, in no order.
        let length = SESSION * (1 + (cut * 7) % 20 * 29 / 19) / 10;
        proxy.cut();
        tokio::task::block_in_place(|| pause(length));
        proxy.mend();
        let what = format!("all jobs run on both instances after cut {cut} of {length:?}");
        tokio::task::block_in_place(|| all_run_after(&runs, wall_clock_millis() + 500, &what));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_zookeeper_s_leader_and_a_restart_of_all_are_survived() {
    let mut ensemble = Ensemble::start();
    let runs = LastRuns::default();
    let (_one, _jobs_of_one) = start_all(&ensemble.addresses(), 0, &runs).await;
    let (_two, _jobs_of_two) = start_all(&ensemble.addresses(), 1, &runs).await;
    tokio::task::block_in_place(|| {
        all_run_after(&runs, wall_clock_millis(), "all jobs run on both instances");
        let leader = ensemble.wait_for_leader();
        ensemble.servers[leader].kill();
        ensemble.wait_for_leader();
        all_run_after(&runs, wall_clock_millis(), "all jobs run after the leader's death");
        ensemble.revive(leader);
        ensemble.restart();
        all_run_after(&runs, wall_clock_millis(), "all jobs run after a restart of the ensemble");
    });
}

/// What is waited for, with a bound.
async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("within a minute")
}

struct Deaf<F>(F);

impl<F: Fn(Context) -> JobResult + Send + Sync + 'static> BlockingJob for Deaf<F> {
    fn execute(&self, context: Context) -> JobResult {
        (self.0)(context)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_stops_without_a_link_leaves_nothing_in_the_session_that_other_jobs_hold() {
    let zookeeper = ZooKeeper::start();
    let proxy = Proxy::to(zookeeper.port()).await;
    let settings = |servers: &str| Settings {
        session_timeout: Duration::from_secs(30),
        base_sleep: Duration::from_millis(100),
        max_sleep: Duration::from_millis(500),
        ..Settings::new(servers, "links")
    };
    let registry = Arc::new(Zookeeper::connect(settings(&proxy.address())).expect("right settings"));
    let connection = Connection::on(registry).connect().await.expect("an address");
    let runs = Arc::new(AtomicU32::default());
    let job = |name: &str| {
        let runs = Arc::clone(&runs);
        ScheduleJob::new(name, 2).cron("* * * * * ?").simple(move |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        })
    };
    let stays = job("stays").start(&connection).await.expect("starts");
    let leaves = job("leaves").start(&connection).await.expect("starts");
    let comes_back = job("comes-back").start(&connection).await.expect("starts");
    let with_items = |items: usize| move |state: &JobState| matches!(state, JobState::Running { items: own, .. } if own.len() == items);
    for handle in [&stays, &leaves, &comes_back] {
        within(handle.states().wait_for(with_items(2))).await.expect("it has its items");
    }
    // Code on a thread, which cannot be stopped.
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (may_end, waits) = std::sync::mpsc::channel::<()>();
    let (begun, waits) = (Mutex::new(Some(begun)), Mutex::new(waits));
    let code = move |_: Context| -> JobResult {
        if let Some(begun) = begun.lock().expect("a lock").take() {
            let _ = begun.send(());
        }
        Ok(waits.lock().expect("a lock").recv()?)
    };
    let deaf = ScheduleJob::new("deaf", 1).cron("* * * * * ?").blocking(Deaf(code));
    let deaf = deaf.start(&connection).await.expect("starts");
    within(has_begun).await.expect("it runs");

    proxy.cut();
    within(stays.states().wait_for(|state| *state == JobState::Disconnected)).await.expect("it hears of the cut");
    leaves.stop().await;
    comes_back.stop().await;
    let stopped = tokio::spawn(async move { deaf.stop_within(Duration::ZERO).await });
    let again = job("comes-back").submit(&connection).expect("starts");

    let seen = Zookeeper::connect(settings(&zookeeper.address())).expect("right settings");
    within(seen.link().wait_for(|link| matches!(link, Link::Up { .. }))).await.expect("a link");
    let ephemeral = async |job: &str| {
        let nodes = ["instances", "leader/election", "sharding/0", "sharding/0/instance", "sharding/1/instance"];
        let mut found = Vec::new();
        for folder in nodes {
            let path = format!("/{job}/{folder}");
            let answers = seen.read(vec![Query::Children(path.clone())]).await.expect("an answer");
            let children: Vec<String> = answers[0].children().iter().map(|name| format!("{path}/{name}")).collect();
            let answers = seen.read(children.iter().cloned().map(Query::Node).collect()).await.expect("answers");
            let nodes = answers.iter().filter_map(|answer| answer.node());
            found.extend(children.into_iter().zip(nodes).filter(|(_, n)| n.owner != 0).map(|(at, n)| (at, n.owner)));
        }
        found
    };
    // Marks of runs come and go.
    let held = async |job: &str| {
        let nodes = ephemeral(job).await.into_iter();
        nodes.filter(|(at, _)| !at.ends_with("/running")).collect::<Vec<_>>()
    };
    let before = held("stays").await;
    assert_eq!(before.len(), 4, "instance, leader and two claims: {before:?}");
    assert_eq!(held("leaves").await.len(), 4);
    assert_eq!(ephemeral("deaf").await.len(), 4, "instance, leader, a claim and `running`");

    proxy.mend();
    within(again.states().wait_for(with_items(2))).await.expect("it has its items again");
    let patience = Duration::from_secs(20);
    let here = tokio::runtime::Handle::current();
    let nothing = || here.block_on(ephemeral("leaves")).is_empty().then_some(());
    tokio::task::block_in_place(|| eventually("nothing is left", patience, nothing));
    assert_eq!(held("stays").await, before, "the session lived on");
    // Longer than code has that can be stopped.
    tokio::task::block_in_place(|| pause(Duration::from_millis(1_500)));
    assert_eq!(ephemeral("deaf").await.len(), 4, "its code still runs");
    drop(may_end);
    within(stopped).await.expect("it stops");
    let nothing = || here.block_on(ephemeral("deaf")).is_empty().then_some(());
    tokio::task::block_in_place(|| eventually("nothing is left of it either", patience, nothing));
    let known = runs.load(Ordering::Relaxed);
    let more = || (runs.load(Ordering::Relaxed) >= known + 8).then_some(());
    tokio::task::block_in_place(|| eventually("both go on", patience, more));
}

#[test]
fn an_agent_waits_for_a_zookeeper_that_is_not_there_and_starts_when_it_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = elasticjob_tests::Journal::new(folder.path());
    let port = elasticjob_tests::free_port();
    let more = "      cron: '* * * * * ?'\n";
    let file = job_file(folder.path(), "job", &format!("127.0.0.1:{port}"), &journal, 2, "0", more);
    let process: Process = agent(&file, &folder.path().join("log"));
    eventually("it says so", Duration::from_secs(20), || {
        process.log().contains(&format!("cannot connect to ZooKeeper 127.0.0.1:{port}/tests")).then_some(())
    });
    let _zookeeper = ZooKeeper::start_at(port);
    eventually("it runs", Duration::from_secs(30), || (journal.runs().len() >= 4).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_starts_where_the_namespace_went_with_the_last_one() {
    const STARTS: Duration = Duration::from_secs(30);
    let zookeeper = ZooKeeper::start();
    let link =
        |namespace: &str| Arc::new(Zookeeper::connect(Settings::new(&zookeeper.address(), namespace)).expect("right"));
    let connection = Connection::on(link("above/below")).connect().await;
    let connection = connection.expect("an address");
    for _ in 0..2 {
        let job = ScheduleJob::new("job", 1).cron("* * * * * ?").simple(|_| async { Ok(()) });
        let handle = tokio::time::timeout(STARTS, job.start(&connection)).await.expect("in time").expect("starts");
        handle.stop().await;
        Operations::new(Arc::clone(connection.registry())).remove_job("job").await.expect("is removed");
        // A container without children: ZooKeeper would do the same within two minutes.
        let above = link("above");
        let up = above.link().wait_for(|link| matches!(link, Link::Up { .. })).await.expect("a link").clone();
        let Link::Up { session, .. } = up else { panic!("{up:?}") };
        let outcome = above.commit(session, &[Op::delete("/below")]).await;
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
}

/// Each cut leads to one connection, and what ended as unknown is settled once the link is back: nothing is sent late or twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_makes_one_connection_and_nothing_is_carried_out_later() {
    const CUTS: usize = 7;
    let zookeeper = ZooKeeper::start();
    let proxy = Proxy::to(zookeeper.port()).await;
    let registry = Zookeeper::connect(Settings::new(&proxy.address(), "cuts")).expect("right settings");
    let session = within(conformance::session(&registry)).await;
    let outcome = registry.commit(session, &[Op::create("/late", "")]).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    let exists = |names: Vec<String>| async {
        let answers = registry.read(names.into_iter().map(Query::Node).collect()).await.expect("it reads");
        answers.iter().map(|answer| answer.node().is_some()).collect::<Vec<bool>>()
    };
    let (mut link, before) = (registry.link(), proxy.taken());
    let (mut settled, mut unknown) = (Vec::new(), 0);
    for cut in 0..CUTS {
        let names: Vec<String> = (0..200).map(|number| format!("/late/{cut}-{number}")).collect();
        let ops: Vec<[Op; 1]> = names.iter().map(|name| [Op::create(name.as_str(), "")]).collect();
        let commits = futures_util::future::join_all(ops.iter().map(|ops| registry.commit(session, ops)));
        let cutting = async {
            // In the middle of the answers, now and then before the first of them.
            within(async { while cut % 2 == 0 && zookeeper.says("mntr").is_none() {} }).await;
            proxy.cut();
            within(link.wait_for(|link| matches!(link, Link::Down { .. }))).await.expect("the link is alive");
            proxy.mend();
        };
        let (outcomes, ()) = futures_util::future::join(commits, cutting).await;
        assert_eq!(within(conformance::session(&registry)).await, session, "the session lives on");
        let found = exists(names.clone()).await;
        for ((name, outcome), found) in names.iter().zip(outcomes).zip(&found) {
            match outcome {
                Outcome::Committed { .. } => assert!(found, "{name}"),
                Outcome::Failed(_) => assert!(!found, "{name} was not sent"),
                Outcome::Unknown => unknown += 1,
                Outcome::Refused(refusal) => panic!("{name}: {refusal:?}"),
            }
        }
        settled.extend(names.into_iter().zip(found));
    }
    assert_eq!(proxy.taken(), before + CUTS, "one connection after each cut");
    let outcome = registry.commit(session, &[Op::create("/last", "")]).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    let found = exists(settled.iter().map(|(name, _)| name.clone()).collect()).await;
    for ((name, then), now) in settled.iter().zip(found) {
        assert_eq!(*then, now, "{name} was carried out later ({unknown} were unknown)");
    }
}
