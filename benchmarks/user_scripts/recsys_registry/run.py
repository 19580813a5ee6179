import functools
import sys
import time

import torch

import models  # noqa: F401  (fills the registry)
from feed import make_loaders
from registry import Cfg, build

CFG = Cfg({
    'data': {'n_users': 150, 'n_items': 90, 'per_user': 12, 'negatives': 4, 'batch': 128, 'seed': 6},
    'model': {'name': 'mf', 'dim': 16, 'sparse': True, 'hidden': 32},
    'loss': {'name': 'sampled_softmax', 'temperature': 0.5},
    'optim': {'dense': 'Adam', 'sparse': 'SparseAdam', 'lr': 0.02},
    'train': {'epochs': 4, 'l2': 1e-3, 'hard': 0.5},
})


def make_optimizers(model, dense, sparse, lr, **kw):
    sp = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.sparse]
    ids = set(map(id, sp))
    de = [p for p in model.parameters() if id(p) not in ids]
    out = []
    if sp:
        out.append(getattr(torch.optim, sparse)(sp, lr=lr))
    if de:
        out.append(getattr(torch.optim, dense)(de, lr=lr, **kw))
    return out


def compute(model, loss_fn, u, i, neg, *, weight=None, **kw):
    pos = model(u, i)
    ng = model(u.unsqueeze(1).expand_as(neg), neg)
    per = loss_fn(pos, ng, **kw)
    if weight is not None:
        per = per * weight
    return per


def evaluate(model, ds, target, ks, device):
    model.eval()
    n = target.size(0)
    hits = {k: 0 for k in ks}
    mrr = []
    for u in range(n):
        s = model.all_items(torch.tensor([u]).to(device))[0]
        for j in ds.seen[u]:
            s[j] = -1e9
        rank = (s > s[target[u]]).sum().item() + 1
        mrr.append(1.0 / rank)
        for k in ks:
            hits[k] += rank <= k
    return {**{'hit@%d' % k: hits[k] / n for k in ks}, 'mrr': sum(mrr) / n}


def main(argv):
    for a in argv:
        CFG.override(*a.split('=', 1))
    torch.manual_seed(CFG.data.seed)
    device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')
    ds, loader, probe, val, test = make_loaders(CFG.data)
    mk = dict(CFG.model)
    model = build('model', mk.pop('name'), CFG.data.n_users, CFG.data.n_items, **mk).to(device)
    loss_fn = functools.partial(build, 'loss', CFG.loss.name)
    opts = make_optimizers(model, **CFG.optim)
    print(type(model).__name__, [type(o).__name__ for o in opts], len(ds), 'pairs')

    temp = CFG.loss.temperature
    pair_w = torch.ones(len(ds))             # stays on the host, indexed by pair number
    best = {'mrr': -1}
    for epoch in range(CFG.train.epochs):
        t0, losses = time.time(), []
        model.train()
        for u, i, neg, n in loader:
            u, i, neg = u.to(device), i.to(device), neg.to(device)
            for o in opts:
                o.zero_grad()
            per = compute(model, loss_fn, u, i, neg, weight=pair_w[n].to(device), temperature=temp)
            reg = model.user(u).pow(2).sum(-1) + model.item(i).pow(2).sum(-1)
            loss = (per + CFG.train.l2 * reg).mean()
            loss.backward()
            for o in opts:
                o.step()
            # harder pairs get more weight the next time
            pair_w[n] = (1 - CFG.train.hard) + CFG.train.hard * per.detach().cpu() / per.mean().item()
            losses.append(loss.item())
        with torch.no_grad():
            ps = []
            for u, i, neg, _ in probe:
                ps += compute(model, loss_fn, u.to(device), i.to(device), neg.to(device), temperature=temp).cpu().tolist()
        pm = sum(ps) / len(ps)
        temp = min(1.0, max(0.2, temp * (0.9 if pm > 1.0 else 1.1)))
        ev = evaluate(model, ds, val, (5, 10), device)
        print('epoch %d loss %.6f probe %.6f temp %.4f w %.5f %s  %.1f s' % (
            epoch, sum(losses) / len(losses), pm, temp, pair_w.std().item(), {k: round(v, 5) for k, v in ev.items()}, time.time() - t0))
        if ev['mrr'] > best['mrr']:
            best = dict(ev, epoch=epoch)
            torch.save(model.state_dict(), 'mf.pt')
    model.load_state_dict(torch.load('mf.pt'))
    print('best', best['epoch'], 'test', {k: round(v, 5) for k, v in evaluate(model, ds, test, (5, 10), device).items()})


if __name__ == '__main__':
    main(sys.argv[1:])
