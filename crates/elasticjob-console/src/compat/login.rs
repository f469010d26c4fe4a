//! Login (Java: `AuthenticationController`… of ElasticJob-UI, `/api/login`).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::Request;
use axum::routing::post;
use axum::{Extension, Router};
use serde::Serialize;

use super::{Answer, Model, Shared};
use crate::audit::{Act, Outcome};
use crate::failure::{Code, Failure};
use crate::fields::Fields;
use crate::server::{Peer, State};
use crate::settings::Role;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Login {
    username: String,
    access_token: String,
    is_guest: bool,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/login", post(login).fallback(invalid))
}

async fn login(state: Shared, peer: Option<Extension<Peer>>, fields: Fields) -> Answer<Login> {
    fields.only(&["username", "password"])?;
    let text = |name: &str| fields.text(name).map(Option::unwrap_or_default);
    let (username, password) = (text("username")?, text("password")?);
    let from = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(Peer(peer))| peer.ip());
    match state.sessions.login(from, &username, &password, crate::clock::now()) {
        Ok((user, access_token)) => {
            state.audit.record(Act::login(&user.name, from), Outcome::Done, None, None).await;
            Ok(Model(Login { is_guest: user.role == Role::Viewer, username: user.name, access_token }))
        }
        Err(failure) => {
            if failure.code == Code::Forbidden {
                state.audit.record(Act::login(&username, from), Outcome::Refused, Some("login failed"), None).await;
            }
            Err(failure)
        }
    }
}

async fn invalid(request: Request) -> Failure {
    Failure::invalid(format!("method {} is not supported for a login; expected POST", request.method()))
}
