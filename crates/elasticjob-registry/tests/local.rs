//! The registries that need no server: memory, one file, and that file through its socket.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use elasticjob_registry::memory::Memory;
use elasticjob_registry::{Error, Link, Outcome, Registry, conformance, embedded};

#[tokio::test]
async fn memory_keeps_the_contract() {
    let memory = Memory::new();
    conformance::run(&|| Box::new(memory.connect())).await;
}

/// Connections to one file in one test: the holder's, and clients through the socket.
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
    read(queries: Vec<Query>) -> futures_util::future::BoxFuture<'_, Result<Vec<elasticjob_core::query::Answer>, Error>>;
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
        let client = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(visit));
        Box::new(Shared(client))
    };
    conformance::run(&connect).await;
    let session = conformance::session(&holder).await;
    let answers = holder.read(vec![Query::Node("/tx".into())]).await.expect("reads");
    assert_eq!(answers[0].node().map(|n| n.text()).as_deref(), Some("b"), "the holder sees what clients wrote");
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
        let client = embedded::attach(&path).await.expect("attaches");
        let session = conformance::session(&registry).await;
        registry.commit(session, &[Op::Ensure("/a".into())]).await;
        registry.close().await;
        assert!(!embedded::socket_path(&path).exists(), "the socket goes with its holder");
        let mut link = client.link();
        link.wait_for(|link| matches!(link, Link::Down { .. })).await.expect("a link");
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
    let free = async {
        loop {
            match embedded::open(path) {
                Err(Error::InUse { .. }) => {
                    let pause = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>());
                    pause.await.expect_err("a pause");
                }
                other => return other.expect("opens"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), free).await.expect("the file is given free")
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
    assert!(error.contains("none.db does not exist"), "{error}");
}

#[tokio::test]
async fn an_empty_file_is_not_taken_for_a_registry() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("registry.db");
    std::fs::write(&path, "").expect("writes");
    for error in [embedded::open(&path).map(drop), embedded::check(&path).await.map(drop)] {
        let error = error.expect_err("refused").to_string();
        assert!(error.contains("the file is empty, so it is not a registry file; delete it"), "{error}");
    }
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 0);
}

#[tokio::test]
async fn a_new_registry_appears_whole_private_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("registry.db");
    let registry = embedded::open(&path).expect("opens");
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    registry.close().await;
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["registry.db"]);
}

/// Commits a write of `/a` and returns its number.
async fn token(registry: &dyn Registry) -> i64 {
    let session = conformance::session(registry).await;
    let outcome =
        registry.commit(session, &[Op::Ensure("/a".into()), Op::Ensure("/a/b".into()), Op::set("/a", "x")]).await;
    let Outcome::Committed { zxid } = outcome else { panic!("{outcome:?}") };
    zxid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_taken_while_jobs_run_and_a_restore_keeps_tokens_rising() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (folder.path().join("registry.db"), folder.path().join("copy.db"));
    let holder = embedded::open(&path).expect("opens");
    token(&holder).await;
    assert!(embedded::check(&path).await.expect("sound").contains("no damage"));
    assert!(embedded::backup(&path, &copy).await.expect("a backup").starts_with("wrote 2 nodes"));
    let error = embedded::backup(&path, &copy).await.expect_err("it exists").to_string();
    assert!(error.contains("copy.db: it exists already; choose the name of a new file"), "{error}");
    let error = embedded::restore(&path, &copy).expect_err("a process holds it");
    assert_eq!(error, Error::InUse { path: path.clone() });
    let session = conformance::session(&holder).await;
    holder.commit(session, &[Op::create("/b", "")]).await;
    let mut last = token(&holder).await;
    holder.close().await;
    // Closed, damaged, and missing.
    for round in 1..=3 {
        let said = embedded::restore(&path, &copy).expect("restores");
        assert!(said.starts_with("restored 2 nodes"), "{said}");
        assert_eq!(said.contains(&format!("before-restore-{round}")), round < 3, "{said}");
        let registry = embedded::open(&path).expect("opens");
        let answers = registry.read(vec![Query::Node("/a".into()), Query::Node("/b".into())]).await.expect("reads");
        assert!(answers[0].node().is_some() && answers[1].node().is_none(), "the state of the backup");
        let next = token(&registry).await;
        assert!(next > last, "{next} after {last}");
        last = if round == 1 { next } else { last };
        registry.close().await;
        match round {
            1 => std::fs::write(&path, "damaged").expect("writes"),
            _ => std::fs::remove_file(&path).expect("deletes"),
        }
    }
    // An empty registry where the old file is gone.
    let registry = embedded::open(&path).expect("opens");
    let next = token(&registry).await;
    assert!(next > last, "{next} after {last}");
    registry.close().await;
    std::fs::remove_file(&path).expect("deletes");
    let error = embedded::restore(&path, &folder.path().join("none")).expect_err("no backup").to_string();
    assert!(error.contains("cannot read it"), "{error}");
    std::fs::write(&copy, vec![7; 100_000]).expect("writes");
    let error = embedded::restore(&path, &copy).expect_err("no registry").to_string();
    assert!(error.contains("copy.db"), "{error}");
    assert!(!path.exists(), "nothing was changed");
}
