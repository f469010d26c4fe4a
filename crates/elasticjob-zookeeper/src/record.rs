//! Requests and answers (Java: `org.apache.zookeeper.proto`).

use bytes::Bytes;

use crate::jute::{Malformed, Put, Take};

/// The numbers of requests (Java: `ZooDefs.OpCode`).
pub(crate) mod opcode {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE_2: i32 = 15;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE: i32 = -11;
    pub(crate) const ERROR: i32 = -1;
}

/// What the server answers (Java: `KeeperException.Code`). Zero is no failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

impl Code {
    /// Done.
    pub const OK: Code = Code(0);
    /// An operation of a transaction that was refused for another one's sake.
    pub const RUNTIME_INCONSISTENCY: Code = Code(-2);
    /// The node is not there.
    pub const NO_NODE: Code = Code(-101);
    /// The right is lacking.
    pub const NO_AUTH: Code = Code(-102);
    /// The node has another version.
    pub const BAD_VERSION: Code = Code(-103);
    /// An ephemeral node has no children.
    pub const NO_CHILDREN_FOR_EPHEMERALS: Code = Code(-108);
    /// The node is there.
    pub const NODE_EXISTS: Code = Code(-110);
    /// The node has children.
    pub const NOT_EMPTY: Code = Code(-111);
    /// The session is over.
    pub const SESSION_EXPIRED: Code = Code(-112);
    /// The access list says nothing, as that of a creator who did not say who he is.
    pub const INVALID_ACL: Code = Code(-114);
    /// Who we are was not accepted.
    pub const AUTH_FAILED: Code = Code(-115);
    /// The session is now served on another connection.
    pub const SESSION_MOVED: Code = Code(-118);
    /// The server has lost its quorum and only reads.
    pub const READ_ONLY: Code = Code(-119);
    /// The quota of a node is used up.
    pub const QUOTA_EXCEEDED: Code = Code(-125);

    /// Returns `true` if the same request fails until someone changes the server: it is not implemented, or its arguments are
    /// invalid.
    pub fn is_lasting(self) -> bool {
        matches!(self.0, -5 | -6 | -8 | -113)
    }

    fn word(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "ok",
            -1 => "system error",
            -2 => "runtime inconsistency",
            -3 => "data inconsistency",
            -4 => "connection loss",
            -5 => "marshalling error",
            -6 => "not implemented by this server",
            -7 => "operation timeout",
            -8 => "bad arguments",
            -101 => "no such node",
            -102 => "access denied",
            -103 => "the node has another version than expected",
            -108 => "an ephemeral node cannot have children",
            -110 => "the node exists",
            -111 => "the node has children",
            -112 => "the session has expired",
            -113 => "invalid callback",
            -114 => "invalid access list",
            -115 => "authentication failed",
            -118 => "the session has moved to another connection",
            -119 => "the server is read-only",
            -122 => "the request has timed out",
            -125 => "the quota is used up",
            -127 => "the server is overloaded",
            _ => return None,
        })
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.word() {
            Some(word) => f.write_str(word),
            None => write!(f, "ZooKeeper error code {}", self.0),
        }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({self})", self.0)
    }
}

/// Who may do what with a node that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All rights for everyone (`world:anyone`).
    Anyone,
    /// Everything for those who this connection is authenticated as, nothing for others (`auth:`).
    Creator,
}

/// All rights: read, write, create, delete, administer.
const ALL: i32 = 31;

/// Everything but reading.
const WRITES: i32 = ALL & !1;

/// Who may do what with a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList(Vec<(i32, String, String)>);

impl AccessList {
    /// Returns `true` if everyone has all rights.
    pub fn is_open(&self) -> bool {
        self.0.iter().any(|(rights, scheme, id)| rights & ALL == ALL && scheme == "world" && id == "anyone")
    }

