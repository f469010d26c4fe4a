//! Decides whether the code of an item may start. After its begin, an item waits for listeners, for a place in the pool, or for a
//! retry. If its session ends in that time, another instance may take the item over, so its code must not start here.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_registry::{Link, Registry};
use tokio::sync::watch;

use super::Cancelled;
use crate::clock;

/// Pause between two checks of a connection that is up while its session is not confirmed: it breaks, or receives an answer.
const LOOK: Duration = Duration::from_millis(50);

/// What an item's code may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It starts: the session is certain to live.
    Now,
    /// It does not: the session is over.
    Over,
    /// It does not: the job leaves.
    Leaving,
}

/// The error of an item whose code has not started when its session ended. Another instance may run the item.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not run: the registry session ended before the item could start")]
pub(crate) struct SessionOver;

/// The session in which a run was begun.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    registry: Arc<dyn Registry>,
    link: watch::Receiver<Link>,
    session: u64,
}

impl Lease {
    pub(crate) fn new(registry: &Arc<dyn Registry>, link: &watch::Receiver<Link>, session: u64) -> Lease {
        Lease { registry: Arc::clone(registry), link: link.clone(), session }
    }

    /// Waits until it is known whether the session is alive. It is unknown while the connection is lost.
    pub(crate) async fn wait(&self, leaving: &Cancelled) -> Start {
        loop {
            if leaving.is_cancelled() {
                return Start::Leaving;
            }
            let of_now = match &*self.link.borrow() {
                Link::Up { session, .. } => Some(*session),
                Link::Closed => return Start::Over,
                Link::Down { .. } => None,
            };
            match of_now {
                Some(session) if session != self.session => return Start::Over,
                Some(session) if self.registry.is_alive(session) => return Start::Now,
                Some(_) | None => {}
            }
            let (mut link, mut leaving) = (self.link.clone(), leaving.clone());
            let is_up = |link: &Link| matches!(link, Link::Up { .. });
            tokio::select! {
                // A link that is up breaks, or hears an answer.
                () = clock::sleep(LOOK), if of_now.is_some() => {}
                _ = link.wait_for(|link| is_up(link) || *link == Link::Closed), if of_now.is_none() => {}
                () = leaving.wait() => {}
            }
        }
    }
}
