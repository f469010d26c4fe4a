//! The audit log: who did what, and with what result. Each entry is a line of the log of the process, and a line of a file beside
//! `Configurations.xml`. Consoles with the same folder share the file.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock;
use crate::failure::Failure;
use crate::fields::short;

/// The file, and the one before it.
const FILE: &str = "audit.jsonl";
const BEFORE: &str = "audit.1.jsonl";
const LOCK: &str = "audit.lock";
/// Refusals that are recorded within a minute.
const REFUSALS_MAX: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// Bytes of a file. The one before is replaced when the file has as many.
const BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Characters of a text.
const TEXT_MAX: usize = 4_000;

/// An entry of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Entry {
    /// When, in milliseconds since 1970.
    pub(crate) at: i64,
    /// The name of the user; of a failed login, the name that was given.
    pub(crate) user: String,
    /// The address from which the request came.
    pub(crate) from: String,
    /// `log in`, or the method and the path of the request, such as `POST /jobs/report/disable`.
    pub(crate) act: String,
    /// The registry center that the request named; null for the connected one.
    pub(crate) centre: Option<String>,
    /// The result.
    pub(crate) result: Outcome,
    /// Why it failed or was refused.
    pub(crate) reason: Option<String>,
    /// What was changed: each key of a configuration with both values. Secrets are masked.
    #[serde(default)]
    pub(crate) change: Option<String>,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It was done.
    Done,
    /// It failed. It has changed nothing, unless the reason says that the outcome is unknown.
    Failed,
    /// The user may not do it, or the login failed.
    Refused,
}

/// Who acts on what.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) user: String,
    pub(crate) from: String,
    pub(crate) act: String,
    pub(crate) centre: Option<String>,
}

impl Act {
    pub(crate) fn login(user: &str, from: IpAddr) -> Act {
        Act { user: short(user), from: from.to_string(), act: "log in".into(), centre: None }
    }
}

/// What a request has changed, as a handler describes it.
#[derive(Clone, Debug)]
pub(crate) struct Change(pub(crate) String);

/// Writes and reads the file.
#[derive(Debug)]
pub(crate) struct Audit {
    folder: PathBuf,
    /// One writer at a time. `true` if the last write failed.
    failed: Mutex<bool>,
    refusals: Mutex<Refusals>,
}

/// The refusals of the current minute.
#[derive(Debug)]
struct Refusals {
    since: Instant,
    count: u32,
}

impl Refusals {
    /// Whether one more is recorded.
    fn take(&mut self) -> bool {
        if self.since.elapsed() >= MINUTE {
            *self = Refusals { since: clock::now(), count: 0 };
        }
        self.count += 1;
        self.count <= REFUSALS_MAX
    }
}

impl Audit {
    pub(crate) fn in_folder(folder: &Path) -> Audit {
        Audit {
            folder: folder.to_owned(),
            failed: Mutex::new(false),
            refusals: Mutex::new(Refusals { since: clock::now(), count: 0 }),
        }
    }

    /// Records an act. Of refusals, at most 60 in a minute.
    pub(crate) async fn record(
        self: &Arc<Self>,
        act: Act,
        result: Outcome,
        reason: Option<&str>,
        change: Option<String>,
    ) {
        let cut = |text: &str| text.chars().take(TEXT_MAX).collect::<String>();
        let Act { user, from, act, centre } = act;
        let (act, centre) = (short(&act), centre.map(|centre| short(&centre)));
        if result == Outcome::Refused && !self.refusals.lock().take() {
            return; // a client that repeats a refused request must not push other entries out
        }
        match result {
            Outcome::Done => tracing::info!(user, from, act, centre, "console: request"),
            Outcome::Failed => tracing::info!(user, from, act, centre, error = reason, "console: request failed"),
            Outcome::Refused => tracing::warn!(user, from, act, centre, error = reason, "console: request refused"),
        }
        let (reason, change) = (reason.map(cut), change.map(|change| cut(&change)));
        let entry = Entry { at: clock::millis(), user, from, act, centre, result, reason, change };
        let audit = Arc::clone(self);
        let _ = tokio::task::spawn_blocking(move || audit.write(&entry)).await; // it does not panic
    }

    fn write(&self, entry: &Entry) {
        let mut failed = self.failed.lock();
        match (self.append(entry), *failed) {
            (Ok(()), _) => *failed = false,
            (Err(_), true) => {}
            (Err(error), false) => {
                let path = self.folder.join(FILE);
                tracing::error!("cannot write the audit log {}: {error}; requests are still served", path.display());
                *failed = true;
            }
        }
    }

