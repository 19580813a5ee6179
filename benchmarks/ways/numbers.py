"""Nobody sees that a number is read later."""

from benchmarks.ways.claim import Claim

SUMS = """
...above
data = TensorDataset(torch.randn(40, 4), torch.randint(0, 3, (40,)))
loader = DataLoader(data, batch_size=4)
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scale = nn.Parameter(torch.ones((), device=device))
...before
for epoch in range(3):
    total = 0.0
    losses = []
    ...epoch
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        ...first
        optimizer.step()
        ...inside
    ...after
    print(repr(float(total)), [float(v) for v in losses])
"""
SUM = "total += loss.item()\n"
KEEP = "losses.append(loss.item())\n"
READ: dict[str, str | dict[str, str]] = {
    "a sum": SUM,
    "a list": KEEP,
    "weighted": "total += loss.item() * len(x)",
    "divided": "total += loss.item() / len(loader)",
    "by float": "total += float(loss)",
    "by int": "total += int((model(x).argmax(1) == y).sum())",
    "by numpy": "total += loss.detach().cpu().numpy()",
    "by numpy, listed": "losses.append(loss.detach().cpu().numpy())",
    "by tolist": "losses.append(loss.tolist())",
    "loss changed after": SUM + "with torch.no_grad():\n    loss.mul_(0)",
    "loss changed after, listed": KEEP + "with torch.no_grad():\n    loss.mul_(0)",
    "loss's data changed after": KEEP + "loss.data.zero_()",
    "detached changed after": KEEP + "loss.detach().zero_()",
    "loss in out": KEEP + "torch.add(loss.detach(), 1, out=loss.data)",
    "buffer reused": {
        "before": "box = torch.zeros(())",
        "inside": "box.copy_(loss.detach())\nlosses.append(box.item())",
    },
    "buffer reused, row": {
        "before": "box = torch.zeros(2)",
        "inside": "box[0] = loss.detach()\nlosses.append(box[0].item())",
    },
    "buffer by augmented": {
        "before": "box = torch.zeros(())",
        "inside": "box += loss.detach()\nlosses.append(box.item())",
    },
    "buffer by a view": {
        "before": "box = torch.zeros(2)\nrow = box[0]",
        "inside": "row.copy_(loss.detach())\nlosses.append(box[0].item())",
    },
    "buffer by numpy": {
        "before": "raw = np.zeros(1, dtype='float32')\nbox = torch.from_numpy(raw)",
        "inside": "raw[0] = i\nlosses.append(box[0].item())",
    },
    "buffer by map": {
        "before": "box = torch.zeros(())",
        "inside": "list(map(box.copy_, [loss.detach()]))\nlosses.append(box.item())",
    },
    "buffer by foreach": {
        "before": "box = torch.zeros(())",
        "inside": "torch._foreach_add_([box], [loss.detach()])\nlosses.append(box.item())",
    },
    "buffer by an operator": {
        "before": "box = torch.zeros(())",
        "inside": "operator.iadd(box, loss.detach())\nlosses.append(box.item())",
    },
    "buffer by out": {
        "before": "box = torch.zeros(())",
        "inside": "torch.add(loss.detach(), 1, out=box)\nlosses.append(box.item())",
    },
    "buffer by a function": {
        "above": "def put(b, v):\n    b.copy_(v)",
        "before": "box = torch.zeros(())",
        "inside": "put(box, loss.detach())\nlosses.append(box.item())",
    },
    "buffer by getattr": {
        "before": "box = torch.zeros(())",
        "inside": "getattr(box, 'copy_')(loss.detach())\nlosses.append(box.item())",
    },
    "buffer by methodcaller": {
        "before": "box = torch.zeros(())",
        "inside": "operator.methodcaller('copy_', loss.detach())(box)\nlosses.append(box.item())",
    },
    "buffer by eval": {
        "before": "box = torch.zeros(())",
        "inside": "eval('box.copy_(loss.detach())')\nlosses.append(box.item())",
    },
    "buffer of a dict": {
        "before": "d = {'box': torch.zeros(())}",
        "inside": "d['box'] += loss.detach()\nlosses.append(d['box'].item())",
    },
    "buffer of a namespace": {
        "before": "d = types.SimpleNamespace(box=torch.zeros(()))",
        "inside": "d.box += loss.detach()\nlosses.append(d.box.item())",
    },
    "buffer of a module": {
        "before": "model.register_buffer('box', torch.zeros(()))",
        "inside": "model.box += loss.detach()\nlosses.append(model.box.item())",
    },
    "parameter before the step": {"first": "losses.append(model[0].bias[0].item())"},
    "parameter after the step": "losses.append(model[0].bias[0].item())",
    "parameter by detach": "losses.append(model[0].bias[0].detach().item())",
    "parameter by data": "losses.append(model[0].bias.data[0].item())",
    "parameter by a name": {"before": "b = model[0].bias", "inside": "losses.append(b[0].item())"},
    "parameter by a list": {
        "before": "ps = list(model.parameters())",
        "inside": "losses.append(ps[1][0].item())",
    },
    "parameter by state_dict": "losses.append(model.state_dict()['0.bias'][0].item())",
    "parameter by next": "losses.append(next(model.parameters()).view(-1)[0].item())",
    "parameter by get_parameter": "losses.append(model.get_parameter('0.bias')[0].item())",
    "parameter by the optimizer": "losses.append(optimizer.param_groups[0]['params'][1][0].item())",
    "parameter, numpy": "losses.append(model[0].bias.detach().cpu().numpy()[0])",
    "parameter by vector": "losses.append(nn.utils.parameters_to_vector(model.parameters())[4].item())",
    "running mean": "losses.append(model[1].running_mean[0].item())",
    "running count": "losses.append(model[1].num_batches_tracked.item())",
    "buffer by next": "losses.append(next(model.buffers())[0].item())",
    "momentum": "losses.append(optimizer.state[model[0].bias]['momentum_buffer'][0].item())",
    "gradient": {"first": "losses.append(model[0].bias.grad[0].item())"},
    "gradient kept as zeros": {
        "first": "losses.append(model[0].bias.grad[0].item())",
        "inside": "optimizer.zero_grad(set_to_none=False)",
    },
    "gradient clipped after": {
        "first": "losses.append(model[0].weight.grad[0, 0].item())\nnn.utils.clip_grad_norm_(model.parameters(), 0.01)"
    },
    "gradient scaled after": {
        "first": "losses.append(model[0].weight.grad[0, 0].item())\nfor p in model.parameters():\n    p.grad.mul_(0.5)"
    },
    "gradient norm": {"first": "losses.append(model[0].weight.grad.norm().item())"},
    "input changed after": "losses.append(x[0, 0].item())\nx.zero_()",
    "input's view": "losses.append(x.view(-1)[0].item())\nx.add_(1)",
    "input's sum": "losses.append(x.sum().item())\nx.add_(1)",
    "item of data": "losses.append(data.tensors[0][i, 0].item())\ndata.tensors[0].add_(0.1)",
    "data changed later": {
        "inside": "losses.append(data.tensors[0][i, 0].item())",
        "after": "data.tensors[0].add_(0.1)",
    },
    "output changed by relu": "out = model(x)\nlosses.append(out[0, 0].item())\nF.relu(out, inplace=True)",
    "output sorted": "out = model(x).detach()\nlosses.append(out[0, 0].item())\nout.copy_(out.sort()[0])",
    "output's max": "out = model(x).detach()\nlosses.append(out.max().item())\nout.zero_()",
    "output's row": "out = model(x).detach()[0]\nlosses.append(out[0].item())\nout.zero_()",
    "output's unbind": "a, *_ = model(x).detach().unbind()\nlosses.append(a[0].item())\na.zero_()",
    "sum read by a closure": {"epoch": "look = lambda: print(total)", "inside": SUM + "look()"},
    "sum read by a function": {"above": "def look():\n    print(total)", "inside": SUM + "look()"},
    "sum read by globals": SUM + "print(globals()['total'])",
    "sum read by eval": SUM + "print(eval('total'))",
    "sum read by vars": SUM + "print(vars()['total'])",
    "sum read by locals": SUM + "print(dict(locals())['total'])",
    "sum read by format": SUM + "print('{total}'.format(**globals()))",
    "sum read by a hook": {
        "before": "model.register_forward_hook(lambda *a: print(total))",
        "inside": SUM,
    },
    "sum read by a thread": SUM
    + "t = threading.Thread(target=lambda: print(total))\nt.start()\nt.join()",
    "sum read by a generator": {
        "epoch": "def look():\n    while True:\n        yield total\ng = look()",
        "inside": SUM + "print(next(g))",
    },
    "sum read by main": SUM + "import __main__\nprint(__main__.total)",
    "sum read by sys": SUM + "import sys\nprint(sys.modules['__main__'].total)",
    "sum read by a frame": SUM + "import sys\nprint(sys._getframe().f_globals['total'])",
    "sum read by pickle": SUM + "print(len(pickle.dumps(total)))",
    "sum read now and then": SUM + "if i % 3 == 2:\n    print(total)\n    total = 0.0",
    "sum read at the end": SUM + "if i == len(loader) - 1:\n    print(total / len(loader))",
    "sum printed by %": {"inside": SUM, "after": "print('%r' % total)"},
    "sum printed by !r": {"inside": SUM, "after": "print(f'{total!r}')"},
    "sum printed by =": {"inside": SUM, "after": "print(f'{total=}')"},
    "sum aligned": {"inside": SUM, "after": "print(f'{total:>12.5f}|{total:e}|{total:08.3f}')"},
    "sum's type": {"inside": SUM, "after": "print(type(total), isinstance(total, float))"},
    "sum as a key": {"inside": SUM, "after": "print({total: 1}, total in {total}, hash(total))"},
    "sum rounded": {
        "inside": SUM,
        "after": "print(round(total, 3), int(total), abs(-total), total // 1, divmod(total, 2))",
    },
    "sum by hex": {
        "inside": SUM,
        "after": "print(total.hex(), total.is_integer(), total.as_integer_ratio())",
    },
    "sum to json": {"inside": SUM, "after": "import json\nprint(json.dumps({'t': total}))"},
    "sum to math": {
        "inside": SUM,
        "after": "import math\nprint(math.exp(total / 10), math.isnan(total), math.fsum([total]))",
    },
    "sum to numpy": {
        "inside": SUM,
        "after": "print(np.float32(total), np.array([total]).dtype, np.mean([total, 1]))",
    },
    "sum to torch": {
        "inside": SUM,
        "after": "print(torch.tensor(total), torch.tensor([total, 1.0]))",
    },
    "sum as a minimum": {
        "before": "best = 1e9",
        "inside": SUM,
        "after": "best = min(best, total)\nprint(best)",
    },
    "sum compared": {
        "before": "best = 1e9",
        "inside": SUM,
        "after": "if total < best:\n    best = total\nprint(best)",
    },
    "sum in a list": {
        "before": "hist = []",
        "inside": SUM,
        "after": "hist.append(total)\nprint(hist, sum(hist), max(hist))",
    },
    "sum in a dict": {
        "before": "hist = {}",
        "inside": SUM,
        "after": "hist[epoch] = total\nprint(hist)",
    },
    "sum saved": {
        "inside": SUM,
        "after": "f = io.BytesIO()\ntorch.save({'t': total}, f)\nf.seek(0)\nprint(type(torch.load(f)['t']), len(f.getvalue()))",
    },
    "sum for a scheduler": {
        "before": "s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)",
        "inside": SUM,
        "after": "s.step(total)\nprint(s.best)",
    },
    "sum copied": {"inside": SUM, "after": "t = copy.copy(total)\ntotal += 1\nprint(t)"},
    "sum aliased": {"inside": SUM + "last = total", "after": "total += 1\nprint(last)"},
    "sum aliased before": {"epoch": "last = total", "inside": SUM, "after": "print(last)"},
    "sum aliased now and then": SUM + "if i == 3:\n    third = total\nif i == 6:\n    print(third)",
    "sum handed to a function": {
        "above": "def f(t, l):\n    t += l\n    return t",
        "inside": "total = f(total, loss.item())",
    },
    "sum by a function": {"above": "def f(l):\n    return l.item()", "inside": "total += f(loss)"},
    "two sums from one": {
        "epoch": "a = b = 0.0",
        "inside": "a += loss.item()\nb += loss.item() ** 2",
        "after": "print(a, b)",
    },
    "sum by an object": {
        "above": "class M:\n    def __init__(self):\n        self.s = 0.0\n        self.n = 0\n    def update(self, v, n=1):\n        self.s += v * n\n        self.n += n\n    @property\n    def mean(self):\n        return self.s / self.n",
        "epoch": "m = M()",
        "inside": "m.update(loss.item(), len(x))",
        "after": "print(m.mean)",
    },
    "sum by an object, shown": {
        "above": "class M:\n    def __init__(self):\n        self.s = 0.0\n    def update(self, v):\n        self.s += v\n    def __repr__(self):\n        return f'{self.s}'",
        "epoch": "m = M()",
        "inside": "m.update(loss.item())\nif i % 4 == 0:\n    print(m)",
    },
    "sum by an object, counted": {
        "above": "class M:\n    def __init__(self):\n        self.vs = []\n    def update(self, v):\n        self.vs.append(v)\n        if len(self.vs) > 3:\n            print(max(self.vs))\n            self.vs = []",
        "epoch": "m = M()",
        "inside": "m.update(loss.item())",
    },
    "sum by an object that compares": {
        "above": "class M:\n    best = 1e9\n    def update(self, v):\n        if v < self.best:\n            self.best = v",
        "epoch": "m = M()",
        "inside": "m.update(loss.item())",
        "after": "print(m.best)",
    },
    "sum in a default dict": {
        "epoch": "d = collections.defaultdict(float)",
        "inside": "d['l'] += loss.item()",
        "after": "print(dict(d))",
    },
    "sum in a counter": {
        "epoch": "d = collections.Counter()",
        "inside": "d['l'] += loss.item()",
        "after": "print(d.most_common(1))",
    },
    "sum in an array": {
        "epoch": "a = np.zeros(3)",
        "inside": "a[i % 3] += loss.item()",
        "after": "print(a)",
    },
    "sum in a tensor": {
        "epoch": "a = torch.zeros(3)",
        "inside": "a[i % 3] += loss.item()",
        "after": "print(a)",
    },
    "item of a tensor": {
        "epoch": "a = torch.zeros(len(loader))",
        "inside": "a[i] = loss.item()",
        "after": "print(a.mean().item(), a)",
    },
    "item of an array": {
        "epoch": "a = np.zeros(len(loader))",
        "inside": "a[i] = loss.item()",
        "after": "print(a.mean(), a.std())",
    },
    "deque": {
        "epoch": "d = collections.deque(maxlen=3)",
        "inside": "d.append(loss.item())",
        "after": "print(list(d), sum(d) / len(d))",
    },
    "heap": {
        "epoch": "import heapq\nh = []",
        "inside": "heapq.heappush(h, loss.item())",
        "after": "print(heapq.nsmallest(2, h))",
    },
    "set": {"epoch": "d = set()", "inside": "d.add(loss.item())", "after": "print(sorted(d))"},
    "tuple": {"inside": "losses += (loss.item(),)"},
    "list by +": {"inside": "losses = losses + [loss.item()]"},
    "list by insert": {"inside": "losses.insert(0, loss.item())"},
    "list by slice": {"inside": "losses[len(losses):] = [loss.item()]"},
    "list of pairs": {
        "epoch": "ps = []",
        "inside": "ps.append((i, loss.item()))",
        "after": "print(ps, sorted(ps, key=lambda p: p[1])[0])",
    },
    "list of dicts": {
        "epoch": "ps = []",
        "inside": "ps.append({'i': i, 'loss': loss.item()})",
        "after": "print(ps[-1])",
    },
    "list read by max": {"inside": KEEP, "after": "print(max(losses), losses.index(min(losses)))"},
    "list sorted": {"inside": KEEP, "after": "losses.sort()"},
    "list in a mean": {
        "inside": KEEP,
        "after": "print(np.mean(losses), np.median(losses), sum(losses) / len(losses))",
    },
    "list in statistics": {
        "inside": KEEP,
        "after": "import statistics\nprint(statistics.mean(losses), statistics.stdev(losses))",
    },
    "list read in the loop": KEEP
    + "if len(losses) > 3 and losses[-1] > losses[-2]:\n    print('up')",
    "list read by a name": {"epoch": "other = losses", "inside": KEEP + "print(other[-1])"},
    "list read by a function": {
        "above": "def look():\n    return losses[-1]",
        "inside": KEEP + "print(look())",
    },
    "list across epochs": {
        "before": "every = []",
        "inside": "every.append(loss.item())",
        "after": "print(every[-1], len(every))",
    },
    "list for a plot": {
        "inside": KEEP,
        "after": "print(np.array(losses).shape, np.array(losses).dtype, str(losses))",
    },
    "last of the loop": {"inside": "last = loss.item()", "after": "print(last)"},
    "last, changed after": {
        "inside": "last = loss.item()\nloss.data.zero_()",
        "after": "print(last)",
    },
    "last of a parameter": {
        "inside": "last = model[0].bias[0].item()",
        "after": "optimizer.step()\nprint(last)",
    },
    "last used later in the step": "last = loss.item()\nloss.data.mul_(2)\nprint(last)",
    "last used now and then": "last = loss.item()\nloss.data.mul_(2)\nif i % 3 == 0:\n    print(last)",
    "parameter used now and then": {
        "first": "last = model[0].bias[0].item()",
        "inside": "if i % 3 == 0:\n    print(last)",
    },
    "parameter's detach now and then": {
        "first": "last = model[0].bias.detach()[0].item()",
        "inside": "if i % 3 == 0:\n    print(last)",
    },
    "gradient now and then": {
        "first": "last = model[0].bias.grad[0].item()",
        "inside": "optimizer.zero_grad(set_to_none=False)\nif i % 3 == 0:\n    print(last)",
    },
    "norm now and then": {
        "first": "last = model[0].bias.norm().item()",
        "inside": "if i % 3 == 0:\n    print(last)",
    },
    "rate now and then": {
        "inside": "last = loss.item()\noptimizer.param_groups[0]['lr'] *= 0.9\nif i % 3 == 0:\n    print(last)"
    },
    "previous": {
        "before": "last = None",
        "inside": "if last is not None and i % 4 == 0:\n    print(last)\nlast = loss.item()",
    },
    "previous of a parameter": {
        "before": "last = None",
        "inside": "if last is not None and i % 4 == 0:\n    print(last)\nlast = model[0].bias[0].item()",
    },
    "early stopping": {
        "before": "best = 1e9",
        "inside": SUM + "if loss.item() < best:\n    best = loss.item()",
        "after": "print(best)",
    },
    "break": SUM + "if total > 5:\n    break",
    "nan check": SUM + "if total != total:\n    raise ValueError",
    "truth": SUM + "if total:\n    losses.append(1)",
    "stops the gradient": {
        "first": "pass",
        "inside": "v = loss.item()\n((F.cross_entropy(model(x), y)) * v).backward()\noptimizer.step()",
    },
    "stops the gradient, by an attribute": {
        "before": "model.v = 1.0",
        "inside": "model.v = loss.item()\n((F.cross_entropy(model(x), y)) * model.v).backward()\noptimizer.step()",
    },
    "stops the gradient, running": {
        "before": "base = 0.0",
        "inside": "base = 0.9 * base + 0.1 * loss.item()\n((F.cross_entropy(model(x), y) - base) ** 2).backward()\noptimizer.step()",
    },
    "running mean of losses": {
        "before": "mean = 0.0",
        "inside": "mean = 0.9 * mean + 0.1 * loss.item()",
        "after": "print(mean)",
    },
    "running mean, first": {
        "before": "mean = None",
        "inside": "mean = loss.item() if mean is None else 0.9 * mean + 0.1 * loss.item()",
        "after": "print(mean)",
    },
    "double loss": {
        "inside": "total += loss.double().item()",
    },
    "half": "total += loss.half().item()",
    "integers": "total += (model(x).argmax(1) == y).sum().item()",
    "large integers": "total += (y.sum() + 2**60).item()",
    "bytes that overflow": "total += (y.to(torch.uint8).sum(dtype=torch.uint8) + 200).item()",
    "bools": "total += (y[0] == 0).item()",
    "bools listed": "losses.append((y[0] == 0).item())",
    "ints divided": {
        "epoch": "n = 0",
        "inside": "n += (y == 0).sum().item()",
        "after": "print(n / 3, n // 3, n % 3, n, type(n))",
    },
    "ints as an index": {
        "epoch": "n = 0",
        "inside": "n += (y == 0).sum().item()",
        "after": "print(list(range(99))[n], 'a' * n, range(n))",
    },
    "ints compared": {
        "epoch": "n = 0",
        "inside": "n += (y == 0).sum().item()",
        "after": "print(n == 5, n in (1, 2), n.bit_length(), {n: 1}, f'{n:d}')",
    },
    "weights by floats": "total += 0.1 * loss.item()",
    "power": "total += loss.item() ** 2",
    "minus": "total -= loss.item()",
    "times": {"epoch": "total = 1.0", "inside": "total *= loss.item()"},
    "exp": "import math\ntotal += math.exp(-loss.item())",
    "maximum": "total = max(total, loss.item())",
    "format in a list": "losses.append(float(f'{loss.item():.3f}'))",
    "rounded": "losses.append(round(loss.item(), 3))",
    "as text": {
        "epoch": "ts = []",
        "inside": "ts.append(str(loss.item()))",
        "after": "print(ts[0])",
    },
    "in a try": "try:\n    total += loss.item()\nexcept RuntimeError:\n    pass",
    "error in the loop": {"inside": SUM + "if epoch == 1 and i == 5:\n    break"},
    "error caught outside": {
        "above": "def f():\n    t = 0.0\n    try:\n        for x, y in loader:\n            loss = F.cross_entropy(model(x), y)\n            t += loss.item()\n            if t > 3:\n                raise ValueError\n    except ValueError:\n        print(t)\n    return t",
        "after": "print(f())",
    },
    "finally": {
        "above": "def f():\n    t = 0.0\n    try:\n        for x, y in loader:\n            loss = F.cross_entropy(model(x), y)\n            t += loss.item()\n            if y[0] == 2:\n                return 0\n    finally:\n        print(t)\n    return t",
        "after": "print(f())",
    },
    "generator of sums": {
        "above": "def f():\n    t = 0.0\n    for x, y in loader:\n        loss = F.cross_entropy(model(x), y)\n        t += loss.item()\n        yield t",
        "after": "print(list(f()))",
    },
    "returned": {
        "above": "def f():\n    t = 0.0\n    for x, y in loader:\n        loss = F.cross_entropy(model(x), y)\n        t += loss.item()\n    return t, len(loader)",
        "after": "t, n = f()\nprint(t / n, type(t))",
    },
    "returned list": {
        "above": "def f():\n    ts = []\n    for x, y in loader:\n        loss = F.cross_entropy(model(x), y)\n        ts.append(loss.item())\n    return ts",
        "after": "print(f())",
    },
    "returned number of a step": {
        "above": "def step(x, y):\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n    return loss.item()",
        "inside": "total += step(x, y)",
    },
    "returned parameter of a step": {
        "above": "def step(x, y):\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n    return model[0].bias[0].item()",
        "inside": "losses.append(step(x, y))",
    },
    "returned, and the buffer goes on": {
        "above": "box = torch.zeros(())\ndef step(l):\n    box.copy_(l)\n    return box.item()",
        "inside": "losses.append(step(loss.detach()))",
    },
    "returned dict": {
        "above": "def step(x, y):\n    loss = F.cross_entropy(model(x), y)\n    return {'loss': loss.item(), 'w': model[0].bias[0].item()}",
        "inside": "d = step(x, y)\nlosses.append(d['loss'])\nlosses.append(d['w'])",
    },
    "state of a module": {
        "above": "class L(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('s', torch.zeros(()))\n    def forward(self, v):\n        self.s.mul_(0.9).add_(v.detach())\n        return self.s\nmeter = L()",
        "inside": "losses.append(meter(loss).item())",
    },
    "state of a class": {
        "above": "class L:\n    s = torch.zeros(())\n    def put(self, v):\n        self.s.mul_(0.9).add_(v.detach())\n        return self.s\nmeter = L()",
        "inside": "losses.append(meter.put(loss).item())",
    },
    "elements": {
        "epoch": "n = [0, 0, 0]",
        "inside": "hit = (model(x).argmax(1) == y)\nfor j in range(len(y)):\n    n[y[j]] += hit[j].item()",
        "after": "print(n)",
    },
    "elements, written": {
        "epoch": "n = [0, 0, 0]",
        "inside": "for j in range(len(y)):\n    n[y[j]] += 1\n    y[j] = 0",
        "after": "print(n)",
    },
    "elements, zip": {
        "epoch": "n = torch.zeros(3, 3)",
        "inside": "for t, p in zip(y, model(x).argmax(1)):\n    n[t, p] += 1",
        "after": "print(n)",
    },
    "extend": {"epoch": "ts = []", "inside": "ts.extend(y.tolist())", "after": "print(ts)"},
    "extend, changed": {
        "epoch": "ts = []",
        "inside": "ts.extend(y.tolist())\ny.zero_()",
        "after": "print(ts)",
    },
    "extend, numpy": {
        "epoch": "ts = []",
        "inside": "ts.extend(y.cpu().numpy())\ny.zero_()",
        "after": "print(ts)",
    },
    "predictions": {
        "epoch": "ts = []",
        "inside": "ts.append(model(x).detach().cpu().numpy())",
        "after": "print(np.concatenate(ts).sum())",
    },
    "predictions, a view": {
        "epoch": "ts = []",
        "inside": "out = model(x).detach()\nts.append(out.cpu().numpy())\nout.zero_()",
        "after": "print(np.concatenate(ts).sum())",
    },
    "predictions, tensors": {
        "epoch": "ts = []",
        "inside": "out = model(x).detach()\nts.append(out.cpu())\nout.zero_()",
        "after": "print(torch.cat(ts).sum().item())",
    },
    "weights, tensors": {
        "epoch": "ts = []",
        "inside": "ts.append(model[0].bias.detach().cpu())",
        "after": "print(torch.stack(ts).sum().item())",
    },
    "running sum of the graph": {"epoch": "total = 0", "inside": "total += loss"},
    "running sum, changed": {"epoch": "total = 0", "inside": "total += loss\nloss.data.zero_()"},
    "running list of the graph": {"inside": "losses.append(loss)"},
    "running list, changed": {"inside": "losses.append(loss)\nloss.data.zero_()"},
    "running list, gradient asked": {
        "inside": "losses.append(loss)",
        "after": "print(losses[0].requires_grad, losses[0].grad_fn is None)",
    },
    "running sum, backward": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "total.backward()\nprint(scale.grad.item())",
    },
    "running sum, backward by name": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "getattr(total, 'backward')()\nprint(scale.grad.item())",
    },
    "running sum, backward by map": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "list(map(torch.Tensor.backward, [total]))\nprint(scale.grad.item())",
    },
    "running sum, backward by a function": {
        "above": "def go(l):\n    l.backward()\n    print(scale.grad.item())",
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "go(total)",
    },
    "running sum, backward by eval": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "eval('total.backward()')\nprint(scale.grad.item())",
    },
    "running sum, backward by globals": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "globals()['total'].backward()\nprint(scale.grad.item())",
    },
    "running sum, backward by methodcaller": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "operator.methodcaller('backward')(total)\nprint(scale.grad.item())",
    },
    "running sum, backward by a partial": {
        "epoch": "total = 0",
        "inside": "total = total + (scale * x).sum()",
        "after": "functools.partial(torch.autograd.backward, total)()\nprint(scale.grad.item())",
    },
    "running sum, backward by a queue": {
        "epoch": "total = 0\nq = queue.Queue()",
        "inside": "total = total + (scale * x).sum()",
        "after": "q.put(total)\nq.get().backward()\nprint(scale.grad.item())",
    },
    "running list, backward": {
        "epoch": "ls = []",
        "inside": "ls.append((scale * x).sum())",
        "after": "sum(ls).backward()\nprint(scale.grad.item())",
    },
    "running list, backward by stack": {
        "epoch": "ls = []",
        "inside": "ls.append((scale * x).sum())",
        "after": "torch.stack(ls).mean().backward()\nprint(scale.grad.item())",
    },
    "running list, backward by reduce": {
        "epoch": "ls = []",
        "inside": "ls.append((scale * x).sum())",
        "after": "functools.reduce(torch.add, ls).backward()\nprint(scale.grad.item())",
    },
    "running dict, backward": {
        "epoch": "ls = {}",
        "inside": "ls[i] = (scale * x).sum()",
        "after": "sum(ls.values()).backward()\nprint(scale.grad.item())",
    },
    "running attribute, backward": {
        "epoch": "model.total = 0",
        "inside": "model.total += (scale * x).sum()",
        "after": "model.total.backward()\nprint(scale.grad.item())",
    },
}

CLAIMS = [
    Claim("nobody sees that a number is read later", "loss-item-sync, graph-kept", SUMS, READ)
]
