//! `elasticjob cron`: what a schedule means, before it is used.

use elasticjob::{Cron, Timestamp};
use elasticjob_core::cron::{ZoneText, parse_zone};
use jiff::tz::TimeZone;

use crate::Failure;
use crate::args::Output;
use crate::output;

pub(crate) fn run(
    expression: &str,
    zone: Option<&str>,
    from: Option<&str>,
    count: u32,
    format: Output,
) -> Result<(), Failure> {
    let wrong = |line: String| Failure::Wrong(vec![format!("elasticjob: {line}")]);
    let cron = Cron::parse(expression).map_err(|e| wrong(format!("cron `{expression}`: {e}")))?;
    let zone = time_zone(zone.unwrap_or_default()).map_err(wrong)?;
    let from = match from {
        None => jiff::Timestamp::now(),
        Some(text) => text.parse().map_err(|_| {
            wrong(format!("--from `{text}`: expected a time like 2026-03-29T00:00:00Z or 2026-03-29T00:00:00+01:00"))
        })?,
    };
    if let Some((begin, end)) = cron.rests_in_repeated_hour(Timestamp(from.as_millisecond()), &zone) {
        let local = |moment: Timestamp| {
            let moment = jiff::Timestamp::from_millisecond(moment.0).map(|m| m.to_zoned(zone.clone()));
            moment.map(|m| m.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
        };
        output::tell(&format!(
            "clocks go back: as in Quartz, the expression does not fire from {} until {}; with the job property `elasticjob.cron.repeated.hour: twice`, \
             the job fires in both hours",
            local(begin)?,
            local(end)?
        ));
    }
    let mut times = Vec::new();
    let mut at = Timestamp(from.as_millisecond());
    while times.len() < count as usize
        && let Some(next) = cron.next(at, &zone)
    {
        let moment = jiff::Timestamp::from_millisecond(next.0)?.to_zoned(zone.clone());
        times.push(moment.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string());
        at = next;
    }
    output::data(&match format {
        Output::Json => format!("{}\n", serde_json::to_string(&times)?),
        Output::Yaml => times.iter().map(|t| format!("- {t}\n")).collect(),
        Output::Table if times.is_empty() => "never\n".to_owned(),
        Output::Table => times.iter().map(|t| format!("{t}\n")).collect(),
    })
}

fn time_zone(text: &str) -> Result<TimeZone, String> {
    let found = match parse_zone(text).map_err(|e| format!("--zone `{text}`: {e}"))? {
        ZoneText::Host => elasticjob::agent::time_zone(None),
        ZoneText::Fixed(zone) => Some(zone),
        ZoneText::Named(name) => elasticjob::agent::time_zone(Some(&name)),
    };
    found.ok_or_else(|| format!("--zone `{text}`: expected an IANA name such as Asia/Shanghai, or GMT+8"))
}
