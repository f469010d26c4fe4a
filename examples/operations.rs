//! What an operator does, by a program: trigger a job and wait for its end, disable it, ask why it does not run.
//!
//! `cargo run --example operations`

use elasticjob::{ScheduleJob, Scope};

async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let connection = elasticjob::registry::connect("memory:").await?;
    let code =
        |context: elasticjob::Context| async move { if context.item() == 1 { Err("no paper".into()) } else { Ok(()) } };
    let job = ScheduleJob::new("print", 2).cron("0 0 3 * * ?").simple(code).start(&connection).await?;

    let operations = connection.operations();
    let (_, results) = operations.trigger_and_wait("print").await?;
    let mut lines: Vec<String> =
        results.iter().map(|result| format!("item {}: {}", result.item, result.outcome)).collect();

    operations.disable(Scope::Job("print")).await?;
    let explained = operations.explain("print").await?;
    lines.extend(explained.causes().map(|cause| format!("{}: {}", cause.name.word(), cause.evidence)));
    job.stop().await;
    Ok(lines)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}

#[tokio::test]
async fn it_runs() {
    let lines = run().await.expect("runs");
    assert_eq!(lines[..2], ["item 0: ok", "item 1: failed"]);
    assert!(lines[2].starts_with("job: `disabled: true` in the stored configuration"), "{lines:?}");
}
