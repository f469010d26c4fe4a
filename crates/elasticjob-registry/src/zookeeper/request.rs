//! Requests over the current connection. Each ends with its connection, which breaks when an answer is overdue.

use std::sync::Arc;

use base64::Engine;

use elasticjob_core::path;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{self, Mode, Node, Op, Reason, Refusal};
use elasticjob_zookeeper::{
    Access, Client, Code, CreateMode, EventKind, Failure, Found, Multi, Read, Stat, WatchEvent, Write,
};

use sha1::Digest;

use super::link::{Shared, make_namespace};
use crate::{Error, Outcome, Protection, Sink, Target, Watch};

/// Queries of one request at the most: an answer must stay well below ZooKeeper's packet limit of 1 MB.
const QUERIES_MAX: usize = 500;

fn unreachable(shared: &Shared, reason: &str) -> Error {
    Error::Unreachable { registry: shared.description(), reason: reason.to_owned() }
}

fn rejected(shared: &Shared, path: &str, reason: &str) -> Error {
    Error::Rejected { registry: shared.description(), path: path.to_owned(), reason: reason.to_owned() }
}

fn error(shared: &Shared, path: &str, failure: &Failure) -> Error {
    match failure {
        Failure::Refused(code) => refused(shared, path, *code),
        Failure::NotSent(_) | Failure::Unknown(_) => {
            unreachable(shared, &format!("the connection was lost: {failure}"))
        }
        Failure::WatchedOtherwise(_) => Error::Protocol { registry: shared.description(), reason: failure.to_string() },
    }
}

fn refused(shared: &Shared, path: &str, code: Code) -> Error {
    match code {
        Code::NO_NODE => Error::Missing { path: path.to_owned() },
        Code::NO_AUTH | Code::AUTH_FAILED | Code::INVALID_ACL => Error::Denied { path: path.to_owned() },
        Code::QUOTA_EXCEEDED => {
            rejected(shared, path, "the ZooKeeper quota of this path is exceeded; raise it with `setquota`")
        }
        Code::READ_ONLY => rejected(shared, path, "the server is read-only, because it has lost its quorum"),
        code if code.is_lasting() => rejected(shared, path, &code.to_string()),
        code => unreachable(shared, &code.to_string()),
    }
}

pub(super) async fn read(shared: &Shared, queries: Vec<Query>) -> Result<Vec<Answer>, Error> {
    let client = shared.current()?;
    let full = |query: &Query| {
        let (Query::Node(path) | Query::Children(path)) = query;
        shared.full(path)
    };
    let paths: Vec<String> = queries.iter().map(full).collect();
    let reads: Vec<Read<'_>> = queries
        .iter()
        .zip(&paths)
        .map(|(query, path)| match query {
            Query::Node(_) => Read::Node(path),
            Query::Children(_) => Read::Children(path),
        })
        .collect();
    // All parts are sent before the first answer is awaited.
    let parts: Vec<_> = reads.chunks(QUERIES_MAX).map(|part| client.read(part)).collect();
    let mut answers = Vec::with_capacity(queries.len());
    for part in futures_util::future::join_all(parts).await {
        for found in part.map_err(|e| error(shared, "/", &e))? {
            answers.push(answer(shared, &queries[answers.len()], found)?);
        }
    }
    Ok(answers)
}

fn answer(shared: &Shared, query: &Query, found: Found) -> Result<Answer, Error> {
    let (Query::Node(path) | Query::Children(path)) = query;
    match (query, found) {
        (Query::Node(_), Found::Node { data, stat }) => Ok(Answer::Node(Some(node(&data, &stat)))),
        (Query::Children(_), Found::Children(mut children)) => {
            children.sort();
            Ok(Answer::Children(Some(children)))
        }
        (Query::Node(_), Found::Error(Code::NO_NODE)) => Ok(Answer::Node(None)),
        (Query::Children(_), Found::Error(Code::NO_NODE)) => Ok(Answer::Children(None)),
        (_, Found::Error(code)) => Err(refused(shared, path, code)),
        (_, other) => Err(Error::Protocol { registry: shared.description(), reason: format!("{other:?}") }),
    }
}

