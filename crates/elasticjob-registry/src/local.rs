//! A tree in this process with its watches: the memory registry, and the embedded one, which stores it in a file.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use elasticjob_core::path;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::{Event, EventKind, Node, Op, Reason, Tree};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

#[cfg(feature = "embedded")]
use crate::embedded::Inspection;
use crate::{Error, Link, Outcome, Protection, Registry, Sink, Target, Watch, clock};

/// The effect of one transaction. The default has no effect: it is durable when every change before it is.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The changed nodes by path, `None` for deleted ones.
    pub(crate) nodes: Vec<(String, Option<Node>)>,
    /// The events for the watches.
    pub(crate) events: Vec<Event>,
    /// The transaction number, 0 if the change has no nodes.
    pub(crate) zxid: i64,
}

/// What a store does with the nodes that a commit has changed, before the commit is answered.
pub(crate) trait Keeper: Send + Sync + std::fmt::Debug {
    /// Names the store to notify when the keeper fails and when it works again.
    fn attach(&self, store: Weak<Store>);

    /// Stores a change without waiting for the disk. When the change is durable, announces its events to the store and then
    /// completes `done`. If it cannot be stored, its events are never announced.
    fn keep(&self, change: Change, done: oneshot::Sender<Result<(), String>>);

    /// Checks or copies what it holds, after everything that was given to it before.
    #[cfg(feature = "embedded")]
    fn inspect(&self, what: Inspection) -> oneshot::Receiver<Result<String, String>>;

    /// Stores everything that was given to it, releases the file, and reports when it has. Nothing is stored after that.
    fn close(&self) -> oneshot::Receiver<()>;
}

/// The timeout that local sessions claim: they end only when they are closed.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// A tree that connections share.
pub(crate) struct Store {
    state: Mutex<State>,
    /// The clock of the nodes' times.
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    keeper: Option<Box<dyn Keeper>>,
    description: String,
    /// Why every commit fails, in a store that was opened for reading.
    read_only: Option<Error>,
    /// Why nothing can be kept at the moment.
    failure: watch::Sender<Option<String>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("description", &self.description).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    tree: Tree,
    watches: HashMap<String, Vec<(u64, Target, Sink)>>,
    last_watch: u64,
    /// The connections of this process, which get a new session when the store works again.
    connections: Vec<Weak<Session>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("zxid", &self.tree.zxid()).finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn new(tree: Tree, keeper: Option<Box<dyn Keeper>>, description: String) -> Arc<Store> {
        let store = Arc::new(Store::with(tree, keeper, description, None));
        if let Some(keeper) = &store.keeper {
            keeper.attach(Arc::downgrade(&store));
        }
        store
    }

    /// A store that can only be read, for that reason.
    pub(crate) fn read_only(tree: Tree, description: String, reason: Error) -> Arc<Store> {
        Arc::new(Store::with(tree, None, description, Some(reason)))
    }

    fn with(tree: Tree, keeper: Option<Box<dyn Keeper>>, description: String, read_only: Option<Error>) -> Store {
        let state = Mutex::new(State { tree, ..State::default() });
        Store { state, now: Box::new(clock::now), keeper, description, read_only, failure: watch::Sender::new(None) }
    }

    /// A store without a keeper that has its own clock.
    pub(crate) fn with_clock(now: Box<dyn Fn() -> Timestamp + Send + Sync>, description: String) -> Arc<Store> {
        Arc::new(Store { now, ..Store::with(Tree::new(), None, description, None) })
    }

    pub(crate) fn open_session(&self) -> u64 {
        self.state.lock().tree.open_session()
    }

