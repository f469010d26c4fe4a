//! What is measured of one thing alone: a run after the other, a takeover, a resharding, jobs that rest, a start.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use elasticjob::registry::{Link, Registry};
use elasticjob_core::query::Query;
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::side::{Run, Side, Workload, cpu_seconds, number, resources};
use crate::{Bench, clock};

const START_PATIENCE: Duration = Duration::from_secs(600);
/// The time-out of the sessions of those who are killed.
const SESSION_MILLIS: u64 = 4_000;

/// One-off runs, one after the other.
const ONE_OFF_RUNS: usize = 2_000;

#[derive(Debug, Serialize)]
pub(crate) struct OneOff {
    side: Side,
    runs: usize,
    per_second: u64,
    p50_us: u64,
    p99_us: u64,
    /// Triggers that led to no run within two seconds; they are left out of the times.
    lost: u64,
}

pub(crate) fn one_off(bench: &Bench, side: Side) -> anyhow::Result<OneOff> {
    let folder = bench.folder(&format!("oneoff-{side:?}"))?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let zk = format!("zk={}", server.address());
    let turn = |ns: &str, runs: usize| -> anyhow::Result<String> {
        let arguments = [zk.clone(), format!("ns={ns}"), "mode=oneoff".into(), format!("n={runs}")];
        let mut workload = Workload::start(&bench.root, side, &arguments, &folder, ns);
        let until = clock::instant() + START_PATIENCE;
        while workload.process.is_running() {
            if clock::instant() > until {
                bail!("one-off runs do not end");
            }
            clock::pause(Duration::from_millis(20));
        }
        let text = workload.text()?;
        let line = text.lines().find(|line| line.starts_with("oneoff ")).context("no figure")?;
        Ok(line.to_owned())
    };
    turn("warm", 500)?;
    let line = turn("measured", ONE_OFF_RUNS)?;
    let field = |name| number(&line, name).with_context(|| format!("no {name} in: {line}"));
    let per_second = line.split(' ').find_map(|part| part.strip_prefix("per_s=")?.parse::<f64>().ok());
    Ok(OneOff {
        side,
        runs: ONE_OFF_RUNS,
        per_second: per_second.context("no rate")? as u64,
        p50_us: field("p50_us=")?,
        p99_us: field("p99_us=")?,
        lost: number(&line, "lost=").unwrap_or(0), // ours waits for each
    })
}

/// How often an instance is killed in the middle of a run.
const TAKEOVERS: usize = 5;

#[derive(Debug, Serialize)]
pub(crate) struct Takeover {
    side: Side,
    session_ms: u64,
    /// From the kill to the run on the other instance, less the session time-out; of each kill, the shortest first. The
    /// session ends where its last heartbeat leads to: up to a third of it after the kill, less than it claims.
    beyond_session_ms: Vec<f64>,
}

/// Two instances share a job of one item whose runs take most of each second; the one that has it is killed.
pub(crate) fn takeover(bench: &Bench, side: Side) -> anyhow::Result<Takeover> {
    let folder = bench.folder(&format!("takeover-{side:?}"))?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let mut beyond = Vec::new();
    for turn in 0..TAKEOVERS {
        let ns = format!("takeover-{turn}");
        let arguments = [
            format!("zk={}", server.address()),
            format!("ns={ns}"),
            format!("session={SESSION_MILLIS}"),
            "failover=true".into(),
            "sleep=800".into(),
            "seconds=20".into(),
        ];
        let start = |name| Workload::start(&bench.root, side, &arguments, &folder, name);
        let mut both = [start("one"), start("other")];
        for workload in &mut both {
            workload.wait_started(START_PATIENCE)?;
        }
        clock::pause(Duration::from_secs(5));
        let into_second = clock::micros() % 1_000_000;
        clock::pause(Duration::from_micros(1_400_000 - into_second));
        let owner = owner(&server, &ns)?;
        let owned = |workload: &Workload| owner.ends_with(&format!("@-@{}", workload.process.pid()));
        let dying = both.iter().position(owned).with_context(|| format!("nobody is {owner}"))?;
        both[dying].process.kill();
        let killed = clock::micros();
        let runs = both[1 - dying].finish()?;
        let first = runs.iter().map(|run| run.start).filter(|start| *start > killed).min();
        let first = first.context("nobody took the item over")?;
        beyond.push((first - killed) as f64 / 1_000.0 - SESSION_MILLIS as f64);
    }
    beyond.sort_by(f64::total_cmp);
    Ok(Takeover { side, session_ms: SESSION_MILLIS, beyond_session_ms: beyond })
}

