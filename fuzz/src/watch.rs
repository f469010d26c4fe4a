//! The only file of this crate that reads the time: ends the process when one input takes too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A reader that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// No input is being read.
const IDLE: u64 = u64::MAX;

/// A moment of the clock that only goes forward.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Watches over the input that is being read.
pub(crate) struct Watch {
    seed: Arc<AtomicU64>,
}

impl Watch {
    /// Starts a thread, which ends with the process.
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    pub(crate) fn start() -> Watch {
        let seed = Arc::new(AtomicU64::new(IDLE));
        let watched = Arc::clone(&seed);
        std::thread::spawn(move || {
            let (mut last, mut since) = (IDLE, now());
            loop {
                std::thread::sleep(LOOK);
                let seed = watched.load(Ordering::Relaxed);
                if seed != last {
                    (last, since) = (seed, now());
                } else if seed != IDLE && since.elapsed() > PATIENCE {
                    crate::say(&format!("seed {seed} is not read within {PATIENCE:?}"));
                    std::process::exit(3);
                }
            }
        });
        Watch { seed }
    }

    pub(crate) fn begin(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.seed.store(IDLE, Ordering::Relaxed);
    }
}
