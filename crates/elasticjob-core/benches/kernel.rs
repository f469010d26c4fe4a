//! Micro-benchmarks of what every firing, every start and every resharding pays: `cargo bench -p elasticjob-core`.

#[path = "../tests/desk/mod.rs"]
mod desk;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use elasticjob_core::cron::Cron;
use elasticjob_core::shard;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::JobDocument;

use desk::Desk;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn cron(c: &mut Criterion) {
    let mut group = c.benchmark_group("cron, the next firing");
    for text in ["* * * * * ?", "0 0/5 8-18 ? * MON-FRI", "0 0 3 L * ?", "0 0 12 29 2 ?"] {
        let cron = Cron::parse(text).expect("a right expression");
        group.bench_function(text, |b| b.iter(|| cron.next(black_box(NOW), &jiff::tz::TimeZone::UTC)));
    }
    group.finish();
    c.bench_function("cron, parsing", |b| b.iter(|| Cron::parse(black_box("0 0/5 8-18 ? * MON-FRI"))));
}

fn strategies(c: &mut Criterion) {
    let mut group = c.benchmark_group("1,000 items over 100 instances");
    let instances: Vec<String> = (0..100).map(|n| format!("10.0.{}.{}@-@{n}", n / 10, n % 10)).collect();
    for strategy in shard::built_in() {
        group.bench_function(strategy.name(), |b| b.iter(|| strategy.assign(black_box(&instances), "job", 1_000, NOW)));
    }
    group.finish();
}

fn documents(c: &mut Criterion) {
    let document = JobDocument { cron: Some("0/5 * * * * ?".into()), ..JobDocument::new("job", 3) };
    let yaml = document.to_yaml();
    c.bench_function("configuration, writing", |b| b.iter(|| black_box(&document).to_yaml()));
    c.bench_function("configuration, reading", |b| b.iter(|| JobDocument::parse(black_box(yaml.as_bytes()))));
}

/// From the due time to the end of the release, with the tree that answers.
fn firings(c: &mut Criterion) {
    let mut group = c.benchmark_group("machine, one firing");
    for items in [1, 10, 100, 1_000, 10_000] {
        let mut desk = Desk::new(items, || (0, 0));
        group.bench_function(BenchmarkId::from_parameter(items), |b| b.iter(|| desk.fire()));
    }
    group.finish();
    c.bench_function("machine, joining and leading", |b| {
        b.iter_batched(|| (), |()| Desk::new(1, || (0, 0)), BatchSize::SmallInput);
    });
}

criterion_group!(kernel, cron, strategies, documents, firings);
criterion_main!(kernel);
