//! ElasticJob: scheduled jobs on many machines without a central scheduler. A job is cut into items, its instances elect a
//! leader through a registry, the leader spreads the items, each instance runs its own, and when one dies the others take
//! over. Java instances of Apache ShardingSphere ElasticJob can be part of the same job.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! use elasticjob::ScheduleJob;
//!
//! let registry = elasticjob::registry::connect("memory:").await?;
//! let (sender, mut runs) = tokio::sync::mpsc::unbounded_channel();
//! let job = ScheduleJob::new("hello", 2)
//!     .cron("* * * * * ?")
//!     .item_parameters("0=Beijing,1=Shanghai")
//!     .simple(move |context| {
//!         let sender = sender.clone();
//!         async move {
//!             sender.send(format!("{} {:?}", context.item(), context.parameter()))?;
//!             Ok(())
//!         }
//!     })
//!     .start(&registry)
//!     .await?;
//! let mut two = [runs.recv().await.unwrap(), runs.recv().await.unwrap()];
//! two.sort();
//! assert_eq!(two, [r#"0 Some("Beijing")"#, r#"1 Some("Shanghai")"#]);
//! job.stop().await;
//! # Ok::<(), elasticjob::Error>(()) }).unwrap();
//! ```

mod bootstrap;
mod clock;
mod committer;
mod connection;
mod dump_service;
mod error;
mod error_handler;
mod execute;
mod gather;
mod identity;
mod latch;
mod listener;
mod metrics;
mod mirror;
mod operations;
mod plugins;
mod printable;
mod props;
pub mod trace;
mod web;
mod worker;

pub use bootstrap::{Job, JobHandle, OneOffJob, STOP_GRACE, ScheduleJob};
pub use dump_service::DumpService;
pub use elasticjob_core::config::{ConfigError, JobConfig};
pub use elasticjob_core::cron::{Cron, CronError};
pub use elasticjob_core::machine::StopReason;
pub use elasticjob_core::picture::{
    Check, CheckName, Explained, JobBrief, JobStatus, ServerBrief, ShardInfo, ShardStatus, Verdict,
};
pub use elasticjob_core::shard::{Assignment, ShardingStrategy};
pub use elasticjob_core::time::Timestamp;
pub use elasticjob_core::wire::{Difference, JobDocument, Overwrite};
pub use error::Error;
pub use error_handler::{ErrorHandler, Failure};
pub use execute::{
    BlockingJob, Cancelled, Context, DataflowJob, Http, ItemExecutor, JobError, JobResult, JobType, SPANS, Script,
    SimpleJob, THREAD_POOLS, missing_programs, shell_warnings,
};
pub use identity::{NetworkPreference, server_ip};
pub use listener::{DistributeOnce, ListenedRun, Listener, OnceListener, TimeOuts};
pub use metrics::Health;
pub use operations::{
    Change, DUMP_ANSWER_MAX, History, HistoryEntry, HistoryQuery, ItemResult, OperationError, Operations, Pending,
    Scope, StoredConfig, TriggerRequest, Triggered, dump_from, history,
};
pub use plugins::Plugins;
#[doc(hidden)]
pub use printable::printable;
pub use props::PROPERTIES;
pub use trace::TraceSettings;
pub use worker::JobState;

/// Connecting to a registry.
pub mod registry {
    pub use crate::connection::{Connection, connect, connect_with};
    pub use elasticjob_registry::{Error, Link, Registry, RegistryUrl, attach, embedded, memory, zookeeper};
}

/// Looks a time zone up by its IANA name in the host's database; the host's own zone for `None`.
pub fn time_zone(name: Option<&str>) -> Option<jiff::tz::TimeZone> {
    clock::zone(name)
}

/// The pages of the documentation: their programs are compiled and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/jobs/simple.md")]
    struct Simple;
    #[doc = include_str!("../../../docs/jobs/dataflow.md")]
    struct Dataflow;
    #[doc = include_str!("../../../docs/jobs/custom.md")]
    struct JobTypes;
    #[doc = include_str!("../../../docs/error-handlers/custom.md")]
    struct ErrorHandlers;
    #[doc = include_str!("../../../docs/listeners/distribute-once.md")]
    struct DistributeOnce;
    #[doc = include_str!("../../../docs/listeners/custom.md")]
    struct Listeners;
    #[doc = include_str!("../../../docs/operations/library.md")]
    struct Operations;
}
