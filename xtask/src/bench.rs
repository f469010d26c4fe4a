//! Our workload beside Java's, in turn on one ZooKeeper, as a table. Requests are those that the server itself counts.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::{install, root, tell};

/// Measured seconds; the first ones, in which a JVM warms up, are left out of the lags of both sides.
const SECONDS: u64 = 20;
const WARM_UP: u64 = 8;

/// One side of a row.
struct Row {
    side: &'static str,
    start_millis: u64,
    runs: usize,
    wanted: usize,
    p50: f64,
    p99: f64,
    requests_a_run: f64,
    megabytes: f64,
    threads: u64,
}

/// Runs of items with the trace on, and as many with it off, in so many turns.
const TRACED_RUNS: usize = 100_000;
const TURNS: usize = 5;
const TRACED_ITEMS: usize = 10;

/// What the event trace costs: a one-off job of ten items as fast as it goes, with the trace off and on in turn.
fn trace() -> anyhow::Result<()> {
    install::servers()?;
    crate::run("cargo", &["build", "--release", "--quiet", "--bin", "workload"])?;
    let folder = root().join("target/bench-trace");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let zookeeper = ZooKeeper::start(&folder)?;
    let database = folder.join("trace.db");
    let firings = TRACED_RUNS / TRACED_ITEMS / TURNS;
    let turn = |traced: bool, firings: usize| -> anyhow::Result<(f64, Option<usize>)> {
        let mut command = ours();
        command
            .args(["mode=oneoff", "session=4000", "ns=trace"])
            .arg(format!("zk=127.0.0.1:{}", zookeeper.port))
            .args([format!("shards={TRACED_ITEMS}"), format!("n={firings}")]);
        if traced {
            command.arg(format!("trace=sqlite://{}", database.display()));
        }
        let output = command.stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|l| l.starts_with("oneoff ")).with_context(|| format!("no figure in: {text}"))?;
        let per_second = line.split(' ').find_map(|part| part.strip_prefix("per_s=")?.parse::<f64>().ok());
        let rows = text.lines().find_map(|l| l.strip_prefix("traced ")?.parse().ok());
        Ok((per_second.context("no figure")?, rows))
    };
    turn(false, 500)?; // warms the server up
    let (mut off, mut on, mut rows) = (Vec::new(), Vec::new(), None);
    for number in 1..=TURNS {
        tell(&format!("turn {number} of {TURNS}"));
        off.push(turn(false, firings)?.0);
        let (per_second, written) = turn(true, firings)?;
        on.push(per_second);
        rows = written;
    }
    // The mean over all runs: the time that each turn took counts.
    let mean =
        |rates: &[f64]| rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>() * TRACED_ITEMS as f64;
    let (off, on) = (mean(&off), mean(&on));
    let table = format!(
        "{TRACED_RUNS} runs with the event trace on and as many with it off, in {TURNS} turns, one ZooKeeper and the \
         database (SQLite) on the same machine:\n\n| trace | runs a second | loss | rows with an end |\n| --- | --- | --- \
         | --- |\n| off | {off:.0} | | |\n| on | {on:.0} | {:.1} % | {} of {TRACED_RUNS} |\n",
        (1.0 - on / off) * 100.0,
        rows.unwrap_or_default()
    );
    std::io::stdout().lock().write_all(table.as_bytes())?;
    Ok(())
}

/// Jobs that are listed, and servers of each, with an instance and an item on each.
const LISTED_JOBS: usize = 1_000;
const LISTED_SERVERS: usize = 10;

