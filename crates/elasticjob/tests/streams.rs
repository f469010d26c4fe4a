//! Dataflow jobs through the library: when a stream goes on, and when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use elasticjob::registry::memory::Memory;
use elasticjob::registry::{Connection, Link, Registry};
use elasticjob::{Context, DataflowJob, Error, JobError, JobResult, ScheduleJob};
use elasticjob_core::tree::Op;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);

fn connect() -> (Arc<elasticjob::registry::memory::Connection>, Connection) {
    let registry = Arc::new(Memory::new().connect());
    let connection =
        Connection::on(registry.clone()).connect().now_or_never().expect("it does not wait").expect("an address");
    (registry, connection)
}

/// What a stream did, with the due time of its run.
#[derive(Clone, Debug, PartialEq)]
enum Did {
    Fetched(String),
    Processed(String),
}

/// Has a piece at each fetch until its pieces are used up.
struct Stream {
    pieces: AtomicU32,
    pause: Duration,
    did: mpsc::UnboundedSender<Did>,
}

impl DataflowJob for Stream {
    type Data = u32;

    async fn fetch(&self, context: &Context) -> Result<Vec<u32>, JobError> {
        self.did.send(Did::Fetched(context.due().to_string()))?;
        let before = self.pieces.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some(n.saturating_sub(1)));
        Ok(before.into_iter().filter(|n| *n > 0).collect())
    }

    async fn process(&self, context: &Context, _data: Vec<u32>) -> JobResult {
        let mut cancelled = context.cancelled();
        // A piece of work; it takes its time unless the job must end.
        let _ = tokio::time::timeout(self.pause, cancelled.wait()).await;
        Ok(self.did.send(Did::Processed(context.due().to_string()))?)
    }
}

fn stream(pieces: u32, pause: Duration) -> (Stream, mpsc::UnboundedReceiver<Did>) {
    let (did, done) = mpsc::unbounded_channel();
    (Stream { pieces: AtomicU32::new(pieces), pause, did }, done)
}

async fn next(done: &mut mpsc::UnboundedReceiver<Did>) -> Did {
    tokio::time::timeout(PATIENCE, done.recv()).await.expect("in time").expect("open")
}

/// Takes the next piece: fetched, then processed, in one run.
async fn piece(done: &mut mpsc::UnboundedReceiver<Did>) -> String {
    let Did::Fetched(due) = next(done).await else { panic!("processed before it was fetched") };
    assert_eq!(next(done).await, Did::Processed(due.clone()), "fetching and processing are never parted");
    due
}

#[tokio::test]
async fn without_streaming_a_run_fetches_once() {
    let (_registry, connection) = connect();
    let (job, mut done) = stream(100, Duration::ZERO);
    let handle =
        ScheduleJob::new("once", 1).cron("* * * * * ?").dataflow(job).start(&connection).await.expect("starts");
    let (first, second) = (piece(&mut done).await, piece(&mut done).await);
    assert_ne!(first, second, "one piece a firing");
    handle.stop().await;
}

#[tokio::test]
async fn a_stream_goes_on_until_nothing_is_left() {
    let (_registry, connection) = connect();
    let (job, mut done) = stream(5, Duration::ZERO);
    let described = ScheduleJob::new("stream", 1).cron("* * * * * ?").property("streaming.process", "TRUE");
    let handle = described.dataflow(job).start(&connection).await.expect("starts");
    let due = piece(&mut done).await;
    for _ in 0..4 {
        assert_eq!(piece(&mut done).await, due);
    }
    assert_eq!(next(&mut done).await, Did::Fetched(due), "the last fetch finds nothing");
    handle.stop().await;
}

#[tokio::test]
async fn a_stream_that_never_dries_up_makes_room_for_the_next_firing() {
    let (_registry, connection) = connect();
    let (job, mut done) = stream(u32::MAX, Duration::from_millis(100));
    let described = ScheduleJob::new("endless", 1).cron("* * * * * ?").property("streaming.process", "true");
    let handle = described.dataflow(job).start(&connection).await.expect("starts");
    let mut dues = vec![piece(&mut done).await];
    while dues.len() < 4 {
        let due = piece(&mut done).await;
        if dues.last() != Some(&due) {
            dues.push(due);
        }
    }
    assert!(dues.windows(2).all(|pair| pair[0] < pair[1]), "{dues:?}");
    handle.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_item_or_its_server_is_disabled_and_at_a_resharding() {
    for (what, op, undo) in [
        ("item", Op::create("/endless/sharding/0/disabled", ""), Op::delete("/endless/sharding/0/disabled")),
        ("resharding", Op::create("/endless/leader/sharding/necessary", ""), Op::delete("/none")),
    ] {
        let (registry, connection) = connect();
        let (job, mut done) = stream(u32::MAX, Duration::from_millis(5));
        // The next firing is far: only what is done to it ends the stream.
        let described = ScheduleJob::new("endless", 1).cron("0 0 0 1 1 ?").property("streaming.process", "true");
        let handle = described.dataflow(job).start(&connection).await.expect("starts");
        handle.trigger().await.expect("a trigger");
        for _ in 0..10 {
            piece(&mut done).await;
        }
        let Link::Up { session, .. } = *registry.link().borrow() else { panic!("no link") };
        registry.commit(session, &[op]).await;
        let ended = async {
            loop {
                match tokio::time::timeout(Duration::from_secs(2), done.recv()).await {
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("{what}: the stream has not ended"));
        registry.commit(session, &[undo]).await;
        handle.trigger().await.expect("a trigger");
        piece(&mut done).await;
        handle.stop().await;
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_when_the_job_leaves() {
    let (registry, connection) = connect();
    let (job, mut done) = stream(u32::MAX, Duration::from_millis(5));
    let described = ScheduleJob::new("endless", 1).cron("0 0 0 1 1 ?").property("streaming.process", "true");
    let handle = described.dataflow(job).start(&connection).await.expect("starts");
    handle.trigger().await.expect("a trigger");
    let first = piece(&mut done).await;
    registry.expire();
    // The stream of before ends. One that is asked for now is another one, once the job has joined again; until then a trigger
    // finds nobody.
    let mut again = false;
    while !again {
        match handle.trigger().await {
            Ok(_) | Err(Error::Operation(_)) => {}
            Err(error) => panic!("{error}"),
        }
        let moment = tokio::time::Instant::now() + Duration::from_millis(300);
        while let Ok(Some(did)) = tokio::time::timeout_at(moment, done.recv()).await {
            let (Did::Fetched(due) | Did::Processed(due)) = did;
            again |= due != first;
        }
    }
    handle.stop_within(Duration::from_secs(10)).await;
    while done.try_recv().is_ok() {}
    let more = tokio::time::timeout(Duration::from_millis(300), done.recv()).await;
    assert!(matches!(more, Err(_) | Ok(None)), "nothing runs any more: {more:?}");
}

#[tokio::test]
async fn a_wrong_value_is_refused() {
    let (_registry, connection) = connect();
    let (job, _done) = stream(1, Duration::ZERO);
    let described = ScheduleJob::new("wrong", 1).cron("* * * * * ?").property("streaming.process", "yes");
    let error = described.dataflow(job).start(&connection).await.map(drop).expect_err("refused");
    let Error::Config { faults, .. } = &error else { panic!("{error}") };
    assert_eq!(faults[0].to_string(), "`props.streaming.process`: `yes` is invalid: expected true or false");
}
