//! Doors that are closed: who may decide what an agent executes. Other users of the host are real (`setpriv`), so these tests need root;
//! without it, they check what one user alone can.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use elasticjob_tests::{Process, ZooKeeper, agent, command, eventually, is_root, output};

const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// A cluster on ZooKeeper with one agent, whose script marks that it ran.
struct Cluster {
    zookeeper: ZooKeeper,
    folder: tempfile::TempDir,
    digest: Option<&'static str>,
}

impl Cluster {
    fn new(digest: Option<&'static str>) -> Cluster {
        Cluster { zookeeper: ZooKeeper::start(), folder: tempfile::tempdir().expect("a folder"), digest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file with the job, whose command creates the file `mark`.
    fn file(&self, name: &str, mark: &str, commands: &str, more: &str) -> PathBuf {
        let path = self.path(name);
        let digest = self.digest.map(|digest| format!(", digest: '{digest}'")).unwrap_or_default();
        let text = format!(
            "elasticjob:\n{commands}  regCenter: {{ serverLists: '{}', namespace: doors, sessionTimeoutMilliseconds: 4000{digest} }}\n  jobs:\n    job:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n{more}      props:\n        script.command.line: touch {}\n",
            self.zookeeper.address(),
            self.path(mark).display()
        );
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn agent(&self, commands: &str, log: &str) -> Process {
        let process = agent(&self.file("agent.yaml", "own", commands, ""), &self.path(log));
        self.ran("own");
        process
    }

    fn ran(&self, mark: &str) {
        eventually(&format!("{mark} ran"), PATIENCE, || self.path(mark).exists().then_some(()));
    }

    /// Stores a configuration, as any client can that may write.
    fn store(&self, file: &Path, digest: Option<&str>) -> Output {
        let mut command = command();
        let registry = format!("zookeeper://{}/doors", self.zookeeper.address());
        command.args(["--registry", &registry, "job", "apply", "--yes"]).arg(file).current_dir(self.folder.path());
        command.envs(digest.map(|digest| ("ELASTICJOB_DIGEST", digest)));
        command.output().expect("a command")
    }

    /// Waits for two runs of the agent's own command after this moment.
    fn own_runs_on(&self) {
        for _ in 0..2 {
            std::fs::remove_file(self.path("own")).expect("it ran");
            self.ran("own");
        }
    }
}

/// Anyone who reaches a ZooKeeper without access lists can write the configuration.
#[test]
fn a_command_that_comes_from_an_open_registry_is_not_executed_and_other_changes_are() {
    let cluster = Cluster::new(None);
    let process = cluster.agent("", "log");
    let stored = cluster.store(&cluster.file("evil.yaml", "evil", "", ""), None);
    assert!(stored.status.success(), "{}", text(&stored.stderr));
    let refused = "the new stored configuration is invalid; the previous configuration stays in force: `props.script.command.line`";
    eventually("it is refused", PATIENCE, || process.log().contains(refused).then_some(()));
    assert!(
        process.log().contains("permit commands of the registry with `commands: registry` in the file"),
        "{}",
        process.log()
    );
    cluster.own_runs_on();

    // A listener that was added.
    let listener = "      jobListenerTypes: [SCRIPT]\n";
    let file = cluster.file("listener.yaml", "own", "", listener);
    let evil = format!("        elasticjob.listener.before.command.line: touch {}\n", cluster.path("evil").display());
    let text_of_file = std::fs::read_to_string(&file).expect("a file") + &evil;
    std::fs::write(&file, text_of_file).expect("a file");
    assert!(cluster.store(&file, None).status.success());
    let refused = "stays in force: `props.elasticjob.listener.before.command.line`";
    eventually("the listener is refused", PATIENCE, || process.log().contains(refused).then_some(()));
    cluster.own_runs_on();

    // Other changes need no permission.
    let two = cluster.file("two.yaml", "own", "", "      description: two\n");
    assert!(cluster.store(&two, None).status.success());
    eventually("it is valid again", PATIENCE, || {
        process.log().contains("the stored configuration is valid again").then_some(())
    });
    assert!(!cluster.path("evil").exists(), "{}", process.log());
}

#[test]
fn a_command_of_an_open_registry_is_executed_where_the_file_permits_it_and_never_with_the_policy_file() {
    let cluster = Cluster::new(None);
    let process = cluster.agent("  commands: registry\n", "log");
    assert!(cluster.store(&cluster.file("other.yaml", "other", "", ""), None).status.success());
    cluster.ran("other");
    drop(process);
    // Started with another command than the stored one: nothing of it runs.
    std::fs::remove_file(cluster.path("other")).expect("it ran");
    let process = agent(&cluster.file("agent.yaml", "own", "  commands: file\n", ""), &cluster.path("second"));
    let refused = "the job is paused until it is corrected: `props.script.command.line`";
    eventually("it is refused", PATIENCE, || process.log().contains(refused).then_some(()));
    assert!(process.log().contains("`commands: file` permits only the commands of the file"), "{}", process.log());
    assert!(!cluster.path("other").exists());
    // What the message advises.
    assert!(cluster.store(&cluster.path("agent.yaml"), None).status.success());
    std::fs::remove_file(cluster.path("own")).expect("it ran before");
    cluster.ran("own");
}

#[test]
fn an_operator_who_authenticated_changes_the_command_of_a_protected_job() {
    let cluster = Cluster::new(Some("ops:s&cret%41"));
    let _process = cluster.agent("", "log");
    // Without the digest, the job cannot even be read.
    let file = cluster.file("other.yaml", "other", "", "");
    assert!(!cluster.store(&file, None).status.success());
    let stored = cluster.store(&file, cluster.digest);
    assert!(stored.status.success(), "{}", text(&stored.stderr));
    cluster.ran("other");
}

/// The nodes of a job that was created without a digest stay open to everyone.
#[test]
fn a_digest_does_not_protect_a_job_whose_nodes_are_open() {
    let mut cluster = Cluster::new(None);
    drop(cluster.agent("", "log"));
    cluster.digest = Some("ops:secret");
    let process = agent(&cluster.file("agent.yaml", "own", "", ""), &cluster.path("second"));
    std::fs::remove_file(cluster.path("own")).expect("it ran");
    cluster.ran("own");
    let warned = "other clients can write the nodes of this job, although a digest is configured";
    eventually("it is reported at the start", PATIENCE, || process.log().contains(warned).then_some(()));
    cluster.digest = None;
    assert!(cluster.store(&cluster.file("evil.yaml", "evil", "", ""), None).status.success());
    let refused = "other clients can write this job in the registry";
    eventually("it is refused", PATIENCE, || process.log().contains(refused).then_some(()));
    assert!(!cluster.path("evil").exists());
}

/// Any client can give itself an identity, and be the only one of an access list.
#[test]
fn an_access_list_that_names_another_identity_protects_nothing() {
    let cluster = Cluster::new(Some("ops:secret"));
    let config = format!(
        "{{jobName: job, cron: \"* * * * * ?\", shardingTotalCount: 1, props: {{script.command.line: touch {}}}}}",
        cluster.path("evil").display()
    );
    let mut script = String::from("addauth digest evil:evil\ncreate /doors 'x' world:anyone:cdrwa\n");
    script.push_str("create /doors/job 'SCRIPT' world:anyone:r,auth::cdrwa\n");
    script.push_str(&format!("create /doors/job/config '{config}' world:anyone:r,auth::cdrwa\n"));
    for node in [
        "instances",
        "servers",
        "sharding",
        "trigger",
        "leader",
        "leader/election",
        "leader/sharding",
        "leader/failover",
    ] {
        script.push_str(&format!("create /doors/job/{node} 'x' world:anyone:cdrwa\n"));
    }
    let created = cluster.zookeeper.script(&script);
    assert!(created.contains("Created /doors/job/leader/failover"), "{created}");
    let process = agent(&cluster.file("agent.yaml", "own", "", ""), &cluster.path("log"));
    let refused = "other clients can write this job in the registry";
    eventually("it is refused", PATIENCE, || process.log().contains(refused).then_some(()));
    assert!(!cluster.path("evil").exists(), "{}", process.log());
}

/// A folder for an embedded registry with a job file; gives the folder and the file.
fn embedded() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.yaml");
    let job = "    job:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n      props: { script.command.line: 'true' }\n";
    std::fs::write(&file, format!("elasticjob:\n  jobs:\n{job}")).expect("a file");
    (folder, file)
}

fn refused(folder: &Path, said: &str) {
    let found = output(&["agent", "jobs.yaml"], folder);
    let (code, log) = (found.status.code(), text(&found.stderr));
    assert_eq!(code, Some(1), "{said}: {log}");
    assert!(log.contains(said), "{said}: {log}");
}

#[test]
fn a_registry_file_that_another_user_controls_is_refused_with_the_reason() {
    let (folder, _) = embedded();
    let (path, database) = (folder.path(), folder.path().join("elasticjob.db"));
    set_mode(path, 0o777);
    refused(
        path,
        &format!("every user can write its folder {0}, and so replace the file; run: chmod go-w {0}", path.display()),
    );
    set_mode(path, 0o700);
    symlink(path.join("elsewhere.db"), &database).expect("a link");
    refused(path, "it is a symbolic link; name the file to which it points");
    assert!(!path.join("elsewhere.db").exists());
    std::fs::remove_file(&database).expect("a link");
    // A file that this agent created is one that it trusts.
    let process = agent(&path.join("jobs.yaml"), &path.join("log"));
    eventually("it runs", PATIENCE, || process.log().contains("owns items").then_some(()));
    drop(process);
    set_mode(&database, 0o666);
    refused(path, &format!("every user can write it; run: chmod go-w {}", database.display()));
    set_mode(&database, 0o600);
    if !is_root() {
        return;
    }
    // In a folder such as /tmp, another user was first.
    set_mode(path, 0o1777);
    chown(&database, Some(NOBODY), None).expect("root may");
    refused(path, "belongs to user `nobody`, who could decide what user `root` executes");
    chown(&database, Some(0), None).expect("root may");
    set_mode(path, 0o700);
    chown(path, Some(NOBODY), None).expect("root may");
    refused(path, &format!("its folder {} belongs to user `nobody`", path.display()));
}

/// Runs a program of Python as another user.
fn as_nobody(program: &str) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", program]);
    command.output().expect("setpriv")
}

#[test]
fn the_socket_of_a_registry_serves_no_other_user_whatever_its_mode() {
    if !is_root() {
        return;
    }
    let (folder, file) = embedded();
    let process = agent(&file, &folder.path().join("log"));
    eventually("it runs", PATIENCE, || process.log().contains("owns items").then_some(()));
    let socket = folder.path().join("elasticjob.db.sock");
    set_mode(folder.path(), 0o755);
    set_mode(&socket, 0o666);
    let program = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{}')\ns.settimeout(30)\nprint(len(s.recv(100)))",
        socket.display()
    );
    let found = as_nobody(&program);
    assert_eq!(text(&found.stdout).trim(), "0", "{}", text(&found.stderr));
    eventually("it is logged", PATIENCE, || process.log().contains("that runs as another user").then_some(()));
    let list = output(&["job", "list"], folder.path());
    assert!(text(&list.stdout).contains("job"), "{}", text(&list.stderr));
}

