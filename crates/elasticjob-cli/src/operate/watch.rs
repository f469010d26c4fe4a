//! `elasticjob job list --watch`: the list again, each time it has changed.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use elasticjob::Operate;
use elasticjob::registry::{Link, Registry};
use elasticjob_core::path::{JobPath, Place, job_of};
use elasticjob_registry::{Sink, Target};
use tokio::sync::Notify;

use super::jobs;
use crate::args::Output;
use crate::{Failure, clock, output};

/// Between two looks, however much changes.
const PAUSE: Duration = Duration::from_millis(500);
/// Moves to the upper left corner and clears what is there.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Prints the list and waits for a change of what it shows; until Ctrl-C.
pub(super) async fn list(registry: &Arc<dyn Registry>, server: Option<&str>, format: Output) -> Result<(), Failure> {
    let operate = Operate::new(Arc::clone(registry));
    let redraws = format == Output::Table && std::io::stdout().is_terminal();
    let mut printed = String::new();
    loop {
        let changed = Arc::new(Notify::new());
        let told = Arc::clone(&changed);
        let sink: Sink = Arc::new(move |event| {
            if shows(&event.path) {
                told.notify_one();
            }
        });
        let mut link = registry.link();
        link.wait_for(|l| !matches!(l, Link::Down(_))).await?;
        link.mark_unchanged();
        // It lasts as long as the link.
        let Ok(_watch) = registry.watch(Target::Subtree("/".into()), sink).await else {
            clock::sleep(PAUSE).await;
            continue;
        };
        while !link.has_changed()? {
            let text = match jobs::list(&operate, server, format).await {
                Err(_) if link.has_changed()? => break,
                text => text?,
            };
            if text != printed {
                output::data(&if redraws { format!("{CLEAR}{text}") } else { text.clone() });
                printed = text;
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
    let place = JobPath::new(job).place(path);
    match place {
        Some(Place::Root | Place::Config | Place::Server(_) | Place::Instance(_)) => true,
        Some(Place::Other) => path.ends_with("/instance"),
        Some(_) | None => false,
    }
}
