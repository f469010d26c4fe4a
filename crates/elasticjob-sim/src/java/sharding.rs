//! Election and resharding, as Java does them.

use elasticjob_core::path::parse_item;
use elasticjob_core::shard;
use elasticjob_core::tree::Op;

use super::client::{Client, POLL};

impl Client {
    pub(super) async fn is_leader(&self) -> bool {
        let shut_down = self.state(|s| s.is_shut_down);
        !shut_down && self.get(&self.path.leader_instance()).await == Some(self.id())
    }

    /// While holding the latch: an instance that finds no leader becomes it. Nodes that were created without the latch are replaced.
    pub(super) async fn elect(&self) {
        let latch = self.latch(&self.path.election_latch()).await;
        if !self.exists(&self.path.leader_instance()).await {
            let id = self.id();
            self.persist_ephemeral(&self.path.leader_instance(), &id).await;
            self.say("elected leader");
        }
        self.leave_latch(latch);
    }

    async fn has_available_server(&self) -> bool {
        for ip in self.children(&self.path.servers()).await {
            if self.is_available(&ip).await {
                return true;
            }
        }
        false
    }

    pub(super) async fn is_leader_until_block(&self) -> bool {
        while !self.exists(&self.path.leader_instance()).await && self.has_available_server().await {
            self.sleep(POLL).await;
            let ip = self.ip();
            if !self.state(|s| s.is_shut_down) && self.is_available(&ip).await {
                self.elect().await;
            }
        }
        self.is_leader().await
    }

    pub(super) async fn set_resharding_flag(&self) {
        if self.is_leader_until_block().await {
            self.create_if_needed(&self.path.necessary()).await;
        }
    }

    /// The work at the start of an execution.
    pub(super) async fn reshard_if_necessary(&self) {
        let available = self.available_instances().await;
        if available.is_empty() || !self.exists(&self.path.necessary()).await {
            return;
        }
        if !self.is_leader_until_block().await {
            while !self.is_leader().await
                && (self.exists(&self.path.necessary()).await || self.exists(&self.path.processing()).await)
            {
                self.sleep(POLL).await;
            }
            return;
        }
        if self.config().await.monitor_execution {
            self.wait_for_running_items().await;
        }
        let config = self.config_direct().await;
        let total = u32::try_from(config.sharding_total_count).unwrap_or_default();
        self.persist_ephemeral(&self.path.processing(), "").await;
        for item in 0..total {
            self.remove_if_existed(&self.path.item_owner(item)).await;
            self.create_if_needed(&self.path.item(item)).await;
        }
        let count = u32::try_from(self.children(&self.path.sharding()).await.len()).unwrap_or_default();
        for item in total..count {
            self.remove_if_existed(&self.path.item(item)).await;
        }
        let assignment = shard::built_in()
            .first()
            .map(|strategy| strategy.assign(&available, self.path.job(), total, self.now()))
            .unwrap_or_default();
        let mut ops = vec![Op::exists("/")];
        for (id, items) in &assignment {
            ops.extend(items.iter().map(|item| Op::create(self.path.item_owner(*item), id.as_str())));
        }
        ops.push(Op::delete(self.path.necessary()));
        ops.push(Op::delete(self.path.processing()));
        // A transaction that fails is ignored; the flags stay, and the next execution tries again.
        if self.commit(ops).await {
            self.say(format!("resharded to {assignment:?}"));
        }
    }

    async fn wait_for_running_items(&self) {
        loop {
            let total = u32::try_from(self.config().await.sharding_total_count).unwrap_or_default();
            let mut any = false;
            for item in 0..total {
                any = any || self.exists(&self.path.item_running(item)).await;
            }
            if !any {
                return;
            }
            self.sleep(POLL).await;
        }
    }

    /// Our items, as the cache has them: it may still name the owner before.
    pub(super) async fn own_items(&self, total: u32) -> Vec<u32> {
        let (id, ip) = (self.id(), self.ip());
        let mut items = Vec::new();
        if !self.is_available(&ip).await {
            return items;
        }
        for item in 0..total {
            if self.get(&self.path.item_owner(item)).await.as_deref() == Some(id.as_str()) {
                items.push(item);
            }
        }
        items
    }

    /// All items that have a node.
    pub(super) async fn items_with_nodes(&self) -> Vec<u32> {
        let mut items: Vec<u32> =
            self.children(&self.path.sharding()).await.iter().filter_map(|name| parse_item(name)).collect();
        items.sort_unstable();
        items
    }
}
