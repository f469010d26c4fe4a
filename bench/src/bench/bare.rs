//! The transactions of jobs that fire each second, and nothing else: no machine, no code of anybody's, and no watch but where one
//! is asked for. What a row of `firings.rs` takes beyond this is ours; the rest is the server's and the client crate's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use elasticjob::registry::{Link, Registry};
use elasticjob_core::tree::Op;
use elasticjob_registry::{Outcome, Target};
use parking_lot::Mutex;
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::side::cpu_seconds;
use crate::single::attach;
use crate::{Bench, clock};

/// Jobs of one transaction, and transactions that are under way at one time: about as our commit queue does it.
const TOGETHER: usize = 100;
const UNDER_WAY: usize = 4;
/// The server warms up in the first ones.
const SECONDS: (u64, u64) = (12, 12);
/// What a ledger looks like.
const LEDGER: &str = "due=1732060800000 by=192.0.2.2@-@1234567 session=0123456789abcdef begin=12345 at=1732060800001";

#[derive(Debug, Serialize)]
pub(crate) struct Bare {
    jobs: usize,
    /// Whether the server has a recursive watch, as it has below every scheduler: with a single one, wherever it is, the server
    /// reads, at each change, the watches of all parent nodes.
    watched: bool,
    /// Where it is less than the jobs, the lags rise from second to second.
    reached_per_second: f64,
    /// From the full second to the answer to the begin.
    lag_p50_ms: f64,
    lag_p99_ms: f64,
    lag_max_ms: f64,
    /// Of processors, in a second.
    cpu: f64,
    server_cpu: f64,
}

/// A transaction that is to be sent: the begin of these jobs, or the end of their runs.
enum Todo {
    Begin { from: usize, due: u64 },
    End { from: usize },
}

type Queue = Mutex<VecDeque<Todo>>;

pub(crate) fn measure(bench: &Bench, jobs: usize, watched: bool) -> anyhow::Result<Bare> {
    let folder = bench.folder("bare")?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let registry = attach(&server, "bare").await?;
        let Link::Up { session, .. } = *registry.link().borrow() else { bail!("there is no link") };
        for from in (0..jobs).step_by(TOGETHER) {
            commit(&*registry, session, &nodes(from..jobs.min(from + TOGETHER))).await?;
        }
        let first = clock::micros() / 1_000_000 + 2;
        let measured = first + SECONDS.0..first + SECONDS.0 + SECONDS.1;
        let aside = Target::Subtree("/elsewhere".to_owned());
        let _watch = if watched { Some(registry.watch(aside, Arc::new(|_| {})).await?) } else { None };
        let (queue, lags) = (Arc::new(Queue::default()), Arc::new(Mutex::new(Vec::new())));
        let spent = || (clock::micros(), cpu_seconds(std::process::id()), cpu_seconds(server.pid()));
        let mut before = spent();
        for second in first..measured.end {
            let due = second * 1_000_000;
            let wait = Duration::from_micros(due.saturating_sub(clock::micros()));
            clock::sleep_until(clock::instant() + wait).await;
            if second == measured.start {
                before = spent();
            }
            let begins = (0..jobs).step_by(TOGETHER).map(|from| Todo::Begin { from, due });
            queue.lock().extend(begins);
            let mut under_way = tokio::task::JoinSet::new();
            for _ in 0..UNDER_WAY {
                let (registry, queue, lags) = (Arc::clone(&registry), Arc::clone(&queue), Arc::clone(&lags));
                let is_measured = measured.contains(&second);
                under_way
                    .spawn(async move { work(&*registry, session, jobs, &queue, is_measured.then_some(&*lags)).await });
            }
            while let Some(done) = under_way.join_next().await {
                done??;
            }
        }
        // The last second is over with its work, or when it is.
        let rest = Duration::from_micros((measured.end * 1_000_000).saturating_sub(clock::micros()));
        clock::sleep_until(clock::instant() + rest).await;
        let after = spent();
        let span = (after.0 - before.0) as f64 / 1e6;
        registry.close().await;
        let mut lags = std::mem::take(&mut *lags.lock());
        lags.sort_unstable();
        let at = |share: f64| lags.get(((lags.len() - 1) as f64 * share) as usize).copied().unwrap_or(0) as f64 / 1e3;
        Ok(Bare {
            jobs,
            watched,
            reached_per_second: (jobs as u64 * SECONDS.1) as f64 / span.max(SECONDS.1 as f64),
            lag_p50_ms: at(0.5),
            lag_p99_ms: at(0.99),
            lag_max_ms: at(1.0),
            cpu: (after.1 - before.1) / span,
            server_cpu: (after.2 - before.2) / span,
        })
    })
}

/// One of those that send, until nothing is left of this second.
async fn work(
    registry: &dyn Registry,
    session: u64,
    jobs: usize,
    queue: &Queue,
    lags: Option<&Mutex<Vec<u64>>>,
) -> anyhow::Result<()> {
    loop {
        let Some(todo) = queue.lock().pop_front() else { return Ok(()) };
        let of = |from: usize| from..jobs.min(from + TOGETHER);
        match todo {
            Todo::Begin { from, due } => {
                let ops: Vec<Op> = of(from).flat_map(begin).collect();
                commit(registry, session, &ops).await?;
                let lag = clock::micros().saturating_sub(due);
                if let Some(lags) = lags {
                    lags.lock().extend(of(from).map(|_| lag));
                }
                queue.lock().push_back(Todo::End { from });
            }
            Todo::End { from } => {
                let ops: Vec<Op> = of(from).flat_map(end).collect();
                commit(registry, session, &ops).await?;
            }
        }
    }
}

fn nodes(jobs: std::ops::Range<usize>) -> Vec<Op> {
    let of = |job: usize| {
        let item = format!("/job{job}/sharding/0");
        [
            Op::create(format!("/job{job}"), ""),
            Op::create(format!("/job{job}/sharding"), ""),
            Op::create(item.as_str(), LEDGER),
            Op::create(format!("{item}/instance"), "192.0.2.2@-@1234567"),
        ]
    };
    jobs.flat_map(of).collect()
}

fn begin(job: usize) -> [Op; 4] {
    let item = format!("/job{job}/sharding/0");
    [
        Op::check(format!("{item}/instance"), 0),
        Op::exists(format!("{item}/instance")),
        Op::ephemeral(format!("{item}/running"), "192.0.2.2@-@1234567"),
        Op::set(item, LEDGER),
    ]
}

fn end(job: usize) -> [Op; 2] {
    let item = format!("/job{job}/sharding/0");
    [Op::delete(format!("{item}/running")), Op::exists(item)]
}

async fn commit(registry: &dyn Registry, session: u64, ops: &[Op]) -> anyhow::Result<()> {
    match registry.commit(session, ops).await {
        Outcome::Committed { .. } => Ok(()),
        other => bail!("not written: {other:?}"),
    }
}
