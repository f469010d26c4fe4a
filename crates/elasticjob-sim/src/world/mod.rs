//! The simulated cluster: processes, a registry, links between them, and the time.
//!
//! ```text
//! hosts.rs     what runs in a process: a machine of ours, or a Java-like peer
//! link.rs      the way between a process and the registry: latency, cuts, sessions, lost answers
//! registry.rs  what the registry does: transactions, watches, latches, its history
//! strike.rs    faults and operators
//! ```

mod hosts;
mod link;
mod registry;
mod strike;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::machine::{Effect, Input, JobMachine, MachineContext, RunId, Source, StepId};
use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::shard;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Node, Op, Tree};

use crate::java::{Peer, Reply};
use crate::{Chance, Change, Evidence, Fault, Journal, Options, Terms, Told, What};

/// The job that every world runs.
const JOB: &str = "job";
/// Where every world begins: a whole second, far from any daylight-saving change.
const START: Timestamp = Timestamp(1_700_000_000_000);

/// What runs in a process.
enum Body {
    /// Nothing.
    Down,
    /// A machine of ours.
    Ours(Box<JobMachine>),
    /// A Java-like peer.
    Java(Box<Peer>),
}

struct Process {
    java: bool,
    body: Body,
    id: String,
    session: u64,
    connected: bool,
    /// Whether its link broke while it stood still and it has not learnt that yet: it connects again only then.
    unaware: bool,
    paused_until: Timestamp,
    /// Until when the registry receives its heartbeats although it is paused: the code that keeps the session alive continues.
    stuck_until: Timestamp,
    /// Until when its link is cut.
    cut_until: Timestamp,
    /// Until when its requests do not arrive, and what it receives.
    mute_until: Timestamp,
    deaf_until: Timestamp,
    /// When the registry last heard of it.
    heard: Timestamp,
    /// By how many milliseconds its wall clock is off.
    clock: i64,
    /// The nodes that its machine wants to hear of, and those that the registry watches for it: a new connection watches all.
    wanted: BTreeSet<String>,
    watched: BTreeSet<String>,
    /// Changed nodes that are about to be read: several changes in a row are one reading.
    unread: BTreeSet<String>,
    /// Whether its state is being read: what changes in the meantime is read again afterwards.
    loading: bool,
    latches: BTreeMap<u64, Place>,
    /// Places in latch queues that it has asked for, and no answer yet.
    asked: BTreeSet<StepId>,
    /// Requests of one connection are executed in order, and so are its answers and events.
    served: Timestamp,
    /// Whether a machine of ours thinks about an answer at the moment; how many requests have followed from answers, one
    /// after the other; and when that row was the longest.
    is_answered: bool,
    row: u32,
    longest_row: Option<(Timestamp, u32)>,
    answered: Timestamp,
    /// Grows with each connection: what is still on an old link is lost.
    link: u64,
    /// Grows with each start: timers of a former life are void.
    life: u64,
    runs: BTreeMap<(RunId, u32), usize>,
    /// Whether its runs were cancelled.
    is_cut_off: bool,
    notes: Vec<(Timestamp, String)>,
}

/// An item between its begin and the start of its code.
#[derive(Clone, Copy, Debug)]
struct BegunItem {
    run: RunId,
    session: u64,
    item: u32,
    due: Timestamp,
    source: Source,
    token: i64,
}

/// A place in the queue of a latch.
#[derive(Clone, Debug)]
struct Place {
    path: String,
    node: String,
    told: bool,
}

/// What a process asks of the registry.
#[derive(Debug)]
enum Request {
    /// An effect of a machine of ours.
    Ours(Effect),
    /// A transaction of a Java-like peer, and its number.
    Commit(u64, Vec<Op>),
    /// A question of one.
    Read(u64, Query),
    /// A place in a latch's queue.
    Latch(u64, String),
    /// The way out of it.
    Unlatch(u64),
}

/// The inputs that a process receives from its own host.
#[derive(Debug)]
enum News {
    /// What a machine of ours takes in.
    Input(Box<Input>),
    /// The link broke.
    Lost,
    /// A process of Java's is to leave.
    Stop,
}

/// What comes back.
#[derive(Debug)]
enum Parcel {
    Input(Box<Input>),
    Reply(u64, Reply),
    Changed(String, Option<Node>),
    Connected,
}

#[derive(Debug)]
enum Happening {
    Deliver {
        process: usize,
        link: u64,
        asked: Timestamp,
        parcel: Parcel,
    },
    Serve {
        process: usize,
        link: u64,
        asked: Timestamp,
        request: Request,
    },
    Fetch {
        process: usize,
        link: u64,
        path: String,
    },
    Load {
        process: usize,
        link: u64,
        first: Option<Vec<Answer>>,
        renewed: bool,
    },
    Wake {
        process: usize,
        life: u64,
    },
    Sleep {
        process: usize,
        life: u64,
        ask: u64,
    },
    Connect {
        process: usize,
        life: u64,
    },
    Notice {
        process: usize,
        link: u64,
    },
    Expire {
        process: usize,
        session: u64,
    },
    /// The turn of an item that was begun has come.
    StartRun {
        process: usize,
        life: u64,
        begun: BegunItem,
    },
    EndRun {
        process: usize,
        life: u64,
        run: RunId,
        item: u32,
    },
    /// `down`: the number that its life has when it may start; another start has come first where it differs.
    Start {
        process: usize,
        down: u64,
    },
    /// The inputs that a paused process receives when it continues.
    Learn {
        process: usize,
        life: u64,
        news: News,
    },
    Strike {
        process: usize,
        fault: Fault,
    },
    /// One that waits for a latch looks whether that place is still the first.
    Suspect {
        process: usize,
        link: u64,
        ask: u64,
        first: String,
    },
}