/// What a list of many jobs costs: the call in a process that is connected, and the whole command; beside Java's call.
fn list() -> anyhow::Result<()> {
    install::servers()?;
    install::java_project(&root().join("tests/java"), "peer.jar")?;
    crate::run("cargo", &["build", "--release", "--quiet", "--bin", "workload", "--bin", "elasticjob"])?;
    let folder = root().join("target/bench-list");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let zookeeper = ZooKeeper::start(&folder)?;
    let (zk, servers) = (format!("zk=127.0.0.1:{}", zookeeper.port), format!("servers={LISTED_SERVERS}"));
    tell(&format!("writes {LISTED_JOBS} jobs of {LISTED_SERVERS} servers"));
    let filled = ours().args(["mode=fill", "ns=list", &zk, &servers, &format!("jobs={LISTED_JOBS}")]).status()?;
    if !filled.success() {
        bail!("the jobs were not written");
    }
    // A server that has just started is slow: each side is asked once in vain.
    let command = || -> anyhow::Result<(f64, u64)> {
        let before = zookeeper.requests()?;
        let start = millis_since_epoch();
        let registry = format!("zookeeper://127.0.0.1:{}/list", zookeeper.port);
        let list = ["--registry", &registry, "job", "list", "--output", "json"];
        let output = Command::new(root().join("target/release/elasticjob")).args(list).output()?;
        let took = millis_since_epoch() - start;
        let jobs = String::from_utf8_lossy(&output.stdout).matches("\"status\":\"OK\"").count();
        if jobs != LISTED_JOBS {
            bail!("{jobs} of {LISTED_JOBS} jobs were listed");
        }
        Ok((took, zookeeper.requests()? - before - 1))
    };
    let call = || -> anyhow::Result<(f64, u64)> {
        let before = zookeeper.requests()?;
        let output = ours().args(["mode=list", "ns=list", &zk]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let took = field(text.trim(), "ms=").with_context(|| format!("no figure in: {text}"))?;
        Ok((took as f64, zookeeper.requests()? - before - 1))
    };
    let operations = folder.join("operations");
    std::fs::write(&operations, "list jobs-count - -\nlist jobs - -\nlist jobs - -\n")?;
    let java = || -> anyhow::Result<(f64, u64)> {
        let target = root().join("tests/java/target");
        let classes = format!("{0}/peer.jar:{0}/lib/*", target.display());
        let before = zookeeper.requests()?;
        let mut command = Command::new("java");
        command.args(["-cp", &classes, "peer.Main", "operations", &format!("127.0.0.1:{}", zookeeper.port)]);
        let output = command.arg(&operations).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let took = text.lines().filter_map(|l| l.strip_prefix("took ")?.parse::<f64>().ok()).next_back();
        // Both calls count alike, beside a handful of packets of the connection.
        Ok((took.context("no figure")?, (zookeeper.requests()? - before) / 2))
    };
    call()?;
    let rows = [("ours, the call", call()?), ("ours, the command", command()?), ("Java 3.0.4, the call", java()?)];
    let mut table = format!(
        "A list of {LISTED_JOBS} jobs of {LISTED_SERVERS} servers, instances and items each:\n\n| | time | requests to \
         ZooKeeper |\n| --- | --- | --- |\n"
    );
    for (side, (millis, requests)) in rows {
        table.push_str(&format!("| {side} | {millis:.0} ms | {requests} |\n"));
    }
    std::io::stdout().lock().write_all(table.as_bytes())?;
    Ok(())
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments.first().map(String::as_str) {
        Some("trace") => return trace(),
        Some("list") => return list(),
        _ => {}
    }
    let jobs: usize = match arguments.first() {
        Some(text) => text.parse().with_context(|| format!("`{text}`: expected a number of jobs"))?,
        None => 1_000,
    };
    install::servers()?;
    install::java_project(&root().join("bench/java"), "workload.jar")?;
    crate::run("cargo", &["build", "--release", "--quiet", "--bin", "workload"])?;
    let folder = root().join("target/bench");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let zookeeper = ZooKeeper::start(&folder)?;
    // A server that has just started is slow: both sides get a warm one.
    measure("ours", ours(), 50, 5, &zookeeper, &folder)?;
    let rows = [
        measure("Rust", ours(), jobs, SECONDS, &zookeeper, &folder)?,
        measure("Java 3.0.4", java(), jobs, SECONDS, &zookeeper, &folder)?,
    ];
    let mut table = format!(
        "{jobs} jobs of one item each second, {SECONDS} s, one ZooKeeper on the same machine:\n\n\
         | | start | runs in whole seconds of those due | lag p50 | lag p99 | requests a run | memory | threads |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for row in rows {
        table.push_str(&format!(
            "| {} | {:.1} s | {} of {} | {:.1} ms | {:.1} ms | {:.2} | {:.0} MB | {} |\n",
            row.side,
            row.start_millis as f64 / 1_000.0,
            row.runs,
            row.wanted,
            row.p50,
            row.p99,
            row.requests_a_run,
            row.megabytes,
            row.threads
        ));
    }
    std::io::stdout().lock().write_all(table.as_bytes())?;
    Ok(())
}

fn ours() -> Command {
    Command::new(root().join("target/release/workload"))
}

fn java() -> Command {
    let target = root().join("bench/java/target");
    let mut command = Command::new("java");
    command.args(["-cp", &format!("{0}/workload.jar:{0}/lib/*", target.display()), "workload.Workload"]);
    command
}

fn measure(
    side: &'static str,
    mut command: Command,
    jobs: usize,
    seconds: u64,
    zookeeper: &ZooKeeper,
    folder: &Path,
) -> anyhow::Result<Row> {
    tell(&format!("{side}: {jobs} jobs"));
    let out = folder.join(format!("{}-{jobs}", side.replace(' ', "-")));
    command
        .arg(format!("zk=127.0.0.1:{}", zookeeper.port))
        .arg(format!("ns=bench-{}", side.replace(' ', "-")))
        .args([format!("jobs={jobs}"), format!("seconds={seconds}"), format!("out={}", out.display())])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let started = wait_for_line(&mut child, &out, "started ")?;
    let start_millis = field(&started, "ms=").unwrap_or_default();
    let began = seconds_since_epoch();
    pause(Duration::from_secs(WARM_UP.min(seconds / 2)));
    let (before, runs_before) = (zookeeper.requests()?, runs(&out)?.len());
    pause(Duration::from_secs(seconds.saturating_sub(WARM_UP + 3).max(1)));
    let (after, all) = (zookeeper.requests()?, runs(&out)?);
    let (megabytes, threads) = resources(child.id());
    child.wait()?;
    let measured = all.len().saturating_sub(runs_before).max(1);
    let all = runs(&out)?;
    // Whole seconds after the warm-up, without the last one, which the end cuts.
    let first = began + 1 + WARM_UP.min(seconds / 2);
    let last = all.last().map(|r| r / 1_000_000).unwrap_or_default();
    let inside: Vec<u64> = all.into_iter().filter(|r| (first..last).contains(&(r / 1_000_000))).collect();
    let mut lags: Vec<f64> = inside.iter().map(|r| (r % 1_000_000) as f64 / 1_000.0).collect();
    lags.sort_by(f64::total_cmp);
    let at = |share: f64| lags.get(((lags.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or_default();
    Ok(Row {
        side,
        start_millis,
        runs: inside.len(),
        wanted: jobs * usize::try_from(last.saturating_sub(first))?,
        p50: at(0.5),
        p99: at(0.99),
        requests_a_run: (after - before) as f64 / measured as f64,
        megabytes,
        threads,
    })
}

fn wait_for_line(child: &mut Child, out: &Path, start: &str) -> anyhow::Result<String> {
    for _ in 0..6_000 {
        let text = std::fs::read_to_string(out).unwrap_or_default();
        if let Some(line) = text.lines().find(|l| l.starts_with(start)) {
            return Ok(line.to_owned());
        }
        if let Some(status) = child.try_wait()? {
            bail!("the workload has ended before it started: {status}");
        }
        pause(Duration::from_millis(100));
    }
    let _ = child.kill();
    bail!("the workload did not start within ten minutes")
}

/// The starts of all runs, in microseconds.
fn runs(out: &Path) -> anyhow::Result<Vec<u64>> {
    let text = std::fs::read_to_string(out)?;
    let starts = text.lines().filter_map(|l| l.strip_prefix("run ")?.split(' ').next()?.parse().ok());
    let mut starts: Vec<u64> = starts.collect();
    starts.sort_unstable();
    Ok(starts)
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|part| part.strip_prefix(name)?.parse().ok())
}

fn resources(pid: u32) -> (f64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let fields: BTreeMap<&str, u64> = status
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name, value.split_whitespace().next()?.parse().ok()?))
        })
        .collect();
    let get = |name: &str| fields.get(name).copied().unwrap_or_default();
    (get("VmRSS") as f64 / 1_024.0, get("Threads"))
}

