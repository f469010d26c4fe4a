//! The workload of the comparison: `key=value` arguments, the same as of `bench/java`.
//!
//! `mode=schedule|oneoff jobs=N shards=N cron=… sleep=MS failover=B monitor=B misfire=B seconds=N session=MS zk=HOST:PORT
//! ns=NAME out=FILE n=N kind=simple|http|script target=URL|COMMAND trace=ADDRESS`: `target` is what jobs of the two other
//! kinds call, `trace` a database for the event trace. Writes `started jobs=N ms=N pid=N`, for each item run
//! `run START_US END_US JOB ITEM PID`, at the end `count N`; in one-off mode
//! `oneoff n=N shards=N per_s=F p50_us=N p99_us=N`.
//!
//! Ours alone: `zk=embedded` is a file `NAME.db` in the current folder; `due=true` adds the due time to each run, in
//! microseconds; `instances=N` runs the jobs on so many connections, each an instance of its own; `mode=fill|list`, see
//! `list.rs`; `mode=churn`, see `churn.rs`.

mod churn;
mod list;
mod settings;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use elasticjob::registry::Connection;
use elasticjob::{Context, Job, JobHandle, JobResult, OneOffJob, ScheduleJob, TraceSettings};
use settings::Settings;
use sqlx::Connection as _;
use tokio::sync::mpsc;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Ran {
    start: u64,
    end: u64,
    due: i64,
    job: usize,
    item: u32,
}

#[expect(clippy::disallowed_methods, reason = "what is measured")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "the job's own work")]
async fn work(context: Context, job: usize, sleep: u64, ran: mpsc::UnboundedSender<Ran>) -> JobResult {
    let start = micros();
    if sleep > 0 {
        tokio::time::sleep(Duration::from_millis(sleep)).await;
    }
    ran.send(Ran { start, end: micros(), due: context.due().0 * 1_000, job, item: context.item() })?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let settings = Settings::read()?;
    let mut out: Box<dyn Write> = match settings.text("out", "").as_str() {
        "" => Box::new(std::io::stdout().lock()),
        path => Box::new(std::io::BufWriter::new(std::fs::File::create(path)?)),
    };
    match settings.text("mode", "schedule").as_str() {
        "schedule" => schedule(&settings, &mut *out).await,
        "oneoff" => one_off(&settings, &mut *out).await,
        "fill" | "list" => lists(&settings).await,
        "churn" => churn::run(&settings, &mut *out).await,
        other => bail!("`mode={other}`: expected schedule, oneoff, fill, list or churn"),
    }
}

async fn connect(settings: &Settings) -> anyhow::Result<Connection> {
    let connection = elasticjob::registry::connect(&settings.registry()?).await?;
    match settings.text("trace", "").as_str() {
        "" => {}
        url => connection.trace(Some(TraceSettings::rdb(url)))?,
    }
    Ok(connection)
}

fn name(number: usize, jobs: usize) -> String {
    if jobs == 1 { "job".to_owned() } else { format!("job{number}") }
}

/// The jobs of one instance.
fn describe(settings: &Settings, ran: &mpsc::UnboundedSender<Ran>) -> anyhow::Result<Vec<Job>> {
    let jobs = settings.count("jobs", 1)?;
    let shards = u32::try_from(settings.number("shards", 1)?)?;
    let sleep = settings.number("sleep", 0)?;
    let target = settings.text("target", "");
    let one_off = settings.text("mode", "schedule") == "oneoff";
    let mut described = Vec::with_capacity(jobs);
    for number in 0..jobs {
        let (name, ran) = (name(number, jobs), ran.clone());
        let code = move |context| work(context, number, sleep, ran.clone());
        if one_off {
            described.push(OneOffJob::new(&name, shards).overwrite(true).simple(code));
            continue;
        }
        let job = ScheduleJob::new(&name, shards)
            .cron(&settings.text("cron", "* * * * * ?"))
            .monitor_execution(settings.flag("monitor", true)?)
            .failover(settings.flag("failover", false)?)
            .misfire(settings.flag("misfire", true)?)
            .overwrite(true);
        described.push(match settings.text("kind", "simple").as_str() {
            "simple" => job.simple(code),
            "http" => job.property("http.uri", &target).property("http.method", "POST").of_type("HTTP"),
            "script" => job.property("script.command.line", &target).of_type("SCRIPT"),
            other => bail!("`kind={other}`: expected simple, http or script"),
        });
    }
    Ok(described)
}

