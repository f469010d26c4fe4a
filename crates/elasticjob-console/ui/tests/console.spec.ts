import AxeBuilder from '@axe-core/playwright';
import { expect, type Page, test } from '@playwright/test';

// The jobs of the fixture: `fine` has three items and runs each second, `fails` fails on item 1, `off` is disabled, `lost` has no
// instance, `bad` has an invalid cron, and the last one has a hostile name.
const HOSTILE = '<img src=x onerror=document.title=1>';

interface Found {
  problems: string[];
}

/** Every page also fails on an error of the console, a request to another host, and an answer of 500 or above. */
function watched(page: Page): Found {
  const found: Found = { problems: [] };
  page.on('console', (message) => {
    if (message.type() === 'error') found.problems.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => found.problems.push(`error: ${error.message}`));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(process.env.CONSOLE_URL ?? '?') && !url.startsWith('data:')) found.problems.push(`request: ${url}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 500) found.problems.push(`${response.status()}: ${response.url()}`);
  });
  return found;
}

async function logIn(page: Page, username = 'root', password = 'root'): Promise<void> {
  await page.goto('/');
  await page.fill('input[name=username]', username);
  await page.fill('input[name=password]', password);
  await page.keyboard.press('Enter');
  await expect(page.locator('.verdict')).toBeVisible();
}

async function violations(page: Page): Promise<string[]> {
  const result = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']).analyze();
  return result.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(' ')).join(', ')}`);
}

test('an invalid password is said at the field, and a valid one leads to the overview', async ({ page }) => {
  await page.goto('/');
  await page.fill('input[name=username]', 'root');
  await page.fill('input[name=password]', 'wrong');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('alert')).toContainText('unknown user or invalid password');
  await expect(page.locator('input[name=password]')).toBeFocused();
  const found = watched(page);
  await page.keyboard.type('root');
  await page.keyboard.press('Enter');
  await expect(page.locator('.verdict')).toHaveText('3 of 6 jobs need attention.');
  expect(found.problems).toEqual([]);
});

test('the overview counts jobs by state, and each number leads to exactly these jobs', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  const attention = page.getByRole('region', { name: 'Attention' });
  for (const [job, reason] of [
    ['bad', 'invalid stored configuration'],
    ['lost', 'no instance runs this job'],
  ]) {
    await expect(attention.getByRole('listitem').filter({ hasText: job })).toContainText(String(reason));
  }
  for (const [state, jobs] of [
    ['Disabled', ['off']],
    ['Bad configuration', ['bad']],
  ] as const) {
    await page.goto('/');
    await page.locator('dl div').filter({ hasText: new RegExp(`^${state}`) }).getByRole('link').click();
    await expect(page.locator('tbody th')).toHaveText(jobs.map((job) => new RegExp(job)));
  }
  expect(found.problems).toEqual([]);
});

test('search, filter and order survive a reload and a copied address', async ({ page, context }) => {
  await logIn(page);
  await page.goto('/jobs');
  await page.getByLabel('Search').fill('fi');
  await page.getByRole('button', { name: 'Job', exact: true }).click();
  await expect(page.locator('tbody tr')).toHaveCount(1);
  await page.reload();
  await expect(page.getByLabel('Search')).toHaveValue('fi');
  await expect(page.locator('tbody th')).toContainText('fine');
  const other = await context.newPage();
  await other.goto(page.url());
  await expect(other.locator('tbody tr')).toHaveCount(1);
  await expect(other.locator('th[aria-sort=descending]')).toHaveText(/Job/);
});

test('the registry center is in the address, and the user can switch back', async ({ page }) => {
  await logIn(page);
  await expect(page).toHaveURL(/centre=local/);
  const picker = page.getByLabel('Registry center');
  await picker.selectOption('empty');
  await expect(page.locator('.verdict')).toHaveText('This registry has no jobs.');
  await page.getByRole('link', { name: /Jobs$/ }).first().click();
  await expect(page).toHaveURL(/jobs.*centre=empty/);
  await picker.selectOption('local');
  await expect(page.locator('tbody th').first()).toBeVisible();
  await expect(page).toHaveURL(/centre=local/);
  await page.goBack();
  await expect(page.locator('.verdict, .empty').first()).toBeVisible();
});