    /// Returns `true` if only this identity of the digest scheme, as `user:hash`, may change something: data, children, or the rights.
    pub fn is_written_only_by(&self, identity: &str) -> bool {
        let writers = self.0.iter().filter(|(rights, ..)| rights & WRITES != 0);
        writers.into_iter().all(|(_, scheme, id)| scheme == "digest" && id == identity)
    }
}

pub(crate) fn decode_access_list(mut bytes: Bytes) -> Result<AccessList, Malformed> {
    let mut found = AccessList::default();
    for _ in 0..bytes.count()? {
        found.0.push((bytes.int()?, bytes.text()?, bytes.text()?));
    }
    Ok(found)
}

impl Access {
    fn put(self, out: &mut Vec<u8>) {
        let (scheme, id) = match self {
            Access::Anyone => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        out.int(1);
        out.int(ALL);
        out.text(scheme);
        out.text(id);
    }
}

/// How long a node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Until it is deleted.
    Persistent,
    /// As long as the session.
    Ephemeral,
    /// The same; ten digits that rise are appended to the name.
    EphemeralSequential,
    /// Until some time after its last child is gone.
    Container,
}

impl CreateMode {
    fn flags(self) -> i32 {
        match self {
            CreateMode::Persistent => 0,
            CreateMode::Ephemeral => 1,
            CreateMode::EphemeralSequential => 3,
            CreateMode::Container => 4,
        }
    }

    pub(crate) fn opcode(self) -> i32 {
        if self == CreateMode::Container { opcode::CREATE_CONTAINER } else { opcode::CREATE_2 }
    }
}

/// An operation of a transaction. Paths are those of the server. No version means any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Write<'a> {
    /// Creates a node.
    Create {
        /// Where.
        path: &'a str,
        /// Its data.
        data: &'a [u8],
        /// How long it lives.
        mode: CreateMode,
        /// Who may use it.
        access: Access,
    },
    /// Replaces the data.
    Set {
        /// Of which node.
        path: &'a str,
        /// The new data.
        data: &'a [u8],
        /// The version that it must have.
        version: Option<i32>,
    },
    /// Deletes a node that has no children.
    Delete {
        /// Which one.
        path: &'a str,
        /// The version that it must have.
        version: Option<i32>,
    },
    /// Checks that a node is there.
    Check {
        /// Which one.
        path: &'a str,
        /// The version that it must have.
        version: Option<i32>,
    },
}

pub(crate) fn put_create(out: &mut Vec<u8>, path: &str, data: &[u8], mode: CreateMode, access: Access) {
    out.text(path);
    out.buffer(data);
    access.put(out);
    out.int(mode.flags());
}

fn put_header(out: &mut Vec<u8>, opcode: i32) {
    out.int(opcode);
    out.flag(false);
    out.int(-1);
}

fn put_end(out: &mut Vec<u8>) {
    out.int(-1);
    out.flag(true);
    out.int(-1);
}

