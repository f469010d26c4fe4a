//! The bounds that several rules share, each with its reason; a bound of a single file is defined there.

use std::time::Duration;

/// A node that vanished counts as gone only when it is still missing this long after: Java deletes and creates its
/// instance node again at each reconnect (decided from a measurement; see ARCHITECTURE.md, "Gone means gone").
pub const SECOND_LOOK: Duration = Duration::from_millis(50);

/// A leader node whose owner has no instance node is replaced after this long. Java elects before it registers, so a
/// leader without an instance is legal for a moment.
pub const LEADER_UNREGISTERED: Duration = Duration::from_secs(3);

/// Time between our leader's `necessary` and the transaction that deletes it, so that executions that Java instances
/// have begun have read their assignment and created their `running` nodes.
pub const RESHARD_SETTLE: Duration = Duration::from_millis(100);

/// Our leader does not commit a resharding this shortly before a firing: a Java instance reads its assignment from a
/// cache that lags. It commits right after the firing instead; `necessary` stops all instances until then.
pub const RESHARD_GUARD: Duration = Duration::from_millis(100);

/// How long after a firing our leader commits the resharding that it held back for it.
pub const RESHARD_AFTER_FIRE: Duration = Duration::from_millis(20);

/// A follower that waits for a resharding gives a firing up after this long. The firing is then a misfire.
pub const SHARDING_WAIT: Duration = Duration::from_secs(10);

/// When an instance has to leave, its remaining runs are cancelled, and it leaves at most this much later: the next owner
/// of the items must not meet those runs. Longer than the time that a script has to end and to be killed.
pub const CUT_OFF: Duration = Duration::from_secs(12);

/// A leader that has not resharded this long after a firing that waits for it is replaced by a waiting instance. If it has not
/// requested a resharding this long after an owner left, another instance requests one. A Java leader may be busy with a long run, hang in a
/// listener, or have shut its job down while its session lives on; then all instances would wait forever.
pub const LEADER_WAIT: Duration = Duration::from_secs(5);

/// An instance that rejected the stored configuration waits this long without a leader before it stands for election. Other instances
/// may support the configuration, as in a rolling deployment. If none does, one instance must still assign the items.
pub const REFUSER_WAIT: Duration = Duration::from_secs(5);
/// Number of instances that run for election immediately when the leader is gone. A thousand candidates kept a ZooKeeper server busy for
/// twenty seconds: each of their places in the queue was an event for every instance.
pub const CANDIDATES: usize = 8;
/// Time without a leader after which the next instances run for election too: as many as before, then twice as many, and so on.
pub const CANDIDATE_WAIT: Duration = Duration::from_millis(500);
/// A leader that rejected the stored configuration hands over after this long, if another instance may support it by then.
pub const STAND_IN: Duration = Duration::from_secs(600);
/// Instances that have gone are remembered this long.
pub const GONE_KEPT: Duration = Duration::from_secs(600);
/// An item whose begin the registry forbids is tried again after this long.
pub const FORBIDDEN_REST: Duration = Duration::from_secs(5);

/// Time after its election in which a Rust leader reads the assignment repeatedly; every Rust instance does so after a Java leader
/// has resharded: Java deletes owners one by one, and continues with that although it is no longer the leader.
pub const OWNERS_RECHECKS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(8), Duration::from_secs(20)];

/// An instance that a finished resharding left out asks for another one not before this: Java's followers poll
/// `necessary` each 100 ms and lose the firing when it comes back immediately.
pub const LEFT_OUT_WAIT: Duration = Duration::from_millis(1_200);

/// When some items of a run have ended and others have not, the ended ones are released together after this long.
pub const END_GATHER: Duration = Duration::from_millis(100);

/// The triggers of items that one transaction creates arrive one by one. A run of triggered items waits this long for those of the
/// other items of its instance, so that they are one run; where all are there it does not wait.
pub const TRIGGER_GATHER: Duration = Duration::from_millis(10);

/// Pause before a refused or failed registry step is tried again; doubled each time up to [`RETRY_MAX`].
pub const RETRY_BASE: Duration = Duration::from_millis(50);

/// Longest pause between two tries of one step.
pub const RETRY_MAX: Duration = Duration::from_secs(5);

/// So many begins of a job may be refused in a row, and one for each item that it has, before it pauses between them.
pub const REFUSALS_MAX: usize = 5;

/// A firing that no instance began while its item changed hands is made up by the new owner when it is at most this old,
/// counted on top of the session timeout.
pub const HANDOVER_WINDOW: Duration = Duration::from_secs(10);

/// Items of one job at the most. Java has no bound; a transaction of the registry has (1 MB).
pub const ITEMS_MAX: u32 = 10_000;

/// Items begun in one transaction; a run with more begins in parts, so that a request stays under half of ZooKeeper's
/// `jute.maxbuffer` (1 MB) even with long job names.
pub const ITEMS_PER_COMMIT: usize = 500;

/// Runs that one transaction takes over, each with up to seven operations.
pub const TAKEOVERS_PER_COMMIT: usize = 100;

/// The largest `config` document that is read. ZooKeeper refuses nodes of more than 1 MB by default.
pub const CONFIG_BYTES_MAX: usize = 512 * 1024;

/// The largest `config` document that a start writes: with `overwrite: changed` it is written twice in one transaction, to be compared
/// later, and a transaction takes 900,000 bytes.
pub const CONFIG_WRITE_MAX: usize = 400 * 1024;

/// Longest job name. It is a path segment, a file name in logs and a column of 100 characters in Java's trace table.
pub const JOB_NAME_CHARS_MAX: usize = 100;

/// Years that the search for a next fire time looks ahead, as in Quartz (year field: up to now + 100).
pub const CRON_YEARS_AHEAD: i16 = 100;

/// A ledger entry further ahead than this was written by a clock that was off, and does not hold back its item.
pub const LEDGER_AHEAD: Duration = Duration::from_secs(60);

/// Our leader asks for a resharding not sooner than this after a firing: Java instances start their executions up to some
/// 100 ms late (99 % within 40 ms when idle), and read `necessary` first.
pub const RESHARD_QUIET: Duration = Duration::from_millis(250);

/// A catch-up of an item that is to move to another instance waits this long when its run has ended, so that the leader can
/// move it: an item whose runs follow each other without a pause would stay where it is for ever.
pub const MOVE_YIELD: Duration = Duration::from_secs(1);

/// Maximum number of counted firings that no instance began; six weeks of an hourly job, and no walk
/// through the years for one that fires each second.
pub const PASSED_MAX: usize = 1_000;

/// Pause after a resharding of a Rust leader, for each instance, if no instance waits for the next one: each
/// instance reads the whole assignment then and claims its items, so that the work of a resharding grows with their number.
/// A hundred instances that start one after the other were a hundred reshardings of each job.
pub const RESHARD_REST: Duration = Duration::from_millis(20);

/// For this long after its resharding, a leader of ours that finds a further change reshards again without writing
/// `necessary`, which Java's followers would miss.
pub const RESHARD_DIRECT: Duration = Duration::from_secs(1);
