#![doc = include_str!("../README.md")]
//!
//! # Cargo features
//!
//! All features are additive. The default set is `zookeeper` and `embedded`.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `zookeeper` | the registry in a ZooKeeper ensemble |
//! | `embedded` | the registry in one file |
//! | `rdb-sqlite`, `rdb-postgres`, `rdb-mysql` | the event trace in a database of that kind, and its history |
//! | `http` | the job type `HTTP` |
//! | `mail` | the error handler `EMAIL` |
//! | `webhook` | the error handlers `WECHAT` and `DINGTALK` |
//! | `otel` | runs as OpenTelemetry spans (`telemetry`) |
//! | `full` | all of these |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bootstrap;
mod built_in;
mod clock;
mod commands;
mod committer;
mod connection;
mod contract;
mod dump_service;
mod error;
mod error_handler;
mod execute;
mod gather;
mod handle;
mod identity;
mod latch;
mod listener;
mod metrics;
mod operations;
mod places;
mod plugins;
mod printable;
mod settings;
mod signal;
#[cfg(feature = "otel")]
pub mod telemetry;
pub mod testing;
pub mod trace;
mod watches;
#[cfg(any(feature = "http", feature = "webhook"))]
mod web;
mod worker;

use std::time::Duration;

pub use bootstrap::{Job, OneOffJob, ScheduleJob};
pub use commands::Commands;
pub use contract::{
    BlockingJob, Cancelled, Context, DataflowJob, ErrorHandler, Failure, JobError, JobResult, JobType, ListenedRun,
    Listener, Messenger, OnceListener, OnceTimeouts, Props, SimpleJob,
};
pub use dump_service::DumpService;
pub use elasticjob_core::config::{ConfigError, JobConfig};
pub use elasticjob_core::cron::{Cron, CronError};
pub use elasticjob_core::machine::{JobEvent, Source, StopReason};
pub use elasticjob_core::report::{
    Check, CheckName, Explained, JobBrief, JobStatus, ServerBrief, ShardInfo, ShardStatus, Verdict,
};
pub use elasticjob_core::shard::{Assignment, ShardingStrategy};
pub use elasticjob_core::time::Timestamp;
pub use elasticjob_core::wire::{Difference, DocumentError, JobDocument, Overwrite};
pub use error::Error;
pub use execute::SPANS;
pub use handle::{JobEvents, JobHandle, Trigger};
pub use identity::NetworkPreference;
pub use listener::DistributeOnce;
pub use metrics::Health;
pub use operations::{
    Change, ItemOutcome, ItemResult, OperationError, Operations, Pending, Scope, StoredConfig, TriggerRequest,
    Triggered,
};
#[cfg(feature = "rdb")]
pub use operations::{History, HistoryEntry, HistoryQuery, history};
pub use plugins::Plugins;
pub use settings::{HttpRequest, Retry, ThreadPool};
pub use signal::termination;
pub use trace::TraceSettings;
pub use worker::JobState;

/// The grace of [`JobHandle::stop`] for running items.
pub const STOP_GRACE: Duration = Duration::from_secs(30);

/// Connections to a registry.
pub mod registry {
    pub use crate::connection::{Connection, ConnectionBuilder, connect};
    #[cfg(feature = "embedded")]
    pub use elasticjob_registry::embedded;
    #[cfg(feature = "zookeeper")]
    pub use elasticjob_registry::zookeeper;
    pub use elasticjob_registry::{Error, Link, Registry, RegistryUrl, attach, memory};
}

/// For the agent: not part of the stable interface.
#[doc(hidden)]
pub mod agent {
    pub use crate::contract::props::PROPERTIES;
    pub use crate::execute::{missing_programs, shell_warnings, withhold};
    pub use crate::identity::server_ip;
    #[cfg(feature = "rdb")]
    pub use crate::operations::stored_source;
    pub use crate::operations::{DUMP_ANSWER_MAX, dump_from};
    pub use crate::places::Places;
    pub use crate::plugins::THREAD_POOLS;
    pub use crate::printable::printable;

