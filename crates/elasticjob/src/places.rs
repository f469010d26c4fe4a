//! The connections of a small service: a bounded number, of which the oldest one makes room for a new one, so that clients that say
//! nothing keep no other client out.

use std::collections::VecDeque;

use tokio::task::AbortHandle;

/// The tasks of open connections, the oldest first.
#[derive(Debug)]
pub struct Places {
    open: VecDeque<AbortHandle>,
    most: usize,
}

impl Places {
    /// Creates places for that number of connections.
    pub fn new(most: usize) -> Places {
        Places { open: VecDeque::new(), most }
    }

    /// Takes the task of a new connection; ends that of the oldest one if there are too many.
    pub fn take(&mut self, task: AbortHandle) {
        self.open.retain(|task| !task.is_finished());
        if self.open.len() >= self.most
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
        }
        self.open.push_back(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_connection_makes_room_and_finished_ones_take_none() {
        let mut places = Places::new(2);
        let silent = || tokio::spawn(std::future::pending::<()>());
        let (first, second) = (silent(), silent());
        places.take(first.abort_handle());
        places.take(second.abort_handle());
        let quick = tokio::spawn(async {});
        let handle = quick.abort_handle();
        quick.await.expect("it ends");
        places.take(handle);
        assert!(first.await.expect_err("it was ended").is_cancelled());
        let third = silent();
        places.take(third.abort_handle());
        assert!(!second.is_finished() && !third.is_finished());
    }
}
