//! Trace stores.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use elasticjob::trace::DataSource;
use elasticjob_core::wire::masked;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Named, Problem, Sent, Shared};
use crate::configurations::Store;
use crate::failure::Failure;
use crate::server::State;
use crate::stores::{check, driver_of};

/// A trace store. Its password is never returned.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TraceStore {
    /// The name.
    name: String,
    /// The address of the database.
    url: String,
    /// The user.
    username: Option<String>,
    /// Whether it has a password.
    has_password: bool,
    /// Whether it is the connected one.
    connected: bool,
    /// Whether it is that of the process of this console; it cannot be removed.
    own: bool,
}

/// A new trace store.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document: the fields are read leniently")]
pub(crate) struct NewStore {
    /// The name.
    name: String,
    /// The address: sqlite://PATH, postgres://HOST:PORT/NAME or mysql://HOST:PORT/NAME, or that of JDBC.
    url: String,
    /// The user.
    username: Option<String>,
    /// The password.
    password: Option<String>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/trace-stores", get(list).post(add))
        .route("/trace-stores/{name}", axum::routing::delete(remove))
        .route("/trace-stores/{name}/connect", post(connect))
}

/// Lists the trace stores.
#[utoipa::path(get, path = "/api/v1/trace-stores", tag = "trace-stores", responses((status = 200, body = [TraceStore])))]
pub(super) async fn list(state: Shared) -> Result<Json<Vec<TraceStore>>, Problem> {
    let shown = |store: Store| TraceStore {
        name: store.name,
        url: masked(&store.url),
        username: store.username,
        has_password: store.password.is_some_and(|password| !password.is_empty()),
        connected: store.activated,
        own: false,
    };
    let own = state.stores.own().map(|(name, source)| TraceStore {
        name: name.to_owned(),
        url: masked(&source.url),
        username: source.username.clone(),
        has_password: source.password.is_some(),
        connected: true,
        own: true,
    });
    Ok(Json(own.into_iter().chain(state.stores.all()?.into_iter().map(shown)).collect()))
}

/// Adds a trace store, after connecting to it.
#[utoipa::path(post, path = "/api/v1/trace-stores", tag = "trace-stores", request_body = NewStore,
    responses((status = 201), (status = 400, body = Problem), (status = 409, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn add(state: Shared, Sent(fields): Sent) -> Result<StatusCode, Problem> {
    let url = fields.required("url")?;
    let Some(driver) = driver_of(&url) else {
        let reason = check(&DataSource::new(&url)).err().unwrap_or_else(|| "unsupported database".to_owned());
        return Err(Failure::invalid(format!("field `url`: {reason}")).into());
    };
    let store = Store {
        name: fields.required("name")?,
        driver: driver.to_owned(),
        url,
        username: fields.text("username")?.filter(|username| !username.is_empty()),
        password: fields.text("password")?.filter(|password| !password.is_empty()),
        activated: false,
    };
    let name = store.name.clone();
    match state.stores.add(store).await? {
        true => Ok(StatusCode::CREATED),
        false => Err(Problem::new(StatusCode::CONFLICT, format!("trace store `{name}` exists already"))),
    }
}

/// Connects a trace store: its history is then shown.
#[utoipa::path(post, path = "/api/v1/trace-stores/{name}/connect", tag = "trace-stores", params(("name" = String, Path)),
    responses((status = 204), (status = 400, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn connect(state: Shared, Named(name): Named<String>) -> Result<StatusCode, Problem> {
    state.stores.connect(&name).await?;
    state.runs.lock().await.clear();
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a trace store.
#[utoipa::path(delete, path = "/api/v1/trace-stores/{name}", tag = "trace-stores", params(("name" = String, Path)),
    responses((status = 204)))]
pub(super) async fn remove(state: Shared, Named(name): Named<String>) -> Result<StatusCode, Problem> {
    state.stores.remove(&name)?;
    Ok(StatusCode::NO_CONTENT)
}
