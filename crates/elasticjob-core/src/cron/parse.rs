//! From the text to sets of values, with Quartz's tolerance: what follows a complete value inside one list member is
//! ignored (`5C` is `5`), and so are fields after the seventh.

use std::ops::RangeInclusive;

use super::values::Values;
use super::{Cron, Days};

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Fewer than six fields.
    #[error("{given} fields, expected at least 6: second minute hour day-of-month month day-of-week [year]{}", quartz_form(.quartz.as_deref()))]
    FieldsMissing {
        /// How many there were.
        given: usize,
        /// What a Unix expression of five fields is in this dialect.
        quartz: Option<String>,
    },
    /// One field is wrong.
    #[error("{field} `{text}`: {expected}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// Its text, upper-cased as Quartz reads it.
        text: String,
        /// What was expected.
        expected: String,
    },
    /// Both day fields are set, or neither is.
    #[error("day-of-month `{date}` and day-of-week `{weekday}`: exactly one of the two must be `?`")]
    Days {
        /// The day-of-month field.
        date: String,
        /// The day-of-week field.
        weekday: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Second,
    Minute,
    Hour,
    Date,
    Month,
    Weekday,
    Year,
}

const KINDS: [Kind; 7] = [Kind::Second, Kind::Minute, Kind::Hour, Kind::Date, Kind::Month, Kind::Weekday, Kind::Year];
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
pub(super) const FIRST_YEAR: i32 = 1970;
/// Quartz bounds the year by 100 years from now; [`super::next`] applies that, this bounds the set alone.
pub(super) const LAST_YEAR: i32 = 2299;

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Second => "second",
            Kind::Minute => "minute",
            Kind::Hour => "hour",
            Kind::Date => "day-of-month",
            Kind::Month => "month",
            Kind::Weekday => "day-of-week",
            Kind::Year => "year",
        }
    }

    fn range(self) -> RangeInclusive<i32> {
        match self {
            Kind::Second | Kind::Minute => 0..=59,
            Kind::Hour => 0..=23,
            Kind::Date => 1..=31,
            Kind::Month => 1..=12,
            Kind::Weekday => 1..=7,
            Kind::Year => FIRST_YEAR..=LAST_YEAR,
        }
    }

    /// The largest step that Quartz takes.
    fn step_max(self) -> i32 {
        match self {
            Kind::Year => i32::MAX,
            Kind::Second | Kind::Minute | Kind::Hour | Kind::Date | Kind::Month | Kind::Weekday => *self.range().end(),
        }
    }
}

/// One field while it is read.
struct Field<'a> {
    kind: Kind,
    text: &'a str,
    values: Values,
    unspecified: bool,
    last: bool,
    last_offset: i32,
    nearest_weekday: bool,
    nth: i32,
}

fn quartz_form(quartz: Option<&str>) -> String {
    quartz.map(|text| format!("; in Quartz format this Unix expression is `{text}`")).unwrap_or_default()
}

/// A Unix expression of five fields in Quartz's dialect: a second before it, one of the day fields `?`, days of the week by their
/// names, since the numbers mean other days.
fn from_unix(fields: &[&str]) -> Option<String> {
    let [minute, hour, date, month, weekday] = *fields else { return None };
    let named = |part: &str| match part.parse::<usize>() {
        Ok(number) => WEEKDAYS.get(number % 7).map(ToString::to_string),
        Err(_) => Some(part.to_owned()),
    };
    let member = |member: &str| {
        let (range, step) = member.split_once('/').map_or((member, None), |(range, step)| (range, Some(step)));
        let range = range.split('-').map(named).collect::<Option<Vec<_>>>()?.join("-");
        Some(step.map_or(range.clone(), |step| format!("{range}/{step}")))
    };
    let weekday = match (date, weekday) {
        (_, "*") => "?".to_owned(),
        ("*", weekday) => weekday.split(',').map(member).collect::<Option<Vec<_>>>()?.join(","),
        _ => return None, // either day is meant, which Quartz cannot say
    };
    let date = if weekday == "?" { date } else { "?" };
    let text = format!("0 {minute} {hour} {date} {month} {weekday}");
    parse(&text).ok().map(|_| text)
}

pub(super) fn parse(text: &str) -> Result<Cron, CronError> {
    let upper = text.to_uppercase();
    let texts: Vec<&str> = upper.split([' ', '\t']).filter(|t| !t.is_empty()).take(7).collect();
    if texts.len() < 6 {
        return Err(CronError::FieldsMissing { given: texts.len(), quartz: from_unix(&texts) });
    }
    let mut fields = Vec::with_capacity(7);
    for (index, kind) in KINDS.into_iter().enumerate() {
        fields.push(Field::read(kind, texts.get(index).copied().unwrap_or("*"))?);
    }
    let (date, weekday) = (&fields[3], &fields[5]);
    if date.unspecified == weekday.unspecified {
        return Err(CronError::Days { date: date.text.to_owned(), weekday: weekday.text.to_owned() });
    }
    let days = if date.unspecified { weekday.weekdays()? } else { date.dates()? };
    for (index, field) in fields.iter().enumerate() {
        if field.values.is_empty() && index != 3 && index != 5 {
            return Err(field.wrong("expected a value"));
        }
    }
    let mut sets = fields.into_iter().map(|f| f.values);
    let mut set = || sets.next().unwrap_or_default();
    let (seconds, minutes, hours, _, months, _, years) = (set(), set(), set(), set(), set(), set(), set());
    Ok(Cron { text: text.to_owned(), seconds, minutes, hours, days, months, years, twice: false })
}

