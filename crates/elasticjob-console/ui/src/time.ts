import { i18n } from './i18n';

/** A moment with its offset, as 2026-03-01 08:00:00 +01:00. */
export function absolute(millis: number): string {
  const date = new Date(millis);
  const two = (value: number): string => String(value).padStart(2, '0');
  const offset = -date.getTimezoneOffset();
  const sign = offset < 0 ? '-' : '+';
  const hours = Math.abs(offset) / 60;
  const zone = `${sign}${two(Math.trunc(hours))}:${two(Math.abs(offset) % 60)}`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())} ${zone}`;
}

/** The time of day. */
export function clock(millis: number): string {
  return new Date(millis).toLocaleTimeString(i18n.global.locale.value, { hour12: false });
}

/** The time of day with milliseconds. */
export function exact(millis: number): string {
  const date = new Date(millis);
  const padded = (value: number, size: number): string => String(value).padStart(size, '0');
  return `${padded(date.getHours(), 2)}:${padded(date.getMinutes(), 2)}:${padded(date.getSeconds(), 2)}.${padded(date.getMilliseconds(), 3)}`;
}

/** How far a moment is away: "in 4 seconds", "2 minutes ago". */
export function relative(millis: number, now: number): string {
  const format = new Intl.RelativeTimeFormat(i18n.global.locale.value, { numeric: 'always' });
  const seconds = Math.round((millis - now) / 1_000);
  const size = Math.abs(seconds);
  if (size < 90) return format.format(seconds, 'second');
  if (size < 90 * 60) return format.format(Math.round(seconds / 60), 'minute');
  if (size < 36 * 3_600) return format.format(Math.round(seconds / 3_600), 'hour');
  return format.format(Math.round(seconds / 86_400), 'day');
}

/** A span: 850 ms, 1.2 s, 3 min. */
export function span(millis: number): string {
  if (millis < 1_000) return `${millis} ms`;
  if (millis < 90_000) return `${(millis / 1_000).toFixed(1)} s`;
  if (millis < 5_400_000) return `${Math.round(millis / 60_000)} min`;
  return `${(millis / 3_600_000).toFixed(1)} h`;
}
