//! Three ZooKeeper servers, each on a host of its own, with a disk of its own that can be full.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::network::{self, Network, address};
use crate::process::Process;
use crate::wait::eventually;
use crate::zookeeper;

const PATIENCE: Duration = Duration::from_secs(90);
/// What the disk of a server holds, in megabytes.
const DISK: u32 = 512;
/// A server that has ended by itself so often in a row cannot start with its data.
const FAILURES: u32 = 3;
/// What folders are called that were set aside.
pub(crate) const DAMAGED: &str = "damaged";

/// The servers, on the hosts 1, 2 and 3.
#[derive(Debug)]
pub(super) struct Keepers {
    servers: Vec<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    host: u8,
    folder: PathBuf,
    process: Option<Process>,
    starts: u32,
    /// How often in a row it has ended by itself with room on its disk.
    failures: u32,
    /// How often its data was set aside.
    damaged: u32,
}

impl Keepers {
    /// Starts three and waits until they have a leader.
    ///
    /// # Panics
    ///
    /// When they have none.
    pub(super) fn start(network: &Network, folder: &Path) -> Keepers {
        let server = |host: u8| format!("server.{host}={}:2888:3888\n", address(host));
        let all: String = (1..=3).map(server).collect();
        let mut keepers = Keepers { servers: Vec::new() };
        for host in 1..=3 {
            let folder = folder.join(format!("keeper-{host}"));
            std::fs::create_dir_all(folder.join("disk")).expect("a folder");
            mount(&folder.join("disk"));
            keepers.servers.push(Keeper {
                host,
                folder: folder.clone(),
                process: None,
                starts: 0,
                failures: 0,
                damaged: 0,
            });
            let more = format!("initLimit=20\nsyncLimit=5\n{all}");
            zookeeper::write_config(&folder, "disk", 2181, &more);
            std::fs::write(folder.join("disk/myid"), host.to_string()).expect("a file");
        }
        (1..=3).for_each(|host| keepers.launch(network, host));
        eventually("the servers have a leader and two followers", PATIENCE, || {
            keepers.are_whole(network).then_some(())
        });
        keepers
    }

    /// Where clients find them.
    pub(super) fn addresses(&self) -> String {
        (1..=3).map(|host| format!("{}:2181", address(host))).collect::<Vec<_>>().join(",")
    }

    /// The folders with their transaction logs, those that were set aside too.
    pub(super) fn transaction_logs(&self) -> Vec<PathBuf> {
        let of = |server: &Keeper| {
            let folder = server.folder.join("disk");
            let aside = (1..=server.damaged).map(|number| format!("{DAMAGED}-{number}"));
            aside.chain(["version-2".to_owned()]).map(|name| folder.join(name)).collect::<Vec<_>>()
        };
        self.servers.iter().flat_map(of).collect()
    }

    /// How often a server started with an empty log, since a full disk had damaged its log.
    pub(super) fn damaged(&self) -> u32 {
        self.servers.iter().map(|server| server.damaged).sum()
    }

    /// Starts one, with its data.
    pub(super) fn launch(&mut self, network: &Network, host: u8) {
        let server = &mut self.servers[usize::from(host) - 1];
        server.starts += 1;
        // Files that grow by little, and elections that do not wait for who is cut off.
        let small = ["-Dzookeeper.preAllocSize=512", "-Dzookeeper.cnxTimeout=1000"];
        let mut command = zookeeper::java(&server.folder, &small);
        command = network.on(host, &command);
        server.process = Some(Process::start(command, &server.folder.join(format!("log-{}", server.starts))));
    }

    /// Kills one.
    pub(super) fn kill(&mut self, host: u8) {
        let server = self.server(host);
        server.process = None;
        server.failures = 0;
    }

    /// Sends one a signal.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub(super) fn signal(&mut self, host: u8, name: &str) {
        let process = self.server(host).process.as_mut().expect("it was started");
        if process.is_running() {
            process.signal(name);
        }
    }

    /// Fills a server's disk to the last byte.
    pub(super) fn fill(&mut self, host: u8) {
        let mut filler = std::fs::File::create(self.filler(host)).expect("a file");
        let block = vec![0_u8; 64 << 10];
        while filler.write_all(&block).is_ok() {}
        while filler.write_all(&block[..1]).is_ok() {}
    }

    /// Makes room again.
    ///
    /// # Panics
    ///
    /// When it was not full.
    pub(super) fn make_room(&mut self, host: u8) {
        std::fs::remove_file(self.filler(host)).expect("a full disk");
    }

    /// Starts those that have ended by themselves, as on a full disk. ZooKeeper cannot start with a log that a full disk has
    /// damaged: as an operator does, its data is set aside where the other two serve, and it has theirs.
    pub(super) fn revive(&mut self, network: &Network) {
        for host in 1..=3 {
            let is_full = self.filler(host).exists();
            let server = self.server(host);
            if is_full || server.process.as_mut().is_none_or(|process| process.is_running()) {
                continue;
            }
            server.failures += 1;
            if server.failures >= FAILURES && self.others_serve(network, host) {
                self.set_aside(host);
            }
            self.launch(network, host);
        }
    }

    fn others_serve(&self, network: &Network, host: u8) -> bool {
        let modes: Vec<String> = (1..=3).filter(|other| *other != host).map(|other| mode(network, other)).collect();
        ["leader", "follower"].iter().all(|mode| modes.iter().any(|m| m.contains(&format!("Mode: {mode}"))))
    }

    fn set_aside(&mut self, host: u8) {
        let server = self.server(host);
        server.failures = 0;
        server.damaged += 1;
        let disk = server.folder.join("disk");
        let aside = disk.join(format!("{DAMAGED}-{}", server.damaged));
        std::fs::rename(disk.join("version-2"), aside).expect("a folder with data");
    }

    /// Leaves a server what a full disk may leave: a log with the beginning of a record, and what stands behind it is none.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub(super) fn damage(&mut self, host: u8) {
        let header = [b"ZKLG".as_slice(), &2_u32.to_be_bytes(), &[0; 8]].concat();
        let record = [7_u64.to_be_bytes().as_slice(), &4_290_078_u32.to_be_bytes(), b"no record"].concat();
        let log = self.server(host).folder.join("disk/version-2/log.100000001");
        std::fs::write(log, [header, record].concat()).expect("a log");
    }

    /// Whether all serve, under one leader.
    pub(super) fn are_whole(&self, network: &Network) -> bool {
        let modes: Vec<String> = self.servers.iter().map(|server| mode(network, server.host)).collect();
        let count = |mode: &str| modes.iter().filter(|m| m.contains(&format!("Mode: {mode}"))).count();
        count("leader") == 1 && count("follower") == 2
    }

    fn filler(&self, host: u8) -> PathBuf {
        self.servers[usize::from(host) - 1].folder.join("disk/filler")
    }

    fn server(&mut self, host: u8) -> &mut Keeper {
        &mut self.servers[usize::from(host) - 1]
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            server.process = None;
            let _ = Command::new("umount").arg("--lazy").arg(server.folder.join("disk")).output();
        }
    }
}

/// What a server says of itself, asked on its own host.
fn mode(network: &Network, host: u8) -> String {
    let mut ask = Command::new("timeout");
    ask.args(["2", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && cat <&3"]);
    let answer = network.on(host, &ask).output();
    answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
}

fn mount(folder: &Path) {
    let size = format!("size={DISK}m");
    network::run("mount", &["-t", "tmpfs", "-o", &size, &network::disk(), folder.to_str().expect("UTF-8")]);
}
