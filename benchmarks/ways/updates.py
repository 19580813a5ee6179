"""Fused updates and 16 bits leave a training what it was, but for rounding."""

from benchmarks.ways.claim import Claim
from benchmarks.ways.held import HELD

UPDATES = """
...above
data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
loader = DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
...model
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
...before
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        ...first
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        ...grads
        optimizer.step()
        ...inside
        print(loss.item())
    ...after
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n"
ADAMW = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)\n"
FUSED: dict[str, str | dict[str, str]] = {
    "plain": "",
    "sgd": {"before": SGD},
    "sgd, nesterov": {
        "before": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)"
    },
    "sgd, dampening": {
        "before": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)"
    },
    "sgd, maximize": {
        "before": "optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, maximize=True)"
    },
    "adamw": {"before": ADAMW},
    "amsgrad": {
        "before": "optimizer = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True, weight_decay=0.1)"
    },
    "closure": {
        "inside": "def closure():\n    optimizer.zero_grad()\n    l = F.cross_entropy(model(x), y)\n    l.backward()\n    return l\nprint(optimizer.step(closure).item())"
    },
    "groups": {
        "before": "optimizer = torch.optim.Adam([{'params': model[0].parameters(), 'lr': 0.1}, {'params': model[2].parameters()}], lr=0.01)"
    },
    "group added": {
        "before": "extra = nn.Linear(3, 3).to(device)\noptimizer.add_param_group({'params': extra.parameters(), 'lr': 0.1})"
    },
    "group added of the host": {
        "before": "extra = nn.Linear(3, 3)\noptimizer.add_param_group({'params': extra.parameters(), 'lr': 0.1})",
        "grads": "extra(torch.ones(1, 3)).sum().backward()",
    },
    "group added, other options": {
        "before": "extra = nn.Linear(3, 3).to(device)\noptimizer.add_param_group({'params': extra.parameters(), 'foreach': False})"
    },
    "group, fused asked": {"inside": "print(optimizer.param_groups[0]['fused'])"},
    "groups, printed": {"after": "print(optimizer)"},
    "groups, keys": {"after": "print(sorted(optimizer.param_groups[0]))"},
    "groups, foreach set": {"inside": "optimizer.param_groups[0]['foreach'] = True"},
    "groups, foreach set by a loop": {
        "inside": "for g in optimizer.param_groups:\n    g['foreach'] = False"
    },
    "groups, capturable": {
        "before": "for g in optimizer.param_groups:\n    g['capturable'] = False"
    },
    "groups, differentiable": {
        "before": "for g in optimizer.param_groups:\n    g['differentiable'] = False"
    },
    "groups, replaced": {
        "before": "optimizer.param_groups[0] = {**optimizer.param_groups[0], 'lr': 0.1}"
    },
    "groups, update": {"before": "optimizer.param_groups[0].update(lr=0.1, foreach=True)"},
    "rate changes": {"inside": "for g in optimizer.param_groups:\n    g['lr'] *= 0.9"},
    "rate is a tensor": {
        "before": "optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))"
    },
    "rate is a tensor later": {
        "before": "for g in optimizer.param_groups:\n    g['lr'] = torch.tensor(0.01)"
    },
    "rate is a tensor there later": {
        "before": "for g in optimizer.param_groups:\n    g['lr'] = torch.tensor(0.01, device=device)"
    },
    "rate is a numpy number": {
        "inside": "for g in optimizer.param_groups:\n    g['lr'] = np.float64(0.01)"
    },
    "rate is zero": {"before": "optimizer = torch.optim.Adam(model.parameters(), lr=0.0)"},
    "betas change": {"inside": "for g in optimizer.param_groups:\n    g['betas'] = (0.8, 0.99)"},
    "betas are tensors": {
        "before": "for g in optimizer.param_groups:\n    g['betas'] = (torch.tensor(0.9), 0.99)"
    },
    "one cycle": {
        "before": "s = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)",
        "inside": "s.step()",
    },
    "warm restarts": {
        "before": "s = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)",
        "inside": "s.step()",
    },
    "lambda": {
        "before": "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.9 ** n)",
        "inside": "s.step()",
    },
    "plateau": {
        "before": "s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
        "inside": "s.step(loss.item())",
    },
    "state, step": {"inside": "print(optimizer.state[model[0].weight]['step'].item())"},
    "state, step as int": {"inside": "print(int(optimizer.state[model[0].weight]['step']))"},
    "state, step by math": {"inside": "print(0.9 ** optimizer.state[model[0].weight]['step'])"},
    "state, step set": {
        "inside": "for s in optimizer.state.values():\n    s['step'] = torch.tensor(1.0)"
    },
    "state, step set to an int": {
        "inside": "for s in optimizer.state.values():\n    s['step'] = 1"
    },
    "state, step set to zero": {
        "inside": "for s in optimizer.state.values():\n    s['step'].zero_()"
    },
    "state, step numpy": {"inside": "print(optimizer.state[model[0].weight]['step'].numpy())"},
    "state, step's device": {"inside": "print(optimizer.state[model[0].weight]['step'].device)"},
    "state, step is a tensor of the host": {
        "inside": "h = torch.ones(3)\nprint((h * optimizer.state[model[0].weight]['step']).sum().item())"
    },
    "state, made before": {
        "before": "for p in model.parameters():\n    optimizer.state[p] = {'step': torch.tensor(0.0), 'exp_avg': torch.zeros_like(p), 'exp_avg_sq': torch.zeros_like(p)}"
    },
    "state, made before of an int": {
        "before": "for p in model.parameters():\n    optimizer.state[p] = {'step': 0, 'exp_avg': torch.zeros_like(p), 'exp_avg_sq': torch.zeros_like(p)}"
    },
    "state, momentum": {
        "before": SGD,
        "inside": "print(optimizer.state[model[0].weight]['momentum_buffer'].sum().item())",
    },
    "state, momentum reset": {"before": SGD, "inside": "if i == 2:\n    optimizer.state.clear()"},
    "state, momentum set to None": {
        "before": SGD,
        "inside": "if i == 2:\n    for s in optimizer.state.values():\n        s['momentum_buffer'] = None",
    },
    "state, momentum of one set to None": {
        "before": SGD,
        "inside": "if i == 2:\n    optimizer.state[model[0].weight]['momentum_buffer'] = None",
    },
    "state, momentum scaled": {
        "before": SGD,
        "inside": "for s in optimizer.state.values():\n    s['momentum_buffer'].mul_(0.5)",
    },
    "state, adam cleared": {
        "inside": "if i == 2:\n    optimizer.state = collections.defaultdict(dict)"
    },
    "state, one cleared": {"inside": "if i == 2:\n    del optimizer.state[model[0].weight]"},
    "state, loaded": {
        "after": "f = io.BytesIO()\ntorch.save(optimizer.state_dict(), f)\nf.seek(0)\noptimizer.load_state_dict(torch.load(f))"
    },
    "state, loaded from the host": {
        "after": "f = io.BytesIO()\ntorch.save(optimizer.state_dict(), f)\nf.seek(0)\noptimizer.load_state_dict(torch.load(f, map_location='cpu'))"
    },
    "state, loaded into a plain one": {
        "after": "o = torch.optim.Adam(model.parameters(), lr=0.01)\no.load_state_dict(optimizer.state_dict())\noptimizer = o"
    },
    "state, loaded into another class": {
        "after": "o = torch.optim.NAdam(model.parameters(), lr=0.01)\no.load_state_dict({**optimizer.state_dict(), 'state': {}})\no.step()"
    },
    "state, groups to another class": {
        "after": "o = torch.optim.RMSprop([{**g} for g in optimizer.param_groups], lr=0.01)\no.step()"
    },
    "state, groups to a plain sgd": {
        "after": "o = torch.optim.SGD([{**g} for g in optimizer.param_groups], lr=0.01)\no.step()"
    },
    "defaults to another class": {
        "after": "o = torch.optim.NAdam(model.parameters(), **{k: v for k, v in optimizer.defaults.items() if k in ('lr', 'betas')})\no.step()"
    },
    "defaults to the same class": {
        "after": "optimizer = type(optimizer)(model.parameters(), **optimizer.defaults)"
    },
    "defaults, printed": {"after": "print(optimizer.defaults)"},
    "state dict, hashed": {"after": "print(len(str(optimizer.state_dict()['param_groups'])))"},
    "deep copied": {"after": "o = copy.deepcopy(optimizer)\nprint(len(o.param_groups))"},
    "pickled": {"after": "o = pickle.loads(pickle.dumps(optimizer))\nprint(len(o.param_groups))"},
    "step is replaced": {
        "before": "old = optimizer.step\ndef step():\n    print('step')\n    old()\noptimizer.step = step"
    },
    "step is replaced in the class": {
        "above": "old = torch.optim.Adam.step\ndef step(self, closure=None):\n    print(self.param_groups[0]['lr'])\n    return old(self, closure)\ntorch.optim.Adam.step = step"
    },
    "step by hand": {
        "grads": "with torch.no_grad():\n    for g in optimizer.param_groups:\n        for p in g['params']:\n            p.sub_(p.grad, alpha=g['lr'])"
    },
    "hooks": {"before": "optimizer.register_step_post_hook(lambda *a: print('stepped'))"},
    "hooks before": {
        "before": "optimizer.register_step_pre_hook(lambda o, a, k: print(len(o.state)))"
    },
    "subclass": {
        "above": "class A(torch.optim.Adam):\n    def step(self, closure=None):\n        for g in self.param_groups:\n            g['lr'] *= 0.9\n        return super().step(closure)",
        "before": "optimizer = A(model.parameters(), lr=0.01)",
    },
    "subclass with its own init": {
        "above": "class A(torch.optim.Adam):\n    def __init__(self, params, rate):\n        super().__init__(params, lr=rate)",
        "before": "optimizer = A(model.parameters(), 0.01)",
    },
    "subclass that computes": {
        "above": "class A(torch.optim.Adam):\n    @torch.no_grad()\n    def step(self, closure=None):\n        for g in self.param_groups:\n            for p in g['params']:\n                p.sub_(p.grad, alpha=g['lr'])",
        "before": "optimizer = A(model.parameters(), lr=0.01)",
    },
    "subclass of sgd that reads options": {
        "above": "class A(torch.optim.SGD):\n    def step(self, closure=None):\n        print(self.defaults['fused'])\n        return super().step(closure)",
        "before": "optimizer = A(model.parameters(), lr=0.01)",
    },
    "wrapper": {
        "above": "class W(torch.optim.Optimizer):\n    def __init__(self, o):\n        self.o = o\n        self.param_groups, self.state, self.defaults = o.param_groups, o.state, o.defaults\n    def step(self, closure=None):\n        return self.o.step(closure)\n    def zero_grad(self, set_to_none=True):\n        self.o.zero_grad()\n    def state_dict(self):\n        return self.o.state_dict()",
        "before": "optimizer = W(optimizer)",
    },
    "sam": {
        "above": "class SAM:\n    def __init__(self, params, base, **kw):\n        self.base = base(params, **kw)\n        self.param_groups = self.base.param_groups\n    def zero_grad(self):\n        self.base.zero_grad()\n    @torch.no_grad()\n    def step(self):\n        for g in self.param_groups:\n            for p in g['params']:\n                p.add_(p.grad, alpha=0.01)\n        self.base.step()",
        "before": "optimizer = SAM(model.parameters(), torch.optim.Adam, lr=0.01)",
    },
    "lookahead": {
        "before": "slow = [p.detach().clone() for p in model.parameters()]",
        "inside": "if i % 2:\n    with torch.no_grad():\n        for s, p in zip(slow, model.parameters()):\n            s.lerp_(p, 0.5)\n            p.copy_(s)",
    },
    "by getattr": {
        "before": "optimizer = getattr(torch.optim, 'Adam')(model.parameters(), lr=0.01)"
    },
    "by a dict": {
        "before": "optimizer = {'adam': torch.optim.Adam, 'rms': torch.optim.RMSprop}['adam'](model.parameters(), lr=0.01)"
    },
    "by a dict of options": {
        "before": "kw = {'lr': 0.01}\noptimizer = torch.optim.Adam(model.parameters(), **kw)\nother = torch.optim.RMSprop(model.parameters(), **kw)"
    },
    "by a partial": {
        "before": "made = functools.partial(torch.optim.Adam, lr=0.01)\noptimizer = made(model.parameters())"
    },
    "by a condition": {
        "before": "kind = torch.optim.Adam if True else torch.optim.Adagrad\noptimizer = kind(model.parameters(), lr=0.01)"
    },
    "by a function for several": {
        "above": "def made(kind, ps):\n    return kind(ps, lr=0.01)",
        "before": "optimizer = made(torch.optim.Adam, model.parameters())\nother = made(torch.optim.RMSprop, model.parameters())",
    },
    "by a loop": {
        "before": "for kind in (torch.optim.RMSprop, torch.optim.Adam):\n    optimizer = kind(model.parameters(), lr=0.01)"
    },
    "by a star": {"before": "a = (model.parameters(), 0.01)\noptimizer = torch.optim.Adam(*a)"},
    "no parameters": {
        "before": "other = torch.optim.Adam([nn.Parameter(torch.ones(1, device=device))], lr=0.01)\nother.step()"
    },
    "a tensor": {
        "before": "t = torch.ones(3, device=device, requires_grad=True)\nother = torch.optim.Adam([t], lr=0.1)",
        "inside": "other.zero_grad()\n(t ** 2).sum().backward()\nother.step()\nprint(t.sum().item())",
    },
    "a double": {
        "before": "t = torch.ones(3, device=device, dtype=torch.float64, requires_grad=True)\nother = torch.optim.Adam([t], lr=0.1)",
        "inside": "other.zero_grad()\n(t ** 2).sum().backward()\nother.step()\nprint(t.sum().item())",
    },
    "a half": {
        "before": "t = torch.ones(3, device=device, dtype=torch.bfloat16, requires_grad=True)\nother = torch.optim.SGD([t], lr=0.1, momentum=0.9)",
        "inside": "other.zero_grad()\n(t.float() ** 2).sum().backward()\nother.step()\nprint(t.float().sum().item())",
    },
    "a complex": {
        "before": "t = torch.ones(3, device=device, dtype=torch.complex64, requires_grad=True)\nother = torch.optim.Adam([t], lr=0.1)",
        "inside": "other.zero_grad()\n(t.abs() ** 2).sum().backward()\nother.step()\nprint(t.abs().sum().item())",
    },
    "a complex layer": {
        "above": "class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(4, dtype=torch.cfloat))\n    def forward(self, x):\n        return (x * self.w).abs()",
        "model": "model = nn.Sequential(C(), model)",
    },
    "a complex by view": {
        "above": "class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.view_as_complex(torch.ones(4, 2)))\n    def forward(self, x):\n        return (x * self.w).abs()",
        "model": "model = nn.Sequential(C(), model)",
    },
    "a complex by arithmetic": {
        "above": "class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(4) + 1j * torch.ones(4))\n    def forward(self, x):\n        return (x * self.w).abs()",
        "model": "model = nn.Sequential(C(), model)",
    },
    "a complex by fft": {
        "above": "class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.fft.fft(torch.ones(4)))\n    def forward(self, x):\n        return (x * self.w).abs()",
        "model": "model = nn.Sequential(C(), model)",
    },
    "a complex by to": {
        "above": "class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(4).to(torch.complex64))\n    def forward(self, x):\n        return (x * self.w).abs()",
        "model": "model = nn.Sequential(C(), model)",
    },
    "a complex by a string": {
        "above": "class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(4, dtype=getattr(torch, 'cfloat')))\n    def forward(self, x):\n        return (x * self.w).abs()",
        "model": "model = nn.Sequential(C(), model)",
    },
    "a transposed parameter": {"model": "model[0].weight = nn.Parameter(torch.randn(4, 8).t())"},
    "a strided parameter": {"model": "model[0].weight = nn.Parameter(torch.randn(8, 8)[:, ::2])"},
    "a sliced parameter": {"model": "model[0].weight = nn.Parameter(torch.randn(8, 6)[:, :4])"},
    "an expanded parameter": {"model": "model[0].bias = nn.Parameter(torch.zeros(1).expand(8))"},
    "a flat parameter": {
        "model": "flat = torch.randn(99)\nmodel[0].weight.data = flat[:32].view(8, 4)\nmodel[0].bias.data = flat[32:40]"
    },
    "a strided parameter by data": {
        "before": "model[0].weight.data = torch.randn(8, 6, device=device)[:, :4]"
    },
    "a channels last parameter": {
        "model": "model = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(2, 3)).to(memory_format=torch.channels_last)"
    },
    "a gradient that is expanded": {
        "grads": "model[0].weight.grad = torch.ones((), device=device).expand(8, 4) * 1\nmodel[0].bias.grad = torch.full((1,), 0.1, device=device).expand(8)"
    },
    "a gradient that is transposed": {
        "grads": "model[0].weight.grad = torch.arange(32.0, device=device).view(4, 8).t()"
    },
    "a gradient by a sum": {
        "grads": "for p in model.parameters():\n    p.grad = p.grad + 0.01 * p.detach()"
    },
    "a gradient by a view": {
        "grads": "g = torch.cat([p.grad.flatten() for p in model.parameters()])\nn = 0\nfor p in model.parameters():\n    p.grad = g[n:n + p.numel()].view_as(p)\n    n += p.numel()"
    },
    "a gradient that is None": {"grads": "model[0].bias.grad = None"},
    "a gradient that is None at first": {"grads": "if epoch == 0:\n    model[0].bias.grad = None"},
    "a gradient that is None at first, sgd": {
        "before": SGD,
        "grads": "if epoch == 0:\n    model[0].bias.grad = None",
    },
    "a gradient that is None at first by freezing, sgd": {
        "before": SGD + "model[0].requires_grad_(False)",
        "first": "if epoch == 1:\n    model[0].requires_grad_(True)",
    },
    "a gradient that is None at first by an arm, sgd": {
        "before": SGD
        + "head = nn.Linear(3, 3).to(device)\noptimizer.add_param_group({'params': head.parameters()})",
        "grads": "if epoch:\n    head(model(x)).sum().backward()",
    },
    "a gradient that is None at first by a hook, sgd": {
        "before": SGD + "model[0].bias.register_hook(lambda g: g * 0)"
    },
    "a gradient that is sparse": {
        "model": "class E(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.e = nn.Embedding(9, 4, sparse=True)\n    def forward(self, x):\n        return x + self.e(torch.zeros(len(x), dtype=torch.long, device=x.device))\nmodel = nn.Sequential(E(), model)",
        "before": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    },
    "a gradient that is sparse by hand": {
        "before": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "grads": "model[0].weight.grad = model[0].weight.grad.to_sparse()",
    },
    "a gradient that is sparse by bag": {
        "model": "class E(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.e = nn.EmbeddingBag(9, 4, sparse=True, mode='sum')\n    def forward(self, x):\n        return x + self.e(torch.zeros(len(x), 1, dtype=torch.long, device=x.device))\nmodel = nn.Sequential(E(), model)",
        "before": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    },
    "a gradient that is inf": {"grads": "model[0].weight.grad[0, 0] = float('inf')"},
    "a gradient scaler": {
        "before": "scaler = torch.amp.GradScaler(device.type)",
        "inside": "optimizer.zero_grad()\nscaler.scale(F.cross_entropy(model(x), y)).backward()\nscaler.step(optimizer)\nscaler.update()",
    },
    "a gradient scaler, sgd": {
        "before": SGD + "scaler = torch.amp.GradScaler(device.type)",
        "inside": "optimizer.zero_grad()\nscaler.scale(F.cross_entropy(model(x), y)).backward()\nscaler.step(optimizer)\nscaler.update()",
    },
    "a gradient scaler that skips": {
        "before": "scaler = torch.amp.GradScaler(device.type)",
        "inside": "optimizer.zero_grad()\nscaler.scale(F.cross_entropy(model(x), y)).backward()\nif i == 1:\n    model[0].weight.grad[0, 0] = float('inf')\nscaler.step(optimizer)\nscaler.update()\nprint(scaler.get_scale())",
    },
    "a gradient scaler, step's result": {
        "before": "scaler = torch.amp.GradScaler(device.type)",
        "inside": "optimizer.zero_grad()\nscaler.scale(F.cross_entropy(model(x), y)).backward()\nprint(scaler.step(optimizer))\nscaler.update()",
    },
    "a gradient scaler, unscaled": {
        "before": "scaler = torch.amp.GradScaler(device.type)",
        "inside": "optimizer.zero_grad()\nscaler.scale(F.cross_entropy(model(x), y)).backward()\nscaler.unscale_(optimizer)\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\nscaler.step(optimizer)\nscaler.update()",
    },
    "a gradient scaler, unscaled then read": {
        "before": "scaler = torch.amp.GradScaler(device.type)",
        "inside": "optimizer.zero_grad()\nscaler.scale(F.cross_entropy(model(x), y)).backward()\nscaler.step(optimizer)\nprint(model[0].weight.grad.norm().item())\nscaler.update()",
    },
    "gradients read after the step": {"inside": "print(model[0].weight.grad.norm().item())"},
    "moved after": {
        "model": "other = nn.Linear(3, 3)\nother_o = torch.optim.Adam(other.parameters(), lr=0.1)\nother.to(device)",
        "inside": "other_o.zero_grad()\nother(torch.ones(1, 3, device=device)).sum().backward()\nother_o.step()\nprint(other.weight.sum().item())",
    },
    "moved to the host and back": {
        "after": "model.cpu()\nprint(model[0].weight.sum().item())\nmodel.to(device)"
    },
    "moved to the host, stepped": {
        "after": "model.cpu()\nh = nn.Linear(2, 2)\no = torch.optim.Adam(h.parameters(), lr=0.1)\nh(torch.ones(1, 2)).sum().backward()\no.step()\nprint(h.weight.sum().item())\nmodel.to(device)"
    },
    "cast after": {"before": "model.double()\nloader = [(a.double(), b) for a, b in loader]"},
    "cast in the middle": {
        "after": "if epoch == 1:\n    model.double()\n    loader = [(a.double(), b) for a, b in loader]"
    },
    "pruned": {
        "before": "import torch.nn.utils.prune as prune\nprune.l1_unstructured(model[0], 'weight', 0.5)\noptimizer = torch.optim.Adam(model.parameters(), lr=0.01)"
    },
    "parametrized": {
        "before": "nn.utils.parametrizations.weight_norm(model[0])\noptimizer = torch.optim.Adam(model.parameters(), lr=0.01)"
    },
    "a version counter": {"inside": "print(model[0].weight._version > 0)"},
    "retained graph": {
        "inside": "l1 = F.cross_entropy(model(x), y)\nl1.backward(retain_graph=True)\noptimizer.step()\nprint('ok')"
    },
    "retained graph, backward again": {
        "inside": "l1 = F.cross_entropy(model(x), y)\nl1.backward(retain_graph=True)\noptimizer.step()\ntry:\n    l1.backward()\n    print('silent')\nexcept RuntimeError:\n    print('noticed')"
    },
    "many steps": {
        "inside": "for _ in range(20):\n    optimizer.step()\nprint(model[0].weight.sum().item())"
    },
    "zero_grad to zeros": {"first": "optimizer.zero_grad(set_to_none=False)"},
    "two of one": {
        "before": "second = torch.optim.Adam(model.parameters(), lr=0.001)",
        "inside": "second.step()",
    },
    "in a lightning-like class": {
        "above": "class T:\n    def __init__(self, m):\n        self.m = m\n    def configure(self):\n        return {'optimizer': torch.optim.Adam(self.m.parameters(), lr=0.01), 'monitor': 'l'}",
        "before": "optimizer = T(model).configure()['optimizer']",
    },
    "no_sync of hooks": {
        "before": "for p in model.parameters():\n    p.register_post_accumulate_grad_hook(lambda p: None)"
    },
    "in the backward": {
        "before": "os_ = {p: torch.optim.Adam([p], lr=0.01) for p in model.parameters()}\ndef go(p):\n    os_[p].step()\n    os_[p].zero_grad()\nhs = [p.register_post_accumulate_grad_hook(go) for p in model.parameters()]",
        "grads": "continue",
    },
}

HALVES = """
...above
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(32, 16)
        self.c = nn.Linear(16, 3)
        ...init
    def forward(self, x):
        h = F.relu(self.a(x))
        ...forward
        return self.c(F.relu(self.b(h)))
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 3, (64,)))
loader = DataLoader(data, batch_size=16)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
...before
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        ...loss
        loss.backward()
        optimizer.step()
        ...inside
        print(loss.item())
    ...after
