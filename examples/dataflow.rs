//! A job that fetches pieces of work and processes them until there are none.
//!
//! `cargo run --example dataflow`

use std::sync::Mutex;

use elasticjob::{Context, DataflowJob, Error, JobError, JobResult, ScheduleJob};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Orders that wait, and where the processed ones go.
struct Orders(Mutex<Vec<u32>>, UnboundedSender<Vec<u32>>);

impl DataflowJob for Orders {
    type Data = u32;

    async fn fetch(&self, _context: &Context) -> Result<Vec<u32>, JobError> {
        let mut waiting = self.0.lock().map_err(|_| "the list of orders is broken")?;
        let left = waiting.len().saturating_sub(2);
        Ok(waiting.split_off(left))
    }

    async fn process(&self, _context: &Context, orders: Vec<u32>) -> JobResult {
        Ok(self.1.send(orders)?)
    }
}

async fn run() -> Result<Vec<u32>, Error> {
    let registry = elasticjob::registry::connect("memory:").await?;
    let (sender, mut processed) = unbounded_channel();
    let job = ScheduleJob::new("orders", 1)
        .cron("* * * * * ?")
        .property("streaming.process", "true") // fetches again until nothing is left
        .dataflow(Orders(Mutex::new((1..=5).collect()), sender))
        .start(&registry)
        .await?;
    let mut orders = Vec::new();
    while orders.len() < 5 {
        orders.extend(processed.recv().await.unwrap_or_default());
    }
    job.stop().await;
    Ok(orders)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Error> {
    println!("processed the orders {:?}", run().await?);
    Ok(())
}

#[tokio::test]
async fn it_runs() {
    assert_eq!(run().await, Ok(vec![4, 5, 2, 3, 1]));
}
