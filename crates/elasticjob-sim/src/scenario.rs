//! The input of a world: options, and the possible faults.

use std::fmt;
use std::time::Duration;

use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;

use crate::planted::Defect;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// The configuration with which every instance starts.
    pub document: JobDocument,
    /// How many instances of ours start.
    pub instances: usize,
    /// How many Java-like ones start beside them.
    pub peers: usize,
    /// After how long without contact the registry ends a session.
    pub session_timeout: Duration,
    /// How long a run takes, in milliseconds, at least and at most.
    pub run_millis: (u64, u64),
    /// An item whose runs take longer: that many milliseconds.
    pub long_item: Option<(u32, u64)>,
    /// How long the code of an item waits between its begin and its start, as in a pool that is full, in milliseconds at most;
    /// one of four does.
    pub wait_millis: u64,
    /// A process that knows no error handler but the default one: it refuses a configuration that names another.
    pub refuser: Option<usize>,
    /// How many runs of a hundred fail.
    pub failing: u64,
    /// By how much the clocks of the instances seem to differ from the registry's when they ask.
    pub clock_error: Duration,
    /// Whether some requests, answers and events take up to 0.7 s.
    pub slow_requests: bool,
    /// A defect of every instance of ours: to see whether the oracle bites.
    pub defect: Option<Defect>,
}

impl Options {
    /// A cluster of ours in which nothing is wrong: runs of 5 to 300 ms, a session timeout of 4 s.
    pub fn new(seed: u64, document: JobDocument, instances: usize) -> Options {
        Options {
            seed,
            document,
            instances,
            peers: 0,
            session_timeout: Duration::from_secs(4),
            run_millis: (5, 300),
            long_item: None,
            wait_millis: 0,
            refuser: None,
            failing: 0,
            clock_error: Duration::ZERO,
            slow_requests: false,
            defect: None,
        }
    }
}

/// What can go wrong with a process, its link or the registry, and what an operator can do.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The process is killed; another one starts in its place after that long.
    Crash {
        /// When another one starts; never for `None`.
        restart: Option<Duration>,
    },
    /// The connection is cut for that long, and the process knows immediately.
    Cut(Duration),
    /// No packet passes for that long, without an error.
    Silence(Duration),
    /// What the registry says does not arrive.
    Deaf(Duration),
    /// What the process says does not arrive.
    Mute(Duration),
    /// The process is paused for that long.
    Pause(Duration),
    /// The process does nothing for that long, and its session lives on: what keeps it alive is another thread.
    Stuck(Duration),
    /// The process is asked to stop; another one starts in its place that long after.
    Stop {
        /// When another one starts; never for `None`.
        restart: Option<Duration>,
    },
    /// A further process starts at this place, where none runs.
    Join,
    /// The registry ends the session.
    Expire,
    /// The registry's leader dies: all connections break, the outcome of pending requests is open, and no process can connect for that
    /// long. Sessions live on.
    Failover(Duration),
    /// The disk of an embedded registry is full for that long: what was not written has not happened, all sessions end with the
    /// first write that fails, and no process can connect before there is room again.
    Full(Duration),
    /// The wall clock of the process jumps by so many milliseconds.
    Clock(i64),
    /// An operator acts.
    Order(Order),
    /// The registry carries a transaction of an operator out.
    Operator(Vec<Op>),
}

/// What an operator does.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Disables the process's server.
    Disable,
    /// Enables it.
    Enable,
    /// Disables an item.
    DisableItem(u32),
    /// Enables it.
    EnableItem(u32),
    /// Gives the job another number of items.
    Items(u32),
    /// Gives the job another schedule.
    Cron(String),
    /// Switches failover.
    Failover(bool),
    /// Switches misfire.
    Misfire(bool),
    /// Writes a configuration that cannot be used.
    BadConfig,
    /// Restores the configuration of the start, and enables everything.
    Restore,
    /// Triggers the job on all instances, as Java's operation API does.
    Trigger,
    /// Triggers each item, as our operations do where no Java instance owns items.
    TriggerItems,
    /// Shuts the process's instance down by deleting its node.
    ShutDown,
    /// Creates a mark of an instance that does not exist.
    Mark(Mark, u32),
}

/// Marks that an instance left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the node of that name")]
pub enum Mark {
    Running,
    Failover,
    Failovering,
    Misfire,
    FailoverItem,
    Processing,
    Necessary,
    Trigger,
    Server,
}

