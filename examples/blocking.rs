//! A job whose code blocks: it runs on a thread of its own. It also shows what a failed item looks like.
//!
//! `cargo run --example blocking`

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use elasticjob::{BlockingJob, Context, JobResult, ScheduleJob};

struct Report {
    lines: mpsc::SyncSender<String>,
    failures: Arc<AtomicU32>,
}

impl BlockingJob for Report {
    fn execute(&self, context: Context) -> JobResult {
        if context.item() == 1 {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err("the database of item 1 is away".into());
        }
        self.lines.send(format!("item {} with token {}", context.item(), context.fencing_token()))?;
        Ok(())
    }
}

async fn run() -> Result<(String, u32), elasticjob::Error> {
    let registry = elasticjob::registry::connect("memory:").await?;
    let (lines, received) = mpsc::sync_channel(100);
    let failures = Arc::new(AtomicU32::new(0));
    let report = Report { lines, failures: Arc::clone(&failures) };
    let job = ScheduleJob::new("report", 2).cron("* * * * * ?").blocking(report).start(&registry).await?;
    let line = tokio::task::spawn_blocking(move || received.recv().unwrap_or_default()).await.unwrap_or_default();
    job.stop().await;
    Ok((line, failures.load(Ordering::Relaxed)))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), elasticjob::Error> {
    let (line, failures) = run().await?;
    println!("{line}; {failures} failures of the other item");
    Ok(())
}

#[tokio::test]
async fn it_runs() {
    let (line, failures) = run().await.expect("runs");
    assert!(line.starts_with("item 0 with token "), "{line}");
    assert!(failures >= 1);
}
