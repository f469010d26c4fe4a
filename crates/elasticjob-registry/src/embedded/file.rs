//! The database file: a redb table from paths to nodes. One thread writes; the changes that arrive during a write go into the
//! next transaction, so that many jobs share one sync of the disk.
//!
//! If a write fails, the thread first notifies the store, which ends all sessions, and then rejects the changes. It opens the
//! database again every [`REOPEN_PAUSE`] until that succeeds. The tree is then read from the file, so that memory never holds
//! what the disk does not.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Node, Tree};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use tokio::sync::oneshot;

use crate::Error;
use crate::clock;
use crate::local::{Change, Keeper, Store};

const NODES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("nodes");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
/// Number of times that the file was opened: session ids of different lives must differ.
const LIVES: &str = "lives";
/// Number of the last stored transaction: fencing tokens never decrease, also after their nodes were deleted.
const LAST_ZXID: &str = "zxid";
/// Registries are kilobytes; redb would take a gigabyte where it may.
const CACHE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of changes in one transaction.
const BATCH_MAX: usize = 4_096;
/// Pause between two attempts to open a database again whose write failed.
pub(super) const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// Number of failed attempts after which a cause that persists is logged again: once a minute with [`REOPEN_PAUSE`].
const REPORT_EVERY: u32 = 60;
/// Name of the writing thread. Panics in it are caught and become errors.
pub(crate) const THREAD: &str = "elasticjob-file";

/// What is below the database.
pub(super) struct Source {
    /// Opens it, as often as needed.
    pub(super) open: Box<dyn Fn() -> Box<dyn StorageBackend> + Send>,
    /// Whether the file still has its name: another one could be opened there by another process.
    pub(super) is_in_place: Box<dyn Fn() -> bool + Send>,
}

enum Task {
    Keep(Change, oneshot::Sender<Result<(), String>>),
    Inspect(Inspection, oneshot::Sender<Result<String, String>>),
    Close(oneshot::Sender<()>),
}

/// What an operator asks of a registry file that a process holds.
#[derive(Clone, Debug)]
pub(crate) enum Inspection {
    /// Verify the checksum of every page and decode every node.
    Check,
    /// Write a copy to this new file.
    Backup(PathBuf),
}

/// Hands changes to the writing thread, which ends with this value.
pub(super) struct Writer {
    tasks: mpsc::Sender<Task>,
    store: Arc<OnceLock<Weak<Store>>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Keeper for Writer {
    fn attach(&self, store: Weak<Store>) {
        let _ = self.store.set(store); // a writer belongs to one store
    }

    fn keep(&self, change: Change, done: oneshot::Sender<Result<(), String>>) {
        if let Err(mpsc::SendError(Task::Keep(_, done))) = self.tasks.send(Task::Keep(change, done)) {
            let _ = done.send(Err("the registry writer has stopped".into()));
        }
    }

    fn inspect(&self, what: Inspection) -> oneshot::Receiver<Result<String, String>> {
        let (done, inspected) = oneshot::channel();
        let _ = self.tasks.send(Task::Inspect(what, done)); // if the registry writer has stopped, the receiver gets an error
        inspected
    }

    fn close(&self) -> oneshot::Receiver<()> {
        let (done, closed) = oneshot::channel();
        let _ = self.tasks.send(Task::Close(done)); // if the registry writer has stopped, the receiver gets an error
        closed
    }
}

/// Starts the writing thread on that storage and returns the tree that the file holds. `pause` is the time between two attempts
/// to open the database again, usually [`REOPEN_PAUSE`].
///
/// # Errors
///
/// [`Error::Damaged`] if the file fails its checksums, [`Error::File`] if it is no registry file or cannot be written.
pub(super) fn start(path: &Path, source: Source, pause: Duration) -> Result<(Tree, Writer), Error> {
    let (tasks, incoming) = mpsc::channel();
    let (opened, first) = mpsc::channel();
    let store = Arc::new(OnceLock::new());
    let file = OpenFile { path: path.to_owned(), source, pause, store: Arc::clone(&store) };
    // The database is opened in its thread too: what it does with a damaged file stays there.
    std::thread::Builder::new()
        .name(THREAD.into())
        .spawn(move || match file.open() {
            Ok((database, tree)) => {
                drop(opened.send(Ok(tree)));
                drop(opened);
                let closing = file.write_until_closed(database, &incoming);
                drop(file);
                if let Some(done) = closing {
                    let _ = done.send(());
                }
            }
            Err(error) => drop(opened.send(Err(error))),
        })
        .map_err(|e| Error::File { path: path.to_owned(), reason: format!("cannot start the writer thread: {e}") })?;
    let ended = |_| Error::Damaged { path: path.to_owned(), reason: "the thread that opens the file panicked".into() };
    let tree = first.recv().map_err(ended)??;
    Ok((tree, Writer { tasks, store }))
}

struct OpenFile {
    path: PathBuf,
    source: Source,
    pause: Duration,
    store: Arc<OnceLock<Weak<Store>>>,
}

impl OpenFile {
    fn open(&self) -> Result<(Database, Tree), Error> {
        self.in_place()?;
        guarded(&self.path, || {
            let database = builder().create_with_backend(Boxed((self.source.open)()))?;
            let tree = load(&database)?;
            Ok((database, tree))
        })
    }

