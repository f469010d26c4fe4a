//! A registry whose requests are counted.

use std::sync::Arc;

use elasticjob_core::tree::Op;
use elasticjob_core::view::{Answer, Query};
use elasticjob_registry::{Error, Link, Outcome, Registry, Sink, Target, Watch};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::Metrics;

/// Counts what goes through it, and changes nothing.
#[derive(Debug)]
pub(crate) struct Metered {
    registry: Arc<dyn Registry>,
    metrics: Arc<Metrics>,
}

impl Metered {
    pub(crate) fn new(registry: Arc<dyn Registry>, metrics: Arc<Metrics>) -> Metered {
        Metered { registry, metrics }
    }
}

impl Registry for Metered {
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Result<Vec<Answer>, Error>> {
        let answers = self.registry.read(queries);
        answers.inspect(|answers| self.metrics.requests.reads.add(answers.is_err())).boxed()
    }

    fn commit<'a>(&'a self, session: u64, ops: &'a [Op]) -> BoxFuture<'a, Outcome> {
        let failed = |outcome: &Outcome| matches!(outcome, Outcome::Unknown | Outcome::Failed(_));
        let outcome = self.registry.commit(session, ops);
        outcome.inspect(move |outcome| self.metrics.requests.commits.add(failed(outcome))).boxed()
    }

    fn create_sequential(
        &self,
        session: u64,
        parents: Vec<String>,
        prefix: String,
    ) -> BoxFuture<'_, Result<String, Error>> {
        let created = self.registry.create_sequential(session, parents, prefix);
        created.inspect(|created| self.metrics.requests.commits.add(created.is_err())).boxed()
    }

    fn watch(&self, target: Target, sink: Sink) -> BoxFuture<'_, Result<Watch, Error>> {
        let watch = self.registry.watch(target, sink);
        watch.inspect(|watch| self.metrics.requests.watches.add(watch.is_err())).boxed()
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.registry.link()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.registry.close()
    }

    fn describe(&self) -> String {
        self.registry.describe()
    }
}
