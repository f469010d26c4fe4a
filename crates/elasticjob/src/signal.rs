//! The signals that end a process.

/// Waits for Ctrl-C (SIGINT) or SIGTERM. For [`Connection::shutdown_on`](crate::registry::Connection::shutdown_on).
///
/// From the first call on, these signals no longer end the process by themselves.
pub async fn termination() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = async |kind: SignalKind| match signal(kind) {
        Ok(mut signals) => drop(signals.recv().await),
        // Without a handler the signal ends the process, as it would without this function.
        Err(error) => {
            tracing::error!("cannot handle the signal {}: {error}", kind.as_raw_value());
            std::future::pending().await
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
    }
}
