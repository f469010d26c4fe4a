//! Jobs through the library, on a registry in memory: failures, panics, pools, plug-ins, sessions that end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elasticjob::registry::Connection;
use elasticjob::registry::memory::Memory;
use elasticjob::{
    BlockingJob, Context, Error, ErrorHandler, Failure, JobResult, OneOffJob, Plugins, ScheduleJob, StopReason,
    ThreadPool,
};
use elasticjob_core::query::Query;
use elasticjob_registry::Registry;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);

fn connect(plugins: Plugins) -> (Arc<elasticjob::registry::memory::Connection>, Connection) {
    let registry = Arc::new(Memory::new().connect());
    let connection = Connection::on(registry.clone())
        .plugins(plugins)
        .connect()
        .now_or_never()
        .expect("it does not wait")
        .expect("an address");
    (registry, connection)
}

async fn next<T>(receiver: &mut mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(PATIENCE, receiver.recv()).await.expect("in time").expect("open")
}

/// Hands failures to the test.
struct Collect(mpsc::UnboundedSender<(u32, String)>);

impl ErrorHandler for Collect {
    fn name(&self) -> &str {
        "COLLECT"
    }

    async fn handle(&self, failure: &Failure) {
        let _ = self.0.send((failure.item().expect("an item"), failure.to_string()));
    }
}

#[tokio::test]
async fn a_panic_is_the_failure_of_its_item_alone() {
    let (failed, mut failures) = mpsc::unbounded_channel();
    let (_, connection) = connect(Plugins::default().error_handler(Collect(failed)));
    let (ran, mut runs) = mpsc::unbounded_channel();
    let job = ScheduleJob::new("panics", 3).cron("* * * * * ?").error_handler("collect").simple(move |context| {
        let ran = ran.clone();
        async move {
            match context.item() {
                0 => panic!("item 0 is broken"),
                1 => Err("item 1 fails".into()),
                item => Ok(ran.send(item)?),
            }
        }
    });
    let handle = job.start(&connection).await.expect("starts");
    let mut told: BTreeMap<u32, String> = BTreeMap::new();
    for _ in 0..4 {
        let (item, text) = next(&mut failures).await;
        told.insert(item, text);
    }
    assert_eq!(told[&0], "the job panicked: item 0 is broken");
    assert_eq!(told[&1], "item 1 fails");
    for _ in 0..2 {
        assert_eq!(next(&mut runs).await, 2, "the others run on");
    }
    assert_eq!(handle.stop().await, StopReason::Asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_bounds_the_items_that_run_at_one_time() {
    let processors = std::thread::available_parallelism().expect("known").get();
    for (pool, most) in [(ThreadPool::SingleThread, 1), (ThreadPool::Cpu, 2 * processors)] {
        let (_, connection) = connect(Plugins::default());
        let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, mut ended) = mpsc::unbounded_channel();
        let shared = (Arc::clone(&now), Arc::clone(&peak));
        let items = u32::try_from(most * 3).expect("small");
        let job = OneOffJob::new("pool", items).thread_pool(pool).simple(move |_| {
            let ((now, peak), done) = (shared.clone(), done.clone());
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(done.send(())?)
            }
        });
        let handle = job.start(&connection).await.expect("starts");
        handle.trigger().await.expect("triggers");
        for _ in 0..items {
            next(&mut ended).await;
        }
        let peak = peak.load(Ordering::SeqCst);
        assert!(peak <= most && peak >= 1, "{pool:?}: {peak} items at one time");
        handle.stop().await;
    }
}

