//! The audit log.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Asked, Problem, Shared};
use crate::audit::{Entry, Outcome};
use crate::failure::Failure;
use crate::server::State;

/// Entries of an answer.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 10_000;

/// The entries to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only entries of this user.
    user: Option<String>,
    /// Only entries whose user, address, act, reason or change contains this text; upper and lower case make no difference.
    text: Option<String>,
    /// `done`, `failed` or `refused`; all by default.
    result: Option<Outcome>,
    /// Number of entries to skip.
    offset: Option<usize>,
    /// Maximum number of entries, 1 to 10000; 100 by default.
    limit: Option<usize>,
}

/// Entries of the audit log, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Audit {
    /// The number of entries that match.
    total: usize,
    /// The entries.
    entries: Vec<Entry>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/audit", get(list))
}

/// Lists entries of the audit log, the latest first. For administrators.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(Wanted),
    responses((status = 200, body = Audit), (status = 400, body = Problem), (status = 403, body = Problem)))]
pub(super) async fn list(state: Shared, Asked(wanted): Asked<Wanted>) -> Result<Json<Audit>, Problem> {
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Failure::invalid(format!("limit: {limit} is not a number from 1 to {LIMIT_MAX}")).into());
    }
    let user = wanted.user.filter(|user| !user.is_empty());
    let text = wanted.text.unwrap_or_default().to_lowercase();
    let is_wanted = move |entry: &Entry| {
        let texts =
            [Some(&entry.user), Some(&entry.from), Some(&entry.act), entry.reason.as_ref(), entry.change.as_ref()];
        user.as_ref().is_none_or(|user| *user == entry.user)
            && wanted.result.is_none_or(|result| result == entry.result)
            && (text.is_empty() || texts.into_iter().flatten().any(|found| found.to_lowercase().contains(&text)))
    };
    let (audit, offset) = (Arc::clone(&state.audit), wanted.offset.unwrap_or_default());
    let reading = tokio::task::spawn_blocking(move || audit.read(is_wanted, offset, limit));
    let (entries, total) = reading.await.map_err(|error| Failure::failed(error.to_string()))??;
    Ok(Json(Audit { total, entries }))
}
