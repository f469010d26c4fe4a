//! Java's listeners: one thread takes one event after the other; another one looks after the connection.

use elasticjob_core::path::Place;
use elasticjob_core::tree::Node;
use elasticjob_core::wire::{JobDocument, instance_yaml};

use super::client::Client;

/// A change that the cache has seen.
#[derive(Clone, Debug)]
pub(super) struct Event {
    path: String,
    kind: Kind,
    data: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Created,
    Changed,
    Deleted,
}

impl Event {
    pub(super) fn of(path: &str, old: Option<&Node>, new: Option<&Node>) -> Event {
        let kind = match (old, new) {
            (_, None) => Kind::Deleted,
            (None, Some(_)) => Kind::Created,
            (Some(_), Some(_)) => Kind::Changed,
        };
        let data = new.or(old).map(Node::text).unwrap_or_default();
        Event { path: path.to_owned(), kind, data }
    }
}

/// The notify thread.
pub(super) async fn listen(client: Client) {
    client.until(|state| state.is_started).await;
    loop {
        client.until(|state| !state.events.is_empty()).await;
        if let Some(event) = client.state(|state| state.events.pop_front()) {
            client.react(&event).await;
        }
    }
}

/// The connection listener.
pub(super) async fn connection(client: Client) {
    client.until(|state| state.is_started).await;
    loop {
        client.until(|state| state.reconnected.is_some()).await;
        client.state(|state| state.reconnected = None);
        if client.state(|state| state.is_shut_down) {
            continue;
        }
        let (id, ip) = (client.id(), client.ip());
        // A server node that is missing is written as DISABLED; a stale cache writes back what it holds.
        let enabled = client.is_enabled(&ip).await;
        client.persist(&client.path.server(&ip), if enabled { "ENABLED" } else { "DISABLED" }).await;
        client.persist_ephemeral(&client.path.instance(&id), &instance_yaml(&id, &ip)).await;
        // Marks of the own items go, also of those that are executing.
        let total = u32::try_from(client.config().await.sharding_total_count).unwrap_or_default();
        for item in client.own_items(total).await {
            client.remove_if_existed(&client.path.item_running(item)).await;
        }
        client.state(|state| state.paused = !state.connected);
        client.say("reconnected");
    }
}

impl Client {
    async fn react(&self, event: &Event) {
        let (id, ip) = (self.id(), self.ip());
        let path = self.path.clone();
        let place = path.place(&event.path);
        let shut_down = self.state(|s| s.is_shut_down);
        let own_server = place == Some(Place::Server(&ip));

        // L1, L2: election and abdication.
        if !shut_down {
            let missing = own_server && event.data != "DISABLED" && !self.exists(&path.leader_instance()).await;
            let vanished = place == Some(Place::Leader) && event.kind == Kind::Deleted;
            if missing || (vanished && self.is_available(&ip).await) {
                self.elect().await;
            }
        }
        if own_server && event.kind != Kind::Deleted && event.data == "DISABLED" && self.is_leader().await {
            self.remove_if_existed(&path.leader_instance()).await;
        }
        if place == Some(Place::Config) && event.kind != Kind::Deleted {
            self.config_changed(&event.data, shut_down).await;
        }
        // L4: instances and servers.
        let instances = matches!(place, Some(Place::Instance(_))) && event.kind != Kind::Changed;
        if !shut_down && (instances || matches!(place, Some(Place::Server(_)))) {
            let fixed = self.config().await.static_sharding && !self.children(&path.sharding()).await.is_empty();
            if !fixed {
                self.set_resharding_flag().await;
            }
        }
        // L5, L7: crashes.
        if let Some(Place::Instance(other)) = place
            && self.config().await.failover
        {
            if !shut_down && event.kind == Kind::Deleted && other != id {
                self.crashed(other).await;
            }
            if event.kind == Kind::Created && other == id {
                self.alone_after_a_crash().await;
            }
        }
        // L9: shut down by an operator, or gone with a session.
        if place == Some(Place::Instance(&id)) && event.kind == Kind::Deleted {
            let paused = self.state(|s| s.paused);
            if !shut_down && !paused && !self.exists(&path.instance(&id)).await {
                self.state(|s| s.is_shut_down = true);
                if self.get(&path.leader_instance()).await == Some(id.clone()) {
                    self.remove_if_existed(&path.leader_instance()).await;
                }
                self.say("shut down");
            }
        }
        // L10: a trigger.
        if place == Some(Place::Trigger(&id)) && event.kind == Kind::Created {
            self.remove_if_existed(&event.path).await;
            self.state(|s| {
                if !s.is_shut_down && !s.running {
                    s.extra += 1;
                }
            });
        }
    }

    /// L3, L6, L8, L11.
    async fn config_changed(&self, text: &str, shut_down: bool) {
        let Ok(document) = JobDocument::parse(text.as_bytes()) else { return };
        if self.state(|s| s.total != 0 && s.total != document.sharding_total_count) {
            self.set_resharding_flag().await;
            self.state(|s| s.total = document.sharding_total_count);
        }
        if !document.failover {
            for item in self.items_with_nodes().await {
                self.remove_if_existed(&self.path.item_failover(item)).await;
            }
        }
        if !document.monitor_execution {
            for item in 0..u32::try_from(document.sharding_total_count).unwrap_or_default() {
                self.remove_if_existed(&self.path.item_running(item)).await;
            }
        }
        let cron = document.cron.unwrap_or_default();
        if !shut_down && !cron.is_empty() && elasticjob_core::cron::Cron::parse(&cron).is_ok() {
            self.state(|s| {
                if s.cron != cron {
                    s.cron = cron;
                    s.is_rescheduled = true;
                }
            });
        }
    }
}
