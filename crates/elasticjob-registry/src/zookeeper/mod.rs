//! ZooKeeper, 3.6 or newer.
//!
//! A client of `elasticjob-zookeeper` is one connection. The file `link.rs` connects a new one to the same session when it breaks.
//! Requests of the old one end as unknown, and watches end with it, as the trait says.

mod link;
mod request;
mod settings;

use std::sync::Arc;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::Op;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

pub use settings::Settings;

use crate::{Error, Link, Outcome, Protection, Registry, Sink, Target, Watch};

/// A connection to a ZooKeeper, kept up for ever.
#[derive(Debug)]
pub struct Zookeeper {
    shared: Arc<link::Shared>,
}

impl Zookeeper {
    /// Begins to connect, in the background. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// A setting is wrong. A ZooKeeper that does not answer is no error: the link is down until it does.
    pub fn connect(settings: Settings) -> Result<Zookeeper, Error> {
        settings.check()?;
        Ok(Zookeeper { shared: link::start(settings) })
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Registry for Zookeeper {
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Result<Vec<Answer>, Error>> {
        async move { request::read(&self.shared, queries).await }.boxed()
    }

    fn commit<'a>(&'a self, session: u64, ops: &'a [Op]) -> BoxFuture<'a, Outcome> {
        async move { request::commit(&self.shared, session, ops).await }.boxed()
    }

    fn create_sequential(
        &self,
        session: u64,
        parents: Vec<String>,
        prefix: String,
    ) -> BoxFuture<'_, Result<String, Error>> {
        async move { request::create_sequential(&self.shared, session, &parents, &prefix).await }.boxed()
    }

    fn watch(&self, target: Target, sink: Sink) -> BoxFuture<'_, Result<Watch, Error>> {
        async move { request::watch(&self.shared, target, sink).await }.boxed()
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.shared.link()
    }

    fn is_alive(&self, session: u64) -> bool {
        self.shared.is_alive(session)
    }

    fn protects(&self, paths: Vec<String>) -> BoxFuture<'_, Result<Protection, Error>> {
        async move { request::protects(&self.shared, &paths).await }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move { self.shared.close().await }.boxed()
    }

    fn describe(&self) -> String {
        self.shared.description()
    }
}
