//! The evidence of a real cluster, for the oracle that judges simulated ones: ZooKeeper's transaction logs, the journal
//! that the jobs' script writes, and the log lines of our agents.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use elasticjob_core::machine::{JobEvent, Source};
use elasticjob_core::path::{JobPath, Place};
use elasticjob_core::ranges;
use elasticjob_core::time::Timestamp;
use elasticjob_sim::{Change, Entry, Evidence, Terms, Told, What};

use crate::journal::Run;
use crate::process::{java_output, java_said};
use crate::rig::keepers::DAMAGED;
use crate::transactions::{CarriedOut, Log, carried_out};

/// A cluster that is to be judged.
#[derive(Debug)]
pub struct Living<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The job.
    pub job: &'a str,
    /// When the rest was collected, in milliseconds since the epoch: what the servers' logs have of later does not count, since
    /// their outcome is unknown.
    pub end: i64,
    /// What ran.
    pub runs: Vec<Run>,
    /// The processes of Java's agents.
    pub java: BTreeSet<u32>,
    /// Our agents, each of their lives.
    pub agents: Vec<Life>,
    /// The instances' session timeout.
    pub session_timeout: Duration,
    /// How long a run takes at the most.
    pub run_max: Duration,
    /// Faults from their beginnings to their ends, in milliseconds since the epoch.
    pub troubles: Vec<(i64, i64)>,
    /// When the last fault and the sessions that it cost were over.
    pub quiet_from: i64,
}

/// One life of an agent of ours.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its process.
    pub pid: u32,
    /// What it wrote.
    pub log: String,
    /// Whether it goes on.
    pub lives: bool,
    /// By how many milliseconds its clock is off.
    pub off: i64,
    /// When it was killed: one of its scripts may have gone on, and written its end.
    pub killed: Option<i64>,
}

