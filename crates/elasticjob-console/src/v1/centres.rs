//! Registry centers.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Named, Problem, Sent, Shared};
use crate::configurations::Centre;
use crate::server::State;

/// A registry center. Its digest is never returned.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RegistryCentre {
    /// The name.
    name: String,
    /// `host:port,host:port` of ZooKeeper, or `embedded:PATH`.
    address: String,
    /// The namespace in ZooKeeper.
    namespace: String,
    /// Whether it has a digest.
    has_digest: bool,
    /// Whether it is the connected one.
    connected: bool,
    /// Whether it is that of the process of this console; it cannot be removed.
    own: bool,
}

/// A new registry center.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document: the fields are read leniently")]
pub(crate) struct NewCentre {
    /// The name.
    name: String,
    /// `host:port,host:port` of ZooKeeper, or `embedded:PATH`.
    address: String,
    /// The namespace in ZooKeeper.
    namespace: Option<String>,
    /// `user:password`, if the nodes have an ACL.
    digest: Option<String>,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/centres", get(list).post(add))
        .route("/centres/{name}", axum::routing::delete(remove))
        .route("/centres/{name}/connect", post(connect))
}

/// Lists the registry centers.
#[utoipa::path(get, path = "/api/v1/centres", tag = "centres", responses((status = 200, body = [RegistryCentre])))]
pub(super) async fn list(state: Shared) -> Result<Json<Vec<RegistryCentre>>, Problem> {
    let shown = |centre: Centre| RegistryCentre {
        own: state.centres.own(&centre.name).is_some(),
        name: centre.name,
        address: centre.address,
        namespace: centre.namespace,
        has_digest: centre.digest.is_some_and(|digest| !digest.is_empty()),
        connected: centre.activated,
    };
    Ok(Json(state.centres.all()?.into_iter().map(shown).collect()))
}

/// Adds a registry center.
#[utoipa::path(post, path = "/api/v1/centres", tag = "centres", request_body = NewCentre,
    responses((status = 201), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn add(state: Shared, Sent(fields): Sent) -> Result<StatusCode, Problem> {
    let centre = Centre {
        name: fields.required("name")?,
        address: fields.required("address")?,
        namespace: fields.text("namespace")?.unwrap_or_default(),
        digest: fields.text("digest")?.filter(|digest| !digest.is_empty()),
        activated: false,
    };
    let name = centre.name.clone();
    match state.centres.add(centre)? {
        true => Ok(StatusCode::CREATED),
        false => Err(Problem::new(StatusCode::CONFLICT, format!("registry center `{name}` exists already"))),
    }
}

/// Connects a registry center: requests that name none then use it.
#[utoipa::path(post, path = "/api/v1/centres/{name}/connect", tag = "centres", params(("name" = String, Path)),
    responses((status = 204), (status = 400, body = Problem), (status = 502, body = Problem)))]
pub(super) async fn connect(state: Shared, Named(name): Named<String>) -> Result<StatusCode, Problem> {
    state.centres.connect_or_explain(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a registry center.
#[utoipa::path(delete, path = "/api/v1/centres/{name}", tag = "centres", params(("name" = String, Path)),
    responses((status = 204)))]
pub(super) async fn remove(state: Shared, Named(name): Named<String>) -> Result<StatusCode, Problem> {
    state.centres.remove(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