    fn store(&self) -> Option<Arc<Store>> {
        self.store.get().and_then(Weak::upgrade)
    }

    fn in_place(&self) -> Result<(), Error> {
        if (self.source.is_in_place)() {
            return Ok(());
        }
        let reason =
            "the file was moved, deleted or replaced: move it back, or restart this process to use the current file";
        Err(Error::File { path: self.path.clone(), reason: reason.into() })
    }

    /// Writes until it is asked to close or its [`Writer`] is dropped; returns the channel that waits for the close.
    fn write_until_closed(
        &self,
        mut database: Database,
        incoming: &mpsc::Receiver<Task>,
    ) -> Option<oneshot::Sender<()>> {
        let mut outage: Option<Outage> = None;
        loop {
            let Batch { changes, inspections, closing } = match incoming.recv_timeout(self.pause) {
                Ok(first) => Batch::collect(first, incoming),
                Err(RecvTimeoutError::Timeout) => Batch::default(),
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            let (changes, waiting): (Vec<Change>, Vec<_>) = changes.into_iter().unzip();
            let written = self.in_place().and_then(|()| guarded(&self.path, || write_batch(&database, &changes)));
            // A disk that is nearly full lets the file be opened, and fails the next write.
            if written.is_ok() && !changes.is_empty() && outage.take().is_some() {
                tracing::info!("the embedded registry {} is writable again", self.path.display());
            }
            let failure = written.err().map(|error| self.failed(&error, &mut outage));
            if failure.is_none()
                && let Some(store) = self.store()
            {
                changes.iter().for_each(|change| store.announce(&change.events));
            }
            for done in waiting {
                let _ = done.send(failure.clone().map_or(Ok(()), Err));
            }
            for (what, done) in inspections {
                let _ = done.send(match &failure {
                    None => self.inspect(&mut database, &what),
                    Some(reason) => Err(reason.clone()),
                });
            }
            if closing.is_some() {
                return closing;
            }
            if let Some(reason) = failure {
                drop(database); // a database whose write failed accepts no further one
                database = match self.reopen(incoming, reason, &mut outage) {
                    Ok(reopened) => reopened,
                    Err(closing) => return closing,
                };
            }
        }
    }

    /// Reports a failed write: the store ends its sessions before any change is refused.
    fn failed(&self, error: &Error, outage: &mut Option<Outage>) -> String {
        let reason = error.reason();
        self.log(&reason, outage);
        if let Some(store) = self.store() {
            store.fail(&reason);
        }
        reason
    }

    /// Logs why the file cannot be written: a new reason immediately, the same one every [`REPORT_EVERY`] attempts.
    fn log(&self, reason: &str, outage: &mut Option<Outage>) {
        if outage.as_mut().is_some_and(|known| known.is_reported(reason)) {
            return;
        }
        *outage = Some(Outage { reason: reason.to_owned(), attempts: 0 });
        tracing::error!(
            "cannot write the embedded registry {}: {reason}; no job starts until it is writable; retrying each second",
            self.path.display()
        );
    }

    /// Opens the database again, as often as needed, and gives the store its tree. Refuses every change that arrives before.
    fn reopen(
        &self,
        incoming: &mpsc::Receiver<Task>,
        mut reason: String,
        outage: &mut Option<Outage>,
    ) -> Result<Database, Option<oneshot::Sender<()>>> {
        let mut again = clock::instant() + self.pause;
        loop {
            match incoming.recv_timeout(again.saturating_duration_since(clock::instant())) {
                Ok(Task::Keep(_, done)) => drop(done.send(Err(reason.clone()))),
                Ok(Task::Inspect(_, done)) => drop(done.send(Err(reason.clone()))),
                Ok(Task::Close(done)) => return Err(Some(done)),
                Err(RecvTimeoutError::Disconnected) => return Err(None),
                Err(RecvTimeoutError::Timeout) => match self.open() {
                    Ok((database, tree)) => {
                        if let Some(store) = self.store() {
                            store.recover(tree);
                        }
                        return Ok(database);
                    }
                    Err(error) => {
                        reason = error.reason();
                        self.log(&reason, outage);
                        again = clock::instant() + self.pause;
                    }
                },
            }
        }
    }

    fn inspect(&self, database: &mut Database, what: &Inspection) -> Result<String, String> {
        match what {
            Inspection::Check => guarded(&self.path, || check(database)).map(|found| found.to_string()),
            Inspection::Backup(to) => guarded(&self.path, || Contents::read(database))
                .and_then(|contents| super::maintain::write(&contents, to)),
        }
        .map_err(|error| error.to_string())
    }
}

/// The time in which the file cannot be written, from the first failed write to the next one that succeeds.
struct Outage {
    /// The reason that was logged last.
    reason: String,
    /// Number of attempts that failed since then.
    attempts: u32,
}

impl Outage {
    /// Counts a failed attempt. Returns `true` if its reason needs no line of its own.
    fn is_reported(&mut self, reason: &str) -> bool {
        self.attempts += 1;
        self.reason == reason && self.attempts < REPORT_EVERY
    }
}

/// The changes and requests that are handled in one pass.
#[derive(Default)]
struct Batch {
    changes: Vec<(Change, oneshot::Sender<Result<(), String>>)>,
    inspections: Vec<(Inspection, oneshot::Sender<Result<String, String>>)>,
    closing: Option<oneshot::Sender<()>>,
}

impl Batch {
    fn collect(first: Task, incoming: &mpsc::Receiver<Task>) -> Batch {
        let mut batch = Batch { changes: Vec::new(), inspections: Vec::new(), closing: None };
        let mut next = Some(first);
        while let Some(task) = next {
            match task {
                Task::Keep(change, done) => batch.changes.push((change, done)),
                Task::Inspect(what, done) => batch.inspections.push((what, done)),
                Task::Close(done) => batch.closing = Some(done),
            }
            let has_room = batch.closing.is_none() && batch.changes.len() < BATCH_MAX;
            next = if has_room { incoming.try_recv().ok() } else { None };
        }
        batch
    }
}

/// What a failed step of the database means.
enum Fault {
    Redb(redb::Error),
    Decoding(String),
}

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault::Redb(error.into())
    }
}

