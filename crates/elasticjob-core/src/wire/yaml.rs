//! A YAML text as a tree that keeps the place of each value, and Java's (YAML 1.1) reading of plain scalars.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Yaml {
    /// What it is.
    pub value: Value,
    /// Its explicit tag, as `tag:yaml.org,2002:org.foo.Bar`.
    pub tag: Option<String>,
    /// Where it begins.
    pub at: Position,
}

/// A place in the text, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// The shapes of YAML.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A scalar; `plain` when it was not quoted, so that it may be a number or a truth value.
    Scalar {
        /// The text.
        text: String,
        /// Whether it was written without quotes.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Yaml>),
    /// A mapping, in the order of the text; of equal keys the last one counts.
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// The place of the key.
    pub at: Position,
    /// The bytes of the text where the key begins.
    pub start: usize,
    /// The value.
    pub value: Yaml,
}

/// What a plain scalar is to SnakeYAML.
#[derive(Clone, Debug, PartialEq)]
pub enum Typed {
    /// `~`, `null`, nothing.
    Null,
    /// `true`, `yes`, `on` and their opposites.
    Bool(bool),
    /// A whole number: decimal, octal with a leading 0, `0x`, `0b`, base 60, with `_`.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A date or a moment.
    Date,
    /// A text.
    Text,
}

/// Why a text is not one YAML document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not YAML at line {}, column {}: {reason}", at.line, at.column)]
pub struct YamlError {
    /// Where.
    pub at: Position,
    /// What the parser says.
    pub reason: String,
}

/// Depth and size that are read at the most: aliases can make a small text a large tree.
const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 200_000;
/// Text that aliases and anchors may repeat, in bytes.
const REPEATED_MAX: usize = 4 * 1024 * 1024;

/// Reads the one document of a text; an empty text is an empty mapping.
///
/// # Errors
///
/// Bad syntax, a second document, a key that is no scalar, or a tree that is too deep or too large.
pub fn parse(text: &str) -> Result<Yaml, YamlError> {
    parse_with_duplicates(text).map(|(root, _)| root)
}

/// A key that its mapping has twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicate {
    /// The key's text.
    pub key: String,
    /// The place of the second one, which counts.
    pub at: Position,
    /// The first one, which is left out.
    pub first: Entry,
}

/// The same, with the keys that a mapping has twice.
///
/// # Errors
///
/// As of [`parse`].
pub fn parse_with_duplicates(text: &str) -> Result<(Yaml, Vec<Duplicate>), YamlError> {
    let parser = Parser::new_from_str(text);
    let mut reader = Reader { parser, anchors: HashMap::new(), nodes: 0, repeated: 0, duplicates: Vec::new() };
    let mut root = None;
    while let Some((event, at, start)) = reader.next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd | Event::Comment(..) => {}
            Event::StreamEnd => break,
            _ if root.is_some() => {
                return Err(YamlError { at, reason: "expected one document, found a second one".into() });
            }
            event => root = Some(reader.node(event, at, start, 0)?),
        }
    }
    let empty = Yaml { value: Value::Map(Vec::new()), tag: None, at: Position { line: 1, column: 1 } };
    Ok((root.unwrap_or(empty), reader.duplicates))
}

impl Yaml {
    /// The entries of a mapping.
    pub fn map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Scalar { .. } | Value::List(_) => None,
        }
    }

    /// The members of a sequence.
    pub fn list(&self) -> Option<&[Yaml]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Scalar { .. } | Value::Map(_) => None,
        }
    }

    /// What a scalar is to Java; `None` for the other shapes.
    pub fn typed(&self) -> Option<Typed> {
        match &self.value {
            Value::Scalar { text, plain: true } if self.tag.is_none() => Some(resolve(text)),
            Value::Scalar { .. } => Some(Typed::Text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The scalar's text as written; `None` for the other shapes.
    pub fn raw(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Whether it is nothing: `~`, `null` or no value at all.
    pub fn is_null(&self) -> bool {
        self.typed() == Some(Typed::Null)
    }

    /// One line that shows the value in a message.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Scalar { text, .. } if text.chars().count() > 60 => {
                format!("{}…", text.chars().take(60).collect::<String>())
            }
            Value::Scalar { text, .. } => text.clone(),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
        }
    }
}

/// SnakeYAML's implicit types of a plain scalar (YAML 1.1).
pub fn resolve(text: &str) -> Typed {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Typed::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Typed::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Typed::Bool(false),
        _ => {}
    }
    if let Some(int) = parse_int(text) {
        return Typed::Int(int);
    }
    if let Some(float) = parse_float(text) {
        return Typed::Float(float);
    }
    if is_date(text) { Typed::Date } else { Typed::Text }
}

fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let clean = digits.replace('_', "");
    let value = if let Some(hex) = clean.strip_prefix("0x") {
        i64::from_str_radix(hex, 16).ok()?
    } else if let Some(binary) = clean.strip_prefix("0b") {
        i64::from_str_radix(binary, 2).ok()?
    } else if clean.contains(':') {
        clean.split(':').try_fold(0_i64, |sum, part| {
            let part: i64 = part.parse().ok().filter(|p| (0..=59).contains(p) || sum == 0)?;
            sum.checked_mul(60)?.checked_add(part)
        })?
    } else if clean.len() > 1 && clean.starts_with('0') {
        i64::from_str_radix(&clean[1..], 8).ok()?
    } else if clean.bytes().all(|b| b.is_ascii_digit()) {
        clean.parse().ok()?
    } else {
        return None;
    };
    Some(if negative { -value } else { value })
}

fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match unsigned {
        ".inf" | ".Inf" | ".INF" => {
            return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    let looks = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.contains(['.', 'e', 'E']);
    if looks {
        unsigned.replace('_', "").parse().ok().map(|f: f64| if text.starts_with('-') { -f } else { f })
    } else {
        None
    }
}

fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let digits = |part: Option<&str>, lengths: Range<usize>| {
        part.is_some_and(|p| lengths.contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit()))
    };
    if !digits(parts.next(), 4..5) || !digits(parts.next(), 1..3) {
        return false;
    }
    let day = parts.next().unwrap_or_default();
    let end = day.find(['T', 't', ' ']).unwrap_or(day.len());
    digits(Some(&day[..end]), 1..3) && (end == day.len() || day[end + 1..].contains(':'))
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Yaml>,
    nodes: usize,
    repeated: usize,
    duplicates: Vec<Duplicate>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Position, usize)>, YamlError> {
        match self.parser.next() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                let at = Position { line: span.start.line(), column: span.start.col() + 1 };
                Ok(Some((event, at, span.start.byte_offset().unwrap_or_default())))
            }
            Some(Err(error)) => {
                let marker = error.marker();
                let at = Position { line: marker.line(), column: marker.col() + 1 };
                Err(YamlError { at, reason: error.info() })
            }
        }
    }

    fn following(&mut self) -> Result<(Event<'a>, Position, usize), YamlError> {
        loop {
            match self.next()? {
                Some((Event::Comment(..), ..)) => {}
                Some(next) => return Ok(next),
                None => return Err(YamlError { at: Position::default(), reason: "the text ends too early".into() }),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, at: Position, _start: usize, depth: usize) -> Result<Yaml, YamlError> {
        self.nodes += 1;
        self.check_size(depth, at)?;
        let (yaml, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = Value::Scalar { text: text.into_owned(), plain };
                (Yaml { value, tag: tag.map(|t| full_tag(&t)), at }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                let mut items = Vec::new();
                loop {
                    match self.following()? {
                        (Event::SequenceEnd, ..) => break,
                        (event, at, start) => items.push(self.node(event, at, start, depth + 1)?),
                    }
                }
                (Yaml { value: Value::List(items), tag: tag.map(|t| full_tag(&t)), at }, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                let entries = self.entries(depth)?;
                (Yaml { value: Value::Map(entries), tag: tag.map(|t| full_tag(&t)), at }, anchor)
            }
            Event::Alias(anchor) => {
                let found = self.anchors.get(&anchor);
                let found = found.ok_or_else(|| YamlError { at, reason: "an alias of an unknown anchor".into() })?;
                let (nodes, bytes) = size(found);
                self.nodes += nodes;
                self.repeated += bytes;
                self.check_size(depth, at)?;
                let copy = self.anchors.get(&anchor).cloned();
                return Ok(
                    copy.map_or(Yaml { value: Value::List(Vec::new()), tag: None, at }, |copy| Yaml { at, ..copy })
                );
            }
            _ => return Err(YamlError { at, reason: "unexpected end of a list, mapping or document".into() }),
        };
        if anchor != 0 {
            let (nodes, bytes) = size(&yaml);
            self.nodes += nodes;
            self.repeated += bytes;
            self.check_size(depth, at)?;
            self.anchors.insert(anchor, yaml.clone());
        }
        Ok(yaml)
    }

    /// Checked before anything is repeated.
    fn check_size(&self, depth: usize, at: Position) -> Result<(), YamlError> {
        if depth > DEPTH_MAX || self.nodes > NODES_MAX || self.repeated > REPEATED_MAX {
            return Err(YamlError {
                at,
                reason: "nested too deeply, or too many values (aliases count each time)".into(),
            });
        }
        Ok(())
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry>, YamlError> {
        let mut entries: Vec<Option<Entry>> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, at, start) = self.following()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(entries.into_iter().flatten().collect());
            }
            let key = self.node(event, at, start, depth + 1)?;
            let Value::Scalar { text: key, .. } = key.value else {
                return Err(YamlError { at, reason: "a key that is not a scalar".into() });
            };
            let (event, value_at, value_start) = self.following()?;
            let value = self.node(event, value_at, value_start, depth + 1)?;
            if let Some(before) = places.insert(key.clone(), entries.len())
                && let Some(first) = entries[before].take()
            {
                self.duplicates.push(Duplicate { key: key.clone(), at, first });
            }
            entries.push(Some(Entry { key, at, start, value }));
        }
    }
}

fn full_tag(tag: &granit_parser::Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

/// Nodes, and bytes of text.
fn size(yaml: &Yaml) -> (usize, usize) {
    let tag = yaml.tag.as_ref().map_or(0, String::len);
    let (mut nodes, mut bytes) = (1, tag);
    let mut add = |(more_nodes, more_bytes): (usize, usize)| {
        nodes += more_nodes;
        bytes += more_bytes;
    };
    match &yaml.value {
        Value::Scalar { text, .. } => add((0, text.len())),
        Value::List(items) => items.iter().for_each(|item| add(size(item))),
        Value::Map(entries) => {
            for entry in entries {
                add((1, entry.key.len()));
                add(size(&entry.value));
            }
        }
    }
    (nodes, bytes)
}

/// A scalar as the text of a property: typed as YAML 1.1 first and then printed, as Java and Spring do (`010` is `8`,
/// `yes` is `true`). `None` for null, lists and mappings.
pub fn property_text(value: &Yaml) -> Option<String> {
    let raw = value.raw()?.to_owned();
    Some(match value.typed()? {
        Typed::Null => return None,
        Typed::Bool(value) => value.to_string(),
        Typed::Int(value) => value.to_string(),
        Typed::Float(value) => format!("{value:?}"),
        Typed::Date | Typed::Text => raw,
    })
}
