//! The cluster of one chapter: ZooKeeper's three servers and the agents, each on a host of its own, and what is done to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::faults::{Fault, Kind};
use super::keepers::Keepers;
use super::network::{Cut, Network, address};
use crate::evidence::{Life, Living, Transactions};
use crate::journal::Journal;
use crate::process::{Process, agent_command, command, java_command};
use crate::wait::{eventually, pause, wall_clock_millis, within};

const PATIENCE: Duration = Duration::from_secs(90);
/// The session timeout of all agents, in milliseconds.
pub(super) const SESSION: u16 = 4_000;
/// What a slow link carries.
const SLOW: u32 = 64_000;
/// The servers' hosts come first.
const KEEPERS: u8 = 3;

/// One job of a chapter.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) cron: &'static str,
    /// The seconds between two firings, where they are always the same.
    pub(super) period: u64,
    pub(super) items: u32,
    /// How long a run takes, in milliseconds.
    pub(super) run: u16,
    /// The one item whose runs take so long; the others then take none. Without it all do.
    pub(super) slow: Option<u32>,
    pub(super) failover: bool,
    pub(super) misfire: bool,
    pub(super) monitored: bool,
}

/// Who runs on an agent's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Rust,
    Java,
}

struct Member {
    side: Side,
    /// Its lives; the last one may be going on.
    lives: Vec<Spell>,
}

/// One life of an agent.
struct Spell {
    process: Process,
    log: PathBuf,
    off: i64,
    lives: bool,
    killed: Option<i64>,
}

impl Spell {
    fn kill(&mut self) {
        if self.process.is_running() {
            self.killed = Some(wall_clock_millis());
        }
        self.process.kill();
    }
}

/// Everything of one chapter. It is gone with this value, but for the folder.
pub(super) struct Cluster {
    folder: PathBuf,
    members: Vec<Member>,
    pub(super) jobs: Vec<(Job, Journal)>,
    pub(super) troubles: Vec<(i64, i64)>,
    /// Actions of our agents without a request.
    pub(super) complaints: Vec<String>,
    /// Agents that had not ended when they were to be started again after SIGTERM.
    pub(super) forced: usize,
    // Last, so that what runs there is gone before its hosts are.
    keepers: Keepers,
    network: Network,
}

impl Cluster {
    /// Starts ZooKeeper, and all agents but the last `later`, and waits until they run.
    pub(super) fn start(folder: &Path, sides: &[Side], later: usize, jobs: Vec<Job>) -> Cluster {
        let network = Network::new(KEEPERS + u8::try_from(sides.len()).expect("few"));
        let keepers = Keepers::start(&network, folder);
        let journal = |job: Job| {
            let folder = folder.join(job.name);
            std::fs::create_dir_all(&folder).expect("a folder");
            (job, Journal::new(&folder))
        };
        let jobs: Vec<(Job, Journal)> = jobs.into_iter().map(journal).collect();
        let members = sides.iter().map(|side| Member { side: *side, lives: Vec::new() }).collect();
        let (troubles, complaints, forced) = (Vec::new(), Vec::new(), 0);
        let mut cluster =
            Cluster { folder: folder.to_owned(), members, jobs, troubles, complaints, forced, keepers, network };
        std::fs::write(cluster.file(), cluster.yaml()).expect("a file");
        // Java first: a file of ours has what Java stores.
        let present = &sides[..sides.len() - later];
        let order = |side: Side| (0..present.len()).filter(move |i| present[*i] == side);
        order(Side::Java).chain(order(Side::Rust)).for_each(|member| cluster.join(member));
        cluster.all_run(wall_clock_millis(), true).expect("a cluster to begin with");
        cluster
    }

    /// Starts an agent, and waits until it has joined.
    pub(super) fn join(&mut self, member: usize) {
        self.launch(member, 0);
        let word = if self.members[member].side == Side::Java { "started" } else { "INFO joined" };
        let log = self.life(member).log.clone();
        let says = || std::fs::read_to_string(&log).unwrap_or_default().contains(word).then_some(());
        eventually("the agent is up", PATIENCE, says);
    }

    /// Kills an agent, as `kill -9` does, or asks it to stop.
    pub(super) fn leave(&mut self, member: usize, clean: bool) {
        self.end_life(member, clean);
    }

    /// Sends an agent a signal.
    pub(super) fn signal(&mut self, member: usize, name: &str) {
        let life = self.life(member);
        // One that has ended by itself is looked after when its life is over.
        if life.process.is_running() {
            life.process.signal(name);
        }
    }

