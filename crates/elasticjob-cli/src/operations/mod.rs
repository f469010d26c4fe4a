//! `elasticjob job|server|shard …`: operations, directly on the registry.

mod apply;
mod history;
mod jobs;
mod ledger;
mod logs;
mod registry;
mod servers;
mod shards;
mod trigger;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use elasticjob::registry::{Error, Link, Registry};
use elasticjob::{Explained, Operations};
use futures_util::FutureExt;

use crate::args::{JobOperation, Output, ServerOperation, ShardOperation};
use crate::{Failure, clock, output};

/// The registry of commands that name none.
const DEFAULT_REGISTRY: &str = "embedded:elasticjob.db";
/// A command does not wait for ever for a registry that is not there.
const LINK_WAIT: Duration = Duration::from_secs(15);
/// Before it says that it waits.
const SAY_SLOW: Duration = Duration::from_secs(2);

pub(crate) fn job(operation: &JobOperation, registry: Option<&str>, format: Output) -> Result<(), Failure> {
    // Faults of files and arguments are reported before a registry is opened.
    match operation {
        JobOperation::List { server, watch: true } => watch::run(address(registry), server.as_deref(), format),
        JobOperation::List { server, watch: false } => {
            on(registry, async |all| jobs::print_list(&all, server.as_deref(), format).await)
        }
        JobOperation::Show { name } => on(registry, async |all| jobs::show(&all, name, format).await),
        JobOperation::Config { name } => on(registry, async |all| jobs::print_config(&all, name, format).await),
        JobOperation::Apply { file, yes } => {
            let documents = apply::read(file)?;
            on(registry, async |all| apply::run(&all, documents, *yes, format).await)
        }
        JobOperation::Trigger { names, wait, timeout } => on(registry, async |all| match wait {
            true => trigger::and_wait(&all, names, *timeout, format).await,
            false => trigger::all(&all, names).await,
        }),
        JobOperation::Disable(jobs) => {
            on(registry, async |all| jobs::each_in(&all, jobs, async |scope| all.disable(scope).await).await)
        }
        JobOperation::Enable(jobs) => {
            on(registry, async |all| jobs::each_in(&all, jobs, async |scope| all.enable(scope).await).await)
        }
        JobOperation::Shutdown(jobs) => {
            on(registry, async |all| jobs::each_in(&all, jobs, async |scope| all.shutdown(scope).await).await)
        }
        JobOperation::Remove { jobs, keep_config, yes } => {
            on(registry, async |all| jobs::remove(&all, jobs, *keep_config, *yes).await)
        }
        JobOperation::Dump { name, from: Some(from) } => jobs::dump_from(name, from),
        JobOperation::Dump { name, from: None } => on(registry, async |all| output::data(&all.dump(name).await?)),
        JobOperation::History(history) => {
            let wanted = history::wanted(history)?;
            match wanted.names_database() {
                true => history::run_without_registry(&history.name, wanted, format),
                false => {
                    let beside = history::beside(address(registry));
                    on(registry, async |all| history::run(&all, &history.name, wanted, beside, format).await)
                }
            }
        }
        JobOperation::Ledger(arguments) => {
            let wanted = ledger::wanted(arguments, history::beside(address(registry)))?;
            on(registry, async |all| ledger::run(&all, &arguments.name, wanted, format).await)
        }
        JobOperation::Logs(arguments) => {
            let wanted = logs::wanted(arguments, history::beside(address(registry)))?;
            match wanted.names_database() {
                true => logs::run_without_registry(wanted, format),
                false => on(registry, async |all| logs::run(&all, wanted, format).await),
            }
        }
        JobOperation::Explain { name } => run(registry, async |registry| jobs::explain(registry, name, format).await),
    }
}

/// Lets `work` have the operations on the registry, once that can be reached.
fn on(registry: Option<&str>, work: impl AsyncFnOnce(Operations) -> Result<(), Failure>) -> Result<(), Failure> {
    run(registry, async |registry| work(operations(registry).await?).await)
}

fn address(registry: Option<&str>) -> &str {
    registry.unwrap_or(DEFAULT_REGISTRY)
}

pub(crate) fn server(operation: &ServerOperation, registry: Option<&str>, format: Output) -> Result<(), Failure> {
    on(registry, async |all| servers::run(&all, operation, format).await)
}

pub(crate) fn shard(operation: &ShardOperation, registry: Option<&str>, format: Output) -> Result<(), Failure> {
    on(registry, async |all| shards::run(&all, operation, format).await)
}

/// A registry, or why it cannot be used.
type Attached = Result<Arc<dyn Registry>, Error>;

pub(crate) use registry::run as registry;

/// Attaches to the registry, lets `work` have it, and closes it, also when Ctrl-C comes.
fn run(address: Option<&str>, work: impl AsyncFnOnce(Attached) -> Result<(), Failure>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(async {
        let registry = attach(self::address(address)).await?;
        let attached = registry.clone();
        let done = work(registry).boxed_local();
        let done = tokio::select! {
            done = done => done,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted").into()),
        };
        if let Ok(registry) = attached {
            registry.close().await;
        }
        done
    })
}

/// A wrong address is wrong usage.
async fn attach(address: &str) -> Result<Attached, Failure> {
    match elasticjob::registry::attach(&crate::agent::with_digest(address)).await {
        Err(error @ (Error::Address { .. } | Error::Setting { .. })) => {
            Err(crate::agent::wrong_address(address, &error))
        }
        registry => Ok(registry),
    }
}

async fn operations(registry: Attached) -> Result<Operations, Failure> {
    Ok(Operations::new(linked(registry).await?).with_progress(output::progress()))
}

/// Waits for the link.
async fn linked(registry: Attached) -> Result<Arc<dyn Registry>, Failure> {
    let registry = registry?;
    let mut link = registry.link();
    let up = link.wait_for(|l| matches!(l, Link::Up { .. } | Link::Down { refused: true, .. }));
    let name = registry.describe();
    let slow = async {
        clock::sleep(SAY_SLOW).await;
        output::tell(&format!("waiting up to {} s for {name}", LINK_WAIT.as_secs()));
        std::future::pending::<()>().await;
    };
    let up = async {
        tokio::select! {
            up = up => up.ok().map(|link| link.clone()),
            () = slow => None,
        }
    };
    let link = tokio::time::timeout(LINK_WAIT, up).await.ok().flatten();
    let link = link.unwrap_or_else(|| registry.link().borrow().clone());
    match link {
        Link::Up { .. } => Ok(registry),
        Link::Down { reason, refused: true } => Err(anyhow::anyhow!("{name} refuses this client: {reason}").into()),
        Link::Down { reason, refused: false } => Err(anyhow::anyhow!("{name} does not answer: {reason}").into()),
        Link::Closed => Err(anyhow::anyhow!("{name} does not answer: the connection is closed").into()),
    }
}

/// The lines of an explanation, for people and for programs.
fn explained(explained: &Explained) -> output::Listing {
    let mut listing = output::Listing::new(&["CHECK", "VERDICT", "EVIDENCE"]);
    for check in &explained.checks {
        let (name, verdict) = (check.name.word(), check.verdict.word());
        let object = serde_json::json!({"check": name, "verdict": verdict, "evidence": check.evidence});
        listing.push(vec![name.to_owned(), verdict.to_owned(), check.evidence.clone()], object);
    }
    listing
}
