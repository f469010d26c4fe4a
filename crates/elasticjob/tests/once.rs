//! Distribute-once beside Java, whose instance is played by this test.

use std::sync::Arc;
use std::time::Duration;

use elasticjob::registry::memory::Memory;
use elasticjob::registry::{Connection, Link, Registry};
use elasticjob::{DistributeOnce, JobResult, ListenedRun, OnceListener, Operations, Plugins, ScheduleJob};
use elasticjob_core::tree::{EventKind, Op};
use elasticjob_registry::{Outcome, Sink, Target};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);
/// Java registers a mark and reads it immediately, and every 100 ms after that, forever.
const JAVA_LOOKS: Duration = Duration::from_millis(250);

struct Told(mpsc::UnboundedSender<&'static str>);

impl OnceListener for Told {
    fn name(&self) -> &str {
        "TOLD"
    }

    async fn all_started(&self, _run: &ListenedRun) -> JobResult {
        Ok(self.0.send("started")?)
    }

    async fn all_completed(&self, _run: &ListenedRun) -> JobResult {
        Ok(self.0.send("completed")?)
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the time between two events is what is tested")]
async fn a_mark_of_java_s_stays_until_java_has_looked_for_it() {
    let memory = Memory::new();
    let (ours, java): (Arc<dyn Registry>, Arc<dyn Registry>) = (Arc::new(memory.connect()), Arc::new(memory.connect()));
    let (told, mut tells) = mpsc::unbounded_channel();
    let limit = Duration::from_secs(5);
    let plugins = Plugins::default().listener(DistributeOnce::new(Told(told), limit, limit));
    let connection = Connection::on(ours).plugins(plugins).connect().await.expect("an address");
    // Item 1 is ours too, but rests: the mark of it is Java's.
    let job = ScheduleJob::new("shared", 2).cron("0 0 0 1 1 ?").listeners(&["TOLD"]);
    let handle = job.simple(|_| async { Ok(()) }).start(&connection).await.expect("starts");
    let operations = Operations::new(Arc::clone(&java));
    operations.disable_items("shared", &[1]).await.expect("disabled");

    let (events, mut happened) = mpsc::unbounded_channel();
    let sink: Sink = Arc::new(move |event| drop(events.send((event.path, event.kind, std::time::Instant::now()))));
    let _watch = java.watch(Target::Subtree("/shared/guarantee".into()), sink).await.expect("watches");
    operations.trigger("shared").await.expect("a trigger");
    let Link::Up { session, .. } = java.link().borrow().clone() else { panic!("there is a link") };
    for moment in ["started", "completed"] {
        let (ours, theirs) = (format!("/shared/guarantee/{moment}/0"), format!("/shared/guarantee/{moment}/1"));
        let mut created = None;
        let stayed = tokio::time::timeout(PATIENCE, async {
            loop {
                let (path, kind, at) = happened.recv().await.expect("open");
                match kind {
                    EventKind::Created if path == ours => {
                        let outcome = java.commit(session, &[Op::create(&theirs, "")]).await;
                        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
                    }
                    EventKind::Created if path == theirs => created = Some(at),
                    EventKind::Deleted if path == theirs => return at - created.expect("it was created"),
                    _ => {}
                }
            }
        });
        let stayed = stayed.await.expect("it is taken away");
        assert!(stayed >= JAVA_LOOKS, "{moment}: only {stayed:?}");
        assert_eq!(tells.recv().await, Some(moment));
    }
    handle.stop().await;
}