    /// Runs one of our commands on a host of ZooKeeper's, as an operator does.
    pub(super) fn operations(&self, arguments: &[&str]) {
        let registry = format!("zookeeper://{}/rig", self.keepers.addresses());
        let mut command = command();
        command.args(["--registry", &registry]).args(arguments);
        let output = self.network.on(1, &command).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The address of an agent's host.
    pub(super) fn address(&self, member: usize) -> String {
        address(Self::host(member))
    }

    /// The process of an agent.
    pub(super) fn pid(&self, member: usize) -> u32 {
        self.members[member].lives.last().expect("it was started").process.pid()
    }

    fn file(&self) -> PathBuf {
        self.folder.join("jobs.yaml")
    }

    fn yaml(&self) -> String {
        let mut text = format!(
            "elasticjob:\n  regCenter:\n    serverLists: {}\n    namespace: rig\n    sessionTimeoutMilliseconds: {SESSION}\n  \
             jobs:\n",
            self.keepers.addresses()
        );
        for (job, journal) in &self.jobs {
            let seconds = (f64::from(job.run) / 1_000.0).to_string();
            let seconds = job.slow.map_or(seconds.clone(), |item| format!("{seconds}@{item}"));
            text += &format!(
                "    {}:\n      elasticJobType: SCRIPT\n      cron: '{}'\n      shardingTotalCount: {}\n      failover: {}\n      \
                 misfire: {}\n      monitorExecution: {}\n      props:\n        script.command.line: {}\n",
                job.name,
                job.cron,
                job.items,
                job.failover,
                job.misfire,
                job.monitored,
                journal.command(&seconds)
            );
        }
        text
    }

    fn host(member: usize) -> u8 {
        KEEPERS + 1 + u8::try_from(member).expect("few")
    }

    fn launch(&mut self, member: usize, off: i64) {
        let log = self.folder.join(format!("agent-{member}-{}", self.members[member].lives.len()));
        let file = self.file();
        let command = match self.members[member].side {
            Side::Rust => agent_command(&file, off),
            Side::Java => java_command(&["agent", file.to_str().expect("UTF-8")]),
        };
        let process = Process::start(self.network.on(Self::host(member), &command), &log);
        self.members[member].lives.push(Spell { process, log, off, lives: true, killed: None });
    }

    fn life(&mut self, member: usize) -> &mut Spell {
        self.members[member].lives.last_mut().expect("it was started")
    }

    /// Ends a life; one that had ended before nobody asked for, and that is a fault of its own.
    fn end_life(&mut self, member: usize, clean: bool) {
        self.look_after(member);
        let life = self.life(member);
        if clean && life.lives {
            life.process.signal("TERM");
            life.process.ends_within(Duration::from_secs(6));
        }
        life.kill();
        life.lives = false;
    }

    /// Notes when an agent of ours has ended by itself, or panicked.
    pub(super) fn look_after(&mut self, member: usize) {
        let side = self.members[member].side;
        let life = self.life(member);
        if side == Side::Java || !life.lives {
            return;
        }
        let (ended, log) = (!life.process.is_running(), life.log.clone());
        let panicked = std::fs::read_to_string(&log).unwrap_or_default().contains("panicked");
        if ended || panicked {
            let what = if ended { "ended by itself" } else { "panicked" };
            self.complaints.push(format!("an agent of ours {what}: {}", log.display()));
        }
    }

    /// Something goes wrong.
    pub(super) fn begin(&mut self, fault: Fault) {
        let (member, keeper) = (usize::from(fault.target), fault.target + 1);
        let host = if fault.kind.is_keeper_s() { keeper } else { Self::host(member) };
        match fault.kind {
            Kind::Kill => self.end_life(member, false),
            Kind::Stop => {
                self.look_after(member);
                self.signal(member, "TERM");
                self.life(member).lives = false;
            }
            Kind::Pause => self.signal(member, "STOP"),
            Kind::Slow | Kind::KeeperSlow => self.network.slow(host, SLOW),
            Kind::Clock => {
                self.end_life(member, false);
                self.launch(member, fault.off);
            }
            Kind::KeeperKill => self.keepers.kill(keeper),
            Kind::KeeperPause => self.keepers.signal(keeper, "STOP"),
            Kind::DiskFull => self.keepers.fill(keeper),
            Kind::Outage => (1..=KEEPERS).for_each(|keeper| self.keepers.kill(keeper)),
            Kind::Cut | Kind::Deaf | Kind::Mute | Kind::Flap | Kind::KeeperCut | Kind::KeeperDeaf => {
                self.cut(fault, true)
            }
        }
    }

    /// Cuts what a fault cuts, or mends it.
    pub(super) fn cut(&self, fault: Fault, off: bool) {
        let keeper = fault.target + 1;
        let host = if fault.kind.is_keeper_s() { keeper } else { Self::host(usize::from(fault.target)) };
        let cuts = match fault.kind {
            Kind::Deaf => vec![Cut::To(host)],
            Kind::Mute => vec![Cut::From(host)],
            Kind::KeeperDeaf => {
                (1..=KEEPERS).filter(|from| *from != host).map(|from| Cut::Between(from, host)).collect()
            }
            _ => vec![Cut::From(host), Cut::To(host)],
        };
        cuts.into_iter().for_each(|cut| self.network.set(cut, off));
    }

    /// It is well again.
    pub(super) fn end(&mut self, fault: Fault) {
        let (member, keeper) = (usize::from(fault.target), fault.target + 1);
        let host = if fault.kind.is_keeper_s() { keeper } else { Self::host(member) };
        match fault.kind {
            Kind::Kill => self.launch(member, 0),
            Kind::Stop => {
                let life = self.life(member);
                if life.process.is_running() {
                    life.kill();
                    self.forced += 1;
                }
                self.launch(member, 0);
            }
            Kind::Pause => self.signal(member, "CONT"),
            Kind::Slow | Kind::KeeperSlow => self.network.quicken(host),
            Kind::Clock => {
                self.end_life(member, false);
                self.launch(member, 0);
            }
            Kind::KeeperKill => self.keepers.launch(&self.network, keeper),
            Kind::KeeperPause => self.keepers.signal(keeper, "CONT"),
            // It is started again by `wait_for_keepers`, if it is dying only now.
            Kind::DiskFull => {
                self.keepers.make_room(keeper);
                self.keepers.revive(&self.network);
            }
            Kind::Outage => (1..=KEEPERS).for_each(|keeper| self.keepers.launch(&self.network, keeper)),
            Kind::Cut | Kind::Deaf | Kind::Mute | Kind::Flap | Kind::KeeperCut | Kind::KeeperDeaf => {
                self.cut(fault, false)
            }
        }
    }

    /// Whether each agent of a side runs items of each job within the common time limit.
    pub(super) fn all_run(&self, from: i64, java_too: bool) -> Result<(), String> {
        let is_asked = |member: &&Member| member.side == Side::Rust || java_too;
        let members = self.members.iter().filter(is_asked);
        let wanted: Vec<u32> = members.filter_map(|m| Some(m.lives.last()?.process.pid())).collect();
        for (job, journal) in &self.jobs {
            let ran = || {
                let runs = journal.runs();
                let later = |pid: u32| runs.iter().any(|run| run.start > from && run.pid == pid);
                wanted.iter().all(|pid| later(*pid)).then_some(())
            };
            within(PATIENCE, ran)
                .ok_or_else(|| format!("not every agent runs items of job {} within {PATIENCE:?}", job.name))?;
        }
        Ok(())
    }

    /// Starts ZooKeeper's servers that have ended by themselves.
    pub(super) fn revive_keepers(&mut self) {
        self.keepers.revive(&self.network);
    }

    /// How often a ZooKeeper server started with an empty log.
    pub(super) fn damaged_keepers(&self) -> usize {
        usize::try_from(self.keepers.damaged()).unwrap_or_default()
    }

    /// Waits until ZooKeeper's servers are whole; gives when that was.
    pub(super) fn keepers_whole(&mut self) -> Result<i64, String> {
        let whole = || {
            self.keepers.revive(&self.network);
            self.keepers.are_whole(&self.network).then(wall_clock_millis)
        };
        within(PATIENCE, whole).ok_or_else(|| format!("ZooKeeper's servers are not whole within {PATIENCE:?}"))
    }

    /// How many agents there are.
    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// The evidence of one job.
    pub(super) fn living(&self, index: usize, quiet_from: i64) -> Living<'_> {
        let (job, journal) = &self.jobs[index];
        let ours = self.members.iter().filter(|member| member.side == Side::Rust);
        let life = |spell: &Spell| Life {
            pid: spell.process.pid(),
            log: spell.process.log(),
            lives: spell.lives,
            off: spell.off * 1_000,
            killed: spell.killed,
        };
        let agents: Vec<Life> = ours.flat_map(|member| &member.lives).map(life).collect();
        let java = self.members.iter().filter(|member| member.side == Side::Java);
        let java = java.flat_map(|member| &member.lives).map(|life| life.process.pid()).collect();
        Living {
            namespace: "rig",
            job: job.name,
            end: wall_clock_millis(),
            runs: journal.runs(),
            agents,
            java,
            session_timeout: Duration::from_millis(SESSION.into()),
            run_max: Duration::from_millis(u64::from(job.run) + 1_000),
            troubles: self.troubles.clone(),
            quiet_from,
        }
    }

    /// The transactions that the ensemble committed.
    pub(super) fn transactions(&self) -> Transactions {
        Transactions::read(&self.keepers.transaction_logs())
    }

    /// The agents' processes of Java that are up.
    pub(super) fn java(&self) -> Vec<u32> {
        let java = self.members.iter().filter(|member| member.side == Side::Java);
        java.filter_map(|member| member.lives.last()).filter(|life| life.lives).map(|life| life.process.pid()).collect()
    }

    /// Keeps the servers' logs beside the rest, for who looks into it.
    pub(super) fn keep(&self) {
        for (index, logs) in self.keepers.transaction_logs().iter().enumerate() {
            let to = self.folder.join(format!("transactions-{}", index + 1));
            let _ = std::process::Command::new("cp").arg("-r").arg(logs).arg(to).output();
        }
    }
}

/// Time passes between two events of a chapter.
pub(super) fn wait_until(millis: i64) {
    let rest = millis - wall_clock_millis();
    if let Ok(rest) = u64::try_from(rest) {
        pause(Duration::from_millis(rest));
    }
}