/// Who has the item.
fn owner(server: &ZooKeeper, ns: &str) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let registry = attach(server, ns).await?;
        let answers = registry.read(vec![Query::Node("/job/sharding/0/instance".into())]).await?;
        registry.close().await;
        let node = answers.first().and_then(|answer| answer.node()).context("nobody has the item")?;
        Ok(node.text())
    })
}

/// A link to that namespace.
pub(crate) async fn attach(server: &ZooKeeper, ns: &str) -> anyhow::Result<std::sync::Arc<dyn Registry>> {
    let registry = elasticjob::registry::attach(&format!("zookeeper://{}/{ns}", server.address())).await?;
    registry.link().wait_for(|link| matches!(link, Link::Up { .. })).await?;
    Ok(registry)
}

/// Jobs that are resharded when an instance joins and when one dies.
const STORM_JOBS: usize = 40;

/// How many instances share the jobs, and what time they get.
pub(crate) struct Crowd {
    instances: usize,
    session_ms: u64,
    /// Until all started jobs are idle.
    settles: Duration,
}

pub(crate) const TEN: Crowd = Crowd { instances: 10, session_ms: SESSION_MILLIS, settles: Duration::from_secs(10) };
/// Two cores are busy for most of a minute when a hundred start at one moment: a session must outlast that.
pub(crate) const HUNDRED: Crowd = Crowd { instances: 100, session_ms: 10_000, settles: Duration::from_secs(60) };

#[derive(Debug, Serialize)]
pub(crate) struct Storm {
    side: Side,
    jobs: usize,
    instances: usize,
    /// Of all jobs.
    items: usize,
    session_ms: u64,
    /// Of how many jobs the new instance ran items.
    joined_jobs: usize,
    /// From the moment that the new instance is registered for all jobs to its first run of the last of those.
    join_ms: f64,
    /// Requests in two session time-outs and two seconds from its start on, less those of as long before.
    join_requests: i64,
    /// How many items of all ran after another one's death.
    items_again: usize,
    /// From its death to the first run of the last of those, less the session time-out.
    death_ms: f64,
    death_requests: i64,
}