    /// Why nothing can be kept at the moment, and every change of that.
    pub(crate) fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.subscribe()
    }

    /// Called by the keeper when it could not keep a change: the tree has what the file has not. All sessions end, and nothing
    /// is answered until [`Store::recover`].
    pub(crate) fn fail(&self, reason: &str) {
        let mut state = self.state.lock();
        self.failure.send_replace(Some(reason.to_owned()));
        state.watches.clear();
        state.connections.retain(|connection| connection.strong_count() > 0);
        for session in state.connections.iter().filter_map(Weak::upgrade) {
            session.lose(reason);
        }
    }

    /// Called by the keeper when it works again, with the tree that it holds.
    pub(crate) fn recover(&self, mut tree: Tree) {
        let mut state = self.state.lock();
        tree.raise_zxid(state.tree.zxid());
        tree.raise_sessions(state.tree.last_session());
        state.tree = tree;
        self.failure.send_replace(None);
        let sessions: Vec<Arc<Session>> = state.connections.iter().filter_map(Weak::upgrade).collect();
        for session in sessions {
            session.renew(&mut state.tree);
        }
    }

    /// Checks or copies what the keeper holds.
    #[cfg(feature = "embedded")]
    pub(crate) async fn inspect(&self, what: Inspection) -> Result<String, String> {
        match &self.keeper {
            Some(keeper) => {
                keeper.inspect(what).await.unwrap_or_else(|_| Err("the registry writer has stopped".to_owned()))
            }
            None => Err("this registry has no file".to_owned()),
        }
    }

    /// Returns an error while the store cannot answer.
    fn sound(&self) -> Result<(), Error> {
        match &*self.failure.borrow() {
            Some(reason) => Err(Error::Unreachable { registry: self.description.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn close_session(&self, session: u64) {
        let mut state = self.state.lock();
        let events = state.tree.close_session(session);
        state.tell(&events);
    }

    /// Waits until what keeps the nodes is given free.
    async fn close(&self) {
        if let Some(keeper) = &self.keeper {
            let _ = keeper.close().await; // one that has ended holds nothing
        }
    }

    pub(crate) fn read(&self, queries: Vec<Query>) -> Result<Vec<Answer>, Error> {
        let state = self.state.lock();
        self.sound()?;
        let answer = |query| match query {
            Query::Node(path) => Answer::Node(state.tree.get(&path).cloned()),
            Query::Children(path) => Answer::Children(state.tree.children(&path)),
        };
        Ok(queries.into_iter().map(answer).collect())
    }

    pub(crate) async fn commit(&self, session: u64, ops: &[Op]) -> Outcome {
        let kept = {
            let mut state = self.state.lock();
            if let Some(error) = self.read_only.clone().or(self.sound().err()) {
                return Outcome::Failed(error);
            }
            if !state.tree.has_session(session) {
                return Outcome::Failed(self.closed());
            }
            let passing = self.passing(&state.tree, ops);
            match state.tree.commit(session, ops, (self.now)()) {
                Ok((zxid, events)) => {
                    // What changes nothing speaks of what others wrote: it is answered when that is durable.
                    let kept = match events.is_empty() {
                        true => self.barrier(),
                        false => self.keep(&state, events, &passing, zxid),
                    };
                    kept.map(|k| (zxid, k)).ok_or(zxid)
                }
                Err(refusal) => return Outcome::Refused(refusal),
            }
        };
        match kept {
            Err(zxid) => Outcome::Committed { zxid },
            Ok((zxid, kept)) => match kept.await {
                Ok(Ok(())) => Outcome::Committed { zxid },
                // The tree had it; the disk may have it or not.
                Ok(Err(_)) | Err(_) => Outcome::Unknown,
            },
        }
    }

    /// The ephemeral nodes that these operations delete: they are not stored, so that the end of a run waits for no disk.
    fn passing<'a>(&self, tree: &Tree, ops: &'a [Op]) -> HashSet<&'a str> {
        let deleted = ops.iter().filter(|op| self.keeper.is_some() && matches!(op, Op::Delete { .. })).map(Op::path);
        deleted.filter(|path| tree.get(path).is_some_and(|node| node.owner != 0)).collect()
    }

    /// Stores the change and announces its events once it is durable. Returns `None` if no node has to be stored: the events
    /// were announced immediately.
    fn keep(
        &self,
        state: &State,
        events: Vec<Event>,
        passing: &HashSet<&str>,
        zxid: i64,
    ) -> Option<oneshot::Receiver<Result<(), String>>> {
        let tree = &state.tree;
        let changed = events.iter().filter(|e| self.keeper.is_some() && e.kind != EventKind::Children);
        let changed = changed.filter(|e| e.kind != EventKind::Deleted || !passing.contains(e.path.as_str()));
        let nodes: Vec<(String, Option<Node>)> = changed
            .map(|e| (e.path.clone(), tree.get(&e.path).filter(|n| n.owner == 0).cloned()))
            .filter(|(path, node)| node.is_some() || tree.get(path).is_none())
            .collect();
        match &self.keeper {
            Some(keeper) if !nodes.is_empty() => {
                let (done, kept) = oneshot::channel();
                keeper.keep(Change { nodes, events, zxid }, done);
                Some(kept)
            }
            Some(_) | None => {
                state.tell(&events);
                None
            }
        }
    }

    /// Announces the events of a durable change. Called by the keeper.
    pub(crate) fn announce(&self, events: &[Event]) {
        self.state.lock().tell(events);
    }

    /// Ends when everything that was committed before is durable.
    fn barrier(&self) -> Option<oneshot::Receiver<Result<(), String>>> {
        let keeper = self.keeper.as_ref()?;
        let (done, kept) = oneshot::channel();
        keeper.keep(Change::default(), done);
        Some(kept)
    }

    /// Reads for another process: it learns nothing that is not durable.
    pub(crate) async fn read_durable(&self, queries: Vec<Query>) -> Result<Vec<Answer>, Error> {
        let answers = self.read(queries)?;
        if let Some(kept) = self.barrier() {
            let _ = kept.await; // a failure shows in the state of the store
            self.sound()?;
        }
        Ok(answers)
    }

    pub(crate) async fn create_sequential(
        &self,
        session: u64,
        parents: &[String],
        prefix: &str,
    ) -> Result<String, Error> {
        let ensure: Vec<Op> = parents.iter().cloned().map(Op::Ensure).collect();
        match self.commit(session, &ensure).await {
            Outcome::Committed { .. } => {}
            Outcome::Refused(_) => return Err(Error::Missing { path: prefix.to_owned() }),
            Outcome::Failed(error) => return Err(error),
            Outcome::Unknown => return Err(self.closed()),
        }
        let mut state = self.state.lock();
        self.sound()?;
        match state.tree.create_sequential(session, prefix, (self.now)()) {
            Ok((path, events)) => {
                state.tell(&events);
                Ok(path)
            }
            Err(refusal) if refusal.reason == Reason::Missing => Err(Error::Missing { path: prefix.to_owned() }),
            Err(_) => Err(self.closed()),
        }
    }

    pub(crate) fn watch(self: &Arc<Self>, target: Target, sink: Sink) -> Watch {
        let mut state = self.state.lock();
        state.last_watch += 1;
        let (id, path) = (state.last_watch, target.path().to_owned());
        state.watches.entry(path.clone()).or_default().push((id, target, sink));
        let store = Arc::downgrade(self);
        Watch::new(move || {
            let Some(store) = store.upgrade() else { return };
            let mut state = store.state.lock();
            if let Some(watches) = state.watches.get_mut(&path) {
                watches.retain(|(other, ..)| *other != id);
                if watches.is_empty() {
                    state.watches.remove(&path);
                }
            }
        })
    }

    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    fn closed(&self) -> Error {
        Error::Unreachable { registry: self.description.clone(), reason: "the session is closed".into() }
    }
}

impl State {
    fn tell(&self, events: &[Event]) {
        for event in events {
            for (_, target, sink) in self.watches.get(&event.path).into_iter().flatten() {
                if event.kind != EventKind::Children || matches!(target, Target::Node(_)) {
                    sink(event.clone());
                }
            }
            if event.kind == EventKind::Children {
                continue;
            }
            let mut above = parent_of(&event.path);
            while let Some(at) = above {
                for (_, target, sink) in self.watches.get(at).into_iter().flatten() {
                    if matches!(target, Target::Subtree(_)) {
                        sink(event.clone());
                    }
                }
                above = parent_of(at);
            }
        }
    }
}

/// The parent, up to the root.
fn parent_of(at: &str) -> Option<&str> {
    if at == "/" { None } else { path::parent(at).or(Some("/")) }
}

/// Something that ends with a connection.
pub(crate) trait Company: Send + Sync + std::fmt::Debug {
    /// Waits a moment for others that still read what this connection has written.
    fn part(&self) -> BoxFuture<'_, ()>;
}

/// The session of a connection, and its link.
#[derive(Debug)]
struct Session {
    id: Mutex<u64>,
    link: watch::Sender<Link>,
    epoch: Mutex<u64>,
}

impl Session {
    fn lose(&self, reason: &str) {
        self.link.send_if_modified(|link| {
            let open = *link != Link::Closed;
            if open {
                *link = Link::down(reason);
            }
            open
        });
    }

    /// Opens a session in that tree. A connection that was closed stays closed.
    fn renew(&self, tree: &mut Tree) {
        let session = tree.open_session();
        let mut epoch = self.epoch.lock();
        let is_open = self.link.send_if_modified(|link| {
            let open = *link != Link::Closed;
            if open {
                *epoch += 1;
                *link = Link::Up { session, timeout: SESSION_TIMEOUT, epoch: *epoch };
            }
            open
        });
        if is_open {
            *self.id.lock() = session;
        } else {
            tree.close_session(session);
        }
    }
}

/// One connection to a tree in this process. Its session ends when it is closed or dropped.
#[derive(Debug)]
pub struct Connection {
    store: Arc<Store>,
    /// What ends with the connection: the socket of an embedded registry.
    company: Mutex<Option<Box<dyn Company>>>,
    session: Arc<Session>,
}

impl Connection {
    pub(crate) fn new(store: Arc<Store>, company: Option<Box<dyn Company>>) -> Connection {
        let link = watch::Sender::new(Link::down("not connected yet"));
        let session = Arc::new(Session { id: Mutex::new(0), link, epoch: Mutex::new(0) });
        {
            let mut state = store.state.lock();
            state.connections.retain(|connection| connection.strong_count() > 0);
            state.connections.push(Arc::downgrade(&session));
            match store.sound() {
                Ok(()) => session.renew(&mut state.tree),
                Err(error) => session.lose(&error.reason()),
            }
        }
        Connection { store, company: Mutex::new(company), session }
    }

    /// Ends the session as a long cut of the link would, and begins another one: for tests.
    pub fn expire(&self) {
        self.session.lose("the session was ended by a test");
        self.store.close_session(*self.session.id.lock());
        let mut state = self.store.state.lock();
        self.session.renew(&mut state.tree);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.store.close_session(*self.session.id.lock());
    }
}

impl Registry for Connection {
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Result<Vec<Answer>, Error>> {
        async move { self.store.read(queries) }.boxed()
    }

    fn commit<'a>(&'a self, session: u64, ops: &'a [Op]) -> BoxFuture<'a, Outcome> {
        async move { self.store.commit(session, ops).await }.boxed()
    }

    fn create_sequential(
        &self,
        session: u64,
        parents: Vec<String>,
        prefix: String,
    ) -> BoxFuture<'_, Result<String, Error>> {
        async move { self.store.create_sequential(session, &parents, &prefix).await }.boxed()
    }

    fn watch(&self, target: Target, sink: Sink) -> BoxFuture<'_, Result<Watch, Error>> {
        async move {
            self.store.sound()?;
            Ok(self.store.watch(target, sink))
        }
        .boxed()
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.session.link.subscribe()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            self.session.link.send_replace(Link::Closed);
            self.store.close_session(*self.session.id.lock());
            let company = self.company.lock().take();
            if let Some(company) = company {
                company.part().await;
            }
            self.store.close().await;
        }
        .boxed()
    }

    fn describe(&self) -> String {
        self.store.description().to_owned()
    }

    /// The file, or this process, belongs to this user.
    fn protects(&self, _: Vec<String>) -> BoxFuture<'_, Result<Protection, Error>> {
        Box::pin(std::future::ready(Ok(Protection::Whole)))
    }

    fn is_shared(&self) -> bool {
        false
    }
}
