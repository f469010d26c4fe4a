//! The workload of the comparison: `key=value` arguments, the same as of `bench/java`.
//!
//! `mode=schedule|oneoff jobs=N shards=N cron=… sleep=MS failover=B monitor=B misfire=B seconds=N session=MS zk=HOST:PORT
//! ns=NAME out=FILE n=N`, and ours alone `trace=ADDRESS`, a database for the event trace. Writes `started jobs=N ms=N pid=N`, for each item run `run START_US END_US JOB ITEM PID`, at the
//! end `count N`; in one-off mode `oneoff n=N shards=N per_s=F p50_us=N p99_us=N`. Ours alone has `mode=fill|list`, see `list.rs`.

mod list;

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use elasticjob::registry::Connection;
use elasticjob::{Context, Job, JobResult, OneOffJob, ScheduleJob, TraceSettings};
use sqlx::Connection as _;
use tokio::sync::mpsc;

const KEYS: [&str; 16] = [
    "mode", "jobs", "shards", "cron", "sleep", "failover", "monitor", "misfire", "seconds", "session", "zk", "ns",
    "out", "n", "trace", "servers",
];

struct Settings(HashMap<String, String>);

impl Settings {
    fn read() -> anyhow::Result<Settings> {
        let mut settings = HashMap::new();
        for argument in std::env::args().skip(1) {
            let (key, value) = argument.split_once('=').with_context(|| format!("`{argument}`: expected key=value"))?;
            if !KEYS.contains(&key) {
                bail!("unknown key `{key}`; expected one of {}", KEYS.join(" "));
            }
            settings.insert(key.to_owned(), value.to_owned());
        }
        Ok(Settings(settings))
    }

    fn text(&self, key: &str, default: &str) -> String {
        self.0.get(key).cloned().unwrap_or_else(|| default.to_owned())
    }

    fn number(&self, key: &str, default: u64) -> anyhow::Result<u64> {
        let Some(text) = self.0.get(key) else { return Ok(default) };
        text.parse().with_context(|| format!("`{key}={text}`: expected a whole number"))
    }

    fn flag(&self, key: &str, default: bool) -> anyhow::Result<bool> {
        let Some(text) = self.0.get(key) else { return Ok(default) };
        text.parse().with_context(|| format!("`{key}={text}`: expected true or false"))
    }
}

struct Ran {
    start: u64,
    end: u64,
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
    ran.send(Ran { start, end: micros(), job, item: context.item() })?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let settings = Settings::read()?;
    let one_off = match settings.text("mode", "schedule").as_str() {
        "schedule" => false,
        "oneoff" => true,
        "fill" | "list" => return lists(&settings).await,
        other => bail!("`mode={other}`: expected schedule, oneoff, fill or list"),
    };
    let registry = match settings.text("zk", "127.0.0.1:2181").as_str() {
        "embedded" => format!("embedded:{}.db", settings.text("ns", "bench")),
        zk => {
            let session = settings.number("session", 60_000)?;
            format!("zookeeper://{zk}/{}?sessionTimeoutMilliseconds={session}", settings.text("ns", "bench"))
        }
    };
    let connection = elasticjob::registry::connect(&registry).await?;
    match settings.text("trace", "").as_str() {
        "" => {}
        url => connection.trace(Some(TraceSettings::rdb(url)))?,
    }
    let (sender, mut ran) = mpsc::unbounded_channel();
    let shards = u32::try_from(settings.number("shards", 1)?)?;
    let jobs = usize::try_from(settings.number("jobs", 1)?)?;
    let sleep = settings.number("sleep", 0)?;
    let mut out: Box<dyn Write> = match settings.text("out", "").as_str() {
        "" => Box::new(std::io::stdout().lock()),
        path => Box::new(std::io::BufWriter::new(std::fs::File::create(path)?)),
    };

    let start = micros();
    let mut starting = tokio::task::JoinSet::new();
    for number in 0..jobs {
        let name = if jobs == 1 { "job".to_owned() } else { format!("job{number}") };
        let sender = sender.clone();
        let code = move |context| work(context, number, sleep, sender.clone());
        let job: Job = if one_off {
            OneOffJob::new(&name, shards).overwrite(true).simple(code)
        } else {
            ScheduleJob::new(&name, shards)
                .cron(&settings.text("cron", "* * * * * ?"))
                .monitor_execution(settings.flag("monitor", true)?)
                .failover(settings.flag("failover", false)?)
                .misfire(settings.flag("misfire", true)?)
                .overwrite(true)
                .simple(code)
        };
        let connection = connection.clone();
        starting.spawn(async move { job.start(&connection).await });
    }
    let mut handles = Vec::with_capacity(jobs);
    while let Some(started) = starting.join_next().await {
        handles.push(started??);
    }
    writeln!(out, "started jobs={jobs} ms={} pid={}", (micros() - start) / 1_000, std::process::id())?;
    out.flush()?;

    if one_off {
        execute_many(&settings, &handles[0], shards, &mut ran, &mut *out).await?;
        handles[0].stop().await;
        connection.close().await;
        return tell_traced(&settings.text("trace", ""), &mut *out).await;
    }
    schedule(&settings, &connection, jobs, &mut ran, &mut *out).await
}

/// Writes jobs that nobody runs, or lists what is there.
async fn lists(settings: &Settings) -> anyhow::Result<()> {
    let address = format!("zookeeper://{}/{}", settings.text("zk", "127.0.0.1:2181"), settings.text("ns", "bench"));
    let registry = elasticjob::registry::attach(&address).await?;
    if settings.text("mode", "") == "fill" {
        let (jobs, servers) = (settings.number("jobs", 1_000)?, settings.number("servers", 10)?);
        list::fill(&*registry, usize::try_from(jobs)?, usize::try_from(servers)?).await?;
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

#[expect(clippy::disallowed_methods, reason = "the measured time")]
async fn schedule(
    settings: &Settings,
    connection: &Connection,
    jobs: usize,
    ran: &mut mpsc::UnboundedReceiver<Ran>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let end = tokio::time::sleep(Duration::from_secs(settings.number("seconds", 20)?));
    tokio::pin!(end);
    let mut count = 0_u64;
    loop {
        tokio::select! {
            () = &mut end => break,
            Some(run) = ran.recv() => {
                count += 1;
                let name = if jobs == 1 { "job".to_owned() } else { format!("job{}", run.job) };
                writeln!(out, "run {} {} {name} {} {}", run.start, run.end, run.item, std::process::id())?;
            }
        }
    }
    writeln!(out, "count {count}")?;
    out.flush()?;
    connection.close().await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the measured time")]
async fn execute_many(
    settings: &Settings,
    job: &elasticjob::JobHandle,
    shards: u32,
    ran: &mut mpsc::UnboundedReceiver<Ran>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let n = usize::try_from(settings.number("n", 200)?)?.max(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut times = Vec::with_capacity(n);
    let begin = micros();
    for _ in 0..n {
        let start = micros();
        job.execute().await?;
        for _ in 0..shards {
            ran.recv().await.context("the job has ended")?;
        }
        times.push(micros() - start);
    }
    let took = micros() - begin;
    times.sort_unstable();
    let per_second = n as f64 * 1e6 / took.max(1) as f64;
    writeln!(
        out,
        "oneoff n={n} shards={shards} per_s={per_second:.1} p50_us={} p99_us={}",
        times[n / 2],
        times[n * 99 / 100]
    )?;
    out.flush()?;
    Ok(())
}
