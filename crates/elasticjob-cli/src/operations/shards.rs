//! `elasticjob shard …`.

use elasticjob::{Operations, ShardInfo};
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::args::{Items, Output, ShardOperation};
use crate::output::{self, Listing};

pub(super) async fn run(operations: &Operations, operation: &ShardOperation, format: Output) -> Result<(), Failure> {
    match operation {
        ShardOperation::List { name } => output::data(&listing(operations.items(name).await?).text(format))?,
        ShardOperation::Disable(Items { name, items }) => operations.disable_items(name, items).await?,
        ShardOperation::Enable(Items { name, items }) => operations.enable_items(name, items).await?,
    }
    Ok(())
}

/// Java's `ShardingInfo`; what it does not have is left out.
pub(super) fn listing(items: Vec<ShardInfo>) -> Listing {
    let mut listing = Listing::new(&["ITEM", "STATUS", "SERVER", "INSTANCE", "FAILOVER"]);
    for item in items {
        let mut object = Map::new();
        object.insert("item".into(), json!(item.item));
        if let Some(ip) = &item.server_ip {
            object.insert("serverIp".into(), json!(ip));
        }
        if let Some(id) = &item.instance_id {
            object.insert("instanceId".into(), json!(id));
        }
        object.insert("status".into(), json!(item.status.word()));
        object.insert("failover".into(), json!(item.failover));
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let failover = if item.failover { "yes" } else { "-" }.to_owned();
        let status = item.status.word().to_owned();
        let row = vec![item.item.to_string(), status, or_none(item.server_ip), or_none(item.instance_id), failover];
        listing.push(row, Value::Object(object));
    }
    listing
}
