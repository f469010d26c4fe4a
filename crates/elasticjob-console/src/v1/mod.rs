//! The console's own API, `/api/v1`: HTTP codes, problem details (RFC 9457), and a document of itself in OpenAPI.

mod audit;
mod centres;
mod configuration;
mod failures;
mod jobs;
mod logs;
mod overview;
mod past;
mod runs;
mod servers;
mod session;
mod stores;

use std::sync::Arc;

pub(crate) use overview::RunCache;
pub(crate) use session::accept;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use elasticjob::OperationError;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};

use crate::access::{Access, FROM_PAGE, is_read, needed};
use crate::audit::{Act, Change, Outcome};
use crate::compat::completed;
use crate::failure::{Code, Failure};
use crate::fields::{Fields, short};
use crate::server::{Peer, State};
use crate::settings::Role;

type Shared = axum::extract::State<Arc<State>>;

/// What a request failed with (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The HTTP status.
    status: u16,
    /// The kind of the problem.
    title: &'static str,
    /// What failed, and what is expected.
    detail: String,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Error");
        Problem { status: status.as_u16(), title, detail: detail.into() }
    }

    fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let status = match failure.code {
            Code::Invalid => StatusCode::BAD_REQUEST,
            Code::Forbidden => StatusCode::FORBIDDEN,
            // What is behind the console failed: a registry, a database.
            Code::Failed => StatusCode::BAD_GATEWAY,
        };
        Problem::new(status, failure.text)
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Problem {
        let status = match &error {
            OperationError::UnknownJob { .. }
            | OperationError::UnknownServer { .. }
            | OperationError::UnknownItem { .. } => StatusCode::NOT_FOUND,
            OperationError::WrongConfig { .. } | OperationError::UnknownKey { .. } => StatusCode::BAD_REQUEST,
            OperationError::Conflict { .. }
            | OperationError::NoInstance { .. }
            | OperationError::Disabled { .. }
            | OperationError::BadConfig { .. } => StatusCode::CONFLICT,
            _ => StatusCode::BAD_GATEWAY,
        };
        Problem::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self)).into_response();
        let kind = header::HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response.extensions_mut().insert(Failed(self.detail));
        response
    }
}

fn none_connected() -> Problem {
    Problem::new(StatusCode::CONFLICT, "no registry center is connected")
}

/// The text of a failure, for the log.
#[derive(Clone, Debug)]
struct Failed(String);

/// The registry center of a request.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Centre {
    /// The name of the registry center; the connected one by default.
    centre: Option<String>,
}

impl Centre {
    fn name(&self) -> Option<&str> {
        self.centre.as_deref().filter(|name| !name.is_empty())
    }
}

/// The fields of a body, whose faults are problems.
pub(crate) struct Sent(Fields);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Sent, Problem> {
        Ok(Sent(Fields::from_request(request, state).await?))
    }
}

/// A query, whose faults are problems.
pub(crate) struct Asked<T>(T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, error.body_text())),
        }
    }
}

/// The names in a path, whose faults are problems.
pub(crate) struct Named<T>(T);

impl<T: serde::de::DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named<T>, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(Named(names)),
            Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, error.body_text())),
        }
    }
}

/// The document of the API.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "ElasticJob console",
        description = "Jobs, servers and history of registries. Log in with POST /api/v1/session; scripts send the token in the header Access-Token."
    ),
    paths(
        session::current,
        session::log_in,
        session::log_out,
        session::me,
        overview::overview,
        jobs::list,
        jobs::show,
        jobs::why,
        jobs::fires,
        jobs::trigger,
        jobs::disable,
        jobs::enable,
        jobs::shutdown,
        jobs::remove,
        jobs::disable_item,
        jobs::enable_item,
        runs::runs,
        logs::log,
        failures::failures,
        audit::list,
        servers::list,
        servers::show,
        servers::disable,
        servers::enable,
        servers::shutdown,
        servers::remove,
        servers::disable_job,
        servers::enable_job,
        servers::shutdown_job,
        servers::remove_job,
        configuration::show,
        configuration::check,
        configuration::save,
        configuration::merge,
        past::ledger,
        past::events,
        past::timeline,
        centres::list,
        centres::add,
        centres::connect,
        centres::remove,
        stores::list,
        stores::add,
        stores::connect,
        stores::remove,
    )
)]
struct Document;

/// The document as text.
fn document() -> String {
    let mut document = Document::openapi();
    document.info.version = "1".to_owned();
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The routes below `/api/v1`.
pub(crate) fn router(state: Arc<State>) -> Router {
    let routes = Router::new()
        .merge(session::routes())
        .merge(overview::routes())
        .merge(jobs::routes())
        .merge(runs::routes())
        .merge(logs::routes())
        .merge(failures::routes())
        .merge(audit::routes())
        .merge(servers::routes())
        .merge(past::routes())
        .merge(configuration::routes())
        .merge(centres::routes())
        .merge(stores::routes())
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], document())))
        .fallback(async |request: Request| Problem::not_found(format!("unknown path {}", short(request.uri().path()))))
        .method_not_allowed_fallback(async |request: Request| {
            let text = format!("method {} is not supported for this path", request.method());
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, text)
        });
    routes.layer(middleware::from_fn_with_state(Arc::clone(&state), guarded)).with_state(state)
}

/// Decides who may do what.
async fn guarded(state: Shared, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if path == "/session" || path == "/openapi.json" {
        return next.run(request).await;
    }
    let has_mark = request.headers().contains_key(FROM_PAGE);
    let user = match Access::of(&state, request.headers(), true) {
        Access::None => return Problem::new(StatusCode::UNAUTHORIZED, "log in first").into_response(),
        Access::Cookie(_) if !is_read(&method) && !has_mark => {
            let text = format!("a request with a cookie that changes something needs the header {FROM_PAGE}");
            return Problem::new(StatusCode::FORBIDDEN, text).into_response();
        }
        Access::Token(user) | Access::Cookie(user) => user,
    };
    let from = request.extensions().get::<Peer>().map(|peer| peer.0.ip().to_string()).unwrap_or_default();
    let centre = Query::<Centre>::try_from_uri(request.uri()).ok().and_then(|Query(centre)| centre.centre);
    let act = Act { user: user.name.clone(), from, act: format!("{method} {path}"), centre };
    if user.role < needed(&method, &path) {
        let text = format!("user `{}` may only read", user.name);
        // A page that a guest may not read changes nothing.
        if !is_read(&method) {
            state.audit.record(act, Outcome::Refused, Some(&text), None).await;
        }
        return Problem::new(StatusCode::FORBIDDEN, text).into_response();
    }
    request.extensions_mut().insert(user);
    if is_read(&method) || needed(&method, &path) == Role::Viewer {
        return next.run(request).await;
    }
    completed(async move {
        let response = next.run(request).await;
        let failed = response.extensions().get::<Failed>().map(|failed| failed.0.as_str());
        let change = response.extensions().get::<Change>().map(|change| change.0.clone());
        let result = if failed.is_some() { Outcome::Failed } else { Outcome::Done };
        state.audit.record(act, result, failed, change).await;
        response
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The pages are generated from the document that is stored. `UPDATE_OPENAPI=1` writes it.
    #[test]
    fn the_stored_document_is_that_of_the_code() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(&path, super::document()).expect("a file");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == super::document(),
            "openapi.json differs; run UPDATE_OPENAPI=1 cargo test -p elasticjob-console"
        );
    }
}
