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
    /// Whether local times that come twice fire twice.
    twice: bool,
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

    /// The same expression, which fires twice at local times that come twice, at the end of daylight saving. Quartz fires at the
    /// second one alone, so that a job that fires each minute rests for an hour.
    #[must_use]
    pub fn twice_in_repeated_hours(mut self, twice: bool) -> Cron {
        self.twice = twice;
        self
    }

    /// Whether local times that come twice fire twice.
    pub fn is_twice_in_repeated_hours(&self) -> bool {
        self.twice
    }

    /// The next end of daylight saving within 400 days at which this expression rests, although it fires in the hour before it and
    /// would fire in the repeated hour: from when on, and until when. `None` for a zone without daylight saving, for rarer
    /// expressions, and for those of [`Cron::twice_in_repeated_hours`].
    pub fn rests_in_repeated_hour(&self, from: Timestamp, zone: &jiff::tz::TimeZone) -> Option<(Timestamp, Timestamp)> {
        next::rests_in_repeated_hour(self, from, zone)
    }

    /// The first fire time strictly after `after`, on a whole second; `None` when there is none within 100 years.
    ///
    /// A local time in the gap of a daylight-saving change does not fire; one that comes twice fires at the second, or at both
    /// after [`Cron::twice_in_repeated_hours`].
    pub fn next(&self, after: Timestamp, zone: &jiff::tz::TimeZone) -> Option<Timestamp> {
        if self.twice { next::next_of_every_hour(self, after, zone) } else { next::next(self, after, zone) }
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