impl Living<'_> {
    /// Everything in one. The servers' logs are to be read after all that is in here was collected.
    ///
    /// # Panics
    ///
    /// When a log is not what the peer writes.
    pub fn evidence(&self, transactions: &Transactions) -> Evidence {
        let path = JobPath::new(self.job);
        let mut history = self.history(&path, transactions);
        history.retain(|change| change.at.0 <= self.end);
        let ours = |life: &Life| self.joined(&life.log);
        let registered = |change: &&Change| matches!(change.what, What::Wrote { .. });
        let prefix = format!("{}/", path.instances());
        let all: BTreeSet<String> = history
            .iter()
            .filter(registered)
            .filter_map(|change| change.path.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect();
        let by_java = |id: &String| id.rsplit("@-@").next()?.parse().ok().filter(|pid| self.java.contains(pid));
        let java: BTreeSet<String> = all.into_iter().filter(|id| by_java(id).is_some()).collect();
        let killed = |run: &Run| self.agents.iter().find(|life| life.pid == run.pid).and_then(|life| life.killed);
        let runs = self
            .runs
            .iter()
            .map(|run| Run { end: run.end.filter(|end| killed(run).is_none_or(|at| *end < at)), ..run.clone() });
        let sessions = Sessions::of(&history, &path);
        let runs = runs.map(|run| entry(&run, &sessions, java.contains(&run.instance))).collect();
        let told = self.agents.iter().flat_map(|life| self.told(life)).collect();
        let living = self.agents.iter().filter(|life| life.lives);
        let up = living.filter_map(|life| Some((self.joined_last(&life.log)?, None))).collect();
        let off = self.agents.iter().filter(|life| life.off != 0).flat_map(ours).collect();
        let moment = |millis: &(i64, i64)| (Timestamp(millis.0), Timestamp(millis.1));
        Evidence {
            path,
            terms: Terms {
                session_timeout: self.session_timeout,
                // A loaded machine, and servers that forget a follower for a moment.
                round_trip: Duration::from_secs(2),
                run_max: self.run_max,
                stepped_back: false,
                clock_error: self.clock_error(),
                quiet_from: Timestamp(self.quiet_from),
                end: Timestamp(self.end),
                is_at_rest: true,
            },
            history,
            runs,
            told,
            longest_rows: BTreeMap::new(),
            java,
            off,
            up,
            expired: BTreeSet::new(),
            troubles: self.troubles.iter().map(moment).collect(),
            stuck: Vec::new(),
        }
    }

    /// The registry's history below the job.
    fn history(&self, path: &JobPath, Transactions(transactions): &Transactions) -> Vec<Change> {
        let mut owners: BTreeMap<String, u64> = BTreeMap::new();
        let mut history = Vec::new();
        let namespace = format!("/{}", self.namespace);
        for (zxid, lines) in &transactions.log {
            let zxid = *zxid;
            for line in lines {
                let fields: Vec<&str> = line.split('\t').collect();
                let [at, session, what, node, data, ephemeral] = fields.as_slice() else { panic!("{line}") };
                let at = Timestamp(at.parse().expect("a time"));
                let session = u64::from_str_radix(session, 16).expect("a session");
                let mut push =
                    |session: u64, path: String, what: What| history.push(Change { at, zxid, session, path, what });
                if *what == "none" {
                    continue;
                }
                if *what == "end" {
                    let gone: Vec<String> =
                        owners.iter().filter(|(_, owner)| **owner == session).map(|(p, _)| p.clone()).collect();
                    for path in gone {
                        owners.remove(&path);
                        push(session, path, What::Deleted);
                    }
                    push(session, String::new(), What::SessionEnded);
                    continue;
                }
                let Some(node) = node.strip_prefix(&namespace).filter(|n| n.starts_with(path.root())) else { continue };
                let data = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
                match *what {
                    "write" => {
                        let owner = if *ephemeral == "1" { session } else { 0 };
                        if owner != 0 {
                            owners.insert(node.to_owned(), owner);
                        }
                        push(session, node.to_owned(), What::Wrote { data: data.into(), owner });
                    }
                    "set" => {
                        let owner = owners.get(node).copied().unwrap_or_default();
                        push(session, node.to_owned(), What::Wrote { data: data.into(), owner });
                    }
                    "delete" => {
                        owners.remove(node);
                        push(session, node.to_owned(), What::Deleted);
                    }
                    _ => panic!("{line}"),
                }
            }
        }
        history
    }

    fn clock_error(&self) -> Duration {
        let most = self.agents.iter().map(|life| life.off.unsigned_abs()).max().unwrap_or_default();
        Duration::from_millis(most)
    }

    fn lines<'l>(&self, log: &'l str) -> impl Iterator<Item = (Timestamp, &'l str)> {
        let job = format!("job=\"{}\"", self.job);
        log.lines().filter(move |line| line.contains(&job)).filter_map(|line| {
            let (time, rest) = line.split_once(' ')?;
            let at: jiff::Timestamp = time.parse().ok()?;
            Some((Timestamp(at.as_millisecond()), rest))
        })
    }

    fn joined(&self, log: &str) -> BTreeSet<String> {
        self.lines(log).filter_map(|(_, line)| joined_as(line)).collect()
    }

    fn joined_last(&self, log: &str) -> Option<String> {
        self.lines(log).filter_map(|(_, line)| joined_as(line)).last()
    }

    /// What an agent said of firings that it does not begin.
    fn told(&self, life: &Life) -> Vec<Told> {
        let instance = self.joined_last(&life.log).unwrap_or_default();
        let sentences = sentences();
        let said = |(at, line): (Timestamp, &str)| {
            let at = Timestamp(at.0 - life.off);
            let (_, word) = sentences.iter().find(|(sentence, _)| line.contains(sentence))?;
            let items = field(line, "items")?.strip_prefix('[')?;
            let items = ranges::parse(items.strip_suffix(']')?)?;
            let first = moment(field(line, "due")?)?;
            let last = field(line, "last_due").and_then(moment).unwrap_or(first);
            Some(Told { at, instance: instance.clone(), items, first, last, word })
        };
        self.lines(&life.log).filter_map(said).collect()
    }
}

