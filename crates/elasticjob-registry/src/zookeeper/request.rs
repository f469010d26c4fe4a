//! Requests over the current connection. Each ends with its connection, or with its deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::path;
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Event, EventKind, Mode, Node, Op, Reason, Refusal};
use elasticjob_core::view::{Answer, Query};
use zookeeper_client::{
    AddWatchMode, CreateMode, CreateOptions, Error as ZkError, EventType, MultiReadResult, MultiWriteError,
    MultiWriteResult, SessionState, Stat,
};

use super::link::{Connection, Shared};
use crate::{Error, Outcome, Sink, Target, Watch, clock};

/// Queries of one request at the most: an answer must stay well below ZooKeeper's packet limit of 1 MB.
const QUERIES_MAX: usize = 500;

/// Why a request has no answer.
enum Lost {
    /// The connection broke, or the deadline passed.
    Broken,
}

/// Waits for an answer as long as the connection stands, and not beyond the deadline: by then the session may be over.
async fn answered<T>(connection: &Connection, request: impl Future<Output = T>) -> Result<T, Lost> {
    let mut broken = connection.broken.subscribe();
    tokio::select! {
        answer = request => Ok(answer),
        _ = broken.wait_for(|broken| *broken) => Err(Lost::Broken),
        () = clock::sleep(deadline(connection)) => {
            // A connection that does not answer is no connection.
            connection.broken.send_replace(true);
            Err(Lost::Broken)
        }
    }
}

fn deadline(connection: &Connection) -> Duration {
    connection.timeout * 2 / 3
}

fn unreachable(shared: &Shared, reason: &str) -> Error {
    Error::Unreachable { registry: shared.description(), reason: reason.to_owned() }
}

fn error(shared: &Shared, path: &str, error: &ZkError) -> Error {
    match error {
        ZkError::NoNode => Error::Missing { path: path.to_owned() },
        ZkError::NoAuth | ZkError::AuthFailed => Error::Denied { path: path.to_owned() },
        error => unreachable(shared, &error.to_string()),
    }
}

pub(super) async fn read(shared: &Shared, queries: Vec<Query>) -> Result<Vec<Answer>, Error> {
    let connection = shared.current()?;
    // All parts are sent before the first answer is awaited.
    let parts: Vec<_> = queries.chunks(QUERIES_MAX).map(|part| read_part(shared, &connection, part)).collect();
    let mut answers = Vec::with_capacity(queries.len());
    for part in futures_util::future::join_all(parts).await {
        answers.extend(part?);
    }
    Ok(answers)
}

async fn read_part(shared: &Shared, connection: &Connection, queries: &[Query]) -> Result<Vec<Answer>, Error> {
    let mut reader = connection.client.new_multi_reader();
    for query in queries {
        let added = match query {
            Query::Node(path) => reader.add_get_data(path),
            Query::Children(path) => reader.add_get_children(path),
        };
        added.map_err(|e| Error::Protocol { registry: shared.description(), reason: e.to_string() })?;
    }
    let results = answered(connection, reader.commit()).await;
    let results = results.map_err(|Lost::Broken| unreachable(shared, "the connection broke"))?;
    let results = results.map_err(|e| error(shared, "/", &e))?;
    queries.iter().zip(results).map(|(query, result)| answer(shared, query, result)).collect()
}

fn answer(shared: &Shared, query: &Query, result: MultiReadResult) -> Result<Answer, Error> {
    let (Query::Node(path) | Query::Children(path)) = query;
    match (query, result) {
        (Query::Node(_), MultiReadResult::Data { data, stat }) => Ok(Answer::Node(Some(node(data, &stat)))),
        (Query::Children(_), MultiReadResult::Children { mut children }) => {
            children.sort();
            Ok(Answer::Children(Some(children)))
        }
        (Query::Node(_), MultiReadResult::Error { err: ZkError::NoNode }) => Ok(Answer::Node(None)),
        (Query::Children(_), MultiReadResult::Error { err: ZkError::NoNode }) => Ok(Answer::Children(None)),
        (_, MultiReadResult::Error { err }) => Err(error(shared, path, &err)),
        (_, other) => Err(Error::Protocol { registry: shared.description(), reason: format!("{other:?}") }),
    }
}

