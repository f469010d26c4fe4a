//! What a list of many jobs costs: the call in a process that is connected, and the whole command; beside Java's call.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::side::{Side, number};
use crate::{Bench, clock};

/// Jobs that are listed, and servers of each, with an instance and an item on each.
const JOBS: usize = 1_000;
const SERVERS: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    what: &'static str,
    jobs: usize,
    servers: usize,
    millis: f64,
    requests: u64,
}

pub(crate) fn measure(bench: &Bench) -> anyhow::Result<Vec<Listed>> {
    let folder = bench.folder("list")?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let zk = format!("zk={}", server.address());
    let said = |command: &mut Command| -> anyhow::Result<String> {
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).current_dir(&folder).output()?;
        if !output.status.success() {
            bail!("{command:?}: {}", output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let ours = |mode: &str| {
        let mut command = Side::Rust.command(&bench.root);
        command.args([format!("mode={mode}"), "ns=list".to_owned(), zk.clone()]);
        command
    };
    said(ours("fill").args([format!("jobs={JOBS}"), format!("servers={SERVERS}")]))?;
    let command = || -> anyhow::Result<(f64, u64)> {
        let (before, start) = (server.requests()?, clock::instant());
        let registry = format!("zookeeper://{}/list", server.address());
        let mut list = Command::new(bench.root.join("target/release/elasticjob"));
        let text = said(list.args(["--registry", &registry, "job", "list", "--output", "json"]))?;
        let took = start.elapsed().as_secs_f64() * 1_000.0;
        let jobs = text.matches("\"status\":\"OK\"").count();
        if jobs != JOBS {
            bail!("{jobs} of {JOBS} jobs were listed");
        }
        Ok((took, server.requests()? - before))
    };
    let call = || -> anyhow::Result<(f64, u64)> {
        let before = server.requests()?;
        let text = said(&mut ours("list"))?;
        let took = number(text.trim(), "ms=").with_context(|| format!("no figure in: {text}"))?;
        Ok((took as f64, server.requests()? - before))
    };
    let operations = folder.join("operations");
    std::fs::write(&operations, "list jobs-count - -\nlist jobs - -\nlist jobs - -\n")?;
    let java = || -> anyhow::Result<(f64, u64)> {
        let target = bench.root.join("tests/java/target");
        let classes = format!("{0}/peer.jar:{0}/lib/*", target.display());
        let before = server.requests()?;
        let mut command = Command::new("java");
        command.args(["-cp", &classes, "peer.Main", "operations", &server.address()]).arg(&operations);
        let text = said(&mut command)?;
        let took = text.lines().filter_map(|l| l.strip_prefix("took ")?.parse::<f64>().ok()).next_back();
        // Both calls count alike, beside a handful of packets of the connection.
        Ok((took.context("no figure")?, (server.requests()? - before) / 2))
    };
    call()?; // a server that has just started is slow
    let figures = [("Rust, the call", call()?), ("Rust, the command", command()?), ("Java 3.0.4, the call", java()?)];
    let listed = |(what, (millis, requests))| Listed { what, jobs: JOBS, servers: SERVERS, millis, requests };
    Ok(figures.into_iter().map(listed).collect())
}
