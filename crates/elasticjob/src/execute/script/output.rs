//! The output of a script: copied to the log within bounds, the first lines immediately and the last ones, with the error, at the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::oneshot;

use crate::clock;
use crate::contract::RunLines;
use crate::printable::printable;

/// Bytes of a line that go to the log.
const LINE_BYTES_MAX: usize = 4_096;
/// Lines that are kept for the end, at most.
const TAIL_MAX: u64 = 100;
/// Lines of standard error that a failure quotes, and the characters of them all.
const QUOTED_LINES: usize = 5;
const QUOTED_CHARS: usize = 1_000;

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Error,
}

impl Stream {
    fn word(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Error => "stderr",
        }
    }
}

/// The last lines of standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Keeps a line, unless it is blank.
    fn push(&self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        let mut lines = self.0.lock();
        if lines.len() == QUOTED_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The failure with what the script said of it.
    pub(super) fn explain(&self, failure: &str) -> String {
        let text = self.0.lock().iter().cloned().collect::<Vec<_>>().join(" | ");
        if text.is_empty() {
            return failure.to_owned();
        }
        let skipped = text.chars().count().saturating_sub(QUOTED_CHARS);
        let cut = if skipped > 0 { "…" } else { "" };
        let text: String = text.chars().skip(skipped).collect();
        format!("{failure}; last lines of standard error: {cut}{text}")
    }
}

/// Copies output to the log.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) job: Arc<str>,
    pub(super) item: Option<u32>,
    /// Lines of each stream that go to the log.
    pub(super) lines: u64,
    pub(super) last: LastLines,
    /// The log of the run.
    pub(super) log: Option<Arc<dyn RunLines>>,
}

/// A stream that is copied by a task of its own.
pub(super) struct Copying {
    ended: oneshot::Receiver<()>,
    give_up: oneshot::Sender<()>,
}

impl Copying {
    /// The script has ended: waits until the rest of its output is shown, or until that time is over, since a process in the background
    /// may keep the stream open. What such a process writes later is read and dropped: without a reader it would be killed by
    /// SIGPIPE.
    pub(super) async fn end(mut self, limit: Duration) {
        if clock::within(limit, &mut self.ended).await.is_none() {
            drop(self.give_up);
            let _ = self.ended.await; // what was read is shown
        }
    }
}

impl Output {
    /// Starts to copy a stream.
    pub(super) fn copying(self, stream: Stream, output: impl AsyncRead + Send + Unpin + 'static) -> Copying {
        let ((end, ended), (give_up, given_up)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(async move {
            let mut reader = BufReader::new(output);
            tokio::select! {
                () = self.copy(stream, &mut reader) => {}
                _ = given_up => {} // also if the run was dropped
            }
            let _ = end.send(());
            let _ = tokio::io::copy_buf(&mut reader, &mut tokio::io::sink()).await;
        });
        Copying { ended, give_up }
    }

    /// Line by line, up to a bound. What is beyond is read and counted, so that the script is never held up, and its last lines
    /// are shown at the end.
    async fn copy(self, stream: Stream, reader: &mut (impl AsyncBufRead + Unpin)) {
        let mut shown = Shown::new(self, stream);
        let (mut line, mut length) = (Vec::new(), 0);
        while let Ok(chunk) = reader.fill_buf().await {
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|b| *b == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            let content = end.unwrap_or(taken);
            let room = LINE_BYTES_MAX.saturating_sub(line.len());
            line.extend_from_slice(&chunk[..content.min(room)]);
            length += content;
            reader.consume(taken);
            if end.is_some() {
                shown.line(&line, length);
                line.clear();
                length = 0;
            }
        }
        if !line.is_empty() {
            shown.line(&line, length);
        }
        // Dropped here, or when the reading is abandoned: the last lines are shown in both cases.
    }
}

struct Shown {
    output: Output,
    stream: Stream,
    count: u64,
    head: u64,
    tail: u64,
    held: VecDeque<String>,
}

impl Shown {
    fn new(output: Output, stream: Stream) -> Shown {
        let tail = TAIL_MAX.min(output.lines / 2);
        Shown { head: output.lines - tail, output, stream, count: 0, tail, held: VecDeque::new() }
    }

    fn line(&mut self, line: &[u8], length: usize) {
        let cut = if length > line.len() { format!("… (cut: the line has {length} bytes)") } else { String::new() };
        let text = format!("{}{cut}", printable(&String::from_utf8_lossy(line)));
        if self.stream == Stream::Error {
            self.output.last.push(text.clone());
        }
        if let Some(log) = &self.output.log {
            log.write(self.stream.word(), &text);
        }
        self.count += 1;
        if self.count <= self.head {
            return self.tell(&text);
        }
        if self.tail == 0 {
            return;
        }
        if self.held.is_empty() {
            self.tell("… omitting further output; its last lines follow when the script ends");
        }
        if self.held.len() as u64 == self.tail {
            self.held.pop_front();
        }
        self.held.push_back(text);
    }

    fn tell(&self, text: &str) {
        tracing::info!(job = &*self.output.job, item = self.output.item, stream = self.stream.word(), "{text}");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let skipped = self.count.saturating_sub(self.head + self.held.len() as u64);
        if skipped > 0 {
            let stream = self.stream.word();
            tracing::warn!(
                job = &*self.output.job,
                item = self.output.item,
                stream,
                omitted = skipped,
                "omitted lines of output; `elasticjob.script.output.lines` sets the limit"
            );
        }
        for text in std::mem::take(&mut self.held) {
            self.tell(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: u64) -> Shown {
        let output = Output { job: "a".into(), item: None, lines, last: LastLines::default(), log: None };
        Shown::new(output, Stream::Error)
    }

    #[test]
    fn head_and_tail_come_to_the_bound() {
        for (bound, head, tail) in
            [(0, 0, 0), (1, 1, 0), (2, 1, 1), (7, 4, 3), (1_000, 900, 100), (1_000_000, 999_900, 100)]
        {
            let shown = shown(bound);
            assert_eq!((shown.head, shown.tail), (head, tail), "{bound}");
        }
    }

    #[test]
    fn the_last_lines_are_held_and_quoted_and_long_ones_are_marked() {
        let mut shown = shown(4);
        for number in 0..10 {
            shown.line(format!("line {number}").as_bytes(), 6);
        }
        assert_eq!(shown.held, ["line 8", "line 9"]);
        shown.line(b"xy", 5_000);
        assert_eq!(shown.held.back().map(String::as_str), Some("xy… (cut: the line has 5000 bytes)"));
        shown.line(b"  ", 2);
        shown.line(b"\x1b[31mred\x07", 9);
        assert_eq!(shown.held.back().map(String::as_str), Some("\\u{1b}[31mred\\u{7}"));
        let text = shown.output.last.explain("exit code 3");
        assert!(
            text.starts_with("exit code 3; last lines of standard error: line 7 | line 8 | line 9 | xy…"),
            "{text}"
        );
        assert_eq!(LastLines::default().explain("exit code 3"), "exit code 3");
        shown.line(&[b'z'; 3_000], 3_000);
        assert!(shown.output.last.explain("x").chars().count() < 1_100);
    }
}
