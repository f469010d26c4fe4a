//! The search for the next fire time: in civil time, field by field, then placed on the time line.

use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::{Cron, Days};
use crate::limits::CRON_YEARS_AHEAD;
use crate::time::Timestamp;

const SATURDAY: i32 = 7;
const SUNDAY: i32 = 1;

pub(super) fn next(cron: &Cron, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let after_seconds = after.0.div_euclid(1_000);
    let mut civil = zone.to_datetime(jiff::Timestamp::from_second(after_seconds).ok()?);
    let last_year = civil.year().checked_add(CRON_YEARS_AHEAD)?;
    loop {
        civil = next_civil(cron, civil, last_year)?;
        let ambiguous = zone.to_ambiguous_timestamp(civil);
        let offset = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { .. } => continue,
            AmbiguousOffset::Fold { after, .. } => after,
        };
        let fire = offset.to_timestamp(civil).ok()?;
        if fire.as_second() > after_seconds {
            return Some(Timestamp(fire.as_millisecond()));
        }
    }
}

/// The same along the time line: between two changes of the offset local time runs evenly, so that an hour that comes twice fires
/// twice.
pub(super) fn next_of_every_hour(cron: &Cron, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let mut from = jiff::Timestamp::from_second(after.0.div_euclid(1_000)).ok()?;
    let last_year = zone.to_datetime(from).year().checked_add(CRON_YEARS_AHEAD)?;
    let mut offset = zone.to_offset(from);
    loop {
        let change = zone.following(from).next();
        let fire = offset.to_timestamp(next_civil(cron, offset.to_datetime(from), last_year)?).ok()?;
        match change {
            Some(change) if fire >= change.timestamp() => {
                // A firing at the very moment of the change counts by the offset after it.
                from = change.timestamp().checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
                offset = change.offset();
                let at = offset.to_timestamp(next_civil(cron, offset.to_datetime(from), last_year)?).ok()?;
                match zone.following(change.timestamp()).next() {
                    Some(next) if at >= next.timestamp() => from = change.timestamp(),
                    _ => return Some(Timestamp(at.as_millisecond())),
                }
            }
            _ => return Some(Timestamp(fire.as_millisecond())),
        }
    }
}

const FOLD_SEARCH_SECONDS: i64 = 400 * 86_400;

pub(super) fn rests_in_repeated_hour(cron: &Cron, from: Timestamp, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
    let start = jiff::Timestamp::from_second(from.0.div_euclid(1_000)).ok()?;
    let until = start.as_second() + FOLD_SEARCH_SECONDS;
    let mut before = zone.to_offset(start);
    for change in zone.following(start).take_while(|change| change.timestamp().as_second() <= until) {
        let back = i64::from(before.seconds() - change.offset().seconds());
        before = change.offset();
        if back <= 0 {
            continue;
        }
        let (end, begin) = (change.timestamp().as_millisecond(), change.timestamp().as_millisecond() - back * 1_000);
        let just_before = |moment: i64| Timestamp(moment - 1_000);
        let fires_within = |next: Option<Timestamp>, end: i64| next.is_some_and(|fire| fire.0 < end);
        let hourly = fires_within(next_of_every_hour(cron, just_before(begin - back * 1_000), zone), begin)
            && fires_within(next_of_every_hour(cron, just_before(begin), zone), end);
        if hourly && !fires_within(cron.next(just_before(begin), zone), end) {
            return Some((Timestamp(begin), Timestamp(end)));
        }
    }
    None
}

/// A calendar whose fields may run over; they are carried when it is read.
#[derive(Clone, Copy)]
struct Calendar {
    year: i32,
    month: i32,
    day: i32,
    hour: i32,
    minute: i32,
    second: i32,
}

impl Calendar {
    fn new(at: civil::DateTime) -> Calendar {
        Calendar {
            year: at.year().into(),
            month: at.month().into(),
            day: at.day().into(),
            hour: at.hour().into(),
            minute: at.minute().into(),
            second: at.second().into(),
        }
    }

    /// The moment, with every field carried over; `None` beyond the calendar.
    fn resolve(self) -> Option<civil::DateTime> {
        let month = self.month - 1;
        let year = i16::try_from(self.year + month.div_euclid(12)).ok()?;
        let first = civil::Date::new(year, i8::try_from(month.rem_euclid(12) + 1).ok()?, 1).ok()?;
        let seconds = i64::from(self.hour) * 3_600 + i64::from(self.minute) * 60 + i64::from(self.second);
        let days = i64::from(self.day - 1) + seconds.div_euclid(86_400);
        let within = i32::try_from(seconds.rem_euclid(86_400)).ok()?;
        let date = first.checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
        let part = |value: i32| i8::try_from(value).ok();
        Some(date.at(part(within / 3_600)?, part(within / 60 % 60)?, part(within % 60)?, 0))
    }

    fn carried(self) -> Option<Calendar> {
        self.resolve().map(Calendar::new)
    }

    /// The start of a day.
    fn day_of(year: i32, month: i32, day: i32) -> Calendar {
        Calendar { year, month, day, hour: 0, minute: 0, second: 0 }
    }

