//! A job on ZooKeeper until Ctrl-C or SIGTERM: what runs ends first, then the nodes of this instance are deleted, so that the
//! other instances take its items at once.
//!
//! `cargo run --example zookeeper -- zookeeper://127.0.0.1:2181/demo`

use std::future::Future;

use elasticjob::ScheduleJob;
use tokio::signal::unix::{SignalKind, signal};

async fn run(address: &str, until: impl Future<Output = ()>) -> Result<(), elasticjob::Error> {
    let registry = elasticjob::registry::connect(address).await?;
    let job = ScheduleJob::new("report", 3)
        .cron("0/5 * * * * ?")
        .item_parameters("0=Beijing,1=Shanghai,2=Guangzhou")
        .simple(|context| async move {
            show(&format!("item {} works for {}", context.item(), context.parameter().unwrap_or_default()));
            Ok(())
        })
        .start(&registry)
        .await?;
    until.await;
    job.stop().await; // waits for what runs, up to 30 seconds
    registry.close().await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn show(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "zookeeper://127.0.0.1:2181/demo".to_owned());
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    Ok(run(&address, ended).await?)
}

#[tokio::test]
async fn it_stops_when_it_is_asked_to() {
    assert_eq!(run("memory:", async {}).await, Ok(()));
}
