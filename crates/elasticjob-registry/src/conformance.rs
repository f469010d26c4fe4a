//! The contract of [`Registry`] as code. A backend passes when [`run`] returns; it panics with what was broken.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use elasticjob_registry::{conformance, memory::Memory};
//! let memory = Memory::new();
//! conformance::run(&|| Box::new(memory.connect())).await;
//! # });
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::{Event, EventKind, Op, Reason, Refusal};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{Error, Link, Outcome, Registry, Sink, Target};

/// Makes a new connection, with a session of its own, to the same tree each time.
pub type Connect<'a> = dyn Fn() -> Box<dyn Registry> + 'a;

/// How long something may take that should be a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the whole suite. Each part works below a node of its own.
pub async fn run(connect: &Connect<'_>) {
    transactions(connect).await;
    versions(connect).await;
    reads_follow_commits(connect).await;
    ephemeral_nodes(connect).await;
    sequences(connect).await;
    watches(connect).await;
    ensured_parents(connect).await;
    sessions(connect).await;
    races(connect).await;
    large_requests(connect).await;
}

/// The session of a connection, once its link is up.
///
/// # Panics
///
/// When the link does not come up.
pub async fn session(registry: &dyn Registry) -> u64 {
    let mut link = registry.link();
    let up = tokio::time::timeout(PATIENCE, link.wait_for(|link| matches!(link, Link::Up { .. }))).await;
    match &*up.unwrap_or_else(|_| panic!("{} does not come up", registry.describe())).expect("the link is alive") {
        Link::Up { session, .. } => *session,
        Link::Down { .. } | Link::Closed => unreachable!("waited for up"),
    }
}

async fn committed(registry: &dyn Registry, session: u64, ops: Vec<Op>) -> i64 {
    match registry.commit(session, &ops).await {
        Outcome::Committed { zxid } => zxid,
        other => panic!("{ops:?} must be carried out, but: {other:?}"),
    }
}

async fn refused(registry: &dyn Registry, session: u64, ops: Vec<Op>, op: usize, reason: Reason) {
    let outcome = registry.commit(session, &ops).await;
    assert_eq!(outcome, Outcome::Refused(Refusal { op, reason }), "{ops:?}");
}

async fn text(registry: &dyn Registry, path: &str) -> Option<String> {
    let answers = registry.read(vec![Query::Node(path.to_owned())]).await.expect("reads");
    answers[0].node().map(|n| n.text())
}

async fn transactions(connect: &Connect<'_>) {
    let registry = connect();
    let session = session(&*registry).await;
    committed(&*registry, session, vec![Op::create("/tx", ""), Op::create("/tx/b", "")]).await;
    let first = committed(&*registry, session, vec![Op::set("/tx", "a")]).await;
    refused(
        &*registry,
        session,
        vec![Op::set("/tx", "changed"), Op::Ensure("/tx/b".into()), Op::delete("/tx/b"), Op::exists("/tx/missing")],
        3,
        Reason::Missing,
    )
    .await;
    assert_eq!(text(&*registry, "/tx").await.as_deref(), Some("a"), "a refused transaction leaves no trace");
    assert_eq!(text(&*registry, "/tx/b").await.as_deref(), Some(""), "empty data is an empty text");
    refused(&*registry, session, vec![Op::create("/tx/b", "")], 0, Reason::Exists).await;
    refused(&*registry, session, vec![Op::create("/tx/c/d", "")], 0, Reason::Missing).await;
    refused(&*registry, session, vec![Op::delete("/tx")], 0, Reason::NotEmpty).await;
    let ops = vec![Op::create("/tx/p", ""), Op::delete("/tx/p"), Op::set("/tx", "b")];
    let second = committed(&*registry, session, ops).await;
    assert!(second > first, "numbers of transactions rise: {first}, {second}");
    let answers = registry.read(vec![Query::Node("/tx".into()), Query::Node("/tx/p".into())]).await.expect("reads");
    let node = answers[0].node().expect("is there");
    assert_eq!((node.mzxid, node.version, node.owner), (second, 2, 0));
    assert!(node.czxid < first, "it was created by an earlier one: {node:?}");
    assert_eq!(answers[1], Answer::Node(None));
}

