//! Logins: who may do what, until when.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use crate::failure::{Code, Failure};
use crate::settings::{Account, Role};

/// Bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Maximum number of logins of an account at one time; the one that ends first makes room.
const SESSIONS_MAX: usize = 1_000;
/// Failed logins from one address that are answered within [`FAILURES_IN`]; further ones are refused unread.
const FAILURES_MAX: u32 = 20;
const FAILURES_IN: Duration = Duration::from_secs(60);
/// Maximum number of addresses whose failed logins are counted.
const ADDRESSES_MAX: usize = 10_000;

/// The name of a user who logged in with a link.
const INVITED: &str = "admin";

/// The user of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// The accounts, and who is logged in. A restart ends all logins, as in ElasticJob-UI.
#[derive(Debug)]
pub(crate) struct Sessions {
    accounts: Vec<Account>,
    life: Duration,
    /// By the digest of the token: the token itself is not stored.
    open: Mutex<HashMap<[u8; 32], (User, Instant)>>,
    /// The digest of the token that logs in its first sender.
    invitation: Mutex<Option<[u8; 32]>>,
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Sessions {
    pub(crate) fn new(accounts: Vec<Account>, life: Duration) -> Sessions {
        Sessions { accounts, life, open: Mutex::default(), invitation: Mutex::default(), failures: Mutex::default() }
    }

    /// Whether a login with a password is possible.
    pub(crate) fn has_accounts(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Returns a new token for one login as administrator. It replaces the previous one.
    pub(crate) fn invite(&self) -> Result<String, Failure> {
        let token = new_token()?;
        *self.invitation.lock() = Some(key(&token));
        Ok(token)
    }

    /// Logs in the sender of the token of [`Sessions::invite`]; returns the user with the token of the session.
    pub(crate) fn accept(&self, from: IpAddr, token: &str, now: Instant) -> Result<(User, String), Failure> {
        if self.is_throttled(from, now) {
            let text = format!("too many failed logins; retry in {} s", FAILURES_IN.as_secs());
            return Err(Failure { code: Code::Forbidden, text });
        }
        let mut invitation = self.invitation.lock();
        if !invitation.is_some_and(|expected| verify_slices_are_equal(&expected, &key(token)).is_ok()) {
            self.count_failure(from, now);
            return Err(Failure::unauthorized());
        }
        let session = self.start(User { name: INVITED.to_owned(), role: Role::Admin }, now)?;
        *invitation = None;
        Ok(session)
    }

    /// Logs a user in; returns the user with a new token.
    pub(crate) fn login(
        &self,
        from: IpAddr,
        username: &str,
        password: &str,
        now: Instant,
    ) -> Result<(User, String), Failure> {
        if self.is_throttled(from, now) {
            let text = format!("too many failed logins; retry in {} s", FAILURES_IN.as_secs());
            return Err(Failure { code: Code::Forbidden, text });
        }
        // Every account is compared, so that the time of an answer does not tell which half was invalid.
        let matches = |account: &&Account| {
            let (name, secret) = (same(&account.username, username), same(&account.password, password));
            name & secret
        };
        let found: Vec<&Account> = self.accounts.iter().filter(matches).collect();
        let Some(account) = found.first() else {
            self.count_failure(from, now);
            return Err(Failure::unauthorized());
        };
        self.start(User { name: account.username.clone(), role: account.role }, now)
    }

    fn start(&self, user: User, now: Instant) -> Result<(User, String), Failure> {
        let token = new_token()?;
        let mut open = self.open.lock();
        open.retain(|_, (_, end)| *end > now);
        // The logins of one account make no room by ending those of another.
        let own = || open.iter().filter(|(_, (other, _))| other.name == user.name);
        if own().count() >= SESSIONS_MAX
            && let Some(first) = own().min_by_key(|(_, (_, end))| *end).map(|(key, _)| *key)
        {
            open.remove(&first);
        }
        open.insert(key(&token), (user.clone(), now + self.life));
        Ok((user, token))
    }

    /// Returns the user of a token; `None` if it is unknown or has expired.
    pub(crate) fn user(&self, token: &str, now: Instant) -> Option<User> {
        let open = self.open.lock();
        let (user, end) = open.get(&key(token))?;
        (*end > now).then(|| user.clone())
    }

    /// Ends a login.
    pub(crate) fn end(&self, token: &str) {
        self.open.lock().remove(&key(token));
    }

    fn is_throttled(&self, from: IpAddr, now: Instant) -> bool {
        let failures = self.failures.lock();
        match failures.get(&network(from)) {
            Some((count, since)) => *count >= FAILURES_MAX && now - *since < FAILURES_IN,
            None => failures.values().filter(|(_, since)| now - *since < FAILURES_IN).count() >= ADDRESSES_MAX,
        }
    }

    fn count_failure(&self, from: IpAddr, now: Instant) {
        let mut failures = self.failures.lock();
        failures.retain(|_, (_, since)| now - *since < FAILURES_IN);
        let from = network(from);
        // So many addresses are one attacker: those that are not counted are not answered.
        if failures.contains_key(&from) || failures.len() < ADDRESSES_MAX {
            failures.entry(from).or_insert((0, now)).0 += 1;
        }
    }
}

/// The address whose failures are counted: a host has a whole network of IPv6 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into()),
        ip @ IpAddr::V4(_) => ip,
    }
}

