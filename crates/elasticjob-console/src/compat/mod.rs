//! The API of ElasticJob-UI 3.x: paths, field names, codes, and HTTP status 200 for almost everything.

mod configuration;
mod data_source;
mod event_trace;
mod jobs;
mod login;
mod registry_center;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use elasticjob::{OperationError, Operations};
use serde::Serialize;

use crate::access::{Access, needed};
use crate::audit::{Act, Outcome};
use crate::failure::{Code, Failure};
use crate::fields::{Fields, short};
use crate::server::{Peer, State};
use crate::settings::Role;

/// The header that names the registry center of a request; the activated one without it.
const CENTRE: &str = "Registry-Center";
/// What browsers may send from other origins.
const METHODS: &str = "GET,POST,PUT,DELETE,OPTIONS";
const HEADERS: &str = "Content-Type,Access-Token,Registry-Center";

/// Longest time for the body of a request.
const BODY_MAX: Duration = Duration::from_secs(15);

type Shared = axum::extract::State<Arc<State>>;

/// The envelope of almost every answer (Java: `ResponseResult`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<T> {
    success: bool,
    error_code: u16,
    error_msg: Option<String>,
    model: Option<T>,
}

/// What a handler answers.
type Answer<T> = Result<Model<T>, Failure>;

/// The model of a successful answer.
#[derive(Debug)]
struct Model<T>(T);

impl<T: Serialize> IntoResponse for Model<T> {
    fn into_response(self) -> Response {
        Json(Envelope { success: true, error_code: 0, error_msg: None, model: Some(self.0) }).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (error_code, error_msg) = (self.code.number(), Some(self.text.clone()));
        let mut response = Json(Envelope { success: false, error_code, error_msg, model: None::<()> }).into_response();
        response.extensions_mut().insert(Failed(self.text));
        response
    }
}

/// The routes below `/api`.
pub(crate) fn router(state: Arc<State>) -> Router {
    let routes = Router::new()
        .merge(login::routes())
        .merge(registry_center::routes())
        .merge(data_source::routes())
        .merge(jobs::routes())
        .merge(configuration::routes())
        .merge(servers::routes())
        .merge(event_trace::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method);
    routes.layer(middleware::from_fn_with_state(Arc::clone(&state), guarded)).with_state(state)
}

