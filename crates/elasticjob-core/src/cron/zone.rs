//! The `timeZone` setting. Java (`TimeZoneUtils`) takes only texts that begin with `GMT`; we take IANA names as well.

use jiff::tz::{Offset, TimeZone};

/// What a `timeZone` text asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum ZoneText {
    /// The zone of the host: the text is absent or empty.
    Host,
    /// A zone with one offset: `GMT+8`, `GMT-05:30`.
    Fixed(TimeZone),
    /// A name of the IANA database, to be looked up outside of this crate.
    Named(String),
}

/// Reads a `timeZone` text. Java turns a malformed `GMT…` text silently into GMT; here it is refused (COMPAT.md).
///
/// # Errors
///
/// The expected forms, when a text begins with `GMT` and goes on wrongly.
pub fn parse_zone(text: &str) -> Result<ZoneText, String> {
    if text.is_empty() {
        return Ok(ZoneText::Host);
    }
    let Some(rest) = text.strip_prefix("GMT") else { return Ok(ZoneText::Named(text.to_owned())) };
    if rest.is_empty() || rest == "0" {
        return Ok(ZoneText::Fixed(TimeZone::fixed(Offset::UTC)));
    }
    let expected = || "expected GMT, GMT+8, GMT+08:00, GMT+0800 or an IANA name such as Asia/Shanghai".to_owned();
    if !rest.is_ascii() {
        return Err(expected());
    }
    let (sign, digits) = match rest.split_at_checked(1) {
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        _ => return Err(expected()),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => (hours, minutes),
        Some(_) => return Err(expected()),
        None if digits.len() > 2 => digits.split_at(digits.len() - 2),
        None => (digits, "0"),
    };
    let number = |text: &str, max: i32| {
        let plain = !text.is_empty() && text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().filter(|n: &i32| *n <= max)
    };
    let (Some(hours), Some(minutes)) = (number(hours, 23), number(minutes, 59)) else { return Err(expected()) };
    let offset = Offset::from_seconds(sign * (hours * 3_600 + minutes * 60)).map_err(|_| expected())?;
    Ok(ZoneText::Fixed(TimeZone::fixed(offset)))
}
