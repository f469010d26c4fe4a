//! The web console: lists, configurations, operations and history over HTTP, for registries of every kind.
//!
//! `compat/` is the API of ElasticJob-UI 3.x, so that its front end and the scripts that were written for it work against this
//! server. [`COMPAT.md`](https://github.com/apache/shardingsphere-elasticjob-ui) of this project lists the differences.

mod centres;
mod clock;
mod compat;
mod configurations;
mod failure;
mod fields;
mod server;
mod sessions;
mod settings;
mod stores;
mod view;

pub use server::{Console, ConsoleError};
pub use settings::{Account, Role, Settings, SettingsFault, Source};
