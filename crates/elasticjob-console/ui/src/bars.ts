import type { Run } from './api/client';

/** A bar of the time axis: one run, or several that are too close to each other to be told apart. */
export interface Bar {
  row: string;
  left: number;
  width: number;
  runs: Run[];
  tone: 'ok' | 'fail' | 'run' | 'off';
}

const MIN = 6;

function tone(runs: Run[], now: number): Bar['tone'] {
  if (runs.some((run) => run.end && !run.success)) return 'fail';
  if (runs.some((run) => !run.end && run.start && now - run.start < 3_600_000)) return 'run';
  return runs.some((run) => !run.end) ? 'off' : 'ok';
}

/**
 * Places runs on an axis of so many pixels. A bar is six pixels wide at least; runs of a row that start within that width become one bar with
 * their number. A run without an end grows to the present.
 */
export function bars(runs: Run[], rowOf: (run: Run) => string, from: number, to: number, width: number, now: number): Bar[] {
  const scale = width / (to - from);
  const rows = new Map<string, Run[]>();
  for (const run of runs) {
    if (!run.start) continue;
    const row = rowOf(run);
    const list = rows.get(row);
    if (list) list.push(run);
    else rows.set(row, [run]);
  }
  const found: Bar[] = [];
  for (const [row, list] of rows) {
    list.sort((one, other) => (one.start ?? 0) - (other.start ?? 0));
    let last: Bar | undefined;
    let begin = 0;
    for (const run of list) {
      const left = ((run.start ?? 0) - from) * scale;
      const right = Math.max(left + MIN, ((run.end ?? Math.min(now, to)) - from) * scale);
      if (last && left < begin + MIN) {
        last.runs.push(run);
        last.width = Math.max(last.width, right - last.left);
      } else {
        last = { row, left, width: right - left, runs: [run], tone: 'ok' };
        begin = left;
        found.push(last);
      }
    }
  }
  for (const bar of found) {
    bar.tone = tone(bar.runs, now);
    // What began earlier reaches into the axis.
    if (bar.left < 0) {
      bar.width += bar.left;
      bar.left = 0;
    }
    bar.width = Math.max(MIN, Math.min(bar.width, width - bar.left));
  }
  return found;
}

/** The marks of an axis: round moments, at most so many. */
export function marks(from: number, to: number, most: number): number[] {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800];
  const step = (steps.find((one) => (to - from) / (one * 1_000) <= most) ?? 2_592_000) * 1_000;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - offset) / step) * step + offset;
  const found: number[] = [];
  for (let at = first; at <= to; at += step) found.push(at);
  return found;
}