    /// Returns a configuration with masked secrets.
    pub fn masked_config(text: &str) -> String {
        use elasticjob_core::wire::{JobDocument, is_secret, masked};
        let by_line = |text: &str| -> String { text.lines().map(|line| format!("{}\n", masked(line))).collect() };
        let Ok(mut document) = JobDocument::parse(text.as_bytes()) else { return by_line(text) };
        // A secret may have several lines, or characters that end one elsewhere.
        for (key, value) in &mut document.props {
            *value = if is_secret(key) { "***".to_owned() } else { masked(value) };
        }
        let texts = [&mut document.job_parameter, &mut document.sharding_item_parameters, &mut document.description];
        for text in texts.into_iter().flatten() {
            *text = masked(text);
        }
        document.kept.iter_mut().for_each(|(_, text)| *text = by_line(text));
        document.to_yaml()
    }

    /// Puts the stored secrets into a configuration that came from [`masked_config`] and was edited. Returns the faults: values with a mask
    /// that represents no stored secret.
    pub fn unmasked(
        edited: &mut elasticjob_core::wire::JobDocument,
        stored: &elasticjob_core::wire::JobDocument,
    ) -> Vec<String> {
        use elasticjob_core::wire::{JobDocument, is_secret, masked};
        const MASK: &str = "***";
        let mut faults = Vec::new();
        let mut restore = |key: &str, value: &mut String, stored: Option<&String>, shown: Option<String>| match stored {
            Some(stored) if shown.as_ref() == Some(value) => value.clone_from(stored),
            Some(stored) if value.contains(MASK) && shown.as_ref() != Some(stored) => {
                faults.push(format!(
                    "key `{key}`: `{MASK}` represents a secret; write the secret, or leave the whole value as it was"
                ));
            }
            None if value == MASK => {
                faults.push(format!("key `{key}`: `{MASK}` represents a secret, and none is stored"))
            }
            Some(_) | None => {}
        };
        for (key, value) in &mut edited.props {
            let before = stored.props.get(key);
            let shown = before.map(|text| if is_secret(key) { MASK.to_owned() } else { masked(text) });
            restore(&format!("props.{key}"), value, before, shown);
        }
        let texts = |document: &JobDocument| {
            [&document.job_parameter, &document.sharding_item_parameters, &document.description].map(Clone::clone)
        };
        let before = texts(stored);
        let keys = ["jobParameter", "shardingItemParameters", "description"];
        let values = [&mut edited.job_parameter, &mut edited.sharding_item_parameters, &mut edited.description];
        for ((key, value), before) in keys.into_iter().zip(values).zip(&before) {
            if let Some(value) = value {
                restore(key, value, before.as_ref(), before.as_ref().map(|text| masked(text)));
            }
        }
        let by_line = |text: &str| -> String { text.lines().map(|line| format!("{}\n", masked(line))).collect() };
        for (key, value) in &mut edited.kept {
            let before = stored.kept.iter().find(|(known, _)| known == key).map(|(_, text)| text);
            if let Some(before) = before
                && by_line(before).trim_end() == value.trim_end()
            {
                value.clone_from(before);
            } else if value.contains(MASK) {
                faults.push(format!("key `{key}`: `{MASK}` represents a secret; leave the whole value as it was"));
            }
        }
        faults
    }

    /// Looks up a time zone as configurations name it: `GMT+8:00`, or an IANA name. `None` names the host's own zone.
    pub fn java_zone(name: Option<&str>) -> Option<jiff::tz::TimeZone> {
        use elasticjob_core::cron::{ZoneText, parse_zone};
        match parse_zone(name.unwrap_or_default()).ok()? {
            ZoneText::Host => crate::clock::zone(None),
            ZoneText::Fixed(zone) => Some(zone),
            ZoneText::Named(name) => crate::clock::zone(Some(&name)),
        }
    }

    /// Looks up a time zone by its IANA name in the host's database. `None` names the host's own zone.
    pub fn time_zone(name: Option<&str>) -> Option<jiff::tz::TimeZone> {
        crate::clock::zone(name)
    }
}

/// The pages of the documentation: their programs are compiled and run.
#[cfg(all(doctest, feature = "full"))]
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
    #[doc = include_str!("../../../docs/jobs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/operations/features.md")]
    struct Features;
}
