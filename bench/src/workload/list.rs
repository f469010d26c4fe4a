//! `mode=list jobs=N servers=N zk=HOST:PORT ns=NAME`: jobs as instances on many servers leave them are written where there are
//! none, then listed: `listed jobs=N servers=N ms=N`. The time is that of the call; the server counts its requests.

use std::io::Write;
use std::sync::Arc;

use anyhow::bail;
use elasticjob::Operations;
use elasticjob::registry::{Link, Registry};
use elasticjob_core::tree::Op;
use elasticjob_registry::Outcome;

/// Nodes that are created in one transaction.
const OPS_MAX: usize = 1_000;

/// Writes the jobs.
pub(crate) async fn fill(registry: &dyn Registry, jobs: usize, servers: usize) -> anyhow::Result<()> {
    let mut link = registry.link();
    let Link::Up { session, .. } = *link.wait_for(|l| matches!(l, Link::Up { .. })).await? else {
        bail!("there is no link");
    };
    let mut ops = Vec::new();
    for job in 0..jobs {
        let root = format!("/job{job}");
        let config =
            format!("cron: 0/5 * * * * ?\ndescription: ''\njobName: job{job}\nshardingTotalCount: {servers}\n");
        ops.push(Op::create(&root, "SCRIPT"));
        ops.push(Op::create(format!("{root}/config"), config));
        for parent in ["servers", "instances", "sharding"] {
            ops.push(Op::create(format!("{root}/{parent}"), ""));
        }
        for server in 0..servers {
            let ip = format!("10.0.{}.{}", server / 250, server % 250 + 1);
            let id = format!("{ip}@-@{}", server + 100);
            ops.push(Op::create(format!("{root}/servers/{ip}"), "ENABLED"));
            let instance = format!("jobInstanceId: {id}\nserverIp: {ip}\n");
            ops.push(Op::create(format!("{root}/instances/{id}"), instance));
            ops.push(Op::create(format!("{root}/sharding/{server}"), ""));
            ops.push(Op::create(format!("{root}/sharding/{server}/instance"), id));
        }
    }
    for part in ops.chunks(OPS_MAX) {
        match registry.commit(session, part).await {
            Outcome::Committed { .. } => {}
            other => bail!("the jobs were not written: {other:?}"),
        }
    }
    Ok(())
}

/// Lists them, and says how long that took.
pub(crate) async fn run(registry: &Arc<dyn Registry>, out: &mut dyn Write) -> anyhow::Result<()> {
    let operations = Operations::new(Arc::clone(registry));
    registry.link().wait_for(|l| matches!(l, Link::Up { .. })).await?;
    let start = crate::micros();
    let jobs = operations.jobs().await?;
    let took = crate::micros() - start;
    let running = jobs.iter().filter(|job| job.status.word() == "OK").count();
    writeln!(out, "listed jobs={} running={running} ms={}", jobs.len(), took.div_ceil(1_000))?;
    out.flush()?;
    Ok(())
}
