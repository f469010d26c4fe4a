//! The ZooKeeper server of the comparison, and what it counts.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use elasticjob_tests::{Process, free_port};

use crate::clock;

/// A server of its own for one row, so that no row meets what another one has left.
pub(crate) struct ZooKeeper {
    process: Process,
    port: u16,
    /// How often its counters were asked for.
    looks: AtomicU64,
}

/// Whether a commit waits for the disk, as ZooKeeper does by default, or for the operating system only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Disk,
    Memory,
}

impl ZooKeeper {
    pub(crate) fn start(folder: &Path, sync: Sync) -> anyhow::Result<ZooKeeper> {
        let port = free_port();
        let data = folder.join("zookeeper");
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir_all(&data)?;
        let config = folder.join("zoo.cfg");
        std::fs::write(
            &config,
            format!(
                "tickTime=500\nmaxSessionTimeout=60000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
                 admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
                data.display()
            ),
        )?;
        let mut command = Command::new("java");
        command.args([
            "-Xmx2g",
            if sync == Sync::Disk { "-Dzookeeper.forceSync=yes" } else { "-Dzookeeper.forceSync=no" },
        ]);
        command.args(["-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/*"]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&config);
        let server = ZooKeeper {
            process: Process::start(command, &folder.join("zookeeper.log")),
            port,
            looks: AtomicU64::new(0),
        };
        for _ in 0..600 {
            if server.says("ruok").is_ok_and(|answer| answer == "imok") {
                return Ok(server);
            }
            clock::pause(Duration::from_millis(100));
        }
        bail!("ZooKeeper does not answer")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn says(&self, word: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What it counts, by its own names.
    pub(crate) fn counters(&self) -> anyhow::Result<HashMap<String, u64>> {
        let answer = self.says("mntr")?;
        self.looks.fetch_add(1, Ordering::Relaxed);
        let pairs = answer.lines().filter_map(|line| {
            let (name, value) = line.split_once('\t')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Ok(pairs.collect())
    }

    /// Packets that it has received from its clients. The questions for this number are packets too, and taken off.
    pub(crate) fn requests(&self) -> anyhow::Result<u64> {
        let packets = self.counters()?.get("zk_packets_received").copied();
        Ok(packets.context("the server does not count packets")?.saturating_sub(self.looks.load(Ordering::Relaxed)))
    }
}
