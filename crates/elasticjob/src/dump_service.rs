//! The dump service of a process: the nodes of a job as text over TCP (Java: `SnapshotService`; manual: "Dump"). What this
//! process decides by is compared with the registry, and shown where it differs.
//!
//! Other than Java's it listens on the loopback unless it is told otherwise, and is bounded in connections, length of the
//! line and time.

use std::net::SocketAddr;
use std::time::Duration;

use elasticjob_core::job_state;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock;
use crate::connection::Connection;
use crate::operations::dump_text;
use crate::places::Places;
use crate::worker::Message;

/// Maximum number of connections at one time; a further one takes the place of the oldest.
const CONNECTIONS_MAX: usize = 16;
/// The longest request; a job's name has at most 100 characters.
const LINE_MAX: usize = 1_024;
/// From the connection to its request, and to the end of the answer.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// After an error of the listener, as when no file handle is left.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);

/// A dump service; it ends when this is dropped.
#[derive(Debug)]
pub struct DumpService {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl DumpService {
    /// Serves the jobs of that connection's registry. Port 0 takes any that is free.
    ///
    /// # Errors
    ///
    /// The address cannot listen on.
    pub async fn start(connection: &Connection, address: SocketAddr) -> std::io::Result<DumpService> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, connection.clone()));
        Ok(DumpService { address, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; the address is free then.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for DumpService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, connection: Connection) {
    let mut places = Places::new(CONNECTIONS_MAX);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            clock::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let connection = connection.clone();
        let task = tokio::spawn(async move {
            if let Some(Err(error)) = clock::within(ANSWER_MAX, answer(stream, &connection)).await {
                tracing::debug!("failed to answer a dump request: {error}");
            }
        });
        places.take(task.abort_handle());
    }
}

async fn answer(stream: TcpStream, connection: &Connection) -> Result<(), Unanswered> {
    let mut stream = BufReader::new(stream);
    let line = clock::within(REQUEST_MAX, request(&mut stream)).await.transpose()?;
    let Some(job) = line.as_deref().and_then(requested) else { return Ok(()) };
    let state = decided_by(connection, job).await;
    let text = dump_text(&**connection.registry(), job, state.as_deref()).await?;
    let stream = stream.get_mut();
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

/// Why a connection was closed without its answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Registry(#[from] elasticjob_registry::Error),
}

/// The first line, which ends with LF, CR LF or CR, or with what was sent.
async fn request(stream: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<String> {
    let mut line = Vec::new();
    loop {
        let part = stream.fill_buf().await?;
        let end = part.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let taken = end.unwrap_or(part.len());
        line.extend_from_slice(&part[..taken]);
        if end.is_some() || part.is_empty() || line.len() > LINE_MAX {
            break;
        }
        stream.consume(taken);
    }
    line.truncate(LINE_MAX);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// The job of a request, which may be a path below a job. As in Java a request has exactly two parts, and what is empty at
/// its end does not count.
fn requested(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("dump@")?.trim_end_matches('@');
    let segment = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
    (!rest.contains('@') && rest.split('/').all(segment)).then_some(rest)
}

/// What this process decides by, when it runs that job.
async fn decided_by(connection: &Connection, job: &str) -> Option<Box<job_state::JobState>> {
    let (answer, state) = oneshot::channel();
    let job = job.split('/').next()?.to_owned();
    connection.worker().tell(Message::Look { job, answer }).ok()?;
    state.await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_one_line_of_two_parts() {
        for (text, expected) in [
            ("dump@a\n", Some("a")),
            ("dump@a\r\nmore", Some("a")),
            ("dump@a\rmore", Some("a")),
            ("dump@a", Some("a")),
            ("dump@a@@\n", Some("a")),
            ("dump@a/sharding\n", Some("a/sharding")),
            ("dump@a b.c-d\n", Some("a b.c-d")),
            ("dump@\n", None),
            ("dump@a@b\n", None),
            ("dump@@a\n", None),
            ("dump@/a\n", None),
            ("dump@a//b\n", None),
            ("dump@a/../b\n", None),
            ("dump@a\u{1}\n", None),
            ("DUMP@a\n", None),
            ("dump a\n", None),
            ("\n", None),
            ("", None),
        ] {
            let line = request(&mut text.as_bytes()).await.expect("a line");
            assert_eq!(requested(&line), expected, "{text:?}");
        }
        let long = "x".repeat(5_000);
        assert_eq!(request(&mut long.as_bytes()).await.expect("a line").len(), LINE_MAX);
    }
}
