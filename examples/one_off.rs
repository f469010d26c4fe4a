//! A job without a schedule, triggered several times.
//!
//! `cargo run --example one_off`

use elasticjob::OneOffJob;
use tokio::sync::mpsc;

async fn run() -> Result<Vec<u32>, elasticjob::Error> {
    let registry = elasticjob::registry::connect("memory:").await?;
    let (done, mut runs) = mpsc::unbounded_channel();
    let job = OneOffJob::new("import", 2)
        .simple(move |context| {
            let done = done.clone();
            async move { Ok(done.send(context.item())?) }
        })
        .start(&registry)
        .await?;
    let mut items = Vec::new();
    for _ in 0..3 {
        job.trigger().await?;
        for _ in 0..2 {
            items.extend(runs.recv().await);
        }
    }
    job.stop().await;
    items.sort_unstable();
    Ok(items)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), elasticjob::Error> {
    println!("ran the items {:?}", run().await?);
    Ok(())
}

#[tokio::test]
async fn it_runs() {
    assert_eq!(run().await, Ok(vec![0, 0, 0, 1, 1, 1]));
}
