//! Rows of jobs that fire each second: how late, how many, and at what cost.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use elasticjob_tests::{Database, PASSWORD, USER};
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::side::{Run, Side, Workload, cpu_seconds, resources};
use crate::slow_link::SlowLink;
use crate::web::Web;
use crate::{Bench, clock};

/// Left out on both sides, from so many jobs of all processes on, the most first. A JVM warms up in them, and many jobs are at
/// rest later: behind its registration each is elected and divided, and looks at its assignment a last time twenty seconds after
/// that.
const WARM_UP_SECONDS: [(usize, u64); 3] = [(50_000, 110), (10_000, 45), (0, 8)];
const MEASURED_SECONDS: u64 = 12;
/// Until a run that is late has ended, and the slowest of several processes has started.
const AFTER_SECONDS: u64 = 3;
const APART_SECONDS: u64 = 40;
const START_PATIENCE: Duration = Duration::from_secs(600);

/// What jobs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Note the time.
    Simple,
    /// Call a web server on the same host, which notes the time.
    Http,
    /// Start a shell that notes the time.
    Script,
}

/// Where the jobs are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    ZooKeeper(Sync),
    /// ZooKeeper behind a proxy that adds this delay to each round trip.
    Far(Duration),
    Embedded,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) processes: usize,
    pub(crate) jobs: usize,
    pub(crate) items: usize,
    pub(crate) kind: Kind,
    pub(crate) registry: Registry,
    pub(crate) traced: bool,
    /// Whether Java is measured too, or why not.
    pub(crate) java: Result<(), &'static str>,
}

const ONE: Row = Row {
    name: "1",
    title: "1 job",
    processes: 1,
    jobs: 1,
    items: 1,
    kind: Kind::Simple,
    registry: Registry::ZooKeeper(Sync::Memory),
    traced: false,
    java: Ok(()),
};
const BEYOND: Result<(), &str> = Err("1,000 jobs are beyond it");
const NO_SUCH: Result<(), &str> = Err("it has none");
const EMBEDDED: Row = Row { registry: Registry::Embedded, java: NO_SUCH, ..ONE };

/// All of them, by their names.
pub(crate) const ROWS: [Row; 24] = [
    ONE,
    Row { name: "100", title: "100 jobs", jobs: 100, ..ONE },
    Row { name: "1000", title: "1,000 jobs", jobs: 1_000, ..ONE },
    Row { name: "10000", title: "10,000 jobs", jobs: 10_000, java: BEYOND, ..ONE },
    Row { name: "50000", title: "50,000 jobs", jobs: 50_000, java: BEYOND, ..ONE },
    Row { name: "embedded-1", title: "1 job, embedded", ..EMBEDDED },
    Row { name: "embedded-100", title: "100 jobs, embedded", jobs: 100, ..EMBEDDED },
    Row { name: "embedded-1000", title: "1,000 jobs, embedded", jobs: 1_000, ..EMBEDDED },
    Row { name: "embedded-10000", title: "10,000 jobs, embedded", jobs: 10_000, ..EMBEDDED },
    Row { name: "embedded-50000", title: "50,000 jobs, embedded", jobs: 50_000, ..EMBEDDED },
    Row { name: "items-10", title: "1 job of 10 items", items: 10, ..ONE },
    Row { name: "items-100", title: "1 job of 100 items", items: 100, ..ONE },
    Row { name: "items-1000", title: "1 job of 1,000 items", items: 1_000, ..ONE },
    Row { name: "ten-20", title: "10 processes share 20 jobs of 10 items", processes: 10, jobs: 20, items: 10, ..ONE },
    Row {
        name: "ten-1000",
        title: "10 processes share 1,000 jobs of 10 items",
        processes: 10,
        jobs: 1_000,
        items: 10,
        java: Err("10 times 1,000 jobs do not fit into the memory of the host"),
        ..ONE
    },
    Row { name: "http", title: "100 HTTP jobs", jobs: 100, kind: Kind::Http, ..ONE },
    Row { name: "script", title: "20 SCRIPT jobs", jobs: 20, kind: Kind::Script, ..ONE },
    Row { name: "traced", title: "100 jobs, event trace in PostgreSQL", jobs: 100, traced: true, ..ONE },
    Row {
        name: "traced-1000",
        title: "1,000 jobs, event trace in PostgreSQL",
        jobs: 1_000,
        traced: true,
        java: BEYOND,
        ..ONE
    },
    Row { name: "far-1", title: "1 job, 5 ms to ZooKeeper", registry: FAR, ..ONE },
    Row { name: "far-100", title: "100 jobs, 5 ms to ZooKeeper", jobs: 100, registry: FAR, ..ONE },
    Row {
        name: "far-10000",
        title: "10,000 jobs, 5 ms to ZooKeeper",
        jobs: 10_000,
        registry: FAR,
        java: BEYOND,
        ..ONE
    },
    Row { name: "fsync-100", title: "100 jobs, ZooKeeper with fsync", jobs: 100, registry: SYNCED, ..ONE },
    Row {
        name: "fsync-10000",
        title: "10,000 jobs, ZooKeeper with fsync",
        jobs: 10_000,
        registry: SYNCED,
        java: BEYOND,
        ..ONE
    },
];
const FAR: Registry = Registry::Far(Duration::from_millis(5));
const SYNCED: Registry = Registry::ZooKeeper(Sync::Disk);