    fn days_in_month(self) -> Option<i32> {
        Some(Calendar::day_of(self.year, self.month, 1).resolve()?.date().days_in_month().into())
    }

    /// 1 = Sunday.
    fn weekday(self) -> Option<i32> {
        Some(i32::from(self.resolve()?.weekday().to_sunday_zero_offset()) + 1)
    }
}

/// The result of searching the days of one month.
enum Step {
    /// The calendar's day fires.
    Fires,
    /// Go on from there.
    GoTo(Calendar),
}

fn next_civil(cron: &Cron, after: civil::DateTime, last_year: i16) -> Option<civil::DateTime> {
    let mut at = Calendar::new(after);
    at.second += 1;
    let earliest = at.resolve()?;
    at = at.carried()?;
    loop {
        match cron.seconds.at_or_after(at.second) {
            Some(second) => at.second = second,
            None => {
                at.minute += 1;
                at.second = cron.seconds.first()?;
                at = at.carried()?;
            }
        }
        match cron.minutes.at_or_after(at.minute) {
            Some(minute) if minute == at.minute => {}
            found => {
                let hour = if found.is_some() { at.hour } else { at.hour + 1 };
                at = Calendar { hour, minute: found.or(cron.minutes.first())?, second: 0, ..at }.carried()?;
                continue;
            }
        }
        match cron.hours.at_or_after(at.hour) {
            Some(hour) if hour == at.hour => {}
            found => {
                let day = if found.is_some() { at.day } else { at.day + 1 };
                let hour = found.or(cron.hours.first())?;
                at = Calendar { day, hour, minute: 0, second: 0, ..at }.carried()?;
                continue;
            }
        }
        if let Step::GoTo(next) = day_step(cron, at, earliest)? {
            at = next.carried()?;
            if at.year > i32::from(last_year) {
                return None;
            }
            continue;
        }
        if at.year > i32::from(last_year) {
            return None;
        }
        match cron.months.at_or_after(at.month) {
            Some(month) if month == at.month => {}
            found => {
                let year = if found.is_some() { at.year } else { at.year + 1 };
                at = Calendar::day_of(year, found.or(cron.months.first())?, 1);
                continue;
            }
        }
        match cron.years.at_or_after(at.year)? {
            year if year == at.year => return at.resolve(),
            year => at = Calendar::day_of(year, 1, 1),
        }
    }
}

fn day_step(cron: &Cron, at: Calendar, earliest: civil::DateTime) -> Option<Step> {
    let last = at.days_in_month()?;
    let next_month = Calendar::day_of(at.year, at.month + 1, 1);
    let on = |day: i32| Calendar::day_of(at.year, at.month, day);
    let reach = |days: i32| if days == at.day { Step::Fires } else { Step::GoTo(on(days)) };
    Some(match &cron.days {
        Days::Dates(dates) => match dates.at_or_after(at.day) {
            Some(day) if day <= last => reach(day),
            _ => Step::GoTo(Calendar::day_of(at.year, at.month + 1, dates.first()?)),
        },
        Days::LastDate { offset, weekday: false } => {
            let day = last - offset;
            if at.day > day { Step::GoTo(next_month) } else { reach(day) }
        }
        Days::LastDate { offset, weekday: true } => {
            let day = nearest_weekday(on(last - offset), last)?;
            if (Calendar { day, ..at }).resolve()? < earliest { Step::GoTo(next_month) } else { reach(day) }
        }
        Days::NearestWeekday(wanted) => {
            let day = nearest_weekday(on(*wanted), last)?;
            if (Calendar { day, ..at }).resolve()? < earliest {
                Step::GoTo(Calendar::day_of(at.year, at.month + 1, *wanted))
            } else {
                reach(day)
            }
        }
        Days::LastWeekday(wanted) => {
            let mut day = at.day + days_until(at.weekday()?, *wanted);
            if day > last {
                return Some(Step::GoTo(next_month));
            }
            while day + 7 <= last {
                day += 7;
            }
            reach(day)
        }
        Days::NthWeekday(wanted, nth) => {
            let coming = at.day + days_until(at.weekday()?, *wanted);
            let week = (coming + 6) / 7;
            let day = coming + (nth - week) * 7;
            if *nth < week || day > last { Step::GoTo(next_month) } else { reach(day) }
        }
        Days::Weekdays(days) => {
            let today = at.weekday()?;
            let wanted = days.at_or_after(today).or(days.first())?;
            let day = at.day + days_until(today, wanted);
            if day > last { Step::GoTo(next_month) } else { reach(day) }
        }
    })
}

/// The weekday nearest to a date, within its month as `last` bounds it. Quartz lets a date run over its month.
fn nearest_weekday(date: Calendar, last: i32) -> Option<i32> {
    let day = date.day;
    Some(match date.weekday()? {
        SATURDAY if day == 1 => day + 2,
        SATURDAY => day - 1,
        SUNDAY if day == last => day - 2,
        SUNDAY => day + 1,
        _ => day,
    })
}

fn days_until(today: i32, wanted: i32) -> i32 {
    (wanted - today).rem_euclid(7)
}
