//! Java's texts, exactly: the stored configuration, instance nodes, task ids, the context as JSON; and our additions,
//! the ledger and the claim of an item. Nothing else of the project knows how they look.

mod context;
pub(crate) mod emit;
mod instance;
mod job_document;
mod ledger;
mod overwrite;
mod task_id;
mod tracing_element;
pub mod yaml;

pub use context::{ContextFields, context_json, json_text};
pub use instance::{InstanceNode, instance_text, instance_yaml, is_server_ip, parse_instance};
pub use job_document::{DocumentError, JobDocument};
pub use ledger::{Claim, Ledger};
pub use overwrite::{Difference, Differences, Overwrite, is_secret, masked};
pub use task_id::task_id;
pub use tracing_element::TracingElement;