    fn append(&self, entry: &Entry) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(FILE);
        // Consoles that share the folder: only one replaces the full file.
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.folder.join(LOCK))?;
        lock.lock()?;
        if path.metadata().is_ok_and(|file| file.len() > BYTES_MAX) {
            std::fs::rename(&path, self.folder.join(BEFORE))?;
        }
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // One write: lines of several consoles do not mix.
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?.write_all(&line)
    }

    /// Returns the entries that `wanted` accepts, the latest first, without the first `offset` ones, at most `limit`; and the number of all.
    pub(crate) fn read(
        &self,
        wanted: impl Fn(&Entry) -> bool,
        offset: usize,
        limit: usize,
    ) -> Result<(Vec<Entry>, usize), Failure> {
        let failed = |path: &Path, error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
        let (mut kept, mut total) = (VecDeque::new(), 0);
        for name in [BEFORE, FILE] {
            let path = self.folder.join(name);
            let file = match std::fs::File::open(&path) {
                Ok(file) => BufReader::new(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&path, error)),
            };
            for line in file.split(b'\n') {
                let line = line.map_err(|error| failed(&path, error))?;
                // A line that a full disk has cut is not an entry.
                let Ok(entry) = serde_json::from_slice::<Entry>(&line) else { continue };
                if wanted(&entry) {
                    total += 1;
                    kept.push_front(entry);
                    kept.truncate(offset.saturating_add(limit));
                }
            }
        }
        Ok((kept.into_iter().skip(offset).collect(), total))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn act(user: &str, act: &str) -> Act {
        Act { user: user.into(), from: "192.0.2.1".into(), act: act.into(), centre: None }
    }

    #[tokio::test]
    async fn entries_are_read_with_the_latest_first_and_damaged_lines_are_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = Arc::new(Audit::in_folder(&folder.path().join("new")));
        assert_eq!(audit.read(|_| true, 0, 10).expect("no file is no fault").1, 0);
        audit.record(act("root", "POST /jobs/a/disable"), Outcome::Done, None, None).await;
        let path = folder.path().join("new").join(FILE);
        assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
        file.write_all(b"{\"at\": 3, \"us\n").expect("a line");
        audit.record(act("guest", "DELETE /jobs/a"), Outcome::Refused, Some("may only read"), None).await;
        audit.record(act("root", "PUT /jobs/a/config"), Outcome::Done, None, Some("cron: `a` → `b`".into())).await;
        let acts = |wanted: &dyn Fn(&Entry) -> bool, offset, limit| {
            let (entries, total) = audit.read(wanted, offset, limit).expect("entries");
            (entries.into_iter().map(|entry| entry.act).collect::<Vec<_>>(), total)
        };
        let all = ["PUT /jobs/a/config", "DELETE /jobs/a", "POST /jobs/a/disable"].map(str::to_owned);
        assert_eq!(acts(&|_| true, 0, 10), (all.to_vec(), 3));
        assert_eq!(acts(&|_| true, 1, 1), (all[1..2].to_vec(), 3));
        assert_eq!(acts(&|entry| entry.user == "root", 0, 1), (all[..1].to_vec(), 2));
        assert_eq!(acts(&|entry| entry.result == Outcome::Refused, 0, 9), (all[1..2].to_vec(), 1));
    }

    #[tokio::test]
    async fn a_full_file_is_kept_as_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = Arc::new(Audit::in_folder(folder.path()));
        audit.record(act("root", "first"), Outcome::Done, None, None).await;
        let path = folder.path().join(FILE);
        let file = OpenOptions::new().append(true).open(&path).expect("a file");
        file.set_len(BYTES_MAX + 1).expect("a size");
        audit.record(act("root", "second"), Outcome::Done, None, None).await;
        assert!(path.metadata().expect("a file").len() < 1_000);
        let (entries, total) = audit.read(|_| true, 0, 10).expect("entries");
        assert_eq!((entries[0].act.as_str(), entries[1].act.as_str(), total), ("second", "first", 2));
    }

    #[tokio::test]
    async fn refusals_push_no_other_entry_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = Arc::new(Audit::in_folder(folder.path()));
        for _ in 0..200 {
            audit.record(act("guest", &"x".repeat(60_000)), Outcome::Refused, Some("may only read"), None).await;
        }
        audit.record(act("root", "POST /jobs/a/disable"), Outcome::Done, None, None).await;
        let (entries, total) = audit.read(|_| true, 0, 100).expect("entries");
        assert_eq!((total, entries[0].user.as_str()), (usize::try_from(REFUSALS_MAX).expect("few") + 1, "root"));
        assert!(entries[1].act.chars().count() < 300, "{}", entries[1].act.len());
    }
}