#[expect(clippy::disallowed_methods, reason = "the measured time")]
fn pause(length: Duration) {
    std::thread::sleep(length);
}

#[expect(clippy::disallowed_methods, reason = "the measured time")]
fn seconds_since_epoch() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[expect(clippy::disallowed_methods, reason = "the measured time")]
fn millis_since_epoch() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1_000.0
}

struct ZooKeeper {
    child: Child,
    port: u16,
}

impl ZooKeeper {
    fn start(folder: &Path) -> anyhow::Result<ZooKeeper> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let data = folder.join("zookeeper");
        let config = folder.join("zoo.cfg");
        std::fs::write(
            &config,
            format!(
                "tickTime=500\nmaxSessionTimeout=60000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
                 admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
                data.display()
            ),
        )?;
        let child = Command::new("java")
            .args(["-Xmx2g", "-Dzookeeper.forceSync=no", "-cp"])
            .arg("/usr/share/java/zookeeper.jar:/usr/share/java/*")
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = ZooKeeper { child, port };
        for _ in 0..600 {
            if server.says("ruok").is_ok_and(|answer| answer == "imok") {
                return Ok(server);
            }
            pause(Duration::from_millis(100));
        }
        bail!("ZooKeeper does not answer")
    }

    fn says(&self, word: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Packets that the server has received from its clients.
    fn requests(&self) -> anyhow::Result<u64> {
        let answer = self.says("mntr")?;
        let count = answer.lines().find_map(|l| l.strip_prefix("zk_packets_received")?.trim().parse().ok());
        count.context("the server does not count packets")
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
