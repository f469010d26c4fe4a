//! Listeners around a run, by the agent and by the library.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use elasticjob::registry::Connection;
use elasticjob::{
    DistributeOnce, ErrorHandler, Failure, JobResult, JobState, ListenedRun, Listener, OnceListener, Plugins,
};
use elasticjob_tests::{ZooKeeper, eventually};
use futures_util::FutureExt as _;
use tokio::sync::watch;

use crate::ways::{BOTH, Job, connect};

const PATIENCE: Duration = Duration::from_secs(30);

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A job whose items and listeners write lines into one file.
fn writing(folder: &Path, items: u32) -> (Job, std::path::PathBuf) {
    let (out, script) = (folder.join("out"), folder.join("write.sh"));
    std::fs::write(&script, format!("echo \"$1 $ELASTICJOB_SHARDING_ITEMS|$ELASTICJOB_FAILED_ITEMS\" >> {}\n[ \"$1$ELASTICJOB_SHARDING_ITEM\" != item1 ]", out.display()))
        .expect("a script");
    let command = |word: &str| format!("sh {} {word}", script.display());
    let job = Job::new("SCRIPT", items)
        .handler("IGNORE")
        .prop("script.command.line", command("item"))
        .prop("elasticjob.listener.before.command.line", command("before"))
        .prop("elasticjob.listener.after.command.line", command("after"))
        .prop("elasticjob.listener.started.command.line", command("started"))
        .prop("elasticjob.listener.completed.command.line", command("completed"));
    (job, out)
}

#[test]
fn commands_are_run_before_and_after_each_run() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let (job, out) = writing(folder.path(), 2);
        let _running = job.listener("SCRIPT").start(way, folder.path());
        let lines = eventually("three runs", PATIENCE, || Some(lines(&out)).filter(|l| l.len() >= 12));
        for run in lines[..12].chunks(4) {
            assert_eq!(run, ["before 0,1|", "item |", "item |", "after 0,1|1"], "{way:?}");
        }
    }
}

#[test]
fn the_distribute_once_command_is_run_once_for_all_items() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let (job, out) = writing(folder.path(), 3);
        let _running = job.listener("DISTRIBUTE_ONCE").start(way, folder.path());
        let lines = eventually("three runs", PATIENCE, || Some(lines(&out)).filter(|l| l.len() >= 15));
        for run in lines[..15].chunks(5) {
            assert_eq!(run, ["started 0,1,2|", "item |", "item |", "item |", "completed 0,1,2|1"], "{way:?}");
        }
    }
}

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down its calls; fails before the first run and panics after it.
struct Writes {
    name: &'static str,
    order: i32,
    log: Log,
    broken: bool,
}

impl Writes {
    fn call(&self, moment: &str, run: &ListenedRun) -> JobResult {
        let items: Vec<(u32, &str)> = run.items().into_iter().collect();
        let mut log = self.log.lock().expect("a lock");
        log.push(format!("{} {moment} {items:?} {:?}", self.name, run.failed()));
        let first = log.len() < 6;
        drop(log);
        match (self.broken && first, moment) {
            (true, "before") => Err("it does not like it".into()),
            (true, _) => panic!("it does not like it at all"),
            (false, _) => Ok(()),
        }
    }
}

impl Listener for Writes {
    fn name(&self) -> &str {
        self.name
    }

    fn order(&self) -> i32 {
        self.order
    }

    async fn before(&self, run: &ListenedRun) -> JobResult {
        self.call("before", run)
    }

    async fn after(&self, run: &ListenedRun) -> JobResult {
        self.call("after", run)
    }
}

struct Collect(Log);

impl ErrorHandler for Collect {
    fn name(&self) -> &str {
        "COLLECT"
    }

    async fn handle(&self, failure: &Failure) {
        self.0.lock().expect("a lock").push(format!("{:?} {failure}", failure.item()));
    }
}

