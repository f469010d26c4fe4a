//! The operations beside Java's `elasticjob-lite-lifecycle` 3.0.4: the same effects on znodes, the same statistics, the same
//! dumps.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::instance_yaml;
use elasticjob_registry::zookeeper::{Settings, Zookeeper};
use elasticjob_registry::{Outcome, Registry, conformance};
use elasticjob_tests::{
    Journal, Process, ZooKeeper, agent, command, eventually, free_port, java, java_output, pause, wall_clock_millis,
};
use regex::Regex;
use serde_json::Value;

use crate::{SESSION_MILLIS, job_file};

const PATIENCE: Duration = Duration::from_secs(60);

/// Every node with its text.
type Nodes = BTreeMap<String, String>;

async fn connect(zookeeper: &ZooKeeper, namespace: &str) -> (Zookeeper, u64) {
    let registry = Zookeeper::connect(Settings::new(&zookeeper.address(), namespace)).expect("right settings");
    let session = conformance::session(&registry).await;
    (registry, session)
}

async fn nodes(registry: &dyn Registry) -> Nodes {
    let mut found = Nodes::new();
    let mut paths = vec!["/".to_owned()];
    while let Some(path) = paths.pop() {
        let queries = vec![Query::Node(path.clone()), Query::Children(path.clone())];
        let answers = registry.read(queries).await.expect("reads");
        let Some(node) = answers[0].node() else { continue };
        found.insert(path.clone(), node.text());
        let above = path.trim_end_matches('/');
        paths.extend(answers[1].children().iter().map(|name| format!("{above}/{name}")));
    }
    found
}

fn config(job: &str, items: u32) -> String {
    format!(
        "cron: 0/5 * * * * ?\ndescription: of {job}\ndisabled: false\nfailover: true\njobName: {job}\njobParameter: ''\n\
         maxTimeDiffSeconds: -1\nmisfire: true\nmonitorExecution: true\noverwrite: false\nprops:\n  \
         script.command.line: echo hi\nreconcileIntervalMinutes: 10\nshardingItemParameters: ''\n\
         shardingTotalCount: {items}\nstaticSharding: false\n"
    )
}

/// Jobs as instances leave them, in which nobody lives: whole, without instance, disabled, not yet divided, and a node that
/// is no job.
fn world() -> Vec<Op> {
    let mut ops = Vec::new();
    let mut put = |path: &str, text: &str| ops.push(Op::create(path, text));
    let instance = |id: &str| instance_yaml(id, id.split('@').next().unwrap_or_default());
    for (job, items, servers, instances) in [
        ("whole", 3, "10.0.0.1=ENABLED 10.0.0.10=ENABLED 10.0.0.2=DISABLED", "10.0.0.1@-@7 10.0.0.10@-@9"),
        ("crashed", 1, "10.0.0.1=ENABLED", ""),
        ("resting", 1, "10.0.0.2=DISABLED", "10.0.0.2@-@3"),
        ("fresh", 2, "10.0.0.1=ENABLED", "10.0.0.1@-@7"),
        // Its only live server is disabled, an enabled one is gone: Java's word for it decides.
        ("halfgone", 1, "10.0.0.1=ENABLED 10.0.0.2=DISABLED", "10.0.0.2@-@3"),
    ] {
        let root = format!("/{job}");
        put(&root, "SCRIPT");
        put(&format!("{root}/config"), &config(job, items));
        for parent in ["servers", "instances", "leader", "leader/election", "leader/sharding", "sharding"] {
            put(&format!("{root}/{parent}"), "");
        }
        for (ip, state) in servers.split_whitespace().filter_map(|s| s.split_once('=')) {
            put(&format!("{root}/servers/{ip}"), state);
        }
        for id in instances.split_whitespace() {
            put(&format!("{root}/instances/{id}"), &instance(id));
        }
    }
    for (item, owner, marks) in
        [(0, "10.0.0.1@-@7", "failover"), (1, "10.0.0.10@-@9", "running"), (2, "10.0.0.1@-@7", "disabled")]
    {
        put(&format!("/whole/sharding/{item}"), "");
        put(&format!("/whole/sharding/{item}/instance"), owner);
        put(&format!("/whole/sharding/{item}/{marks}"), owner);
    }
    put("/halfgone/sharding/0", "");
    put("/halfgone/sharding/0/instance", "10.0.0.1@-@7");
    put("/no-job", "");
    ops
}