fn node(data: Vec<u8>, stat: &Stat) -> Node {
    // Containers and TTL nodes carry a mark where the session of an ephemeral node stands.
    let container = stat.ephemeral_owner == i64::MIN || stat.ephemeral_owner.cast_unsigned() >> 48 == 0xff00;
    Node {
        data: data.into(),
        version: stat.version,
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        created: Timestamp(stat.ctime),
        modified: Timestamp(stat.mtime),
        owner: if container { 0 } else { stat.ephemeral_owner.cast_unsigned() },
    }
}

pub(super) async fn commit(shared: &Shared, session: u64, ops: &[Op]) -> Outcome {
    let connection = match shared.current() {
        Ok(connection) if connection.session == session => connection,
        Ok(_) => return Outcome::Failed(unreachable(shared, "the session of this commit is over")),
        Err(error) => return Outcome::Failed(error),
    };
    match commit_once(shared, &connection, ops).await {
        // The namespace itself is gone: what stands at the top has no other parent.
        Outcome::Refused(Refusal { op, reason: Reason::Missing }) if ops.get(op).is_some_and(is_made_at_the_top) => {
            match answered(&connection, connection.make_namespace(shared)).await {
                Ok(Ok(())) => commit_once(shared, &connection, ops).await,
                Ok(Err(e)) => Outcome::Failed(error(shared, "/", &e)),
                Err(Lost::Broken) => Outcome::Failed(unreachable(shared, "the connection broke")),
            }
        }
        outcome => outcome,
    }
}

fn is_made_at_the_top(op: &Op) -> bool {
    matches!(op, Op::Create { path, .. } | Op::Ensure(path) if path::parent(path).is_none())
}

async fn commit_once(shared: &Shared, connection: &Connection, ops: &[Op]) -> Outcome {
    let sent = clock::instant();
    if let Err(outcome) = ensure(shared, connection, ops).await {
        return outcome;
    }
    let mut writer = connection.client.new_multi_writer();
    let mut places = Vec::with_capacity(ops.len());
    for (place, op) in ops.iter().enumerate() {
        let path = op.path();
        let added = match op {
            Op::Ensure(_) => continue,
            Op::Create { data, mode, .. } => {
                let mode = match mode {
                    Mode::Persistent => CreateMode::Persistent,
                    Mode::Ephemeral => CreateMode::Ephemeral,
                };
                writer.add_create(path, data, &mode.with_acls(shared.acls()))
            }
            Op::Set { data, version, .. } => writer.add_set_data(path, data, *version),
            Op::Delete { version, .. } => writer.add_delete(path, *version),
            Op::Check { version, .. } => writer.add_check_version(path, version.unwrap_or(-1)),
        };
        if let Err(e) = added {
            return Outcome::Failed(Error::Protocol { registry: shared.description(), reason: format!("{path}: {e}") });
        }
        places.push(place);
    }
    let Ok(result) = answered(connection, writer.commit()).await else { return Outcome::Unknown };
    match result {
        // The answer may have waited in a socket while the process stood still: its session may be over by now.
        Ok(_) if sent.elapsed() > deadline(connection) => {
            connection.broken.send_replace(true);
            Outcome::Unknown
        }
        Ok(results) => Outcome::Committed { zxid: zxid(&results) },
        Err(MultiWriteError::OperationFailed { index, source }) => match reason(&source) {
            Some(reason) => Outcome::Refused(Refusal { op: places.get(index).copied().unwrap_or(index), reason }),
            None => Outcome::Failed(error(shared, ops.first().map(Op::path).unwrap_or("/"), &source)),
        },
        Err(MultiWriteError::RequestFailed { source }) => failed(shared, &source),
    }
}

/// A request that failed as a whole: refused by the server before it did anything, or lost.
fn failed(shared: &Shared, source: &ZkError) -> Outcome {
    match source {
        ZkError::SessionExpired | ZkError::NoAuth | ZkError::AuthFailed | ZkError::ClientClosed => {
            Outcome::Failed(error(shared, "/", source))
        }
        _ => Outcome::Unknown,
    }
}

fn zxid(results: &[MultiWriteResult]) -> i64 {
    let written = results.iter().filter_map(|result| match result {
        MultiWriteResult::Create { stat, .. } | MultiWriteResult::SetData { stat } => Some(stat.mzxid),
        _ => None,
    });
    written.max().unwrap_or_default().max(0)
}

fn reason(error: &ZkError) -> Option<Reason> {
    Some(match error {
        ZkError::NoNode => Reason::Missing,
        ZkError::NodeExists => Reason::Exists,
        ZkError::BadVersion => Reason::Version,
        ZkError::NotEmpty => Reason::NotEmpty,
        ZkError::NoAuth | ZkError::NoChildrenForEphemerals | ZkError::InvalidAcl => Reason::Forbidden,
        _ => return None,
    })
}

