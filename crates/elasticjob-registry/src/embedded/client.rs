//! The other side of the socket: a registry like any other, for commands.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::Op;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};

use super::file::Inspection;
use super::socket;
use super::wire::{self, Ask, Reply, Request};
use crate::clock;
use crate::{Error, Link, Outcome, Protection, Registry, Sink, Target, Watch};

/// A connection's session ends with its connection; there is no timeout to wait for.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer of the holder takes milliseconds; the slowest disk gets this long.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// A check or a copy of a large file may take this long.
const INSPECTION_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Client {
    shared: Arc<Shared>,
    next: AtomicU64,
    description: String,
}

struct Shared {
    requests: mpsc::UnboundedSender<Request>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    sinks: Mutex<HashMap<u64, Sink>>,
    link: watch::Sender<Link>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Client {
    pub(super) async fn connect(file: &Path, socket: &Path) -> Result<Client, Error> {
        let failed = |reason: String| Error::File { path: file.to_owned(), reason };
        let stream = UnixStream::connect(socket).await.map_err(|e| {
            failed(format!(
                "another process has the file open, but its socket {} is unreachable: {e}; stop that process, or run this command as the same user",
                socket.display()
            ))
        })?;
        if !socket::is_trusted(&stream) {
            let reason = format!("its socket {} belongs to a process of another user", socket.display());
            return Err(Error::Untrusted { path: file.to_owned(), reason });
        }
        let (mut input, mut output) = stream.into_split();
        let hello = clock::within(ANSWER_MAX, wire::receive(&mut input)).await;
        let hello = hello.ok_or_else(|| failed(silence(ANSWER_MAX)))?;
        let hello = hello.map_err(|e| failed(format!("the process that has the file open does not answer: {e}")))?;
        let session = match hello {
            Reply::Hello { session } => session,
            Reply::Refused { reason } => {
                let registry = format!("the embedded registry {}", file.display());
                return Err(Error::Unreachable { registry, reason });
            }
            Reply::Read { .. }
            | Reply::Commit { .. }
            | Reply::Sequential { .. }
            | Reply::Watching { .. }
            | Reply::Inspected { .. }
            | Reply::Event { .. } => return Err(failed("the process that has the file open runs another version of elasticjob; use the same version for this command".into())),
        };
        let (requests, mut outgoing) = mpsc::unbounded_channel::<Request>();
        let shared = Arc::new(Shared {
            requests,
            waiting: Mutex::default(),
            sinks: Mutex::default(),
            link: watch::Sender::new(Link::Up { session, timeout: SESSION_TIMEOUT, epoch: 1 }),
        });
        tokio::spawn(async move {
            while let Some(request) = outgoing.recv().await {
                if wire::send(&mut output, &request).await.is_err() {
                    break;
                }
            }
        });
        let reader = Arc::downgrade(&shared);
        tokio::spawn(async move {
            loop {
                let reply = wire::receive::<Reply>(&mut input).await;
                let Some(shared) = reader.upgrade() else { break };
                match reply {
                    Ok(reply) => shared.take(reply),
                    Err(error) => {
                        shared.lose(&format!(
                            "the process that had the file open has ended or closed the connection: {error}"
                        ));
                        break;
                    }
                }
            }
        });
        let description = format!("the embedded registry {} (through the process that has it open)", file.display());
        Ok(Client { shared, next: AtomicU64::new(1), description })
    }

    async fn ask(&self, ask: Ask) -> Result<Reply, Error> {
        self.ask_within(ANSWER_MAX, ask).await
    }

    async fn ask_within(&self, limit: Duration, ask: Ask) -> Result<Reply, Error> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, reply) = oneshot::channel();
        self.shared.waiting.lock().insert(id, answer);
        let gone = || self.gone();
        self.shared.requests.send(Request { id, ask }).map_err(|_| gone())?;
        if !matches!(*self.shared.link.borrow(), Link::Up { .. }) {
            return Err(gone());
        }
        match clock::within(limit, reply).await {
            Some(reply) => reply.map_err(|_| gone()),
            None => {
                self.shared.lose(&silence(limit));
                Err(gone())
            }
        }
    }

    /// Asks the holder to check its file, or to copy it.
    pub(super) async fn inspect(&self, what: Inspection) -> Result<Result<String, String>, Error> {
        let backup = match what {
            Inspection::Check => None,
            Inspection::Backup(to) => Some(to),
        };
        match self.ask_within(INSPECTION_MAX, Ask::Inspect { backup }).await? {
            Reply::Inspected { found, .. } => Ok(found),
            _ => Err(self.confused()),
        }
    }

    /// Why there is no answer.
    fn gone(&self) -> Error {
        let reason = match &*self.shared.link.borrow() {
            Link::Down { reason, .. } => reason.clone(),
            Link::Up { .. } | Link::Closed => "the process that has the file open has ended".to_owned(),
        };
        Error::Unreachable { registry: self.description.clone(), reason }
    }

    fn confused(&self) -> Error {
        Error::Protocol { registry: self.description.clone(), reason: "unexpected reply".into() }
    }
}

