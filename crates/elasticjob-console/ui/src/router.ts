import { createRouter, createWebHistory } from 'vue-router';

export const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: '/', name: 'overview', component: () => import('./views/OverviewView.vue') },
    { path: '/jobs', name: 'jobs', component: () => import('./views/JobsView.vue') },
    { path: '/jobs/:job', name: 'job', component: () => import('./views/JobView.vue'), props: true },
    { path: '/timeline', name: 'timeline', component: () => import('./views/TimelineView.vue') },
    { path: '/events', name: 'events', component: () => import('./views/EventsView.vue') },
    { path: '/runs', name: 'runs', component: () => import('./views/RunsView.vue') },
    { path: '/servers', name: 'servers', component: () => import('./views/ServersView.vue') },
    { path: '/servers/:ip', name: 'server', component: () => import('./views/ServerView.vue'), props: true },
    { path: '/audit', name: 'audit', component: () => import('./views/AuditView.vue') },
    { path: '/failures', name: 'failures', component: () => import('./views/FailuresView.vue') },
    { path: '/centres', name: 'centres', component: () => import('./views/CentresView.vue') },
    { path: '/trace-stores', name: 'stores', component: () => import('./views/StoresView.vue') },
    { path: '/:rest(.*)*', redirect: { name: 'overview' } },
  ],
});

// After an upgrade the files of a page that was open have other names: it is loaded again.
router.onError((error: Error, to) => {
  if (/dynamically imported module|Importing a module/.test(error.message)) window.location.assign(to.fullPath);
});

// The registry center stays in the address from page to page. A change on the same page is one of the user.
router.beforeEach((to, from) => {
  if (to.path !== from.path && from.query.centre && !to.query.centre) {
    return { ...to, query: { ...to.query, centre: from.query.centre } };
  }
  return true;
});
