//! The task that owns the socket of a connection, and the requests of callers.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock;
use crate::connect::Session;
use crate::jute::{Put, Take};
use crate::protocol::{Broken, Established, Incoming, Protocol, Reply};
use crate::record::{
    Access, AccessList, Code, CreateMode, Found, Read, WatchEvent, Write, decode_access_list, decode_multi,
    decode_reads, opcode, put_create, put_multi, put_reads,
};
use crate::watches::Watches;

/// Commands that are taken in before the socket is looked at again.
const COMMANDS_AT_ONCE: usize = 256;
/// A timer is reset if it would fire later than that.
const TIMER_SLACK: Duration = Duration::from_millis(1);
/// A read of one request.
const READ_BYTES: usize = 64 << 10;

/// Takes the events of a watch. It is called where answers come in, so it must not wait.
pub type Sink = Arc<dyn Fn(&WatchEvent) + Send + Sync>;

/// Why a request was not executed, or is not known to have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server rejected it: it was not executed.
    #[error("{0}")]
    Refused(Code),
    /// It was never sent, and never will be.
    #[error("{0}")]
    NotSent(Broken),
    /// It was sent, and it is not known whether it was executed.
    #[error("{0}")]
    Unknown(Broken),
    /// The path has a watch of the other kind on this connection.
    #[error("`{0}` already has a watch of the other kind (recursive or not recursive) on this connection")]
    WatchedOtherwise(String),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multi {
    /// It was executed.
    Committed {
        /// Its number.
        zxid: i64,
    },
    /// Nothing of it was.
    Refused {
        /// The first operation that could not be, counted from 0.
        op: usize,
        /// Why.
        code: Code,
    },
}

enum Command {
    Request { opcode: i32, body: Vec<u8>, answer: Answer },
    Watch { path: String, recursive: bool, sink: Sink, answer: oneshot::Sender<Result<WatchGuard, Failure>> },
    Unwatch(u64),
    Break(Broken),
}

type Answer = oneshot::Sender<Result<Reply, Failure>>;

/// One connection to a server. See the [crate's documentation](crate).
#[derive(Clone)]
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    broken: watch::Receiver<Option<Broken>>,
    established: Established,
    /// Milliseconds since the boot of the host until which the session is certain to live.
    lives_until: Arc<AtomicU64>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:#x})", self.established.session.id)
    }
}

impl Client {
    pub(crate) fn start(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        protocol: Protocol,
        begun: Duration,
        established: Established,
    ) -> Client {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (told, broken) = watch::channel(None);
        let (own, lives_until) = (commands.downgrade(), Arc::new(AtomicU64::new(0)));
        let mut connection = Connection::new(protocol, begun, inbox, own, Arc::clone(&lives_until));
        connection.tell_life();
        tokio::spawn(async move {
            let reason = connection.run(stream).await;
            connection.end(&reason);
            told.send_replace(Some(reason.clone()));
            connection.end_inbox(&reason);
        });
        Client { commands, broken, established, lives_until }
    }

    /// The session, to be continued on another connection.
    pub fn session(&self) -> &Session {
        &self.established.session
    }

    /// After how long without contact the server ends the session.
    pub fn timeout(&self) -> Duration {
        self.established.timeout
    }

    /// Whether the session is certain to live at this moment: the server has answered something that was sent within its timeout.
    /// It is not where this process was stopped or its host suspended, which the connection finds out later.
    pub fn is_alive(&self) -> bool {
        let now = millis(clock::since_boot());
        self.broken.borrow().is_none() && now < self.lives_until.load(Ordering::Acquire)
    }

    /// Becomes `Some` when the connection is over: every request that was sent has ended by then.
    pub fn broken(&self) -> watch::Receiver<Option<Broken>> {
        self.broken.clone()
    }

    /// Ends the connection immediately. The session lives on for its timeout.
    pub fn give_up(&self) {
        let _ = self.commands.send(Command::Break(Broken::ByUs)); // it is over already
    }

    /// Ends the session: its nodes go. Nothing can be sent afterwards.
    ///
    /// # Errors
    ///
    /// The connection broke before the server confirmed it.
    pub async fn close(&self) -> Result<(), Failure> {
        let closed = self.send(opcode::CLOSE, Vec::new()).await.map(drop);
        self.give_up();
        closed
    }

