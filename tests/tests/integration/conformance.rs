//! ZooKeeper, alone and as an ensemble of three, keeps the registry's contract; and what only it has.

use elasticjob_core::tree::Op;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{Ensemble, ZooKeeper};

fn settings(servers: &str, namespace: &str) -> Settings {
    Settings { session_timeout: std::time::Duration::from_secs(4), ..Settings::new(servers, namespace) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract() {
    let server = ZooKeeper::start();
    for digest in [None, Some("user:secret".to_owned())] {
        let namespace = if digest.is_some() { "guarded" } else { "open/deeper" };
        let settings = Settings { digest, ..settings(&server.address(), namespace) };
        conformance::run(&|| Box::new(Zookeeper::connect(settings.clone()).expect("right settings"))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_keeps_the_contract() {
    let ensemble = Ensemble::start();
    let settings = settings(&ensemble.addresses(), "three");
    conformance::run(&|| Box::new(Zookeeper::connect(settings.clone()).expect("right settings"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_digest_guards_is_denied_to_others() {
    let server = ZooKeeper::start();
    let guarded = Settings { digest: Some("user:secret".into()), ..settings(&server.address(), "guarded") };
    let owner = Zookeeper::connect(guarded.clone()).expect("right settings");
    let session = conformance::session(&owner).await;
    let outcome = owner.commit(session, &[Op::create("/a", "x")]).await;
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    let stranger = Zookeeper::connect(settings(&server.address(), "guarded")).expect("right settings");
    conformance::session(&stranger).await;
    let query = vec![elasticjob_core::query::Query::Node("/a".into())];
    let error = stranger.read(query.clone()).await.expect_err("denied");
    assert!(error.to_string().starts_with("access to `/a` in the namespace is denied: set the digest"), "{error}");
    let friend = Zookeeper::connect(guarded).expect("right settings");
    conformance::session(&friend).await;
    assert_eq!(friend.read(query).await.expect("reads")[0].node().map(|n| n.text()).as_deref(), Some("x"));
}
