//! What goes over the socket: a length of four bytes, then JSON. Private to one version of the program: both ends are the
//! same binary.

use std::io;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Event, EventKind, Mode, Node, Op, Reason, Refusal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Error, Outcome, Target};

/// A frame larger than this is not one of ours.
const FRAME_MAX: u32 = 16 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) ask: Ask,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    Read(Vec<(bool, String)>),
    Commit(Vec<WireOp>),
    Sequential {
        parents: Vec<String>,
        prefix: String,
    },
    Watch {
        subtree: bool,
        path: String,
    },
    Unwatch {
        watch: u64,
    },
    /// Check the file, or copy it to that new file.
    Inspect {
        backup: Option<std::path::PathBuf>,
    },
    Close,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Hello {
        session: u64,
    },
    /// The holder cannot answer at the moment; it closes the connection.
    Refused {
        reason: String,
    },
    Inspected {
        id: u64,
        found: Result<String, String>,
    },
    Read {
        id: u64,
        answers: Result<Vec<WireAnswer>, String>,
    },
    Commit {
        id: u64,
        outcome: WireOutcome,
    },
    Sequential {
        id: u64,
        path: Result<String, String>,
    },
    Watching {
        id: u64,
    },
    Event {
        watch: u64,
        path: String,
        kind: u8,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireAnswer {
    Node(Option<WireNode>),
    Children(Option<Vec<String>>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireNode {
    data: Vec<u8>,
    version: i32,
    czxid: i64,
    mzxid: i64,
    created: i64,
    modified: i64,
    owner: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireOp {
    Ensure(String),
    Create(String, Vec<u8>, bool),
    Set(String, Vec<u8>, Option<i32>),
    Delete(String, Option<i32>),
    Check(String, Option<i32>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireOutcome {
    Committed(i64),
    Refused(usize, u8),
    Unknown,
    Failed(String),
}

pub(super) fn queries(queries: Vec<Query>) -> Vec<(bool, String)> {
    let wire = |query| match query {
        Query::Node(path) => (true, path),
        Query::Children(path) => (false, path),
    };
    queries.into_iter().map(wire).collect()
}

pub(super) fn to_queries(wire: Vec<(bool, String)>) -> Vec<Query> {
    wire.into_iter().map(|(node, path)| if node { Query::Node(path) } else { Query::Children(path) }).collect()
}

pub(super) fn target(subtree: bool, path: String) -> Target {
    if subtree { Target::Subtree(path) } else { Target::Node(path) }
}

pub(super) fn event(path: String, kind: u8) -> Event {
    let kind = match kind {
        0 => EventKind::Created,
        1 => EventKind::Changed,
        2 => EventKind::Deleted,
        _ => EventKind::Children,
    };
    Event { path, kind }
}

pub(super) fn event_kind(kind: EventKind) -> u8 {
    match kind {
        EventKind::Created => 0,
        EventKind::Changed => 1,
        EventKind::Deleted => 2,
        EventKind::Children => 3,
    }
}

impl From<Answer> for WireAnswer {
    fn from(answer: Answer) -> WireAnswer {
        match answer {
            Answer::Children(names) => WireAnswer::Children(names),
            Answer::Node(node) => WireAnswer::Node(node.map(|n| WireNode {
                data: n.data.to_vec(),
                version: n.version,
                czxid: n.czxid,
                mzxid: n.mzxid,
                created: n.created.0,
                modified: n.modified.0,
                owner: n.owner,
            })),
        }
    }
}

impl From<WireAnswer> for Answer {
    fn from(answer: WireAnswer) -> Answer {
        match answer {
            WireAnswer::Children(names) => Answer::Children(names),
            WireAnswer::Node(node) => Answer::Node(node.map(|n| Node {
                data: n.data.into(),
                version: n.version,
                czxid: n.czxid,
                mzxid: n.mzxid,
                created: Timestamp(n.created),
                modified: Timestamp(n.modified),
                owner: n.owner,
            })),
        }
    }
}

impl From<Op> for WireOp {
    fn from(op: Op) -> WireOp {
        match op {
            Op::Ensure(path) => WireOp::Ensure(path),
            Op::Create { path, data, mode } => WireOp::Create(path, data, mode == Mode::Ephemeral),
            Op::Set { path, data, version } => WireOp::Set(path, data, version),
            Op::Delete { path, version } => WireOp::Delete(path, version),
            Op::Check { path, version } => WireOp::Check(path, version),
        }
    }
}

impl From<WireOp> for Op {
    fn from(op: WireOp) -> Op {
        match op {
            WireOp::Ensure(path) => Op::Ensure(path),
            WireOp::Create(path, data, ephemeral) => {
                Op::Create { path, data, mode: if ephemeral { Mode::Ephemeral } else { Mode::Persistent } }
            }
            WireOp::Set(path, data, version) => Op::Set { path, data, version },
            WireOp::Delete(path, version) => Op::Delete { path, version },
            WireOp::Check(path, version) => Op::Check { path, version },
        }
    }
}

const REASONS: [Reason; 5] = [Reason::Missing, Reason::Exists, Reason::Version, Reason::NotEmpty, Reason::Forbidden];

impl From<Outcome> for WireOutcome {
    fn from(outcome: Outcome) -> WireOutcome {
        match outcome {
            Outcome::Committed { zxid } => WireOutcome::Committed(zxid),
            Outcome::Refused(refusal) => {
                let reason = REASONS.iter().position(|r| *r == refusal.reason).unwrap_or_default();
                WireOutcome::Refused(refusal.op, u8::try_from(reason).unwrap_or_default())
            }
            Outcome::Unknown => WireOutcome::Unknown,
            Outcome::Failed(error) => WireOutcome::Failed(error.to_string()),
        }
    }
}

impl WireOutcome {
    pub(super) fn outcome(self, registry: &str) -> Outcome {
        match self {
            WireOutcome::Committed(zxid) => Outcome::Committed { zxid },
            WireOutcome::Refused(op, reason) => {
                let reason = REASONS.get(usize::from(reason)).copied().unwrap_or(Reason::Forbidden);
                Outcome::Refused(Refusal { op, reason })
            }
            WireOutcome::Unknown => Outcome::Unknown,
            WireOutcome::Failed(reason) => Outcome::Failed(Error::Protocol { registry: registry.to_owned(), reason }),
        }
    }
}

pub(super) async fn send<T: Serialize>(out: &mut (impl AsyncWriteExt + Unpin), frame: &T) -> io::Result<()> {
    let body = serde_json::to_vec(frame)?;
    let length = u32::try_from(body.len()).map_err(|_| io::Error::other("a frame of more than 4 GB cannot be sent"))?;
    out.write_all(&length.to_be_bytes()).await?;
    out.write_all(&body).await?;
    out.flush().await
}

/// # Cancel safety
///
/// None: a frame that was half read is lost.
pub(super) async fn receive<T: for<'de> Deserialize<'de>>(input: &mut (impl AsyncReadExt + Unpin)) -> io::Result<T> {
    let length = input.read_u32().await?;
    if length > FRAME_MAX {
        return Err(io::Error::other(format!(
            "the peer sent a frame of {length} bytes, more than the limit; is it another version of elasticjob?"
        )));
    }
    let mut body = vec![0; length as usize];
    input.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}