...end
"""
AUTOCAST: dict[str, str | dict[str, str]] = {
    "plain": "",
    "out to numpy": "print(float(out.detach().cpu().numpy().sum()) > -1e9)",
    "out to numpy, type": "print(out.detach().cpu().numpy().dtype)",
    "out's type": "print(out.dtype)",
    "loss's type": "print(loss.dtype)",
    "out compared to a type": "assert out.dtype == torch.float32",
    "out written to": {
        "loss": "buf = torch.zeros(16, 3, device=device)\nbuf[:] = out.detach()\nprint(buf.dtype)"
    },
    "out written to by a mask": {
        "loss": "buf = torch.zeros(16, 3, device=device)\nbuf[y == 0] = out.detach()[y == 0]\nprint(buf.dtype)"
    },
    "out by index_add": {
        "loss": "buf = torch.zeros(3, 3, device=device)\nbuf.index_add_(0, y, out.detach())\nprint(buf.dtype)"
    },
    "out by scatter_add": {
        "loss": "buf = torch.zeros(16, 3, device=device)\nbuf.scatter_add_(1, y[:, None], out.detach())\nprint(buf.dtype)"
    },
    "out by scatter": {
        "forward": "h = h.scatter(1, torch.zeros(len(h), 1, dtype=torch.long, device=h.device), self.a(x)[:, :1])"
    },
    "out by index_put": {
        "forward": "z = torch.zeros(len(h), 32, device=h.device)\nz[torch.arange(len(h), device=h.device)] = h\nh = z"
    },
    "out by where": {"forward": "h = torch.where(h > 0, h, torch.tensor(0.0, device=h.device))"},
    "out by cat": {"forward": "h = torch.cat([h[:, :16], x], 1)"},
    "out by stack": {"forward": "h = torch.stack([h, h]).mean(0)"},
    "out by matmul": {"forward": "h = h @ torch.eye(32, device=h.device)"},
    "out by bmm": {
        "forward": "h = torch.bmm(h[:, None], torch.eye(32, device=h.device).expand(len(h), 32, 32))[:, 0]"
    },
    "out by einsum": {
        "forward": "h = torch.einsum('bi,ij->bj', h, torch.eye(32, device=h.device))"
    },
    "out by addmm": {
        "forward": "h = torch.addmm(torch.zeros(32, device=h.device), h, torch.eye(32, device=h.device))"
    },
    "out by addmm_": {
        "forward": "z = torch.zeros(len(h), 32, device=h.device)\nz.addmm_(h, torch.eye(32, device=h.device))\nh = z"
    },
    "out by mm out": {
        "forward": "z = torch.zeros(len(h), 32, device=h.device)\nwith torch.no_grad():\n    torch.mm(h, torch.eye(32, device=h.device), out=z)\nh = h + z.detach() * 0"
    },
    "out by copy_": {"forward": "z = torch.empty(len(h), 32, device=h.device)\nz.copy_(h)\nh = z"},
    "out by lerp": {"forward": "h = torch.lerp(h, torch.zeros(len(h), 32, device=h.device), 0.1)"},
    "out by dot": {"forward": "h = h * torch.dot(h[0], h[0]).clamp(0.9, 1.1)"},
    "out by baddbmm": {
        "forward": "h = torch.baddbmm(torch.zeros(1, 1, 32, device=h.device), h[None], torch.eye(32, device=h.device)[None])[0]"
    },
    "out by linalg": {
        "forward": "h = h @ torch.linalg.inv(torch.eye(32, device=h.device) + self.k)",
        "init": "self.k = nn.Parameter(torch.zeros(32, 32))",
    },
    "out by svd": {"forward": "u, s, v = torch.linalg.svd(h, full_matrices=False)\nh = h / s[0]"},
    "out by qr": {"forward": "q, r = torch.linalg.qr(self.b.weight.t())\nh = h + q[:, 0] * 0"},
    "out by fft": {"forward": "h = torch.fft.ifft(torch.fft.fft(h)).real"},
    "out by cumsum": {"forward": "h = h.cumsum(1) / 32"},
    "out by cdist": {"forward": "h = h + torch.cdist(h, h).mean() * 0.01"},
    "out by distances": {
        "forward": "d = (h ** 2).sum(1)[:, None] + (h ** 2).sum(1)[None] - 2 * h @ h.t()\nh = h + d.clamp(min=0).sqrt().mean() * 0.001"
    },
    "out by distances, small": {
        "loss": "z = 1000 + out / 100\nd = (z ** 2).sum(1)[:, None] + (z ** 2).sum(1)[None] - 2 * z @ z.t()\nprint(bool((d.diagonal().abs() < 10).all()))"
    },
    "out by a large sum": {"loss": "loss = loss + 1e-9 * (out.detach() * 60000).sum()"},
    "out by a large product": {"forward": "h = h * 70000 / 70000"},
    "out by a small number": {"forward": "h = h + 1e-9 - 1e-9"},
    "out by eps": {"forward": "h = h / (h.norm(dim=1, keepdim=True) + 1e-8)"},
    "out by eps, sqrt": {"forward": "h = h / torch.sqrt((h ** 2).mean(1, keepdim=True) + 1e-8)"},
    "out by eps, log": {
        "loss": "p = torch.softmax(out, 1)\nloss = -(torch.log(p + 1e-10) * F.one_hot(y, 3)).sum(1).mean()"
    },
    "out by eps, sigmoid": {
        "loss": "p = torch.sigmoid(out * 10)\nt = F.one_hot(y, 3)\nloss = -(t * torch.log(p + 1e-10) + (1 - t) * torch.log(1 - p + 1e-10)).mean()"
    },
    "out by bce": {
        "loss": "loss = F.binary_cross_entropy(torch.sigmoid(out), F.one_hot(y, 3).float())"
    },
    "out by nll": {"loss": "loss = F.nll_loss(F.log_softmax(out, 1), y)"},
    "out by mse": {"loss": "loss = F.mse_loss(out, F.one_hot(y, 3).float())"},
    "out by kl": {
        "loss": "loss = F.kl_div(F.log_softmax(out, 1), F.softmax(out.detach() * 2, 1), reduction='batchmean') + loss"
    },
    "out by a masked fill": {
        "loss": "loss = F.cross_entropy(out.masked_fill(out < -1e9, -1e9), y)"
    },
    "out by a masked fill, large": {
        "loss": "m = torch.zeros_like(out, dtype=torch.bool)\nm[:, 2] = True\nprint(torch.softmax(out.masked_fill(m, -1e9), 1)[:, 2].sum().item())"
    },
    "out by a large id": {
        "loss": "ids = out.argmax(1).float() + 4096\nprint(ids.max().item() <= 4098)"
    },
    "a position": {
        "forward": "p = torch.arange(len(x), device=x.device).float()[:, None]\nh = h + torch.sin(p * 100) * 0.01"
    },
    "a position by matmul": {
        "forward": "p = torch.arange(300, 300 + len(x), device=x.device).float()[:, None]\nh = h + torch.sin(p @ torch.ones(1, 32, device=x.device)) * 0.5"
    },
    "a frequency by a linear": {
        "init": "self.f = nn.Linear(1, 32)\nnn.init.constant_(self.f.weight, 3.7)",
        "forward": "p = torch.arange(100, 100 + len(x), device=x.device).float()[:, None]\nh = h + torch.sin(self.f(p)) * 0.5",
    },
    "a count by matmul": {
        "loss": "c = F.one_hot(y, 3).float().t() @ torch.full((len(y), 1), 257.0, device=device)\nprint(c.sum().item())"
    },
    "a time": {
        "init": "self.t = nn.Linear(1, 32)",
        "forward": "h = h + torch.cos(self.t(torch.full((len(x), 1), 999.0, device=x.device)) * 0.001)",
    },
    "an accumulator": {
        "before": "total = torch.zeros((), device=device)",
        "loss": "total += loss.detach()",
        "after": "print(total.item())",
    },
    "an accumulator of outs": {
        "before": "total = torch.zeros(3, device=device)",
        "inside": "total += out.detach().sum(0)",
        "after": "print(total.dtype, total.sum().abs().item() >= 0)",
    },
    "a running mean": {
        "before": "mean = torch.zeros(3, device=device)",
        "inside": "mean.mul_(0.9).add_(out.detach().mean(0), alpha=0.1)\nprint(mean.dtype)",
    },
    "a running mean in the model": {
        "init": "self.register_buffer('m', torch.zeros(32))",
        "forward": "self.m.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\nh = h - self.m * 0.1",
        "after": "print(model.m.dtype)",
    },
    "a running mean in the model, assigned": {
        "init": "self.register_buffer('m', torch.zeros(32))",
        "forward": "self.m = 0.9 * self.m + 0.1 * h.detach().mean(0)\nh = h - self.m * 0.1",
        "after": "print(model.m.dtype)",
    },
    "a feature kept": {
        "forward": "self.h = h",
        "inside": "print(model.h.detach().cpu().numpy().dtype)",
    },
    "a feature kept by a hook": {
        "before": "got = {}\nmodel.a.register_forward_hook(lambda m, a, o: got.update(h=o))",
        "inside": "print(got['h'].dtype)",
    },
    "a feature kept in a bank": {
        "before": "bank = torch.zeros(16, 32, device=device)",
        "forward": "self.h = h",
        "inside": "bank[:] = model.h.detach()\nprint(bank.dtype)",
    },
    "a feature by a hook, matmul": {
        "before": "got = {}\nw = torch.eye(32, device=device)\nmodel.a.register_forward_hook(lambda m, a, o: got.update(h=o))",
        "inside": "print((got['h'].detach() @ w).dtype)",
    },
    "a feature for a layer": {
        "before": "probe = nn.Linear(32, 2).to(device)",
        "forward": "self.h = h",
        "inside": "print(probe(model.h.detach()).shape)",
    },
    "a feature for a layer, by a list": {
        "before": "probe = nn.Linear(32, 2).to(device)\nhs = []",
        "forward": "hs.append(h)",
        "inside": "print(probe(hs[-1].detach()).shape)",
    },
    "a feature for a layer, by a hook's dict": {
        "before": "probe = nn.Linear(32, 2).to(device)\ngot = {}\ndef keep(m, a, o):\n    got['h'] = o\nmodel.a.register_forward_hook(keep)",
        "inside": "print(probe(got['h'].detach()).shape)",
    },
    "a feature for a layer, by a hook's list": {
        "before": "probe = nn.Linear(32, 2).to(device)\ngot = []\nmodel.a.register_forward_hook(lambda m, a, o: got.append(o))",
        "inside": "print(probe(got.pop().detach()).shape)",
    },
    "a feature for a layer, by a hook's closure": {
        "before": "probe = nn.Linear(32, 2).to(device)\ngot = {}\ndef keeper(n):\n    def keep(m, a, o):\n        got[n] = o.detach()\n    return keep\nmodel.a.register_forward_hook(keeper('h'))",
        "inside": "print(probe(got['h']).shape)",
    },
    "a feature for a layer, by a hook's object": {
        "above": "class Keep:\n    def __init__(self, m):\n        self.h = None\n        m.register_forward_hook(self.keep)\n    def keep(self, m, a, o):\n        self.h = o",
        "before": "probe = nn.Linear(32, 2).to(device)\nk = Keep(model.a)",
        "inside": "print(probe(k.h.detach()).shape)",
    },
    "a feature for a product, by a hook's closure": {
        "before": "w = torch.eye(32, device=device)\ngot = {}\ndef keeper(n):\n    def keep(m, a, o):\n        got[n] = o.detach()\n    return keep\nmodel.a.register_forward_hook(keeper('h'))",
        "inside": "print((got['h'] @ w).shape)",
    },
    "a second output for a layer": {
        "before": "probe = nn.Linear(3, 2).to(device)",
        "inside": "print(probe(out.detach()).shape)",
    },
    "a second output for a product": {
        "before": "w = torch.eye(3, device=device)",
        "inside": "print((out.detach() @ w).shape)",
    },
    "a second output for a list": {
        "before": "probe = nn.Linear(3, 2).to(device)\nouts = []",
        "inside": "outs.append(out.detach())\nprint(probe(outs[-1]).shape)",
    },
    "a second output for a list, later": {
        "before": "probe = nn.Linear(3, 2).to(device)\nouts = []",
        "inside": "outs.append(out.detach())",
        "after": "print(probe(torch.cat(outs)).shape)",
    },
    "a gradient penalty": {
        "loss": "z = x.clone().requires_grad_()\ng, = torch.autograd.grad(model(z).sum(), z, create_graph=True)\nloss = loss + 0.1 * ((g.norm(dim=1) - 1) ** 2).mean()"
    },
    "a Function": {
        "above": "class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, w):\n        ctx.save_for_backward(x, w)\n        return x @ w\n    @staticmethod\n    def backward(ctx, g):\n        x, w = ctx.saved_tensors\n        return g @ w.t(), x.t() @ g",
        "init": "self.w = nn.Parameter(torch.eye(32))",
        "forward": "h = Fn.apply(h, self.w)",
    },
    "a Function of points": {
        "above": "class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.sign()\n    @staticmethod\n    def backward(ctx, g):\n        return g",
        "forward": "h = h + Fn.apply(h)",
    },
    "a checkpoint": {
        "forward": "h = torch.utils.checkpoint.checkpoint(self.b, h, use_reentrant=False)\nreturn self.c(F.relu(h))"
    },
    "a checkpoint, reentrant": {
        "forward": "h = torch.utils.checkpoint.checkpoint(self.b, h, use_reentrant=True)\nreturn self.c(F.relu(h))"
    },
    "an lstm": {
        "init": "self.l = nn.LSTM(32, 32, batch_first=True)",
        "forward": "h = self.l(h[:, None])[0][:, 0]",
    },
    "an lstm with a state": {
        "init": "self.l = nn.LSTM(32, 32, batch_first=True)",
        "forward": "s = torch.zeros(1, len(h), 32, device=h.device)\nh = self.l(h[:, None], (s, s))[0][:, 0]",
    },
    "an lstm with a state kept": {
        "init": "self.l = nn.GRU(32, 32, batch_first=True)\nself.s = None",
        "forward": "h, self.s = self.l(h[:, None], None if self.s is None else self.s.detach())\nh = h[:, 0]",
    },
    "a cell": {
        "init": "self.l = nn.GRUCell(32, 32)",
        "forward": "s = torch.zeros(len(h), 32, device=h.device)\nfor _ in range(3):\n    s = self.l(h, s)\nh = s",
    },
    "a batch norm": {"init": "self.n = nn.BatchNorm1d(32)", "forward": "h = self.n(h)"},
    "a norm by hand": {
        "forward": "h = (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True) + 1e-5).sqrt()"
    },
    "a norm by hand, small": {
        "forward": "h = h * 1e-4\nh = (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True) + 1e-12).sqrt()"
    },
    "attention": {
        "init": "self.m = nn.MultiheadAttention(32, 2, batch_first=True)",
        "forward": "h = h + self.m(h[:, None], h[:, None], h[:, None])[0][:, 0]",
    },
    "attention by hand, -inf": {
        "forward": "s = h @ h.t()\ns = s.masked_fill(torch.eye(len(h), device=h.device).bool(), float('-inf'))\nh = torch.softmax(s / 6, 1) @ h"
    },
    "attention by hand, -1e9": {
        "forward": "s = h @ h.t()\ns = s.masked_fill(torch.eye(len(h), device=h.device).bool(), -1e9)\nh = torch.softmax(s / 6, 1) @ h"
    },
    "attention by hand, min of float": {
        "forward": "s = h @ h.t()\ns = s.masked_fill(torch.eye(len(h), device=h.device).bool(), torch.finfo(torch.float32).min)\nh = torch.softmax(s / 6, 1) @ h"
    },
    "attention by hand, added mask": {
        "forward": "s = h @ h.t()\ns = s + (torch.eye(len(h), device=h.device) * -1e9)\nh = torch.softmax(s / 6, 1) @ h"
    },
    "a distribution": {
        "loss": "d = torch.distributions.Categorical(logits=out)\nloss = loss - 0.01 * d.entropy().mean()"
    },
    "a distribution, validated": {
        "loss": "d = torch.distributions.Categorical(probs=torch.softmax(out, 1))\nloss = loss - 0.01 * d.entropy().mean()"
    },
    "a normal": {
        "loss": "d = torch.distributions.Normal(out[:, 0], F.softplus(out[:, 1]) + 1e-4)\nloss = loss - 0.01 * d.log_prob(torch.zeros(16, device=device)).mean()"
    },
    "a multivariate normal": {
        "loss": "d = torch.distributions.MultivariateNormal(out, torch.eye(3, device=device))\nloss = loss - 0.001 * d.log_prob(torch.zeros(16, 3, device=device)).mean()"
    },
    "a ratio": {
        "before": "old = {}",
        "loss": "lp = F.log_softmax(out, 1).gather(1, y[:, None])\nprev = old.get(i, lp.detach())\nold[i] = lp.detach()\nloss = -(torch.exp(lp - prev)).mean() + loss",
    },
    "a metric": {"inside": "print(((out.argmax(1) == y).float().mean() >= 0).item())"},
    "a metric of another library": {
        "inside": "import sklearn\n" if False else "print(np.asarray(out.detach().cpu()).dtype)"
    },
    "a list of outs": {
        "before": "outs = []",
        "inside": "outs.append(out.detach().cpu())",
        "after": "print(torch.cat(outs).numpy().dtype)",
    },
    "a list of outs, list": {
        "before": "outs = []",
        "inside": "outs += out.detach().tolist()",
        "after": "print(len(outs))",
    },
    "a second network in fp64": {
        "before": "d = nn.Linear(3, 3).double().to(device)",
        "inside": "print(d(out.detach().double()).dtype)",
    },
    "a second network that is frozen": {
        "before": "t = Net().to(device).eval()",
        "loss": "with torch.no_grad():\n    q = t(x)\nloss = loss + F.mse_loss(out, q)",
    },
    "weights shared": {"forward": "h = h @ self.a.weight @ self.a.weight.t()"},
    "weights changed between": {
        "loss": "with torch.no_grad():\n    model.c.weight.mul_(0.99)\nloss = loss + F.cross_entropy(model(x), y)"
    },
    "weights in no_grad first": {
        "loss": "with torch.no_grad():\n    q = model(x)\nloss = loss + F.mse_loss(model(x), q * 2)"
    },
    "weights in no_grad before": {
        "before": "with torch.no_grad():\n    model(torch.zeros(1, 16, device=device))"
    },
    "unused params": {"init": "self.z = nn.Linear(4, 4)"},
    "accumulated": {"inside": "loss2 = F.cross_entropy(model(x), y) / 2\nloss2.backward()"},
    "clipped": {"inside": "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"},
    "a sequence": {
        "before": "model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.05)"
    },
    "a vae": {
        "forward": "mu, lv = h[:, :16], h[:, 16:]\nz = mu + torch.exp(lv / 2) * 0.1\nself.kl = -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()\nh = torch.cat([z, z], 1)",
        "loss": "loss = loss + 0.01 * model.kl",
    },
    "a contrastive loss": {
        "loss": "z = F.normalize(out, dim=1)\nloss = F.cross_entropy(z @ z.t() / 0.07, torch.arange(len(z), device=device))"
    },
    "a temperature": {"loss": "loss = F.cross_entropy(out / 0.01, y)"},
    "a quantile": {"loss": "loss = loss + 0.01 * out.quantile(0.5)"},
    "a histogram": {"inside": "print(torch.histc(out.detach(), 4, -9, 9).sum().item())"},
    "a sort": {"inside": "print(out.detach().sort(1)[0].shape)"},
    "an item of out": {"inside": "print(abs(out[0, 0].item()) < 1e9)"},
    "a view of bits": {"inside": "print(out.detach().view(torch.int32).shape)"},
    "an eval": {
        "after": "model.eval()\nwith torch.no_grad():\n    print(sum((model(a.to(device)).argmax(1).cpu() == b).sum().item() >= 0 for a, b in loader))\nmodel.train()"
    },
    "an eval to numpy": {
        "after": "model.eval()\nwith torch.no_grad():\n    ps = np.concatenate([model(a.to(device)).cpu().numpy() for a, b in loader])\nprint(ps.dtype, ps.shape)\nmodel.train()"
    },
    "an eval to numpy by a function": {
        "above": "def predict(m, l):\n    m.eval()\n    out = []\n    with torch.no_grad():\n        for a, b in l:\n            out.append(m(a.to(device)).cpu().numpy())\n    m.train()\n    return np.concatenate(out)",
        "after": "ps = predict(model, loader)\nprint(ps.dtype)",
    },
}

CLAIMS = [
    Claim(
        "a fused update is the same update",
        "fused-optimizer",
        UPDATES,
        FUSED,
        cuda=True,
        configs=("fused",),
        digits=1e-3,
    ),
    Claim(
        "16 bits are near",
        "autocast, grad-scaler",
        HALVES,
        AUTOCAST | HELD,
        cuda=True,
        configs=("halves",),
        digits=0.1,
    ),
]
