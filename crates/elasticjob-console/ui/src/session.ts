import { defineStore } from 'pinia';
import { ref } from 'vue';
import { api, type Me, whenExpired } from './api/client';

/** The user, and whether the login has expired. */
export const useSession = defineStore('session', () => {
  const me = ref<Me>();
  const isKnown = ref(false);
  const hasExpired = ref(false);
  /** Whether users log in with a password; otherwise with a link. */
  const hasPasswords = ref(true);
  const error = ref<Error>();

  /** Asks who is logged in. */
  async function load(): Promise<void> {
    error.value = undefined;
    try {
      const current = await api.current();
      me.value = current.me ?? undefined;
      hasPasswords.value = current.passwords;
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

  return { me, isKnown, hasExpired, hasPasswords, error, load, logIn, logOut };
});
