//! A job of three items every second, on a registry in memory. Stops after a few runs.
//!
//! `cargo run --example hello`

use elasticjob::ScheduleJob;

async fn run() -> Result<u32, elasticjob::Error> {
    let registry = elasticjob::registry::connect("memory:").await?;
    let (done, mut runs) = tokio::sync::mpsc::channel(10);
    let job = ScheduleJob::new("hello", 3)
        .cron("* * * * * ?")
        .item_parameters("0=Beijing,1=Shanghai,2=Guangzhou")
        .simple(move |context| {
            let done = done.clone();
            async move { Ok(done.send((context.item(), context.parameter().unwrap_or_default().to_owned())).await?) }
        })
        .start(&registry)
        .await?;
    let mut count = 0;
    while let (0..6, Some((item, place))) = (count, runs.recv().await) {
        show(&format!("item {item} works for {place}"));
        count += 1;
    }
    job.stop().await;
    Ok(count)
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn show(line: &str) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> Result<(), elasticjob::Error> {
    run().await.map(drop)
}

#[tokio::test]
async fn it_runs() {
    assert_eq!(run().await, Ok(6));
}