/// 40 jobs of as many items as instances run every two seconds; an instance joins, and is killed.
pub(crate) fn storm(bench: &Bench, side: Side, crowd: &Crowd) -> anyhow::Result<Storm> {
    let Crowd { instances, session_ms, settles } = *crowd;
    let window = Duration::from_millis(session_ms) * 2 + Duration::from_secs(2);
    let joiner_seconds = window.as_secs() + 8;
    let base_seconds = settles.as_secs() + 4 * window.as_secs() + joiner_seconds + 30;
    let folder = bench.folder(&format!("storm-{side:?}-{instances}"))?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let arguments = |instances: usize, seconds: u64| {
        let mut arguments = vec![
            format!("zk={}", server.address()),
            format!("session={session_ms}"),
            format!("jobs={STORM_JOBS}"),
            "cron=0/2 * * * * ?".into(),
            format!("seconds={seconds}"),
        ];
        if instances > 1 {
            arguments.push(format!("instances={instances}"));
        }
        arguments
    };
    let with_items = |mut arguments: Vec<String>| {
        arguments.push(format!("shards={instances}"));
        arguments
    };
    // Ours runs many instances in one process; Java's instances are known by their process.
    let (processes, each) = if side == Side::Rust { (1, instances - 1) } else { (instances - 1, 1) };
    let start = |number: usize| {
        let arguments = with_items(arguments(each, base_seconds));
        Workload::start(&bench.root, side, &arguments, &folder, &format!("base-{number}"))
    };
    let mut base: Vec<Workload> = (0..processes).map(start).collect();
    for workload in &mut base {
        workload.wait_started(START_PATIENCE)?;
    }
    clock::pause(settles);
    let spent = || -> anyhow::Result<i64> {
        let before = server.requests()?;
        clock::pause(window);
        Ok(i64::try_from(server.requests()? - before)?)
    };
    let usual = spent()?;
    let before = server.requests()?;
    let began = clock::instant();
    let mut joiner = Workload::start(&bench.root, side, &with_items(arguments(1, joiner_seconds)), &folder, "joiner");
    let (_, joined) = joiner.wait_started(START_PATIENCE)?;
    clock::pause(window.saturating_sub(began.elapsed()));
    let passed = began.elapsed().as_secs_f64() / window.as_secs_f64();
    let join_requests = i64::try_from(server.requests()? - before)? - (usual as f64 * passed) as i64;
    let firsts = first_runs(&joiner.finish()?, 0, |run| run.job);
    let joined_jobs = firsts.len();
    let last = firsts.into_values().max().context("the new instance ran nothing")?;
    let join_ms = last.saturating_sub(joined) as f64 / 1_000.0;
    // Another one, to be killed.
    let mut dying = Workload::start(&bench.root, side, &with_items(arguments(1, base_seconds)), &folder, "dying");
    dying.wait_started(START_PATIENCE)?;
    clock::pause(window);
    let before = server.requests()?;
    dying.process.kill();
    let killed = clock::micros();
    clock::pause(window);
    let death_requests = i64::try_from(server.requests()? - before)? - usual;
    let mut runs = Vec::new();
    for workload in &mut base {
        runs.extend(workload.finish()?);
    }
    // The last one of all was one of the dead one's.
    let again = first_runs(&runs, killed, |run| (run.job, run.item));
    let items_again = again.len();
    let last = again.into_values().max().context("nothing ran again")?;
    let death_ms = (last - killed) as f64 / 1_000.0 - session_ms as f64;
    Ok(Storm {
        side,
        jobs: STORM_JOBS,
        instances,
        items: STORM_JOBS * instances,
        session_ms,
        joined_jobs,
        join_ms,
        join_requests,
        items_again,
        death_ms,
        death_requests,
    })
}

/// The first run after that moment, of each job or item.
fn first_runs<K: Eq + Hash>(runs: &[Run], after: u64, of: impl Fn(&Run) -> K) -> HashMap<K, u64> {
    let mut first = HashMap::new();
    for run in runs.iter().filter(|run| run.start > after) {
        let earliest = first.entry(of(run)).or_insert(run.start);
        *earliest = run.start.min(*earliest);
    }
    first
}

/// After the start: each job reads its assignment a last time twenty seconds after its election.
const REST_SECONDS: u64 = 30;
const IDLE_SECONDS: u64 = 20;

#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    side: Side,
    jobs: usize,
    start_ms: u64,
    memory_mb: f64,
    threads: u64,
    /// Of one processor.
    cpu_percent: f64,
    requests_per_second: f64,
}

/// Jobs that fire hourly, and not now.
pub(crate) fn idle(bench: &Bench, side: Side, jobs: usize) -> anyhow::Result<Idle> {
    let folder = bench.folder(&format!("idle-{side:?}-{jobs}"))?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let minute = (clock::micros() / 60_000_000 + 30) % 60;
    let arguments = [
        format!("zk={}", server.address()),
        format!("jobs={jobs}"),
        format!("cron=0 {minute} * * * ?"),
        format!("seconds={}", REST_SECONDS + IDLE_SECONDS + 5),
    ];
    let mut workload = Workload::start(&bench.root, side, &arguments, &folder, "out");
    let (start_ms, _) = workload.wait_started(START_PATIENCE)?;
    clock::pause(Duration::from_secs(REST_SECONDS));
    let pid = workload.process.pid();
    let before = (cpu_seconds(pid), server.requests()?);
    clock::pause(Duration::from_secs(IDLE_SECONDS));
    let after = (cpu_seconds(pid), server.requests()?);
    let (memory_mb, threads) = resources(pid);
    workload.process.kill();
    Ok(Idle {
        side,
        jobs,
        start_ms,
        memory_mb,
        threads,
        cpu_percent: (after.0 - before.0) * 100.0 / IDLE_SECONDS as f64,
        requests_per_second: (after.1 - before.1) as f64 / IDLE_SECONDS as f64,
    })
}

