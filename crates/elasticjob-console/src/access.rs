//! Who may do what: decided here for every request, and nowhere else.

use axum::http::{HeaderMap, Method, header};

use crate::clock;
use crate::server::State;
use crate::sessions::User;
use crate::settings::Role;

/// The header with the token of a login.
pub(crate) const TOKEN: &str = "Access-Token";
/// A header that pages of other origins cannot send without permission: a request with the cookie that changes something needs it.
pub(crate) const FROM_PAGE: &str = "X-Requested-With";

/// How a request proves who sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The header of scripts.
    Token(User),
    /// The cookie of browsers.
    Cookie(User),
    /// Not at all.
    None,
}

impl Access {
    /// The user of a request. A cookie counts only with `cookies`.
    pub(crate) fn of(state: &State, headers: &HeaderMap, cookies: bool) -> Access {
        let user = |token: &str| state.sessions.user(token, clock::now());
        if let Some(user) = headers.get(TOKEN).and_then(|token| token.to_str().ok()).and_then(user) {
            return Access::Token(user);
        }
        match cookie(state, headers).filter(|_| cookies).and_then(user) {
            Some(user) => Access::Cookie(user),
            None => Access::None,
        }
    }
}

/// The name of the cookie with the token of a login in a browser. Browsers send the cookies of a host to all of its ports, so two
/// consoles on one host need two names.
pub(crate) fn cookie_name(state: &State) -> String {
    format!("elasticjob_session_{}", state.settings.listen.port())
}

/// The token in the cookie.
pub(crate) fn cookie<'a>(state: &State, headers: &'a HeaderMap) -> Option<&'a str> {
    let wanted = cookie_name(state);
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Whether a request only reads.
pub(crate) fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// The role that a request needs, by its path below `/api` or `/api/v1`. Searches of the event trace, and checks of a configuration that
/// is edited, are reads, although they are sent by POST. The audit log is for administrators.
pub(crate) fn needed(method: &Method, path: &str) -> Role {
    let only_reads = || {
        let is_edited =
            path.starts_with("/jobs/") && (path.ends_with("/config/check") || path.ends_with("/config/merge"));
        *method == Method::POST && (path.starts_with("/event-trace/") || is_edited)
    };
    let is_of_admins = path == "/audit";
    if (is_read(method) && !is_of_admins) || only_reads() { Role::Viewer } else { Role::Admin }
}
