import { defineConfig } from '@playwright/test';

// The fixture, a real console with real jobs, is started by `cargo xtask integ` (tests/tests/integration/pages_of_console.rs).
export default defineConfig({
  testDir: 'tests',
  timeout: 60_000,
  fullyParallel: false,
  workers: 1,
  retries: 0,
  reporter: [['list']],
  use: {
    baseURL: process.env.CONSOLE_URL,
    launchOptions: { executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] },
    trace: 'off',
  },
});
