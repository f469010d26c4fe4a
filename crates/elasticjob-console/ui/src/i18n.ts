import { createI18n } from 'vue-i18n';
import en from './locales/en';
import zh from './locales/zh-CN';

export const LANGUAGES = { en: 'English', 'zh-CN': '中文' } as const;
export type Language = keyof typeof LANGUAGES;

function first(): Language {
  const stored = localStorage.getItem('language');
  if (stored === 'en' || stored === 'zh-CN') return stored;
  return navigator.languages.some((language) => language.toLowerCase().startsWith('zh')) ? 'zh-CN' : 'en';
}

export const i18n = createI18n({
  legacy: false,
  locale: first(),
  fallbackLocale: 'en',
  messages: { en, 'zh-CN': zh },
});

export function setLanguage(language: Language): void {
  i18n.global.locale.value = language;
  localStorage.setItem('language', language);
  document.documentElement.lang = language;
}

setLanguage(i18n.global.locale.value as Language);