/// Decides who may do what, for every request; no handler decides for itself.
async fn guarded(state: Shared, mut request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = if method == Method::OPTIONS {
        StatusCode::OK.into_response()
    } else if path == "/login" {
        next.run(request).await
    } else {
        match Access::of(&state, request.headers(), false) {
            Access::None | Access::Cookie(_) => Failure::unauthorized().into_response(),
            Access::Token(user) => {
                let from = request.extensions().get::<Peer>().map(|peer| peer.0.ip().to_string()).unwrap_or_default();
                let centre = request.headers().get(CENTRE).map(|name| String::from_utf8_lossy(name.as_bytes()).into());
                let act = Act { user: user.name.clone(), from, act: format!("{method} {path}"), centre };
                let needed = needed(&method, &path);
                if user.role < needed {
                    let text = format!("user `{}` may only read", user.name);
                    state.audit.record(act, Outcome::Refused, Some(&text), None).await;
                    Failure { code: Code::Forbidden, text }.into_response()
                } else if needed == Role::Viewer {
                    request.extensions_mut().insert(user);
                    next.run(request).await
                } else {
                    request.extensions_mut().insert(user);
                    let state = state.clone();
                    completed(async move {
                        let response = next.run(request).await;
                        let failed = response.extensions().get::<Failed>().map(|failed| failed.0.as_str());
                        let result = if failed.is_some() { Outcome::Failed } else { Outcome::Done };
                        state.audit.record(act, result, failed, None).await;
                        response
                    })
                    .await
                }
            }
        }
    };
    if let Some(origin) = origin.filter(|origin| is_allowed(&state, origin)) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Completes a change, and its line in the log, although the client closes its connection in the meantime.
pub(crate) async fn completed(change: impl Future<Output = Response> + Send + 'static) -> Response {
    let failed = |_| Failure::failed("the request ended with a panic; see the log of the console").into_response();
    tokio::spawn(change).await.unwrap_or_else(failed)
}

/// The text of a failure, for the log.
#[derive(Clone, Debug)]
struct Failed(String);

fn is_allowed(state: &State, origin: &HeaderValue) -> bool {
    origin.to_str().is_ok_and(|origin| state.settings.origins.contains(origin))
}

async fn unknown(request: Request) -> Response {
    let path = request.extensions().get::<axum::extract::OriginalUri>().map(|uri| uri.0.path().to_owned());
    let body = serde_json::json!({"status": 404, "error": "Not Found", "message": "unknown path", "path": path});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

async fn wrong_method(request: Request) -> Failure {
    let path = request.uri().path();
    Failure::failed(format!("method {} is not supported for {path}", request.method()))
}

/// The registry center of a request.
struct Centre(Option<String>);

impl<S: Sync> FromRequestParts<S> for Centre {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Centre, Failure> {
        let Some(value) = parts.headers.get(CENTRE) else { return Ok(Centre(None)) };
        // Names may be in any language: a header has bytes.
        match std::str::from_utf8(value.as_bytes()) {
            Ok(name) => Ok(Centre(Some(name.to_owned()))),
            Err(_) => Err(Failure::invalid(format!("header {CENTRE} is not valid UTF-8"))),
        }
    }
}

/// The parts of a path, decoded. A slash in one is refused: no job or server has one in its name.
struct Names<T>(T);

impl<S: Send + Sync> FromRequestParts<S> for Names<String> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Names<String>, Failure> {
        let Path(name) = Path::<String>::from_request_parts(parts, state).await.map_err(invalid_path)?;
        checked(&name)?;
        Ok(Names(name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names<(String, String)> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Names<(String, String)>, Failure> {
        let Path(names) = Path::<(String, String)>::from_request_parts(parts, state).await.map_err(invalid_path)?;
        checked(&names.0)?;
        checked(&names.1)?;
        Ok(Names(names))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names<(String, String, String)> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Names<(String, String, String)>, Failure> {
        let path = Path::<(String, String, String)>::from_request_parts(parts, state).await;
        let Path(names) = path.map_err(invalid_path)?;
        checked(&names.0)?;
        checked(&names.1)?;
        checked(&names.2)?;
        Ok(Names(names))
    }
}

fn invalid_path(error: impl std::fmt::Display) -> Failure {
    Failure::invalid(format!("invalid path: {error}"))
}

fn checked(name: &str) -> Result<(), Failure> {
    match name.contains('/') {
        true => Err(Failure::invalid(format!("invalid name `{}`: it has a slash", short(name)))),
        false => Ok(()),
    }
}

/// A JSON object as the body of a request.
impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Failure;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Fields, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind != "application/json" && !kind.ends_with("+json") {
            let text = format!("the body has the type `{}`; expected application/json", short(&kind));
            return Err(Failure::invalid(text));
        }
        let body = tokio::time::timeout(BODY_MAX, Bytes::from_request(request, state)).await;
        let body = body.map_err(|_| Failure::invalid(format!("the body did not arrive within {BODY_MAX:?}")))?;
        Fields::parse(&body.map_err(|error| Failure::invalid(format!("cannot read the body: {error}")))?)
    }
}

/// Reads from a registry centre; `Ok(None)` if none is activated.
async fn read<T>(
    state: &State,
    Centre(name): Centre,
    read: impl AsyncFnOnce(&Operations) -> Result<T, OperationError>,
) -> Result<Option<T>, Failure> {
    let Some(opened) = state.centres.get(name.as_deref()).await? else { return Ok(None) };
    let done = read(&opened.operations).await.map_err(|error| Failure::of_read(&error));
    opened.close().await;
    done.map(Some)
}

/// The same of a request that needs a registry centre.
async fn read_one<T>(
    state: &State,
    centre: Centre,
    work: impl AsyncFnOnce(&Operations) -> Result<T, OperationError>,
) -> Result<T, Failure> {
    read(state, centre, work).await?.ok_or_else(none_activated)
}

fn none_activated() -> Failure {
    Failure::failed("no registry center is activated; connect one, or name one with the header Registry-Center")
}

/// Writes to a registry centre. The model of all writes is `true`.
async fn write(
    state: &State,
    Centre(name): Centre,
    write: impl AsyncFnOnce(&Operations) -> Result<(), OperationError>,
) -> Answer<bool> {
    let opened = state.centres.get(name.as_deref()).await?.ok_or_else(none_activated)?;
    let done = write(&opened.operations).await.map_err(|error| Failure::of_write(&error));
    opened.close().await;
    done.map(|()| Model(true))
}

/// A whole number in a path.
fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::invalid(format!("`{}` is not {what}", short(text))))
}