/// Starts the jobs, and says how long that took.
async fn start(connections: &[Connection], jobs: Vec<Vec<Job>>, out: &mut dyn Write) -> anyhow::Result<Vec<JobHandle>> {
    let begun = micros();
    let mut starting = tokio::task::JoinSet::new();
    let mut started = Vec::new();
    for (connection, jobs) in connections.iter().zip(jobs) {
        for job in jobs {
            let connection = connection.clone();
            starting.spawn(async move { job.start(&connection).await });
        }
    }
    while let Some(job) = starting.join_next().await {
        started.push(job??);
    }
    writeln!(out, "started jobs={} ms={} pid={}", started.len(), (micros() - begun) / 1_000, std::process::id())?;
    out.flush()?;
    Ok(started)
}

#[expect(clippy::disallowed_methods, reason = "the measured time")]
async fn schedule(settings: &Settings, out: &mut dyn Write) -> anyhow::Result<()> {
    let (sender, mut ran) = mpsc::unbounded_channel();
    let mut connections = Vec::new();
    let mut jobs = Vec::new();
    for _ in 0..settings.number("instances", 1)? {
        connections.push(connect(settings).await?);
        jobs.push(describe(settings, &sender)?);
    }
    let handles = start(&connections, jobs, out).await?;
    let (jobs, with_due) = (settings.count("jobs", 1)?, settings.flag("due", false)?);
    let end = tokio::time::sleep(Duration::from_secs(settings.number("seconds", 20)?));
    tokio::pin!(end);
    let mut count = 0_u64;
    loop {
        tokio::select! {
            () = &mut end => break,
            Some(run) = ran.recv() => {
                count += 1;
                write!(out, "run {} {} {} {}", run.start, run.end, name(run.job, jobs), run.item)?;
                write!(out, " {}", std::process::id())?;
                if with_due {
                    write!(out, " {}", run.due)?;
                }
                writeln!(out)?;
            }
        }
    }
    writeln!(out, "count {count}")?;
    out.flush()?;
    drop(handles);
    for connection in connections {
        connection.close().await;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the measured time")]
async fn one_off(settings: &Settings, out: &mut dyn Write) -> anyhow::Result<()> {
    let (sender, mut ran) = mpsc::unbounded_channel();
    let connection = connect(settings).await?;
    let handles = start(std::slice::from_ref(&connection), vec![describe(settings, &sender)?], out).await?;
    let job = handles.first().context("`jobs=0`: a one-off run needs a job")?;
    let shards = settings.number("shards", 1)?;
    let n = settings.count("n", 200)?.max(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut times = Vec::with_capacity(n);
    let begin = micros();
    for _ in 0..n {
        let start = micros();
        job.trigger().await?;
        for _ in 0..shards {
            ran.recv().await.context("the job has ended")?;
        }
        times.push(micros() - start);
    }
    let per_second = n as f64 * 1e6 / (micros() - begin).max(1) as f64;
    times.sort_unstable();
    let (p50, p99) = (times[n / 2], times[n * 99 / 100]);
    writeln!(out, "oneoff n={n} shards={shards} per_s={per_second:.1} p50_us={p50} p99_us={p99}")?;
    out.flush()?;
    job.stop().await;
    connection.close().await;
    tell_traced(&settings.text("trace", ""), out).await
}

/// Writes jobs without instances, or lists the existing ones.
async fn lists(settings: &Settings) -> anyhow::Result<()> {
    let registry = elasticjob::registry::attach(&settings.registry()?).await?;
    if settings.text("mode", "") == "fill" {
        let (jobs, servers) = (settings.count("jobs", 1_000)?, settings.count("servers", 10)?);
        list::fill(&*registry, jobs, servers).await?;
    } else {
        list::run(&registry, &mut std::io::stdout().lock()).await?;
    }
    registry.close().await;
    Ok(())
}

/// How many ends of runs a trace in a file holds: `traced N`.
async fn tell_traced(address: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(file) = address.strip_prefix("sqlite://") else { return Ok(()) };
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    let count = "SELECT COUNT(*) FROM JOB_EXECUTION_LOG WHERE complete_time IS NOT NULL";
    let count: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await?;
    writeln!(out, "traced {count}")?;
    out.flush()?;
    Ok(())
}
