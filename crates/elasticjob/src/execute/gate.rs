//! Tells when everybody who went in has come out.

use std::sync::Arc;

use tokio::sync::watch;

/// Held by those who are in.
#[derive(Clone, Debug)]
pub(crate) struct Pass(#[expect(dead_code, reason = "its drop is what is told")] Arc<watch::Sender<()>>);

/// Held by those who wait.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Receiver<()>);

/// A gate with its first pass.
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
