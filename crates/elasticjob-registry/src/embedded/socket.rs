//! The server side of the socket: each connection is a session of its own on the shared tree.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

use super::file::Inspection;
use super::wire::{self, Ask, Reply, Request};
use crate::local::{Company, Store};
use crate::{Sink, Watch, clock, trust};

/// Replies and events that wait for a slow client; one that lets more pile up is cut off.
const BACKLOG_MAX: usize = 10_000;

/// For this long a client may take the refusal that ends its connection.
const REFUSAL_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// For this long a holder that closes waits for its clients: a command may be about to read the result that it waits for.
const PARTING_MAX: std::time::Duration = std::time::Duration::from_millis(500);

/// Serves until it is dropped; then the socket's file goes too.
#[derive(Debug)]
pub(super) struct Server {
    task: tokio::task::JoinHandle<()>,
    path: PathBuf,
    visits: Arc<watch::Sender<usize>>,
    /// Device and number of the socket's file: another process may have put its own there since.
    id: Option<(u64, u64)>,
}

impl Company for Server {
    fn part(&self) -> BoxFuture<'_, ()> {
        let mut visits = self.visits.subscribe();
        async move { drop(clock::within(PARTING_MAX, visits.wait_for(|visits| *visits == 0)).await) }.boxed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        if self.id.is_some() && id(&self.path) == self.id {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// This process holds the file, so an existing socket belongs to a dead process.
pub(super) fn serve(store: Arc<Store>, path: &Path) -> io::Result<Server> {
    let listener = bind(path)?;
    let count = Arc::new(watch::Sender::new(0));
    let visits_open = Arc::clone(&count);
    let task = tokio::spawn(async move {
        let mut visits = tokio::task::JoinSet::new(); // they end with this task
        loop {
            while visits.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) if !is_trusted(&stream) => {
                    tracing::warn!(
                        "refused a client of {} that runs as another user; run the command as the user of this process",
                        store.description()
                    );
                }
                Ok((stream, _)) => {
                    let store = Arc::clone(&store);
                    let open = Open::new(&visits_open);
                    visits.spawn(async move {
                        let _open = open;
                        let session = store.open_session();
                        if let Err(error) = serve_client(&store, session, stream).await {
                            tracing::debug!("a client of {} disconnected: {error}", store.description());
                        }
                        store.close_session(session);
                    });
                }
                Err(error) => {
                    tracing::warn!(
                        "the socket of {} does not accept connections: {error}; retrying",
                        store.description()
                    );
                    clock::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    });
    Ok(Server { task, path: path.to_owned(), visits: count, id: id(path) })
}

/// Whether the other end runs as this user, or as root.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| trust::is_trusted(peer.uid()))
}

/// Counts a connection for as long as it lasts.
struct Open(Arc<watch::Sender<usize>>);

impl Open {
    fn new(count: &Arc<watch::Sender<usize>>) -> Open {
        count.send_modify(|count| *count += 1);
        Open(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Binds inside a folder of our own and moves the socket to its place, so that it is never there with open rights.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.with_extension(format!("{}.tmp", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let inside = folder.join("s");
    let bound = UnixListener::bind(&inside).and_then(|listener| {
        std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&inside, path)?;
        Ok(listener)
    });
    std::fs::remove_dir_all(&folder)?;
    bound
}

async fn serve_client(store: &Arc<Store>, session: u64, stream: UnixStream) -> io::Result<()> {
    let (mut input, mut output) = stream.into_split();
    let (replies, mut outgoing) = mpsc::channel::<Reply>(BACKLOG_MAX);
    let mut writer = tokio::task::JoinSet::new(); // it ends with the connection, however that ends
    writer.spawn(async move {
        while let Some(reply) = outgoing.recv().await {
            if wire::send(&mut output, &reply).await.is_err() {
                break;
            }
        }
    });
    let full = |_| io::Error::other("the client does not read its replies");
    let mut failure = store.failure();
    replies.try_send(Reply::Hello { session }).map_err(full)?;
    let mut watches: HashMap<u64, Watch> = HashMap::new();
    let ended = loop {
        let received = tokio::select! {
            received = wire::receive(&mut input) => Ok(received),
            reason = failed(&mut failure) => Err(reason),
        };
        let request: Request = match received {
            Ok(Ok(request)) => request,
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
            Ok(Err(error)) => break Err(error),
            Err(reason) => {
                refuse(reason, replies, watches, writer).await;
                return Ok(());
            }
        };
        if matches!(request.ask, Ask::Close) {
            break Ok(());
        }
        // A store that fails answers nothing until it recovers.
        let reply = tokio::select! {
            biased;
            reply = answer(store, session, request, &mut watches, &replies) => Ok(reply),
            reason = failed(&mut failure) => Err(reason),
        };
        match reply.map(|reply| reply.map(|reply| replies.try_send(reply).map_err(full))) {
            Ok(None | Some(Ok(()))) => {}
            Ok(Some(Err(error))) => break Err(error),
            Err(reason) => {
                refuse(reason, replies, watches, writer).await;
                return Ok(());
            }
        }
    };
    drop(watches);
    writer.abort_all();
    ended
}

/// Ends a connection because the store failed. The writer ends when it has written the queued replies.
async fn refuse(
    reason: String,
    replies: mpsc::Sender<Reply>,
    watches: HashMap<u64, Watch>,
    mut writer: tokio::task::JoinSet<()>,
) {
    let _ = replies.try_send(Reply::Refused { reason });
    drop((watches, replies));
    let _ = tokio::time::timeout(REFUSAL_MAX, writer.join_next()).await;
}

/// Waits until the store fails, and returns why.
async fn failed(failure: &mut watch::Receiver<Option<String>>) -> String {
    let reason = failure.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    match reason {
        Some(reason) => reason,
        None => std::future::pending().await, // the store is gone, and this connection with it
    }
}

async fn answer(
    store: &Arc<Store>,
    session: u64,
    request: Request,
    watches: &mut HashMap<u64, Watch>,
    replies: &mpsc::Sender<Reply>,
) -> Option<Reply> {
    let id = request.id;
    Some(match request.ask {
        Ask::Read(queries) => {
            let answers = store.read_durable(wire::to_queries(queries)).await;
            let answers = answers.map(|answers| answers.into_iter().map(Into::into).collect());
            Reply::Read { id, answers: answers.map_err(|error| error.reason()) }
        }
        Ask::Commit(ops) => {
            let ops: Vec<elasticjob_core::tree::Op> = ops.into_iter().map(Into::into).collect();
            Reply::Commit { id, outcome: store.commit(session, &ops).await.into() }
        }
        Ask::Sequential { parents, prefix } => {
            let path = store.create_sequential(session, &parents, &prefix).await;
            Reply::Sequential { id, path: path.map_err(|e| e.to_string()) }
        }
        Ask::Watch { subtree, path } => {
            let replies = replies.clone();
            let sink: Sink = Arc::new(move |event| {
                let kind = wire::event_kind(event.kind);
                let _ = replies.try_send(Reply::Event { watch: id, path: event.path, kind });
            });
            watches.insert(id, store.watch(wire::target(subtree, path), sink));
            Reply::Watching { id }
        }
        Ask::Unwatch { watch } => {
            watches.remove(&watch);
            return None;
        }
        Ask::Inspect { backup } => {
            let what = backup.map_or(Inspection::Check, Inspection::Backup);
            Reply::Inspected { id, found: store.inspect(what).await }
        }
        Ask::Close => return None,
    })
}
