//! The tables, for readers and for programs.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::bail;
use serde::Serialize;
use serde_json::Value;

use crate::bare::Bare;
use crate::firings::{Figures, HEAD};
use crate::floor::Floor;
use crate::list::Listed;
use crate::scale::Scale;
use crate::single::{Churn, Cold, Idle, OneOff, Storm, Takeover};
use crate::tell;
use crate::trace::Traced;

/// Everything that was measured.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    pub(crate) floor: Vec<Floor>,
    pub(crate) bare: Vec<Bare>,
    pub(crate) firings: Vec<Figures>,
    pub(crate) one_off: Vec<OneOff>,
    pub(crate) takeover: Vec<Takeover>,
    pub(crate) storm: Vec<Storm>,
    pub(crate) idle: Vec<Idle>,
    pub(crate) cold: Vec<Cold>,
    pub(crate) churn: Vec<Churn>,
    pub(crate) list: Vec<Listed>,
    pub(crate) trace: Vec<Traced>,
    pub(crate) scale: Vec<Scale>,
    not_run: Vec<(String, String)>,
    failed: Vec<(String, String)>,
}

impl Report {
    /// Java is not measured in that row.
    pub(crate) fn not_run(&mut self, row: &str, why: &str) {
        self.not_run.push((row.to_owned(), why.to_owned()));
    }

    /// A row came to nothing; the others go on.
    pub(crate) fn failed(&mut self, row: &str, error: &anyhow::Error) {
        tell(&format!("{row}: {error:#}"));
        self.failed.push((row.to_owned(), format!("{error:#}")));
    }

    /// An error where a row came to nothing.
    pub(crate) fn result(&self) -> anyhow::Result<()> {
        match self.failed.as_slice() {
            [] => Ok(()),
            [(row, error), ..] => bail!("{} rows came to nothing; the first one is {row}: {error}", self.failed.len()),
        }
    }

    /// Writes both files.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::write(folder.join("report.json"), serde_json::to_string_pretty(self)?)?;
        std::fs::write(folder.join("report.md"), self.markdown())?;
        Ok(())
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.firings.is_empty() {
            table(&mut text, "Jobs that fire each second", &HEAD, self.firings.iter().map(Figures::cells));
        }
        values(
            &mut text,
            "The floor of this host: a write after the other, writes in transactions of 100, timers",
            &self.floor,
        );
        values(
            &mut text,
            "The transactions of jobs that fire each second, without a scheduler around them",
            &self.bare,
        );
        values(&mut text, "One-off runs, one after the other", &self.one_off);
        values(&mut text, "Takeover after kill -9", &self.takeover);
        values(&mut text, "An instance joins, and dies", &self.storm);
        values(&mut text, "Jobs that fire hourly, at rest", &self.idle);
        values(&mut text, "A start", &self.cold);
        values(&mut text, "Jobs that are started, stopped and removed", &self.churn);
        values(&mut text, "A list of jobs", &self.list);
        values(&mut text, "The event trace (SQLite)", &self.trace);
        values(&mut text, "One job on a thousand instances", &self.scale);
        for (title, rows) in [("Java was not run", &self.not_run), ("Came to nothing", &self.failed)] {
            for (at, (row, why)) in rows.iter().enumerate() {
                let _ =
                    writeln!(text, "{}- {row}: {why}", if at == 0 { format!("{title}:\n\n") } else { String::new() });
            }
            if !rows.is_empty() {
                text.push('\n');
            }
        }
        text
    }
}

fn table(text: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(text, "{title}:\n\n| {} |\n|{}", head.join(" | "), " --- |".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
}

/// A table with a column for each field.
fn values<T: Serialize>(text: &mut String, title: &str, rows: &[T]) {
    let rows: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    let Some(Value::Object(first)) = rows.first() else { return };
    let names: Vec<String> = first.keys().map(|name| name.replace('_', " ")).collect();
    let head: Vec<&str> = names.iter().map(String::as_str).collect();
    let cells = rows.iter().map(|row| row.as_object().into_iter().flat_map(|row| row.values().map(cell)).collect());
    table(text, title, &head, cells);
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}
