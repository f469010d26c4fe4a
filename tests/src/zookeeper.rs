//! Real ZooKeeper servers, alone or three together.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::Process;
use crate::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(60);
/// Only clients on this host are served.
const LOCAL: &str = "clientPortAddress=127.0.0.1\n";

/// A port that is free at the moment.
///
/// # Panics
///
/// When the host has none.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

/// One server.
#[derive(Debug)]
pub struct ZooKeeper {
    process: Option<Process>,
    folder: PathBuf,
    port: u16,
    /// Options of its JVM.
    settings: Vec<String>,
    /// Holds the folder; shared by the servers of an ensemble.
    _data: Option<tempfile::TempDir>,
}

impl ZooKeeper {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn start() -> ZooKeeper {
        ZooKeeper::start_at(free_port())
    }

    /// Starts one on that port.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub fn start_at(port: u16) -> ZooKeeper {
        ZooKeeper::start_with(port, "")
    }

    /// Starts one with further lines in its configuration.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub fn start_with(port: u16, lines: &str) -> ZooKeeper {
        let data = tempfile::tempdir().expect("a folder");
        let folder = data.path().to_owned();
        write_config(&folder, "data", port, &format!("{LOCAL}{lines}"));
        let mut server = ZooKeeper { process: None, folder, port, settings: Vec::new(), _data: Some(data) };
        server.restart();
        server
    }

    /// Starts one with these options of its JVM.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub fn start_with_options(options: &[&str]) -> ZooKeeper {
        let mut server = ZooKeeper::start();
        server.settings = options.iter().map(|option| (*option).to_owned()).collect();
        server.kill();
        server.restart();
        server
    }

    /// Starts it again, with its data.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub fn restart(&mut self) {
        self.launch();
        eventually("ZooKeeper answers", PATIENCE, || self.says("ruok").filter(|a| a == "imok"));
    }

    fn launch(&mut self) {
        self.process = Some(Process::start(
            java(&self.folder, &self.settings.iter().map(String::as_str).collect::<Vec<_>>()),
            &self.folder.join("log"),
        ));
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The folder with its transaction logs.
    pub fn transaction_logs(&self) -> PathBuf {
        self.folder.join("data/version-2")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Gives a node that list of rights, with ZooKeeper's own shell.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn set_acl(&self, path: &str, acl: &str) {
        self.shell(&["setAcl", path, acl]);
    }

    /// Runs a command of ZooKeeper's own shell.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn shell(&self, arguments: &[&str]) {
        let mut shell = Command::new("java");
        shell.args(["-XX:TieredStopAtLevel=1", "-cp", CLASS_PATH, "org.apache.zookeeper.ZooKeeperMain"]);
        shell.args(["-server", &self.address()]).args(arguments);
        let shell = shell.output().expect("java runs");
        assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    }

    /// Runs several commands in one session of ZooKeeper's own shell, and returns what it printed.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn script(&self, commands: &str) -> String {
        let mut shell = Command::new("java");
        shell.args(["-XX:TieredStopAtLevel=1", "-cp", CLASS_PATH, "org.apache.zookeeper.ZooKeeperMain"]);
        shell.args(["-waitforconnection", "-server", &self.address()]);
        let mut shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("java runs");
        shell.stdin.take().expect("its input").write_all(commands.as_bytes()).expect("it reads");
        let ended = shell.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned()
    }

    /// Its answer to one of ZooKeeper's four-letter words.
    pub fn says(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/*";

/// The command of a server with that folder's `zoo.cfg`.
pub(crate) fn java(folder: &Path, settings: &[&str]) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"])
        .args(settings)
        .args(["-cp", CLASS_PATH])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(folder.join("zoo.cfg"));
    command
}

/// Writes `zoo.cfg`, with the data in a folder of that name beside it.
pub(crate) fn write_config(folder: &Path, data: &str, port: u16, more: &str) {
    let data = folder.join(data);
    std::fs::create_dir_all(&data).expect("a folder");
    let config = format!(
        "tickTime=500\nmaxSessionTimeout=60000\ndataDir={}\nclientPort={port}\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n{more}",
        data.display()
    );
    std::fs::write(folder.join("zoo.cfg"), config).expect("a file");
}

/// Three servers.
#[derive(Debug)]
pub struct Ensemble {
    /// The servers.
    pub servers: Vec<ZooKeeper>,
    _data: tempfile::TempDir,
}

impl Ensemble {
    /// Starts three and waits until they have a leader.
    ///
    /// # Panics
    ///
    /// When they have none.
    pub fn start() -> Ensemble {
        let data = tempfile::tempdir().expect("a folder");
        let ports: Vec<[u16; 3]> = (0..3).map(|_| [free_port(), free_port(), free_port()]).collect();
        let lines: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, [_, peer, election])| format!("server.{}=127.0.0.1:{peer}:{election}\n", index + 1))
            .collect();
        let more = format!("{LOCAL}initLimit=20\nsyncLimit=10\n{}", lines.concat());
        let mut servers = Vec::new();
        for (index, [port, ..]) in ports.iter().enumerate() {
            let folder = data.path().join(index.to_string());
            write_config(&folder, "data", *port, &more);
            std::fs::write(folder.join("data/myid"), (index + 1).to_string()).expect("a file");
            let mut server = ZooKeeper { process: None, folder, port: *port, settings: Vec::new(), _data: None };
            server.launch();
            servers.push(server);
        }
        let ensemble = Ensemble { servers, _data: data };
        ensemble.wait_for_leader();
        ensemble
    }

    /// Their addresses.
    pub fn addresses(&self) -> String {
        self.servers.iter().map(ZooKeeper::address).collect::<Vec<_>>().join(",")
    }

    /// Waits for a leader with a follower, and gives its index.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn wait_for_leader(&self) -> usize {
        eventually("the ensemble has a leader", PATIENCE, || self.leader())
    }

    fn leader(&self) -> Option<usize> {
        let mode = |s: &ZooKeeper| s.says("srvr").unwrap_or_default();
        let modes: Vec<String> = self.servers.iter().map(mode).collect();
        modes.iter().any(|m| m.contains("Mode: follower")).then_some(())?;
        modes.iter().position(|m| m.contains("Mode: leader"))
    }

    /// Kills all and starts them again.
    ///
    /// # Panics
    ///
    /// When they find no leader.
    pub fn restart(&mut self) {
        self.servers.iter_mut().for_each(ZooKeeper::kill);
        self.servers.iter_mut().for_each(ZooKeeper::launch);
        self.wait_for_leader();
    }

    /// Starts one again.
    pub fn revive(&mut self, index: usize) {
        self.servers[index].launch();
    }
}
