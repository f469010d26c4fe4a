//! A registry with the jobs that this process runs on it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::machine::{Identity, MachineContext};
use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_registry::{Error as RegistryError, Link, Registry, RegistryUrl};
use tokio::sync::{OnceCell, oneshot, watch};

use crate::clock::{self, Clock};
use crate::commands::Commands;
use crate::error_handler::Dispatcher;
use crate::execute;
use crate::gather::Gathered;
use crate::identity::{self, LifeOf, NetworkPreference};
use crate::metrics::{Beside, Health, Metrics};
use crate::operations::Operations;
use crate::plugins::Plugins;
use crate::trace::{TraceSettings, Tracer};
use crate::worker::{JobState, Message, NameGuard, Names, Worker};
use crate::{Error, STOP_GRACE};

/// Maximum number of instances with one address and process id.
const LIVES_MAX: u32 = 1_024;
/// Maximum time to write the rest of the event trace.
const TRACE_FLUSH_MAX: Duration = Duration::from_secs(5);

/// A connection to a registry, on which this process runs jobs. Cheap to clone.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
/// use elasticjob::registry::Connection;
///
/// let connection = Connection::builder("memory:").metrics_label("application", "billing").connect().await?;
/// assert!(connection.health().registry.is_none());
/// connection.shutdown(std::time::Duration::from_secs(30)).await;
/// # Ok::<(), elasticjob::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<dyn Registry>,
    worker: Worker,
    shared: execute::RunContext,
    commands: Commands,
    names: Names,
    /// The deadline of a shutdown.
    closing: watch::Sender<Option<Duration>>,
    server_ip: String,
    identity: OnceCell<(Identity, LifeOf)>,
}

/// Connects to a registry: `zookeeper://h1:2181,h2:2181/namespace`, `embedded:PATH`, `memory:` or `memory:NAME`. Short for
/// [`Connection::builder`] without settings.
///
/// If a ZooKeeper cannot be reached, this succeeds all the same: the jobs start when it can. Call it within a tokio runtime.
///
/// # Errors
///
/// The address is invalid, the file of an embedded registry cannot be used, or this host has no address.
pub async fn connect(address: &str) -> Result<Connection, Error> {
    Connection::builder(address).connect().await
}

/// The settings of a [`Connection`].
#[derive(Debug)]
#[must_use]
pub struct ConnectionBuilder {
    target: Target,
    plugins: Plugins,
    network: NetworkPreference,
    credentials: Option<String>,
    labels: Vec<(String, String)>,
    trace: Option<TraceSettings>,
    commands: Commands,
    clock: Clock,
}

#[derive(Debug)]
enum Target {
    Address(String),
    Registry(Arc<dyn Registry>),
}

impl ConnectionBuilder {
    fn new(target: Target) -> ConnectionBuilder {
        ConnectionBuilder {
            target,
            plugins: Plugins::default(),
            network: NetworkPreference::default(),
            credentials: None,
            labels: Vec::new(),
            trace: None,
            commands: Commands::default(),
            clock: Clock::default(),
        }
    }

    /// Sets the job types, strategies, error handlers, listeners and trace storages. The default has the built-in ones.
    pub fn plugins(mut self, plugins: Plugins) -> ConnectionBuilder {
        self.plugins = plugins;
        self
    }

    /// Sets how to choose the address of this server. The default is that of Java: the IPv4 address of the last interface that
    /// other hosts can reach.
    pub fn network(mut self, preference: NetworkPreference) -> ConnectionBuilder {
        self.network = preference;
        self
    }

    /// Sets the credentials for ZooKeeper's digest scheme, as `user:password`. They protect every node that this connection
    /// creates. None by default.
    pub fn credentials(mut self, digest: impl Into<String>) -> ConnectionBuilder {
        self.credentials = Some(digest.into());
        self
    }

    /// Adds a label to every series of [`Connection::metrics`].
    pub fn metrics_label(mut self, name: impl Into<String>, value: impl Into<String>) -> ConnectionBuilder {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Sets where to write the event trace; see [`Connection::trace`]. None by default.
    pub fn trace(mut self, settings: TraceSettings) -> ConnectionBuilder {
        self.trace = Some(settings);
        self
    }

    /// Sets which commands and addresses of a stored configuration this process executes.
    pub fn commands(mut self, commands: Commands) -> ConnectionBuilder {
        self.commands = commands;
        self
    }

    pub(crate) fn clock(mut self, clock: Clock) -> ConnectionBuilder {
        self.clock = clock;
        self
    }

    /// Connects. Call it within a tokio runtime.
    ///
    /// If a ZooKeeper cannot be reached, this succeeds all the same: the jobs start when it can.
    ///
    /// # Errors
    ///
    /// The address is invalid, the registry takes no credentials, the file of an embedded registry cannot be used, this host has
    /// no address that fits the preference, or the settings of the trace are invalid.
    pub async fn connect(self) -> Result<Connection, Error> {
        let registry = match self.target {
            Target::Registry(registry) => registry,
            Target::Address(address) => {
                let mut url = RegistryUrl::parse(&address)?;
                if let Some(credentials) = self.credentials {
                    url.set_credentials(credentials)?;
                }
                elasticjob_registry::open(url).await?
            }
        };
        let connection =
            Connection::new(registry, self.plugins, &self.network, self.labels, self.commands, self.clock)?;
        if let Some(trace) = self.trace {
            connection.trace(Some(trace))?;
        }
        Ok(connection)
    }
}

impl Connection {
    /// Returns a builder for a connection to the registry at an address: `zookeeper://h1:2181,h2:2181/namespace`,
    /// `embedded:PATH`, `memory:` (a new registry) or `memory:NAME` (one that all connections of this process share).
    pub fn builder(address: impl Into<String>) -> ConnectionBuilder {
        ConnectionBuilder::new(Target::Address(address.into()))
    }

