//! Our data of `sharding/<item>`: which due time was begun last, and by whom. Java keeps the node empty and never reads it.

use crate::time::Timestamp;

/// The last begin of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The due time; the moment of the begin for a run that no schedule asked for.
    pub due: Timestamp,
    /// The instance that began it.
    pub instance: String,
    /// Its session: tells one life of an instance id from the next.
    pub session: u64,
    /// Counts the begins of that session, so that a begin can be told from another one of the same due time.
    pub begin: u64,
}

impl Ledger {
    /// The node's text: `due=<ms> by=<instance> session=<hex> begin=<n>`.
    pub fn to_text(&self) -> String {
        format!("due={} by={} session={:016x} begin={}", self.due.0, self.instance, self.session, self.begin)
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
        Some(Ledger { due, instance, session, begin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_reads_back_and_foreign_data_is_none() {
        let ledger = Ledger { due: Timestamp(17), instance: "10.0.0.1@-@7".into(), session: 0xab, begin: 3 };
        assert_eq!(ledger.to_text(), "due=17 by=10.0.0.1@-@7 session=00000000000000ab begin=3");
        assert_eq!(Ledger::parse(ledger.to_text().as_bytes()), Some(ledger));
        for foreign in ["", "due=x by=a session=0 begin=1", "hello", "due=1 by=a"] {
            assert_eq!(Ledger::parse(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
