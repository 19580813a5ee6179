import argparse
import csv
import pickle

import numpy as np

from tabnn import TabNN, clone

ap = argparse.ArgumentParser()
ap.add_argument('csv')
ap.add_argument('--folds', type=int, default=5)
ap.add_argument('--set', nargs='*', default=[], help='name=value of TabNN')
a = ap.parse_args()

rows = list(csv.DictReader(open(a.csv)))
y = [int(r.pop('y')) for r in rows]
proto = TabNN(verbose=4)
proto.set_params(**{k: type(getattr(proto, k))(v) for k, v in (s.split('=') for s in a.set)})

fold = np.random.RandomState(0).permutation(len(rows)) % a.folds
oof = np.zeros(len(rows))
scores, models = [], []
for k in range(a.folds):
    tr, va = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
    take = lambda ix: ([rows[i] for i in ix], [y[i] for i in ix])  # noqa: E731
    est = clone(proto).set_params(seed=k)
    est.fit(*take(tr), eval_set=take(va))
    oof[va] = est.predict_proba(take(va)[0])[:, 1]
    scores.append(est.score(*take(va)))
    models.append(est)
    print('fold', k, 'auc', scores[-1], 'epochs', len(est.history_), 'temperature', est.temp_)
    print('   ', est.importances(*take(va)))
print('cv', np.mean(scores), '+-', np.std(scores), 'brier', np.mean((oof - y) ** 2))

back = pickle.loads(pickle.dumps(models[0]))
assert back.score(rows[:100], y[:100]) == models[0].score(rows[:100], y[:100])
ens = np.mean([m.predict_proba(rows)[:, 1] for m in models], 0)
print('ensemble on all rows', ens.mean(), ens.std())
more = clone(proto).set_params(mixup=0, dropout=0.0)
print('partial fits', [more.partial_fit(rows[s::2], y[s::2]) for s in (0, 1, 0)])