    /// Returns a builder for a connection to a registry that is open already. It ignores
    /// [`ConnectionBuilder::credentials`].
    pub fn on(registry: Arc<dyn Registry>) -> ConnectionBuilder {
        ConnectionBuilder::new(Target::Registry(registry))
    }

    fn new(
        registry: Arc<dyn Registry>,
        plugins: Plugins,
        preference: &NetworkPreference,
        labels: Vec<(String, String)>,
        commands: Commands,
        clock: Clock,
    ) -> Result<Connection, Error> {
        let server_ip = identity::server_ip(preference, registry.is_shared())?;
        let metrics = Arc::new(Metrics::new(labels));
        let registry: Arc<dyn Registry> = Arc::new(Gathered::new(registry, Arc::clone(&metrics)));
        let context = MachineContext { zones: Box::new(clock::zone), strategies: plugins.strategies() };
        let worker = Worker::start(Arc::clone(&registry), Arc::new(context), Arc::clone(&metrics), clock.clone());
        let plugins = Arc::new(plugins);
        let shared = execute::RunContext {
            dispatcher: Arc::new(Dispatcher::new(Arc::clone(&plugins))),
            tracer: Arc::new(Tracer::new(Arc::clone(&plugins), &server_ip)),
            registry: Arc::clone(&registry),
            plugins,
            metrics,
            clock,
        };
        let (names, closing, identity) = (Names::default(), watch::Sender::new(None), OnceCell::new());
        Ok(Connection(Arc::new(Inner { registry, worker, shared, commands, names, closing, server_ip, identity })))
    }

    /// Traces the runs of this process's jobs from now on. `None` ends the trace. A job whose stored configuration has a tracing
    /// element of its own uses that.
    ///
    /// If the database cannot be reached, events wait for it, up to a bound; runs are not affected. Call it within a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// The type of storage is unknown, or the address is invalid.
    pub fn trace(&self, settings: Option<TraceSettings>) -> Result<(), Error> {
        self.0.shared.tracer.set(settings).map_err(|reason| Error::Tracing { reason })
    }

    /// Returns the registry. Its requests are counted in the metrics of this connection.
    pub fn registry(&self) -> &Arc<dyn Registry> {
        &self.0.registry
    }

    /// Which commands of stored configurations are executed.
    pub(crate) fn commands(&self) -> Commands {
        self.0.commands
    }

    /// Returns the operations on the jobs of this registry.
    pub fn operations(&self) -> Operations {
        Operations::on(self)
    }

    /// Returns the plug-ins that configurations may name.
    pub fn plugins(&self) -> &Arc<Plugins> {
        &self.0.shared.plugins
    }

    /// Returns the metrics of this process in the OpenMetrics text format, which Prometheus reads: runs, failures, lag, misfires,
    /// failovers, requests to the registry, queues. Serve them as `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn metrics(&self) -> String {
        let execute::RunContext { dispatcher, tracer, metrics, .. } = &self.0.shared;
        let (trace_queue, trace_dropped) = tracer.load();
        let registry_up = matches!(*self.0.registry.link().borrow(), Link::Up { .. });
        metrics.render(Beside { registry_up, trace_queue, trace_dropped, handlers: dispatcher.busy() })
    }

    /// Returns the number of items whose code runs in this process.
    pub fn running_items(&self) -> u64 {
        self.0.shared.metrics.running()
    }

    /// Returns whether this process is connected, and which of its jobs take part.
    pub fn health(&self) -> Health {
        let registry = match &*self.0.registry.link().borrow() {
            Link::Up { .. } => None,
            Link::Down { reason, .. } => Some(reason.clone()),
            Link::Closed => Some("the connection is closed".to_owned()),
        };
        let metrics = &self.0.shared.metrics;
        Health { registry, jobs: metrics.parts(), refusals: metrics.refusals() }
    }

    pub(crate) fn shared(&self) -> execute::RunContext {
        self.0.shared.clone()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.shared.clock
    }