    /// Creates a node; gives its path. The request is under way when this returns, as with all that follow.
    ///
    /// # Errors
    ///
    /// As [`Failure`] says, through the future.
    pub fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        access: Access,
    ) -> impl Future<Output = Result<String, Failure>> + Send + use<> {
        let mut body = Vec::with_capacity(path.len() + data.len() + 48);
        put_create(&mut body, path, data, mode, access);
        self.request(mode.opcode(), body, |reply| reply.body.clone().text())
    }

    /// Carries out all operations, or none.
    ///
    /// # Errors
    ///
    /// As [`Failure`] says, through the future.
    pub fn multi(&self, ops: &[Write<'_>]) -> impl Future<Output = Result<Multi, Failure>> + Send + use<> {
        let mut body = Vec::with_capacity(128 * ops.len());
        put_multi(&mut body, ops);
        let count = ops.len();
        self.request(opcode::MULTI, body, move |reply| {
            Ok(match decode_multi(reply.body.clone(), count)? {
                Ok(()) => Multi::Committed { zxid: reply.zxid },
                Err((op, code)) => Multi::Refused { op, code },
            })
        })
    }

    /// Reads many nodes in one request. Each question has an answer of its own.
    ///
    /// # Errors
    ///
    /// As [`Failure`] says, through the future.
    pub fn read(&self, reads: &[Read<'_>]) -> impl Future<Output = Result<Vec<Found>, Failure>> + Send + use<> {
        let count = reads.len();
        let mut body = Vec::with_capacity(64 * count);
        put_reads(&mut body, reads);
        self.request(opcode::MULTI_READ, body, move |reply| decode_reads(reply.body.clone(), count))
    }

    /// Returns who may do what with a node.
    ///
    /// # Errors
    ///
    /// As [`Failure`] says, through the future.
    pub fn access_list(&self, path: &str) -> impl Future<Output = Result<AccessList, Failure>> + Send + use<> {
        let mut body = Vec::new();
        body.text(path);
        self.request(opcode::GET_ACL, body, |reply| decode_access_list(reply.body.clone()))
    }

    /// Ends when this connection's server has seen everything that was committed before.
    ///
    /// # Errors
    ///
    /// As [`Failure`] says, through the future.
    pub fn sync(&self, path: &str) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let mut body = Vec::new();
        body.text(path);
        self.request(opcode::SYNC, body, |_| Ok(()))
    }

    /// Sets a watch, until the guard is dropped or the connection is over: of a node and the coming and going of its children, or
    /// with `recursive` of a node and all below. Events reach the sink in their order, and before any answer to what was asked after
    /// the change.
    ///
    /// # Errors
    ///
    /// As [`Failure`] says, through the future.
    pub fn watch(
        &self,
        path: &str,
        recursive: bool,
        sink: Sink,
    ) -> impl Future<Output = Result<WatchGuard, Failure>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Watch { path: path.to_owned(), recursive, sink, answer };
        drop(self.commands.send(command)); // where it is not taken `answer` goes with it, and `answered` says so
        let broken = self.broken.clone();
        async move { answered.await.unwrap_or_else(|_| Err(Failure::NotSent(reason(&broken)))) }
    }

    fn request<T, F>(
        &self,
        opcode: i32,
        body: Vec<u8>,
        read: F,
    ) -> impl Future<Output = Result<T, Failure>> + Send + use<T, F>
    where
        F: FnOnce(&Reply) -> Result<T, crate::Malformed> + Send,
    {
        let answer = self.send(opcode, body);
        let commands = self.commands.downgrade();
        async move {
            let reply = answer.await?;
            if reply.code != Code::OK {
                return Err(Failure::Refused(reply.code));
            }
            read(&reply).map_err(|malformed| {
                let broken = Broken::from(malformed);
                if let Some(commands) = commands.upgrade() {
                    let _ = commands.send(Command::Break(broken.clone())); // it is over already
                }
                Failure::Unknown(broken)
            })
        }
    }

    fn send(&self, opcode: i32, body: Vec<u8>) -> impl Future<Output = Result<Reply, Failure>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        drop(self.commands.send(Command::Request { opcode, body, answer })); // as in `watch`
        let broken = self.broken.clone();
        async move { answered.await.unwrap_or_else(|_| Err(Failure::NotSent(reason(&broken)))) }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn reason(broken: &watch::Receiver<Option<Broken>>) -> Broken {
    broken.borrow().clone().unwrap_or(Broken::ByUs)
}

