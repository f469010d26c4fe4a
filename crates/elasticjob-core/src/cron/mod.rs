//! Quartz's cron dialect: seconds first, six or seven fields, `? * , - / L W #`, Sunday = 1.
//!
//! Follows `org.quartz.CronExpression` 2.3.2, which each Java instance of a job asks for its own next firing: another
//! answer here would be lost or doubled work in a mixed cluster. The tests compare with recorded vectors and with Quartz
//! itself.

mod next;
mod parse;
mod values;
mod zone;

use std::fmt;

pub use parse::CronError;
pub use zone::{ZoneText, parse_zone};

use crate::time::Timestamp;
use values::Values;

/// A checked expression. Two are equal when their texts are, as Java compares them when a configuration changes.
#[derive(Clone)]
pub struct Cron {
    text: String,
    seconds: Values,
    minutes: Values,
    hours: Values,
    days: Days,
    months: Values,
    years: Values,
}

/// Which days fire: by date, or by weekday (1 = Sunday).
#[derive(Clone, Debug)]
enum Days {
    Dates(Values),
    /// `L`, `L-3`, and with `weekday` `LW`, `L-3W`.
    LastDate {
        offset: i32,
        weekday: bool,
    },
    /// `15W`: the weekday nearest to that date.
    NearestWeekday(i32),
    Weekdays(Values),
    /// `6L`: the last one of the month.
    LastWeekday(i32),
    /// `6#3`: the third one of the month.
    NthWeekday(i32, i32),
}

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// What Quartz refuses: the field, its text and what was expected.
    ///
    /// ```
    /// use elasticjob_core::cron::Cron;
    /// assert!(Cron::parse("0/5 * * * * ?").is_ok());
    /// let error = Cron::parse("0 0 0 * * *").unwrap_err();
    /// assert!(error.to_string().contains("one of the two must be `?`"));
    /// ```
    pub fn parse(text: &str) -> Result<Cron, CronError> {
        parse::parse(text)
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first fire time strictly after `after`, on a whole second; `None` when there is none within 100 years.
    ///
    /// A local time in the gap of a daylight-saving change does not fire; one that comes twice fires at the second.
    pub fn next(&self, after: Timestamp, zone: &jiff::tz::TimeZone) -> Option<Timestamp> {
        next::next(self, after, zone)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({})", self.text)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Cron) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

#[cfg(test)]
mod tests;
