//! The znodes of a running job, Java's and ours, node by node.

use std::collections::BTreeMap;
use std::time::Duration;

use elasticjob_core::query::Query;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Registry, conformance};
use elasticjob_tests::{Journal, ZooKeeper, agent, eventually, java};

use crate::job_file;

/// A node for comparison: its text, and whether it is ephemeral.
type Nodes = BTreeMap<String, (String, bool)>;

/// Every node below the job, with the instance's own texts replaced.
async fn nodes(registry: &dyn Registry) -> Nodes {
    let mut found = Nodes::new();
    let mut paths = vec!["/shared-job".to_owned()];
    while let Some(path) = paths.pop() {
        let answers =
            registry.read(vec![Query::Node(path.clone()), Query::Children(path.clone())]).await.expect("reads");
        let Some(node) = answers[0].node() else { continue };
        found.insert(path.clone(), (node.text(), node.owner != 0));
        paths.extend(answers[1].children().iter().map(|name| format!("{path}/{name}")));
    }
    let id = found.keys().find_map(|p| p.strip_prefix("/shared-job/instances/")).unwrap_or("none").to_owned();
    let ip = id.split("@-@").next().unwrap_or_default().to_owned();
    let clean = |text: &str| text.replace(&id, "<id>").replace(&ip, "<ip>");
    found.into_iter().map(|(path, (text, ephemeral))| (clean(&path), (clean(&text), ephemeral))).collect()
}

/// Removes what only Rust instances write, by COMPAT.md: the claim below each owner, the ledger in each item, and the last line of the instance.
fn without_ours(nodes: Nodes) -> Nodes {
    let (mut claims, mut ledgers, mut instances) = (0, 0, 0);
    let rest: Nodes = nodes
        .into_iter()
        .filter(|(path, _)| {
            let claim = path.contains("/instance/claim-");
            claims += usize::from(claim);
            !claim
        })
        .map(|(path, (text, ephemeral))| {
            let item = path.strip_prefix("/shared-job/sharding/").is_some_and(|p| p.parse::<u32>().is_ok());
            if item && text.starts_with("due=") && text.contains(" by=<id> session=") {
                ledgers += 1;
                return (path, (String::new(), ephemeral));
            }
            if path.starts_with("/shared-job/instances/")
                && let Some(text) = text.strip_suffix("# elasticjob in Rust\n")
            {
                instances += 1;
                return (path, (text.to_owned(), ephemeral));
            }
            (path, (text, ephemeral))
        })
        .collect();
    assert_eq!((claims, ledgers), (3, 3), "each of the three items has its claim and its ledger");
    assert_eq!(instances, 1, "the node shows that its instance is in Rust");
    rest
}

async fn running(zookeeper: &ZooKeeper, namespace: &str) -> Nodes {
    let settings = Settings::new(&zookeeper.address(), namespace);
    let registry = Zookeeper::connect(settings).expect("right settings");
    conformance::session(&registry).await;
    for _ in 0..2_000 {
        let found = nodes(&registry).await;
        let marks = found.keys().filter(|p| p.ends_with("/running")).count();
        let quiet =
            !found.keys().any(|p| p.contains("-latch-") || p.ends_with("necessary") || p.ends_with("processing"));
        if marks == 3 && quiet {
            return found;
        }
        tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.expect_err("never");
    }
    panic!("the three items were not seen running in {namespace}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_of_a_running_job_equal_java_s() {
    let folder = tempfile::tempdir().expect("a folder");
    let zookeeper = ZooKeeper::start();
    for failover in [false, true] {
        let more = format!(
            "      cron: 0/4 * * * * ?\n      shardingItemParameters: 0=Beijing,1=Shanghai,2=Guangzhou\n      \
             jobParameter: p\n      description: 'the job: of both'\n      monitorExecution: true\n      failover: {failover}\n"
        );
        let mut found = Vec::new();
        for side in ["java", "rust"] {
            let place = folder.path().join(format!("{side}-{failover}"));
            std::fs::create_dir(&place).expect("a folder");
            // Both run the same command, so that their configurations are the same text.
            let journal = Journal::new(folder.path());
            let file = job_file(&place, "job", &zookeeper.address(), &journal, 3, "2.5", &more);
            let namespace = format!("{side}-{failover}");
            let text = std::fs::read_to_string(&file)
                .expect("reads")
                .replace("namespace: tests", &format!("namespace: {namespace}"));
            std::fs::write(&file, text).expect("writes");
            let log = place.join("log");
            let process = match side {
                "java" => java(&["agent", file.to_str().expect("UTF-8")], &log),
                _ => agent(&file, &log),
            };
            eventually("the first run", Duration::from_secs(40), || (!journal.runs().is_empty()).then_some(()));
            found.push(running(&zookeeper, &namespace).await);
            drop(process);
        }
        let rust = without_ours(found.pop().expect("two"));
        let java = found.pop().expect("two");
        assert!(java.len() >= 17, "{java:#?}");
        // `leader/election/latch` is a container that the server deletes when it has been empty for a while.
        let settled = |nodes: &Nodes| -> Nodes {
            nodes.iter().filter(|(p, _)| !p.ends_with("/latch")).map(|(p, n)| (p.clone(), n.clone())).collect()
        };
        assert_eq!(settled(&rust), settled(&java));
    }
}
