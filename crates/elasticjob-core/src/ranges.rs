//! Items in a line for people: `[0, 2-5]`. A job may have ten thousand.

use std::fmt;

use crate::limits::ITEMS_MAX;

/// Writes items in brackets, in their order; three or more that follow one another become a range.
///
/// ```
/// use elasticjob_core::ranges::Ranges;
///
/// assert_eq!(Ranges(&[0, 1, 3, 4, 5, 9]).to_string(), "[0, 1, 3-5, 9]");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'a>(pub &'a [u32]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut separator = "";
        f.write_str("[")?;
        while let [first, ..] = rest {
            let follows = |(place, item): &(usize, &u32)| first.checked_add(*place as u32) == Some(**item);
            let length = match rest.iter().enumerate().take_while(follows).count() {
                length @ 3.. => length,
                _ => 1,
            };
            match length {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", rest[length - 1])?,
            }
            separator = ", ";
            rest = &rest[length..];
        }
        f.write_str("]")
    }
}

/// Reads what [`Ranges`] wrote, without the brackets; `None` for anything else.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    let mut items = Vec::new();
    for part in text.split(", ").filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            Some((first, last)) => {
                let range = first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?;
                // A text from outside must not fill the memory.
                if range.end().saturating_sub(*range.start()) > ITEMS_MAX {
                    return None;
                }
                items.extend(range);
            }
            None => items.push(part.parse().ok()?),
        }
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_a_row_are_a_range_and_all_is_read_back() {
        let cases: [(&[u32], &str); 7] = [
            (&[], "[]"),
            (&[7], "[7]"),
            (&[0, 1], "[0, 1]"),
            (&[0, 1, 2], "[0-2]"),
            (&[0, 2, 4], "[0, 2, 4]"),
            (&[5, 1, 2, 3], "[5, 1-3]"),
            (&[u32::MAX - 2, u32::MAX - 1, u32::MAX], "[4294967293-4294967295]"),
        ];
        for (items, text) in cases {
            assert_eq!(Ranges(items).to_string(), text);
            let inner = text.trim_start_matches('[').trim_end_matches(']');
            assert_eq!(parse(inner).as_deref(), Some(items), "{text}");
        }
        assert_eq!(parse("x"), None);
    }
}