pub(crate) fn put_multi(out: &mut Vec<u8>, ops: &[Write<'_>]) {
    for op in ops {
        match *op {
            Write::Create { path, data, mode, access } => {
                put_header(out, if mode == CreateMode::Container { opcode::CREATE_CONTAINER } else { opcode::CREATE });
                put_create(out, path, data, mode, access);
            }
            Write::Set { path, data, version } => {
                put_header(out, opcode::SET_DATA);
                out.text(path);
                out.buffer(data);
                out.int(version.unwrap_or(-1));
            }
            Write::Delete { path, version } => {
                put_header(out, opcode::DELETE);
                out.text(path);
                out.int(version.unwrap_or(-1));
            }
            Write::Check { path, version } => {
                put_header(out, opcode::CHECK);
                out.text(path);
                out.int(version.unwrap_or(-1));
            }
        }
    }
    put_end(out);
}

/// A question about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// Its data and statistics.
    Node(&'a str),
    /// The names of its children.
    Children(&'a str),
}

pub(crate) fn put_reads(out: &mut Vec<u8>, reads: &[Read<'_>]) {
    for read in reads {
        let (opcode, path) = match *read {
            Read::Node(path) => (opcode::GET_DATA, path),
            Read::Children(path) => (opcode::GET_CHILDREN, path),
        };
        put_header(out, opcode);
        out.text(path);
        out.flag(false); // without a watch
    }
    put_end(out);
}

/// What the server knows about a node (Java: `Stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The one that changed its data last.
    pub mzxid: i64,
    /// When it was created, in milliseconds since 1970 by the clock of the server.
    pub ctime: i64,
    /// When its data was changed last.
    pub mtime: i64,
    /// How often its data was changed.
    pub version: i32,
    /// The session that it lives as long as; another mark for containers; 0 for others.
    pub ephemeral_owner: i64,
}

fn take_stat(bytes: &mut Bytes) -> Result<Stat, Malformed> {
    let (czxid, mzxid, ctime, mtime) = (bytes.long()?, bytes.long()?, bytes.long()?, bytes.long()?);
    let version = bytes.int()?;
    let (_cversion, _aversion) = (bytes.int()?, bytes.int()?);
    let ephemeral_owner = bytes.long()?;
    let (_data_length, _children, _pzxid) = (bytes.int()?, bytes.int()?, bytes.long()?);
    Ok(Stat { czxid, mzxid, ctime, mtime, version, ephemeral_owner })
}

/// The answer to a question about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The node is there.
    Node {
        /// Its data.
        data: Bytes,
        /// What else is known of it.
        stat: Stat,
    },
    /// The names of its children, in no order.
    Children(Vec<String>),
    /// There is no answer, for that reason: [`Code::NO_NODE`] when it is not there.
    Error(Code),
}

/// Reads the answers to several questions: as many as there were questions.
///
/// # Errors
///
/// The bytes are something else.
pub fn decode_reads(mut bytes: Bytes, expected: usize) -> Result<Vec<Found>, Malformed> {
    let mut found = Vec::with_capacity(expected.min(bytes.len()));
    while let Some(opcode) = take_header(&mut bytes)? {
        found.push(match opcode {
            opcode::GET_DATA => {
                let data = bytes.buffer()?;
                Found::Node { data, stat: take_stat(&mut bytes)? }
            }
            opcode::GET_CHILDREN => {
                let count = bytes.count()?;
                let names: Result<Vec<String>, Malformed> = (0..count).map(|_| bytes.text()).collect();
                Found::Children(names?)
            }
            opcode::ERROR => Found::Error(Code(bytes.int()?)),
            _ => return Err(Malformed("an answer of an unexpected type")),
        });
    }
    if found.len() == expected {
        Ok(found)
    } else {
        Err(Malformed("the number of answers differs from the number of requests"))
    }
}

/// Reads the results of a transaction: `Ok` when each operation was executed, else the first one that was refused.
///
/// # Errors
///
/// The bytes are something else.
pub fn decode_multi(mut bytes: Bytes, expected: usize) -> Result<Result<(), (usize, Code)>, Malformed> {
    let (mut count, mut refused) = (0, None);
    while let Some(opcode) = take_header(&mut bytes)? {
        match opcode {
            opcode::CREATE => drop(bytes.buffer()?),
            opcode::CREATE_2 | opcode::CREATE_CONTAINER => {
                bytes.buffer()?;
                take_stat(&mut bytes)?;
            }
            opcode::SET_DATA => drop(take_stat(&mut bytes)?),
            opcode::DELETE | opcode::CHECK => {}
            opcode::ERROR => {
                let code = Code(bytes.int()?);
                // Those before the one that was refused are fine, those after it were not checked.
                if code != Code::OK && (refused.is_none() || code != Code::RUNTIME_INCONSISTENCY) {
                    refused.get_or_insert((count, code));
                }
            }
            _ => return Err(Malformed("a result of an unexpected type")),
        }
        count += 1;
    }
    match refused {
        Some(refused) => Ok(Err(refused)),
        None if count == expected => Ok(Ok(())),
        None => Err(Malformed("the number of results differs from the number of operations")),
    }
}

/// The kind of the next part; `None` at the end.
fn take_header(bytes: &mut Bytes) -> Result<Option<i32>, Malformed> {
    let (opcode, is_end, _error) = (bytes.int()?, bytes.flag()?, bytes.int()?);
    Ok((!is_end).then_some(opcode))
}

/// What happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Created,
    /// It was deleted.
    Deleted,
    /// Its data was changed.
    Changed,
    /// A child was created or deleted.
    Children,
}

