//! A process that dies at each registry write of a run: before the write is sent, or before its answer comes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use elasticjob_core::query::Query;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Registry, conformance};
use elasticjob_tests::{Journal, Moment, Process, Run, Tap, ZooKeeper, agent, eventually, wall_clock_millis};

use crate::SESSION_MILLIS;

const PATIENCE: Duration = Duration::from_secs(60);
const ITEMS: u32 = 2;
/// Begin and release of a run, and of the next one.
const WRITES: usize = 4;

/// One point at which to die, in a job of its own.
struct Point {
    name: String,
    write: usize,
    moment: Moment,
    failover: bool,
    _folder: tempfile::TempDir,
    journal: Journal,
    tap: Tap,
    victim: Process,
    survivor: Process,
}

fn file(folder: &Path, name: &str, servers: &str, job: &str, journal: &Journal, failover: bool) -> PathBuf {
    let text = format!(
        "elasticjob:
  regCenter:
    serverLists: {servers}
    namespace: crashes
    sessionTimeoutMilliseconds: {SESSION_MILLIS}
  jobs:
    {job}:
      elasticJobType: SCRIPT
      cron: 0/3 * * * * ?
      shardingTotalCount: {ITEMS}
      failover: {failover}
      props:
        script.command.line: {}
",
        journal.command("0.2")
    );
    let path = folder.join(format!("{name}.yaml"));
    std::fs::write(&path, text).expect("a file");
    path
}

impl Point {
    async fn new(zookeeper: &ZooKeeper, write: usize, moment: Moment, failover: bool) -> Point {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path());
        let tap = Tap::to(zookeeper.port()).await;
        let name = format!("at-{write}-{moment:?}-{failover}").to_lowercase();
        let near = file(folder.path(), "survivor", &zookeeper.address(), &name, &journal, failover);
        let far = file(folder.path(), "victim", &tap.address(), &name, &journal, failover);
        let survivor = agent(&near, &folder.path().join("survivor.log"));
        let victim = agent(&far, &folder.path().join("victim.log"));
        Point { name, write, moment, failover, _folder: folder, journal, tap, victim, survivor }
    }

    fn runs_of(&self, process: &Process) -> Vec<Run> {
        self.journal.runs().into_iter().filter(|run| run.pid == process.pid()).collect()
    }

    /// Both have an item, and nothing is under way.
    fn is_settled(&self) -> bool {
        let now = wall_clock_millis();
        let each = [&self.victim, &self.survivor].into_iter().all(|process| {
            let runs = self.runs_of(process);
            runs.last().is_some_and(|run| run.end.is_some_and(|end| (300..2_000).contains(&(now - end))))
        });
        each && self.journal.runs().iter().all(|run| run.end.is_some())
    }

    /// What must hold of the firing in which it died, and of all others.
    fn judge(&self, killed: i64) {
        let runs = self.journal.runs();
        let of = |source: &str, item: u32, due: i64| {
            runs.iter().filter(|r| r.source == source && r.item == item && r.due == due).count()
        };
        let item = self.runs_of(&self.victim).last().expect("it has run").item;
        for run in &runs {
            for source in ["schedule", "failover"] {
                let times = of(source, run.item, run.due);
                assert!(
                    times <= 1,
                    "{}: item {} due {} was begun {times} times by {source}",
                    self.name,
                    run.item,
                    run.due
                );
            }
        }
        // The firing of the write at which it died: the latest one before it.
        let due = killed / 3_000 * 3_000;
        let seen = (of("schedule", item, due), of("failover", item, due));
        // The survivor begins it after all, if it gets the item before the next firing.
        let is_late = |r: &&Run| r.pid == self.survivor.pid() && r.start < due + 3_000 + SESSION_MILLIS as i64;
        let late = runs.iter().filter(|r| r.source == "schedule" && r.item == item && r.due == due).filter(is_late);
        let late = late.count();
        // A begin is write 1 and 3, a release 2 and 4.
        let expected = match (self.write % 2, self.moment, self.failover) {
            (1, Moment::Before, _) => (late, 0), // not begun by its owner
            (1, Moment::After, false) => (0, 0), // begun, and lost with its process
            (1, Moment::After, true) => (0, 1),
            (_, Moment::Before, true) => (1, 1), // it had ended, which nobody can know: its mark stood
            _ => (1, 0),
        };
        assert_eq!(
            seen, expected,
            "{}: runs by schedule and by failover of item {item} due {due}: {runs:#?}",
            self.name
        );
    }
}

async fn marks(registry: &dyn Registry, job: &str) -> Vec<String> {
    let marks = ["running", "failover", "failovering", "misfire"];
    let paths: Vec<String> =
        (0..ITEMS).flat_map(|item| marks.map(|mark| format!("/{job}/sharding/{item}/{mark}"))).collect();
    let queries = paths.iter().map(|path| Query::Node(path.clone())).collect();
    let answers = registry.read(queries).await.expect("reads");
    paths.into_iter().zip(answers).filter(|(_, answer)| answer.node().is_some()).map(|(path, _)| path).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_each_write_of_a_run_doubles_nothing_and_leaves_nothing_behind() {
    let zookeeper = ZooKeeper::start();
    let mut points = Vec::new();
    for write in 1..=WRITES {
        for moment in [Moment::Before, Moment::After] {
            for failover in [false, true] {
                points.push(Point::new(&zookeeper, write, moment, failover).await);
            }
        }
    }
    for point in &points {
        tokio::task::block_in_place(|| {
            eventually(&format!("{}: both run", point.name), PATIENCE, || point.is_settled().then_some(()));
        });
        point.tap.kill_at(point.victim.pid(), point.write, point.moment);
    }
    let settings = Settings::new(&zookeeper.address(), "crashes");
    let registry = Zookeeper::connect(settings).expect("right settings");
    conformance::session(&registry).await;
    for point in &points {
        tokio::task::block_in_place(|| {
            let at = eventually(&format!("{}: it dies", point.name), PATIENCE, || point.tap.killed_at());
            let what = format!("{}: the survivor runs both items, twice", point.name);
            eventually(&what, PATIENCE, || {
                let session = i64::try_from(SESSION_MILLIS).expect("small");
                let runs = point.runs_of(&point.survivor);
                let late = |item: u32| runs.iter().filter(|r| r.item == item && r.due > at + session).count();
                (0..ITEMS).all(|item| late(item) >= 2).then_some(())
            });
            point.judge(at);
        });
        // Between two firings the node does not exist.
        let mut left = marks(&registry, &point.name).await;
        for _ in 0..400 {
            if left.is_empty() {
                break;
            }
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.expect_err("never");
            left = marks(&registry, &point.name).await;
        }
        assert!(left.is_empty(), "{}: {left:?} is left", point.name);
    }
}