fn silence(limit: Duration) -> String {
    format!(
        "the process that has the file open did not answer within {} s: it is suspended or stuck; resume it (SIGCONT) or end it",
        limit.as_secs()
    )
}

impl Shared {
    /// The connection is over: the first reason counts.
    fn lose(&self, reason: &str) {
        self.link.send_if_modified(|link| {
            let open = matches!(link, Link::Up { .. });
            if open {
                *link = Link::down(reason);
            }
            open
        });
        self.waiting.lock().clear();
    }

    fn take(&self, reply: Reply) {
        let id = match &reply {
            Reply::Event { watch, path, kind } => {
                let sink = self.sinks.lock().get(watch).cloned();
                if let Some(sink) = sink {
                    sink(wire::event(path.clone(), *kind));
                }
                return;
            }
            Reply::Hello { .. } => return,
            Reply::Refused { reason } => return self.lose(reason),
            Reply::Inspected { id, .. }
            | Reply::Read { id, .. }
            | Reply::Commit { id, .. }
            | Reply::Sequential { id, .. }
            | Reply::Watching { id } => *id,
        };
        if let Some(waiting) = self.waiting.lock().remove(&id) {
            let _ = waiting.send(reply);
        }
    }
}

impl Registry for Client {
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Result<Vec<Answer>, Error>> {
        async move {
            match self.ask(Ask::Read(wire::queries(queries))).await? {
                Reply::Read { answers: Ok(answers), .. } => Ok(answers.into_iter().map(Into::into).collect()),
                Reply::Read { answers: Err(reason), .. } => {
                    Err(Error::Unreachable { registry: self.description.clone(), reason })
                }
                _ => Err(self.confused()),
            }
        }
        .boxed()
    }

    fn commit<'a>(&'a self, _session: u64, ops: &'a [Op]) -> BoxFuture<'a, Outcome> {
        async move {
            if !matches!(*self.shared.link.borrow(), Link::Up { .. }) {
                return Outcome::Failed(self.gone());
            }
            match self.ask(Ask::Commit(ops.iter().cloned().map(Into::into).collect())).await {
                Ok(Reply::Commit { outcome, .. }) => outcome.outcome(&self.description),
                Ok(_) => Outcome::Failed(self.confused()),
                Err(_) => Outcome::Unknown,
            }
        }
        .boxed()
    }

    fn create_sequential(
        &self,
        _session: u64,
        parents: Vec<String>,
        prefix: String,
    ) -> BoxFuture<'_, Result<String, Error>> {
        async move {
            match self.ask(Ask::Sequential { parents, prefix: prefix.clone() }).await? {
                Reply::Sequential { path, .. } => path.map_err(|_| Error::Missing { path: prefix }),
                _ => Err(self.confused()),
            }
        }
        .boxed()
    }

    fn watch(&self, target: Target, sink: Sink) -> BoxFuture<'_, Result<Watch, Error>> {
        async move {
            let (subtree, path) = match target {
                Target::Node(path) => (false, path),
                Target::Subtree(path) => (true, path),
            };
            // The events carry the number of the request that asked for them.
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (answer, reply) = oneshot::channel();
            self.shared.sinks.lock().insert(id, sink);
            self.shared.waiting.lock().insert(id, answer);
            let gone = || self.gone();
            let request = Request { id, ask: Ask::Watch { subtree, path } };
            self.shared.requests.send(request).map_err(|_| gone())?;
            let answer = clock::within(ANSWER_MAX, reply).await;
            answer.ok_or_else(gone)?.map_err(|_| gone())?;
            let shared = Arc::downgrade(&self.shared);
            Ok(Watch::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.sinks.lock().remove(&id);
                    let _ = shared.requests.send(Request { id: 0, ask: Ask::Unwatch { watch: id } });
                }
            }))
        }
        .boxed()
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.shared.link.subscribe()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            let _ = self.shared.requests.send(Request { id: 0, ask: Ask::Close });
            self.shared.link.send_replace(Link::Closed);
            self.shared.waiting.lock().clear();
        }
        .boxed()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    /// The file, or this process, belongs to this user.
    fn protects(&self, _: Vec<String>) -> BoxFuture<'_, Result<Protection, Error>> {
        Box::pin(std::future::ready(Ok(Protection::Whole)))
    }

    fn reconnects(&self) -> bool {
        false
    }
}