#[test]
fn listeners_of_ones_own_are_called_by_their_order_and_their_failures_are_handled() {
    let (log, failures): (Log, Log) = Default::default();
    let writes = |name, order, broken| Writes { name, order, log: Arc::clone(&log), broken };
    let plugins = Plugins::default()
        .listener(writes("LATE", 7, false))
        .listener(writes("EARLY", -1, true))
        .error_handler(Collect(Arc::clone(&failures)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let ran = Arc::clone(&log);
    let _handle = runtime.block_on(async {
        let job = Job::new("closure", 1).listener("LATE").listener("early").handler("COLLECT").described();
        let job = job.simple(move |context| {
            ran.lock().expect("a lock").push(format!("item {}", context.item()));
            async { Ok(()) }
        });
        job.start(&connect(plugins)).await.expect("starts")
    });
    let log = eventually("two runs", PATIENCE, || {
        Some(log.lock().expect("a lock").clone()).filter(|lines| lines.len() >= 10)
    });
    let items = r#"[(0, "Zürich")] []"#;
    for run in log[..10].chunks(5) {
        let calls = [("EARLY before"), ("LATE before")].map(|call| format!("{call} {items}"));
        assert_eq!(run[..2], calls);
        assert_eq!(run[2], "item 0");
        assert_eq!(run[3..], [("EARLY after"), ("LATE after")].map(|call| format!("{call} {items}")));
    }
    let mut failures = eventually("both failures", PATIENCE, || {
        Some(failures.lock().expect("a lock").clone()).filter(|lines| lines.len() >= 2)
    });
    failures.sort(); // each is handled in a task of its own
    assert_eq!(
        failures,
        [
            "None listener `EARLY` failed after the run: the listener panicked: it does not like it at all",
            "None listener `EARLY` failed before the run: it does not like it",
        ]
    );
    runtime.shutdown_background();
}

struct Once(Log);

impl OnceListener for Once {
    fn name(&self) -> &str {
        "ONCE"
    }

    async fn all_started(&self, run: &ListenedRun) -> JobResult {
        self.0.lock().expect("a lock").push(format!("started {}", run.due()));
        Ok(())
    }

    async fn all_completed(&self, run: &ListenedRun) -> JobResult {
        self.0.lock().expect("a lock").push(format!("completed {}", run.due()));
        Ok(())
    }
}

/// One of three items is disabled: its firing never has all of them.
#[test]
fn a_listener_that_waits_in_vain_times_out_and_the_items_run() {
    let (log, failures): (Log, Log) = Default::default();
    let limit = Duration::from_millis(300);
    let plugins = Plugins::default()
        .listener(DistributeOnce::new(Once(Arc::clone(&log)), limit, limit))
        .error_handler(Collect(Arc::clone(&failures)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let connection = runtime.block_on(async {
        let connection = connect(plugins);
        let ran = Arc::clone(&log);
        let job = Job::new("closure", 3).listener("ONCE").handler("COLLECT").described().simple(move |context| {
            ran.lock().expect("a lock").push(format!("item {}", context.item()));
            async { Ok(()) }
        });
        job.start(&connection).await.expect("starts");
        connection
    });
    eventually("a firing with all items", PATIENCE, || {
        log.lock().expect("a lock").iter().any(|l| l.starts_with("completed")).then_some(())
    });
    assert!(failures.lock().expect("a lock").is_empty());
    runtime.block_on(async {
        let registry = Arc::clone(connection.registry());
        let elasticjob::registry::Link::Up { session, .. } = *registry.link().borrow() else { panic!("no link") };
        use elasticjob_core::tree::Op;
        registry.commit(session, &[Op::create("/watched/sharding/1/disabled", "")]).await;
        // And its mark of an earlier firing was left by an instance that died.
        let (root, mark) = ("/watched/guarantee/started".to_owned(), "/watched/guarantee/started/1".to_owned());
        registry.commit(session, &[Op::Ensure(root), Op::Ensure(mark.clone()), Op::set(mark, "1000")]).await;
    });
    let told = eventually("both timeouts", PATIENCE, || {
        let told = failures.lock().expect("a lock").clone();
        (told.iter().any(|t| t.contains("completed")) && told.iter().any(|t| t.contains("started"))).then_some(told)
    });
    let started = "were started within 300 ms: only items [0, 2] of 3 items reported in time";
    let start = "None listener `ONCE` failed before the run: not all items due ";
    assert!(told.iter().any(|t| t.starts_with(start) && t.ends_with(started)), "{told:?}");
    eventually("the mark that was left is taken away", PATIENCE, || {
        let query = elasticjob_core::query::Query::Node("/watched/guarantee/started/1".into());
        let answers = runtime.block_on(connection.registry().read(vec![query])).expect("an answer");
        answers[0].node().is_none().then_some(())
    });
    log.lock().expect("a lock").clear();
    eventually("items run on without it", PATIENCE, || {
        let log = log.lock().expect("a lock");
        (log.iter().filter(|l| *l == "item 2").count() >= 2).then_some(())
    });
    assert!(log.lock().expect("a lock").iter().all(|l| l.starts_with("item")), "{log:?}");
    runtime.shutdown_background();
}

/// An item that overruns is caught up while the other one takes its firing: two runs of one due time in one process.
#[test]
fn the_parts_of_one_firing_that_run_in_one_process_call_the_listener_once() {
    let log: Log = Default::default();
    let limit = Duration::from_secs(20);
    let plugins = Plugins::default().listener(DistributeOnce::new(Once(Arc::clone(&log)), limit, limit));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let sources: Log = Default::default();
    let state: Arc<OnceLock<watch::Receiver<JobState>>> = Arc::default();
    let handle = runtime.block_on(async {
        let (ran, state) = (Arc::clone(&sources), Arc::clone(&state));
        let job = Job::new("closure", 2).listener("ONCE").described().simple(move |context| {
            ran.lock().expect("a lock").push(context.source().word().to_owned());
            let state = state.get().cloned();
            async move {
                // Each third firing overruns: it goes on until the next one has fallen due.
                if let Some(mut state) = state.filter(|_| context.item() == 1 && context.due().0 / 1_000 % 3 == 0) {
                    let later = context.due() + Duration::from_secs(1);
                    let passed =
                        |s: &JobState| matches!(s, JobState::Running { next: Some(next), .. } if *next > later);
                    state.wait_for(passed).await?;
                }
                Ok(())
            }
        });
        job.start(&connect(plugins)).await.expect("starts")
    });
    state.set(handle.states()).expect("set once");
    let calls = eventually("ten firings", PATIENCE, || {
        Some(log.lock().expect("a lock").clone())
            .filter(|log| log.iter().filter(|l| l.starts_with("completed")).count() >= 10)
    });
    assert!(sources.lock().expect("a lock").iter().any(|s| s == "misfire"), "some were caught up");
    let mut once = calls.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), calls.len(), "each is told once: {calls:?}");
    runtime.shutdown_background();
}

/// Registered under another name; panics at the first start.
struct Named(&'static str, Log, bool);

impl OnceListener for Named {
    fn name(&self) -> &str {
        self.0
    }

    async fn all_started(&self, run: &ListenedRun) -> JobResult {
        let first = {
            let mut log = self.1.lock().expect("a lock");
            log.push(format!("{} started {}", self.0, run.due()));
            log.iter().filter(|line| line.starts_with(self.0)).count() == 1
        };
        assert!(!(first && self.2), "the first time is too much");
        Ok(())
    }

    async fn all_completed(&self, run: &ListenedRun) -> JobResult {
        self.1.lock().expect("a lock").push(format!("{} completed {}", self.0, run.due()));
        Ok(())
    }
}

#[test]
fn several_distribute_once_listeners_are_called_in_turn_and_one_that_panics_costs_nothing_else() {
    let (log, failures): (Log, Log) = Default::default();
    let limit = Duration::from_secs(20);
    let once = |name, panics| DistributeOnce::new(Named(name, Arc::clone(&log), panics), limit, limit);
    let plugins = Plugins::default()
        .listener(once("FIRST", true))
        .listener(once("SECOND", false))
        .error_handler(Collect(Arc::clone(&failures)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let _handle = runtime.block_on(async {
        let job = Job::new("closure", 2).listener("FIRST").listener("SECOND").handler("COLLECT").described();
        job.simple(|_| async { Ok(()) }).start(&connect(plugins)).await.expect("starts")
    });
    let calls = eventually("three firings", PATIENCE, || {
        Some(log.lock().expect("a lock").clone()).filter(|log| log.len() >= 12)
    });
    for firing in calls[..12].chunks(4) {
        let due = firing[0].rsplit(' ').next().expect("a time");
        let told = ["FIRST started", "SECOND started", "FIRST completed", "SECOND completed"];
        assert_eq!(firing, told.map(|call| format!("{call} {due}")));
    }
    let failures = failures.lock().expect("a lock").clone();
    assert_eq!(
        failures,
        ["None listener `FIRST` failed before the run: the listener panicked: the first time is too much"]
    );
    runtime.shutdown_background();
}

#[test]
fn a_clean_stop_lets_the_run_and_its_listeners_end() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let (out, script) = (folder.path().join("out"), folder.path().join("slow.sh"));
        std::fs::write(&script, format!("echo begin $1 >> {0}; sleep $2; echo end $1 >> {0}", out.display()))
            .expect("a script");
        let command = |word: &str, seconds: &str| format!("sh {} {word} {seconds}", script.display());
        let job = Job::new("SCRIPT", 1)
            .listener("SCRIPT")
            .listener("DISTRIBUTE_ONCE")
            .prop("script.command.line", command("item", "3"))
            .prop("elasticjob.listener.after.command.line", command("after", "0.5"))
            .prop("elasticjob.listener.completed.command.line", command("completed", "0.5"));
        let mut running = job.start(way, folder.path());
        eventually("the item begins", PATIENCE, || (!lines(&out).is_empty()).then_some(()));
        running.stop(20);
        let told = ["begin item", "end item", "begin after", "end after", "begin completed", "end completed"];
        assert_eq!(lines(&out), told, "{way:?}");
    }
}

/// Two instances of the library on one ZooKeeper; the number of items changes while they run.
#[test]
fn the_items_may_change_while_instances_gather() {
    let zookeeper = ZooKeeper::start();
    let (log, failures): (Log, Log) = Default::default();
    let limit = Duration::from_millis(700);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (connections, _handles) = runtime.block_on(async {
        let (mut connections, mut handles) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let plugins = Plugins::default()
                .listener(DistributeOnce::new(Once(Arc::clone(&log)), limit, limit))
                .error_handler(Collect(Arc::clone(&failures)));
            let address = format!("zookeeper://{}/tests?sessionTimeoutMilliseconds=4000", zookeeper.address());
            let registry = elasticjob_registry::connect(&address).await.expect("an address");
            let connection = Connection::on(registry)
                .plugins(plugins)
                .connect()
                .now_or_never()
                .expect("it does not wait")
                .expect("an address");
            let job = Job::new("closure", 3).listener("ONCE").handler("COLLECT").described();
            handles.push(job.simple(|_| async { Ok(()) }).start(&connection).await.expect("starts"));
            connections.push(connection);
        }
        (connections, handles)
    });
    let completed = || log.lock().expect("a lock").iter().filter(|l| l.starts_with("completed")).count();
    for items in ["3", "5", "2", "4"] {
        runtime.block_on(async {
            let registry = Arc::clone(connections[0].registry());
            let path = "/watched/config".to_owned();
            let query = elasticjob_core::query::Query::Node(path.clone());
            let text = registry.read(vec![query]).await.expect("an answer")[0].node().expect("a node").text();
            let of = |line: &str| match line.split_once(": ") {
                Some(("shardingTotalCount", _)) => format!("shardingTotalCount: {items}\n"),
                _ => format!("{line}\n"),
            };
            let text: String = text.lines().map(of).collect();
            let elasticjob::registry::Link::Up { session, .. } = *registry.link().borrow() else { panic!("no link") };
            registry.commit(session, &[elasticjob_core::tree::Op::set(path, text)]).await;
        });
        let before = completed();
        eventually(&format!("three firings of {items} items"), Duration::from_secs(60), || {
            (completed() >= before + 4).then_some(())
        });
    }
    let calls = log.lock().expect("a lock").clone();
    let mut once = calls.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), calls.len(), "each is told once: {calls:?}");
    runtime.shutdown_background();
}