/// A cluster. See [`Options`].
pub struct World {
    options: Options,
    now: Timestamp,
    order: u64,
    agenda: BTreeMap<(Timestamp, u64), Happening>,
    tree: Tree,
    path: JobPath,
    processes: Vec<Process>,
    chance: Chance,
    /// Decides which items wait for their turn: apart, so that a seed means what it meant before some did.
    turns: Chance,
    journal: Journal,
    history: Vec<Change>,
    told: Vec<Told>,
    java_ids: BTreeSet<String>,
    expired: BTreeSet<u64>,
    stepped_back: bool,
    /// The instances whose clock was off.
    off: BTreeSet<String>,
    troubles: Vec<(Timestamp, Timestamp)>,
    stuck: Vec<(String, Timestamp, Timestamp)>,
    context: Arc<MachineContext>,
    requests: u64,
    /// Until when the registry has no leader.
    registry_down_until: Timestamp,
}

impl World {
    /// A cluster that has just been switched on.
    pub fn new(options: Options) -> World {
        let context = MachineContext {
            zones: Box::new(|name| name.is_none().then_some(jiff::tz::TimeZone::UTC)),
            strategies: shard::built_in(),
        };
        let mut world = World {
            now: START,
            order: 0,
            agenda: BTreeMap::new(),
            tree: Tree::new(),
            path: JobPath::new(JOB),
            processes: Vec::new(),
            chance: Chance::new(options.seed),
            turns: Chance::new(options.seed ^ 0x7475_726e),
            journal: Vec::new(),
            history: Vec::new(),
            told: Vec::new(),
            java_ids: BTreeSet::new(),
            expired: BTreeSet::new(),
            stepped_back: false,
            off: BTreeSet::new(),
            troubles: Vec::new(),
            stuck: Vec::new(),
            context: Arc::new(context),
            requests: 0,
            registry_down_until: START,
            options,
        };
        let count = world.options.instances + world.options.peers;
        for process in 0..count {
            world.processes.push(Process::new(process, process >= world.options.instances));
            let delay = Duration::from_millis(world.chance.below(1_500));
            world.plan(START + delay, Happening::Start { process, down: 0 });
        }
        world
    }

    /// Lets something happen to a process at that time after the start. A place beyond the last one is a further process
    /// of ours, which starts with [`Fault::Join`].
    pub fn strike(&mut self, after: Duration, process: usize, fault: Fault) {
        while self.processes.len() <= process {
            self.processes.push(Process::new(self.processes.len(), false));
        }
        self.plan(START + after, Happening::Strike { process, fault });
    }

    /// Lets the time pass until then.
    pub fn run_until(&mut self, after: Duration) {
        let end = START + after;
        while let Some(((at, _), _)) = self.agenda.first_key_value() {
            if *at > end {
                break;
            }
            let Some(((at, _), happening)) = self.agenda.pop_first() else { break };
            self.now = at;
            self.happen(happening);
        }
        self.now = end;
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.since(START)
    }

    /// The moment that long after the start.
    pub fn moment(after: Duration) -> Timestamp {
        START + after
    }

    /// What ran.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The registry.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Requests that processes have sent to the registry.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// What the oracle is shown: the cluster has been left alone since `quiet_from` after the start.
    pub fn evidence(&self, quiet_from: Duration) -> Evidence {
        Evidence {
            path: self.path.clone(),
            terms: Terms {
                session_timeout: self.options.session_timeout,
                round_trip: Duration::from_millis(if self.options.slow_requests { 1_500 } else { 20 }),
                run_max: Duration::from_millis(self.options.run_millis.1 + self.options.wait_millis),
                stepped_back: self.stepped_back,
                clock_error: Duration::from_millis(
                    self.processes.iter().map(|p| p.clock.unsigned_abs()).max().unwrap_or_default(),
                ),
                quiet_from: START + quiet_from,
                end: self.now,
                is_at_rest: true,
            },
            history: self.history.clone(),
            runs: self.journal.clone(),
            told: self.told.clone(),
            longest_rows: self.processes.iter().filter_map(|p| Some((p.id.clone(), p.longest_row?))).collect(),
            java: self.java_ids.clone(),
            off: self.off.clone(),
            up: self
                .processes
                .iter()
                .filter(|p| matches!(p.body, Body::Ours(_)))
                .map(|p| (p.id.clone(), Some(p.session)))
                .collect(),
            expired: self.expired.clone(),
            troubles: self.troubles.clone(),
            stuck: self.stuck.clone(),
        }
    }