/// Code on a thread that goes on until the test lets it.
struct Stubborn {
    began: mpsc::UnboundedSender<()>,
    let_go: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl BlockingJob for Stubborn {
    fn execute(&self, _: Context) -> JobResult {
        self.began.send(())?;
        Ok(self.let_go.lock().expect("a lock").recv_timeout(PATIENCE)?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_cannot_be_stopped_keeps_its_item_when_its_job_has_to_leave() {
    let (registry, connection) = connect(Plugins::default());
    let (began, mut begins) = mpsc::unbounded_channel();
    let (end, let_go) = std::sync::mpsc::channel();
    let job = ScheduleJob::new("stubborn", 1).cron("* * * * * ?");
    let handle = job.blocking(Stubborn { began, let_go: Mutex::new(let_go) }).start(&connection).await.expect("starts");
    next(&mut begins).await;
    let mark = || async {
        let answers = registry.read(vec![Query::Node("/stubborn/sharding/0/running".into())]).await.expect("an answer");
        answers[0].node().is_some()
    };
    let mut stop = tokio::spawn(async move { handle.stop_within(Duration::ZERO).await });
    // Longer than the second that it has after its cancellation.
    tokio::time::timeout(Duration::from_millis(2_500), &mut stop).await.expect_err("the job waits for it");
    assert!(mark().await, "nobody else begins the item meanwhile");
    end.send(()).expect("it waits");
    let reason = tokio::time::timeout(PATIENCE, stop).await.expect("it has ended").expect("no panic");
    assert_eq!(reason, StopReason::Asked);
    assert!(!mark().await, "the item is free");
}

#[tokio::test]
async fn after_the_end_of_a_session_every_job_runs_again() {
    const JOBS: usize = 100;
    let (registry, connection) = connect(Plugins::default());
    let runs: Arc<Mutex<BTreeMap<usize, usize>>> = Arc::default();
    let mut handles = Vec::new();
    for number in 0..JOBS {
        let runs = Arc::clone(&runs);
        let job = ScheduleJob::new(&format!("job-{number}"), 1).cron("* * * * * ?").simple(move |_| {
            *runs.lock().expect("a lock").entry(number).or_default() += 1;
            async { Ok(()) }
        });
        handles.push(job.start(&connection).await.expect("starts"));
    }
    for _ in 0..3 {
        registry.expire();
        runs.lock().expect("a lock").clear();
        let all = async {
            let mut tick = tokio::time::interval(Duration::from_millis(50));
            while runs.lock().expect("a lock").len() < JOBS {
                tick.tick().await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("all jobs run again");
    }
}

#[tokio::test]
async fn wrong_starts_are_refused_with_their_reason() {
    let (_, connection) = connect(Plugins::default());
    let start = |job: ScheduleJob| {
        let connection = connection.clone();
        async move { job.simple(|_| async { Ok(()) }).start(&connection).await.map(drop) }
    };
    let wrong = |error: Result<(), Error>| error.expect_err("refused").to_string();
    let cron = "0 0 3 * * ?";
    assert!(
        wrong(start(ScheduleJob::new("a", 1)).await)
            .contains("`cron` is missing or empty: expected a cron expression, because the job is scheduled")
    );
    let error = wrong(start(ScheduleJob::new("a", 1).cron(cron).sharding_strategy("EVEN")).await);
    assert!(error.contains("`jobShardingStrategyType`: `EVEN` is invalid: expected one of AVG_ALLOCATION"), "{error}");
    let error = wrong(start(ScheduleJob::new("a", 0).cron(cron)).await);
    assert!(error.contains("`shardingTotalCount`: `0` is invalid"), "{error}");
    assert_eq!(start(ScheduleJob::new("a", 1).cron(cron)).await, Ok(()));
    assert_eq!(wrong(start(ScheduleJob::new("a", 1).cron(cron)).await), "job `a` is already running in this process");
    let error = OneOffJob::new("b", 1).of_type("DANCE").start(&connection).await.map(drop);
    assert!(wrong(error).contains("`elasticJobType`: `DANCE` is invalid: expected one of SCRIPT"));
}

/// What the log has while it is held.
#[derive(Clone, Default)]
struct LogText(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for LogText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn log_and_throw_write_a_line_and_ignore_does_not() {
    let log = LogText::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    for (handler, told) in [("LOG", true), ("THROW", true), ("IGNORE", false)] {
        let (_, connection) = connect(Plugins::default());
        let (ran, mut runs) = mpsc::unbounded_channel();
        let job = ScheduleJob::new(&format!("job-{handler}"), 1).cron("* * * * * ?").error_handler(handler);
        let job = job.simple(move |_| {
            let _ = ran.send(());
            async { Err("out of paper".into()) }
        });
        let handle = job.start(&connection).await.expect("starts");
        next(&mut runs).await;
        next(&mut runs).await;
        handle.stop().await;
        let text = String::from_utf8(log.0.lock().expect("a lock").clone()).expect("UTF-8");
        let line = format!("item failed: out of paper job=\"job-{handler}\" item=0");
        assert_eq!(text.contains(&line), told, "{handler}: {text}");
    }
}

/// Code of the user's in a strategy must not end the other jobs of the process.
#[tokio::test]
async fn a_strategy_that_panics_keeps_its_job_from_running_and_no_other_one() {
    struct Broken;
    impl elasticjob::ShardingStrategy for Broken {
        fn name(&self) -> &str {
            "BROKEN"
        }

        fn assign(
            &self,
            _instances: &[String],
            _job: &str,
            _total: u32,
            _now: elasticjob_core::time::Timestamp,
        ) -> Vec<(String, Vec<u32>)> {
            panic!("this strategy is broken")
        }
    }
    let (_, connection) = connect(Plugins::default().strategy(Broken));
    let (ran, mut runs) = mpsc::unbounded_channel();
    let job = |name: &'static str, strategy: &str| {
        let ran = ran.clone();
        ScheduleJob::new(name, 2).cron("* * * * * ?").sharding_strategy(strategy).simple(move |_| {
            let ran = ran.clone();
            async move { Ok(ran.send(name)?) }
        })
    };
    let broken = job("broken", "BROKEN").start(&connection).await.expect("starts");
    let sound = job("sound", "AVG_ALLOCATION").start(&connection).await.expect("starts");
    for _ in 0..6 {
        assert_eq!(next(&mut runs).await, "sound");
    }
    sound.stop().await;
    broken.stop().await;
}
