//! Everything that reads what others wrote, each with texts that are right to begin from.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use elasticjob::DumpService;
use elasticjob::registry::Connection;
use elasticjob_core::config::{ItemParameters, JobConfig};
use elasticjob_core::cron::{Cron, parse_zone};
use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::report::{
    Detail, Facts, JobBrief, JobReport, Known, explain, job_brief, server_briefs, shard_infos,
};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Op, Tree};
use elasticjob_core::wire::{Claim, JobDocument, Ledger, parse_instance, yaml};
use elasticjob_registry::{Link, Registry, memory};
use elasticjob_sim::{Chance, Fault, Options, World};
use jiff::tz::TimeZone;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answers;
use crate::mutate::{index, pick, text};

/// The readers.
pub(crate) const NAMES: [&str; 7] = ["configuration", "file", "cron", "nodes", "dump", "answers", "cluster"];
/// One in so many seeds is a whole cluster, which takes a thousand times as long.
const CLUSTER_EVERY: u64 = 600;
/// One in so many is what a server answers.
const ANSWERS_EVERY: u64 = 10;
/// An answer of the dump service that takes longer hangs.
const ANSWER_MAX: Duration = Duration::from_secs(5);

const CONFIGURATIONS: [&str; 4] = [
    "cron: 0/5 * * * * ?\ndescription: ''\ndisabled: false\nfailover: true\njobErrorHandlerType: LOG\njobListenerTypes:\n- a\n\
     - b\njobName: a\njobParameter: ''\nmaxTimeDiffSeconds: -1\nmisfire: true\nmonitorExecution: true\noverwrite: false\n\
     props:\n  script.command.line: echo 'a b'\n  k: \"1\"\nreconcileIntervalMinutes: 10\nshardingItemParameters: 0=a,1=b\n\
     shardingTotalCount: 2\nstaticSharding: false\ntimeZone: GMT+8\n",
    "jobExtraConfigurations:\n- !!org.apache.shardingsphere.elasticjob.tracing.yaml.YamlTracingConfiguration\n  \
     tracingStorageConfiguration: !!org.apache.shardingsphere.elasticjob.tracing.yaml.YamlDataSourceConfiguration\n    \
     dataSourceClassName: com.zaxxer.hikari.HikariDataSource\n    props:\n      jdbcUrl: jdbc:mysql://h/d\n  type: RDB\n\
     jobName: a\nshardingTotalCount: 1\n",
    "{jobName: a, shardingTotalCount: 010, props: {a: 1, b: [x, y]}, cron: !!binary aGVsbG8=}",
    "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: &d [*c, *c, *c, *c]\ne: &e [*d, *d, *d, *d]\n\
     f: &f [*e, *e, *e, *e]\ng: &g [*f, *f, *f, *f]\nh: &h [*g, *g, *g, *g]\ni: &i [*h, *h, *h, *h]\nj: &j [*i, *i, *i, *i]\n\
     k: [*j, *j, *j, *j, *j, *j, *j, *j]\n",
];
const FILES: [&str; 2] = [
    "elasticjob:\n  regCenter: {serverLists: 'localhost:2181', namespace: a}\n  tracing:\n    type: RDB\n    dataSource: \
     {url: 'sqlite://x.db'}\n    includeJobNames: [a]\n    retentionDays: 3\n  dump: {enabled: true, port: 9888}\n  metrics:\n    \
     port: 9100\n    host: 127.0.0.1\n  shutdownTimeoutSeconds: 3\n  jobs:\n    a:\n      elasticJobType: SCRIPT\n      cron: \
     0/5 * * * * ?\n      shardingTotalCount: 3\n      sharding-item-parameters: 0=a\n      jobErrorHandlerType: EMAIL\n      \
     props:\n        script.command.line: ${HOME:x} \"a b\"\n        email: {host: h, port: 25}\n",
    "elasticjob:\n  jobs:\n    b: {elasticJobType: HTTP, shardingTotalCount: 1, timeZone: Europe/Berlin, props: {http.uri: \
     'http://x/', http.method: GET}}\n",
];
const CRONS: [&str; 12] = [
    "0/5 * * * * ?",
    "0 0 12 ? * WED",
    "0 0/5 14,18-20 * * ?",
    "0 15 10 L * ?",
    "0 15 10 L-3W * ?",
    "0 15 10 ? * 6L 2002-2099",
    "0 15 10 ? * 6#3",
    "0 0 12 1/5 * ?",
    "59 59 23 31 12 ? 2099",
    "0 0 0 29 2 ? */4",
    "* * 22-2 ? NOV-FEB FRI-MON",
    "0 0 2 LW MAR,OCT ?",
];
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "GMT+8"];
const NODES: [&str; 9] = [
    "",
    "ENABLED",
    "DISABLED",
    "10.0.0.1@-@0",
    "jobInstanceId: 10.0.0.1@-@0\nserverIp: 10.0.0.1\n",
    "due=1700000005000 by=10.0.0.1@-@0 session=0000000000000001 begin=3 at=1700000005001",
    "10.0.0.1@-@0 at=1700000005001",
    "0=a,1=b",
    "concluded=1700000005000",
];
const REQUESTS: [&str; 6] = ["dump@a\n", "dump@a/sharding\r\n", "dump@a", "dump@\n", "dump@a@b\n", "\n"];

