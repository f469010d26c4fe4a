//! The registry as this process uses it: its reads travel together, and its requests are counted. When an instance comes, each
//! job of a process reads its node; when items move, each reads its assignment: of forty jobs on a hundred instances that was
//! four thousand requests at one moment.
//!
//! A read goes at once when none is under way; what comes meanwhile waits for that answer, and goes as one request. A read sees
//! what was committed before it was asked for, as the contract says, and may see what came while it waited. A list of
//! everything, which takes many requests, goes beside, so that no job waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use elasticjob_core::query::{Answer, Query};
use elasticjob_core::tree::Op;
use elasticjob_registry::{Error, Link, Outcome, Protection, Registry, Sink, Target, Watch};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::metrics::Metrics;

/// Queries of one request; a read with more does not wait in line.
const QUERIES_MAX: usize = 500;
/// Requests under way at one time: beside another one only a full one goes.
const IN_FLIGHT: usize = 4;

type Answers = Result<Vec<Answer>, Error>;

/// A queued read.
struct Ask {
    queries: Vec<Query>,
    answer: oneshot::Sender<Answers>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Gathered {
    registry: Arc<dyn Registry>,
    asks: mpsc::UnboundedSender<Ask>,
    metrics: Arc<Metrics>,
}

impl Gathered {
    /// Starts the queue, which ends with this. Must be called within a tokio runtime.
    pub(crate) fn new(registry: Arc<dyn Registry>, metrics: Arc<Metrics>) -> Gathered {
        // Unbounded, since each that asks waits for its answer.
        let (asks, waiting) = mpsc::unbounded_channel();
        tokio::spawn(run(Arc::clone(&registry), waiting, Arc::clone(&metrics)));
        Gathered { registry, asks, metrics }
    }
}

async fn run(registry: Arc<dyn Registry>, mut asks: mpsc::UnboundedReceiver<Ask>, metrics: Arc<Metrics>) {
    let mut waiting = VecDeque::new();
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            Some(ask) = asks.recv() => waiting.push_back(ask),
            Some(_) = under_way.join_next() => {}
            else => return,
        }
        while let Ok(ask) = asks.try_recv() {
            waiting.push_back(ask);
        }
        while let Some(batch) = next_batch(&mut waiting, under_way.len()) {
            let (registry, metrics) = (Arc::clone(&registry), Arc::clone(&metrics));
            under_way.spawn(async move { answer(&*registry, batch, &metrics).await });
        }
    }
}

/// What is to go next, beside so many others.
fn next_batch(waiting: &mut VecDeque<Ask>, under_way: usize) -> Option<Vec<Ask>> {
    let (mut asks, mut queries) = (0, 0);
    for ask in waiting.iter() {
        queries += ask.queries.len();
        if asks > 0 && queries > QUERIES_MAX {
            break;
        }
        asks += 1;
    }
    let is_full = asks < waiting.len();
    let goes = asks > 0 && (under_way == 0 || (is_full && under_way < IN_FLIGHT));
    goes.then(|| waiting.drain(..asks).collect())
}

async fn answer(registry: &dyn Registry, batch: Vec<Ask>, metrics: &Metrics) {
    let queries: Vec<Query> = batch.iter().flat_map(|ask| ask.queries.iter().cloned()).collect();
    let mut answers = match read(registry, queries, metrics).await {
        Ok(answers) => answers.into_iter(),
        Err(error) if error.is_retryable() || batch.len() == 1 => {
            // The receiver is gone if its caller stopped waiting.
            return batch.into_iter().for_each(|ask| drop(ask.answer.send(Err(error.clone()))));
        }
        // A denied node fails only the read that asked for it.
        Err(_) => {
            for ask in batch {
                let _ = ask.answer.send(read(registry, ask.queries, metrics).await);
            }
            return;
        }
    };
    for ask in batch {
        let own = answers.by_ref().take(ask.queries.len()).collect();
        let _ = ask.answer.send(Ok(own));
    }
}

async fn read(registry: &dyn Registry, queries: Vec<Query>, metrics: &Metrics) -> Answers {
    let answers = registry.read(queries).await;
    metrics.requests.reads.add(answers.is_err());
    answers
}

impl Registry for Gathered {
    fn read(&self, queries: Vec<Query>) -> BoxFuture<'_, Answers> {
        async move {
            if queries.len() > QUERIES_MAX {
                return read(&*self.registry, queries, &self.metrics).await;
            }
            let lost = || Error::Unreachable { registry: self.describe(), reason: "this process ends".into() };
            let (answer, answered) = oneshot::channel();
            self.asks.send(Ask { queries, answer }).map_err(|_| lost())?;
            answered.await.map_err(|_| lost())?
        }
        .boxed()
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

    fn is_alive(&self, session: u64) -> bool {
        self.registry.is_alive(session)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.registry.close()
    }

    fn describe(&self) -> String {
        self.registry.describe()
    }

    fn protects(&self, paths: Vec<String>) -> BoxFuture<'_, Result<Protection, Error>> {
        self.registry.protects(paths)
    }

    fn is_shared(&self) -> bool {
        self.registry.is_shared()
    }

    fn reconnects(&self) -> bool {
        self.registry.reconnects()
    }
}

#[cfg(test)]
mod tests {
    use elasticjob_registry::conformance;
    use elasticjob_registry::memory::Memory;
    use futures_util::future::join_all;

    use super::*;

    fn metrics() -> Arc<Metrics> {
        Arc::new(Metrics::new(Vec::new()))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn it_keeps_the_contract() {
        let memory = Memory::new();
        conformance::run(&|| Box::new(Gathered::new(Arc::new(memory.connect()), metrics()))).await;
    }

    #[tokio::test]
    async fn each_gets_the_answers_to_its_own_questions() {
        let registry = Gathered::new(Arc::new(Memory::new().connect()), metrics());
        let session = conformance::session(&registry).await;
        let nodes: Vec<Op> = (0..1_000).map(|n| Op::create(format!("/n{n}"), n.to_string())).collect();
        registry.commit(session, &nodes).await;
        // Of no query to more than fit into a request.
        let reads = (0..50_usize).map(|n| {
            let asked = n * 20..n * 20 + [0, 1, 7, 20][n % 4];
            let queries = asked.clone().map(|n| Query::Node(format!("/n{n}"))).collect();
            let read = registry.read(queries);
            async move { (asked, read.await.expect("reads")) }
        });
        for (asked, answers) in join_all(reads).await {
            let texts: Vec<String> = answers.iter().filter_map(|a| a.node()).map(|node| node.text()).collect();
            assert_eq!(texts, asked.map(|n| n.to_string()).collect::<Vec<_>>());
        }
        let all = registry.read((0..1_000).map(|n| Query::Node(format!("/n{n}"))).collect()).await.expect("reads");
        assert_eq!(all.len(), 1_000);
    }
}