async fn versions(connect: &Connect<'_>) {
    let registry = connect();
    let session = session(&*registry).await;
    committed(&*registry, session, vec![Op::create("/ver", "0")]).await;
    let set = |version| Op::Set { path: "/ver".into(), data: b"x".to_vec(), version: Some(version) };
    committed(&*registry, session, vec![set(0), set(1), Op::check("/ver", 2)]).await;
    refused(&*registry, session, vec![set(0)], 0, Reason::Version).await;
    refused(&*registry, session, vec![Op::check("/ver", 1)], 0, Reason::Version).await;
    refused(&*registry, session, vec![Op::Delete { path: "/ver".into(), version: Some(1) }], 0, Reason::Version).await;
    committed(&*registry, session, vec![Op::Delete { path: "/ver".into(), version: Some(2) }]).await;
    refused(&*registry, session, vec![Op::set("/ver", "")], 0, Reason::Missing).await;
    refused(&*registry, session, vec![Op::delete("/ver")], 0, Reason::Missing).await;
}

async fn reads_follow_commits(connect: &Connect<'_>) {
    let registry = connect();
    let session = session(&*registry).await;
    committed(&*registry, session, vec![Op::create("/rfc", "0")]).await;
    for round in 1..=50 {
        let expected = round.to_string();
        let ops = [Op::set("/rfc", expected.as_str())];
        let commit = registry.commit(session, &ops);
        let read = registry.read(vec![Query::Node("/rfc".into())]);
        let (outcome, answers) = tokio::join!(commit, read);
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        assert_eq!(answers.expect("reads")[0].node().map(|n| n.text()), Some(expected));
    }
    let names: Vec<Op> = ["b", "a", "c"].iter().map(|n| Op::create(format!("/rfc/{n}"), "")).collect();
    committed(&*registry, session, names).await;
    let answers =
        registry.read(vec![Query::Children("/rfc".into()), Query::Children("/none".into())]).await.expect("reads");
    assert_eq!(answers[0].children(), ["a", "b", "c"], "names in text order");
    assert_eq!(answers[1], Answer::Children(None));
}

async fn ephemeral_nodes(connect: &Connect<'_>) {
    let (one, two) = (connect(), connect());
    let (first, second) = (session(&*one).await, session(&*two).await);
    assert_ne!(first, second, "each connection has a session of its own");
    committed(&*one, first, vec![Op::create("/eph", ""), Op::ephemeral("/eph/e", "mine")]).await;
    // Another connection may see it a moment later: only a connection's own commits are visible immediately.
    wait_until(&*two, "/eph/e", Some("mine")).await;
    let answers = two.read(vec![Query::Node("/eph/e".into())]).await.expect("reads");
    assert_eq!(answers[0].node().map(|n| n.owner), Some(first));
    refused(&*two, second, vec![Op::create("/eph/e/below", "")], 0, Reason::Forbidden).await;
    one.close().await;
    wait_until(&*two, "/eph/e", None).await;
    assert_eq!(text(&*two, "/eph").await.as_deref(), Some(""), "persistent nodes stay");
}

