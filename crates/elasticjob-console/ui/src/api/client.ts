import type { components } from './schema';

type Schemas = components['schemas'];
export type Me = Schemas['Me'];
export type Overview = Schemas['Overview'];
export type Jobs = Schemas['Jobs'];
export type JobLine = Schemas['JobLine'];
export type JobDetail = Schemas['JobDetail'];
export type Item = Schemas['Item'];
export type Instance = Schemas['Instance'];
export type State = Schemas['State'];
export type StateKind = Schemas['StateKind'];
export type Check = Schemas['Check'];
export type Done = Schemas['Done'];
export type Runs = Schemas['Runs'];
export type Run = Schemas['Run'];
export type LogLine = Schemas['Line'];
export type FailureGroup = Schemas['Group'];
export type ServerLine = Schemas['ServerLine'];
export type StoredConfig = Schemas['Stored'];
export type Checked = Schemas['Checked'];
export type DueTime = Schemas['DueTime'];
export type RegistryCentre = Schemas['RegistryCentre'];
export type TraceStore = Schemas['TraceStore'];

/** A failed request, with the text of the server. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

let onExpired: () => void = () => {};

/** Called when the login has expired. */
export function whenExpired(handler: () => void): void {
  onExpired = handler;
}

type Query = Record<string, string | number | boolean | undefined>;

async function send<T>(method: string, path: string, query: Query = {}, body?: unknown, more: Record<string, string> = {}): Promise<T> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') search.set(name, String(value));
  }
  const suffix = search.size > 0 ? `?${search}` : '';
  // The header proves that the request comes from a page of the console.
  const headers: Record<string, string> = { 'X-Requested-With': 'elasticjob', ...more };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const response = await fetch(`/api/v1${path}${suffix}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  if (response.ok) {
    const text = await response.text();
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }
  if (response.status === 401 && path !== '/session') onExpired();
  const problem = (await response.json().catch(() => undefined)) as { detail?: string } | undefined;
  throw new Problem(response.status, problem?.detail ?? response.statusText);
}

const at = (job: string): string => `/jobs/${encodeURIComponent(job)}`;

export const api = {
  current: () => send<Schemas['Current']>('GET', '/session'),
  logIn: (username: string, password: string) => send<{ me: Me }>('POST', '/session', {}, { username, password }),
  logOut: () => send<void>('DELETE', '/session'),
  overview: (centre?: string) => send<Overview>('GET', '/overview', { centre }),
  jobs: (centre?: string) => send<Jobs>('GET', '/jobs', { centre }),
  job: (job: string, centre?: string) => send<JobDetail>('GET', at(job), { centre }),
  why: (job: string, centre?: string) => send<Check[]>('GET', `${at(job)}/why`, { centre }),
  fires: (cron: string, zone: string, n: number) => send<{ times: number[] }>('GET', '/fires', { cron, zone, n }),
  act: (job: string, act: 'trigger' | 'disable' | 'enable' | 'shutdown', centre?: string) =>
    send<Done>('POST', `${at(job)}/${act}`, { centre }),
  remove: (job: string, centre?: string) => send<Done>('DELETE', at(job), { centre }),
  item: (job: string, item: number, act: 'disable' | 'enable', centre?: string) =>
    send<Done>('POST', `${at(job)}/items/${item}/${act}`, { centre }),
  runs: (query: Query) => send<Runs>('GET', '/runs', query),
  runLog: (id: string, query: Query) => send<Schemas['Log']>('GET', `/runs/${encodeURIComponent(id)}/log`, query),
  failures: (query: Query) => send<Schemas['Failures']>('GET', '/failures', query),
  servers: (centre?: string) => send<Schemas['Servers']>('GET', '/servers', { centre }),
  serverOf: (ip: string, centre?: string) => send<Schemas['ServerDetail']>('GET', `/servers/${encodeURIComponent(ip)}`, { centre }),
  server: (ip: string, act: 'disable' | 'enable' | 'shutdown' | 'remove', job?: string, centre?: string) => {
    const path = `/servers/${encodeURIComponent(ip)}${job === undefined ? '' : at(job)}`;
    return act === 'remove' ? send<Done>('DELETE', path, { centre }) : send<Done>('POST', `${path}/${act}`, { centre });
  },
  audit: (query: Query) => send<Schemas['Audit']>('GET', '/audit', query),
  config: (job: string, centre?: string) => send<StoredConfig>('GET', `${at(job)}/config`, { centre }),
  checkConfig: (job: string, yaml: string, centre?: string) => send<Checked>('POST', `${at(job)}/config/check`, { centre }, { yaml }),
  mergeConfig: (job: string, yaml: string, base: string, centre?: string) =>
    send<StoredConfig>('POST', `${at(job)}/config/merge`, { centre }, { yaml, base }),
  saveConfig: (job: string, yaml: string, etag: string, centre?: string) =>
    send<StoredConfig>('PUT', `${at(job)}/config`, { centre }, { yaml }, { 'If-Match': `"${etag}"` }),
  ledger: (job: string, n: number, centre?: string) => send<Schemas['Ledger']>('GET', `${at(job)}/ledger`, { n, centre }),
  events: (query: Query) => send<Schemas['Events']>('GET', '/events', query),
  timeline: (query: Query) => send<Schemas['Timeline']>('GET', '/timeline', query),
  centres: () => send<RegistryCentre[]>('GET', '/centres'),
  addCentre: (centre: Record<string, string>) => send<void>('POST', '/centres', {}, centre),
  connectCentre: (name: string) => send<void>('POST', `/centres/${encodeURIComponent(name)}/connect`),
  removeCentre: (name: string) => send<void>('DELETE', `/centres/${encodeURIComponent(name)}`),
  stores: () => send<TraceStore[]>('GET', '/trace-stores'),
  addStore: (store: Record<string, string>) => send<void>('POST', '/trace-stores', {}, store),
  connectStore: (name: string) => send<void>('POST', `/trace-stores/${encodeURIComponent(name)}/connect`),
  removeStore: (name: string) => send<void>('DELETE', `/trace-stores/${encodeURIComponent(name)}`),
};
