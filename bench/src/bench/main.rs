//! Our workload beside Java's, in turn, each row on a ZooKeeper server of its own; requests are those that the server itself
//! counts. `cargo xtask bench` builds what this needs, then runs it.

mod bare;
mod clock;
mod firings;
mod floor;
mod list;
mod report;
mod scale;
mod server;
mod side;
mod single;
mod slow_link;
mod trace;
mod web;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Parser;

use report::Report;
use server::Sync;
use side::Side;

/// What is measured beside the rows of `firings::ROWS`.
const SINGLES: [&str; 9] = ["floor", "oneoff", "takeover", "storm", "storm-100", "idle", "cold", "churn", "list"];
/// What is measured only when it is asked for.
const ASKED_FOR: [&str; 2] = ["trace", "scale"];

/// Measures our workload beside Java's and prints tables; the same goes to `report.md` and `report.json` in `target/bench`,
/// after each measurement what there is by then.
#[derive(Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// What to measure, by name; all but `trace` when none is given (about an hour)
    rows: Vec<String>,
    /// Say the names and measure nothing
    #[arg(long)]
    names: bool,
    /// Leave Java out: its figures are then missing in the tables
    #[arg(long)]
    rust_only: bool,
}

/// Where things are.
pub(crate) struct Bench {
    pub(crate) root: PathBuf,
}

impl Bench {
    /// An empty folder for one measurement.
    pub(crate) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.root.join("target/bench").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Prints a line of progress.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let rows = firings::ROWS.iter().map(|row| row.name);
    let names: Vec<&str> = rows.chain(SINGLES).chain(ASKED_FOR).collect();
    if arguments.names {
        writeln!(std::io::stdout().lock(), "{}", names.join("\n"))?;
        return Ok(());
    }
    if let Some(unknown) = arguments.rows.iter().find(|row| !names.contains(&row.as_str())) {
        bail!("`{unknown}`: expected some of {}", names.join(" "));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?.to_owned();
    let bench = Bench { root };
    let is_wanted = |name: &str| {
        if arguments.rows.is_empty() {
            !ASKED_FOR.contains(&name)
        } else {
            arguments.rows.iter().any(|row| row == name)
        }
    };
    let sides = if arguments.rust_only { &[Side::Rust][..] } else { &[Side::Rust, Side::Java] };
    let folder = bench.root.join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let mut report = Report::default();
    for name in SINGLES.into_iter().chain(ASKED_FOR).filter(|name| is_wanted(name)) {
        tell(name);
        if let Err(error) = single(&bench, name, sides, &mut report) {
            report.failed(name, &error);
        }
        report.write(&folder)?;
    }
    for row in firings::ROWS.iter().filter(|row| is_wanted(row.name)) {
        for side in sides {
            match row.java {
                Err(why) if *side == Side::Java => {
                    report.not_run(row.title, why);
                    continue;
                }
                _ => tell(&format!("{}, {}", row.title, side.name())),
            }
            match firings::measure(&bench, row, *side) {
                Ok(figures) => {
                    tell(&figures.cells()[2..].join(" | "));
                    report.firings.push(figures);
                }
                Err(error) => report.failed(&format!("{}, {}", row.title, side.name()), &error),
            }
            report.write(&folder)?;
        }
    }
    std::io::stdout().lock().write_all(report.markdown().as_bytes())?;
    report.result()
}

fn single(bench: &Bench, name: &str, sides: &[Side], report: &mut Report) -> anyhow::Result<()> {
    match name {
        "floor" => {
            for sync in [Sync::Memory, Sync::Disk] {
                report.floor.push(floor::measure(bench, sync)?);
            }
            let sizes = [1, 1_000, 10_000, 50_000].map(|jobs| (jobs, false));
            for (jobs, watched) in sizes.into_iter().chain([(10_000, true), (50_000, true)]) {
                report.bare.push(bare::measure(bench, jobs, watched)?);
            }
        }
        "churn" => report.churn = single::churn(bench)?,
        "list" => report.list = list::measure(bench)?,
        "scale" => report.scale = scale::measure(bench)?,
        "trace" => report.trace.push(trace::measure(bench)?),
        _ => {}
    }
    for side in sides {
        match name {
            "oneoff" => report.one_off.push(single::one_off(bench, *side)?),
            "takeover" => report.takeover.push(single::takeover(bench, *side)?),
            "cold" => report.cold.push(single::cold(bench, *side)?),
            "storm" => report.storm.push(single::storm(bench, *side, &single::TEN)?),
            "storm-100" if *side == Side::Rust => report.storm.push(single::storm(bench, *side, &single::HUNDRED)?),
            "idle" => {
                report.idle.push(single::idle(bench, *side, 1_000)?);
                if *side == Side::Rust {
                    report.idle.push(single::idle(bench, *side, 10_000)?);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
