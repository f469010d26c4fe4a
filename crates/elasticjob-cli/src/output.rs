//! The terminal: data on standard output, talk on standard error.

use std::io::Write;

/// Prints data.
pub(crate) fn data(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says something to the user.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Rows under headings, as wide as they must be.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(headings.to_vec());
    rows.iter().for_each(|row| text.push_str(&line(row.iter().map(String::as_str).collect())));
    text
}