/// What a seed's reader is called.
pub(crate) fn name(seed: u64) -> &'static str {
    if seed % CLUSTER_EVERY == 5 {
        return NAMES[6];
    }
    if seed % ANSWERS_EVERY == 7 {
        return NAMES[5];
    }
    NAMES[usize::try_from(seed % 6).unwrap_or_default() % 5]
}

/// What a seed's reader gets; of a cluster only what is printed of it.
pub(crate) fn input(seed: u64) -> String {
    let bytes = bytes(&mut Chance::new(seed), name(seed));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bytes(chance: &mut Chance, reader: &str) -> Vec<u8> {
    match reader {
        "configuration" => text(chance, &CONFIGURATIONS),
        "file" => text(chance, &FILES),
        "cron" => text(chance, &CRONS),
        "dump" => text(chance, &REQUESTS),
        "answers" => answers::bytes(chance),
        _ => text(chance, &NODES),
    }
}

/// Makes the input of a seed and has it read.
pub(crate) fn read(seed: u64) {
    let mut chance = Chance::new(seed);
    let reader = name(seed);
    let bytes = bytes(&mut chance, reader);
    match reader {
        "configuration" => configuration(&bytes),
        "file" => drop(elasticjob_cli::faults(&String::from_utf8_lossy(&bytes), &|_| None)),
        "cron" => cron(&mut chance, &String::from_utf8_lossy(&bytes)),
        "nodes" => nodes(&mut chance, &bytes),
        "dump" => dump(&mut chance, &bytes),
        "answers" => answers::read(&mut chance, &bytes),
        _ => cluster(seed, &mut chance),
    }
}

fn zones(name: Option<&str>) -> Option<TimeZone> {
    name.map_or(Some(TimeZone::UTC), |name| TimeZone::get(name).ok())
}

/// A stored configuration: what is read is written and read again as the same.
fn configuration(bytes: &[u8]) {
    let Ok(document) = JobDocument::parse(bytes) else { return };
    let _ = (JobConfig::check(&document, &zones), JobConfig::contradictions(&document), document.tracing());
    let text = document.to_yaml();
    // What was kept as it stood may need an anchor that stood elsewhere.
    if document.kept.is_empty() {
        let again = JobDocument::parse(text.as_bytes());
        assert_eq!(again.as_ref().map(JobDocument::to_yaml), Ok(text), "written: {again:?}");
    }
}

/// An expression: each firing is later than the one before, and what has ended stays so.
fn cron(chance: &mut Chance, text: &str) {
    let zone = pick(chance, &ZONES);
    let zone = zones(Some(zone)).unwrap_or(TimeZone::UTC);
    let _ = parse_zone(text);
    let Ok(cron) = Cron::parse(text) else { return };
    let mut at = Timestamp(i64::try_from(chance.below(4_102_444_800_000)).unwrap_or_default());
    for _ in 0..20 {
        let Some(next) = cron.next(at, &zone) else { return };
        assert!(next > at, "{next} after {at}");
        at = next;
    }
}

/// Nodes of a job that anybody may have written: statistics and explanations of them.
fn nodes(chance: &mut Chance, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = (parse_instance(bytes), Ledger::parse(bytes), Claim::parse(bytes), yaml::parse(&text));
    let _ = ItemParameters::parse(&text);
    let mut tree = Tree::new();
    let session = tree.open_session();
    let path = JobPath::new("job");
    plant(chance, &mut tree, session, &path);
    let report = report(&tree, &path);
    let _ = (job_brief(&report), JobBrief::on_server(&report, "10.0.0.1"), shard_infos(&report));
    let _ = server_briefs([&report]);
    let config = report.state.config.as_ref().map(|node| JobDocument::parse(&node.data));
    let config = match config {
        Some(Ok(document)) => JobConfig::check(&document, &zones).map_err(|faults| format!("{faults:?}")),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("none".into()),
    };
    let now = Timestamp(i64::try_from(chance.below(4_102_444_800_000)).unwrap_or_default());
    let explained = explain(&report, &Facts { now, config, registry: "here".into() });
    assert_eq!(explained.checks.len(), 15);
}

/// A tree with the right nodes, wrong ones, and wrong data in both.
fn plant(chance: &mut Chance, tree: &mut Tree, session: u64, path: &JobPath) {
    let now = Timestamp(1_700_000_000_000);
    for at in places(chance, path) {
        let data = if at.ends_with("/config") { text(chance, &CONFIGURATIONS) } else { text(chance, &NODES) };
        let mut parent = String::new();
        for part in at.split('/').skip(1) {
            parent = format!("{parent}/{part}");
            let _ = tree.commit(session, &[Op::Ensure(parent.clone())], now);
        }
        let _ = tree.commit(session, &[Op::Set { path: at, data, version: None }], now);
    }
}

/// Paths of a job: most of those that it has, and some that it should not have.
fn places(chance: &mut Chance, path: &JobPath) -> Vec<String> {
    let mut places = vec![path.root().to_owned(), path.config(), path.leader_instance(), path.necessary()];
    for ip in ["10.0.0.1", "10.0.0.2", "not-an-ip"] {
        places.push(path.server(ip));
        places.push(path.instance(&format!("{ip}@-@0")));
    }
    for item in [0, 1, 2, 4_294_967_295] {
        places.extend([path.item(item), path.item_owner(item), path.item_running(item), path.item_failover(item)]);
        places.extend([path.item_misfire(item), path.item_disabled(item), path.item_failovering(item)]);
        places.push(path.item_claim(item, chance.below(9)));
        places.push(path.failover_item(item));
    }
    places.push(path.below("sharding/-1/instance"));
    places.push(path.below("sharding/01"));
    places.push(path.below(&format!("sharding/{}", chance.below(1 << 40))));
    places.push(path.trigger("10.0.0.1@-@0"));
    places.push(path.guarantee_item("started", 0));
    places.push(format!("{}/{}", path.root(), "x".repeat(index(chance, 300) + 1)));
    places.retain(|_| chance.below(4) > 0);
    places
}

fn report(tree: &Tree, path: &JobPath) -> JobReport {
    let mut known = Known::new();
    loop {
        let queries = JobReport::queries(path, Detail::Full, &known);
        let open: Vec<Query> = queries.into_iter().filter(|query| !known.contains_key(query)).collect();
        if open.is_empty() {
            return JobReport::build(path, &known);
        }
        for query in open {
            let answer = match &query {
                Query::Node(at) => Answer::Node(tree.get(at).cloned()),
                Query::Children(at) => Answer::Children(tree.children(at)),
            };
            known.insert(query, answer);
        }
    }
}

/// A dump service over nodes of that kind, which goes on for the next one.
struct Service {
    runtime: tokio::runtime::Runtime,
    registry: Arc<dyn Registry>,
    _connection: Connection,
    _service: DumpService,
    address: SocketAddr,
}

fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
        let (registry, connection, service, address) = runtime.block_on(async {
            let registry: Arc<dyn Registry> = Arc::new(memory::Memory::new().connect());
            let connection = Connection::on(Arc::clone(&registry)).connect().await;
            let connection = connection.unwrap_or_else(|error| panic!("a connection: {error}"));
            let started = DumpService::start(&connection, SocketAddr::from(([127, 0, 0, 1], 0))).await;
            let service = started.unwrap_or_else(|error| panic!("a service: {error}"));
            let address = service.address();
            (registry, connection, service, address)
        });
        Service { runtime, registry, _connection: connection, _service: service, address }
    })
}