/// Waits until a node has that text, or is gone.
async fn wait_until(registry: &dyn Registry, path: &str, wanted: Option<&str>) {
    let (sender, mut events) = mpsc::unbounded_channel();
    let sink: Sink = Arc::new(move |event| drop(sender.send(event)));
    let _watch = registry.watch(Target::Node(path.to_owned()), sink).await.expect("watches");
    let waiting = async {
        while text(registry, path).await.as_deref() != wanted {
            events.recv().await.expect("the watch lives");
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{path} does not become {wanted:?}"));
}

async fn sequences(connect: &Connect<'_>) {
    let registry = connect();
    let session = session(&*registry).await;
    committed(&*registry, session, vec![Op::create("/seq", "")]).await;
    let parents = vec!["/seq/a".to_owned(), "/seq/a/latch".to_owned()];
    let mut names = Vec::new();
    for _ in 0..3 {
        let prefix = "/seq/a/latch/x-latch-".to_owned();
        names.push(registry.create_sequential(session, parents.clone(), prefix).await.expect("creates"));
    }
    let sorted = {
        let mut s = names.clone();
        s.sort();
        s
    };
    assert_eq!(names, sorted, "they rise");
    assert!(names[0].len() == "/seq/a/latch/x-latch-".len() + 10, "ten digits: {names:?}");
    let error = registry.create_sequential(session, vec!["/none/a".into()], "/none/a/x-".into()).await;
    assert!(matches!(error, Err(Error::Missing { .. })), "no root is made: {error:?}");
}

type Seen = Arc<Mutex<Vec<Event>>>;

fn collector() -> (Seen, Sink, Arc<tokio::sync::Notify>) {
    let (seen, notify) = (Seen::default(), Arc::new(tokio::sync::Notify::new()));
    let (events, wake) = (Arc::clone(&seen), Arc::clone(&notify));
    let sink: Sink = Arc::new(move |event| {
        events.lock().push(event);
        wake.notify_one();
    });
    (seen, sink, notify)
}

async fn watches(connect: &Connect<'_>) {
    let (one, two) = (connect(), connect());
    let session = session(&*one).await;
    self::session(&*two).await;
    committed(&*one, session, vec![Op::create("/w", ""), Op::create("/w/n", ""), Op::create("/w/s", "")]).await;
    wait_until(&*two, "/w/s", Some("")).await;
    let (seen, sink, notify) = collector();
    let node = two.watch(Target::Node("/w/n".into()), Arc::clone(&sink)).await.expect("watches");
    let tree = two.watch(Target::Subtree("/w/s".into()), Arc::clone(&sink)).await.expect("watches");
    let missing = two.watch(Target::Node("/w/later".into()), sink).await.expect("watches what is not there yet");
    committed(&*one, session, vec![Op::set("/w/n", "1"), Op::create("/w/n/c", ""), Op::create("/w/later", "")]).await;
    committed(&*one, session, vec![Op::create("/w/s/a", ""), Op::create("/w/s/a/b", ""), Op::set("/w/s/a/b", "1")])
        .await;
    committed(&*one, session, vec![Op::delete("/w/s/a/b"), Op::create("/w/other", "")]).await;
    let expected: BTreeMap<&str, Vec<EventKind>> = BTreeMap::from([
        ("/w/later", vec![EventKind::Created]),
        ("/w/n", vec![EventKind::Changed, EventKind::Children]),
        ("/w/s/a", vec![EventKind::Created]),
        ("/w/s/a/b", vec![EventKind::Created, EventKind::Changed, EventKind::Deleted]),
    ]);
    let count: usize = expected.values().map(Vec::len).sum();
    let waiting = async {
        while seen.lock().len() < count {
            notify.notified().await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, waiting).await;
    let mut found: BTreeMap<String, Vec<EventKind>> = BTreeMap::new();
    for event in seen.lock().iter() {
        found.entry(event.path.clone()).or_default().push(event.kind);
    }
    let expected: BTreeMap<String, Vec<EventKind>> = expected.into_iter().map(|(p, k)| (p.to_owned(), k)).collect();
    assert_eq!(found, expected, "each change once, in order for each node");
    drop((node, tree, missing));
    // The whole tree, from its root.
    let (everything, sink, notify) = collector();
    let root = two.watch(Target::Subtree("/".into()), sink).await.expect("watches");
    committed(&*one, session, vec![Op::create("/w/s/a/deep", ""), Op::set("/w", "1"), Op::delete("/w/s/a/deep")]).await;
    let waiting = async {
        while everything.lock().len() < 3 {
            notify.notified().await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, waiting).await;
    let found: Vec<(String, EventKind)> = everything.lock().iter().map(|e| (e.path.clone(), e.kind)).collect();
    let expected =
        [("/w/s/a/deep", EventKind::Created), ("/w", EventKind::Changed), ("/w/s/a/deep", EventKind::Deleted)];
    assert_eq!(found, expected.map(|(path, kind)| (path.to_owned(), kind)), "of the whole tree");
    drop(root);
    seen.lock().clear();
    committed(&*one, session, vec![Op::set("/w/n", "2"), Op::set("/w/s", "2")]).await;
    // An event before the next answer of the same connection would have been delivered by now.
    wait_until(&*two, "/w/n", Some("2")).await;
    assert_eq!(seen.lock().len(), 0, "a dropped watch tells nothing");
}

async fn ensured_parents(connect: &Connect<'_>) {
    let registry = connect();
    let session = session(&*registry).await;
    committed(&*registry, session, vec![Op::create("/ens", "root")]).await;
    let ops = || vec![Op::Ensure("/ens".into()), Op::Ensure("/ens/a".into()), Op::Ensure("/ens/a/b".into())];
    committed(&*registry, session, [ops(), vec![Op::create("/ens/a/b/c", "x")]].concat()).await;
    refused(&*registry, session, [ops(), vec![Op::create("/ens/a/b/c", "y")]].concat(), 3, Reason::Exists).await;
    assert_eq!(text(&*registry, "/ens").await.as_deref(), Some("root"), "what stands there stays");
    refused(&*registry, session, vec![Op::Ensure("/none/a".into())], 0, Reason::Missing).await;
}

async fn sessions(connect: &Connect<'_>) {
    let (one, two) = (connect(), connect());
    let first = session(&*one).await;
    let second = session(&*two).await;
    one.close().await;
    assert_eq!(*one.link().borrow(), Link::Closed);
    let outcome = one.commit(first, &[Op::create("/sess", "")]).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "a closed session carries nothing out: {outcome:?}");
    assert_eq!(text(&*two, "/sess").await, None);
    committed(&*two, second, vec![Op::create("/sess", "")]).await;
}

/// Of many that try, one wins.
async fn races(connect: &Connect<'_>) {
    let connections: Vec<Box<dyn Registry>> = (0..4).map(|_| connect()).collect();
    let first = session(&*connections[0]).await;
    committed(&*connections[0], first, vec![Op::create("/race", "0")]).await;
    let mut won = 0;
    for round in 0..20 {
        let attempts = connections.iter().map(|registry| async move {
            let session = session(&**registry).await;
            let set = Op::Set { path: "/race".into(), data: b"x".to_vec(), version: Some(round) };
            registry.commit(session, &[set]).await
        });
        for outcome in futures_util::future::join_all(attempts).await {
            match outcome {
                Outcome::Committed { .. } => won += 1,
                Outcome::Refused(Refusal { op: 0, reason: Reason::Version }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(won, round + 1, "exactly one of four wins each round");
    }
}

async fn large_requests(connect: &Connect<'_>) {
    let registry = connect();
    let session = session(&*registry).await;
    committed(&*registry, session, vec![Op::create("/large", "")]).await;
    let ops: Vec<Op> = (0..2_000).map(|n| Op::create(format!("/large/{n}"), vec![b'x'; 100])).collect();
    committed(&*registry, session, ops).await;
    let queries: Vec<Query> = (0..2_000).map(|n| Query::Node(format!("/large/{n}"))).collect();
    let answers = registry.read(queries).await.expect("reads");
    assert!(answers.iter().all(|a| a.node().is_some_and(|n| n.data.len() == 100)));
    let blob = vec![b'y'; 500_000];
    committed(&*registry, session, vec![Op::create("/large/blob", blob)]).await;
    let answers = registry.read(vec![Query::Node("/large/blob".into())]).await.expect("reads");
    assert_eq!(answers[0].node().map(|n| n.data.len()), Some(500_000));
}
