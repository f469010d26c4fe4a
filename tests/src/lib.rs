//! Starts what the tests need: ZooKeeper servers, agents of ours, Java instances, links that can be cut. Each has its
//! data in a temporary folder and free ports, and ends with its value.

mod database;
mod evidence;
mod http;
mod journal;
mod process;
mod proxy;
pub mod rig;
mod server;
mod tap;
mod transactions;
mod wait;
mod zookeeper;

pub use database::{Database, PASSWORD, USER, is_root, sqlite_rows};
pub use evidence::{Life, Living, Transactions, field};
pub use http::{HttpAnswer, http};
pub use journal::{Journal, Run};
pub use process::{Process, agent, agent_with_clock, agent_with_clock_file, command, java, java_output, output};
pub use proxy::Proxy;
pub use server::{Server, Speech};
pub use tap::{Moment, Tap};
pub use wait::{eventually, logged, pause, wall_clock_millis};
pub use zookeeper::{Ensemble, ZooKeeper, free_port};
