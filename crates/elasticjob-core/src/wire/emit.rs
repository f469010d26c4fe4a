//! The scalars of a stored configuration as SnakeYAML 2.2 writes them, so that a document that Java wrote and one that we
//! wrote are the same bytes.

use super::yaml::{Typed, resolve};

/// SnakeYAML starts a new line at the first space after this column.
const WIDTH: usize = 80;
/// A key of at most this many characters, its tag included, is written before its colon.
const SIMPLE_KEY_MAX: usize = 127;
/// The lengths of SnakeYAML's tags of texts and of bytes.
const TEXT_TAG: usize = "!!str".len();
const BINARY_TAG: usize = "!!binary".len();

/// Appends `key: text` and a line end, `indent` spaces deep.
pub(super) fn text_entry(out: &mut String, indent: usize, key: &str, text: &str) {
    let line_start = out.len();
    out.push_str(&" ".repeat(indent));
    if is_simple_key(key) {
        simple_key(out, key);
    } else {
        // A key that is long, empty or has line breaks is written after a question mark.
        out.push_str("? ");
        scalar(out, key, indent + 2, indent + 2);
        out.push('\n');
        out.push_str(&" ".repeat(indent));
    }
    out.push_str(": ");
    let column = out[line_start..].lines().last().unwrap_or_default().chars().count();
    scalar(out, text, column, indent + 2);
    out.push('\n');
}

/// Appends `- text` and a line end.
pub(super) fn list_member(out: &mut String, text: &str) {
    out.push_str("- ");
    scalar(out, text, 2, 2);
    out.push('\n');
}

fn is_simple_key(key: &str) -> bool {
    let length = match key.chars().any(is_unprintable) {
        true => BINARY_TAG + base64(key).len(),
        false => TEXT_TAG + key.chars().count(),
    };
    let breaks = key.contains(['\n', '\u{85}', '\u{2028}', '\u{2029}']) && !key.chars().any(is_unprintable);
    !key.is_empty() && !breaks && length <= SIMPLE_KEY_MAX
}

/// A key is never folded, and bytes are quoted in one line.
fn simple_key(out: &mut String, key: &str) {
    if key.chars().any(is_unprintable) {
        out.push_str(&format!("!!binary \"{}\"", base64(key)));
    } else if needs_escapes(key) {
        escaped(out, key);
    } else if is_plain(key) {
        out.push_str(key);
    } else {
        out.push_str(&format!("'{}'", key.replace('\'', "''")));
    }
}

fn scalar(out: &mut String, text: &str, column: usize, indent: usize) {
    if text.chars().any(is_unprintable) {
        binary(out, text, indent);
    } else if needs_escapes(text) {
        escaped(out, text);
    } else if text.contains('\n') {
        literal(out, text, indent);
    } else if is_plain(text) {
        folded(out, text, column, indent);
    } else {
        let quoted = format!("'{}'", text.replace('\'', "''"));
        folded(out, &quoted, column, indent);
    }
}

/// Returns the first character that a stored text cannot hold: SnakeYAML writes such a text as `!!binary`, and reads it back as
/// base64.
pub(crate) fn unstorable(text: &str) -> Option<char> {
    text.chars().find(|c| is_unprintable(*c))
}

/// Characters for which SnakeYAML writes `!!binary` instead of text.
fn is_unprintable(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}')
        || matches!(c, '\u{fffe}' | '\u{ffff}')
}

fn needs_escapes(text: &str) -> bool {
    let special = |c: char| matches!(c, '\t' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    text.contains(special) || text.contains(" \n") || (text.contains('\n') && text.trim_matches('\n').is_empty())
}

fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    if text == "=" {
        return true;
    }
    if resolve(text) != Typed::Text || text == "<<" {
        return false;
    }
    let indicator = match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
        '-' | '?' | ':' => text[first.len_utf8()..].chars().next().is_none_or(|c| c == ' '),
        _ => false,
    };
    let document = text.starts_with("---") || text.starts_with("...");
    let spaced = first == ' ' || text.ends_with(' ');
    !indicator && !document && !spaced && !text.contains(": ") && !text.contains(" #") && !text.ends_with(':')
}

/// Breaks at single spaces once the column is past the width.
fn folded(out: &mut String, text: &str, mut column: usize, indent: usize) {
    let quoted = text.starts_with('\'');
    let chars: Vec<char> = text.chars().collect();
    for (index, c) in chars.iter().enumerate() {
        let single = *c == ' '
            && index > usize::from(quoted)
            && index + 1 + usize::from(quoted) < chars.len()
            && chars[index - 1] != ' '
            && chars[index + 1] != ' ';
        if single && column > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            out.push(*c);
            column += 1;
        }
    }
}

fn literal(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    let trailing = text.len() - text.trim_end_matches('\n').len();
    match trailing {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    let body = if trailing == 0 { text } else { &text[..text.len() - 1] };
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent));
            out.push_str(line);
        }
    }
}

fn escaped(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{85}' => out.push_str("\\N"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            '\u{feff}' => out.push_str("\\uFEFF"),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn binary(out: &mut String, text: &str, indent: usize) {
    out.push_str("!!binary |-\n");
    out.push_str(&" ".repeat(indent));
    out.push_str(&base64(text));
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let word = chunk.iter().fold(0_u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As SnakeYAML 2.2 of Java 3.0.4 writes them.
    #[test]
    fn keys_are_written_as_by_java() {
        let entry = |key: &str| {
            let mut out = String::new();
            text_entry(&mut out, 2, key, "v w");
            out
        };
        for (key, expected) in [
            ("a", "  a: v w\n".to_owned()),
            (" lead", "  ' lead': v w\n".to_owned()),
            ("a: b", "  'a: b': v w\n".to_owned()),
            ("a\tb", "  \"a\\tb\": v w\n".to_owned()),
            ("a\rb", "  \"a\\rb\": v w\n".to_owned()),
            ("a\u{1}b", "  !!binary \"YQFi\": v w\n".to_owned()),
            ("", "  ? ''\n  : v w\n".to_owned()),
            ("a\nb", "  ? |-\n    a\n    b\n  : v w\n".to_owned()),
            ("a b\n", "  ? |\n    a b\n  : v w\n".to_owned()),
            (&"x".repeat(122), format!("  {}: v\n    w\n", "x".repeat(122))),
            (&"x".repeat(123), format!("  ? {}\n  : v w\n", "x".repeat(123))),
            (
                &format!("{}z", "y ".repeat(70)),
                format!("  ? {}y\n    {}z\n  : v w\n", "y ".repeat(38), "y ".repeat(31)),
            ),
            (&"\u{1}".repeat(87), format!("  !!binary \"{}\": v\n    w\n", "AQEB".repeat(29))),
            (&"\u{1}".repeat(90), format!("  ? !!binary |-\n    {}\n  : v w\n", "AQEB".repeat(30))),
        ] {
            assert_eq!(entry(key), expected, "{key:?}");
        }
    }
}
