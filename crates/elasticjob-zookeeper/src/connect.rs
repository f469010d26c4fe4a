//! Servers, addresses, the first exchange.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};

use crate::client::Client;
use crate::clock;
use crate::protocol::{Broken, Established, Incoming, Protocol};

/// A session. A client that knows both parts can continue it.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// Its number, which ephemeral nodes carry as their owner.
    pub id: u64,
    /// What shows that it is ours.
    pub password: [u8; 16],
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:#x})", self.id)
    }
}

/// How to connect.
#[derive(Clone)]
pub struct Options<'a> {
    /// `host:port,host:port`; names are resolved at each call.
    pub servers: &'a str,
    /// The session timeout that is asked for. The server bounds it to 2 to 20 of its ticks.
    pub session_timeout: Duration,
    /// How long all attempts together may take.
    pub limit: Duration,
    /// `user:password`, for the scheme `digest`.
    pub digest: Option<&'a str>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The session that was to be continued is over.
    #[error("the session has expired")]
    Expired,
    /// A server does not accept the digest.
    #[error("the server rejected the digest")]
    AuthFailed,
    /// No server took the connection; why, for each address.
    #[error("no server answers ({})", join(.0))]
    NoServer(Vec<(String, String)>),
}

fn join(reasons: &[(String, String)]) -> String {
    reasons.iter().map(|(server, reason)| format!("{server}: {reason}")).collect::<Vec<_>>().join("; ")
}

/// Connects to one of the servers, in random order, and continues that session, or opens a new one.
///
/// # Errors
///
/// As [`ConnectError`] says. Within the limit every server is tried.
pub async fn connect(options: &Options<'_>, former: Option<&Session>) -> Result<Client, ConnectError> {
    let mut servers: Vec<&str> = options.servers.split(',').map(str::trim).collect();
    servers.shuffle(&mut rand::rng());
    let until = clock::instant() + options.limit;
    let mut reasons = Vec::new();
    for (tried, server) in servers.iter().enumerate() {
        // Each that is left has the same share of what is left.
        let share = until.saturating_duration_since(clock::instant()) / shares(servers.len() - tried);
        match clock::within(share, try_server(options, former, server)).await {
            Some(Ok(client)) => return Ok(client),
            Some(Err(Attempt::Expired)) => return Err(ConnectError::Expired),
            Some(Err(Attempt::AuthFailed)) => return Err(ConnectError::AuthFailed),
            Some(Err(Attempt::Failed(reason))) => reasons.push(((*server).to_owned(), reason)),
            None => reasons.push(((*server).to_owned(), format!("no answer within {} ms", share.as_millis()))),
        }
    }
    Err(ConnectError::NoServer(reasons))
}

fn shares(servers: usize) -> u32 {
    u32::try_from(servers).unwrap_or(u32::MAX).max(1)
}

enum Attempt {
    Expired,
    AuthFailed,
    Failed(String),
}

async fn try_server(options: &Options<'_>, former: Option<&Session>, server: &str) -> Result<Client, Attempt> {
    let failed = |error: std::io::Error| Attempt::Failed(error.to_string());
    let addresses: Vec<SocketAddr> = lookup_host(server).await.map_err(failed)?.collect();
    let mut last = Attempt::Failed("the host name has no IP address".to_owned());
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                return join_session(options, former, stream).await;
            }
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}

/// The first exchange.
async fn join_session(
    options: &Options<'_>,
    former: Option<&Session>,
    mut stream: TcpStream,
) -> Result<Client, Attempt> {
    let begun = clock::since_boot();
    let mut protocol = Protocol::new(Duration::ZERO, former, options.session_timeout, options.digest);
    let established = exchange(&mut protocol, begun, &mut stream).await.map_err(|broken| match broken {
        Broken::Expired => Attempt::Expired,
        Broken::AuthFailed => Attempt::AuthFailed,
        Broken::Closed => Attempt::Failed(
            "the server closed the connection before it answered: it has no quorum, or too many connections".to_owned(),
        ),
        other => Attempt::Failed(other.to_string()),
    })?;
    Ok(Client::start(stream, protocol, begun, established))
}

async fn exchange(protocol: &mut Protocol, begun: Duration, stream: &mut TcpStream) -> Result<Established, Broken> {
    let (mut input, mut incoming) = (vec![0; 4_096], Vec::new());
    loop {
        let output = std::mem::take(protocol.out());
        stream.write_all(&output).await.map_err(|e| Broken::Socket(e.to_string()))?;
        let length = stream.read(&mut input).await.map_err(|e| Broken::Socket(e.to_string()))?;
        if length == 0 {
            return Err(Broken::Closed);
        }
        protocol.receive(clock::since_boot().saturating_sub(begun), &input[..length], &mut incoming)?;
        // Nothing else can come before a request was sent.
        if let Some(Incoming::Established(established)) = incoming.pop() {
            return Ok(established);
        }
    }
}
