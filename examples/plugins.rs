//! A listener of one's own, registered by its name and used by a job.
//!
//! `cargo run --example plugins`

use elasticjob::{Error, JobResult, ListenedRun, Listener, Plugins, ScheduleJob};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

struct Journal(UnboundedSender<String>);

impl Listener for Journal {
    fn name(&self) -> &str {
        "JOURNAL"
    }

    async fn before(&self, run: &ListenedRun) -> JobResult {
        Ok(self.0.send(format!("{} starts", run.job_name()))?)
    }

    async fn after(&self, run: &ListenedRun) -> JobResult {
        Ok(self.0.send(format!("{} has completed", run.job_name()))?)
    }
}

async fn run() -> Result<[Option<String>; 2], Error> {
    let (sender, mut lines) = unbounded_channel();
    let plugins = Plugins::default().listener(Journal(sender));
    let connection = elasticjob::registry::Connection::builder("memory:").plugins(plugins).connect().await?;
    let job = ScheduleJob::new("report", 1)
        .cron("* * * * * ?")
        .listeners(&["JOURNAL"])
        .simple(|_| async { Ok(()) })
        .start(&connection)
        .await?;
    let first = [lines.recv().await, lines.recv().await];
    job.stop().await;
    Ok(first)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Error> {
    for line in run().await?.into_iter().flatten() {
        println!("{line}");
    }
    Ok(())
}

#[tokio::test]
async fn it_runs() {
    let lines = ["report starts", "report has completed"].map(|line| Some(line.to_owned()));
    assert_eq!(run().await, Ok(lines));
}