impl Mark {
    /// All of them.
    pub const ALL: [Mark; 9] = [
        Mark::Running,
        Mark::Failover,
        Mark::Failovering,
        Mark::Misfire,
        Mark::FailoverItem,
        Mark::Processing,
        Mark::Necessary,
        Mark::Trigger,
        Mark::Server,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = |f: &mut fmt::Formatter<'_>, word: &str, restart: &Option<Duration>| match restart {
            Some(after) => write!(f, "{word} restart {}", after.as_millis()),
            None => write!(f, "{word}"),
        };
        match self {
            Fault::Crash { restart } => again(f, "crash", restart),
            Fault::Stop { restart } => again(f, "stop", restart),
            Fault::Cut(length) => write!(f, "cut {}", length.as_millis()),
            Fault::Silence(length) => write!(f, "silence {}", length.as_millis()),
            Fault::Deaf(length) => write!(f, "deaf {}", length.as_millis()),
            Fault::Mute(length) => write!(f, "mute {}", length.as_millis()),
            Fault::Pause(length) => write!(f, "pause {}", length.as_millis()),
            Fault::Stuck(length) => write!(f, "stuck {}", length.as_millis()),
            Fault::Failover(length) => write!(f, "failover {}", length.as_millis()),
            Fault::Full(length) => write!(f, "full {}", length.as_millis()),
            Fault::Join => write!(f, "join"),
            Fault::Expire => write!(f, "expire"),
            Fault::Clock(millis) => write!(f, "clock {millis}"),
            Fault::Order(order) => write!(f, "{order}"),
            Fault::Operator(ops) => write!(f, "operator {ops:?}"),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Disable => write!(f, "disable"),
            Order::Enable => write!(f, "enable"),
            Order::DisableItem(item) => write!(f, "disable-item {item}"),
            Order::EnableItem(item) => write!(f, "enable-item {item}"),
            Order::Items(count) => write!(f, "items {count}"),
            Order::Cron(cron) => write!(f, "cron {cron}"),
            Order::Failover(on) => write!(f, "set-failover {on}"),
            Order::Misfire(on) => write!(f, "set-misfire {on}"),
            Order::BadConfig => write!(f, "bad-config"),
            Order::Restore => write!(f, "restore"),
            Order::Trigger => write!(f, "trigger"),
            Order::TriggerItems => write!(f, "trigger-items"),
            Order::ShutDown => write!(f, "shut-down"),
            Order::Mark(mark, item) => write!(f, "mark {mark:?} {item}"),
        }
    }
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}`: expected milliseconds"));
        let length = || number(rest).map(Duration::from_millis);
        let item = || rest.parse::<u32>().map_err(|_| format!("`{rest}`: expected a number"));
        let switch = || rest.parse::<bool>().map_err(|_| format!("`{rest}`: expected true or false"));
        let restart = || match rest.strip_prefix("restart ") {
            Some(after) => number(after).map(|millis| Some(Duration::from_millis(millis))),
            None if rest.is_empty() => Ok(None),
            None => Err(format!("`{rest}`: expected `restart <milliseconds>`")),
        };
        let order = |order: Order| Ok(Fault::Order(order));
        match word {
            "crash" => Ok(Fault::Crash { restart: restart()? }),
            "stop" => Ok(Fault::Stop { restart: restart()? }),
            "cut" => Ok(Fault::Cut(length()?)),
            "silence" => Ok(Fault::Silence(length()?)),
            "deaf" => Ok(Fault::Deaf(length()?)),
            "mute" => Ok(Fault::Mute(length()?)),
            "pause" => Ok(Fault::Pause(length()?)),
            "stuck" => Ok(Fault::Stuck(length()?)),
            "failover" => Ok(Fault::Failover(length()?)),
            "full" => Ok(Fault::Full(length()?)),
            "join" => Ok(Fault::Join),
            "expire" => Ok(Fault::Expire),
            "clock" => Ok(Fault::Clock(rest.parse().map_err(|_| format!("`{rest}`: expected milliseconds"))?)),
            "disable" => order(Order::Disable),
            "enable" => order(Order::Enable),
            "disable-item" => order(Order::DisableItem(item()?)),
            "enable-item" => order(Order::EnableItem(item()?)),
            "items" => order(Order::Items(item()?)),
            "cron" => order(Order::Cron(rest.to_owned())),
            "set-failover" => order(Order::Failover(switch()?)),
            "set-misfire" => order(Order::Misfire(switch()?)),
            "bad-config" => order(Order::BadConfig),
            "restore" => order(Order::Restore),
            "trigger" => order(Order::Trigger),
            "trigger-items" => order(Order::TriggerItems),
            "shut-down" => order(Order::ShutDown),
            "mark" => {
                let (name, item) = rest.split_once(' ').ok_or("expected `mark <name> <item>`")?;
                let mark = Mark::ALL.into_iter().find(|m| format!("{m:?}") == name);
                let mark = mark.ok_or_else(|| format!("`{name}`: expected a mark"))?;
                order(Order::Mark(mark, item.parse().map_err(|_| format!("`{item}`: expected an item"))?))
            }
            _ => Err(format!("`{word}`: no such fault")),
        }
    }
}