    /// Stops all jobs of this connection and closes it. No run starts any more. Running items have `grace` to complete, then
    /// [`Context::cancelled`](crate::Context::cancelled) fires. The nodes of this instance are deleted, so that other instances
    /// take over its items immediately.
    pub async fn shutdown(&self, grace: Duration) {
        self.0.closing.send_replace(Some(grace));
        let (answer, states) = oneshot::channel();
        let deadline = self.clock().now() + grace;
        // A worker that has ended runs no job.
        if self.0.worker.tell(Message::StopAll { deadline, answer }).is_ok()
            && let Ok(states) = states.await
        {
            for mut state in states {
                // A job whose sender is gone has stopped.
                let _ = state.wait_for(|state| matches!(state, JobState::Stopped(_))).await;
            }
        }
        self.close().await;
    }

    /// Waits for a signal, then shuts down with a grace of 30 seconds; see [`Connection::shutdown`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn f(connection: elasticjob::registry::Connection) {
    /// connection.shutdown_on(elasticjob::termination()).await; // Ctrl-C or SIGTERM
    /// # }
    /// ```
    pub async fn shutdown_on(&self, signal: impl Future<Output = ()>) {
        signal.await;
        self.shutdown(STOP_GRACE).await;
    }

    /// Writes the rest of the event trace and ends the session. Stop the jobs first, or call [`Connection::shutdown`], which does
    /// both.
    pub async fn close(&self) {
        self.0.shared.tracer.flush(TRACE_FLUSH_MAX).await;
        self.0.registry.close().await;
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.0.worker
    }

    /// Reserves the name of a job in this process.
    pub(crate) fn reserve(&self, job: &str) -> Option<NameGuard> {
        self.0.names.reserve(job)
    }

    /// Returns the grace of a shutdown, once one was requested.
    pub(crate) fn closing(&self) -> watch::Receiver<Option<Duration>> {
        self.0.closing.subscribe()
    }

    /// Returns the identity of this process. It is decided once, when the registry can be reached: if another process has this id in
    /// one of these jobs, or another connection of this process has it on the same registry, the next number is used.
    ///
    /// # Errors
    ///
    /// The registry was closed, or a thousand instances have the id.
    #[doc(hidden)]
    pub async fn identity(&self, jobs: &[&str]) -> Result<&Identity, Error> {
        let (identity, _) = self.0.identity.get_or_try_init(|| self.find_identity(jobs)).await?;
        Ok(identity)
    }

    async fn find_identity(&self, jobs: &[&str]) -> Result<(Identity, LifeOf), Error> {
        let registry = self.0.registry.describe();
        let mut is_taken = false;
        for number in 0..LIVES_MAX {
            let Some(life) = LifeOf::take(&registry, &self.0.server_ip, number) else { continue };
            let identity = life.identity();
            if !self.is_taken(&identity.id, jobs).await? {
                if is_taken {
                    tracing::warn!(instance = %identity.id, "the usual instance id is already used by another process; using the id in `instance` instead");
                }
                return Ok((identity, life));
            }
            is_taken = true;
        }
        Err(Error::Identity {
            reason: format!("{LIVES_MAX} instance ids for this address and process id are already in use"),
        })
    }

    async fn is_taken(&self, id: &str, jobs: &[&str]) -> Result<bool, Error> {
        loop {
            let mut link = self.0.registry.link();
            let up = link.wait_for(|l| !matches!(l, Link::Down { .. })).await.map_err(|_| Error::Ended)?.clone();
            let Link::Up { session, .. } = up else { return Err(Error::Ended) };
            let queries: Vec<Query> = jobs.iter().map(|job| Query::Node(JobPath::new(job).instance(id))).collect();
            let foreign = |owner: u64| owner != 0 && owner != session;
            let is_foreign = |answers: &[Answer]| answers.iter().any(|a| a.node().is_some_and(|n| foreign(n.owner)));
            match self.0.registry.read(queries.clone()).await {
                Ok(answers) => return Ok(is_foreign(&answers)),
                // A job that may not be read has no instance of this process. Its start reports why.
                Err(RegistryError::Denied { .. }) => {
                    for query in queries {
                        match self.0.registry.read(vec![query]).await {
                            Ok(answers) if is_foreign(&answers) => return Ok(true),
                            Ok(_) | Err(_) => {}
                        }
                    }
                    return Ok(false);
                }
                Err(error) if error.is_retryable() => {
                    tracing::warn!("{error}");
                    clock::sleep(Duration::from_secs(1)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use elasticjob_registry::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn what_is_dropped_without_a_close_ends_its_session() {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
        let left = Arc::downgrade(&registry);
        let connection = Connection::on(registry).connect().await.expect("an address");
        connection.registry().read(vec![Query::Node("/a".to_owned())]).await.expect("reads");
        drop(connection);
        let gone = async {
            while left.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("nothing keeps the registry");
    }
}
