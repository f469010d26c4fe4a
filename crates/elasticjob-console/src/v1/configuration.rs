//! The stored configuration of a job: read, checked while it is edited, merged with the change of another user, written if it did not
//! change in the meantime.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use elasticjob::agent::{masked_config, unmasked};
use elasticjob::{Change, JobDocument, OperationError, Operations, Overwrite, StoredConfig, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::jobs::on;
use super::{Asked, Centre, Named, Problem, Sent, Shared};
use crate::server::State;
use crate::{audit, clock};

/// Next firings of a preview.
const FIRES: usize = 10;

/// The stored configuration.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stored {
    /// The text: YAML. Secrets are `***`; sent back so, they stay as they are stored.
    yaml: String,
    /// Tells this state of the configuration from every other one; the header `ETag` has it too, in quotes.
    etag: String,
}

/// A configuration that is edited.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document: the fields are read leniently")]
pub(crate) struct Edited {
    /// The text: YAML.
    yaml: String,
}

/// A configuration that was edited while another user changed the stored one.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document: the fields are read leniently")]
pub(crate) struct Merging {
    /// The text with the own changes.
    yaml: String,
    /// The text from which they were made.
    base: String,
}

/// What a change would do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Checked {
    /// What is invalid; nothing can be written then.
    faults: Vec<String>,
    /// What only the instances can judge.
    warnings: Vec<String>,
    /// The keys that would change.
    differences: Vec<KeyChange>,
    /// The next firings, in milliseconds since 1970; empty if the expression is invalid or there is none.
    fires: Vec<i64>,
    /// Whether the change disables (`true`) or enables (`false`) the job on all servers; null if it does neither.
    disables: Option<bool>,
    /// The stored configuration from which the differences were made.
    etag: String,
}

impl Checked {
    /// The change in a sentence, for the audit log.
    fn summary(&self) -> String {
        let value = |text: &str| if text.is_empty() { "the default".to_owned() } else { format!("`{text}`") };
        let keys =
            self.differences.iter().map(|one| format!("{}: {} → {}", one.key, value(&one.before), value(&one.after)));
        let disables = self.disables.map(|disables| format!("disabled: {disables}"));
        keys.chain(disables).collect::<Vec<_>>().join("; ")
    }
}

/// A key that would change. Secrets are masked, and long values are cut.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyChange {
    /// The key, as `props.script.command.line`.
    key: String,
    /// The stored value; empty for the default.
    before: String,
    /// The new value; empty for the default.
    after: String,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/jobs/{job}/config", get(show).put(save))
        .route("/jobs/{job}/config/check", post(check))
        .route("/jobs/{job}/config/merge", post(merge))
}

/// Returns the stored configuration.
#[utoipa::path(get, path = "/api/v1/jobs/{job}/config", tag = "configuration", params(("job" = String, Path), Centre),
    responses((status = 200, body = Stored), (status = 404, body = Problem)))]
pub(super) async fn show(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
) -> Result<Response, Problem> {
    let stored = on(&state, &centre, async |all| all.config(&job).await).await?;
    Ok(answer(&stored))
}

/// Checks a configuration against the stored one. Nothing is written.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/config/check", tag = "configuration", params(("job" = String, Path), Centre),
    request_body = Edited, responses((status = 200, body = Checked), (status = 404, body = Problem)))]
pub(super) async fn check(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
    Sent(fields): Sent,
) -> Result<Json<Checked>, Problem> {
    let yaml = fields.required("yaml")?;
    let checked = on(&state, &centre, async |all| {
        let stored = all.config(&job).await?;
        let faults = |faults: Vec<String>| Checked {
            faults,
            warnings: Vec::new(),
            differences: Vec::new(),
            fires: Vec::new(),
            disables: None,
            etag: stored.etag(),
        };
        let document = match read(&yaml, &job, &stored) {
            Ok(document) => document,
            Err(found) => return Ok(faults(found)),
        };
        match all.plan_config(document.clone()).await {
            Ok(change) => Ok(of(&change, &document)),
            Err(error) => Ok(faults(texts(error)?)),
        }
    });
    Ok(Json(checked.await?))
}

/// Writes a configuration, if the stored one is still that of the header `If-Match`.
#[utoipa::path(put, path = "/api/v1/jobs/{job}/config", tag = "configuration",
    params(("job" = String, Path), ("If-Match" = String, Header, description = "The ETag of the configuration that was edited"), Centre),
    request_body = Edited,
    responses((status = 200, body = Stored), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 412, body = Problem), (status = 428, body = Problem)))]
