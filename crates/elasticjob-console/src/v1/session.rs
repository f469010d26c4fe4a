//! Login and logout.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Asked, Problem, Sent, Shared};
use crate::access::{Access, cookie, cookie_name};
use crate::audit::{Act, Outcome};
use crate::clock;
use crate::failure::Code;
use crate::server::{Peer, State};
use crate::sessions::User;
use crate::settings::Role;

/// The user of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// The name.
    username: String,
    /// Whether the user may change something.
    writes: bool,
    /// Whether the administrator still has the default password.
    default_password: bool,
}

/// The token of a link.
#[derive(Debug, Deserialize)]
pub(crate) struct Invitation {
    #[serde(default)]
    token: String,
}

/// Who is logged in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Current {
    /// The user; null without a login.
    me: Option<Me>,
    /// Whether users log in with a password. Otherwise they open the link that the process logs.
    passwords: bool,
}

/// A new session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    /// The user.
    me: Me,
    /// The token for scripts. Browsers get it as a cookie too.
    token: String,
}

/// A login.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document: the fields are read leniently")]
pub(crate) struct Login {
    /// The name.
    username: String,
    /// The password.
    password: String,
}

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/session", get(current).post(log_in).delete(log_out)).route("/me", get(me))
}

/// Logs in.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", request_body = Login,
    responses((status = 200, body = Session), (status = 403, body = Problem)))]
pub(super) async fn log_in(
    state: Shared,
    peer: Option<Extension<Peer>>,
    Sent(fields): Sent,
) -> Result<Response, Problem> {
    let (username, password) = (fields.required("username")?, fields.required("password")?);
    let from = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(Peer(peer))| peer.ip());
    match state.sessions.login(from, &username, &password, clock::now()) {
        Ok((user, token)) => {
            state.audit.record(Act::login(&user.name, from), Outcome::Done, None, None).await;
            let cookie = session_cookie(&state, &token);
            let session = Session { me: of(&state, user), token };
            Ok(([(header::SET_COOKIE, cookie)], Json(session)).into_response())
        }
        Err(failure) => {
            if failure.code == Code::Forbidden {
                state.audit.record(Act::login(&username, from), Outcome::Refused, Some("login failed"), None).await;
            }
            let detail = match failure.text.as_str() {
                "Unauthorized." => "unknown user or invalid password".to_owned(),
                _ => failure.text,
            };
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
    }
}

fn session_cookie(state: &State, token: &str) -> String {
    let (name, life) = (cookie_name(state), state.settings.token_life.as_secs());
    format!("{name}={token}; Path=/api/v1; HttpOnly; SameSite=Strict; Max-Age={life}")
}

/// A link that logs in: the browser gets the cookie and the first page. A program that only looks at the link does not use it up.
pub(crate) async fn accept(
    state: Shared,
    method: Method,
    peer: Option<Extension<Peer>>,
    Asked(invitation): Asked<Invitation>,
) -> Result<Response, Problem> {
    let to = |place: &'static str| (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response();
    if method != Method::GET || invitation.token.is_empty() {
        return Ok(to("/"));
    }
    let from = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(Peer(peer))| peer.ip());
    match state.sessions.accept(from, &invitation.token, clock::now()) {
        Ok((user, token)) => {
            let next = state.invitation()?;
            state.audit.record(Act::login(&user.name, from), Outcome::Done, None, None).await;
            tracing::info!("console: the link was used; the next link: {next}");
            Ok(([(header::SET_COOKIE, session_cookie(&state, &token))], to("/")).into_response())
        }
        Err(failure) if failure.code != Code::Forbidden => Err(failure.into()),
        Err(_) => {
            tracing::debug!(%from, "console: the link is not valid: it was used, or there is a newer one");
            Ok(to("/?link=used"))
        }
    }
}

/// Returns who is logged in; also without a login.
#[utoipa::path(get, path = "/api/v1/session", tag = "session", responses((status = 200, body = Current)))]
pub(super) async fn current(state: Shared, headers: HeaderMap) -> Json<Current> {
    let user = match Access::of(&state, &headers, true) {
        Access::Token(user) | Access::Cookie(user) => Some(user),
        Access::None => None,
    };
    Json(Current { me: user.map(|user| of(&state, user)), passwords: state.sessions.has_accounts() })
}

/// Logs out: the token is not valid any more.
#[utoipa::path(delete, path = "/api/v1/session", tag = "session", responses((status = 204)))]
pub(super) async fn log_out(state: Shared, headers: HeaderMap) -> Response {
    let named = headers.get(crate::access::TOKEN).and_then(|token| token.to_str().ok());
    let token = named.or_else(|| cookie(&state, &headers));
    if let Some(token) = token {
        state.sessions.end(token);
    }
    let cookie = format!("{}=; Path=/api/v1; HttpOnly; SameSite=Strict; Max-Age=0", cookie_name(&state));
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

/// Returns the user of the session.
#[utoipa::path(get, path = "/api/v1/me", tag = "session", responses((status = 200, body = Me), (status = 401, body = Problem)))]
pub(super) async fn me(state: Shared, Extension(user): Extension<User>) -> Json<Me> {
    Json(of(&state, user))
}

fn of(state: &State, user: User) -> Me {
    Me {
        username: user.name,
        writes: user.role == Role::Admin,
        default_password: state.settings.has_default_password(),
    }
}
