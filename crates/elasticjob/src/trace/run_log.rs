//! The log of one run of an item: the output of its script, and what its code logs, in parts that go into the event trace.
//!
//! The first lines are recorded as they come, the last ones at the end; what is between them is counted. Nothing here waits: the
//! queue of the trace takes the parts, or drops them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use elasticjob_core::time::Timestamp;
use parking_lot::Mutex;
use uuid::Uuid;

use super::bus::Bus;
use super::event::{self, LogPart, TraceEvent};
use crate::clock;
use crate::contract::RunLines;
use crate::contract::trace::RunLogs;
use crate::printable::printable;

/// Bytes of a part.
const PART_BYTES: usize = 16 * 1024;
/// Bytes of a line.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// A part that is not full is recorded after this time, so that a reader sees the lines of a run under way.
const LINGER: Duration = Duration::from_secs(1);
/// The source of lines that this module adds.
const OWN: &str = "elasticjob";

/// Takes the lines of one run.
pub(crate) struct RunLog {
    me: Weak<RunLog>,
    bus: Arc<Bus>,
    execution: Uuid,
    job: Arc<str>,
    item: u32,
    /// Bytes that are recorded: half of them for the first lines, half for the last ones.
    bytes: usize,
    /// Whether the parts of a run that succeeds are recorded, too.
    all: bool,
    /// Code of a job may log on a thread of its own.
    runtime: tokio::runtime::Handle,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    ended: bool,
    /// Number of the next part.
    part: u32,
    /// Bytes of the first lines, with those that are recorded.
    head_bytes: usize,
    pending: String,
    /// Whether a task waits to record what is pending.
    lingers: bool,
    /// The last lines, if the first ones have used up their bytes.
    tail: VecDeque<String>,
    tail_bytes: usize,
    skipped: u64,
}

impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunLog")
    }
}

impl RunLog {
    /// The log of a run; `None` if nothing of it is recorded.
    pub(super) fn new(
        bus: &Arc<Bus>,
        execution: &event::Execution,
        what: RunLogs,
        bytes: usize,
    ) -> Option<Arc<RunLog>> {
        let all = match what {
            RunLogs::Off => return None,
            RunLogs::Failed => false,
            RunLogs::All => true,
        };
        Some(Arc::new_cyclic(|me| RunLog {
            me: me.clone(),
            bus: Arc::clone(bus),
            execution: execution.id,
            job: Arc::clone(&execution.job),
            item: execution.item,
            bytes,
            all,
            runtime: tokio::runtime::Handle::current(),
            lines: Mutex::default(),
        }))
    }

    fn take_text(&self, source: &str, text: &str) {
        let at = clock::now();
        let mut lines = self.lines.lock();
        if lines.ended {
            return; // a process in the background still writes
        }
        // An empty text is an empty line.
        let text = if text.is_empty() { "\n" } else { text };
        for line in text.lines() {
            self.take(&mut lines, formatted(at, source, line));
        }
        if self.all && !lines.pending.is_empty() && !lines.lingers {
            lines.lingers = true;
            self.runtime.spawn(linger(self.me.clone()));
        }
    }

    fn take(&self, lines: &mut Lines, line: String) {
        let half = self.bytes / 2;
        if lines.tail.is_empty() && lines.head_bytes + line.len() <= half {
            lines.head_bytes += line.len();
            lines.pending.push_str(&line);
            if self.all && lines.pending.len() >= PART_BYTES {
                self.record(lines);
            }
            return;
        }
        if lines.tail.is_empty() && self.all {
            let note = "… further lines are held back; the last ones follow when the run ends";
            lines.pending.push_str(&formatted(clock::now(), OWN, note));
        }
        lines.tail_bytes += line.len();
        lines.tail.push_back(line);
        while lines.tail_bytes > half && lines.tail.len() > 1 {
            let first = lines.tail.pop_front().unwrap_or_default();
            lines.tail_bytes -= first.len();
            lines.skipped += 1;
        }
    }