fn node(data: &[u8], stat: &Stat) -> Node {
    // Containers and TTL nodes have a mark in the place of the session of an ephemeral node.
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
    let client = match shared.current() {
        Ok(client) if client.session().id == session => client,
        Ok(_) => return Outcome::Failed(unreachable(shared, "the session of this request has ended")),
        Err(error) => return Outcome::Failed(error),
    };
    match commit_once(shared, &client, ops).await {
        // The namespace itself was deleted: nodes at the top have no other parent.
        Outcome::Refused(Refusal { op, reason: Reason::Missing }) if ops.get(op).is_some_and(is_made_at_the_top) => {
            match make_namespace(shared, &client).await {
                Ok(()) => commit_once(shared, &client, ops).await,
                Err(e) => Outcome::Failed(error(shared, "/", &e)),
            }
        }
        outcome => outcome,
    }
}

fn is_made_at_the_top(op: &Op) -> bool {
    matches!(op, Op::Create { path, .. } | Op::Ensure(path) if path::parent(path).is_none())
}

/// The access to nodes that a transaction creates. An operator may have a digest while the processes of an open job have none: nodes that
/// only the operator could read would be hidden from those processes, which are not even told that they are there.
async fn access(shared: &Shared, client: &Client, ops: &[Op]) -> Access {
    let usual = shared.access();
    let is_agent = shared.settings.creates_namespace;
    let created = ops.iter().find(|op| matches!(op, Op::Create { .. } | Op::Ensure(_)));
    let Some(created) = created.filter(|_| usual == Access::Creator && !is_agent) else { return usual };
    let top = created.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    match client.access_list(&shared.full(&format!("/{top}"))).await {
        Ok(list) if list.is_open() => Access::Anyone,
        Ok(_) | Err(_) => usual,
    }
}

/// See [`crate::Registry::protects`].
pub(super) async fn protects(shared: &Shared, paths: &[String]) -> Result<Protection, Error> {
    let Some(digest) = &shared.settings.digest else { return Ok(Protection::None) };
    let client = shared.current()?;
    let identity = identity(digest);
    let mut protection = Protection::Whole;
    for path in paths {
        match client.access_list(&shared.full(path)).await {
            Ok(list) if list.is_written_only_by(&identity) => {}
            Err(Failure::Refused(Code::NO_NODE)) => protection = Protection::Absent,
            // Where the access list must not be read, it is not known who can write.
            Ok(_) | Err(Failure::Refused(_)) => return Ok(Protection::Open),
            Err(failure) => return Err(error(shared, path, &failure)),
        }
    }
    if protection == Protection::Absent {
        // No other client can create the missing ones where none can create any.
        let list = client.access_list(&shared.root).await;
        if list.is_ok_and(|list| list.is_written_only_by(&identity)) {
            return Ok(Protection::Whole);
        }
    }
    Ok(protection)
}

/// The identity of a digest in access lists: the user, and a hash of both parts.
fn identity(digest: &str) -> String {
    let hash = sha1::Sha1::digest(digest.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    format!("{}:{hash}", digest.split(':').next().unwrap_or_default())
}

async fn commit_once(shared: &Shared, client: &Client, ops: &[Op]) -> Outcome {
    let access = access(shared, client, ops).await;
    if let Err(outcome) = ensure(shared, client, ops, access).await {
        return outcome;
    }
    let (mut writes, mut places) = (Vec::with_capacity(ops.len()), Vec::with_capacity(ops.len()));
    let paths: Vec<String> = ops.iter().map(|op| shared.full(op.path())).collect();
    for (place, (op, path)) in ops.iter().zip(&paths).enumerate() {
        writes.push(match op {
            Op::Ensure(_) => continue,
            Op::Create { data, mode, .. } => {
                let mode = match mode {
                    Mode::Persistent => CreateMode::Persistent,
                    Mode::Ephemeral => CreateMode::Ephemeral,
                };
                Write::Create { path, data, mode, access }
            }
            Op::Set { data, version, .. } => Write::Set { path, data, version: *version },
            Op::Delete { version, .. } => Write::Delete { path, version: *version },
            Op::Check { version, .. } => Write::Check { path, version: *version },
        });
        places.push(place);
    }
    match client.multi(&writes).await {
        Ok(Multi::Committed { zxid }) => Outcome::Committed { zxid },
        Ok(Multi::Refused { op, code }) => {
            let place = places.get(op).copied().unwrap_or(op);
            match reason(code) {
                Some(reason) => Outcome::Refused(Refusal { op: place, reason }),
                None => Outcome::Failed(refused(shared, ops.get(place).map_or("/", Op::path), code)),
            }
        }
        Err(failure) => failed(shared, &failure),
    }
}

/// A request that failed as a whole.
fn failed(shared: &Shared, failure: &Failure) -> Outcome {
    match failure {
        Failure::Unknown(_) => Outcome::Unknown,
        failure => Outcome::Failed(error(shared, "/", failure)),
    }
}

fn reason(code: Code) -> Option<Reason> {
    Some(match code {
        Code::NO_NODE => Reason::Missing,
        Code::NODE_EXISTS => Reason::Exists,
        Code::BAD_VERSION => Reason::Version,
        Code::NOT_EMPTY => Reason::NotEmpty,
        Code::NO_AUTH | Code::NO_CHILDREN_FOR_EPHEMERALS | Code::INVALID_ACL => Reason::Forbidden,
        _ => return None,
    })
}

/// Makes the nodes that must be there.
async fn ensure(shared: &Shared, client: &Client, ops: &[Op], access: Access) -> Result<(), Outcome> {
    let nodes = ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Ensure(_)));
    let (places, paths): (Vec<usize>, Vec<&str>) = nodes.map(|(place, op)| (place, op.path())).unzip();
    match make(shared, client, &paths, CreateMode::Persistent, access).await {
        Ok(()) => Ok(()),
        Err((place, Failure::Refused(code))) => Err(match reason(code) {
            Some(reason) => Outcome::Refused(Refusal { op: places[place], reason }),
            None => Outcome::Failed(refused(shared, paths[place], code)),
        }),
        // Nothing of the transaction itself was sent.
        Err((_, failure)) => Err(Outcome::Failed(error(shared, "/", &failure))),
    }
}

