//! Real clusters under faults, judged by the oracle that judges simulated ones: on ZooKeeper's own transaction log, the
//! journal of the runs, and the log lines of our agents.

use std::path::PathBuf;
use std::time::Duration;

use elasticjob_sim::oracle;
use elasticjob_tests::{
    Journal, Life, Living, Process, Transactions, ZooKeeper, agent, eventually, java, pause, wall_clock_millis,
};

use crate::{SESSION_MILLIS, job_file};

const PATIENCE: Duration = Duration::from_secs(60);
const ITEMS: u32 = 4;

/// One agent of ours, in one life.
struct Agent {
    process: Process,
    lives: bool,
    killed: Option<i64>,
}

struct Cluster {
    folder: tempfile::TempDir,
    zookeeper: ZooKeeper,
    journal: Journal,
    file: PathBuf,
    agents: Vec<Agent>,
    java: Vec<Process>,
    /// Of all its lives.
    java_pids: std::collections::BTreeSet<u32>,
    troubles: Vec<(i64, i64)>,
}

impl Cluster {
    fn new(failover: bool) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        let zookeeper = ZooKeeper::start();
        let journal = Journal::new(folder.path());
        let more = format!("      cron: '* * * * * ?'\n      failover: {failover}\n");
        let file = job_file(folder.path(), "job", &zookeeper.address(), &journal, ITEMS, "0.3", &more);
        Cluster {
            folder,
            zookeeper,
            journal,
            file,
            agents: Vec::new(),
            java: Vec::new(),
            java_pids: Default::default(),
            troubles: Vec::new(),
        }
    }

    /// Of one life, and no other: an agent's log is evidence for as long as the cluster is judged.
    fn log(&self) -> PathBuf {
        self.folder.path().join(format!("log-{}", self.agents.len() + self.java_pids.len()))
    }

    fn start(&mut self) {
        let process = agent(&self.file, &self.log());
        eventually("the agent has joined", PATIENCE, || process.log().contains("INFO joined").then_some(()));
        self.agents.push(Agent { process, lives: true, killed: None });
    }

    fn start_java(&mut self) {
        let process = java(&["agent", self.file.to_str().expect("UTF-8")], &self.log());
        eventually("Java has started", PATIENCE, || process.log().contains("started 1").then_some(()));
        self.java_pids.insert(process.pid());
        self.java.push(process);
    }

    fn all_run(&self) {
        let now = wall_clock_millis();
        let ours = self.agents.iter().filter(|a| a.lives).map(|a| a.process.pid());
        let wanted: Vec<u32> = ours.chain(self.java.iter().map(Process::pid)).collect();
        eventually("every process runs items", PATIENCE, || {
            let runs = self.journal.runs();
            wanted.iter().all(|pid| runs.iter().any(|r| r.start > now && r.pid == *pid)).then_some(())
        });
    }

    /// Something is wrong while this goes on, and until the sessions that it costs are over.
    fn trouble(&mut self, fault: impl FnOnce(&mut Cluster)) {
        let from = wall_clock_millis();
        fault(self);
        self.troubles.push((from, wall_clock_millis() + i64::try_from(SESSION_MILLIS).expect("small")));
    }

    fn stand_still(&mut self, agent: usize, length: Duration) {
        self.trouble(|cluster| {
            cluster.agents[agent].process.signal("STOP");
            pause(length);
            cluster.agents[agent].process.signal("CONT");
        });
    }

    fn kill(&mut self, agent: usize) {
        self.trouble(|cluster| {
            let agent = &mut cluster.agents[agent];
            agent.killed = Some(wall_clock_millis());
            agent.process.kill();
            agent.lives = false;
        });
    }

    /// Leaves the cluster alone, and asks the oracle.
    fn judge(self, what: &str) {
        let quiet_from = self.troubles.last().map_or_else(wall_clock_millis, |(_, to)| *to);
        pause(Duration::from_secs(22));
        let life =
            |a: &Agent| Life { pid: a.process.pid(), log: a.process.log(), lives: a.lives, off: 0, killed: a.killed };
        let agents = self.agents.iter().map(life).collect();
        let living = Living {
            namespace: "tests",
            job: "shared-job",
            end: wall_clock_millis(),
            runs: self.journal.runs(),
            agents,
            java: self.java_pids.clone(),
            session_timeout: Duration::from_millis(SESSION_MILLIS),
            run_max: Duration::from_millis(800),
            troubles: self.troubles.clone(),
            quiet_from,
        };
        let evidence = living.evidence(&Transactions::read(&[self.zookeeper.transaction_logs()]));
        let taken = evidence.runs.iter().filter(|run| run.source == elasticjob_core::machine::Source::Failover).count();
        let (ran, changes) = (evidence.runs.len(), evidence.history.len());
        assert!(ran > 60 && changes > 300, "{what}: {ran} runs and {changes} changes are too little to judge");
        assert!(evidence.runs.iter().filter(|run| !run.java).all(|run| run.token > 0 && run.session != 0), "{what}");
        assert!(!evidence.told.is_empty(), "{what}: nobody told of a firing that was lost");
        // The oracle finds a run of an instance that never existed.
        let mut doubled = evidence.clone();
        let forged = doubled.runs.iter().find(|run| !run.java && run.end.is_some()).expect("a run").clone();
        doubled.runs.push(elasticjob_sim::Entry { instance: "10.9.9.9@-@1".into(), ..forged });
        assert!(!oracle::judge(&doubled).is_empty(), "{what}: the judge sleeps");
        let violations: Vec<String> = oracle::judge(&evidence).iter().map(ToString::to_string).collect();
        if !violations.is_empty() {
            // The evidence is kept for analysis.
            let folder = self.folder.keep();
            let (runs, folder) = (evidence.runs.len(), folder.display());
            panic!("{what}: {taken} takeovers, {runs} runs, see {folder}\n{}", violations.join("\n"));
        }
    }
}

#[test]
fn three_rust_instances_under_kills_pauses_and_a_restart_of_zookeeper() {
    for failover in [true, false] {
        let mut cluster = Cluster::new(failover);
        (0..3).for_each(|_| cluster.start());
        cluster.all_run();
        cluster.kill(0);
        pause(Duration::from_secs(2));
        cluster.start();
        cluster.stand_still(1, Duration::from_secs(6));
        cluster.all_run();
        cluster.trouble(|cluster| {
            cluster.zookeeper.kill();
            pause(Duration::from_secs(2));
            cluster.zookeeper.restart();
        });
        cluster.all_run();
        cluster.stand_still(2, Duration::from_millis(2_500));
        cluster.judge(&format!("failover {failover}"));
    }
}

#[test]
fn two_rust_instances_and_a_java_one_under_kills_and_pauses() {
    let mut cluster = Cluster::new(true);
    cluster.start_java();
    cluster.start();
    cluster.start();
    cluster.all_run();
    cluster.stand_still(0, Duration::from_secs(6));
    cluster.all_run();
    cluster.trouble(|cluster| cluster.java[0].kill());
    cluster.java.clear();
    pause(Duration::from_secs(5));
    cluster.start_java();
    cluster.all_run();
    cluster.kill(1);
    cluster.judge("mixed");
}
