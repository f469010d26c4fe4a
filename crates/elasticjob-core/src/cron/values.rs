//! The values of one field, a bit each: an expression is kept for each job, and asked at each firing.

/// Years follow the values of all other fields, which are below 64.
const YEARS_AT: i32 = 64;
const FIRST_YEAR: i32 = super::parse::FIRST_YEAR;
const LAST_YEAR: i32 = super::parse::LAST_YEAR;
const WORDS: usize = 7;

/// A set of small numbers and of years.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    bits: [u64; WORDS],
    /// It has years that are never reached, too.
    others: bool,
}

impl Values {
    pub(super) fn insert(&mut self, value: i32) {
        match place(value) {
            Some(place) => self.bits[place / 64] |= 1 << (place % 64),
            None => self.others = true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.others && self.bits.iter().all(|word| *word == 0)
    }

    /// The least one.
    pub(super) fn first(&self) -> Option<i32> {
        self.from(0)
    }

    /// The least one that is not below that; a year where that is one.
    pub(super) fn at_or_after(&self, value: i32) -> Option<i32> {
        let found = self.from(place(value)?)?;
        (value >= YEARS_AT || found < YEARS_AT).then_some(found)
    }

    fn from(&self, place: usize) -> Option<i32> {
        let (word, bit) = (place / 64, place % 64);
        let rest = self.bits.get(word)? & (u64::MAX << bit);
        let later = || (word + 1..WORDS).find(|word| self.bits[*word] != 0).map(|word| (word, self.bits[word]));
        let (word, bits) = if rest != 0 { (word, rest) } else { later()? };
        let place = i32::try_from(word * 64).ok()? + i32::try_from(bits.trailing_zeros()).ok()?;
        Some(if place < YEARS_AT { place } else { place - YEARS_AT + FIRST_YEAR })
    }
}

/// Where the bit of a value is; `None` for years that are never reached.
fn place(value: i32) -> Option<usize> {
    let place = match value {
        0..YEARS_AT => value,
        FIRST_YEAR..=LAST_YEAR => value - FIRST_YEAR + YEARS_AT,
        _ => return None,
    };
    usize::try_from(place).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set_of_small_numbers_or_of_years() {
        for values in [vec![], vec![0], vec![59], vec![3, 17, 31, 63], vec![1970, 2000, 2033, 2299], vec![2_298]] {
            let (mut set, sorted) = (Values::default(), values.iter().copied().collect::<BTreeSet<i32>>());
            values.iter().for_each(|value| set.insert(*value));
            assert_eq!(set.is_empty(), sorted.is_empty());
            assert_eq!(set.first(), sorted.first().copied());
            let asked = if values.first().is_some_and(|v| *v >= FIRST_YEAR) { FIRST_YEAR..=LAST_YEAR } else { 0..=63 };
            for value in asked {
                assert_eq!(set.at_or_after(value), sorted.range(value..).next().copied(), "{value} in {values:?}");
            }
        }
        let mut never = Values::default();
        never.insert(5_000);
        assert!(!never.is_empty() && never.at_or_after(2_026).is_none());
    }
}