test('an item is disabled and enabled, and the page shows what the registry has', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  await page.goto('/jobs/fine');
  const tile = page.locator('.tile').filter({ hasText: /^\S* 1\s/ }).first();
  await page.locator('.tile').nth(1).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).click();
  await expect(page.locator('.message')).toContainText('item 1');
  await expect(page.locator('.tile').nth(1)).toContainText('disabled');
  await expect(page.locator('.states')).toContainText('disabled items: 1');
  await page.locator('.tile').nth(1).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Enable' }).click();
  await expect(page.locator('.tile').nth(1)).not.toContainText('disabled');
  expect(await tile.count()).toBeLessThanOrEqual(1);
  expect(found.problems).toEqual([]);
});

test('a job is disabled after a question, and enabled again', async ({ page }) => {
  await logIn(page);
  await page.goto('/jobs/fine');
  await page.getByRole('button', { name: /^Disable/ }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('also on those that join later');
  await page.keyboard.press('Escape');
  await expect(dialog).toBeHidden();
  await page.getByRole('button', { name: /^Disable/ }).click();
  await dialog.getByRole('button', { name: 'Disable' }).click();
  await expect(page.locator('.states')).toContainText('Disabled');
  await page.getByRole('button', { name: /^Enable/ }).click();
  await expect(page.locator('.states')).not.toContainText('Disabled');
  await page.getByRole('button', { name: 'Remove' }).click();
  await expect(dialog.getByRole('button', { name: 'Remove' })).toBeDisabled();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
});

test('Why? names the planted cause', async ({ page }) => {
  await logIn(page);
  for (const [job, check, evidence] of [
    ['off', 'job', 'disabled'],
    ['lost', 'instances', 'instance'],
    ['bad', 'configuration', 'cron'],
  ]) {
    await page.goto(`/jobs/${job}?tab=why`);
    const row = page.locator('tr').filter({ has: page.getByRole('rowheader', { name: String(check), exact: true }) });
    await expect(row).toContainText('cause', { timeout: 20_000 });
    await expect(row).toContainText(String(evidence));
  }
});

test('the history shows the failure with its whole text', async ({ page }) => {
  await logIn(page);
  await page.goto('/jobs/fails?tab=history');
  await page.getByLabel('Only failed runs').check();
  await page.locator('.failure').first().click();
  await expect(page.getByRole('dialog')).toContainText('exit code 3');
});

test('failed runs are grouped, and the log of the latest one is one click away', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  await page.goto('/failures');
  const rows = page.locator('tbody tr');
  await expect(rows).toHaveCount(1);
  await expect(rows.first()).toContainText('the script ended with exit code #');
  const count = Number(await rows.first().locator('td').first().innerText());
  await expect.poll(async () => Number(await rows.first().locator('td').first().innerText()), { timeout: 20_000 }).toBeGreaterThan(count);
  await page.locator('.failure').first().click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.locator('.line')).toHaveCount(2);
  await expect(dialog.getByRole('log')).toContainText('step one');
  await dialog.getByLabel('Find in the log').fill('ENDED WITH');
  await expect(dialog.locator('.line')).toHaveCount(1);
  const [download] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: 'Download' }).click()]);
  const stream = await download.createReadStream();
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  expect(Buffer.concat(parts).toString()).toMatch(/Z stdout step one\n.*Z elasticjob failed: the script ended with exit code 3/);
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  // A run that succeeded has no log unless all runs are recorded: the page says why.
  await page.goto('/jobs/fine?tab=history');
  await page.getByRole('button', { name: 'Log of fine' }).first().click();
  await expect(page.getByRole('dialog')).toContainText('Rust agents record that of failed runs', { timeout: 20_000 });
  expect(found.problems).toEqual([]);
});

