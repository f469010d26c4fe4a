import { createRouter, createWebHistory } from 'vue-router';

export const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: '/', name: 'overview', component: () => import('./views/OverviewView.vue') },
    { path: '/jobs', name: 'jobs', component: () => import('./views/JobsView.vue') },
    { path: '/jobs/:job', name: 'job', component: () => import('./views/JobView.vue'), props: true },
    { path: '/runs', name: 'runs', component: () => import('./views/RunsView.vue') },
    { path: '/centres', name: 'centres', component: () => import('./views/CentresView.vue') },
    { path: '/trace-stores', name: 'stores', component: () => import('./views/StoresView.vue') },
    { path: '/:rest(.*)*', redirect: { name: 'overview' } },
  ],
});

// The registry center stays in the address from page to page.
router.beforeEach((to, from) => {
  if (from.query.centre && !to.query.centre && to.name !== 'centres') {
    return { ...to, query: { ...to.query, centre: from.query.centre } };
  }
  return true;
});
