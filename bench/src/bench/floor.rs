//! What no implementation on this host can be below: a round trip to the same server, what it takes in, a timer.

use std::time::Duration;

use anyhow::bail;
use elasticjob::registry::{Link, Registry};
use elasticjob_core::tree::Op;
use elasticjob_registry::Outcome;
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::single::attach;
use crate::{Bench, clock};

const WRITES: usize = 3_000;
/// Writes of one transaction, transactions that are under way at one time, and how long.
const TOGETHER: usize = 100;
const UNDER_WAY: usize = 4;
const SECONDS: f64 = 5.0;
const TIMERS: u32 = 200;

#[derive(Debug, Serialize)]
pub(crate) struct Floor {
    sync: &'static str,
    /// One write after the other.
    write_p50_us: u64,
    write_p99_us: u64,
    /// Writes in transactions of a hundred, four under way.
    writes_per_second: u64,
    /// How late a timer of the runtime is.
    timer_p50_us: u64,
    timer_p99_us: u64,
}

pub(crate) fn measure(bench: &Bench, sync: Sync) -> anyhow::Result<Floor> {
    let folder = bench.folder("floor")?;
    let server = ZooKeeper::start(&folder, sync)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let registry = attach(&server, "floor").await?;
        let Link::Up { session, .. } = *registry.link().borrow() else { bail!("there is no link") };
        let create: Vec<Op> = (0..UNDER_WAY * TOGETHER).map(|n| Op::create(format!("/node{n}"), "")).collect();
        commit(&*registry, session, create).await?;
        let mut writes = Vec::with_capacity(WRITES);
        for number in 0..WRITES * 2 {
            let start = clock::instant();
            commit(&*registry, session, vec![Op::set("/node0", "1732060800000")]).await?;
            if number >= WRITES {
                writes.push(u64::try_from(start.elapsed().as_micros())?); // the first ones warm the server up
            }
        }
        let start = clock::instant();
        let mut under_way = tokio::task::JoinSet::new();
        for part in 0..UNDER_WAY {
            let registry = std::sync::Arc::clone(&registry);
            under_way.spawn(async move {
                let nodes = part * TOGETHER..(part + 1) * TOGETHER;
                let ops: Vec<Op> = nodes.map(|n| Op::set(format!("/node{n}"), "1732060800000")).collect();
                let mut written = 0;
                while start.elapsed().as_secs_f64() < SECONDS {
                    commit(&*registry, session, ops.clone()).await?;
                    written += TOGETHER;
                }
                Ok::<usize, anyhow::Error>(written)
            });
        }
        let mut written = 0;
        while let Some(part) = under_way.join_next().await {
            written += part??;
        }
        let writes_per_second = (written as f64 / start.elapsed().as_secs_f64()) as u64;
        registry.close().await;
        let mut timers = Vec::new();
        let begin = clock::instant();
        for number in 1..=TIMERS {
            let moment = begin + Duration::from_millis(10) * number;
            clock::sleep_until(moment).await;
            timers.push(u64::try_from(moment.elapsed().as_micros())?);
        }
        writes.sort_unstable();
        timers.sort_unstable();
        Ok(Floor {
            sync: if sync == Sync::Disk { "with fsync" } else { "without fsync" },
            write_p50_us: writes[writes.len() / 2],
            write_p99_us: writes[writes.len() * 99 / 100],
            writes_per_second,
            timer_p50_us: timers[timers.len() / 2],
            timer_p99_us: timers[timers.len() * 99 / 100],
        })
    })
}

async fn commit(registry: &dyn Registry, session: u64, ops: Vec<Op>) -> anyhow::Result<()> {
    match registry.commit(session, &ops).await {
        Outcome::Committed { .. } => Ok(()),
        other => bail!("not written: {other:?}"),
    }
}
