//! What is counted, for Prometheus, and whether this process does its work. Counting never waits; series are made when
//! somebody asks for them.
//!
//! Histograms have no label for the job, so that their number does not grow with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use elasticjob_core::machine::{JobEvent, Source};
use elasticjob_core::time::Timestamp;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::clock;

/// Bounds of the histograms in seconds: the lag of a firing, and the length of a run.
const LAG_BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const LENGTH_BOUNDS: [f64; 12] = [0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0];

const SOURCES: [Source; 4] = [Source::Schedule, Source::Misfire, Source::Failover, Source::Trigger];

/// The counts of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    labels: Vec<(String, String)>,
    jobs: Mutex<BTreeMap<Arc<str>, Arc<JobMeter>>>,
    lag: Histogram,
    length: Histogram,
    pub(crate) requests: Requests,
    /// Messages that wait for the one task that owns the jobs, those that it works on included.
    pub(crate) worker_queue: AtomicUsize,
    /// Transactions that wait for a place in a request: the commit queue's own count.
    pub(crate) commit_queue: Arc<AtomicUsize>,
}

impl Metrics {
    /// Creates the metrics of a connection. The labels are on every series.
    pub(crate) fn new(labels: Vec<(String, String)>) -> Metrics {
        Metrics {
            labels,
            jobs: Mutex::default(),
            lag: Histogram::new(LAG_BOUNDS),
            length: Histogram::new(LENGTH_BOUNDS),
            requests: Requests::default(),
            worker_queue: AtomicUsize::new(0),
            commit_queue: Arc::default(),
        }
    }
}

/// Requests to the registry, and those that failed.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) reads: Count,
    pub(crate) commits: Count,
    pub(crate) watches: Count,
}

/// How often, and how often in vain.
#[derive(Debug, Default)]
pub(crate) struct Count {
    all: AtomicU64,
    failed: AtomicU64,
}

impl Count {
    pub(crate) fn add(&self, failed: bool) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
    }
}

/// The counts of one job.
#[derive(Debug)]
pub(crate) struct JobMeter {
    lag: Histogram,
    length: Histogram,
    runs: [Count; SOURCES.len()],
    misfires: AtomicU64,
    failovers: AtomicU64,
    reshards: AtomicU64,
    skipped: AtomicU64,
    lost: AtomicU64,
    passed: AtomicU64,
    running: AtomicI64,
    owned: AtomicUsize,
    leads: AtomicBool,
    joined: AtomicBool,
    /// The last success in milliseconds since the epoch; the start of the job before the first one.
    succeeded_at: AtomicI64,
    /// Why the registry refuses requests of the job.
    refusal: Mutex<Option<String>>,
}

impl Metrics {
    /// The counts of a job that is about to start.
    pub(crate) fn meter(&self) -> Arc<JobMeter> {
        Arc::new(JobMeter {
            lag: self.lag.clone(),
            length: self.length.clone(),
            runs: Default::default(),
            misfires: AtomicU64::new(0),
            failovers: AtomicU64::new(0),
            reshards: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            running: AtomicI64::new(0),
            owned: AtomicUsize::new(0),
            leads: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            succeeded_at: AtomicI64::new(clock::now().0),
            refusal: Mutex::new(None),
        })
    }

    /// A job has its series from its start on.
    pub(crate) fn started(&self, job: &str, meter: &Arc<JobMeter>) {
        self.jobs.lock().insert(job.into(), Arc::clone(meter));
    }

    /// A job that has left this process has no series any more, but where another start of it has.
    pub(crate) fn left(&self, job: &str, meter: &Arc<JobMeter>) {
        let mut jobs = self.jobs.lock();
        if jobs.get(job).is_some_and(|known| Arc::ptr_eq(known, meter)) {
            jobs.remove(job);
        }
    }

    /// The jobs of this process, and whether each takes part at the moment.
    pub(crate) fn parts(&self) -> BTreeMap<String, bool> {
        let jobs = self.jobs.lock();
        jobs.iter().map(|(name, meter)| (name.to_string(), meter.joined.load(Ordering::Relaxed))).collect()
    }

    /// The items whose code runs in this process.
    pub(crate) fn running(&self) -> u64 {
        let jobs = self.jobs.lock();
        jobs.values().map(|meter| meter.running.load(Ordering::Relaxed).max(0).unsigned_abs()).sum()
    }