/// Runs a command of ours on a namespace; gives what it printed.
fn ours(zookeeper: &ZooKeeper, namespace: &str, folder: &Path, arguments: &[&str]) -> String {
    let mut command = command();
    command.arg("--registry").arg(format!("zookeeper://{}/{namespace}", zookeeper.address()));
    let output = command.args(arguments).current_dir(folder).output().expect("the binary runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The results of Java's operations, one for each line `NAMESPACE OPERATION JOB VALUE`.
fn javas(zookeeper: &ZooKeeper, folder: &Path, lines: &[String]) -> Vec<Value> {
    let file = folder.join("operations");
    std::fs::write(&file, lines.join("\n")).expect("a file");
    let printed = java_output(&["operations", &zookeeper.address(), file.to_str().expect("UTF-8")]);
    let results: Vec<Value> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("result "))
        .map(|json| serde_json::from_str(json).expect("JSON"))
        .collect();
    assert_eq!(results.len(), lines.len(), "{printed}");
    results
}

/// Sets have no order.
fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Array(members) => {
            members.iter_mut().for_each(|member| *member = sorted(member.take()));
            members.sort_by_key(Value::to_string);
        }
        Value::Object(entries) => {
            entries.iter_mut().for_each(|(_, entry)| *entry = sorted(entry.take()));
            entries.sort_keys();
        }
        _ => {}
    }
    value
}