/// What was measured of one side of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    row: &'static str,
    title: &'static str,
    side: Side,
    /// Until all jobs were registered, in the slowest process.
    start_ms: u64,
    wanted_per_second: usize,
    reached_per_second: f64,
    missed: usize,
    lag_p50_ms: f64,
    lag_p99_ms: f64,
    lag_p999_ms: f64,
    lag_max_ms: f64,
    /// Of all its processes.
    memory_mb: f64,
    threads: u64,
    /// Of processors, in a second, of all its processes.
    cpu: f64,
    /// The same of the ZooKeeper server.
    server_cpu: Option<f64>,
    /// Packets that the server received, for each run of an item.
    requests_per_run: Option<f64>,
}

/// Processes, memory and processors at one moment.
struct Snapshot {
    at: u64,
    cpu: f64,
    server_cpu: f64,
    requests: u64,
}

impl Snapshot {
    fn take(workloads: &[Workload], server: Option<&ZooKeeper>) -> anyhow::Result<Snapshot> {
        Ok(Snapshot {
            at: clock::micros(),
            cpu: workloads.iter().map(|w| cpu_seconds(w.process.pid())).sum(),
            server_cpu: server.map(|s| cpu_seconds(s.pid())).unwrap_or_default(),
            requests: server.map(ZooKeeper::requests).transpose()?.unwrap_or_default(),
        })
    }
}

/// Measures one side of a row.
pub(crate) fn measure(bench: &Bench, row: &Row, side: Side) -> anyhow::Result<Figures> {
    let folder = bench.folder(&format!("{}-{side:?}", row.name))?;
    let server = match row.registry {
        Registry::ZooKeeper(sync) => Some(ZooKeeper::start(&folder, sync)?),
        Registry::Far(_) => Some(ZooKeeper::start(&folder, Sync::Memory)?),
        Registry::Embedded => None,
    };
    if let Some(server) = &server {
        warm_up(bench, server, &folder)?;
    }
    let link = match (&server, row.registry) {
        (Some(server), Registry::Far(round_trip)) => Some(SlowLink::to(server.port(), round_trip)?),
        _ => None,
    };
    let zk = match (&link, &server) {
        (Some(link), _) => link.address(),
        (None, Some(server)) => server.address(),
        (None, None) => "embedded".to_owned(),
    };
    let database = row.traced.then(Database::postgres);
    let (web, stamps) = (Web::start()?, folder.join("stamps"));
    let apart = if row.processes > 1 { APART_SECONDS } else { 0 };
    let warm_up = WARM_UP_SECONDS.into_iter().find(|(jobs, _)| row.jobs * row.processes >= *jobs);
    let warm_up = warm_up.map(|(_, seconds)| seconds).unwrap_or_default();
    let seconds = warm_up + MEASURED_SECONDS + AFTER_SECONDS + apart;
    let mut arguments = vec![
        format!("zk={zk}"),
        format!("jobs={}", row.jobs),
        format!("shards={}", row.items),
        format!("seconds={seconds}"),
    ];
    match row.kind {
        Kind::Simple => {}
        Kind::Http => arguments.extend(["kind=http".to_owned(), format!("target={}", web.address())]),
        Kind::Script => arguments.extend(["kind=script".to_owned(), format!("target={}", script(&folder, &stamps)?)]),
    }
    if side == Side::Rust {
        arguments.push("due=true".to_owned());
    }
    if let Some(database) = &database {
        arguments.push(format!("trace={}", address(database)?));
    }
    let start = |number| Workload::start(&bench.root, side, &arguments, &folder, &format!("out-{number}"));
    let mut workloads: Vec<Workload> = (0..row.processes).map(start).collect();
    let mut start_ms = 0;
    for workload in &mut workloads {
        start_ms = start_ms.max(workload.wait_started(START_PATIENCE)?.0);
    }
    clock::pause(Duration::from_secs(warm_up));
    let _ = web.calls();
    let before = Snapshot::take(&workloads, server.as_ref())?;
    clock::pause(Duration::from_secs(MEASURED_SECONDS) + Duration::from_millis(1_500)); // whole seconds, and their runs
    let after = Snapshot::take(&workloads, server.as_ref())?;
    let (memory_mb, threads) = workloads
        .iter()
        .map(|w| resources(w.process.pid()))
        .fold((0.0, 0), |(memory, threads), (m, t)| (memory + m, threads + t));
    let mut runs = Vec::new();
    for workload in &mut workloads {
        runs.extend(workload.finish()?);
    }
    match row.kind {
        Kind::Simple => {}
        Kind::Http => runs = unnamed(web.calls()),
        Kind::Script => runs = unnamed(read_stamps(&stamps)?),
    }
    let span = (after.at - before.at) as f64 / 1e6;
    let during = runs.iter().filter(|r| (before.at..after.at).contains(&r.start)).count();
    let first = before.at / 1_000_000 + 1;
    let seconds = first..first + MEASURED_SECONDS;
    let measured: Vec<Run> = runs.into_iter().filter(|run| seconds.contains(&run.second())).collect();
    let named = row.kind == Kind::Simple && side == Side::Rust;
    let reached = if named {
        measured.iter().map(|r| (r.job, r.item, r.due)).collect::<HashSet<_>>().len()
    } else {
        measured.len()
    };
    let wanted_per_second = row.jobs * row.items;
    let wanted = wanted_per_second * usize::try_from(MEASURED_SECONDS)?;
    let lags = Lags::of(&measured);
    Ok(Figures {
        row: row.name,
        title: row.title,
        side,
        start_ms,
        wanted_per_second,
        reached_per_second: reached as f64 / MEASURED_SECONDS as f64,
        missed: wanted.saturating_sub(reached),
        lag_p50_ms: lags.at(0.5),
        lag_p99_ms: lags.at(0.99),
        lag_p999_ms: lags.at(0.999),
        lag_max_ms: lags.at(1.0),
        memory_mb,
        threads,
        cpu: (after.cpu - before.cpu) / span,
        server_cpu: server.is_some().then_some((after.server_cpu - before.server_cpu) / span),
        requests_per_run: server.is_some().then_some((after.requests - before.requests) as f64 / during.max(1) as f64),
    })
}