impl<'a> Field<'a> {
    fn read(kind: Kind, text: &'a str) -> Result<Field<'a>, CronError> {
        let mut field = Field {
            kind,
            text,
            values: Values::default(),
            unspecified: false,
            last: false,
            last_offset: 0,
            nearest_weekday: false,
            nth: 0,
        };
        let list = text.contains(',');
        if list && text.contains('L') && matches!(kind, Kind::Date | Kind::Weekday) {
            return Err(field.wrong("`L` is not allowed in a list"));
        }
        if kind == Kind::Weekday && text.matches('#').count() > 1 {
            return Err(field.wrong("`#` can be used only once"));
        }
        for member in text.split(',').filter(|m| !m.is_empty()) {
            field.member(member)?;
        }
        Ok(field)
    }

    fn wrong(&self, expected: impl Into<String>) -> CronError {
        CronError::Field { field: self.kind.name(), text: self.text.to_owned(), expected: expected.into() }
    }

    fn dates(&self) -> Result<Days, CronError> {
        if self.last {
            return Ok(Days::LastDate { offset: self.last_offset, weekday: self.nearest_weekday });
        }
        let Some(first) = self.values.first() else { return Err(self.wrong("expected a day")) };
        Ok(if self.nearest_weekday { Days::NearestWeekday(first) } else { Days::Dates(self.values.clone()) })
    }

    fn weekdays(&self) -> Result<Days, CronError> {
        let Some(first) = self.values.first() else { return Err(self.wrong("expected a weekday")) };
        Ok(if self.last {
            Days::LastWeekday(first)
        } else if self.nth != 0 {
            Days::NthWeekday(first, self.nth)
        } else {
            Days::Weekdays(self.values.clone())
        })
    }

    fn member(&mut self, text: &str) -> Result<(), CronError> {
        match text.as_bytes()[0] {
            b'L' if text == "L" || text == "LW" || text.starts_with("L-") => self.last_member(text),
            b'A'..=b'Z' => self.named(text),
            b'?' => self.unspecify(text),
            b'*' | b'/' => self.every(text),
            b'0'..=b'9' => self.numeric(text),
            _ => Err(self.wrong(format!("unexpected `{text}`"))),
        }
    }

    fn last_member(&mut self, text: &str) -> Result<(), CronError> {
        if text.starts_with("L-") && text[2..].trim_start_matches(|c: char| c.is_ascii_digit()).len() > 1 {
            return Err(self.wrong(format!("unexpected `{text}`")));
        }
        if self.kind == Kind::Weekday {
            self.values.insert(7);
            return Ok(());
        }
        if self.kind != Kind::Date {
            return Err(self.wrong("`L` is allowed only in day-of-month and day-of-week"));
        }
        self.last = true;
        let mut rest = &text[1..];
        if let Some(offset) = rest.strip_prefix('-') {
            let (value, after) = self.number(offset)?;
            if value > 30 {
                return Err(self.wrong("the offset from the last day must be at most 30"));
            }
            self.last_offset = value;
            rest = after;
        }
        self.nearest_weekday |= rest.starts_with('W');
        Ok(())
    }

    fn named(&mut self, text: &str) -> Result<(), CronError> {
        let names: &[&str] = match self.kind {
            Kind::Month => &MONTHS,
            Kind::Weekday => &WEEKDAYS,
            Kind::Second | Kind::Minute | Kind::Hour | Kind::Date | Kind::Year => {
                return Err(self.wrong(format!("unexpected `{text}`: names are not allowed in this field")));
            }
        };
        let number = |at: usize| -> Option<i32> {
            let name = text.get(at..at + 3)?;
            names.iter().position(|n| *n == name).and_then(|p| i32::try_from(p + 1).ok())
        };
        let unknown = || format!("unknown name in `{text}`; expected {}", names.join(" "));
        let Some(start) = number(0) else { return Err(self.wrong(unknown())) };
        match text.as_bytes().get(3) {
            Some(b'-') => {
                let Some(end) = number(4) else { return Err(self.wrong(unknown())) };
                self.add(start, Some(end), 1)
            }
            Some(b'#') if self.kind == Kind::Weekday => {
                self.nth = self.nth_of(&text[4..])?;
                self.add(start, None, 0)
            }
            Some(b'L') if self.kind == Kind::Weekday => {
                self.last = true;
                self.add(start, None, 0)
            }
            _ => self.add(start, None, 0),
        }
    }

    fn unspecify(&mut self, text: &str) -> Result<(), CronError> {
        if text.len() > 2 {
            return Err(self.wrong(format!("unexpected text after `?` in `{text}`")));
        }
        if !matches!(self.kind, Kind::Date | Kind::Weekday) {
            return Err(self.wrong("`?` is allowed only in day-of-month and day-of-week"));
        }
        self.unspecified = true;
        Ok(())
    }

    fn every(&mut self, text: &str) -> Result<(), CronError> {
        let rest = text.strip_prefix('*').unwrap_or(text);
        let Some(step) = rest.strip_prefix('/') else { return self.add_all(1) };
        let step = step.parse::<i32>().ok().filter(|s| *s >= 0);
        let Some(step) = step else { return Err(self.wrong("`/` must be followed by a whole number")) };
        self.check_step(step)?;
        self.add_all(step.max(1))
    }

    fn numeric(&mut self, text: &str) -> Result<(), CronError> {
        let (value, rest) = self.number(text)?;
        match rest.as_bytes().first() {
            Some(b'L') if self.kind == Kind::Weekday => {
                self.in_range(value)?;
                self.last = true;
                self.values.insert(value);
                Ok(())
            }
            Some(b'L') => Err(self.wrong("a number before `L` is allowed only in day-of-week")),
            Some(b'W') if self.kind == Kind::Date => {
                if value > 31 {
                    return Err(self.wrong("the day before `W` must be between 1 and 31"));
                }
                self.nearest_weekday = true;
                self.values.insert(value);
                Ok(())
            }
            Some(b'W') => Err(self.wrong("`W` is allowed only in day-of-month")),
            Some(b'#') if self.kind == Kind::Weekday => {
                self.nth = self.nth_of(&rest[1..])?;
                self.in_range(value)?;
                self.values.insert(value);
                Ok(())
            }
            Some(b'#') => Err(self.wrong("`#` is allowed only in day-of-week")),
            Some(b'-') => {
                let (end, rest) = self.number(&rest[1..])?;
                let step = match rest.strip_prefix('/') {
                    Some(step) => self.number(step)?.0,
                    None => 1,
                };
                self.add(value, Some(end), step)
            }
            Some(b'/') => {
                let step = &rest[1..];
                let (step, after) = self.number(step)?;
                if !after.is_empty() && step < 10 {
                    return Err(self.wrong(format!("unexpected text after the step in `{text}`")));
                }
                self.check_step(step)?;
                self.add(value, None, step)
            }
            _ => self.add(value, None, 0),
        }
    }

    /// The digits that `text` begins with, and what follows them.
    fn number<'t>(&self, text: &'t str) -> Result<(i32, &'t str), CronError> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let value = text[..digits]
            .parse()
            .map_err(|_| self.wrong(format!("expected a whole number at the start of `{text}`")))?;
        Ok((value, &text[digits..]))
    }

