//! Text of others that goes to a log or a terminal: what could steer either is written out.

/// Returns the text with control characters and changes of direction as escapes. Tabs are kept.
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        (c.is_control() && c != '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |c: char| if steers(c) { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(shown).collect()
}
