//! ElasticJob's decisions as pure code: no clock, no randomness, no socket, no file, no thread, no global.
//!
//! In reading order: [`path`] names the registry's nodes and [`tree`] its operations; [`query`] is how they are read, and [`job_state`]
//! what of one job decides; [`machine`] is the life of one job on one instance, from which everything else is called: [`cron`] for
//! when, [`shard`] for who, [`wire`] for the exact texts that Java reads and writes, [`config`] for what a user asked for.
//! [`report`] has the nodes of every item too, and is for people; so is [`due_ledger`], which judges the past from what was recorded.
//! [`limits`] holds every bound.

pub mod config;
pub mod cron;
pub mod due_ledger;
pub mod job_state;
pub mod latch;
pub mod limits;
pub mod machine;
pub mod path;
pub mod query;
pub mod ranges;
pub mod report;
pub mod shard;
pub mod time;
pub mod tree;
pub mod wire;