async fn is_there(shared: &Shared, client: &Client, path: &str) -> bool {
    let found = client.read(&[Read::Node(&shared.full(path))]).await;
    found.is_ok_and(|found| matches!(found[..], [Found::Node { .. } | Found::Error(Code::NO_AUTH)]))
}

/// Makes nodes where they are missing, or gives the place of the first that could not be made. All requests are sent before the first
/// answer is awaited, in their order, parents first: a batch that starts a hundred jobs has hundreds, and a round trip each would take
/// seconds where the server is far away.
async fn make(
    shared: &Shared,
    client: &Client,
    paths: &[&str],
    mode: CreateMode,
    access: Access,
) -> Result<(), (usize, Failure)> {
    let create = |path: &&str| client.create(&shared.full(path), b"", mode, access);
    let created: Vec<_> = paths.iter().map(create).collect();
    for (place, answer) in futures_util::future::join_all(created).await.into_iter().enumerate() {
        match answer {
            Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS)) => {}
            // ZooKeeper checks the right first, and then whether the node exists.
            Err(Failure::Refused(Code::NO_AUTH)) if is_there(shared, client, paths[place]).await => {}
            Err(failure) => return Err((place, failure)),
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
    let client = shared.current()?;
    if client.session().id != session {
        return Err(unreachable(shared, "the session of this request has ended"));
    }
    for attempt in 0..3 {
        match client.create(&shared.full(prefix), b"", CreateMode::EphemeralSequential, shared.access()).await {
            Ok(path) => {
                return shared
                    .below(&path)
                    .ok_or_else(|| unreachable(shared, "the server created a node outside the namespace"));
            }
            // The parents are containers, which the server removes when they are empty.
            Err(Failure::Refused(Code::NO_NODE)) if attempt < 2 => {
                let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
                let made = make(shared, &client, &parents, CreateMode::Container, shared.access()).await;
                made.map_err(|(_, e)| error(shared, prefix, &e))?;
            }
            Err(e) => return Err(error(shared, prefix, &e)),
        }
    }
    Err(Error::Missing { path: prefix.to_owned() })
}

pub(super) async fn watch(shared: &Arc<Shared>, target: Target, sink: Sink) -> Result<Watch, Error> {
    let client = shared.current()?;
    let recursive = matches!(target, Target::Subtree(_));
    let names = Arc::clone(shared);
    let told: elasticjob_zookeeper::Sink = Arc::new(move |event: &WatchEvent| {
        let kind = match event.kind {
            EventKind::Created => tree::EventKind::Created,
            EventKind::Changed => tree::EventKind::Changed,
            EventKind::Deleted => tree::EventKind::Deleted,
            EventKind::Children => tree::EventKind::Children,
        };
        if let Some(path) = names.below(&event.path) {
            sink(tree::Event { path, kind });
        }
    });
    let guard = client.watch(&shared.full(target.path()), recursive, told).await;
    let guard = guard.map_err(|e| error(shared, target.path(), &e))?;
    Ok(Watch::new(move || drop(guard)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_identity_of_a_digest_is_that_of_zookeeper() {
        // As `DigestAuthenticationProvider` of ZooKeeper prints it.
        assert_eq!(super::identity("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }
}
