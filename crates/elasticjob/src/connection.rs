//! A registry with the jobs that this process runs on it.

use std::sync::Arc;

use elasticjob_core::machine::{Identity, MachineContext};
use elasticjob_core::path::JobPath;
use elasticjob_core::view::{Answer, Query};
use elasticjob_registry::{Error as RegistryError, Link, Registry};
use tokio::sync::OnceCell;

use crate::error_handler::Dispatcher;
use crate::execute;
use crate::gather::Gathered;
use crate::identity::{self, LifeOf, NetworkPreference};
use crate::metrics::{Beside, Health, Metrics};
use crate::plugins::Plugins;
use crate::trace::{TraceSettings, Tracer};
use crate::worker::Worker;
use crate::{Error, clock};

/// Lives of a process id that may be taken at one time.
const LIVES_MAX: u32 = 1_024;
/// Longest wait for the end of the event trace.
const TRACE_FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// A connection to a registry, through which the jobs of this process are started. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<dyn Registry>,
    worker: Worker,
    shared: execute::RunContext,
    server_ip: String,
    identity: OnceCell<(Identity, LifeOf)>,
}

/// Connects to a registry: `zookeeper://h1:2181,h2:2181/namespace`, `embedded:PATH` or `memory:`.
///
/// A ZooKeeper that is not there is no error: jobs start when it comes. Must be called within a tokio runtime.
///
/// # Errors
///
/// The address is wrong, or the file of an embedded registry cannot be used.
pub async fn connect(address: &str) -> Result<Connection, Error> {
    let registry = elasticjob_registry::connect(address).await?;
    Connection::new(registry, Plugins::default(), &NetworkPreference::default())
}

/// The same with plug-ins of one's own: job types, strategies, error handlers, listeners and trace storages that jobs name.
///
/// # Errors
///
/// As of [`connect`].
pub async fn connect_with(address: &str, plugins: Plugins) -> Result<Connection, Error> {
    let registry = elasticjob_registry::connect(address).await?;
    Connection::new(registry, plugins, &NetworkPreference::default())
}

impl Connection {
    /// A connection with plug-ins of one's own and a choice of this server's address.
    ///
    /// # Errors
    ///
    /// No address of this host fits the choice.
    pub fn new(
        registry: Arc<dyn Registry>,
        plugins: Plugins,
        preference: &NetworkPreference,
    ) -> Result<Connection, Error> {
        let server_ip = identity::server_ip(preference, registry.is_shared())?;
        let metrics = Arc::new(Metrics::default());
        let registry: Arc<dyn Registry> = Arc::new(Gathered::new(registry, Arc::clone(&metrics)));
        let shared = MachineContext { zones: Box::new(clock::zone), strategies: plugins.strategies() };
        let worker = Worker::start(Arc::clone(&registry), Arc::new(shared), Arc::clone(&metrics));
        let plugins = Arc::new(plugins);
        let shared = execute::RunContext {
            dispatcher: Arc::new(Dispatcher::new(Arc::clone(&plugins))),
            tracer: Arc::new(Tracer::new(Arc::clone(&plugins), &server_ip)),
            registry: Arc::clone(&registry),
            plugins,
            metrics,
        };
        Ok(Connection(Arc::new(Inner { registry, worker, shared, server_ip, identity: OnceCell::new() })))
    }

    /// Traces the runs of this process's jobs from now on, as the settings say; `None` ends what was set before. A job
    /// whose stored configuration has a tracing element of its own uses that.
    ///
    /// A database that is away is no error: events wait for it, up to a bound, and runs go on. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// The type is not known, or the address is not one of a database that is supported.
    pub fn trace(&self, settings: Option<TraceSettings>) -> Result<(), Error> {
        self.0.shared.tracer.set(settings).map_err(|reason| Error::Tracing { reason })
    }

    /// The registry, for operations; what goes through it is counted.
    pub fn registry(&self) -> &Arc<dyn Registry> {
        &self.0.registry
    }

    /// The plug-ins that configurations may name.
    pub fn plugins(&self) -> &Arc<Plugins> {
        &self.0.shared.plugins
    }

    /// What this process has counted, as text in the OpenMetrics format, which Prometheus reads: runs, failures, lag,
    /// misfires, failovers, requests to the registry, queues. To be served under
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn metrics(&self) -> String {
        let execute::RunContext { dispatcher, tracer, metrics, .. } = &self.0.shared;
        let (trace_queue, trace_dropped) = tracer.load();
        let registry_up = matches!(*self.0.registry.link().borrow(), Link::Up { .. });
        metrics.render(Beside { registry_up, trace_queue, trace_dropped, handlers: dispatcher.busy() })
    }

    /// The number of items whose code runs in this process.
    pub fn running_items(&self) -> u64 {
        self.0.shared.metrics.running()
    }

    /// Whether this process does its work.
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

    /// Writes the rest of the event trace, and ends the session, so that others need not wait for its time-out. Jobs should
    /// be stopped before.
    pub async fn close(&self) {
        self.0.shared.tracer.flush(TRACE_FLUSH_MAX).await;
        self.0.registry.close().await;
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.0.worker
    }

    /// Who this process is. Decided once, when there is a link: where another process has our id in one of these jobs, or
    /// another connection of this one has it on the same registry, the next number is taken.
    ///
    /// # Errors
    ///
    /// The registry was closed, or a thousand instances have that id.
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
                    tracing::warn!("another process has this id: this instance is {}", identity.id);
                }
                return Ok((identity, life));
            }
            is_taken = true;
        }
        Err(Error::Identity { reason: format!("{LIVES_MAX} instances have the address and the id of this process") })
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
                    clock::sleep(std::time::Duration::from_secs(1)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elasticjob_registry::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn what_is_dropped_without_a_close_ends_its_session() {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
        let left = Arc::downgrade(&registry);
        let connection = Connection::new(registry, Plugins::default(), &NetworkPreference::default());
        let connection = connection.expect("an address");
        connection.registry().read(vec![Query::Node("/a".to_owned())]).await.expect("reads");
        drop(connection);
        let gone = async {
            while left.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("nobody keeps the registry");
    }
}