/// Runs a step on the database. redb panics on some damaged files; that is reported as damage too.
fn guarded<T>(path: &Path, step: impl FnOnce() -> Result<T, Fault>) -> Result<T, Error> {
    let path = path.to_owned();
    let done = match catch_unwind(AssertUnwindSafe(step)) {
        Ok(done) => done,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
            let line = text.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
            return Err(Error::Damaged { path, reason: line });
        }
    };
    done.map_err(|fault| match fault {
        Fault::Decoding(reason) | Fault::Redb(redb::Error::Corrupted(reason)) => Error::Damaged { path, reason },
        Fault::Redb(redb::Error::DatabaseAlreadyOpen) => Error::InUse { path },
        Fault::Redb(redb::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            let advice = "if it was one, restore a backup with `elasticjob registry restore`, or move it away";
            Error::File { path, reason: format!("this is not a registry file: {error}; {advice}") }
        }
        Fault::Redb(redb::Error::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Error::Damaged { path, reason: format!("the file is truncated: {error}") }
        }
        Fault::Redb(redb::Error::Io(error)) => Error::File { path, reason: error.to_string() },
        Fault::Redb(error) => Error::File { path, reason: error.to_string() },
    })
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// redb takes a backend by its type.
#[derive(Debug)]
struct Boxed(Box<dyn StorageBackend>);

impl StorageBackend for Boxed {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

/// What a registry file holds.
pub(super) struct Contents {
    pub(super) nodes: Vec<(String, Node)>,
    pub(super) lives: u64,
    pub(super) zxid: u64,
}

impl Contents {
    fn read(database: &impl ReadableDatabase) -> Result<Contents, Fault> {
        let transaction = database.begin_read()?;
        let mut nodes = Vec::new();
        for entry in transaction.open_table(NODES)?.iter()? {
            let (path, data) = entry?;
            let path = path.value();
            let node = decode(data.value()).ok_or_else(|| Fault::Decoding(format!("node `{path}` is too short")))?;
            nodes.push((path.to_owned(), node));
        }
        let counters = transaction.open_table(COUNTERS)?;
        let counter = |name: &str| Ok::<u64, Fault>(counters.get(name)?.map(|c| c.value()).unwrap_or_default());
        Ok(Contents { nodes, lives: counter(LIVES)?, zxid: counter(LAST_ZXID)? })
    }

