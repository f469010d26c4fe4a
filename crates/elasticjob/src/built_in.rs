//! The built-in plug-ins.

use std::sync::Arc;

use elasticjob_core::shard;

use crate::contract::Registered;
use crate::execute::script::Script;
use crate::plugins::Plugins;
use crate::{error_handler, listener};

impl Default for Plugins {
    fn default() -> Plugins {
        #[cfg(any(feature = "http", feature = "webhook"))]
        let clients = crate::web::Clients::default();
        Plugins {
            job_types: vec![
                Arc::new(Registered(Arc::new(Script))),
                #[cfg(feature = "http")]
                Arc::new(Registered(Arc::new(crate::execute::http::Http::new(&clients)))),
            ],
            strategies: shard::built_in(),
            error_handlers: error_handler::built_in(
                #[cfg(feature = "webhook")]
                &clients,
            ),
            listeners: listener::built_in(),
            trace_storages: vec![
                #[cfg(feature = "rdb")]
                Arc::new(crate::trace::rdb::Rdb),
            ],
        }
    }
}
