//! A client of ZooKeeper (3.6 or newer): one connection with its session.
//!
//! ```text
//! jute.rs      numbers, texts and lists as ZooKeeper writes them (Java: `org.apache.jute`)
//! record.rs    requests and answers
//! protocol.rs  one connection as a pure state machine: bytes and times in, bytes and answers out
//! watches.rs   which watches are set, and who takes an event
//! client.rs    the task that owns the socket, and the requests of callers
//! connect.rs   servers, addresses, the first exchange
//! clock.rs     the only place that reads the time
//! ```
//!
//! A [`Client`] is one connection. When it breaks it is over: every request that was sent and not answered ends as
//! [`Failure::Unknown`], every other one as [`Failure::NotSent`], no watch reports anything more, and nothing is ever sent again.
//! To continue, connect again with the same [`Session`]. So nothing can be executed late or twice.

mod client;
mod clock;
mod connect;
mod jute;
mod protocol;
mod record;
mod watches;

pub use client::{Client, Failure, Multi, Sink, WatchGuard};
pub use connect::{ConnectError, Options, Session, connect};
pub use jute::Malformed;
pub use protocol::{Broken, Established, Incoming, Protocol, Reply};
pub use record::{
    Access, AccessList, Code, CreateMode, EventKind, Found, Read, Stat, WatchEvent, Write, decode_multi, decode_reads,
};
