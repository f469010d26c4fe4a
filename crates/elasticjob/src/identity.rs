//! Who this process is: `<ip>@-@<number>` (Java: `IpUtils`, `JobInstance`). The number is the process id, but where that
//! is taken by another life of the same address and id, as in containers, or by another connection of this process.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use elasticjob_core::machine::Identity;
use parking_lot::Mutex;
use regex::Regex;

use crate::Error;

/// Which address of the host names it (Java: the system properties `elasticjob.preferred.network.interface` and `.ip`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPreference {
    /// The name of the interface; any by default.
    pub interface: Option<String>,
    /// A prefix of the address, or a regular expression for the whole of it; any by default.
    pub ip: Option<String>,
}

/// One address of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    interface: String,
    ip: Ipv4Addr,
}

/// The address that the preference chooses.
///
/// # Errors
///
/// No IPv4 address fits the preference. With no preference a host that has only its loopback is named by that.
pub fn server_ip(preference: &NetworkPreference) -> Result<String, Error> {
    let found = if_addrs::get_if_addrs().map_err(|e| Error::Identity { reason: e.to_string() })?;
    let addresses: Vec<Address> = found
        .into_iter()
        .filter(|a| !a.is_loopback())
        .filter_map(|a| match a.ip() {
            IpAddr::V4(ip) if !ip.is_unspecified() => Some(Address { interface: a.name, ip }),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        })
        .collect();
    choose(&addresses, preference).map(|ip| ip.to_string())
}

fn choose(addresses: &[Address], preference: &NetworkPreference) -> Result<Ipv4Addr, Error> {
    let preferred = |address: &&Address| preference.ip.as_deref().is_none_or(|p| is_preferred(p, address.ip));
    // Java takes the named interface, else the last one that has a fitting address; of that one the first such.
    let interface = match &preference.interface {
        Some(name) => addresses.iter().find(|a| a.interface == *name).map(|a| &a.interface),
        None => addresses.iter().rfind(preferred).map(|a| &a.interface),
    };
    let chosen = addresses.iter().filter(|a| Some(&a.interface) == interface).find(preferred);
    match (chosen, preference) {
        (Some(address), _) => Ok(address.ip),
        (None, NetworkPreference { interface: None, ip: None }) => Ok(Ipv4Addr::LOCALHOST),
        (None, preference) => {
            let have: Vec<String> = addresses.iter().map(|a| format!("{} {}", a.interface, a.ip)).collect();
            let reason = format!(
                "preferred interface {:?} and address {:?} fit none of: {}",
                preference.interface.as_deref().unwrap_or("any"),
                preference.ip.as_deref().unwrap_or("any"),
                if have.is_empty() { "no address but the loopback".to_owned() } else { have.join(", ") }
            );
            Err(Error::Identity { reason })
        }
    }
}

fn is_preferred(preference: &str, ip: Ipv4Addr) -> bool {
    let text = ip.to_string();
    let whole = || Regex::new(&format!("^(?:{preference})$")).is_ok_and(|r| r.is_match(&text));
    text.starts_with(preference) || whole()
}

/// The lives that connections of this process have, by what their registry calls itself and their address. Who comes at the
/// same moment cannot see it in the registry, and would be the same instance.
static LIVES: Mutex<BTreeSet<(String, String, u32)>> = Mutex::new(BTreeSet::new());

/// One life of this process, until it is dropped: 0 for the process id itself, more where that id is taken.
#[derive(Debug)]
pub(crate) struct LifeOf {
    registry: String,
    server_ip: String,
    life: u32,
}

impl LifeOf {
    /// `None` where another connection of this process has it.
    pub(crate) fn take(registry: &str, server_ip: &str, life: u32) -> Option<LifeOf> {
        let is_free = LIVES.lock().insert((registry.to_owned(), server_ip.to_owned(), life));
        is_free.then(|| LifeOf { registry: registry.to_owned(), server_ip: server_ip.to_owned(), life })
    }

    pub(crate) fn identity(&self) -> Identity {
        // Process ids are below 2^22 on Linux.
        let number = u64::from(std::process::id()) + (u64::from(self.life) << 22);
        Identity { id: format!("{}@-@{number}", self.server_ip), server_ip: self.server_ip.clone() }
    }
}

impl Drop for LifeOf {
    fn drop(&mut self) {
        let own = (std::mem::take(&mut self.registry), std::mem::take(&mut self.server_ip), self.life);
        LIVES.lock().remove(&own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_addresses_are_chosen_as_by_java() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/tests/vectors/ip.json");
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors["preferred_ip"].as_array().expect("cases") {
            let ip = case["address"].as_str().expect("text").parse().expect("an address");
            let preference = case["preferred_network_ip"].as_str().expect("text");
            assert_eq!(Some(is_preferred(preference, ip)), case["preferred"].as_bool(), "{case}");
        }
    }

    #[test]
    fn two_connections_of_a_process_have_two_lives() {
        let take = |life| LifeOf::take("two-lives", "10.0.0.1", life);
        let first = take(0).expect("free");
        assert!(take(0).is_none());
        let second = take(1).expect("free");
        assert_ne!(first.identity(), second.identity());
        assert!(LifeOf::take("another", "10.0.0.1", 0).is_some(), "another registry");
        drop(first);
        assert!(take(0).is_some());
    }

    #[test]
    fn the_interface_is_chosen_first() {
        let address = |interface: &str, ip: [u8; 4]| Address { interface: interface.into(), ip: ip.into() };
        let host = [address("a", [10, 0, 0, 1]), address("a", [10, 0, 0, 2]), address("b", [192, 168, 0, 1])];
        let preference = |interface: Option<&str>, ip: Option<&str>| NetworkPreference {
            interface: interface.map(str::to_owned),
            ip: ip.map(str::to_owned),
        };
        for (wanted, expected) in [
            (preference(None, None), Some([192, 168, 0, 1])),
            (preference(Some("a"), None), Some([10, 0, 0, 1])),
            (preference(Some("a"), Some("10.0.0.2")), Some([10, 0, 0, 2])),
            (preference(None, Some("10.")), Some([10, 0, 0, 1])),
            (preference(Some("b"), Some("10.")), None),
            (preference(Some("c"), None), None),
        ] {
            assert_eq!(choose(&host, &wanted).ok(), expected.map(Ipv4Addr::from), "{wanted:?}");
        }
        assert_eq!(choose(&[], &preference(None, None)), Ok(Ipv4Addr::LOCALHOST));
        let error = choose(&host, &preference(Some("c"), None)).expect_err("none fits").to_string();
        assert!(error.contains("a 10.0.0.1, a 10.0.0.2, b 192.168.0.1"), "{error}");
    }
}