/// A watch that is set; it ends when this is dropped.
#[derive(Debug)]
pub struct WatchGuard {
    number: u64,
    commands: mpsc::WeakUnboundedSender<Command>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::Unwatch(self.number)); // the connection is over, and the watch with it
        }
    }
}

/// Who waits for an answer, in the order of the requests.
enum Waiting {
    Caller(Answer),
    Watcher { number: u64, answer: oneshot::Sender<Result<WatchGuard, Failure>> },
    Nobody,
}

struct Connection {
    protocol: Protocol,
    /// When the protocol's time began, since the boot of the host.
    begun: Duration,
    lives_until: Arc<AtomicU64>,
    inbox: mpsc::UnboundedReceiver<Command>,
    /// Where the guards of watches send to.
    own: mpsc::WeakUnboundedSender<Command>,
    waiting: VecDeque<Waiting>,
    watches: Watches,
    /// Numbers of requests and watches.
    next: u64,
    incoming: Vec<Incoming>,
}

impl Connection {
    fn new(
        protocol: Protocol,
        begun: Duration,
        inbox: mpsc::UnboundedReceiver<Command>,
        own: mpsc::WeakUnboundedSender<Command>,
        lives_until: Arc<AtomicU64>,
    ) -> Connection {
        let (waiting, watches) = (VecDeque::new(), Watches::default());
        Connection { protocol, begun, lives_until, inbox, own, waiting, watches, next: 0, incoming: Vec::new() }
    }

    fn now(&self) -> Duration {
        clock::since_boot().saturating_sub(self.begun)
    }

    fn tell_life(&self) {
        self.lives_until.store(millis(self.begun + self.protocol.lives_until()), Ordering::Release);
    }

