//! Registry centers (Java: `RegistryCenterController`).

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use serde::Serialize;

use super::{Answer, Model, Shared};
use crate::configurations::{Centre, MASKED};
use crate::fields::Fields;
use crate::server::State;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RegistryCenter {
    name: String,
    zk_address_list: String,
    namespace: String,
    digest: Option<String>,
    activated: bool,
}

impl From<Centre> for RegistryCenter {
    fn from(centre: Centre) -> RegistryCenter {
        RegistryCenter {
            name: centre.name,
            zk_address_list: centre.address,
            namespace: centre.namespace,
            digest: centre.digest.map(|digest| masked(&digest)),
            activated: centre.activated,
        }
    }
}

/// Secrets never leave the server.
pub(super) fn masked(secret: &str) -> String {
    if secret.is_empty() { String::new() } else { MASKED.to_owned() }
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/registry-center", delete(remove))
        .route("/registry-center/activated", get(activated))
        .route("/registry-center/load", get(load))
        .route("/registry-center/add", post(add))
        .route("/registry-center/connect", post(connect))
}

async fn activated(state: Shared) -> Answer<Option<RegistryCenter>> {
    Ok(Model(state.centres.activated()?.map(RegistryCenter::from)))
}

async fn load(state: Shared) -> Answer<Vec<RegistryCenter>> {
    Ok(Model(state.centres.all()?.into_iter().map(RegistryCenter::from).collect()))
}

async fn add(state: Shared, fields: Fields) -> Answer<bool> {
    let centre = Centre {
        name: fields.required("name")?,
        address: fields.required("zkAddressList")?,
        namespace: fields.text("namespace")?.unwrap_or_default(),
        digest: fields.text("digest")?,
        activated: false,
    };
    Ok(Model(state.centres.add(centre)?))
}

async fn remove(state: Shared, fields: Fields) -> Answer<()> {
    state.centres.remove(&fields.required("name")?).await?;
    Ok(Model(()))
}

async fn connect(state: Shared, fields: Fields) -> Answer<bool> {
    Ok(Model(state.centres.connect(&fields.required("name")?).await?))
}