fn new_token() -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::failed("the system gives no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn key(token: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

/// Compares digests, in the same time for all texts.
fn same(one: &str, other: &str) -> bool {
    verify_slices_are_equal(&key(one), &key(other)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn sessions() -> Sessions {
        let account = |username: &str, role| Account { username: username.into(), password: "secret".into(), role };
        let accounts = vec![account("root", Role::Admin), account("guest", Role::Viewer)];
        Sessions::new(accounts, Duration::from_secs(60))
    }

    #[test]
    fn a_token_is_valid_until_it_expires_and_only_as_it_was_given() {
        let (sessions, now) = (sessions(), crate::clock::now());
        let (user, token) = sessions.login(HERE, "guest", "secret", now).expect("a login");
        assert_eq!(user, User { name: "guest".into(), role: Role::Viewer });
        assert_eq!(sessions.user(&token, now), Some(user));
        assert_eq!(sessions.user(&token, now + Duration::from_secs(60)), None);
        for other in ["", "null", &token[1..], &format!("{token}x")] {
            assert_eq!(sessions.user(other, now), None, "{other}");
        }
        let (_, second) = sessions.login(HERE, "guest", "secret", now).expect("a login");
        assert_ne!(token, second);
    }

    #[test]
    fn failed_logins_of_an_address_are_limited_and_others_are_not_affected() {
        let (sessions, now) = (sessions(), crate::clock::now());
        for _ in 0..FAILURES_MAX {
            let error = sessions.login(HERE, "root", "wrong", now).expect_err("an invalid password");
            assert_eq!(error, Failure::unauthorized());
        }
        let error = sessions.login(HERE, "root", "secret", now).expect_err("is throttled");
        assert!(error.text.starts_with("too many failed logins"), "{error}");
        let there = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        assert!(sessions.login(there, "root", "secret", now).is_ok());
        assert!(sessions.login(HERE, "root", "secret", now + FAILURES_IN).is_ok());
    }

    #[test]
    fn the_addresses_of_one_network_are_counted_together() {
        let (sessions, now) = (sessions(), crate::clock::now());
        let address = |host: u128| IpAddr::V6((0x2001_0db8_0000_0000_0000_0000_0000_0000_u128 + host).into());
        for host in 0..u128::from(FAILURES_MAX) {
            assert!(sessions.login(address(host), "root", "wrong", now).is_err());
        }
        let error = sessions.login(address(99), "root", "secret", now).expect_err("is throttled");
        assert!(error.text.starts_with("too many failed logins"), "{error}");
        assert!(sessions.login(address(1 << 64), "root", "secret", now).is_ok(), "another network");
    }

    #[test]
    fn the_logins_of_a_guest_end_none_of_the_administrator() {
        let (sessions, now) = (sessions(), crate::clock::now());
        let (_, admin) = sessions.login(HERE, "root", "secret", now).expect("a login");
        for _ in 0..=SESSIONS_MAX {
            sessions.login(HERE, "guest", "secret", now + Duration::from_secs(1)).expect("a login");
        }
        assert!(sessions.user(&admin, now).is_some());
    }

    #[test]
    fn an_invitation_is_valid_once_and_only_the_newest() {
        let (sessions, now) = (sessions(), crate::clock::now());
        assert!(sessions.accept(HERE, "", now).is_err(), "none was made");
        let first = sessions.invite().expect("a token");
        let second = sessions.invite().expect("a token");
        assert!(sessions.accept(HERE, &first, now).is_err());
        let (user, token) = sessions.accept(HERE, &second, now).expect("a login");
        assert_eq!(user, User { name: "admin".into(), role: Role::Admin });
        assert_eq!(sessions.user(&token, now), Some(user));
        assert!(sessions.accept(HERE, &second, now).is_err(), "it was used");
        assert_eq!(sessions.user(&second, now), None, "it is no session");
    }

    #[test]
    fn the_oldest_login_makes_room() {
        let (sessions, now) = (sessions(), crate::clock::now());
        let (_, first) = sessions.login(HERE, "root", "secret", now).expect("a login");
        for _ in 0..SESSIONS_MAX {
            sessions.login(HERE, "root", "secret", now + Duration::from_secs(1)).expect("a login");
        }
        assert_eq!(sessions.user(&first, now), None);
        assert_eq!(sessions.open.lock().len(), SESSIONS_MAX);
    }
}
