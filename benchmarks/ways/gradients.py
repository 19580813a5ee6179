"""No backward reaches it; nobody reads these gradients."""

from benchmarks.ways.claim import Claim

PASS = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.kept = []

    def forward(self, x):
        ...forward
        return self.net(x)


...above
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
encoder, head = Encoder().to(device), nn.Linear(4, 3).to(device)
both = [*encoder.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(both, lr=0.1)
...before
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        w = torch.zeros_like(x)
        ...inside
        loss = F.cross_entropy(head(w), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
"""
REACHED: dict[str, str | dict[str, str]] = {
    "plainly": "w = encoder(x)",
    "item": "w[:] = encoder(x)",
    "row by row": "z = encoder(x)\nfor i in range(len(x)):\n    w[i] = z[i]",
    "copy_": "w.copy_(encoder(x))",
    "add_": "w.add_(encoder(x))",
    "augmented": "w += encoder(x)",
    "augmented number": "w = 0\nw += encoder(x)",
    "zero_ of a part": "w = encoder(x)\nw[0].zero_()",
    "masked fill": "w = encoder(x).masked_fill_(x > 0, 0)",
    "out": "torch.add(x, 0)\nw = torch.cat([encoder(x)[:4], x[4:]])",
    "index_add_": "w.index_add_(0, torch.arange(len(x)), encoder(x))",
    "scatter_add_": "w.scatter_add_(0, torch.zeros(8, 4, dtype=torch.long), encoder(x))",
    "index_put_": "w.index_put_((torch.arange(8),), encoder(x))",
    "masked_scatter_": "w.masked_scatter_(torch.ones(8, 4, dtype=torch.bool), encoder(x))",
    "view": "row = w[:4]\nrow.copy_(encoder(x[:4]))",
    "foreach": "torch._foreach_add_([w], [encoder(x)])",
    "addcmul": "w = torch.addcmul(x, encoder(x), encoder(x))",
    "einsum": "w = torch.einsum('bi,bj->bj', x, encoder(x))",
    "operator": "w = operator.add(w, encoder(x))",
    "operator.iadd": "w = operator.iadd(w, encoder(x))",
    "operator.setitem": "operator.setitem(w, slice(None), encoder(x))",
    "operator.call": "w = operator.methodcaller('forward', x)(encoder)",
    "attrgetter": "w = operator.attrgetter('net')(encoder)(x)",
    "partial": "w = functools.partial(encoder, x)()",
    "partial of a sum": "w = functools.partial(torch.add, encoder(x))(x)",
    "reduce": "w = functools.reduce(torch.add, [encoder(x), x])",
    "reduce of models": "w = functools.reduce(lambda v, m: m(v), [encoder, encoder], x)",
    "map": "w = list(map(encoder, [x]))[0]",
    "map and next": "w = next(map(encoder, [x]))",
    "starmap": "w = next(itertools.starmap(encoder, [(x,)]))",
    "star": "(w,) = map(encoder, (x,))",
    "filter": "w = next(filter(lambda z: z is not None, [encoder(x)]))",
    "accumulate": "w = list(itertools.accumulate([encoder(x), x]))[-1]",
    "sum": "w = sum([encoder(x), x])",
    "max": "w = max([encoder(x)], key=lambda z: 0)",
    "sorted": "w = sorted([encoder(x)], key=id)[0]",
    "zip": "(w, _), = zip([encoder(x)], [1])",
    "enumerate": "for _, w in enumerate([encoder(x)]):\n    pass",
    "chain": "w = next(itertools.chain([encoder(x)]))",
    "repeat": "w = next(itertools.repeat(encoder(x)))",
    "cycle": "w = next(itertools.cycle([encoder(x)]))",
    "tee": "w = next(itertools.tee([encoder(x)])[1])",
    "islice": "w = next(itertools.islice([encoder(x)], 1))",
    "groupby": "w = next(next(itertools.groupby([encoder(x)], id))[1])",
    "queue": "q = queue.Queue()\nq.put(encoder(x))\nw = q.get()",
    "deque": "q = collections.deque([encoder(x)])\nw = q.pop()",
    "deque appended": "q = collections.deque(maxlen=1)\nq.append(encoder(x))\nw = q[0]",
    "dict": "d = {'z': encoder(x)}\nw = d['z']",
    "dict get": "d = {}\nd.setdefault('z', encoder(x))\nw = d.get('z')",
    "dict pop": "w = {'z': encoder(x)}.pop('z')",
    "dict items": "for k, w in {'z': encoder(x)}.items():\n    pass",
    "dict merged": "w = ({'z': 1} | {'z': encoder(x)})['z']",
    "dict update": "d = {}\nd.update(z=encoder(x))\nw = d['z']",
    "itemgetter": "w = operator.itemgetter('z')({'z': encoder(x)})",
    "ordered dict": "d = collections.OrderedDict(z=encoder(x))\nw = d.popitem()[1]",
    "chain map": "w = collections.ChainMap({'z': encoder(x)})['z']",
    "default dict": "d = collections.defaultdict(list)\nd['z'].append(encoder(x))\nw = d['z'][0]",
    "named tuple": "w = collections.namedtuple('P', 'z')(encoder(x)).z",
    "named tuple replaced": "P = collections.namedtuple('P', 'z n')\nw = P(encoder(x), 1)._replace(n=2).z",
    "dataclass": "D = dataclasses.make_dataclass('D', ['z'])\nw = D(encoder(x)).z",
    "dataclass as dict": "D = dataclasses.make_dataclass('D', ['z'])\nw = vars(D(encoder(x)))['z']",
    "namespace": "w = types.SimpleNamespace(z=encoder(x)).z",
    "class attribute": "class A:\n    pass\nA.z = encoder(x)\nw = A.z",
    "attribute of a function": "def f():\n    pass\nf.z = encoder(x)\nw = f.z",
    "attribute of a tensor": "w.z = encoder(x)\nw = w.z",
    "setattr": "setattr(head, 'z', encoder(x))\nw = head.z",
    "getattr": "head.z = encoder(x)\nw = getattr(head, 'z')",
    "vars": "vars(head)['z'] = encoder(x)\nw = head.z",
    "buffer": "head.register_buffer('z', encoder(x), persistent=False)\nw = head.z\ndel head.z",
    "property": "class A:\n    @property\n    def z(self):\n        return encoder(x)\nw = A().z",
    "cached property": "class A:\n    @functools.cached_property\n    def z(self):\n        return encoder(x)\nw = A().z",
    "lru cache": "@functools.lru_cache\ndef f(k):\n    return encoder(x)\nw = f(0)",
    "getattr of a class": "class A:\n    def __getattr__(self, n):\n        return encoder(x)\nw = A().z",
    "getitem": "class A:\n    def __getitem__(self, n):\n        return encoder(n)\nw = A()[x]",
    "call": "class A:\n    def __call__(self, v):\n        return encoder(v)\nw = A()(x)",
    "matmul": "class A:\n    def __matmul__(self, v):\n        return encoder(v)\nw = A() @ x",
    "iter": "class A:\n    def __iter__(self):\n        yield encoder(x)\n(w,) = A()",
    "enter": "class A:\n    def __enter__(self):\n        return encoder(x)\n    def __exit__(self, *a):\n        pass\nwith A() as w:\n    pass",
    "context manager": "@contextlib.contextmanager\ndef f():\n    yield encoder(x)\nwith f() as w:\n    pass",
    "nullcontext": "with contextlib.nullcontext(encoder(x)) as w:\n    pass",
    "generator": "def f():\n    yield encoder(x)\nw = next(f())",
    "generator sent": "def f():\n    v = yield\n    yield encoder(v)\ng = f()\nnext(g)\nw = g.send(x)",
    "yield from": "def f():\n    yield from [encoder(x)]\n(w,) = f()",
    "generator's return": "def f():\n    return encoder(x)\n    yield\ntry:\n    next(f())\nexcept StopIteration as e:\n    w = e.value",
    "exception": "try:\n    raise ValueError(encoder(x))\nexcept ValueError as e:\n    w = e.args[0]",
    "coroutine": "async def f():\n    return encoder(x)\nc = f()\ntry:\n    c.send(None)\nexcept StopIteration as e:\n    w = e.value",
    "thread": "found = []\nt = threading.Thread(target=lambda: found.append(encoder(x)))\nt.start()\nt.join()\nw = found[0]",
    "thread pool": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n    w = pool.submit(encoder, x).result()",
    "closure": "def f():\n    z = encoder(x)\n    return lambda: z\nw = f()()",
    "nonlocal": "def f():\n    z = None\n    def g():\n        nonlocal z\n        z = encoder(x)\n    g()\n    return z\nw = f()",
    "global": "def f():\n    global z\n    z = encoder(x)\nf()\nw = z",
    "globals": "globals()['z'] = encoder(x)\nw = z",
    "default": "def f(z=encoder(x)):\n    return z\nw = f()",
    "mutable default": "def f(v, kept=[]):\n    kept.append(v)\n    return kept\nf(encoder(x))\nw = f(0)[-2]",
    "lambda": "w = (lambda v: encoder(v))(x)",
    "exec": "d = {'z': encoder(x)}\nexec('w = z * 2', d)\nw = d['w']",
    "eval": "w = eval('encoder(x)')",
    "walrus": "print((w := encoder(x)).shape)",
    "match": "match [encoder(x)]:\n    case [w]:\n        pass",
    "conditional": "w = encoder(x) if epoch >= 0 else x",
    "and": "w = True and encoder(x)",
    "or": "w = None or encoder(x)",
    "comprehension": "(w,) = [encoder(v) for v in [x]]",
    "dict comprehension": "w = {k: encoder(x) for k in 'z'}['z']",
    "set": "(w,) = {encoder(x)}",
    "starred": "w, *_ = [encoder(x), 1]",
    "nested": "[[w]] = [[encoder(x)]]",
    "weakref": "z = encoder(x)\nw = weakref.ref(z)()",
    "weak dict": "z = encoder(x)\nd = weakref.WeakValueDictionary(z=z)\nw = d['z']",
    "array of objects": "a = np.empty(1, dtype=object)\na[0] = encoder(x)\nw = a[0]",
    "copy": "w = copy.copy([encoder(x)])[0]",
    "hook": {
        "before": "kept = []\nencoder.register_forward_hook(lambda m, i, o: kept.append(o))",
        "inside": "kept.clear()\nencoder(x)\nw = kept[0]",
    },
    "hook of a layer": {
        "before": "kept = {}\nencoder.net.register_forward_hook(lambda m, i, o: kept.update(z=o))",
        "inside": "encoder(x)\nw = kept['z']",
    },
    "global hook": {
        "before": "kept = {}\ntorch.nn.modules.module.register_module_forward_hook(lambda m, i, o: kept.update(z=o) if m is encoder else None)",
        "inside": "encoder(x)\nw = kept['z']",
    },
    "list of the module": {
        "forward": "self.kept.append(self.net(x))",
        "inside": "encoder.kept.clear()\nencoder(x)\nw = encoder.kept[0]",
    },
    "attribute of the module": {
        "forward": "self.last = self.net(x)",
        "inside": "encoder(x)\nw = encoder.last",
    },
    "global of the module": {
        "forward": "global last\nlast = self.net(x)",
        "inside": "encoder(x)\nw = last",
    },
    "output in an argument": {
        "above": "def f(found, v):\n    found['z'] = encoder(v)",
        "inside": "d = {}\nf(d, x)\nw = d['z']",
    },
    "written by a function": {
        "above": "def f(out, v):\n    out.copy_(encoder(v))",
        "inside": "f(w, x)",
    },
    "data set": "z = encoder(x)\nw = z\nw.data = w.data * 2",
    "function": {
        "above": "class D(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, v):\n        return v * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g",
        "inside": "w = D.apply(encoder(x))",
    },
    "straight through": "z = encoder(x)\nw = z + (z.sign() - z).detach()",
    "detached difference": "z = encoder(x)\nw = x + z - z.detach()",
    "checkpoint": "from torch.utils.checkpoint import checkpoint\nw = checkpoint(encoder, x, use_reentrant=False)",
    "functional call": "w = torch.func.functional_call(encoder, dict(encoder.named_parameters()), (x,))",
    "vmap": "w = torch.func.vmap(encoder)(x)",
    "jvp": "w = torch.func.jvp(encoder, (x,), (x,))[1]",
    "linear of weights": "w = F.linear(x, encoder.net.weight)",
    "parameters by hand": "w = x @ next(encoder.parameters())",
    "gradient as input": "v = x.clone().requires_grad_()\n(g,) = torch.autograd.grad(encoder(v).pow(2).sum(), v, create_graph=True)\nw = g",
    "a loss of its own": "w = x\n(encoder(x).pow(2).mean()).backward()\noptimizer.step()",
    "backward by the class": "w = x\ntorch.Tensor.backward(encoder(x).pow(2).mean())\noptimizer.step()",
    "backward by autograd": "w = x\ntorch.autograd.backward([encoder(x).pow(2).mean()])\noptimizer.step()",
    "backward by getattr": "w = x\ngetattr(encoder(x).pow(2).mean(), 'backward')()\noptimizer.step()",
    "backward by map": "w = x\nlist(map(torch.Tensor.backward, [encoder(x).pow(2).mean()]))\noptimizer.step()",
    "backward by methodcaller": "w = x\noperator.methodcaller('backward')(encoder(x).pow(2).mean())\noptimizer.step()",
    "gradients put by hand": "w = x\ngs = torch.autograd.grad(encoder(x).pow(2).mean(), list(encoder.parameters()))\nwith torch.no_grad():\n    for p, g in zip(encoder.parameters(), gs):\n        p -= 0.1 * g",
    "closure of an optimizer": "w = x\ndef closure():\n    optimizer.zero_grad()\n    l = encoder(x).pow(2).mean()\n    l.backward()\n    return l\noptimizer.step(closure)",
    "asks requires_grad": "z = encoder(x)\nprint(z.requires_grad)\nw = x",
    "asks grad_fn": "z = encoder(x)\nprint(z.grad_fn is None, z.is_leaf)\nw = x",
    "asks in a text": "z = encoder(x)\nprint(z)\nw = x",
    "asks by repr": "z = encoder(x)\nprint(f'{z!r}')\nw = x",
    "asks by getattr": "z = encoder(x)\nprint(getattr(z, 'requires_grad'))\nw = x",
    "asks for grad mode": {
        "forward": "print(torch.is_grad_enabled())",
        "inside": "encoder(x)\nw = x",
    },
    "asks inference mode": {
        "forward": "print(torch.is_inference_mode_enabled())",
        "inside": "encoder(x).argmax().item()\nw = x",
    },
    "fails to convert": "try:\n    encoder(x).numpy()\nexcept RuntimeError:\n    print('no')\nw = x",
    "saved": "f = io.BytesIO()\ntorch.save(encoder(x), f)\nf.seek(0)\nprint(torch.load(f).requires_grad)\nw = x",
}

EVAL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.net = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(3))
        self.kept = None

    def forward(self, x):
        out = self.net(self.norm(x))
        ...forward
        return out


...above
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outs = []
...before
for epoch in range(3):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        ...train
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
    model.eval()
    right = 0
    ...first
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        ...inside
        right += (out.argmax(1) == y).sum().item()
    print(right)
    ...after
"""
LATER: dict[str, str | dict[str, str]] = {
    "plain": "",
    "kept and detached": {
        "inside": "outs.append(out.detach())",
        "train": "loss = loss + (model(x) * outs[-1]).sum() * 0.01 if outs else loss",
    },
    "kept as detached target": {
        "first": "last = None",
        "inside": "last = out.detach()",
        "train": "if epoch:\n    loss = loss + F.mse_loss(model(x), last)",
    },
    "kept as a mask": {
        "first": "last = None",
        "inside": "last = out > 0",
        "train": "if epoch:\n    loss = loss + model(x)[last].sum() * 0.01",
    },
    "kept and changed": {
        "inside": "outs.append(out)",
        "after": "outs[-1].mul_(2)\nprint(outs[-1].sum().item())",
    },
    "kept and required": {
        "inside": "outs.append(out.detach())",
        "after": "p = outs[-1].requires_grad_()\np.sum().backward()\nprint(p.grad.sum().item())",
    },
    "last of the loop": {
        "after": "print(F.mse_loss(model.net(x[:, :4]), out).item())\n(model.net(x) * out).sum().backward()\noptimizer.step()"
    },
    "last of the loop, backward": {"after": "F.cross_entropy(out, y).backward()\noptimizer.step()"},
    "kept and backward": {
        "inside": "outs.append(F.cross_entropy(out, y))",
        "after": "sum(outs).backward()\nouts.clear()\noptimizer.step()",
    },
    "sum and backward": {
        "first": "total = 0",
        "inside": "total = total + F.cross_entropy(out, y)",
        "after": "total.backward()\noptimizer.step()",
    },
    "sum with a scheduler": {
        "before": "s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)",
        "first": "total = 0",
        "inside": "total += F.cross_entropy(out, y)",
        "after": "s.step(total)",
    },
    "buffer is written": {"forward": "self.seen += out.detach().mean(0)"},
    "buffer is replaced": {"forward": "self.seen = self.seen * 0.9 + out.detach().mean(0)"},
    "buffer is replaced, read": {
        "forward": "out = out + self.seen\nself.seen = self.seen * 0.9 + out.detach().mean(0)"
    },
    "buffer by setattr": {
        "forward": "setattr(self, 'seen', self.seen * 0.9 + out.detach().mean(0))"
    },
    "buffer by _buffers": {
        "forward": "self._buffers['seen'] = self.seen * 0.9 + out.detach().mean(0)"
    },
    "buffer by register": {
        "forward": "self.register_buffer('seen', self.seen * 0.9 + out.detach().mean(0))"
    },
    "buffer's data": {"forward": "self.seen.data = self.seen * 0.9 + out.detach().mean(0)"},
    "buffer's set_": {"forward": "self.seen.set_(self.seen * 0.9 + out.detach().mean(0))"},
    "buffer by a helper": {
        "above": "def note(m, v):\n    m.seen = v",
        "forward": "note(self, out.detach().mean(0))",
    },
    "buffer outside": {
        "inside": "model.seen = out.detach().mean(0)",
        "train": "loss = loss + (model(x) * model.seen).sum() * 0.01",
    },
    "buffer outside, in place": {
        "inside": "model.seen = out.detach().mean(0)",
        "after": "model.seen.add_(1)",
    },
    "cache": {
        "forward": "if self.kept is None or len(self.kept) != len(x):\n    self.kept = torch.arange(len(x), device=x.device).float()[:, None] * 0.01\nout = out + self.kept"
    },
    "cache made in evaluation": {
        "forward": "if not self.training and self.kept is None:\n    self.kept = torch.ones(3)\nif self.kept is not None:\n    out = out * self.kept"
    },
    "cache in a dict": {
        "before": "kept = {}",
        "forward": "if not self.training:\n    kept['w'] = torch.ones(3)\nif kept:\n    out = out * kept['w']",
    },
    "cache by lru": {
        "above": "@functools.lru_cache\ndef ones(n):\n    return torch.ones(n)",
        "forward": "if not self.training or ones.cache_info().currsize:\n    out = out * ones(3)",
    },
    "cache in a closure": {
        "above": "def make():\n    kept = None\n    def get(ok):\n        nonlocal kept\n        if kept is None and ok:\n            kept = torch.ones(3)\n        return kept\n    return get\nget = make()",
        "forward": "k = get(not self.training)\nif k is not None:\n    out = out * k",
    },
    "cache in a default": {
        "above": "def get(ok, kept=[]):\n    if ok and not kept:\n        kept.append(torch.ones(3))\n    return kept[0] if kept else None",
        "forward": "k = get(not self.training)\nif k is not None:\n    out = out * k",
    },
    "cache in a class": {
        "above": "class C:\n    kept = None",
        "forward": "if not self.training:\n    C.kept = torch.ones(3)\nif C.kept is not None:\n    out = out * C.kept",
    },
    "cache on a function": {
        "above": "def C():\n    pass\nC.kept = None",
        "forward": "if not self.training:\n    C.kept = torch.ones(3)\nif C.kept is not None:\n    out = out * C.kept",
    },
    "cache on the input's owner": {
        "inside": "data.extra = out.detach()",
        "train": "if hasattr(data, 'extra'):\n    loss = loss + (model(x) * data.extra).sum() * 0.01",
    },
    "lazy layer": {
        "before": "model.more = nn.LazyLinear(3)",
        "forward": "if not self.training or not isinstance(self.more.weight, nn.UninitializedParameter):\n    out = out + self.more(out)",
    },
    "lazy parameter": {
        "before": "model.more = None",
        "forward": "if not self.training and self.more is None:\n    self.more = nn.Parameter(torch.ones(3))\nif self.more is not None:\n    out = out * self.more",
    },
    "deep copy": {
        "after": "best = copy.deepcopy(model)\nbest.train()\nF.cross_entropy(best(x), y).backward()\nprint(best.net.weight.grad.sum().item())"
    },
    "deep copy in the loop": {
        "inside": "best = copy.deepcopy(model)",
        "after": "best.train()\nF.cross_entropy(best(x), y).backward()\nprint(best.net.weight.grad.sum().item())",
    },
    "state in the loop": {
        "inside": "best = {k: v.clone() for k, v in model.state_dict().items()}",
        "after": "model.load_state_dict(best)",
    },
    "state is loaded": {
        "inside": "model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()})"
    },
    "state is assigned": {
        "inside": "model.load_state_dict({k: v * 1 for k, v in model.state_dict().items()}, assign=True)"
    },
    "parameters' data": {"inside": "for p in model.parameters():\n    p.data = p.data * 0.9"},
    "parameters in place": {"inside": "for p in model.parameters():\n    p.data.mul_(0.9)"},
    "parameters to a vector": {
        "inside": "v = nn.utils.parameters_to_vector(model.parameters())\nnn.utils.vector_to_parameters(v * 0.9, model.parameters())"
    },
    "moved": {"inside": "model.double()\nmodel.float()"},
    "moved to the device": {"inside": "model.cpu()\nmodel.to(device)"},
    "requires_grad_": {"inside": "model.requires_grad_(False)\nmodel.requires_grad_(True)"},
    "weight norm": {"before": "nn.utils.parametrizations.weight_norm(model.net)"},
    "old weight norm": {"before": "nn.utils.weight_norm(model.net)"},
    "spectral norm": {"before": "nn.utils.parametrizations.spectral_norm(model.net)"},
    "old spectral norm": {"before": "nn.utils.spectral_norm(model.net)"},
    "pruned": {
        "first": "import torch.nn.utils.prune as prune\nprune.random_unstructured(model.net, 'weight', 0.1) if epoch == 0 else None"
    },
    "pruned in the loop": {
        "inside": "import torch.nn.utils.prune as prune\nif epoch == 0:\n    prune.l1_unstructured(model.net, 'weight', 1)"
    },
    "swa": {
        "before": "swa = torch.optim.swa_utils.AveragedModel(model)",
        "inside": "swa.update_parameters(model)",
        "after": "print(swa.module.net.weight.sum().item())",
    },
    "ema by hand": {
        "before": "ema = [p.clone().detach() for p in model.parameters()]",
        "inside": "ema = [e * 0.9 + p.detach() * 0.1 for e, p in zip(ema, model.parameters())]",
        "after": "for e in ema:\n    e.add_(0)\nprint(ema[0].sum().item())",
        "train": "loss = loss + sum((p * e).sum() for p, e in zip(model.parameters(), ema)) * 0.01",
    },
    "gradients inside": {
        "inside": "v = x.clone().requires_grad_()\nF.cross_entropy(model(v), y).backward()\nprint(v.grad.sum().item())"
    },
    "gradients by autograd": {
        "inside": "v = x.clone().requires_grad_()\n(g,) = torch.autograd.grad(model(v).sum(), v)\nprint(g.sum().item())"
    },
    "enable_grad": {
        "inside": "with torch.enable_grad():\n    v = x.clone().requires_grad_()\n    model(v).sum().backward()\nprint(v.grad.sum().item())"
    },
    "step inside": {"inside": "F.cross_entropy(model(x), y).backward()\noptimizer.step()"},
    "new parameter": {
        "inside": "p = nn.Parameter(out.mean(0).detach())",
        "after": "o = torch.optim.SGD([p], lr=0.1)\n(p ** 2).sum().backward()\no.step()\nprint(p.sum().item())",
    },
    "new model": {
        "inside": "other = nn.Linear(3, 3)",
        "after": "other(torch.ones(3)).sum().backward()\nprint(other.weight.grad.sum().item())",
    },
    "new optimizer": {
        "inside": "o = torch.optim.SGD(model.parameters(), lr=0.1)",
        "after": "o.step()",
    },
    "a tensor of ones": {
        "inside": "k = torch.ones(3)",
        "after": "print((model.net(x) * k).sum().backward())\noptimizer.step()",
    },
    "an index": {
        "inside": "k = out.argmax(1)",
        "after": "model.net(x)[torch.arange(len(k)), k].sum().backward()\noptimizer.step()",
    },
    "a count": {
        "first": "n = torch.zeros(3)",
        "inside": "n += F.one_hot(y, 3).sum(0)",
        "after": "(model.net(x) * n).sum().backward()\noptimizer.step()",
    },
    "a count out of place": {
        "first": "n = torch.zeros(3)",
        "inside": "n = n + F.one_hot(y, 3).sum(0)",
        "after": "(model.net(x) * n).sum().backward()\noptimizer.step()",
    },
    "a confusion matrix": {
        "first": "n = torch.zeros(3, 3)",
        "inside": "for t, p in zip(y, out.argmax(1)):\n    n[t, p] += 1",
        "after": "print(n.tolist())\nn.requires_grad_().sum().backward()",
    },
    "a list, stacked": {
        "first": "ks = []",
        "inside": "ks.append(out)",
        "after": "k = torch.cat(ks)\n(model.net(torch.cat([x] * 3)) * k).sum().backward()\noptimizer.step()",
    },
    "a list, to a new dataset": {
        "first": "ks = []",
        "inside": "ks.append(out)",
        "after": "more = TensorDataset(torch.cat(ks))\nfor (k,) in DataLoader(more, batch_size=24):\n    (model.net(torch.cat([x] * 3)) * k).sum().backward()\noptimizer.step()",
    },
    "a generator": {
        "above": "def predictions():\n    for x, y in loader:\n        yield model(x)",
        "after": "for p in predictions():\n    (model.net(x) * p).sum().backward()\noptimizer.step()",
    },
    "a function's result": {
        "above": "def predict():\n    found = []\n    for x, y in loader:\n        found.append(model(x))\n    return torch.cat(found)",
        "after": "p = predict()\n(model.net(torch.cat([x] * 3)) * p).sum().backward()\noptimizer.step()",
    },
    "a decorated function": {
        "above": "@torch.no_grad()\ndef predict():\n    return torch.cat([model(x) for x, y in loader])",
        "after": "p = predict()\n(model.net(torch.cat([x] * 3)) * p).sum().backward()\noptimizer.step()",
    },
    "a decorated function's loop": {
        "above": "@torch.no_grad()\ndef predict():\n    found = []\n    for x, y in loader:\n        found.append(model(x))\n    return torch.cat(found)",
        "after": "p = predict()\np += 1\n(model.net(torch.cat([x] * 3)) * p).sum().backward()\noptimizer.step()",
    },
    "centre": {
        "above": "centre = torch.zeros(3)",
        "inside": "centre = 0.9 * centre + 0.1 * out.detach().mean(0)",
        "train": "loss = loss + ((model(x) - centre) ** 2).mean()",
    },
    "centre by a function": {
        "above": "class C:\n    centre = torch.zeros(3)\n    def update(self, v):\n        self.centre = 0.9 * self.centre + 0.1 * v.detach().mean(0)\nc = C()",
        "inside": "c.update(out)",
        "train": "loss = loss + ((model(x) - c.centre) ** 2).mean()",
    },
    "memory bank, detached": {
        "above": "bank = torch.zeros(24, 3)",
        "first": "n = 0",
        "inside": "bank[n : n + 8] = out.detach()\nn += 8",
        "train": "loss = loss + (model(x) * bank[:8]).sum() * 0.01",
    },
    "data get it": {
        "first": "n = 0",
        "inside": "data.tensors[0][n : n + 8, :3] = out.detach()\nn += 8",
    },
    "data are replaced": {
        "first": "ks = []",
        "inside": "ks.append(out)",
        "after": "data.tensors = (F.pad(torch.cat(ks).detach(), (0, 1)), data.tensors[1])",
    },
    "optimizer's state": {
        "inside": "optimizer.param_groups[0]['lr'] = 0.1 / (1 + out.detach().abs().mean())"
    },
    "a rate that is a tensor": {
        "inside": "optimizer.param_groups[0]['lr'] = out.detach().abs().mean().clamp(0.01, 0.1)"
    },
    "training mode": {"first": "model.train()"},
    "no eval at all": {"first": "model.norm.train()"},
    "momentum of the norm": {"first": "model.train()", "after": "model.norm.reset_running_stats()"},
    "buffer of the norm replaced": {
        "inside": "model.norm.running_mean = model.norm.running_mean * 0.9"
    },
    "hook that keeps": {
        "before": "model.net.register_forward_hook(lambda m, i, o: outs.append(o.detach()))",
        "train": "loss = loss + (model.net(x) * outs[0]).sum() * 0.01",
    },
    "view": {
        "inside": "v = out.view(-1)",
        "after": "(model.net(x).view(-1) * v).sum().backward()\noptimizer.step()",
    },
    "numpy and back": {
        "inside": "v = torch.from_numpy(out.detach().cpu().numpy())",
        "after": "(model.net(x) * v).sum().backward()\noptimizer.step()",
    },
    "shown": {"inside": "print(out)"},
    "version": {"inside": "v = out._version", "after": "print(v)"},
    "is_inference": {
        "inside": "outs.append(out.detach())",
        "after": "print(outs[-1].is_inference())",
    },
    "thread": {
        "after": "found = []\ndef f():\n    for x, y in loader:\n        found.append(model(x).sum())\nt = threading.Thread(target=f)\nt.start()\nt.join()\nsum(found).backward()\noptimizer.step()"
    },
    "teacher": {
        "before": "teacher = copy.deepcopy(model)",
        "train": "with torch.no_grad():\n    t = teacher(x)\nloss = loss + F.mse_loss(model(x), t)",
    },
    "teacher without a mode": {
        "before": "teacher = copy.deepcopy(model)",
        "train": "t = teacher(x).detach()\nloss = loss + F.mse_loss(model(x), t)",
    },
    "teacher moves": {
        "before": "teacher = copy.deepcopy(model)",
        "train": "with torch.no_grad():\n    for a, b in zip(teacher.parameters(), model.parameters()):\n        a.mul_(0.9).add_(b, alpha=0.1)\n    t = teacher(x)\nloss = loss + F.mse_loss(model(x), t)",
    },
    "target made in place": {
        "train": "with torch.no_grad():\n    t = model(x)\nt[y == 0] = 0\nloss = loss + F.mse_loss(model(x), t)"
    },
    "attack": {
        "train": "v = x.clone().requires_grad_()\nF.cross_entropy(model(v), y).backward()\nwith torch.no_grad():\n    v += 0.1 * v.grad.sign()\noptimizer.zero_grad()\nloss = loss + F.cross_entropy(model(v.detach()), y)"
    },
}

CLAIMS = [
    Claim("no backward reaches it", "no-grad-eval, loss-item-sync", PASS, REACHED),
    Claim("tensors of an evaluation stay there", "no-grad-eval", EVAL, LATER),
]
