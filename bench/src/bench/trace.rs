//! What the event trace costs: a one-off job of ten items as fast as it goes, with the trace off and on in turn.

use std::process::Stdio;

use anyhow::Context as _;
use serde::Serialize;

use crate::server::{Sync, ZooKeeper};
use crate::side::{Side, number};
use crate::{Bench, tell};

/// Runs of items with the trace on, and as many with it off, in so many turns.
const RUNS: usize = 100_000;
const TURNS: usize = 5;
const ITEMS: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Traced {
    runs: usize,
    off_per_second: f64,
    on_per_second: f64,
    loss_percent: f64,
    rows_with_an_end: u64,
}

pub(crate) fn measure(bench: &Bench) -> anyhow::Result<Traced> {
    let folder = bench.folder("trace")?;
    let server = ZooKeeper::start(&folder, Sync::Memory)?;
    let database = folder.join("trace.db");
    let firings = RUNS / ITEMS / TURNS;
    let turn = |traced: bool, firings: usize| -> anyhow::Result<(f64, Option<u64>)> {
        let mut command = Side::Rust.command(&bench.root);
        command.args(["mode=oneoff".to_owned(), format!("zk={}", server.address()), "ns=trace".into()]);
        command.args([format!("shards={ITEMS}"), format!("n={firings}")]).current_dir(&folder);
        if traced {
            command.arg(format!("trace=sqlite://{}", database.display()));
        }
        let output = command.stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|l| l.starts_with("oneoff ")).with_context(|| format!("no figure in: {text}"))?;
        let per_second = line.split(' ').find_map(|part| part.strip_prefix("per_s=")?.parse::<f64>().ok());
        let rows = text.lines().find_map(|line| number(&line.replace("traced ", "traced="), "traced="));
        Ok((per_second.context("no figure")?, rows))
    };
    turn(false, 500)?; // warms the server up
    let (mut off, mut on, mut rows) = (Vec::new(), Vec::new(), 0);
    for number in 1..=TURNS {
        tell(&format!("turn {number} of {TURNS}"));
        off.push(turn(false, firings)?.0);
        let (per_second, written) = turn(true, firings)?;
        on.push(per_second);
        rows = written.unwrap_or_default();
    }
    // The mean over all runs: the time that each turn took counts.
    let mean = |rates: &[f64]| rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>() * ITEMS as f64;
    let (off, on) = (mean(&off), mean(&on));
    Ok(Traced {
        runs: RUNS,
        off_per_second: off,
        on_per_second: on,
        loss_percent: (1.0 - on / off) * 100.0,
        rows_with_an_end: rows,
    })
}
