//! ElasticJob's decisions as pure code: no clock, no randomness, no socket, no file, no thread, no global.
//!
//! In reading order: [`path`] names the registry's nodes and [`tree`] its operations; [`view`] is the picture of one job
//! that decides; [`machine`] is the life of one job on one instance, from which everything else is called: [`cron`] for
//! when, [`shard`] for who, [`wire`] for the exact texts that Java reads and writes, [`config`] for what a user asked for.
//! [`picture`] is what operators are told.
//! [`limits`] holds every bound.

pub mod config;
pub mod cron;
pub mod latch;
pub mod limits;
pub mod machine;
pub mod path;
pub mod picture;
pub mod ranges;
pub mod shard;
pub mod time;
pub mod tree;
pub mod view;
pub mod wire;
