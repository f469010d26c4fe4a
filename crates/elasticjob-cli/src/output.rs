//! The terminal: data on standard output, talk on standard error.

use std::io::{IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use elasticjob::agent::printable;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::Failure;
use crate::args::Output;

/// Prints data. On a terminal what could steer it is shown instead: others wrote it into the registry.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let steers = std::io::stdout().is_terminal();
    raw(&if steers { text.split_inclusive('\n').map(printable_line).collect() } else { text.to_owned() })
}

/// Prints what we have made ourselves. A reader that has gone away, as `head`, ends the command quietly.
pub(crate) fn raw(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        Err(error) => Err(anyhow::anyhow!("cannot write to standard output: {error}").into()),
    }
}

/// Waits until the reader of a pipe on standard output has gone, as `head` does: a command that prints only what changes would
/// not notice. Never returns where standard output is no pipe.
pub(crate) async fn reader_gone() {
    // Opened again, so that what makes this handle wait leaves the one that prints as it is.
    let pipe = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/1");
    let sender = pipe.and_then(tokio::net::unix::pipe::Sender::from_file);
    match sender {
        Ok(sender) => drop(sender.ready(tokio::io::Interest::ERROR).await),
        Err(_) => std::future::pending().await,
    }
}

/// Says something to the user.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}

/// The same of a line that keeps its end.
fn printable_line(line: &str) -> String {
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    format!("{}{end}", printable(text))
}

/// Rows for people and objects for programs: the same data twice, in the same order.
#[derive(Debug)]
pub(crate) struct Listing {
    headings: &'static [&'static str],
    rows: Vec<Vec<String>>,
    objects: Vec<Value>,
}

impl Listing {
    pub(crate) fn new(headings: &'static [&'static str]) -> Listing {
        Listing { headings, rows: Vec::new(), objects: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<String>, object: Value) {
        self.rows.push(row);
        self.objects.push(object);
    }

    /// As it is printed.
    pub(crate) fn text(&self, format: Output) -> String {
        match format {
            Output::Json => format!("{}\n", Value::Array(self.objects.clone())),
            Output::Yaml if self.objects.is_empty() => "[]\n".to_owned(),
            Output::Yaml => self.objects.iter().map(|object| yaml(object, "- ")).collect(),
            Output::Table => self.table(),
        }
    }

    /// The rows alone.
    pub(crate) fn table(&self) -> String {
        table(self.headings, &self.rows)
    }

    /// The objects alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn into_objects(self) -> Vec<Value> {
        self.objects
    }
}

/// One object, for programs.
pub(crate) fn object(object: &Value, format: Output) -> String {
    match format {
        Output::Json => format!("{object}\n"),
        Output::Yaml | Output::Table => yaml(object, ""),
    }
}

/// An object, a key a line; the first begins with `mark`. Scalars and what is nested are JSON, which is YAML too.
fn yaml(object: &Value, mark: &str) -> String {
    let Value::Object(entries) = object else { return format!("{mark}{object}\n") };
    let mut text = String::new();
    for (index, (key, value)) in entries.iter().enumerate() {
        let begin = if index == 0 { mark.to_owned() } else { " ".repeat(mark.len()) };
        match value {
            Value::Array(members) if members.iter().any(Value::is_object) => {
                text.push_str(&format!("{begin}{key}:\n"));
                let inner = format!("{}- ", " ".repeat(mark.len()));
                text.extend(members.iter().map(|member| yaml(member, &inner)));
            }
            value => text.push_str(&format!("{begin}{key}: {value}\n")),
        }
    }
    text
}

/// The beginning of a text that may be long; objects have all of it.
pub(crate) fn beginning(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

const CELL_CHARS_MAX: usize = 200;

/// A cell that is not too long for a terminal: others wrote it into the registry.
fn cut(cell: &str) -> std::borrow::Cow<'_, str> {
    match cell.char_indices().nth(TABLE_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &cell[..end], cell.len()).into(),
        None => cell.into(),
    }
}

/// Characters of a cell of a table.
const TABLE_CHARS_MAX: usize = 2_000;

/// Rows under headings, no wider than the terminal: long cells are wrapped.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(headings);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(&cut(cell))));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    format!("{}\n", table.trim_fmt())
}

/// Names of jobs in a sentence: `a`, `b`.
pub(crate) fn quoted(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Asks for a yes; `--yes` gives it beforehand.
pub(crate) async fn confirm(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        let line = format!(
            "elasticjob: cannot ask for confirmation, because standard input is not a terminal; pass --yes to confirm. The question was: {question}"
        );
        return Err(Failure::Wrong(vec![line]));
    }
    {
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "{} [y/N] ", printable(question)).and_then(|()| out.flush());
    }
    // On its own thread, for which nothing waits: Ctrl-C ends the question.
    let (sender, answered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        let _ = sender.send(read.map(|_| answer));
    });
    let answer = answered.await??;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// A bar that shows how many of how many are done; only on a terminal, and only for more than one.
pub(crate) fn progress() -> impl Fn(usize, usize) + Send + Sync + 'static {
    let bar = ProgressBar::hidden();
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} jobs");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    move |done, all| {
        if done == 0 && all > 1 {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.set_length(all as u64);
        }
        bar.set_position(done as u64);
        if done == all {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_shown() {
        assert_eq!(printable("a\u{1b}[2Jb\rc\u{9b}d\u{202e}e\u{7f}"), "a\\u{1b}[2Jb\\rc\\u{9b}d\\u{202e}e\\u{7f}");
        assert_eq!(printable("Grüße, 你好 😀"), "Grüße, 你好 😀");
        assert_eq!(printable_line("a\tb\r\n"), "a\tb\\r\n");
        let rows = [vec!["a\nb".to_owned()]];
        assert_eq!(table(&["JOB"], &rows), "JOB\na\\nb\n", "a row is a line");
    }

    #[test]
    fn a_long_text_is_cut_in_a_cell() {
        assert_eq!(beginning("ä"), "ä");
        assert_eq!(beginning(&"ä".repeat(201)), format!("{}… (402 bytes)", "ä".repeat(200)));
        assert_eq!(cut(&"ä".repeat(2_000)), "ä".repeat(2_000));
        assert_eq!(cut(&"ä".repeat(100_000)), format!("{}… (200000 bytes)", "ä".repeat(2_000)));
    }

    #[test]
    fn a_listing_reads_the_same_in_each_form() {
        let mut listing = Listing::new(&["JOB", "ITEMS"]);
        listing.push(vec!["a".into(), "2".into()], json!({"jobName": "a", "items": [{"item": 0}, {"item": 1}]}));
        listing.push(vec!["b: c".into(), "0".into()], json!({"jobName": "b: c", "items": []}));
        assert_eq!(listing.text(Output::Table), "JOB   ITEMS\na     2\nb: c  0\n");
        let json = "[{\"jobName\":\"a\",\"items\":[{\"item\":0},{\"item\":1}]},{\"jobName\":\"b: c\",\"items\":[]}]\n";
        assert_eq!(listing.text(Output::Json), json);
        let text = listing.text(Output::Yaml);
        assert_eq!(text, "- jobName: \"a\"\n  items:\n  - item: 0\n  - item: 1\n- jobName: \"b: c\"\n  items: []\n");
        assert!(elasticjob_core::wire::yaml::parse(&text).is_ok(), "it is YAML");
        assert_eq!(Listing::new(&["JOB"]).text(Output::Yaml), "[]\n");
    }
}