/// The sentences with which an agent reports firings that it does not begin, each with its word for the oracle.
fn sentences() -> [(String, &'static str); 4] {
    let (items, due) = (vec![0], Timestamp(0));
    let events = [
        (JobEvent::Misfired { items: items.clone(), due }, "misfired"),
        (JobEvent::Skipped { items: items.clone(), due, reason: "" }, "skipped"),
        (JobEvent::Lost { items: items.clone(), due }, "lost"),
        (JobEvent::Passed { items, first: due, last: due, firings: 1 }, "passed"),
    ];
    events.map(|(event, word)| (event.message().to_string(), word))
}

/// The transactions that an ensemble committed.
#[derive(Debug)]
pub struct Transactions(CarriedOut);

impl Transactions {
    /// From the folders of its servers with their transaction logs (`version-2`); what several of them have counts once.
    ///
    /// # Panics
    ///
    /// When a log cannot be read, or no server has one of the transactions.
    pub fn read(folders: &[PathBuf]) -> Transactions {
        let logs: Vec<Log> = folders.iter().map(|folder| log(folder)).collect();
        let snapshots: Vec<i64> = folders.iter().flat_map(|folder| snapshots(folder)).collect();
        Transactions(carried_out(&logs, &snapshots))
    }

    /// Transactions that cannot have been carried out after what the logs have before them, and those that a snapshot has and no
    /// log: they are judged as the logs have them.
    pub fn unexplained(&self) -> &[i64] {
        &self.0.unexplained
    }
}

/// What a history knows of sessions.
struct Sessions {
    /// Who asked for a transaction.
    by_zxid: HashMap<i64, u64>,
    /// When they ended.
    ended: HashMap<u64, Timestamp>,
    /// In which ones an instance was registered, and since when.
    of_instance: HashMap<String, Vec<(Timestamp, u64)>>,
}

impl Sessions {
    fn of(history: &[Change], path: &JobPath) -> Sessions {
        let (mut by_zxid, mut ended) = (HashMap::new(), HashMap::new());
        let mut of_instance: HashMap<String, Vec<(Timestamp, u64)>> = HashMap::new();
        for change in history {
            by_zxid.entry(change.zxid).or_insert(change.session);
            match (&change.what, path.place(&change.path)) {
                (What::SessionEnded, _) => drop(ended.entry(change.session).or_insert(change.at)),
                (What::Wrote { .. }, Some(Place::Instance(id))) => {
                    of_instance.entry(id.to_owned()).or_default().push((change.at, change.session));
                }
                _ => {}
            }
        }
        Sessions { by_zxid, ended, of_instance }
    }
}

/// What one server's transaction log says; one that a full disk has damaged, as far as it can be read.
fn log(folder: &Path) -> Log {
    let mut log = Log::new();
    let arguments = ["history", folder.to_str().expect("UTF-8")];
    let is_damaged = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DAMAGED));
    let mut text = if is_damaged { java_said(&arguments) } else { java_output(&arguments) };
    if is_damaged {
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    }
    for line in text.lines() {
        let (zxid, rest) = line.split_once('\t').expect("a number");
        log.entry(zxid.parse().expect("a number")).or_default().push(rest.to_owned());
    }
    log
}

/// Up to which transactions the snapshots of a server go: their names say it.
fn snapshots(folder: &Path) -> Vec<i64> {
    let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let zxid = |name: std::ffi::OsString| i64::from_str_radix(name.to_str()?.strip_prefix("snapshot.")?, 16).ok();
    names.filter_map(zxid).collect()
}

fn joined_as(line: &str) -> Option<String> {
    line.contains(" joined").then(|| field(line, "instance")).flatten().map(str::to_owned)
}

/// Returns the value of a field of a log line in text format. A list in brackets is one value.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = line.split_once(&format!(" {name}="))?.1;
    let end = if value.starts_with('[') { value.find(']').map(|end| end + 1) } else { value.find(' ') };
    Some(value.get(..end.unwrap_or(value.len()))?.trim_matches('"'))
}

/// The moment at the beginning of a text.
fn moment(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.get(..=text.find('Z')?)?.parse().ok()?;
    Some(Timestamp(at.as_millisecond()))
}

fn entry(run: &Run, sessions: &Sessions, is_java: bool) -> Entry {
    let start = Timestamp(run.start);
    // Its begin; for Java the session in which its instance was registered last.
    let begun = sessions.by_zxid.get(&run.token).filter(|_| !is_java).copied();
    let lives = sessions.of_instance.get(&run.instance);
    let registered = lives.and_then(|lives| lives.iter().rev().find(|(since, _)| *since <= start));
    let session = begun.or(registered.map(|(_, session)| *session)).unwrap_or_default();
    let source = match run.source.as_str() {
        "failover" => Source::Failover,
        "misfire" => Source::Misfire,
        "trigger" => Source::Trigger,
        _ => Source::Schedule,
    };
    Entry {
        process: usize::try_from(run.pid).unwrap_or_default(),
        instance: run.instance.clone(),
        java: is_java,
        session,
        item: run.item,
        due: Timestamp(run.due),
        source,
        token: run.token,
        start,
        end: run.end.map(Timestamp),
        cut_off: false,
        lease_end: sessions.ended.get(&session).copied(),
    }
}
