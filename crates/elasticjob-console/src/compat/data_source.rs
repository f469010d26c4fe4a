//! Data sources of the event trace (Java: `EventTraceDataSourceController`).

use std::sync::Arc;

use axum::routing::{delete, get, post};
use axum::{Json, Router};
use elasticjob_core::wire::masked as secrets_masked;
use serde::Serialize;

use super::registry_center::masked;
use super::{Answer, Model, Shared};
use crate::configurations::{MASKED, Store};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::server::State;

#[derive(Debug, Serialize)]
struct DataSource {
    name: String,
    driver: String,
    url: String,
    username: Option<String>,
    password: Option<String>,
    activated: bool,
}

impl From<Store> for DataSource {
    fn from(store: Store) -> DataSource {
        DataSource {
            name: store.name,
            driver: store.driver,
            url: secrets_masked(&store.url),
            username: store.username,
            password: store.password.map(|password| masked(&password)),
            activated: store.activated,
        }
    }
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/data-source", delete(remove))
        .route("/data-source/drivers", get(drivers))
        .route("/data-source/activated", get(activated))
        .route("/data-source/load", get(load))
        .route("/data-source/add", post(add))
        .route("/data-source/connectTest", post(test))
        .route("/data-source/connect", post(connect))
}

async fn drivers(state: Shared) -> Answer<Vec<&'static str>> {
    Ok(Model(state.stores.drivers()))
}

/// A bare boolean, as in ElasticJob-UI.
async fn activated(state: Shared) -> Result<Json<bool>, Failure> {
    Ok(Json(state.stores.is_activated()?))
}

async fn load(state: Shared) -> Answer<Vec<DataSource>> {
    Ok(Model(state.stores.all()?.into_iter().map(DataSource::from).collect()))
}

async fn add(state: Shared, fields: Fields) -> Answer<bool> {
    let store = given(&state, &fields)?;
    Ok(Model(state.stores.add(store).await?))
}

async fn test(state: Shared, fields: Fields) -> Answer<bool> {
    let store = given(&state, &fields)?;
    state.stores.test(&store).await?;
    Ok(Model(true))
}

async fn remove(state: Shared, fields: Fields) -> Answer<()> {
    state.stores.remove(&fields.required("name")?)?;
    Ok(Model(()))
}

async fn connect(state: Shared, fields: Fields) -> Answer<bool> {
    state.stores.connect(&fields.required("name")?).await?;
    Ok(Model(true))
}

fn given(state: &State, fields: &Fields) -> Result<Store, Failure> {
    let mut store = Store {
        driver: fields.text("driver")?.unwrap_or_default(),
        name: fields.text("name")?.unwrap_or_default(),
        url: fields.text("url")?.unwrap_or_default(),
        username: fields.text("username")?,
        password: fields.text("password")?,
        activated: false,
    };
    if store.driver.is_empty() {
        fields.required("driver")?;
    }
    fields.required("name")?;
    // An address whose secrets were masked is the stored one.
    if let Some(stored) = state.stores.stored(&store.name)?
        && stored.url != store.url
        && secrets_masked(&stored.url) == store.url
    {
        store.url = stored.url;
    }
    // The password that was not shown is the stored one, for the database and user that it was stored for.
    if store.password.as_deref() == Some(MASKED)
        && let Some(stored) = state.stores.stored(&store.name)?
        && (&stored.url, &stored.username) == (&store.url, &store.username)
    {
        store.password = stored.password;
    }
    Ok(store)
}