#[test]
fn a_script_does_not_inherit_the_secrets_of_its_agent_unless_the_job_passes_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = |name: &str, more: &str| {
        format!(
            "    {name}:\n      elasticJobType: SCRIPT\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n      props:\n        script.command.line: sh -c 'env > {name}.new; mv {name}.new {name}.env'\n{more}"
        )
    };
    let passes = "        elasticjob.script.environment: DB_PASSWORD, ELASTICJOB_DIGEST\n";
    let file = format!(
        "elasticjob:\n  tracing:\n    dataSource:\n      url: sqlite://trace.db\n      password: ${{DB_PASSWORD}}\n  jobs:\n{}{}",
        job("plain", "        other: ${REGION}\n"),
        job("passes", passes)
    );
    std::fs::write(folder.path().join("jobs.yaml"), file).expect("a file");
    let secrets = [
        ("ELASTICJOB_DIGEST", "ops:one"),
        ("ELASTICJOB_DATABASE_PASSWORD", "two"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=three"),
        ("DB_PASSWORD", "four"),
    ];
    let mut command = command();
    command.args(["agent", "jobs.yaml"]).current_dir(folder.path()).envs(secrets).env("REGION", "north");
    let process = Process::start(command, &folder.path().join("log"));
    let names = |job: &str| {
        let path = folder.path().join(format!("{job}.env"));
        let found = eventually(&format!("{job} ran"), PATIENCE, || std::fs::read_to_string(&path).ok());
        let of = |line: &str| Some(line.split_once('=')?.0.to_owned());
        found.lines().filter_map(of).collect::<std::collections::BTreeSet<_>>()
    };
    let (plain, passed) = (names("plain"), names("passes"));
    for name in ["REGION", "PATH", "ELASTICJOB_JOB_NAME"] {
        assert!(plain.contains(name), "{name}: {plain:?}");
    }
    for (name, _) in secrets {
        let is_passed = matches!(name, "DB_PASSWORD" | "ELASTICJOB_DIGEST");
        assert_eq!((plain.contains(name), passed.contains(name)), (false, is_passed), "{name}");
    }
    let said = "scripts do not inherit the environment variables from which the file reads secrets: DB_PASSWORD;";
    assert!(process.log().contains(said), "{}", process.log());
    for (_, secret) in secrets {
        assert!(!process.log().contains(secret), "{secret}: {}", process.log());
    }
}

#[test]
fn neither_the_help_nor_a_wrong_address_shows_a_digest_and_one_in_the_command_line_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str], address: &str| {
        let mut command = command();
        command.args(arguments).current_dir(folder.path()).env("ELASTICJOB_REGISTRY", address);
        let found = command.output().expect("the binary runs");
        text(&found.stdout) + &text(&found.stderr)
    };
    let address = "zookeeper://h:1/ns?digest=ops:sesame&unknown=1";
    let help = run(&["job", "list", "--help"], address);
    assert!(help.contains("ELASTICJOB_REGISTRY") && !help.contains("sesame"), "{help}");
    let wrong = run(&["job", "list"], address);
    assert!(wrong.contains("unknown setting `unknown`") && !wrong.contains("sesame"), "{wrong}");
    let warning = "other users of this host can read the digest in the command line; set ELASTICJOB_DIGEST instead";
    assert!(!wrong.contains(warning), "{wrong}");
    let warned = run(&["--registry", address, "job", "list"], "");
    assert!(warned.contains(warning) && !warned.contains("sesame"), "{warned}");
}