    fn nth_of(&self, text: &str) -> Result<i32, CronError> {
        let nth = text.parse().ok().filter(|n| (1..=5).contains(n));
        nth.ok_or_else(|| self.wrong("`#` must be followed by a number between 1 and 5"))
    }

    fn check_step(&self, step: i32) -> Result<(), CronError> {
        if step > self.kind.step_max() {
            return Err(self.wrong(format!("the step must be at most {}", self.kind.step_max())));
        }
        Ok(())
    }

    fn in_range(&self, value: i32) -> Result<(), CronError> {
        let range = self.kind.range();
        if self.kind != Kind::Year && !range.contains(&value) {
            return Err(self.wrong(format!("values must be between {} and {}", range.start(), range.end())));
        }
        Ok(())
    }

    fn add_all(&mut self, step: i32) -> Result<(), CronError> {
        let range = self.kind.range();
        self.add(*range.start(), Some(*range.end()), step)
    }

    /// Adds a value, or from `start` to `end` (else the field's maximum) by `step`. A range whose end is before its start
    /// wraps around, but for years.
    fn add(&mut self, start: i32, end: Option<i32>, step: i32) -> Result<(), CronError> {
        self.in_range(start)?;
        let range = self.kind.range();
        if let Some(end) = end.filter(|e| self.kind != Kind::Year && e > range.end()) {
            return Err(self.wrong(format!("the range ends at {end}, after the highest value {}", range.end())));
        }
        if step == 0 {
            self.values.insert(start);
            return Ok(());
        }
        let mut stop = end.unwrap_or(*range.end());
        let size = range.end() - range.start() + 1;
        let wraps = stop < start;
        if wraps && self.kind == Kind::Year {
            if end.is_none() {
                self.values.insert(start);
                return Ok(());
            }
            return Err(self.wrong("the first year must not be after the last"));
        }
        if wraps {
            stop += size;
        }
        if self.kind == Kind::Year {
            // Later ones are never reached; a range may name two billion of them.
            stop = stop.min(LAST_YEAR.max(start));
        }
        let mut value = start;
        while value <= stop {
            let wrapped = if wraps && value > *range.end() { value - size } else { value };
            self.values.insert(wrapped);
            let Some(next) = value.checked_add(step) else { break };
            value = next;
        }
        Ok(())
    }
}
