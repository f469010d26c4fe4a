//! Waits until every holder of a pass has dropped it.

use std::sync::Arc;

use tokio::sync::watch;

/// Held while something is going on.
#[derive(Clone, Debug)]
pub(crate) struct Pass(#[expect(dead_code, reason = "its drop is the signal")] Arc<watch::Sender<()>>);

/// Held by the side that waits.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Receiver<()>);

/// Creates a gate with its first pass.
pub(crate) fn gate() -> (Pass, Gate) {
    let (sender, receiver) = watch::channel(());
    (Pass(Arc::new(sender)), Gate(receiver))
}

impl Gate {
    /// Waits until no pass is left.
    pub(crate) async fn empty(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
