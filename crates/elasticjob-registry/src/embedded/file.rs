//! The file: a redb table from paths to nodes. One thread writes; what comes in while it writes goes with the next
//! transaction, so that many jobs share one sync of the disk.

use std::path::Path;
use std::sync::mpsc;

use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Node, Tree};
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use crate::Error;
use crate::local::Keeper;

const NODES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("nodes");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
/// How often the file was opened: session ids of different lives must differ.
const LIVES: &str = "lives";
/// Registries are kilobytes; redb would take a gigabyte where it may.
const CACHE_BYTES: usize = 8 * 1024 * 1024;
/// Changes that go into one transaction at the most.
const BATCH_MAX: usize = 4_096;

enum Task {
    Keep(Change),
    Close(oneshot::Sender<()>),
}

struct Change {
    nodes: Vec<(String, Option<Node>)>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Hands changes to the writing thread, which ends with it.
#[derive(Debug)]
pub(super) struct File {
    tasks: mpsc::Sender<Task>,
}

impl Keeper for File {
    fn keep(&self, nodes: Vec<(String, Option<Node>)>, done: oneshot::Sender<Result<(), String>>) {
        if let Err(mpsc::SendError(Task::Keep(change))) = self.tasks.send(Task::Keep(Change { nodes, done })) {
            let _ = change.done.send(Err("the writer has ended".into()));
        }
    }

    fn close(&self) -> oneshot::Receiver<()> {
        let (done, closed) = oneshot::channel();
        let _ = self.tasks.send(Task::Close(done)); // where the writer has ended, dropping it tells so
        closed
    }
}

pub(super) fn open(path: &Path) -> Result<(Tree, File), Error> {
    let failed = |reason: String| Error::File { path: path.to_owned(), reason };
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| failed(format!("its folder cannot be made: {e}")))?;
    }
    let database = Builder::new().set_cache_size(CACHE_BYTES).create(path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => Error::InUse { path: path.to_owned() },
        error => failed(format!("not a registry file, or not readable: {error}")),
    })?;
    let tree = load(&database).map_err(|e| failed(e.to_string()))?;
    let (tasks, incoming) = mpsc::channel();
    let owned = path.to_owned();
    std::thread::Builder::new()
        .name("elasticjob-file".into())
        .spawn(move || {
            let closing = write(&database, &incoming, &owned);
            drop(database);
            if let Some(done) = closing {
                let _ = done.send(());
            }
        })
        .map_err(|e| failed(format!("its thread cannot be started: {e}")))?;
    Ok((tree, File { tasks }))
}

fn load(database: &Database) -> Result<Tree, redb::Error> {
    let transaction = database.begin_write()?;
    let lives = {
        transaction.open_table(NODES)?;
        let mut counters = transaction.open_table(COUNTERS)?;
        let lives = counters.get(LIVES)?.map(|l| l.value()).unwrap_or_default() + 1;
        counters.insert(LIVES, lives)?;
        lives
    };
    transaction.commit()?;
    let mut tree = Tree::new();
    tree.raise_sessions(lives << 32);
    let transaction = database.begin_read()?;
    for entry in transaction.open_table(NODES)?.iter()? {
        let (path, data) = entry?;
        if let Some(node) = decode(data.value()) {
            tree.restore(path.value(), node);
        }
    }
    Ok(tree)
}

/// Writes until it is told to close, or nobody is left who could tell; returns whom to tell that it is done.
fn write(database: &Database, incoming: &mpsc::Receiver<Task>, path: &Path) -> Option<oneshot::Sender<()>> {
    let mut closing = None;
    while closing.is_none()
        && let Ok(first) = incoming.recv()
    {
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some(task) = next {
            match task {
                Task::Keep(change) => batch.push(change),
                Task::Close(done) => closing = Some(done),
            }
            next = if closing.is_none() && batch.len() < BATCH_MAX { incoming.try_recv().ok() } else { None };
        }
        let result = write_batch(database, &batch).map_err(|e| e.to_string());
        if let Err(reason) = &result {
            tracing::error!("the embedded registry {} cannot be written: {reason}", path.display());
        }
        for change in batch {
            let _ = change.done.send(result.clone());
        }
    }
    closing
}

fn write_batch(database: &Database, batch: &[Change]) -> Result<(), redb::Error> {
    if batch.is_empty() {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    {
        let mut nodes = transaction.open_table(NODES)?;
        for (path, node) in batch.iter().flat_map(|c| &c.nodes) {
            match node {
                Some(node) => drop(nodes.insert(path.as_str(), encode(node).as_slice())?),
                None => drop(nodes.remove(path.as_str())?),
            }
        }
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
