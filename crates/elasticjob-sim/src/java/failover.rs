//! Takeover, as Java does it: one item at a time, under the latch, and only while nothing runs here.

use super::client::Client;

impl Client {
    /// Takes one of the requested items, and runs it by an extra execution.
    pub(super) async fn failover_if_necessary(&self) {
        if !self.needs_failover().await {
            return;
        }
        let latch = self.latch(&self.path.failover_latch()).await;
        if !self.state(|s| s.is_shut_down) && self.needs_failover().await {
            let first = self.children(&self.path.failover_items()).await.into_iter().next();
            if let Some(item) = first.and_then(|name| name.parse::<u32>().ok()) {
                let id = self.id();
                self.persist_ephemeral(&self.path.item_failover(item), &id).await;
                self.persist(&self.path.item_failovering(item), &id).await;
                self.remove_if_existed(&self.path.failover_item(item)).await;
                self.say(format!("takes item {item} over"));
                self.state(|s| s.extra += 1);
            }
        }
        self.leave_latch(latch);
    }

    async fn needs_failover(&self) -> bool {
        !self.children(&self.path.failover_items()).await.is_empty() && !self.state(|s| s.running)
    }

    /// The items that we have taken over and not run.
    pub(super) async fn taken_items(&self) -> Vec<u32> {
        let id = self.id();
        let mut taken = Vec::new();
        for item in self.items_with_nodes().await {
            if self.node(&self.path.item_failover(item)).await.as_deref() == Some(id.as_str()) {
                taken.push(item);
            }
        }
        taken
    }

    /// An instance vanished.
    pub(super) async fn crashed(&self, dead: &str) {
        let items = self.items_with_nodes().await;
        let mut failovering = Vec::new();
        for item in &items {
            if self.node(&self.path.item_failovering(*item)).await.as_deref() == Some(dead) {
                failovering.push(*item);
            }
        }
        if !failovering.is_empty() {
            for item in failovering {
                self.ask_to_take(item).await;
                self.failover_if_necessary().await;
            }
            return;
        }
        let ip = dead.split("@-@").next().unwrap_or_default().to_owned();
        if !self.is_enabled(&ip).await {
            return; // its marks stay
        }
        for item in items {
            let ran = self.exists(&self.path.item_running(item)).await;
            if ran && self.get(&self.path.item_owner(item)).await.as_deref() == Some(dead) {
                if !self.exists(&self.path.item_failover(item)).await {
                    self.ask_to_take(item).await;
                }
                self.failover_if_necessary().await;
            }
        }
    }

    /// Registered, and alone: this instance owns the interrupted runs of the others.
    pub(super) async fn alone_after_a_crash(&self) {
        let available = self.available_instances().await;
        if available != [self.id()] {
            return;
        }
        let gone = |id: &Option<String>| id.as_ref().is_some_and(|id| !available.contains(id));
        for item in self.items_with_nodes().await {
            if gone(&self.node(&self.path.item_failovering(item)).await) {
                self.create_if_needed(&self.path.failover_item(item)).await;
                self.remove_if_existed(&self.path.item_failovering(item)).await;
                self.remove_if_existed(&self.path.item_running(item)).await;
            } else if gone(&self.node(&self.path.item_running(item)).await) {
                if !self.exists(&self.path.item_failover(item)).await {
                    self.ask_to_take(item).await;
                }
                self.remove_if_existed(&self.path.item_running(item)).await;
            }
        }
        self.failover_if_necessary().await;
    }

    async fn ask_to_take(&self, item: u32) {
        self.create_if_needed(&self.path.failover_item(item)).await;
        self.remove_if_existed(&self.path.item_running(item)).await;
    }
}
