//! The start of a process, and the scheduler's only thread.

use std::time::Duration;

use elasticjob_core::cron::Cron;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::instance_yaml;

use super::client::Client;

/// The main thread: start, then one firing after the other.
pub(super) async fn main(client: Client) {
    client.until(|state| state.connected).await;
    client.start().await;
    client.state(|state| state.is_started = true);
    client.say(format!("started as {}", client.id()));
    client.fire().await;
}

impl Client {
    async fn start(&self) {
        let path = self.path.clone();
        let (id, ip) = (self.id(), self.ip());
        let document = self.state(|s| s.document.clone());
        if self.exists(&path.config()).await {
            let stored = self.config_direct().await;
            self.state(|s| {
                s.total = stored.sharding_total_count;
                s.cron = stored.cron.clone().unwrap_or_default();
            });
        } else {
            self.persist(&path.config(), &document.to_yaml()).await;
            self.persist(path.root(), "SCRIPT").await;
        }
        self.elect().await;
        // An operator's DISABLED is overwritten.
        let disabled = self.state(|s| s.document.disabled);
        self.persist(&path.server(&ip), if disabled { "DISABLED" } else { "ENABLED" }).await;
        self.persist_ephemeral(&path.instance(&id), &instance_yaml(&id, &ip)).await;
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let cron = Cron::parse(&self.state(|s| s.cron.clone())).ok()?;
        cron.next(after, &jiff::tz::TimeZone::UTC)
    }

    /// Quartz with one worker: a firing that is due while it works, or while the triggers are paused, is dropped, and
    /// counts as missed if the trigger has fired before.
    async fn fire(&self) {
        let mut next = self.next(self.now());
        let mut has_fired = false;
        loop {
            let far = self.now() + Duration::from_secs(3_600);
            let wait = if self.state(|s| s.paused || s.is_shut_down) { far } else { next.unwrap_or(far) };
            let paused = self.state(|s| s.paused);
            self.until_or(wait, |s| s.extra > 0 || s.is_rescheduled || s.stopping || s.paused != paused).await;
            if self.state(|s| s.stopping) {
                return self.leave().await;
            }
            if self.state(|s| std::mem::take(&mut s.is_rescheduled)) {
                next = self.next(self.now());
                has_fired = false;
                continue;
            }
            if self.state(|s| s.is_shut_down) {
                self.state(|s| s.extra = 0);
                continue;
            }
            if self.state(|s| s.extra > 0) {
                self.state(|s| {
                    s.extra -= 1;
                    s.is_busy = true;
                });
                self.execute(self.now()).await;
                self.state(|s| s.is_busy = false);
            } else if self.state(|s| s.paused) {
                continue;
            } else if next.is_some_and(|due| due <= self.now()) {
                let Some(due) = next else { continue };
                next = self.next(due);
                has_fired = true;
                self.state(|s| s.is_busy = true);
                self.execute(due).await;
                self.state(|s| s.is_busy = false);
            }
            // Firings that were due in the meantime are dropped.
            if !self.state(|s| s.paused) && next.is_some_and(|due| due < self.now()) {
                next = self.next(self.now());
                if has_fired {
                    self.mark_misfire().await;
                }
            }
        }
    }

    async fn mark_misfire(&self) {
        let total = u32::try_from(self.config().await.sharding_total_count).unwrap_or_default();
        for item in self.own_items(total).await {
            self.create_if_needed(&self.path.item_misfire(item)).await;
        }
    }

    async fn leave(&self) {
        let id = self.id();
        if self.is_leader().await {
            self.remove_if_existed(&self.path.leader_instance()).await;
        }
        self.remove_if_existed(&self.path.instance(&id)).await;
        self.exit();
    }

    async fn execute(&self, due: Timestamp) {
        let config = self.config().await;
        let items = self.items_to_run(config.failover).await;
        let config = self.config_direct().await;
        let mut free = Vec::new();
        for item in items {
            if !config.monitor_execution || !self.exists(&self.path.item_running(item)).await {
                free.push(item);
            }
        }
        self.run_items(&free, due).await;
        while self.config().await.misfire && self.has_misfired(&free).await {
            for item in &free {
                self.remove_if_existed(&self.path.item_misfire(*item)).await;
            }
            self.run_items(&free, due).await;
        }
        if self.config().await.failover {
            self.failover_if_necessary().await;
        }
    }

    async fn items_to_run(&self, failover: bool) -> Vec<u32> {
        if failover {
            let taken = self.taken_items().await;
            if !taken.is_empty() {
                return taken;
            }
        }
        self.reshard_if_necessary().await;
        let total = u32::try_from(self.config().await.sharding_total_count).unwrap_or_default();
        let mut items = Vec::new();
        for item in self.own_items(total).await {
            let elsewhere = failover && self.exists(&self.path.item_failover(item)).await;
            if !elsewhere && !self.exists(&self.path.item_disabled(item)).await {
                items.push(item);
            }
        }
        items
    }

    async fn has_misfired(&self, items: &[u32]) -> bool {
        if items.is_empty() || self.exists(&self.path.necessary()).await {
            return false;
        }
        for item in items {
            if self.exists(&self.path.item_misfire(*item)).await {
                return true;
            }
        }
        false
    }

    async fn run_items(&self, items: &[u32], due: Timestamp) {
        if items.is_empty() {
            return;
        }
        let config = self.config().await;
        let id = self.id();
        self.state(|s| s.running = true);
        for item in items.iter().filter(|_| config.monitor_execution) {
            let path = self.path.item_running(*item);
            if config.failover {
                self.persist(&path, &id).await;
            } else {
                self.persist_ephemeral(&path, &id).await;
            }
        }
        let run = self.state(|s| {
            s.runs += 1;
            s.runs
        });
        let mut ends = Vec::new();
        for item in items {
            ends.push((self.run(run, *item, due).await, *item));
        }
        ends.sort_unstable();
        for (end, item) in ends {
            self.sleep_until(end).await;
            self.ended(run, item);
        }
        self.state(|s| s.running = false);
        for item in items {
            if config.monitor_execution {
                self.remove_if_existed(&self.path.item_running(*item)).await;
            }
            if config.failover {
                self.remove_if_existed(&self.path.item_failover(*item)).await;
                self.remove_if_existed(&self.path.item_failovering(*item)).await;
            }
        }
    }
}
