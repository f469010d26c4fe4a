import { defineStore } from 'pinia';
import { ref } from 'vue';
import { api, type Me, whenExpired } from './api/client';

/** The user, and whether the login has expired. */
export const useSession = defineStore('session', () => {
  const me = ref<Me>();
  const isKnown = ref(false);
  const hasExpired = ref(false);
  const error = ref<Error>();

  /** Asks who is logged in. */
  async function load(): Promise<void> {
    error.value = undefined;
    try {
      me.value = (await api.current()).me ?? undefined;
      isKnown.value = true;
      hasExpired.value = false;
    } catch (failure) {
      // The login may be valid: only the console does not answer.
      error.value = failure as Error;
    }
  }

  async function logIn(username: string, password: string): Promise<void> {
    me.value = (await api.logIn(username, password)).me;
    hasExpired.value = false;
  }

  async function logOut(): Promise<void> {
    await api.logOut();
    me.value = undefined;
  }

  whenExpired(() => {
    // What is on the page stays there until the user logs in again.
    if (me.value) hasExpired.value = true;
  });

  return { me, isKnown, hasExpired, error, load, logIn, logOut };
});