    /// Records what is pending.
    fn record(&self, lines: &mut Lines) {
        let text = std::mem::take(&mut lines.pending);
        if text.is_empty() {
            return;
        }
        self.bus.post(TraceEvent::Log(LogPart {
            id: event::id(),
            execution: self.execution,
            job: Arc::clone(&self.job),
            item: self.item,
            part: lines.part,
            text,
            at: clock::now(),
        }));
        lines.part += 1;
    }

    /// The run has ended: records the rest, if it is to be recorded. Lines that come later are dropped.
    pub(super) fn end(&self, failure: Option<&str>) {
        let mut lines = self.lines.lock();
        lines.ended = true;
        if failure.is_none() && !self.all {
            lines.pending = String::new();
            lines.tail = VecDeque::new();
            return;
        }
        if lines.skipped > 0 {
            let note = format!("… {} lines are not recorded; `elasticjob.run.log.bytes` sets the limit", lines.skipped);
            lines.pending.push_str(&formatted(clock::now(), OWN, &note));
        }
        // Parts end with a line.
        let mut rest = std::mem::take(&mut lines.pending);
        rest.extend(std::mem::take(&mut lines.tail));
        rest.extend(
            failure.map(|text| {
                formatted(clock::now(), OWN, &format!("failed: {}", text.lines().next().unwrap_or_default()))
            }),
        );
        for line in rest.split_inclusive('\n') {
            lines.pending.push_str(line);
            if lines.pending.len() >= PART_BYTES {
                self.record(&mut lines);
            }
        }
        self.record(&mut lines);
    }
}

impl RunLines for RunLog {
    fn write(&self, source: &str, text: &str) {
        self.take_text(source, text);
    }
}

async fn linger(log: Weak<RunLog>) {
    clock::sleep(LINGER).await;
    let Some(log) = log.upgrade() else { return };
    let mut lines = log.lines.lock();
    lines.lingers = false;
    if !lines.ended {
        log.record(&mut lines);
    }
}