test('a server is disabled for all jobs and enabled again, and both are in the audit log', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  await page.goto('/servers');
  // The server of the agent is not that of the fixture, 10.0.0.9, which has no process.
  const row = page.locator('tbody tr').filter({ hasNotText: '10.0.0.9' });
  const ip = await row.getByRole('rowheader').innerText();
  await expect(row).toContainText('Rust');
  await row.getByRole('rowheader').getByRole('link').click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(ip);
  const job = page.locator('tbody tr').filter({ has: page.getByRole('rowheader', { name: 'fine', exact: true }) });
  await expect(job).toContainText('0, 1, 2');
  await job.getByRole('button', { name: `Disable fine @ ${ip}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).click();
  await expect(job).toContainText('Disabled');
  await job.getByRole('button', { name: `Enable fine @ ${ip}` }).click();
  await expect(job).toContainText('Online');
  await page.getByRole('button', { name: `Shut down ${ip}`, exact: true }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByRole('button', { name: 'Shut down' })).toBeDisabled();
  await dialog.getByRole('textbox').fill(ip);
  await expect(dialog.getByRole('button', { name: 'Shut down' })).toBeEnabled();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.goto('/audit');
  await page.getByLabel('Find').fill(`/servers/${ip}/jobs/fine/`);
  await expect(page.locator('tbody tr')).toHaveCount(2, { timeout: 20_000 });
  await expect(page.locator('tbody tr').first()).toContainText(`POST /servers/${ip}/jobs/fine/enable`);
  await page.getByLabel('Result').selectOption('refused');
  await expect(page.locator('.empty')).toBeVisible();
  expect(found.problems).toEqual([]);
});

test('a time axis that stands still has a bar for each run, and its table has the same runs', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  const to = Date.now() - 2_000;
  const runs = await page.evaluate(async (end) => {
    const answer = await fetch(`/api/v1/timeline?job=fine&from=${end - 15_000}&to=${end}`);
    return ((await answer.json()) as { runs: unknown[] }).runs.length;
  }, to);
  expect(runs).toBeGreaterThanOrEqual(9);
  await page.goto(`/jobs/fine?tab=timeline&span=0.25&to=${to}`);
  const canvas = page.locator('canvas');
  // A run each second and item: at this width no two of them share a bar.
  await expect(canvas).toHaveAttribute('data-bars', String(runs));
  await expect(page.locator('.names li')).toHaveText(['item 0', 'item 1', 'item 2']);
  const box = await canvas.boundingBox();
  if (!box) throw new Error('no axis');
  // A bar is six pixels wide, and can be hit within 24: sweep a second of the first row.
  for (let x = 0; x < box.width / 15 + 24; x += 12) {
    await canvas.click({ position: { x: box.width / 2 + x, y: 35 } });
    if (await page.locator('.notice li').count()) break;
  }
  await expect(page.locator('.notice li')).toContainText('fine · item 0');
  await page.getByRole('button', { name: 'Table' }).click();
  await expect(page.locator('tbody tr')).toHaveCount(runs);
  await page.getByRole('button', { name: 'Chart' }).click();
  await page.getByRole('button', { name: 'Zoom out' }).click();
  await expect(page).toHaveURL(/span=0\.5/);
  await canvas.focus();
  await page.keyboard.press('ArrowLeft');
  await expect(page).not.toHaveURL(new RegExp(`to=${to}`));
  await page.getByRole('button', { name: 'Now', exact: true }).click();
  await expect(page).not.toHaveURL(/to=/);
  expect(found.problems).toEqual([]);
});

test('the due times of a job say what became of them, and its events who joined', async ({ page }) => {
  await logIn(page);
  await page.goto('/jobs/fine?tab=ledger');
  const row = page.locator('tbody tr').filter({ hasText: '3 ran' }).first();
  await expect(row).toContainText('✓ ran', { timeout: 20_000 });
  await page.goto('/jobs/off?tab=ledger');
  await expect(page.locator('tbody tr').filter({ hasText: 'the job was disabled' }).first()).toContainText('skipped', { timeout: 20_000 });
  await page.locator('tbody button').first().click();
  await expect(page.locator('tbody li').first()).toContainText('item 0');
  await page.goto('/events');
  await page.getByLabel('Kind').selectOption('joined');
  await expect(page.locator('tbody tr')).toHaveCount(3);
  await expect(page.locator('tbody')).toContainText('joined instance=');
});

test('the next firings are those of the expression', async ({ page }) => {
  await logIn(page);
  await page.goto('/jobs/fine?tab=configuration');
  await expect(page.locator('.fires li')).toHaveCount(10);
  await expect(page.locator('pre')).toContainText('shardingTotalCount: 3');
});

test('a configuration is edited: faults, preview, conflict, merge, saved', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  await page.goto('/jobs/off?tab=configuration');
  await page.getByRole('button', { name: 'Edit' }).click();
  const field = page.getByLabel('Configuration (YAML)');
  await expect(field).toBeFocused();
  const text = await field.inputValue();
  const save = page.getByRole('button', { name: 'Save' });
  await field.fill(text.replace('* * * * * ?', 'every day'));
  await expect(page.locator('.editor .error')).toContainText('cron');
  await expect(save).toBeDisabled();
  await field.fill(text.replace('* * * * * ?', '0 0 12 * * ?'));
  await expect(page.locator('.editor tbody tr')).toHaveText([/cron.*\* \* \* \* \* \?.*0 0 12 \* \* \?/]);
  await expect(page.locator('.editor .fires li')).toHaveCount(10);
  await expect(save).toBeEnabled();
  // Another user is faster.
  await page.evaluate(async (yaml) => {
    const path = '/api/v1/jobs/off/config';
    const headers = { 'X-Requested-With': 'x', 'Content-Type': 'application/json' };
    const { etag } = (await (await fetch(path)).json()) as { etag: string };
    await fetch(path, { method: 'PUT', headers: { ...headers, 'If-Match': etag }, body: JSON.stringify({ yaml }) });
  }, text.replace('text of off', 'text of another user'));
  await save.click();
  await expect(page.getByRole('alert')).toContainText('Another user changed the configuration');
  await page.getByRole('button', { name: 'Take over the other change' }).click();
  await expect(field).toHaveValue(/text of another user/);
  await expect(field).toHaveValue(/0 0 12 \* \* \?/);
  await expect(save).toBeEnabled();
  await save.click();
  await expect(page.getByRole('status').filter({ hasText: 'was changed' })).toBeVisible();
  await expect(page.locator('pre')).toContainText('0 0 12 * * ?');
  await expect(page.locator('pre')).toContainText('text of another user');
  // The browser logs the refused request.
  expect(found.problems.filter((problem) => !problem.includes('412'))).toEqual([]);
});

test('hostile names are text', async ({ page }) => {
  const found = watched(page);
  await logIn(page);
  await page.goto('/jobs');
  await expect(page.getByRole('link', { name: HOSTILE })).toBeVisible();
  await page.getByRole('link', { name: HOSTILE }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(HOSTILE);
  expect(await page.title()).not.toBe('1');
  expect(found.problems).toEqual([]);
});

test('a guest sees no control that writes', async ({ page }) => {
  const found = watched(page);
  await logIn(page, 'guest', 'see');
  for (const path of ['/', '/jobs', '/jobs/fine', '/jobs/fine?tab=why', '/runs', '/failures', '/servers', '/centres', '/trace-stores']) {
    await page.goto(path);
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
    await page.waitForLoadState('networkidle').catch(() => undefined);
    for (const name of [/^Trigger/, /^Disable\b/, /^Enable\b/, /^Shut down/, /^Remove/, /^Add$/, /^Connect/]) {
      await expect(page.getByRole('button', { name })).toHaveCount(0);
    }
  }
  expect(found.problems).toEqual([]);
});

test('the language changes without a reload, and no text of the other one is left', async ({ page }) => {
  await logIn(page);
  await page.goto('/jobs');
  await page.getByLabel('Language').selectOption('zh-CN');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('作业');
  await expect(page.locator('html')).toHaveAttribute('lang', 'zh-CN');
  const text = await page.locator('body').innerText();
  for (const word of ['Jobs', 'Overview', 'Trigger', 'Disable', 'State', 'Next', 'jobs.', 'nav.']) expect(text).not.toContain(word);
});

test('a stopped console is shown as stale and the page lives on when it is back', async ({ page, context }) => {
  await logIn(page);
  await context.setOffline(true);
  await expect(page.locator('.live')).toContainText('Stale since', { timeout: 20_000 });
  await expect(page.locator('.verdict')).toBeVisible();
  await context.setOffline(false);
  await expect(page.locator('.live')).toContainText('Live', { timeout: 20_000 });
});

test('the journey from login to an item works by keyboard alone', async ({ page }) => {
  await page.goto('/');
  await expect(page.locator('input[name=username]')).toBeFocused();
  await page.keyboard.type('root');
  await page.keyboard.press('Tab');
  await page.keyboard.type('root');
  await page.keyboard.press('Enter');
  await expect(page.locator('.verdict')).toBeVisible();
  async function tabTo(name: RegExp): Promise<void> {
    for (let step = 0; step < 60; step += 1) {
      await page.keyboard.press('Tab');
      const text = await page.evaluate(() => document.activeElement?.textContent ?? '');
      if (name.test(text.trim())) return;
    }
    throw new Error(`no focus on ${name}`);
  }
  await tabTo(/Jobs$/);
  await page.keyboard.press('Enter');
  await expect(page.locator('tbody tr').first()).toBeVisible();
  await tabTo(/^fine$/);
  await page.keyboard.press('Enter');
  await expect(page.locator('.tile').first()).toBeVisible();
  await tabTo(/^Items$/);
  await page.keyboard.press('ArrowRight');
  await expect(page.getByRole('tab', { name: 'Why?' })).toBeFocused();
  await expect(page.getByRole('rowheader', { name: 'registry' })).toBeVisible({ timeout: 20_000 });
});

for (const scheme of ['light', 'dark'] as const) {
  for (const [language, width] of [
    ['en', 1440],
    ['zh-CN', 390],
    ['en', 320],
  ] as const) {
    test(`axe finds nothing, and nothing is cut off: ${scheme}, ${language}, ${width}`, async ({ browser }) => {
      const context = await browser.newContext({ colorScheme: scheme, locale: language, viewport: { width, height: 800 } });
      const page = await context.newPage();
      const found = watched(page);
      const wrong: string[] = [];
      async function look(name: string): Promise<void> {
        for (const one of await violations(page)) wrong.push(`${name}: ${one}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        if (overflow > 0) wrong.push(`${name}: ${overflow} px wider than the window`);
      }
      await page.goto('/');
      await look('login');
      await page.fill('input[name=username]', 'root');
      await page.fill('input[name=password]', 'root');
      await page.keyboard.press('Enter');
      await expect(page.locator('.verdict')).toBeVisible();
      await look('overview');
      for (const [path, ready] of [
        ['/jobs', 'tbody tr'],
        ['/jobs?q=nothing-has-this-name', '.empty'],
        ['/jobs/fine', '.tile'],
        ['/jobs/bad?tab=why', 'tbody tr'],
        ['/jobs/fails?tab=history', 'tbody tr'],
        ['/jobs/fine?tab=configuration', 'pre'],
        ['/jobs/fine?tab=configuration&edit=1', '.editor textarea'],
        ['/jobs/none', '.empty'],
        ['/jobs/fine?tab=ledger', 'tbody tr'],
        ['/jobs/fine?tab=timeline&span=1', 'canvas'],
        ['/jobs/fine?tab=events', 'tbody tr'],
        ['/timeline?span=1', 'canvas'],
        ['/events', 'tbody tr'],
        ['/runs', 'tbody tr'],
        ['/failures', 'tbody tr'],
        ['/servers', 'tbody tr'],
        ['/audit', 'tbody tr'],
        ['/centres', 'tbody tr'],
        ['/trace-stores', 'tbody tr'],
      ] as const) {
        await page.goto(path);
        if (path.includes('edit=1')) await page.locator('.toolbar button').click();
        await expect(page.locator(ready).first()).toBeVisible({ timeout: 20_000 });
        await look(path);
      }
      await page.goto('/jobs/fine');
      await page.locator('.tile').first().click();
      await expect(page.getByRole('dialog')).toBeVisible();
      await look('dialog of an item');
      await page.goto('/failures');
      await page.locator('.failure').first().click();
      await expect(page.locator('.log .line').first()).toBeVisible();
      await look('dialog of a log');
      // The pictures of the documentation.
      if (process.env.PICTURES && width === 1440) {
        await page.setViewportSize({ width: 1200, height: 640 });
        await page.goto(scheme === 'light' ? '/' : '/jobs/fine');
        await expect(page.locator(scheme === 'light' ? '.verdict' : '.tile').first()).toBeVisible();
        await page.screenshot({ path: `${process.env.PICTURES}/${scheme === 'light' ? 'overview' : 'job'}.png` });
        if (scheme === 'light') {
          await page.goto('/timeline?span=1');
          await expect(page.locator('canvas')).toBeVisible();
          await page.screenshot({ path: `${process.env.PICTURES}/timeline.png` });
        }
      }
      expect(wrong).toEqual([]);
      expect(found.problems.filter((problem) => !problem.includes('404'))).toEqual([]);
      await context.close();
    });
  }
}