    /// Serves until the connection is over. One task reads, writes and waits, so that neither side can hold the other up.
    async fn run(&mut self, stream: impl AsyncRead + AsyncWrite) -> Broken {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut input = vec![0; READ_BYTES];
        // What is being written, and how much of it was.
        let (mut output, mut written) = (Vec::new(), 0);
        let mut armed: Option<Instant> = None;
        let mut timer = pin!(clock::sleep_until(None));
        loop {
            if written == output.len() {
                output.clear();
                written = 0;
                std::mem::swap(&mut output, self.protocol.out());
            }
            let wake = self.protocol.wake_at().map(|at| clock::instant() + at.saturating_sub(self.now()));
            // A timer that is too early only looks.
            if armed.is_none_or(|armed| wake.is_some_and(|wake| wake + TIMER_SLACK < armed)) {
                armed = wake;
                timer.set(clock::sleep_until(wake));
            }
            let served = tokio::select! {
                read = reader.read(&mut input) => match read {
                    Ok(0) => Err(self.protocol.end(Broken::Closed)),
                    Ok(length) => self.receive(&input[..length]),
                    Err(error) => Err(self.protocol.end(Broken::Socket(error.to_string()))),
                },
                wrote = writer.write(&output[written..]), if written < output.len() => match wrote {
                    Ok(length) => {
                        written += length;
                        Ok(())
                    }
                    Err(error) => Err(self.protocol.end(Broken::Socket(error.to_string()))),
                },
                command = self.inbox.recv() => self.obey(command),
                () = timer.as_mut() => {
                    armed = None;
                    let now = self.now();
                    self.protocol.tick(now)
                }
            };
            if let Err(broken) = served {
                return broken;
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let (now, mut incoming) = (self.now(), std::mem::take(&mut self.incoming));
        let received = self.protocol.receive(now, bytes, &mut incoming);
        for what in incoming.drain(..) {
            match what {
                Incoming::Established(_) => {}
                Incoming::Event(event) => self.watches.tell(&event),
                Incoming::Reply(_, reply) => match self.waiting.pop_front() {
                    Some(Waiting::Caller(answer)) => drop(answer.send(Ok(reply))), // the caller may have given up
                    Some(Waiting::Watcher { number, answer }) => self.watched(number, answer, &reply),
                    Some(Waiting::Nobody) | None => {}
                },
            }
        }
        self.incoming = incoming;
        self.tell_life();
        received
    }

    fn watched(&mut self, number: u64, answer: oneshot::Sender<Result<WatchGuard, Failure>>, reply: &Reply) {
        if reply.code != Code::OK {
            self.watches.remove(number);
            let _ = answer.send(Err(Failure::Refused(reply.code))); // the caller may have given up
        } else {
            // The guard is dropped if the caller has stopped waiting, also between this moment and the check.
            let _ = answer.send(Ok(WatchGuard { number, commands: self.own.clone() }));
        }
    }

    fn unwatch(&mut self, number: u64) {
        // What the server calls any kind (Java: `Watcher.WatcherType.Any`).
        const ANY: i32 = 3;
        if let Some(path) = self.watches.remove(number) {
            let mut body = Vec::new();
            body.text(&path);
            body.int(ANY);
            self.request(opcode::REMOVE_WATCHES, &body, Waiting::Nobody);
        }
    }

    fn obey(&mut self, first: Option<Command>) -> Result<(), Broken> {
        // The client was dropped.
        let Some(first) = first else { return Err(self.protocol.end(Broken::ByUs)) };
        self.obey_one(first)?;
        // Those that came in the meantime go into the same packet.
        for _ in 1..COMMANDS_AT_ONCE {
            let Ok(command) = self.inbox.try_recv() else { break };
            self.obey_one(command)?;
        }
        Ok(())
    }

    fn obey_one(&mut self, command: Command) -> Result<(), Broken> {
        match command {
            Command::Request { opcode, body, answer } => self.request(opcode, &body, Waiting::Caller(answer)),
            Command::Watch { path, recursive, sink, answer } => self.watch(path, recursive, sink, answer),
            Command::Unwatch(number) => self.unwatch(number),
            Command::Break(broken) => return Err(self.protocol.end(broken)),
        }
        Ok(())
    }

    fn watch(
        &mut self,
        path: String,
        recursive: bool,
        sink: Sink,
        answer: oneshot::Sender<Result<WatchGuard, Failure>>,
    ) {
        // Java: `AddWatchMode`.
        const PERSISTENT: i32 = 0;
        const PERSISTENT_RECURSIVE: i32 = 1;
        self.next += 1;
        let number = self.next;
        if !self.watches.add(number, &path, recursive, sink) {
            let _ = answer.send(Err(Failure::WatchedOtherwise(path))); // the caller may have given up
            return;
        }
        let mut body = Vec::with_capacity(path.len() + 8);
        body.text(&path);
        body.int(if recursive { PERSISTENT_RECURSIVE } else { PERSISTENT });
        self.request(opcode::ADD_WATCH, &body, Waiting::Watcher { number, answer });
    }

    fn request(&mut self, opcode: i32, body: &[u8], waiting: Waiting) {
        let now = self.now();
        self.next += 1;
        self.protocol.request(now, self.next, opcode, body);
        self.waiting.push_back(waiting);
    }

    /// Notifies all requests that wait for an answer.
    fn end(&mut self, reason: &Broken) {
        for waiting in self.waiting.drain(..) {
            let unknown = Failure::Unknown(reason.clone());
            match waiting {
                Waiting::Caller(answer) => drop(answer.send(Err(unknown))), // the caller may have given up
                Waiting::Watcher { answer, .. } => drop(answer.send(Err(unknown))),
                Waiting::Nobody => {}
            }
        }
    }

    /// Notifies all requests that are not sent any more.
    fn end_inbox(&mut self, reason: &Broken) {
        self.inbox.close();
        while let Ok(command) = self.inbox.try_recv() {
            let not_sent = Failure::NotSent(reason.clone());
            match command {
                Command::Request { answer, .. } => drop(answer.send(Err(not_sent))),
                Command::Watch { answer, .. } => drop(answer.send(Err(not_sent))),
                Command::Unwatch(_) | Command::Break(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
