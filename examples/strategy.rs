//! A sharding strategy of one's own: everything on the first instance.
//!
//! `cargo run --example strategy`

use std::sync::Arc;

use elasticjob::registry::{Connection, memory::Memory};
use elasticjob::{Assignment, JobState, Plugins, ScheduleJob, ShardingStrategy, Timestamp};

struct AllOnFirst;

impl ShardingStrategy for AllOnFirst {
    fn name(&self) -> &str {
        "ALL_ON_FIRST"
    }

    fn assign(&self, instances: &[String], _job: &str, total: u32, _now: Timestamp) -> Assignment {
        instances.first().map(|first| (first.clone(), (0..total).collect())).into_iter().collect()
    }
}

async fn run() -> Result<Vec<u32>, elasticjob::Error> {
    let registry = Arc::new(Memory::new().connect());
    let plugins = Plugins::default().strategy(AllOnFirst);
    let connection = Connection::on(registry).plugins(plugins).connect().await?;
    let job = ScheduleJob::new("sums", 4)
        .cron("0 0 3 * * ?")
        .sharding_strategy("ALL_ON_FIRST")
        .simple(|_| async { Ok(()) })
        .start(&connection)
        .await?;
    let mut states = job.states();
    let owns = |state: &JobState| matches!(state, JobState::Running { items, .. } if !items.is_empty());
    let _ = states.wait_for(owns).await;
    let items = match job.state() {
        JobState::Running { items, .. } => items,
        _ => Vec::new(),
    };
    job.stop().await;
    Ok(items)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), elasticjob::Error> {
    println!("this instance has the items {:?}", run().await?);
    Ok(())
}

#[tokio::test]
async fn it_runs() {
    assert_eq!(run().await, Ok(vec![0, 1, 2, 3]));
}