/// Makes the nodes that must be there.
async fn ensure(shared: &Shared, connection: &Connection, ops: &[Op]) -> Result<(), Outcome> {
    let nodes = ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Ensure(_)));
    let (places, paths): (Vec<usize>, Vec<&str>) = nodes.map(|(place, op)| (place, op.path())).unzip();
    match make(connection, &paths, &CreateMode::Persistent.with_acls(shared.acls())).await {
        Ok(()) => Ok(()),
        Err(NotMade::Lost(Lost::Broken)) => Err(Outcome::Failed(unreachable(shared, "the connection broke"))),
        Err(NotMade::Refused { place, error }) => Err(match reason(&error) {
            Some(reason) => Outcome::Refused(Refusal { op: places[place], reason }),
            None => failed(shared, &error),
        }),
    }
}

/// Why a node could not be made.
enum NotMade {
    Lost(Lost),
    /// The first one that was refused.
    Refused {
        place: usize,
        error: ZkError,
    },
}

/// Makes nodes where they are missing. All requests are sent before the first answer is awaited, in their order, parents first: a
/// batch that starts a hundred jobs has hundreds, and a round trip each would take seconds where the server is far away.
async fn make(connection: &Connection, paths: &[&str], options: &CreateOptions<'_>) -> Result<(), NotMade> {
    if paths.is_empty() {
        return Ok(());
    }
    let created: Vec<_> = paths.iter().map(|path| connection.client.create(path, b"", options)).collect();
    let answers = answered(connection, futures_util::future::join_all(created)).await.map_err(NotMade::Lost)?;
    for (place, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(error) => return Err(NotMade::Refused { place, error }),
        }
    }
    Ok(())
}

pub(super) async fn create_sequential(
    shared: &Shared,
    session: u64,
    parents: &[String],
    prefix: &str,
) -> Result<String, Error> {
    let connection = shared.current()?;
    if connection.session != session {
        return Err(unreachable(shared, "the session of this request is over"));
    }
    let lost = |Lost::Broken| unreachable(shared, "the connection broke");
    let options = CreateMode::EphemeralSequential.with_acls(shared.acls());
    for attempt in 0..3 {
        match answered(&connection, connection.client.create(prefix, b"", &options)).await.map_err(lost)? {
            Ok((_, sequence)) => return Ok(format!("{prefix}{sequence}")),
            // The parents are containers, which the server removes when they are empty.
            Err(ZkError::NoNode) if attempt < 2 => {
                let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
                match make(&connection, &parents, &CreateMode::Container.with_acls(shared.acls())).await {
                    Ok(()) => {}
                    Err(NotMade::Lost(broken)) => return Err(lost(broken)),
                    Err(NotMade::Refused { error: e, .. }) => return Err(error(shared, prefix, &e)),
                }
            }
            Err(e) => return Err(error(shared, prefix, &e)),
        }
    }
    Err(Error::Missing { path: prefix.to_owned() })
}

pub(super) async fn watch(shared: &Arc<Shared>, target: Target, sink: Sink) -> Result<Watch, Error> {
    let connection = shared.current()?;
    let (path, mode) = match &target {
        Target::Node(path) => (path, AddWatchMode::Persistent),
        Target::Subtree(path) => (path, AddWatchMode::PersistentRecursive),
    };
    let watcher = answered(&connection, connection.client.watch(path, mode)).await;
    let watcher = watcher.map_err(|Lost::Broken| unreachable(shared, "the connection broke"))?;
    let mut watcher = watcher.map_err(|e| error(shared, path, &e))?;
    let mut broken = connection.broken.subscribe();
    drop(connection);
    let task = tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                event = watcher.changed() => event,
                _ = broken.wait_for(|broken| *broken) => return,
            };
            let kind = match event.event_type {
                EventType::NodeCreated => EventKind::Created,
                EventType::NodeDataChanged => EventKind::Changed,
                EventType::NodeDeleted => EventKind::Deleted,
                EventType::NodeChildrenChanged => EventKind::Children,
                EventType::Session if event.session_state == SessionState::SyncConnected => continue,
                _ => return, // the link is down, and this watch with it
            };
            sink(Event { path: event.path, kind });
        }
    });
    Ok(Watch::new(move || task.abort()))
}
