//! `mode=churn jobs=N n=ROUNDS`: starts the jobs, stops and removes them, again and again. After each round it writes
//! `round N resident_kb=N handles=N` and waits for a line on its standard input, so that others can count too.

use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use elasticjob::registry::Connection;
use elasticjob::{JobHandle, Operations, ScheduleJob};
use tokio::task::JoinSet;

use crate::settings::Settings;

/// Jobs that are stopped and removed at one time.
const TOGETHER: usize = 256;

pub(crate) async fn run(settings: &Settings, out: &mut dyn Write) -> anyhow::Result<()> {
    let address = settings.registry()?;
    let connection = elasticjob::registry::connect(&address).await?;
    let operations = Arc::new(Operations::new(elasticjob::registry::attach(&address).await?));
    let (jobs, rounds) = (settings.count("jobs", 10_000)?, settings.number("n", 5)?);
    for round in 1..=rounds {
        let handles = start(&connection, jobs).await?;
        for part in handles.chunks(TOGETHER) {
            let mut removing = JoinSet::new();
            for handle in part {
                let (handle, operations) = (handle.clone(), Arc::clone(&operations));
                removing.spawn(async move {
                    handle.stop().await;
                    operations.remove_job(handle.name()).await
                });
            }
            while let Some(removed) = removing.join_next().await {
                removed??;
            }
        }
        drop(handles);
        writeln!(out, "round {round} resident_kb={} handles={}", resident_kb()?, handles_open()?)?;
        out.flush()?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
    }
    connection.close().await;
    Ok(())
}

async fn start(connection: &Connection, jobs: usize) -> anyhow::Result<Vec<JobHandle>> {
    let mut starting = JoinSet::new();
    for number in 0..jobs {
        let job = ScheduleJob::new(&format!("job{number}"), 1).cron("0 0 0 1 1 ?").simple(|_| async { Ok(()) });
        let connection = connection.clone();
        starting.spawn(async move { job.start(&connection).await });
    }
    let mut handles = Vec::with_capacity(jobs);
    while let Some(started) = starting.join_next().await {
        handles.push(started??);
    }
    Ok(handles)
}

fn resident_kb() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    match line.split_whitespace().next().map(str::parse) {
        Some(Ok(kb)) => Ok(kb),
        _ => bail!("VmRSS is no number: {line}"),
    }
}

fn handles_open() -> anyhow::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}