pub(super) async fn save(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
    headers: HeaderMap,
    Sent(fields): Sent,
) -> Result<Response, Problem> {
    let wanted =
        headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok()).map(|value| value.trim_matches('"'));
    let Some(wanted) = wanted else {
        let text = "the header If-Match is missing: expected the ETag of the configuration that was edited";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, text));
    };
    let yaml = fields.required("yaml")?;
    let conflict = || {
        let text = format!("the stored configuration of job `{job}` changed in the meantime; nothing was written");
        Problem::new(StatusCode::PRECONDITION_FAILED, text)
    };
    let written = on(&state, &centre, async |all| {
        let stored = all.config(&job).await?;
        if stored.etag() != wanted {
            return Ok(Err(conflict()));
        }
        let document = match read(&yaml, &job, &stored) {
            Ok(document) => document,
            Err(faults) => return Ok(Err(Problem::new(StatusCode::BAD_REQUEST, faults.join("; ")))),
        };
        let change = all.plan_config(document.clone()).await?;
        if change.before != stored {
            return Ok(Err(conflict()));
        }
        let summary = of(&change, &document).summary();
        match all.apply(&change).await {
            Ok(()) => Ok(Ok((all.config(&job).await?, summary))),
            Err(OperationError::Conflict { .. }) => Ok(Err(conflict())),
            Err(error) => Err(error),
        }
    });
    let written = written.await;
    state.pictures.forget(&state.centres, centre.name()).await;
    let (stored, summary) = written??;
    let mut response = answer(&stored);
    response.extensions_mut().insert(audit::Change(summary));
    Ok(response)
}

/// Merges an edited configuration with the stored one: keys that were edited have the edited value, all others the stored one. Nothing is
/// written.
#[utoipa::path(post, path = "/api/v1/jobs/{job}/config/merge", tag = "configuration", params(("job" = String, Path), Centre),
    request_body = Merging, responses((status = 200, body = Stored), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn merge(
    state: Shared,
    Named(job): Named<String>,
    Asked(centre): Asked<Centre>,
    Sent(fields): Sent,
) -> Result<Response, Problem> {
    let (yaml, base) = (fields.required("yaml")?, fields.required("base")?);
    let stored = on(&state, &centre, async |all| all.config(&job).await).await?;
    let invalid = |faults: Vec<String>| Problem::new(StatusCode::BAD_REQUEST, faults.join("; "));
    let theirs = JobDocument::parse(stored.text.as_bytes()).map_err(|error| invalid(vec![error.to_string()]))?;
    let mine = read(&yaml, &job, &stored).map_err(invalid)?;
    let base = read(&base, &job, &stored).map_err(invalid)?;
    let mut merged = mine.overwriting(&theirs, Overwrite::Changed, Some(&base));
    if mine.disabled != base.disabled {
        merged.disabled = mine.disabled;
    }
    let yaml = masked_config(&merged.to_yaml());
    Ok(tagged(Stored { yaml, etag: stored.etag() }))
}

/// Reads an edited text; the faults of a text that is no configuration of this job.
fn read(yaml: &str, job: &str, stored: &StoredConfig) -> Result<JobDocument, Vec<String>> {
    let mut document = JobDocument::parse(yaml.as_bytes()).map_err(|error| vec![error.to_string()])?;
    if document.job_name != job {
        return Err(vec![format!("key `jobName`: expected `{job}`, the name of the job")]);
    }
    let stored = JobDocument::parse(stored.text.as_bytes()).unwrap_or_else(|_| JobDocument::new(job, 1));
    let faults = unmasked(&mut document, &stored);
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

/// The faults of a configuration; any other failure is one of the request.
fn texts(error: OperationError) -> Result<Vec<String>, OperationError> {
    match error {
        OperationError::WrongConfig { faults, .. } => Ok(faults.iter().map(|fault| format!("key {fault}")).collect()),
        error @ OperationError::UnknownKey { .. } => Ok(vec![error.to_string()]),
        error => Err(error),
    }
}

fn of(change: &Change, document: &JobDocument) -> Checked {
    let stored = JobDocument::parse(change.before.text.as_bytes()).ok();
    let differences = stored.map(|stored| document.differences(&stored)).unwrap_or_default();
    let config = Operations::checked_config(change.after.as_bytes()).ok();
    let fires = config.and_then(|config| {
        let cron = config.cron?;
        let next = |after: &Timestamp| cron.next(*after, &config.time_zone);
        let first = next(&Timestamp(clock::millis()));
        Some(std::iter::successors(first, next).take(FIRES).map(|due| due.0).collect())
    });
    Checked {
        faults: Vec::new(),
        warnings: change.warnings.iter().map(|warning| format!("key {warning}")).collect(),
        differences: differences
            .into_iter()
            .filter(|difference| difference.key != "disabled")
            .map(|difference| KeyChange { key: difference.key, before: difference.stored, after: difference.here })
            .collect(),
        fires: fires.unwrap_or_default(),
        disables: change.disables(),
        etag: change.before.etag(),
    }
}

fn answer(stored: &StoredConfig) -> Response {
    tagged(Stored { yaml: masked_config(&stored.text), etag: stored.etag() })
}

fn tagged(stored: Stored) -> Response {
    let etag = HeaderValue::from_str(&format!("\"{}\"", stored.etag)).ok();
    let mut response = Json(stored).into_response();
    if let Some(etag) = etag {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}
