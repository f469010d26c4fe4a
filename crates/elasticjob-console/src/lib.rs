//! The web console: lists, configurations, operations and history over HTTP, for registries of every kind.
//!
//! `compat/` is the API of ElasticJob-UI 3.x, so that its front end and the scripts that were written for it work against this
//! server; `COMPAT.md` lists the differences. `v1/` is the console's own API. Both decide from the same `view`s and `Operations`.

mod access;
mod audit;
mod centres;
mod clock;
mod compat;
mod configurations;
mod failure;
mod fields;
mod pages;
mod pictures;
mod server;
mod sessions;
mod settings;
mod stores;
mod v1;
mod view;

pub use server::{Console, ConsoleError};
pub use settings::{Account, Own, Role, Settings, SettingsFault, Source};
