//! The events of a run in the trace, with the texts of Java's tables.

use std::sync::Arc;

use elasticjob_core::time::Timestamp;
use uuid::Uuid;

/// The longest text of the tables, in UTF-16 units as Java counts.
const TEXT_MAX: usize = 4_000;

/// One event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// An item began, or ended (Java: `JobExecutionEvent`).
    Execution(Execution),
    /// The items of a run together (Java: `JobStatusTraceEvent`).
    Status(Status),
    /// An event of a job on this instance. Java records none.
    Job(JobRecord),
    /// Lines of a run's log. Java records none.
    Log(LogPart),
}

/// A part of the log of an item's run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogPart {
    /// One for each part.
    pub id: Uuid,
    /// The [`Execution`] of the run.
    pub execution: Uuid,
    /// The job's name.
    pub job: Arc<str>,
    /// The item.
    pub item: u32,
    /// Its number, from 0. A number that is missing is a part that was dropped.
    pub part: u32,
    /// Its lines, each with its end: time, source and text, with a space between them. At most about 25 KB.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// An event of a job on this instance, as the log has it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobRecord {
    /// One for each event.
    pub id: Uuid,
    /// The job's name.
    pub job: Arc<str>,
    /// The id of this instance.
    pub instance: Arc<str>,
    /// `DEBUG`, `INFO`, `WARN` or `ERROR`.
    pub level: &'static str,
    /// The kind of the event, as `taken-over`.
    pub kind: &'static str,
    /// The items that it concerns, as `0, 2-5`; 4000 characters at most.
    pub items: Option<String>,
    /// The due time that it concerns, or the first of several.
    pub first_due: Option<Timestamp>,
    /// The last of several due times.
    pub last_due: Option<Timestamp>,
    /// The line of the log; 4000 characters at most.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// The run of one item; sent when it starts, and again with its end.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Execution {
    /// The same at begin and end.
    pub id: Uuid,
    /// The job's name.
    pub job: Arc<str>,
    /// Java's id of the task.
    pub task_id: Arc<str>,
    /// The name of this host.
    pub hostname: Arc<str>,
    /// The server's IP.
    pub ip: Arc<str>,
    /// The item.
    pub item: u32,
    /// `NORMAL_TRIGGER`, `MISFIRE` or `FAILOVER`.
    pub source: &'static str,
    /// When it began.
    pub start: Timestamp,
    /// How it ended.
    pub end: Option<End>,
}

/// The end of an item's run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Why it failed, when it has; 4000 characters at most.
    pub failure: Option<String>,
}

/// How the items of a run stand.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// One for each event.
    pub id: Uuid,
    /// The job's name.
    pub job: Arc<str>,
    /// Java's id of the task; runs of the same items on the same instance share it.
    pub task_id: Arc<str>,
    /// The server's IP.
    pub ip: Arc<str>,
    /// The items.
    pub items: Vec<u32>,
    /// The state.
    pub state: State,
    /// What is to say of it; 4000 characters at most.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// The states of a run (Java: `JobStatusTraceEvent.State`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Its items are known.
    Staging,
    /// They begin.
    Running,
    /// All have ended well, or none could begin.
    Finished,
    /// Some failed.
    Error,
}

impl State {
    /// Java's word.
    pub fn word(self) -> &'static str {
        match self {
            State::Staging => "TASK_STAGING",
            State::Running => "TASK_RUNNING",
            State::Finished => "TASK_FINISHED",
            State::Error => "TASK_ERROR",
        }
    }
}

impl TraceEvent {
    /// About how much memory it takes, if it is a part of a log; else 0.
    pub(crate) fn log_bytes(&self) -> usize {
        if matches!(self, TraceEvent::Log(_)) { self.bytes() } else { 0 }
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let text = match self {
            TraceEvent::Execution(execution) => {
                execution.end.as_ref().and_then(|end| end.failure.as_ref()).map_or(0, String::len)
            }
            TraceEvent::Status(status) => status.message.len() + status.items.len() * size_of::<u32>(),
            TraceEvent::Log(part) => part.text.len(),
            TraceEvent::Job(record) => record.message.len() + record.items.as_ref().map_or(0, String::len),
        };
        size_of::<TraceEvent>() + text
    }
}

/// A new id. It begins with the time, so that rows come in the order of the tables' keys: random ones, as Java makes them,
/// cost the databases several times as much.
pub(crate) fn id() -> Uuid {
    Uuid::now_v7()
}

/// Items as Java prints a list.
pub(crate) fn list(items: &[u32]) -> String {
    let items: Vec<String> = items.iter().map(u32::to_string).collect();
    format!("[{}]", items.join(", "))
}

/// A text as long as the tables take it.
pub(crate) fn cut(text: &str) -> String {
    shortened(text, TEXT_MAX)
}

/// A list as long as the tables take it, without a part of an entry at its end.
pub(crate) fn cut_list(text: &str) -> String {
    let mut found = cut(text);
    if found.len() < text.len() {
        found.truncate(found.rfind(", ").unwrap_or_default());
    }
    found
}

/// The first characters, at most so many UTF-16 units. NUL, which PostgreSQL has no place for, is replaced.
pub(crate) fn shortened(text: &str, units: usize) -> String {
    let mut left = units;
    let fits = |c: &char| {
        let room = c.len_utf16() <= left;
        left = left.saturating_sub(c.len_utf16());
        room
    };
    text.chars().take_while(fits).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_as_java_counts() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "abc");
        assert_eq!(shortened("a😀b", 3), "a😀");
        assert_eq!(shortened("aa😀", 3), "aa");
        assert_eq!(shortened("aa😀b", 3), "aa", "nothing behind what did not fit");
        assert_eq!(shortened("a\0b", 3), "a\u{fffd}b");
        assert_eq!(list(&[0, 1]), "[0, 1]");
        assert_eq!(list(&[]), "[]");
        let long = (0..3_000).map(|item| (item * 2).to_string()).collect::<Vec<_>>().join(", ");
        let short = cut_list(&long);
        assert!(short.len() <= TEXT_MAX && long.starts_with(&format!("{short}, ")), "no half of a number");
        assert_eq!(cut_list("1, 2"), "1, 2");
    }
}