/// A server that has just started is slow: it gets some work before it is measured.
fn warm_up(bench: &Bench, server: &ZooKeeper, folder: &Path) -> anyhow::Result<()> {
    let arguments = [format!("zk={}", server.address()), "jobs=200".into(), "seconds=5".into(), "ns=warm".into()];
    let mut workload = Workload::start(&bench.root, Side::Rust, &arguments, folder, "warm");
    workload.finish()?;
    Ok(())
}

/// A program that notes the time in microseconds.
fn script(folder: &Path, stamps: &Path) -> anyhow::Result<String> {
    std::fs::write(stamps, "")?;
    let path = folder.join("stamp.sh");
    std::fs::write(&path, format!("date +%s%6N >> {}\n", stamps.display()))?;
    Ok(format!("sh {}", path.display()))
}

fn read_stamps(stamps: &PathBuf) -> anyhow::Result<Vec<u64>> {
    let text = std::fs::read_to_string(stamps)?;
    text.lines().map(|line| line.parse().with_context(|| format!("no time: {line}"))).collect()
}

/// Runs of which only their starts are known.
fn unnamed(starts: Vec<u64>) -> Vec<Run> {
    starts.into_iter().map(|start| Run { start, due: None, job: 0, item: 0 }).collect()
}

/// The address of the database, with its user.
fn address(database: &Database) -> anyhow::Result<String> {
    let mut url = url::Url::parse(&database.url())?;
    let is_set = url.set_username(USER).and_then(|()| url.set_password(Some(PASSWORD)));
    is_set.ok().context("an address without a host")?;
    Ok(url.into())
}

/// Lags in their order.
struct Lags(Vec<f64>);

impl Lags {
    fn of(runs: &[Run]) -> Lags {
        let mut lags: Vec<f64> = runs.iter().map(Run::lag).collect();
        lags.sort_by(f64::total_cmp);
        Lags(lags)
    }

    /// The lag that so large a share of the runs does not exceed.
    fn at(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(place.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// A line of the table.
impl Figures {
    pub(crate) fn cells(&self) -> Vec<String> {
        let optional = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.2}"));
        vec![
            self.title.to_owned(),
            self.side.name().to_owned(),
            format!("{:.2} s", self.start_ms as f64 / 1_000.0),
            format!("{:.0} of {}", self.reached_per_second, self.wanted_per_second),
            self.missed.to_string(),
            format!("{:.1}", self.lag_p50_ms),
            format!("{:.1}", self.lag_p99_ms),
            format!("{:.1}", self.lag_p999_ms),
            format!("{:.1}", self.lag_max_ms),
            format!("{:.0}", self.memory_mb),
            self.threads.to_string(),
            format!("{:.2}", self.cpu),
            optional(self.server_cpu),
            optional(self.requests_per_run),
        ]
    }
}

/// The head of the table.
pub(crate) const HEAD: [&str; 14] = [
    "each second",
    "side",
    "start",
    "runs/s of wanted",
    "missed",
    "lag p50, ms",
    "p99",
    "p99.9",
    "max",
    "memory, MB",
    "threads",
    "processors",
    "of the server",
    "requests a run",
];
