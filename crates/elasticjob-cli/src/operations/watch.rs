//! `elasticjob job list --watch`: the list again, each time it has changed.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use elasticjob::Operations;
use elasticjob::registry::{Link, Registry, RegistryUrl};
use elasticjob_core::path::{JobPath, Place, job_of};
use elasticjob_registry::{Sink, Target, embedded};
use tokio::sync::Notify;

use super::{attach, jobs, linked};
use crate::args::Output;
use crate::{Failure, clock, output};

/// Between two looks, however much changes.
const PAUSE: Duration = Duration::from_millis(500);
/// Moves to the upper left corner and clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Prints the list and waits for a change of what it shows; until Ctrl-C.
pub(super) fn run(address: &str, server: Option<&str>, format: Output) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(async {
        let redraws = format == Output::Table && std::io::stdout().is_terminal();
        let mut shown = Shown { server, format, redraws, printed: String::new() };
        tokio::select! {
            failed = watch(address, &mut shown) => failed,
            () = output::reader_gone() => Err(Failure::Unread),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

struct Shown<'a> {
    server: Option<&'a str>,
    format: Output,
    redraws: bool,
    printed: String,
}

impl Shown<'_> {
    async fn print(&mut self, registry: &Arc<dyn Registry>) -> Result<(), Failure> {
        let text = jobs::list(&Operations::new(Arc::clone(registry)), self.server, self.format).await?;
        if text != self.printed {
            if self.redraws {
                output::raw(CLEAR)?;
            }
            output::data(&text)?;
            self.printed = text;
        }
        Ok(())
    }
}

async fn watch(address: &str, shown: &mut Shown<'_>) -> Result<(), Failure> {
    let file = match RegistryUrl::parse(address) {
        Ok(RegistryUrl::Embedded(path)) => Some(path),
        Ok(_) | Err(_) => None,
    };
    loop {
        // Who watches a file must not hold it: an agent may want to start.
        let visit = match &file {
            Some(file) => embedded::reach(file).await,
            None => Some(linked(attach(address).await?).await?),
        };
        if let Some(registry) = visit {
            follow(&registry, shown, file.is_none()).await?;
        } else {
            let registry = linked(attach(address).await?).await?;
            let printed = shown.print(&registry).await;
            registry.close().await;
            drop(registry);
            printed?;
            clock::sleep(PAUSE).await;
        }
    }
}

/// Goes on over broken links where they come back by themselves; else until the link is down.
async fn follow(registry: &Arc<dyn Registry>, shown: &mut Shown<'_>, comes_back: bool) -> Result<(), Failure> {
    loop {
        let changed = Arc::new(Notify::new());
        let told = Arc::clone(&changed);
        let sink: Sink = Arc::new(move |event| {
            if shows(&event.path) {
                told.notify_one();
            }
        });
        let mut link = registry.link();
        if !comes_back && !matches!(*link.borrow(), Link::Up { .. }) {
            return Ok(());
        }
        link.wait_for(|l| !matches!(l, Link::Down { .. })).await?;
        link.mark_unchanged();
        // It lasts as long as the link.
        let Ok(_watch) = registry.watch(Target::Subtree("/".into()), sink).await else {
            clock::sleep(PAUSE).await;
            continue;
        };
        while !link.has_changed()? {
            match shown.print(registry).await {
                Err(Failure::Failed(_)) if link.has_changed()? => break,
                printed => printed?,
            }
            tokio::select! {
                () = changed.notified() => {}
                _ = link.changed() => break,
            }
            clock::sleep(PAUSE).await;
        }
    }
}

/// Whether the list may look different after a change of that node: runs come and go without a trace in it.
fn shows(path: &str) -> bool {
    let Some(job) = job_of(path) else { return true };
    match JobPath::new(job).place(path) {
        Some(Place::Root | Place::Config | Place::Server(_) | Place::Instance(_)) => true,
        Some(Place::Other) => path.ends_with("/instance"),
        Some(_) | None => false,
    }
}
