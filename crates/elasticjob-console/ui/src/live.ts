import { defineStore } from 'pinia';
import { Problem } from './api/client';
import { onBeforeUnmount, type Ref, ref, shallowRef, watch } from 'vue';

const PERIOD = 2_000;
const STALE = 10_000;

/** Whether the pages are current. */
export const useLive = defineStore('live', () => {
  const isPaused = ref(false);
  const lastGood = ref(Date.now());
  const now = ref(Date.now());
  const isStale = ref(false);
  setInterval(() => {
    if (!isPaused.value && !document.hidden) now.value = Date.now();
    isStale.value = !document.hidden && !isPaused.value && Date.now() - lastGood.value > STALE;
  }, 1_000);
  document.addEventListener('visibilitychange', () => {
    // A page that comes to the front is given the time of one read.
    if (!document.hidden) lastGood.value = Math.max(lastGood.value, Date.now() - STALE + PERIOD);
  });

  function good(): void {
    lastGood.value = Date.now();
    isStale.value = false;
  }

  return { isPaused, lastGood, now, isStale, good };
});

/** Reads something again and again while its page is shown, and keeps the last answer if a read fails. */
export function usePolled<T>(
  read: () => Promise<T>,
  key: () => unknown,
  keeps = false,
  /** The time from one read to the next in milliseconds; 0 for what does not change. */
  period: () => number = () => PERIOD,
): {
  data: Ref<T | undefined>;
  error: Ref<Error | undefined>;
  refresh: () => Promise<void>;
} {
  const live = useLive();
  const data = shallowRef<T>();
  const error = shallowRef<Error>();
  let timer: number | undefined;
  let turn = 0;
  let ended = false;

  async function refresh(): Promise<void> {
    const mine = ++turn;
    window.clearTimeout(timer);
    try {
      const answer = await read();
      if (mine !== turn || ended) return;
      data.value = answer;
      error.value = undefined;
      live.good();
    } catch (failure) {
      if (mine !== turn || ended) return;
      error.value = failure as Error;
      // The console answers; what is behind it does not.
      if (failure instanceof Problem) live.good();
    }
    if (period() > 0) timer = window.setTimeout(tick, period());
  }

  function tick(): void {
    if (live.isPaused || document.hidden) timer = window.setTimeout(tick, PERIOD);
    else void refresh();
  }

  watch(
    // By its value: a list is a new one each time.
    () => JSON.stringify(key()),
    () => {
      // What is shown stays until the next answer, where it is about the same thing.
      if (!keeps) data.value = undefined;
      error.value = undefined;
      void refresh();
    },
    { immediate: true },
  );
  function shown(): void {
    if (!document.hidden && !live.isPaused) void refresh();
  }
  document.addEventListener('visibilitychange', shown);
  onBeforeUnmount(() => {
    ended = true;
    document.removeEventListener('visibilitychange', shown);
    window.clearTimeout(timer);
  });
  return { data, error, refresh };
}
