//! Our own texts: the ledger, data of `sharding/<item>`, says which due time was begun last, and by whom; a claim, data of
//! `sharding/<item>/instance/claim-<session>`, who claims the item. Java keeps the first empty and has no second. Both carry
//! the writer's wall clock: beside the registry's time of the write it shows a clock that is off.

use std::fmt::Write as _;

use crate::time::Timestamp;

/// The last begin of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The due time; the moment of the begin for a run that no schedule asked for.
    pub due: Timestamp,
    /// The instance that began it.
    pub instance: String,
    /// Its session: distinguishes one life of an instance id from the next.
    pub session: u64,
    /// Counts the begins of that session, so that two begins of the same due time can be distinguished.
    pub begin: u64,
    /// The writer's clock when it sent the begin; older versions did not write it.
    pub at: Option<Timestamp>,
    /// The triggers that this begin answers and whose callers wait for a result. An instance that takes the run over answers them.
    pub requests: Vec<String>,
}

impl Ledger {
    /// The node's text: `due=<ms> by=<instance> session=<hex> begin=<n> at=<ms> for=<trigger>,<trigger>`, the last part only where
    /// a caller waits.
    pub fn to_text(&self) -> String {
        let Ledger { due, instance, session, begin, at, requests } = self;
        let mut text = String::with_capacity(instance.len() + 100);
        let _ = write!(text, "due={} by={instance} session={session:016x} begin={begin}", due.0); // cannot fail
        if let Some(at) = at {
            let _ = write!(text, " at={}", at.0);
        }
        if !requests.is_empty() {
            let _ = write!(text, " for={}", requests.join(","));
        }
        text
    }

    /// Reads a node; `None` for an empty one and for what is not ours.
    pub fn parse(data: &[u8]) -> Option<Ledger> {
        let text = std::str::from_utf8(data).ok()?;
        let mut parts = text.split(' ');
        let mut field = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        let due = Timestamp(field("due")?.parse().ok()?);
        let instance = field("by")?.to_owned();
        let session = u64::from_str_radix(field("session")?, 16).ok()?;
        let begin = field("begin")?.parse().ok()?;
        let at = field("at").and_then(|at| at.parse().ok()).map(Timestamp);
        let requests = field("for").map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default();
        Some(Ledger { due, instance, session, begin, at, requests })
    }
}

/// Who claims an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The instance.
    pub instance: String,
    /// Its clock when it asked for the claim.
    pub at: Timestamp,
}

impl Claim {
    /// The node's text: `<instance> at=<ms>`.
    pub fn to_text(&self) -> String {
        format!("{} at={}", self.instance, self.at.0)
    }

    /// Reads a node; `None` for what is not ours.
    pub fn parse(data: &[u8]) -> Option<Claim> {
        let (instance, at) = std::str::from_utf8(data).ok()?.rsplit_once(" at=")?;
        Some(Claim { instance: instance.to_owned(), at: Timestamp(at.parse().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_reads_back_and_foreign_data_is_none() {
        let ledger = Ledger {
            due: Timestamp(17),
            instance: "10.0.0.1@-@7".into(),
            session: 0xab,
            begin: 3,
            at: Some(Timestamp(19)),
            requests: Vec::new(),
        };
        assert_eq!(ledger.to_text(), "due=17 by=10.0.0.1@-@7 session=00000000000000ab begin=3 at=19");
        assert_eq!(Ledger::parse(ledger.to_text().as_bytes()).as_ref(), Some(&ledger));
        let awaited = Ledger { requests: vec!["0-1f".into(), "0-2e".into()], ..ledger };
        assert!(awaited.to_text().ends_with(" at=19 for=0-1f,0-2e"), "{}", awaited.to_text());
        assert_eq!(Ledger::parse(awaited.to_text().as_bytes()), Some(awaited));
        for foreign in ["", "due=x by=a session=0 begin=1", "hello", "due=1 by=a"] {
            assert_eq!(Ledger::parse(foreign.as_bytes()), None, "{foreign}");
            assert_eq!(Claim::parse(foreign.as_bytes()), None, "{foreign}");
        }
        let before = Ledger::parse(b"due=1 by=a session=0 begin=1").expect("without a time of its own");
        assert_eq!((before.due, before.at), (Timestamp(1), None));
        let claim = Claim { instance: "10.0.0.1@-@7".into(), at: Timestamp(19) };
        assert_eq!(claim.to_text(), "10.0.0.1@-@7 at=19");
        assert_eq!(Claim::parse(claim.to_text().as_bytes()), Some(claim));
    }
}
