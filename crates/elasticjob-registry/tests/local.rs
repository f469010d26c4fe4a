//! The registries that need no server: memory, one file, and that file through its socket.

use std::os::unix::fs::PermissionsExt;

use elasticjob_core::tree::Op;
use elasticjob_core::view::Query;
use elasticjob_registry::memory::Memory;
use elasticjob_registry::{Error, Link, Outcome, Registry, conformance, embedded};

#[tokio::test]
async fn memory_keeps_the_contract() {
    let memory = Memory::new();
    conformance::run(&|| Box::new(memory.connect())).await;
}

/// Connections to one file in one test: the holder's, and visitors through the socket.
#[derive(Debug)]
struct Shared(std::sync::Arc<dyn Registry>);

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl Registry for Shared {
            $(fn $name(&self, $($arg: $type),*) -> $out { self.0.$name($($arg),*) })*

            fn commit<'a>(&'a self, session: u64, ops: &'a [Op]) -> futures_util::future::BoxFuture<'a, Outcome> {
                self.0.commit(session, ops)
            }
        }
    };
}

forward! {
    read(queries: Vec<Query>) -> futures_util::future::BoxFuture<'_, Result<Vec<elasticjob_core::view::Answer>, Error>>;
    create_sequential(session: u64, parents: Vec<String>, prefix: String) -> futures_util::future::BoxFuture<'_, Result<String, Error>>;
    watch(target: elasticjob_registry::Target, sink: elasticjob_registry::Sink) -> futures_util::future::BoxFuture<'_, Result<elasticjob_registry::Watch, Error>>;
    link() -> tokio::sync::watch::Receiver<elasticjob_registry::Link>;
    close() -> futures_util::future::BoxFuture<'_, ()>;
    describe() -> String;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_keeps_the_contract_for_its_holder_and_its_visitors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("registry.db");
    let holder = embedded::open(&path).expect("opens");
    let connect = || -> Box<dyn Registry> {
        let path = path.clone();
        let visit = async move { embedded::attach(&path).await.expect("attaches") };
        let visitor = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(visit));
        Box::new(Shared(visitor))
    };
    conformance::run(&connect).await;
    let session = conformance::session(&holder).await;
    let answers = holder.read(vec![Query::Node("/tx".into())]).await.expect("reads");
    assert_eq!(answers[0].node().map(|n| n.text()).as_deref(), Some("b"), "the holder sees what visitors wrote");
    assert!(matches!(holder.commit(session, &[Op::set("/tx", "c")]).await, Outcome::Committed { .. }));
}

#[tokio::test]
async fn a_file_has_one_holder_and_its_socket_is_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("registry.db");
    let holder = embedded::open(&path).expect("opens");
    let error = embedded::open(&path).expect_err("a second holder is refused");
    assert_eq!(error, Error::InUse { path: path.clone() });
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    let mode = std::fs::metadata(embedded::socket_path(&path)).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(holder);
    assert!(!embedded::socket_path(&path).exists(), "the socket goes with its holder");
}

#[tokio::test]
async fn what_was_committed_is_there_after_a_restart_but_for_ephemeral_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/registry.db");
    let mut last = 0;
    for life in 0..3 {
        let registry = open_again(&path).await;
        let session = conformance::session(&registry).await;
        assert!(session > last, "session ids of different lives differ");
        last = session;
        let answers = registry.read(vec![Query::Node("/a".into()), Query::Node("/e".into())]).await.expect("reads");
        assert_eq!(answers[0].node().map(|n| n.version), (life > 0).then_some(life - 1));
        assert_eq!(answers[1].node(), None, "no ephemeral node survives");
        let op = if life == 0 { Op::create("/a", "x") } else { Op::set("/a", "x") };
        let outcome = registry.commit(session, &[op, Op::ephemeral("/e", "")]).await;
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_registry_gives_its_file_free_and_cuts_off_its_visitors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("registry.db");
    for round in 0..50 {
        let registry = embedded::open(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let visitor = embedded::attach(&path).await.expect("attaches");
        let session = conformance::session(&registry).await;
        registry.commit(session, &[Op::Ensure("/a".into())]).await;
        registry.close().await;
        assert!(!embedded::socket_path(&path).exists(), "the socket goes with its holder");
        let mut link = visitor.link();
        link.wait_for(|link| matches!(link, Link::Down(_))).await.expect("a link");
        assert!(matches!(registry.commit(session, &[Op::Ensure("/b".into())]).await, Outcome::Failed(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_the_holder_leaves_gets_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("registry.db");
    for round in 0..50 {
        let holder = embedded::open(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
        drop(holder); // its thread closes the file a moment later
        let next = embedded::attach(&path).await.unwrap_or_else(|e| panic!("round {round}: {e}"));
        next.close().await;
    }
}

/// The file is free a moment after its holder was dropped: its writing thread closes it.
async fn open_again(path: &std::path::Path) -> embedded::Connection {
    for _ in 0..1_000 {
        match embedded::open(path) {
            Err(Error::InUse { .. }) => tokio::task::yield_now().await,
            other => return other.expect("opens"),
        }
        std::thread::yield_now();
    }
    panic!("the file is not given free");
}

#[tokio::test]
async fn a_file_that_is_no_registry_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "my notes\n").expect("writes");
    let error = embedded::open(&path).expect_err("refused").to_string();
    assert!(error.contains("not a registry file"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("reads"), "my notes\n");
    let error = embedded::attach(&folder.path().join("none.db")).await.expect_err("refused").to_string();
    assert!(error.contains("there is no such file"), "{error}");
}