    /// The tree, with session ids of this life.
    pub(super) fn into_tree(self) -> Tree {
        let mut tree = Tree::new();
        tree.raise_sessions(self.lives << 32);
        tree.raise_zxid(i64::try_from(self.zxid).unwrap_or(i64::MAX));
        for (path, node) in self.nodes {
            tree.restore(&path, node);
        }
        tree
    }

    /// The highest transaction number.
    pub(super) fn last_zxid(&self) -> u64 {
        let nodes = self.nodes.iter().map(|(_, node)| node.mzxid.max(node.czxid).unsigned_abs()).max();
        self.zxid.max(nodes.unwrap_or_default())
    }
}

/// What a check found.
struct Found {
    nodes: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, no damage", self.nodes)
    }
}

fn check(database: &mut Database) -> Result<Found, Fault> {
    database.check_integrity()?;
    Ok(Found { nodes: Contents::read(database)?.nodes.len() })
}

/// Verifies a file that no process holds, and returns one line about it.
pub(super) fn check_file(path: &Path, storage: Box<dyn StorageBackend>) -> Result<String, Error> {
    guarded(path, || {
        let mut database = builder().create_with_backend(Boxed(storage))?;
        check(&mut database)
    })
    .map(|found| found.to_string())
}

/// Reads a file without counting that as a life of the registry.
pub(super) fn contents(path: &Path, storage: Box<dyn StorageBackend>) -> Result<Contents, Error> {
    guarded(path, || Contents::read(&builder().create_with_backend(Boxed(storage))?))
}

/// Writes contents into an empty storage.
pub(super) fn create(path: &Path, storage: Box<dyn StorageBackend>, contents: &Contents) -> Result<(), Error> {
    guarded(path, || {
        let database = builder().create_with_backend(Boxed(storage))?;
        let transaction = database.begin_write()?;
        {
            let mut nodes = transaction.open_table(NODES)?;
            for (path, node) in &contents.nodes {
                nodes.insert(path.as_str(), encode(node).as_slice())?;
            }
            let mut counters = transaction.open_table(COUNTERS)?;
            counters.insert(LIVES, contents.lives)?;
            counters.insert(LAST_ZXID, contents.zxid)?;
        }
        transaction.commit()?;
        Ok(())
    })
}

fn load(database: &Database) -> Result<Tree, Fault> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(NODES)?;
        let mut counters = transaction.open_table(COUNTERS)?;
        let lives = counters.get(LIVES)?.map(|l| l.value()).unwrap_or_default() + 1;
        counters.insert(LIVES, lives)?;
    }
    transaction.commit()?;
    let mut contents = Contents::read(database)?;
    // The file may be an older copy, put back without `restore`: tokens that it does not know were issued later.
    contents.zxid = contents.last_zxid().max(super::maintain::first_transaction());
    Ok(contents.into_tree())
}

fn write_batch(database: &Database, batch: &[Change]) -> Result<(), Fault> {
    // A change without nodes only waits for those before it.
    let Some(zxid) = batch.iter().map(|change| change.zxid).max().filter(|zxid| *zxid > 0) else { return Ok(()) };
    let transaction = database.begin_write()?;
    {
        let mut nodes = transaction.open_table(NODES)?;
        for (path, node) in batch.iter().flat_map(|c| &c.nodes) {
            match node {
                Some(node) => drop(nodes.insert(path.as_str(), encode(node).as_slice())?),
                None => drop(nodes.remove(path.as_str())?),
            }
        }
        transaction.open_table(COUNTERS)?.insert(LAST_ZXID, zxid.unsigned_abs())?;
    }
    transaction.commit()?;
    Ok(())
}

/// Version, czxid, mzxid, created, modified, then the data; numbers in big-endian order.
fn encode(node: &Node) -> Vec<u8> {
    let mut out = Vec::with_capacity(36 + node.data.len());
    out.extend(node.version.to_be_bytes());
    for number in [node.czxid, node.mzxid, node.created.0, node.modified.0] {
        out.extend(number.to_be_bytes());
    }
    out.extend_from_slice(&node.data);
    out
}

fn decode(data: &[u8]) -> Option<Node> {
    let (version, mut rest) = data.split_first_chunk::<4>()?;
    let mut number = || {
        let (number, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(i64::from_be_bytes(*number))
    };
    let (czxid, mzxid, created, modified) = (number()?, number()?, number()?, number()?);
    let (created, modified) = (Timestamp(created), Timestamp(modified));
    Some(Node { version: i32::from_be_bytes(*version), czxid, mzxid, created, modified, data: rest.into(), owner: 0 })
}

#[cfg(test)]
mod tests;
