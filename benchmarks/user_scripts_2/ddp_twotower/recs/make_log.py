import argparse

import numpy as np

p = argparse.ArgumentParser()
p.add_argument('--out', default='log.npz')
p.add_argument('--users', type=int, default=260)
p.add_argument('--items', type=int, default=120)
a = p.parse_args()
r = np.random.RandomState(31)
u, v = r.normal(size=(a.users, 6)), r.normal(size=(a.items, 6))
pop = r.zipf(1.6, a.items).clip(max=40)
rows = []
for k in range(a.users):
    s = u[k] @ v.T + np.log(pop)
    n = r.randint(4, 15)
    liked = np.argsort(-(s + r.gumbel(size=a.items)))[:n]
    rows += [(k, i, t) for t, i in enumerate(r.permutation(liked))]
rows = np.array(rows)
np.savez(a.out, user=rows[:, 0], item=rows[:, 1], time=rows[:, 2], n_items=a.items, n_users=a.users)
print('events', len(rows))