    /// The jobs whose requests the registry refuses, and why.
    pub(crate) fn refusals(&self) -> BTreeMap<String, String> {
        let jobs = self.jobs.lock();
        jobs.iter().filter_map(|(name, meter)| Some((name.to_string(), meter.refusal.lock().clone()?))).collect()
    }

    /// Every series, as text in the OpenMetrics format.
    pub(crate) fn render(self: &Arc<Self>, beside: Beside) -> String {
        let labels = self.labels.iter().map(|(name, value)| (name.clone().into(), value.clone().into()));
        let mut registry = Registry::with_prefix_and_labels("elasticjob", labels);
        registry.register("lag_seconds", "Delay from the due time to the start of an item", self.lag.clone());
        registry.register("run_seconds", "Duration of the runs of items, with retries", self.length.clone());
        registry.register_collector(Box::new(Series { metrics: Arc::clone(self), beside, now: clock::now() }));
        let mut text = String::new();
        // A `String` takes every text.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

impl JobMeter {
    /// An item begins. The lag counts for firings alone: what is caught up is late by nature.
    pub(crate) fn begins(&self, source: Source, due: Timestamp) {
        self.running.fetch_add(1, Ordering::Relaxed);
        if source == Source::Schedule {
            self.lag.observe(clock::now().since(due).as_secs_f64());
        }
    }

    /// It has ended.
    pub(crate) fn ends(&self, source: Source, failed: bool, length: Duration) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        let index = SOURCES.iter().position(|s| *s == source).unwrap_or_default();
        self.runs[index].add(failed);
        self.length.observe(length.as_secs_f64());
        if !failed {
            self.succeeded_at.fetch_max(clock::now().0, Ordering::Relaxed);
        }
    }

    /// Counts an event.
    pub(crate) fn count(&self, event: &JobEvent) {
        let (counter, by) = match event {
            JobEvent::Misfired { items, .. } => (&self.misfires, items.len()),
            JobEvent::TakenOver { .. } => (&self.failovers, 1),
            JobEvent::Resharded { .. } => (&self.reshards, 1),
            JobEvent::Skipped { .. } => (&self.skipped, 1),
            JobEvent::Lost { items, .. } => (&self.lost, items.len()),
            JobEvent::Passed { items, firings, .. } => (&self.passed, items.len() * firings),
            _ => return,
        };
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }

    /// Sets why the registry refuses requests of the job. Returns `true` if there was a reason before.
    pub(crate) fn set_refusal(&self, reason: Option<String>) -> bool {
        std::mem::replace(&mut *self.refusal.lock(), reason).is_some()
    }

    /// The current state.
    pub(crate) fn stands(&self, joined: bool, owned: usize, leads: bool) {
        self.joined.store(joined, Ordering::Relaxed);
        self.owned.store(owned, Ordering::Relaxed);
        self.leads.store(leads, Ordering::Relaxed);
    }
}

/// What others count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    pub(crate) registry_up: bool,
    pub(crate) trace_queue: usize,
    pub(crate) trace_dropped: u64,
    pub(crate) handlers: usize,
}