/// The event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which node.
    pub path: String,
}

/// `None` for what is not about a node.
pub(crate) fn take_event(bytes: &mut Bytes) -> Result<Option<WatchEvent>, Malformed> {
    let (kind, _state, path) = (bytes.int()?, bytes.int()?, bytes.text()?);
    let kind = match kind {
        1 => EventKind::Created,
        2 => EventKind::Deleted,
        3 => EventKind::Changed,
        4 => EventKind::Children,
        _ => return Ok(None),
    };
    Ok(Some(WatchEvent { kind, path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_says_whether_everyone_or_only_one_identity_may_write() {
        let list = |entries: &[(i32, &str, &str)]| {
            let mut bytes = Vec::new();
            bytes.int(i32::try_from(entries.len()).expect("few"));
            for (rights, scheme, id) in entries {
                bytes.int(*rights);
                bytes.text(scheme);
                bytes.text(id);
            }
            decode_access_list(bytes.into()).map(|list| (list.is_open(), list.is_written_only_by("u:hash")))
        };
        for (entries, expected) in [
            (vec![(31, "digest", "u:hash"), (31, "world", "anyone")], (true, false)),
            (vec![(31, "digest", "u:hash"), (1, "world", "anyone")], (false, true)),
            (vec![(31, "digest", "u:hash")], (false, true)),
            (vec![(31, "digest", "u:other")], (false, false)),
            (vec![(31, "digest", "u:hash"), (2, "digest", "evil:hash")], (false, false)),
            (vec![(31, "ip", "0.0.0.0/0")], (false, false)),
            (vec![(3, "world", "anyone")], (false, false)),
            (vec![(16, "world", "anyone")], (false, false)),
        ] {
            assert_eq!(list(&entries), Ok(expected), "{entries:?}");
        }
        assert!(decode_access_list(Bytes::from_static(&[0, 0, 0, 9])).is_err());
    }

    fn header(out: &mut Vec<u8>, opcode: i32, error: i32) {
        out.int(opcode);
        out.flag(false);
        out.int(error);
    }

    #[test]
    fn a_refused_transaction_names_the_first_operation_that_was_refused() {
        let mut answer = Vec::new();
        for code in [0, -110, -2, -2] {
            header(&mut answer, opcode::ERROR, code);
            answer.int(code);
        }
        put_end(&mut answer);
        assert_eq!(decode_multi(answer.into(), 4), Ok(Err((1, Code::NODE_EXISTS))));
    }

    #[test]
    fn a_number_of_results_that_does_not_fit_is_refused() {
        let mut answer = Vec::new();
        header(&mut answer, opcode::DELETE, 0);
        put_end(&mut answer);
        assert_eq!(decode_multi(answer.clone().into(), 1), Ok(Ok(())));
        assert!(decode_multi(answer.clone().into(), 2).is_err());
        assert!(decode_reads(answer.into(), 1).is_err());
    }

    #[test]
    fn questions_are_answered_in_their_order() {
        let mut answer = Vec::new();
        header(&mut answer, opcode::GET_CHILDREN, 0);
        answer.int(2);
        answer.text("b");
        answer.text("a");
        header(&mut answer, opcode::ERROR, -101);
        answer.int(-101);
        put_end(&mut answer);
        let expected = vec![Found::Children(vec!["b".into(), "a".into()]), Found::Error(Code::NO_NODE)];
        assert_eq!(decode_reads(answer.into(), 2), Ok(expected));
    }
}
