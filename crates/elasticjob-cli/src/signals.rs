//! The signals of an agent.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;

/// SIGXFSZ, with the number that it has on Linux.
const FILE_SIZE_SIGNAL: i32 = 25;

/// What ends an agent, and what has it read its file again.
pub(crate) struct Signals {
    pub(crate) interrupt: Signal,
    pub(crate) terminate: Signal,
    pub(crate) hang_up: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, Failure> {
        // A write beyond the limit of a file's size fails then, as on a full disk, and does not end the process.
        drop(signal(SignalKind::from_raw(FILE_SIZE_SIGNAL))?);
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Ctrl-C, or SIGTERM.
    pub(crate) async fn end(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