/// A line as it is stored: time, source, text.
fn formatted(at: Timestamp, source: &str, line: &str) -> String {
    let text = printable(&line[..line.floor_char_boundary(LINE_BYTES_MAX)]);
    let end = text.floor_char_boundary(LINE_BYTES_MAX);
    let is_cut = end < text.len() || line.len() > LINE_BYTES_MAX;
    let cut = if is_cut { format!("… (cut: the line has {} bytes)", line.len()) } else { String::new() };
    format!("{at} {source} {}{cut}\n", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::super::{Execution, TraceError, TraceSink};
    use super::*;

    /// Keeps what is written.
    struct Kept(Arc<Mutex<Vec<TraceEvent>>>);

    impl TraceSink for Kept {
        async fn write(&mut self, events: &[TraceEvent]) -> Result<(), TraceError> {
            self.0.lock().extend_from_slice(events);
            Ok(())
        }

        fn describe(&self) -> String {
            "a test".into()
        }
    }

    struct Trial {
        bus: Arc<Bus>,
        kept: Arc<Mutex<Vec<TraceEvent>>>,
    }

    impl Trial {
        fn new() -> Trial {
            let kept: Arc<Mutex<Vec<TraceEvent>>> = Arc::default();
            Trial { bus: Arc::new(Bus::start(Box::new(Kept(Arc::clone(&kept))))), kept }
        }

        fn log(&self, what: RunLogs, bytes: usize) -> Option<Arc<RunLog>> {
            let execution = Execution {
                id: Uuid::from_u128(7),
                job: "a".into(),
                task_id: "t".into(),
                hostname: "h".into(),
                ip: "10.0.0.1".into(),
                item: 3,
                source: "NORMAL_TRIGGER",
                start: Timestamp(0),
                end: None,
            };
            RunLog::new(&self.bus, &execution, what, bytes)
        }

        /// The parts, each as its lines without their times.
        async fn parts(&self) -> Vec<Vec<String>> {
            self.bus.flush().await;
            let mut next = 0;
            let parts = self.kept.lock().drain(..).collect::<Vec<_>>();
            let lines = parts.into_iter().map(|event| {
                let TraceEvent::Log(part) = event else { panic!("{event:?}") };
                assert_eq!((part.execution, part.item, part.part), (Uuid::from_u128(7), 3, next));
                next += 1;
                part.text.lines().map(|line| line.split_once(' ').expect("a time").1.to_owned()).collect()
            });
            lines.collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_succeeds_is_recorded_only_if_all_are() {
        for (what, failed, expected) in [
            (
                RunLogs::Failed,
                true,
                Some(vec![vec!["stdout one", "stderr two", "stderr three", "stdout ", "elasticjob failed: why"]]),
            ),
            (RunLogs::Failed, false, Some(vec![])),
            (
                RunLogs::All,
                true,
                Some(vec![vec!["stdout one", "stderr two", "stderr three", "stdout ", "elasticjob failed: why"]]),
            ),
            (RunLogs::All, false, Some(vec![vec!["stdout one", "stderr two", "stderr three", "stdout "]])),
            (RunLogs::Off, true, None),
        ] {
            let trial = Trial::new();
            let log = trial.log(what, 1_024);
            assert_eq!(log.is_some(), expected.is_some(), "{what:?}");
            let (Some(log), Some(expected)) = (log, expected) else { continue };
            log.write("stdout", "one");
            log.write("stderr", "two\nthree");
            log.write("stdout", "");
            log.end(failed.then_some("why\nat once"));
            log.write("stdout", "late");
            assert_eq!(trial.parts().await, expected, "{what:?} {failed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_lines_of_a_run_under_way_are_recorded_after_a_second() {
        let trial = Trial::new();
        let log = trial.log(RunLogs::All, 1_024).expect("a log");
        log.write("stdout", "one");
        clock::sleep(Duration::from_millis(900)).await;
        log.write("stdout", "two");
        assert!(trial.parts().await.is_empty(), "it waits for more");
        clock::sleep(Duration::from_millis(200)).await;
        assert_eq!(trial.parts().await, [["stdout one", "stdout two"]]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_and_the_last_lines_are_recorded_within_the_bytes_and_the_others_counted() {
        let trial = Trial::new();
        for what in [RunLogs::All, RunLogs::Failed] {
            let log = trial.log(what, 2_000).expect("a log");
            (0..500).for_each(|number| log.write("stdout", &format!("line {number:03}")));
            log.end(Some("why"));
            let lines = trial.parts().await.concat();
            let outputs: Vec<&String> = lines.iter().filter(|line| line.starts_with("stdout")).collect();
            let bytes = "2026-03-29T00:00:00.000Z stdout line 000\n".len() * outputs.len();
            assert!((1_900..=2_000).contains(&bytes), "{bytes}");
            assert_eq!(outputs.first().map(|line| line.as_str()), Some("stdout line 000"));
            assert_eq!(outputs.last().map(|line| line.as_str()), Some("stdout line 499"));
            let note = format!(
                "elasticjob … {} lines are not recorded; `elasticjob.run.log.bytes` sets the limit",
                500 - outputs.len()
            );
            assert_eq!(lines.iter().filter(|line| **line == note).count(), 1, "{lines:?}");
            let held = lines.iter().filter(|line| line.contains("held back")).count();
            assert_eq!(held, usize::from(what == RunLogs::All));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_logs_come_in_parts_and_long_lines_are_cut() {
        let trial = Trial::new();
        let log = trial.log(RunLogs::All, 1_024 * 1_024).expect("a log");
        (0..1_000).for_each(|number| log.write("INFO", &format!("line {number} {}", "x".repeat(90))));
        log.write("stdout", &"ü".repeat(10_000));
        log.write("stdout", "\u{1b}[31mred");
        log.end(None);
        let parts = trial.parts().await;
        assert!((6..=12).contains(&parts.len()), "{}", parts.len());
        let lines = parts.concat();
        assert_eq!(lines.len(), 1_002);
        assert!(lines[1_000].ends_with("ü… (cut: the line has 20000 bytes)"));
        assert_eq!(lines[1_001], "stdout \\u{1b}[31mred");
    }
}