    /// The log lines of the machines, in one text: for a failing test.
    pub fn story(&self) -> String {
        let mut lines: Vec<(Timestamp, String)> = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            let kind = if process.java { "j" } else { "p" };
            lines.extend(process.notes.iter().map(|(at, note)| (*at, format!("{at} {kind}{index} {note}"))));
        }
        lines.sort_by_key(|(at, _)| *at);
        lines.into_iter().map(|(_, line)| line + "\n").collect()
    }

    /// The machines in all detail: for a failing test.
    pub fn machines(&self) -> String {
        let machine = |p: &Process| match &p.body {
            Body::Ours(machine) => format!("{machine:#?}\n"),
            Body::Java(peer) => format!("{peer:?}\n"),
            Body::Down => "down\n".to_owned(),
        };
        self.processes.iter().map(machine).collect()
    }

    /// The registry as `path | value` lines, with the session of ephemeral nodes.
    pub fn dump(&self) -> String {
        let line =
            |(path, node): (&str, &Node)| format!("{path} | {} | {:x}\n", node.text().replace('\n', "\\n"), node.owner);
        self.tree.iter().map(line).collect()
    }

    /// The registry's history in lines: for a failing test.
    pub fn history(&self) -> String {
        let line = |change: &Change| {
            let what = match &change.what {
                What::Wrote { data, .. } => String::from_utf8_lossy(data).replace('\n', "\\n"),
                What::Deleted => "deleted".to_owned(),
                What::SessionEnded => "the session ended".to_owned(),
            };
            format!("{} {:x} {} | {what}\n", change.at, change.session, change.path)
        };
        self.history.iter().map(line).collect()
    }

    fn plan(&mut self, at: Timestamp, happening: Happening) {
        self.order += 1;
        self.agenda.insert((at.max(self.now), self.order), happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            // One that was asked to stop may take its time.
            Happening::Start { process, down } if self.processes[process].is_up() => {
                if self.processes[process].life + 1 == down {
                    self.plan(self.now + Duration::from_millis(500), Happening::Start { process, down });
                }
            }
            Happening::Start { process, down } if self.processes[process].life == down => self.start(process),
            Happening::Learn { process, life, news } if self.processes[process].life == life => {
                self.learn(process, news)
            }
            Happening::Connect { process, life } => self.connect(process, life),
            Happening::Notice { process, link } => self.notice(process, link),
            Happening::Expire { process, session } => self.expire(process, session),
            Happening::Load { process, link, first, renewed } => self.load(process, link, first, renewed),
            Happening::Fetch { process, link, path } => self.fetch(process, link, path),
            Happening::Serve { process, link, asked, request } => self.serve(process, link, asked, request),
            Happening::Deliver { process, link, asked, parcel } => self.arrive(process, link, asked, parcel),
            Happening::Wake { process, life } if self.processes[process].life == life => self.wake(process),
            Happening::Sleep { process, life, ask } if self.processes[process].life == life => {
                self.reply(process, ask, Reply::Slept);
            }
            Happening::EndRun { process, life, run, item } if self.processes[process].life == life => {
                self.end_run(process, run, item);
            }
            Happening::StartRun { process, life, begun } if self.processes[process].life == life => {
                self.start_item(process, begun);
            }
            Happening::StartRun { .. }
            | Happening::Wake { .. }
            | Happening::Sleep { .. }
            | Happening::EndRun { .. }
            | Happening::Start { .. }
            | Happening::Learn { .. } => {}
            Happening::Strike { process, fault } => self.fault(process, fault),
            Happening::Suspect { process, link, ask, first } => self.suspected(process, link, ask, &first),
        }
    }
}

impl Process {
    fn new(index: usize, java: bool) -> Process {
        Process {
            java,
            body: Body::Down,
            id: format!("10.0.0.{}@-@0", index + 1),
            session: 0,
            connected: false,
            unaware: false,
            paused_until: Timestamp(0),
            stuck_until: Timestamp(0),
            cut_until: Timestamp(0),
            mute_until: Timestamp(0),
            deaf_until: Timestamp(0),
            heard: Timestamp(0),
            clock: 0,
            wanted: BTreeSet::new(),
            watched: BTreeSet::new(),
            unread: BTreeSet::new(),
            loading: false,
            latches: BTreeMap::new(),
            asked: BTreeSet::new(),
            served: Timestamp(0),
            is_answered: false,
            row: 0,
            longest_row: None,
            answered: Timestamp(0),
            link: 0,
            life: 0,
            runs: BTreeMap::new(),
            is_cut_off: false,
            notes: Vec::new(),
        }
    }

    fn is_up(&self) -> bool {
        !matches!(self.body, Body::Down)
    }

    /// Whether the registry hears of it.
    fn is_heard(&self, now: Timestamp) -> bool {
        let acts = self.paused_until <= now || now < self.stuck_until;
        self.is_up() && self.connected && acts && self.mute_until <= now
    }
}