const COLD_STARTS: usize = 5;

#[derive(Debug, Serialize)]
pub(crate) struct Cold {
    side: Side,
    /// The program and its libraries; Java's own runtime comes on top of its.
    size_mb: f64,
    /// From the start of the process until its job is registered, the middle one of five.
    registered_ms: f64,
    /// The same until its first run: a job of each second waits half a second on the average.
    first_run_ms: f64,
}

pub(crate) fn cold(bench: &Bench, side: Side) -> anyhow::Result<Cold> {
    let folder = bench.folder(&format!("cold-{side:?}"))?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let (mut registered, mut first_runs) = (Vec::new(), Vec::new());
    for turn in 0..COLD_STARTS {
        let arguments = [format!("zk={}", server.address()), format!("ns=cold-{turn}"), "seconds=3".into()];
        let mut workload = Workload::start(&bench.root, side, &arguments, &folder, "out");
        let (_, seen) = workload.wait_started(START_PATIENCE)?;
        registered.push((seen - workload.spawned) as f64 / 1_000.0);
        let first = workload.finish()?.iter().map(|run| run.start).min().context("it did not run")?;
        first_runs.push((first - workload.spawned) as f64 / 1_000.0);
    }
    let size: u64 = match side {
        Side::Rust => std::fs::metadata(bench.root.join("target/release/elasticjob"))?.len(),
        Side::Java => folder_size(&bench.root.join("bench/java/target/lib"))?,
    };
    registered.sort_by(f64::total_cmp);
    first_runs.sort_by(f64::total_cmp);
    Ok(Cold {
        side,
        size_mb: size as f64 / 1e6,
        registered_ms: registered[COLD_STARTS / 2],
        first_run_ms: first_runs[COLD_STARTS / 2],
    })
}

fn folder_size(folder: &Path) -> anyhow::Result<u64> {
    let mut size = 0;
    for entry in std::fs::read_dir(folder)? {
        size += entry?.metadata()?.len();
    }
    Ok(size)
}

const CHURN_JOBS: usize = 10_000;
const CHURN_ROUNDS: u64 = 4;

/// After a round in which jobs were started, stopped and removed.
#[derive(Debug, Serialize)]
pub(crate) struct Churn {
    jobs: usize,
    round: u64,
    memory_mb: f64,
    handles: u64,
    watches: u64,
    znodes: u64,
}

pub(crate) fn churn(bench: &Bench) -> anyhow::Result<Vec<Churn>> {
    use std::io::{BufRead as _, Write as _};
    let folder = bench.folder("churn")?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let mut command = Side::Rust.command(&bench.root);
    command.args(["mode=churn", &format!("zk={}", server.address())]);
    command.args([format!("jobs={CHURN_JOBS}"), format!("n={CHURN_ROUNDS}")]).current_dir(&folder);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::null()).spawn()?;
    let (output, mut input) = (child.stdout.take().context("an output")?, child.stdin.take().context("an input")?);
    let mut rounds = Vec::new();
    for line in std::io::BufReader::new(output).lines() {
        let line = line?;
        let counters = server.counters()?;
        let counter = |name: &str| counters.get(name).copied().with_context(|| format!("the server has no {name}"));
        let field = |name| number(&line, name).with_context(|| format!("no {name} in: {line}"));
        rounds.push(Churn {
            jobs: CHURN_JOBS,
            round: rounds.len() as u64 + 1,
            memory_mb: field("resident_kb=")? as f64 / 1_024.0,
            handles: field("handles=")?,
            watches: counter("zk_watch_count")?,
            znodes: counter("zk_znode_count")?,
        });
        writeln!(input)?;
    }
    let status = child.wait()?;
    if !status.success() || rounds.len() as u64 != CHURN_ROUNDS {
        bail!("{} of {CHURN_ROUNDS} rounds, {status}", rounds.len());
    }
    Ok(rounds)
}