fn json(text: &str) -> Value {
    sorted(serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// Java's line, and ours.
const OPERATIONS: &[(&str, &[&str])] = &[
    ("trigger whole -", &["job", "trigger", "whole"]),
    ("disable whole -", &["job", "disable", "whole"]),
    ("disable whole 10.0.0.1", &["job", "disable", "whole", "--server", "10.0.0.1"]),
    ("disable - 10.0.0.1", &["server", "disable", "10.0.0.1"]),
    ("enable whole -", &["job", "enable", "whole"]),
    ("enable whole 10.0.0.2", &["job", "enable", "whole", "--server", "10.0.0.2"]),
    ("enable - 10.0.0.2", &["server", "enable", "10.0.0.2"]),
    ("shutdown whole -", &["job", "shutdown", "whole"]),
    ("shutdown whole 10.0.0.1", &["job", "shutdown", "whole", "--server", "10.0.0.1"]),
    ("shutdown - 10.0.0.1", &["server", "shutdown", "10.0.0.1"]),
    ("remove whole -", &["job", "remove", "whole", "--keep-config", "--yes"]),
    ("remove whole 10.0.0.1", &["job", "remove", "whole", "--server", "10.0.0.1", "--yes"]),
    ("remove - 10.0.0.1", &["server", "remove", "10.0.0.1", "--yes"]),
    ("disable-item whole 1", &["shard", "disable", "whole", "1"]),
    ("enable-item whole 2", &["shard", "enable", "whole", "2"]),
    ("remove-configuration whole -", &["job", "remove", "whole", "--yes"]),
    ("cron whole 0 15 3 * * ?", &["job", "apply", "new.yaml", "--yes"]),
];

#[test]
fn each_operation_has_the_effect_of_java_s_on_the_znodes() {
    let (zookeeper, folder) = (ZooKeeper::start(), tempfile::tempdir().expect("a folder"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let namespace = |side: &str, index: usize| format!("{side}-{index}");
    let new = config("whole", 3).replace("0/5 * * * * ?", "0 15 3 * * ?");
    std::fs::write(folder.path().join("new.yaml"), new).expect("a file");
    runtime.block_on(async {
        for index in 0..OPERATIONS.len() {
            for side in ["java", "ours"] {
                let (registry, session) = connect(&zookeeper, &namespace(side, index)).await;
                let written = registry.commit(session, &world()).await;
                assert!(matches!(written, Outcome::Committed { .. }), "{written:?}");
                registry.close().await;
            }
        }
    });
    let lines: Vec<String> = OPERATIONS
        .iter()
        .enumerate()
        .map(|(index, (java, _))| {
            let line = format!("{} {java}", namespace("java", index));
            if line.split(' ').count() < 4 { format!("{line} -") } else { line }
        })
        .collect();
    javas(&zookeeper, folder.path(), &lines);
    for (index, (_, arguments)) in OPERATIONS.iter().enumerate() {
        ours(&zookeeper, &namespace("ours", index), folder.path(), arguments);
    }
    let before: Nodes = world().iter().map(|op| (op.path().to_owned(), text_of(op))).collect();
    for (index, (java, _)) in OPERATIONS.iter().enumerate() {
        let (theirs, mut ours) = runtime.block_on(async {
            let theirs = connect(&zookeeper, &namespace("java", index)).await.0;
            let ours = connect(&zookeeper, &namespace("ours", index)).await.0;
            (nodes(&theirs).await, nodes(&ours).await)
        });
        // A job that is disabled here stays so on servers that are yet to come (decisions: "stays disabled").
        if *java == "disable whole -" {
            let config = ours.get_mut("/whole/config").expect("it is there");
            assert!(config.contains("disabled: true"));
            *config = config.replace("disabled: true", "disabled: false");
        }
        assert_eq!(ours, theirs, "{java}");
        let unchanged = before.iter().all(|(path, text)| theirs.get(path) == Some(text));
        assert!(!unchanged || theirs.len() > before.len() + 1, "{java} changes something");
    }
}

fn text_of(op: &Op) -> String {
    match op {
        Op::Create { data, .. } => String::from_utf8_lossy(data).into_owned(),
        _ => String::new(),
    }
}

#[test]
fn the_statistics_are_java_s() {
    let (zookeeper, folder) = (ZooKeeper::start(), tempfile::tempdir().expect("a folder"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (registry, session) = connect(&zookeeper, "statistics").await;
        assert!(matches!(registry.commit(session, &world()).await, Outcome::Committed { .. }));
        registry.close().await;
    });
    let questions: &[(&str, &[&str])] = &[
        ("jobs - -", &["job", "list"]),
        ("jobs-on - 10.0.0.1", &["job", "list", "--server", "10.0.0.1"]),
        ("jobs-on - 10.0.0.2", &["job", "list", "--server", "10.0.0.2"]),
        ("servers - -", &["server", "list"]),
        ("items whole -", &["shard", "list", "whole"]),
        ("items crashed -", &["shard", "list", "crashed"]),
        ("job whole -", &["job", "show", "whole"]),
    ];
    let mut lines: Vec<String> = questions.iter().map(|(line, _)| format!("statistics {line}")).collect();
    lines.extend(["statistics jobs-count - -", "statistics servers-count - -"].map(str::to_owned));
    let results = javas(&zookeeper, folder.path(), &lines);
    for ((java, arguments), theirs) in questions.iter().zip(&results) {
        let arguments = [*arguments, &["--output", "json"]].concat();
        let mut found = json(&ours(&zookeeper, "statistics", folder.path(), &arguments));
        if let Some(object) = found.as_object_mut() {
            object.remove("items"); // the items are ours to add
        }
        assert_eq!(found, sorted(theirs.clone()), "{java}");
    }
    let statuses: Vec<&str> =
        results[0].as_array().expect("a list").iter().filter_map(|j| j["status"].as_str()).collect();
    assert_eq!(statuses, ["CRASHED", "SHARDING_FLAG", "SHARDING_FLAG", "DISABLED", "OK"], "each status is there");
    let counts = runtime.block_on(async {
        let operations = elasticjob::Operations::new(std::sync::Arc::new(connect(&zookeeper, "statistics").await.0));
        [operations.jobs_total_count().await.expect("counts"), operations.servers_total_count().await.expect("counts")]
    });
    assert_eq!(results[results.len() - 2..].to_vec(), counts.map(Value::from));
}

/// A Java instance and one of ours that share a job of four items, each with a dump port.
struct Cluster {
    zookeeper: ZooKeeper,
    folder: tempfile::TempDir,
    journal: Journal,
    java: Process,
    rust: Process,
    ports: [u16; 2],
}

impl Cluster {
    fn start() -> Cluster {
        let (zookeeper, folder) = (ZooKeeper::start(), tempfile::tempdir().expect("a folder"));
        let journal = Journal::new(folder.path());
        let ports = [free_port(), free_port()];
        let cron = "      cron: '* * * * * ?'\n      failover: true\n";
        let file = |side: &str, port: u16| {
            let path = job_file(folder.path(), side, &zookeeper.address(), &journal, 4, "0", cron);
            let text = std::fs::read_to_string(&path).expect("the file");
            std::fs::write(&path, format!("{text}  dump:\n    port: {port}\n")).expect("a file");
            path
        };
        let (theirs, our) = (file("java", ports[0]), file("rust", ports[1]));
        let java = java(&["agent", theirs.to_str().expect("UTF-8")], &folder.path().join("java-log"));
        eventually("Java has started", PATIENCE, || java.log().contains("started 1").then_some(()));
        let rust = agent(&our, &folder.path().join("rust-log"));
        let cluster = Cluster { zookeeper, folder, journal, java, rust, ports };
        cluster.both_run();
        cluster
    }

    fn ours(&self, arguments: &[&str]) -> String {
        ours(&self.zookeeper, "tests", self.folder.path(), arguments)
    }

    /// From now on both run items.
    fn both_run(&self) {
        let from = wall_clock_millis();
        eventually("both run items", PATIENCE, || {
            let runs = self.journal.runs();
            let ran = |pid: u32| runs.iter().any(|run| run.start > from && run.pid == pid);
            (ran(self.java.pid()) && ran(self.rust.pid())).then_some(())
        });
    }

    /// The items that ran in a whole second that began after this call.
    fn items_of_a_second(&self) -> Vec<u32> {
        let second = wall_clock_millis() / 1_000 + 2;
        eventually("a second passes", PATIENCE, || (wall_clock_millis() > (second + 1) * 1_000 + 500).then_some(()));
        let runs = self.journal.runs();
        let mut items: Vec<u32> = runs.iter().filter(|r| r.start / 1_000 == second).map(|r| r.item).collect();
        items.sort_unstable();
        items.dedup();
        items
    }

    /// From now on nothing fires, though every instance is ready.
    fn fires_never(&self) {
        let stored = self.ours(&["job", "config", "shared-job"]);
        std::fs::write(self.folder.path().join("rare.yaml"), stored.replace("'* * * * * ?'", "0 0 0 1 1 ?"))
            .expect("a file");
        assert!(self.ours(&["job", "apply", "rare.yaml", "--yes"]).contains("+cron: 0 0 0 1 1 ?"));
        self.comes_to(&[]);
    }

    /// A whole second comes in which exactly these items run; in one before that somebody may have been late.
    fn comes_to(&self, expected: &[u32]) {
        eventually(&format!("items {expected:?}"), PATIENCE, || (self.items_of_a_second() == expected).then_some(()));
    }

    /// What Java's statistics and ours say of the moment, which must be the same; asked again while runs come and go.
    fn statistics(&self) -> [Value; 3] {
        let lines = ["jobs - -", "servers - -", "items shared-job -"].map(|line| format!("tests {line}"));
        let arguments: [&[&str]; 3] = [&["job", "list"], &["server", "list"], &["shard", "list", "shared-job"]];
        eventually("both say the same", PATIENCE, || {
            let theirs = javas(&self.zookeeper, self.folder.path(), &lines);
            let ours = arguments.map(|words| json(&self.ours(&[words, &["--output", "json"]].concat())));
            let theirs: Vec<Value> = theirs.into_iter().map(|value| calm(sorted(value))).collect();
            let ours = ours.map(calm);
            (theirs == ours).then_some(ours)
        })
    }
}

/// The nodes of the cluster's job once they have come to rest, with what differs from one cluster to the other made equal: ids,
/// addresses, and what COMPAT.md lists as ours.
fn at_rest(cluster: &Cluster, runtime: &tokio::runtime::Runtime) -> Nodes {
    let look = || {
        runtime.block_on(async {
            let registry = connect(&cluster.zookeeper, "tests").await.0;
            let found = nodes(&registry).await;
            registry.close().await;
            found
        })
    };
    let (folder, patterns) = (
        cluster.folder.path().display().to_string(),
        [(r"\d+\.\d+\.\d+\.\d+@-@\d+", "<id>"), (r"\d+\.\d+\.\d+\.\d+", "<ip>")]
            .map(|(pattern, by)| (Regex::new(pattern).expect("a pattern"), by)),
    );
    let equal = |text: &str| {
        let text = text.replace(&folder, "<folder>");
        patterns.iter().fold(text, |text, (pattern, by)| pattern.replace_all(&text, *by).into_owned())
    };
    let ours = |text: &str| text.starts_with("due=") && text.contains(" session=");
    let clean = |found: Nodes| -> Nodes {
        let mut kept = Nodes::new();
        for (path, text) in found {
            // Who leads by chance: one of Java divides at the next firing, one of ours at once.
            let asked = path.ends_with("/leader/sharding/necessary");
            if asked || path.contains("/claim-") || path.contains("-latch-0") {
                continue;
            }
            // Two instances are two nodes, whatever their ids.
            let mut path = equal(&path);
            while kept.contains_key(&path) {
                path.push('+');
            }
            kept.insert(path, if ours(&text) { String::new() } else { equal(&text) });
        }
        kept
    };
    eventually("the cluster is at rest", PATIENCE, || {
        let now = clean(look());
        pause(Duration::from_millis(1_500));
        (now == clean(look())).then_some(now)
    })
}

/// The operations on a cluster that lives, each behind the one before: Java's line, and ours. `IP` stands for the server.
const LIVE: &[(&str, &[&str])] = &[
    ("disable shared-job -", &["job", "disable", "shared-job"]),
    ("enable shared-job -", &["job", "enable", "shared-job"]),
    ("disable shared-job IP", &["job", "disable", "shared-job", "--server", "IP"]),
    ("enable shared-job IP", &["job", "enable", "shared-job", "--server", "IP"]),
    ("disable - IP", &["server", "disable", "IP"]),
    ("enable - IP", &["server", "enable", "IP"]),
    ("disable-item shared-job 1", &["shard", "disable", "shared-job", "1"]),
    ("enable-item shared-job 1", &["shard", "enable", "shared-job", "1"]),
    ("trigger shared-job -", &["job", "trigger", "shared-job"]),
    ("shutdown shared-job IP", &["job", "shutdown", "shared-job", "--server", "IP"]),
    ("remove - IP", &["server", "remove", "IP", "--yes"]),
    ("remove-configuration shared-job -", &["job", "remove", "shared-job", "--yes"]),
];

/// Carries them out on a cluster of its own, in which nothing fires; gives the nodes behind each, and the items that ran.
fn live(runtime: &tokio::runtime::Runtime, carry_out: impl Fn(&Cluster, usize, &str)) -> (Vec<Nodes>, Vec<u32>) {
    let cluster = Cluster::start();
    cluster.fires_never();
    let from = wall_clock_millis();
    let servers: Value = serde_json::from_str(&cluster.ours(&["server", "list", "--output", "json"])).expect("JSON");
    let ip = servers[0]["serverIp"].as_str().expect("an IP").to_owned();
    let behind_each = (0..LIVE.len())
        .map(|index| {
            carry_out(&cluster, index, &ip);
            at_rest(&cluster, runtime)
        })
        .collect();
    let mut items: Vec<u32> = cluster.journal.runs().iter().filter(|r| r.start >= from).map(|r| r.item).collect();
    items.sort_unstable();
    (behind_each, items)
}

#[test]
fn on_a_cluster_of_java_and_rust_each_operation_leaves_the_nodes_that_java_s_leaves() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (theirs, their_runs) = live(&runtime, |cluster, index, ip| {
        let line = format!("tests {}", LIVE[index].0.replace("IP", ip));
        javas(&cluster.zookeeper, cluster.folder.path(), &[line]);
    });
    let (mut ours, our_runs) = live(&runtime, |cluster, index, ip| {
        let words: Vec<String> = LIVE[index].1.iter().map(|word| word.replace("IP", ip)).collect();
        cluster.ours(&words.iter().map(String::as_str).collect::<Vec<_>>());
    });
    // The one named difference: a job that is disabled here stays so on servers that are yet to come.
    let config = ours[0].get_mut("/shared-job/config").expect("it is there");
    assert!(config.contains("disabled: true"));
    *config = config.replace("disabled: true", "disabled: false");
    for ((line, _), (ours, theirs)) in LIVE.iter().zip(ours.iter().zip(&theirs)) {
        assert_eq!(ours, theirs, "{line}");
    }
    assert_eq!((&our_runs, &their_runs), (&vec![0, 1, 2, 3], &vec![0, 1, 2, 3]), "what the trigger ran");
}

/// A run that is on its way at one look is over at the other.
fn calm(value: Value) -> Value {
    let text = value.to_string().replace("\"RUNNING\"", "\"PENDING\"");
    serde_json::from_str(&text).expect("JSON")
}

/// By number of the item.
fn states(items: &Value) -> Vec<&str> {
    let mut items: Vec<&Value> = items.as_array().expect("a list").iter().collect();
    items.sort_by_key(|item| item["item"].as_u64());
    items.iter().filter_map(|item| item["status"].as_str()).collect()
}

#[test]
fn operations_move_java_and_rust_instances_alike_and_both_statistics_say_so() {
    let cluster = Cluster::start();
    let [jobs, servers, items] = cluster.statistics();
    assert_eq!((&jobs[0]["status"], &jobs[0]["instanceCount"]), (&"OK".into(), &2.into()));
    assert_eq!((&servers[0]["instancesNum"], &servers[0]["disabledJobsNum"]), (&2.into(), &0.into()));
    assert_eq!(states(&items), ["PENDING"; 4]);

    cluster.ours(&["shard", "disable", "shared-job", "1"]);
    cluster.comes_to(&[0, 2, 3]);
    let [_, _, items] = cluster.statistics();
    assert_eq!(states(&items), ["PENDING", "DISABLED", "PENDING", "PENDING"]);
    cluster.ours(&["shard", "enable", "shared-job", "1"]);
    cluster.comes_to(&[0, 1, 2, 3]);

    cluster.ours(&["job", "disable", "shared-job"]);
    cluster.comes_to(&[]);
    assert_eq!(cluster.items_of_a_second(), [0_u32; 0], "it rests");
    let [jobs, servers, _] = cluster.statistics();
    assert_eq!((&jobs[0]["status"], &servers[0]["disabledJobsNum"]), (&"DISABLED".into(), &1.into()));
    cluster.ours(&["job", "enable", "shared-job"]);
    cluster.both_run();

    // A trigger: with no firing near, each item runs once more.
    cluster.fires_never();
    let from = wall_clock_millis();
    cluster.ours(&["job", "trigger", "shared-job"]);
    let ran = || -> Vec<u32> {
        let mut items: Vec<u32> = cluster.journal.runs().iter().filter(|r| r.start >= from).map(|r| r.item).collect();
        items.sort_unstable();
        items
    };
    eventually("all items ran", PATIENCE, || (ran().len() >= 4).then_some(()));
    assert_eq!(cluster.items_of_a_second(), [0_u32; 0]);
    assert_eq!(ran(), [0, 1, 2, 3], "each once");

    // Shut down: both processes live on without the job.
    cluster.ours(&["job", "shutdown", "shared-job"]);
    eventually("both are out", PATIENCE, || {
        (json(&cluster.ours(&["job", "list", "--output", "json"]))[0]["status"] == "CRASHED").then_some(())
    });
    let jobs = javas(&cluster.zookeeper, cluster.folder.path(), &["tests jobs - -".to_owned()]);
    assert_eq!(jobs[0][0]["status"], "CRASHED");
    cluster.ours(&["job", "remove", "shared-job", "--yes"]);
    assert_eq!(cluster.ours(&["job", "list", "--output", "json"]), "[]\n", "nothing is left of it");
    eventually("the session of nobody", Duration::from_millis(2 * SESSION_MILLIS), || {
        (cluster.ours(&["job", "list", "--output", "json"]) == "[]\n").then_some(())
    });
}

#[test]
fn dumps_of_java_and_rust_are_the_same_text() {
    let cluster = Cluster::start();
    cluster.fires_never();
    let from = |port: u16| cluster.ours(&["job", "dump", "shared-job", "--from", &format!("127.0.0.1:{port}")]);
    let [theirs, ours] = cluster.ports.map(from);
    assert_eq!(ours, theirs);
    assert_eq!(cluster.ours(&["job", "dump", "shared-job"]), theirs, "and from the registry alone");
    for part in ["/shared-job/sharding/3/instance | ip1@-@", "/shared-job/config | cron: 0 0 0 1 1 ?", "| ENABLED"] {
        assert!(theirs.contains(part), "{part}: {theirs}");
    }
    // Java's client reads ours.
    let line = format!("tests dump shared-job {}", cluster.ports[1]);
    let read = javas(&cluster.zookeeper, cluster.folder.path(), &[line]);
    assert_eq!(read[0].as_str(), Some(ours.as_str()));
}