/// A request, whole or not, to nodes of any kind; the service answers the next one as before.
fn dump(chance: &mut Chance, bytes: &[u8]) {
    let service = service();
    service.runtime.block_on(async {
        let Link::Up { session, .. } = service.registry.link().borrow().clone() else { panic!("there is a link") };
        for path in ["/a", "/a/sharding", &format!("/a/sharding/{}", chance.below(20))] {
            let set = Op::Set { path: path.to_owned(), data: text(chance, &NODES), version: None };
            service.registry.commit(session, &[Op::Ensure(path.to_owned()), set]).await;
        }
        let _ = ask(service.address, bytes).await;
        let answer = ask(service.address, b"dump@a\n").await;
        assert!(answer.starts_with("/a/sharding | "), "{answer:?}");
    });
}

async fn ask(address: SocketAddr, request: &[u8]) -> String {
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        // It may hang up before it has read everything.
        let _ = stream.write_all(request).await;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(ANSWER_MAX, talk).await;
    let answer = answer.unwrap_or_else(|_| panic!("no end of the answer within {ANSWER_MAX:?}"));
    String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned()
}

/// A cluster whose nodes another program overwrites, creates and deletes while it works.
fn cluster(seed: u64, chance: &mut Chance) {
    let mut document = JobDocument::new("job", 3);
    document.cron = Some("0/2 * * * * ?".into());
    document.failover = chance.below(2) == 0;
    let slow_requests = chance.below(2) == 0;
    let mut world = World::new(Options { run_millis: (0, 3_000), slow_requests, ..Options::new(seed, document, 2) });
    let path = JobPath::new("job");
    for _ in 0..20 {
        let after = Duration::from_millis(chance.below(60_000));
        let ops = places(chance, &path).into_iter().take(5).flat_map(|at| {
            let data = if at.ends_with("/config") { text(chance, &CONFIGURATIONS) } else { text(chance, &NODES) };
            match chance.below(4) {
                0 => vec![Op::delete(at)],
                1 => vec![Op::create(at, data)],
                _ => vec![Op::Set { path: at, data, version: None }],
            }
        });
        for op in ops.collect::<Vec<Op>>() {
            world.strike(after, 0, Fault::Operator(vec![op]));
        }
    }
    world.run_until(Duration::from_secs(90));
    let _ = explain(
        &report(world.tree(), &path),
        &Facts { now: World::moment(world.elapsed()), config: Err("none".into()), registry: "here".into() },
    );
}