/// Makes the series of one answer.
struct Series {
    metrics: Arc<Metrics>,
    beside: Beside,
    now: Timestamp,
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Series")
    }
}

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Series {
    /// One metric with a value for each job.
    fn each_job<T: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&JobMeter) -> T,
    ) -> fmt::Result {
        let jobs = self.metrics.jobs.lock();
        // A metric without a series is left out.
        let Some(kind) = jobs.values().next().map(|job| value(job).metric_type()) else { return Ok(()) };
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (job, meter) in jobs.iter() {
            let labels: Labels<'_, 1> = [("job", job)];
            value(meter).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// One metric with a value for each of some names.
    fn each<T: EncodeMetric, const N: usize>(
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        label: &'static str,
        values: [(&str, T); N],
    ) -> fmt::Result {
        let Some((_, first)) = values.first() else { return Ok(()) };
        let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
        for (of, value) in &values {
            let labels: Labels<'_, 1> = [(label, of)];
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn counter(value: &AtomicU64) -> prometheus_client::metrics::counter::ConstCounter<u64> {
    prometheus_client::metrics::counter::ConstCounter::new(value.load(Ordering::Relaxed))
}

fn gauge(value: i64) -> prometheus_client::metrics::gauge::ConstGauge<i64> {
    prometheus_client::metrics::gauge::ConstGauge::new(value)
}

fn size(value: usize) -> prometheus_client::metrics::gauge::ConstGauge<i64> {
    gauge(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        {
            let jobs = self.metrics.jobs.lock();
            let help = "Runs of items that have ended";
            let mut family = out.encode_descriptor("runs", help, None, MetricType::Counter)?;
            for (job, meter) in jobs.iter() {
                for (source, count) in SOURCES.iter().zip(&meter.runs) {
                    let failed = count.failed.load(Ordering::Relaxed);
                    let succeeded = count.all.load(Ordering::Relaxed).saturating_sub(failed);
                    for (outcome, value) in [("success", succeeded), ("failure", failed)] {
                        let labels: Labels<'_, 3> = [("job", job), ("source", source.word()), ("outcome", outcome)];
                        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                    }
                }
            }
        }
        self.each_job(out, "misfires", "Firings of items that could not start when due and are caught up", |j| {
            counter(&j.misfires)
        })?;
        self.each_job(out, "failovers", "Items taken over from instances that died", |j| counter(&j.failovers))?;
        self.each_job(out, "reshards", "Reshardings performed by this instance as leader", |j| counter(&j.reshards))?;
        self.each_job(
            out,
            "skipped_firings",
            "Skipped firings, each counted once for all items of this instance that skipped it",
            |j| counter(&j.skipped),
        )?;
        self.each_job(out, "lost_runs", "Runs of items whose registry session ended before their code started", |j| {
            counter(&j.lost)
        })?;
        let help = "Firings of items that no Rust instance started";
        self.each_job(out, "missed", help, |j| counter(&j.passed))?;
        self.each_job(out, "items_running", "Items that are running on this instance", |j| {
            gauge(j.running.load(Ordering::Relaxed))
        })?;
        self.each_job(out, "items_owned", "Items that this instance owns", |j| size(j.owned.load(Ordering::Relaxed)))?;
        self.each_job(out, "leader", "Whether this instance leads the job", |j| {
            gauge(j.leads.load(Ordering::Relaxed).into())
        })?;
        self.each_job(out, "joined", "Whether this instance has joined the job", |j| {
            gauge(j.joined.load(Ordering::Relaxed).into())
        })?;
        let help = "Seconds since an item of the job last succeeded on this instance, or since the job started here if none has";
        self.each_job(out, "seconds_since_last_success", help, |j| {
            let since = self.now.since(Timestamp(j.succeeded_at.load(Ordering::Relaxed)));
            prometheus_client::metrics::gauge::ConstGauge::new(since.as_secs_f64())
        })?;
        let requests = &self.metrics.requests;
        let kinds = [("read", &requests.reads), ("commit", &requests.commits), ("watch", &requests.watches)];
        let about = ("registry_requests", "Requests to the registry");
        Series::each(out, about, "kind", kinds.map(|(kind, count)| (kind, counter(&count.all))))?;
        let about = ("registry_failures", "Requests that failed: the registry did not answer or rejected them");
        Series::each(out, about, "kind", kinds.map(|(kind, count)| (kind, counter(&count.failed))))?;
        gauge(self.beside.registry_up.into()).encode(out.encode_descriptor(
            "registry_up",
            "Whether the registry is connected",
            None,
            MetricType::Gauge,
        )?)?;
        let queues = [
            ("worker", size(self.metrics.worker_queue.load(Ordering::Relaxed))),
            ("commits", size(self.metrics.commit_queue.load(Ordering::Relaxed))),
            ("trace", size(self.beside.trace_queue)),
            ("handlers", size(self.beside.handlers)),
        ];
        Series::each(out, ("queue_length", "Number of entries in each internal queue"), "queue", queues)?;
        let help = "Trace events dropped because the queue was full";
        counter(&AtomicU64::new(self.beside.trace_dropped)).encode(out.encode_descriptor(
            "trace_dropped",
            help,
            None,
            MetricType::Counter,
        )?)?;
        Ok(())
    }
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Why the registry cannot be reached; `None` when it can.
    pub registry: Option<String>,
    /// The jobs that were started in this process and have not left it, and whether each takes part: it does not while it is not
    /// registered yet, and while there is no link.
    pub jobs: BTreeMap<String, bool>,
    /// The jobs whose requests the registry refuses, and why.
    pub refusals: BTreeMap<String, String>,
}
