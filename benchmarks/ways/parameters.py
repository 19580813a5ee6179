"""Parameters, their gradients and their copies are what they seem."""

from benchmarks.ways.claim import Claim

AVERAGE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.b = nn.Linear(4, 4)
        ...init

    def forward(self, x):
        return self.b(self.norm(self.a(x)))


...above
model = Net().to(device)
ema = copy.deepcopy(model)
...before
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + ema(x).mean()
        loss.backward()
        ...grads
        optimizer.step()
        ...inside
        print(repr(loss.item()), [p.sum().item() for p in ema.parameters()])
"""
LOOP = "with torch.no_grad():\n    for p, e in zip(model.parameters(), ema.parameters()):\n        "
DATA = "for p, e in zip(model.parameters(), ema.parameters()):\n    "
UPDATE = DATA + "e.data.mul_(0.9).add_(p.data, alpha=0.1)"
UPDATED: dict[str, str | dict[str, str]] = {
    "plain": UPDATE,
    "under no_grad": LOOP + "e.mul_(0.9).add_(p, alpha=0.1)",
    "lerp": LOOP + "e.lerp_(p, 0.1)",
    "copy": DATA + "e.data.copy_(p.data * 0.1 + e.data * 0.9)",
    "augmented": DATA + "e.data += 0.1 * (p.data - e.data)",
    "same model": {"before": "ema = model", "inside": UPDATE},
    "shared layer": {"before": "ema.b = model.b", "inside": UPDATE},
    "shared weight": {"before": "ema.b.weight = model.b.weight", "inside": UPDATE},
    "shared data": {"before": "ema.b.weight.data = model.b.weight.data", "inside": UPDATE},
    "shared by set_": {"before": "ema.b.weight.data.set_(model.b.weight.data)", "inside": UPDATE},
    "shared by a view": {
        "before": "ema.b.weight.data = model.a.weight.data.view(4, 4)",
        "inside": UPDATE,
    },
    "shared by an assigned state": {
        "before": "ema.load_state_dict(model.state_dict(), assign=True)",
        "inside": UPDATE,
    },
    "shared by setattr": {"before": "setattr(ema, 'b', model.b)", "inside": UPDATE},
    "shared by a shallow copy": {"before": "ema = copy.copy(model)", "inside": UPDATE},
    "shared by vars": {"before": "vars(ema)['_modules']['b'] = model.b", "inside": UPDATE},
    "shared by register": {"before": "ema.register_module('b', model.b)", "inside": UPDATE},
    "shared by add_module": {"before": "ema.add_module('b', model.b)", "inside": UPDATE},
    "shared by a function": {
        "above": "def share(a, b):\n    a.b = b.b",
        "before": "share(ema, model)",
        "inside": UPDATE,
    },
    "tied in itself": {"init": "self.b.weight = self.a.weight", "inside": UPDATE},
    "tied later": {
        "before": "ema.b.weight = ema.a.weight\nmodel.b.weight = model.a.weight",
        "inside": UPDATE,
    },
    "tied by data": {"before": "ema.b.weight.data = ema.a.weight.data", "inside": UPDATE},
    "tied by data, in itself": {
        "init": "self.b.weight.data = self.a.weight.data",
        "inside": UPDATE,
    },
    "tied by a list": {
        "inside": "ps = [model.a.weight, model.b.weight]\nes = [ema.a.weight, ema.a.weight]\nfor p, e in zip(ps, es):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "one after the other": {
        "inside": "ps = list(model.parameters())\nfor p, e in zip(ps[2:3], ps[3:4]):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "chained": {
        "inside": "ps = [model.a.weight, model.b.weight, ema.b.weight]\nfor p, e in zip(ps, ps[1:]):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "broadcast": {
        "inside": "for p, e in zip([model.a.bias], [ema.a.weight]):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "unequal lengths": {
        "inside": "for p, e in zip(list(model.parameters())[:2], ema.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "buffers": {"inside": "for p, e in zip(model.buffers(), ema.buffers()):\n    e.copy_(p)"},
    "buffers averaged": {
        "inside": "for p, e in zip(list(model.buffers())[:2], list(ema.buffers())[:2]):\n    e.mul_(0.9).add_(p, alpha=0.1)"
    },
    "integer buffers averaged": {
        "inside": "for p, e in zip(model.buffers(), ema.buffers()):\n    e.copy_(0.9 * e + 0.1 * p)"
    },
    "state": {
        "inside": "for p, e in zip(model.state_dict().values(), ema.state_dict().values()):\n    e.copy_(0.9 * e + 0.1 * p)"
    },
    "state by key": {
        "inside": "ms = model.state_dict()\nfor k, e in ema.state_dict().items():\n    if e.is_floating_point():\n        e.mul_(0.9).add_(ms[k], alpha=0.1)"
    },
    "named": {
        "inside": "d = dict(model.named_parameters())\nfor n, e in ema.named_parameters():\n    e.data.mul_(0.9).add_(d[n].data, alpha=0.1)"
    },
    "named, some": {
        "inside": "for (n, p), (_, e) in zip(model.named_parameters(), ema.named_parameters()):\n    if 'bias' not in n:\n        e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "some that need gradients": {
        "before": "ema.a.requires_grad_(False)",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    if e.requires_grad:\n        e.data.mul_(0.9).add_(p.data, alpha=0.1)",
    },
    "a rate that changes": {
        "before": "m = 0.5",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(m).add_(p.data, alpha=1 - m)\n    m *= 0.9",
    },
    "a rate of an iterator": {
        "before": "ms = itertools.count(2)",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    m = 1 / next(ms)\n    e.data.mul_(m).add_(p.data, alpha=1 - m)",
    },
    "a rate of a function": {
        "above": "rates = iter(range(2, 999))\ndef m():\n    return 1 / next(rates)",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(m())\n    e.data.add_(p.data, alpha=0.1)",
    },
    "a rate of a property": {
        "above": "class R:\n    n = 1\n    @property\n    def m(self):\n        self.n += 1\n        return 1 / self.n\nr = R()",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(r.m).add_(p.data, alpha=0.1)",
    },
    "a rate of the parameter": {
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=p.numel() / 100)"
    },
    "a rate of another parameter": {
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=ema.a.bias[0].item())"
    },
    "a rate that is a tensor": {
        "before": "m = torch.tensor(0.9)",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(m).add_(p.data, alpha=0.1)",
    },
    "doubles": {
        "before": "ema.double()\nema.forward = lambda x: x",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)",
    },
    "one of doubles": {
        "before": "ema.b.bias.data = ema.b.bias.data.double()\nema.forward = lambda x: x",
        "inside": UPDATE,
    },
    "transposed": {"before": "ema.b.weight.data = ema.b.weight.data.t()", "inside": UPDATE},
    "expanded": {"before": "ema.a.bias.data = torch.zeros(1).expand(4).clone()", "inside": UPDATE},
    "noise": {
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.add_(torch.randn_like(p))"
    },
    "noise scaled": {
        "inside": "for p in ema.parameters():\n    p.data.add_(0.1 * torch.randn(p.shape))"
    },
    "noise in place": {
        "inside": "for p in ema.parameters():\n    p.data.add_(torch.empty_like(p).normal_())"
    },
    "prints": {
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)\n    print(e.sum().item())"
    },
    "counts": {
        "before": "n = 0",
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)\n    n += 1\nprint(n)",
    },
    "last after the loop": {"inside": UPDATE + "\nprint(e.sum().item(), p.shape)"},
    "hook on parameters": {"above": "class P(nn.Parameter):\n    pass", "inside": UPDATE},
    "parameters overridden": {
        "above": "class M(Net):\n    def parameters(self, recurse=True):\n        return iter([self.a.weight])",
        "before": "ema = M()",
        "inside": UPDATE,
    },
    "parameters replaced": {
        "before": "ema.parameters = lambda: iter([ema.a.weight])",
        "inside": UPDATE,
    },
    "named parameters overridden": {
        "above": "class M(Net):\n    def named_parameters(self, *a, **k):\n        yield 'a', self.a.weight",
        "before": "ema = M()",
        "inside": UPDATE,
    },
    "list taken before": {
        "before": "es = list(ema.parameters())\nema.a.weight = nn.Parameter(torch.zeros(4, 4))",
        "inside": "for p, e in zip(model.parameters(), es):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)",
    },
    "generator taken before": {
        "before": "es = ema.parameters()",
        "inside": "for p, e in zip(model.parameters(), es):\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)",
    },
    "break": {
        "inside": "for p, e in zip(model.parameters(), ema.parameters()):\n    if p.dim() == 1:\n        break\n    e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    },
    "in a function": {
        "above": "def update(m, e, k):\n    for p, q in zip(m.parameters(), e.parameters()):\n        q.data.mul_(k).add_(p.data, alpha=1 - k)",
        "inside": "update(model, ema, 0.9)",
    },
    "in a function, itself": {
        "above": "def update(m, e, k):\n    for p, q in zip(m.parameters(), e.parameters()):\n        q.data.mul_(k).add_(p.data, alpha=1 - k)",
        "inside": "update(ema, ema, 0.9)",
    },
    "in a function, both ways": {
        "above": "def update(m, e, k):\n    for p, q in zip(m.parameters(), e.parameters()):\n        q.data.mul_(k).add_(p.data, alpha=1 - k)",
        "inside": "update(model, ema, 0.9)\nupdate(ema, model, 0.99)",
    },
    "clamped": {"inside": "for p in ema.parameters():\n    p.data.clamp_(-0.1, 0.1)"},
    "gradients clamped": {
        "grads": "for p in model.parameters():\n    p.grad.data.clamp_(-0.01, 0.01)"
    },
    "gradients clamped, tied": {
        "init": "self.b.weight = self.a.weight",
        "grads": "for p in model.parameters():\n    p.grad.data.clamp_(-0.01, 0.01)",
    },
    "gradients scaled": {"grads": "for p in model.parameters():\n    p.grad.mul_(0.5)"},
    "gradients scaled, a list twice": {
        "grads": "for p in [*model.parameters(), *model.parameters()]:\n    p.grad.mul_(0.5)"
    },
    "gradients scaled, groups": {
        "grads": "for g in optimizer.param_groups:\n    for p in g['params']:\n        p.grad.mul_(0.5)"
    },
    "gradients by noise": {
        "grads": "for p in model.parameters():\n    p.grad.add_(torch.randn_like(p.grad))"
    },
    "gradients decayed": {
        "grads": "for p in model.parameters():\n    p.grad.add_(p.data, alpha=0.01)"
    },
    "gradients shared": {
        "grads": "model.a.weight.grad = model.b.weight.grad\nfor p in model.parameters():\n    p.grad.mul_(0.5)"
    },
    "gradients of another": {
        "grads": "for p, e in zip(model.parameters(), ema.parameters()):\n    if e.grad is not None:\n        p.grad.add_(e.grad, alpha=0.1)"
    },
    "a step by hand": {
        "grads": "with torch.no_grad():\n    for p in model.parameters():\n        p -= 0.1 * p.grad"
    },
    "a step by hand, sub_": {
        "grads": "for p in model.parameters():\n    p.data.sub_(p.grad.data * 0.1)"
    },
    "a step by hand, add_": {
        "grads": "for p in model.parameters():\n    p.data.add_(p.grad.data, alpha=-0.1)"
    },
    "a step by hand, tied": {
        "init": "self.b.weight = self.a.weight",
        "grads": "for p in model.parameters():\n    p.data.add_(p.grad.data, alpha=-0.1)",
    },
    "a step by hand, tied data": {
        "init": "self.b.weight.data = self.a.weight.data",
        "grads": "for p in model.parameters():\n    p.data.add_(p.grad.data, alpha=-0.1)",
    },
    "a step by hand, decay": {
        "init": "self.b.weight.data = self.a.weight.data",
        "grads": "for p in model.parameters():\n    p.data.mul_(0.9).add_(p.grad.data, alpha=-0.1)",
    },
    "a sum over parameters": {
        "grads": "n = 0.0\nfor p in model.parameters():\n    n += p.grad.norm().item() ** 2\nprint(n ** 0.5)"
    },
}

ADVERSARIES = """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 1)
        ...init

    def forward(self, x):
        h = F.relu(self.a(x))
        ...forward
        return self.b(h)


...above
maker = nn.Linear(4, 4).to(device)
critic = Critic().to(device)
for_maker = torch.optim.SGD(maker.parameters(), lr=0.1)
for_critic = torch.optim.Adam(critic.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=8)
...before
for epoch in range(3):
    for (x,) in loader:
        x = x.to(device)
        noise = torch.randn(8, 4, device=device)
        for_critic.zero_grad()
        made = maker(noise)
        loss_c = F.relu(1 - critic(x)).mean() + F.relu(1 + critic(made.detach())).mean()
        loss_c.backward()
        ...critic
        for_critic.step()
        for_maker.zero_grad()
        ...first
        loss = -critic(maker(noise)).mean()
        ...between
        loss.backward()
        ...inside
        for_maker.step()
        print(repr(loss.item()), repr(loss_c.item()))
        ...last
"""
SEEN: dict[str, str | dict[str, str]] = {
    "plain": "",
    "norm shown": "print(critic.a.weight.grad.norm().item())",
    "norm shown by a loop": "print([p.grad.sum().item() for p in critic.parameters()])",
    "norm by clip": "print(nn.utils.clip_grad_norm_(critic.parameters(), 1.0).item())",
    "norm of both": "both = [*maker.parameters(), *critic.parameters()]\nnn.utils.clip_grad_norm_(both, 0.1)",
    "is it None": "print([p.grad is None for p in critic.parameters()])",
    "by getattr": "print(getattr(critic.a.weight, 'grad').sum().item())",
    "by a function": {
        "above": "def show(m):\n    for p in m.parameters():\n        print(p.grad.sum().item())",
        "inside": "show(critic)",
    },
    "by a map": "print(list(map(operator.attrgetter('grad'), critic.parameters()))[0].sum().item())",
    "by the groups": "print(for_critic.param_groups[0]['params'][0].grad.sum().item())",
    "by a kept list": {
        "before": "ps = list(critic.parameters())",
        "inside": "print(ps[0].grad.sum().item())",
    },
    "by a kept parameter": {
        "before": "w = critic.a.weight",
        "inside": "print(w.grad.sum().item())",
    },
    "by eval": "print(eval('critic.a.weight.grad').sum().item())",
    "by vars": "print(vars()['critic'].a.weight.grad.sum().item())",
    "by a weak reference": {
        "before": "w = weakref.ref(critic.a.weight)",
        "inside": "print(w().grad.sum().item())",
    },
    "later": {"last": "print(critic.a.weight.grad.sum().item())"},
    "later, once an epoch": {
        "last": "if epoch == 2:\n    print(critic.a.weight.grad.sum().item())"
    },
    "at the end": {
        "above": "import atexit\natexit.register(lambda: 0)",
        "last": "kept = critic.a.weight.grad\nprint(kept is None)",
    },
    "taken for later": {
        "inside": "kept = critic.a.weight.grad.clone()",
        "critic": "print(kept.sum().item()) if 'kept' in globals() else None",
    },
    "step on both": "for_critic.step()",
    "step later": {"last": "for_critic.step()"},
    "step by a list": "for o in (for_critic,):\n    o.step()",
    "step by a map": "list(map(torch.optim.Optimizer.step, [])) or [o.step() for o in [for_critic]]",
    "step by a method": {"before": "go = for_critic.step", "inside": "go()"},
    "zero later": {"critic": "for_critic.step()\nfor_critic.zero_grad()"},
    "never cleared": {"before": "for_critic.zero_grad = lambda: None"},
    "cleared by zeros": {
        "before": "old = for_critic.zero_grad\nfor_critic.zero_grad = lambda: old(set_to_none=False)"
    },
    "hook of a parameter": {
        "before": "critic.a.weight.register_hook(lambda g: print(g.sum().item()))"
    },
    "hook that scales": {"before": "critic.a.weight.register_hook(lambda g: g * 0.5)"},
    "hook after it": {
        "before": "critic.a.weight.register_post_accumulate_grad_hook(lambda p: print(p.grad.sum().item()))"
    },
    "hook of the module": {
        "before": "critic.a.register_full_backward_hook(lambda m, i, o: print(o[0].sum().item()))"
    },
    "hook of the forward": {
        "before": "critic.a.register_forward_hook(lambda m, i, o: print(o.requires_grad, m.weight.requires_grad))"
    },
    "asks requires_grad": {"forward": "print(self.a.weight.requires_grad)"},
    "decides by requires_grad": {"forward": "if self.a.weight.requires_grad:\n    h = h * 1.1"},
    "decides by any": {
        "forward": "if any(p.requires_grad for p in self.parameters()):\n    h = h * 1.1"
    },
    "asks by all": {"between": "print(all(p.requires_grad for p in critic.parameters()))"},
    "penalty on weights": {
        "between": "loss = loss + sum(p.pow(2).sum() for p in critic.parameters()) * 0.01"
    },
    "penalty on gradients": {
        "between": "(g,) = torch.autograd.grad(critic(x.requires_grad_()).sum(), x, create_graph=True)\nloss = loss + g.pow(2).mean()"
    },
    "gradients of weights": {
        "between": "gs = torch.autograd.grad(critic(maker(noise)).sum(), list(critic.parameters()))\nprint(gs[0].sum().item())"
    },
    "weights in the loss": {
        "between": "loss = loss + (maker.weight * critic.a.weight[:4]).sum() * 0.01"
    },
    "shared layer": {
        "before": "maker.more = critic.a\nfor_maker = torch.optim.SGD(maker.parameters(), lr=0.1)"
    },
    "shared weight": {
        "before": "critic.a.weight = nn.Parameter(torch.randn(8, 4))\nfor_maker.add_param_group({'params': [critic.a.weight]})"
    },
    "group added": {"before": "for_maker.add_param_group({'params': critic.a.parameters()})"},
    "one optimizer": {
        "before": "for_maker = torch.optim.SGD([*maker.parameters(), *critic.parameters()], lr=0.05)"
    },
    "optimizer by append": {
        "before": "for_maker.param_groups[0]['params'].append(critic.a.weight)"
    },
    "optimizer by extend": {
        "before": "for_maker.param_groups[0]['params'].extend(critic.parameters())"
    },
    "third optimizer": {
        "before": "third = torch.optim.SGD(critic.parameters(), lr=0.01)",
        "inside": "third.step()",
    },
    "update by hand": {
        "inside": "with torch.no_grad():\n    for p in critic.parameters():\n        p -= 0.01 * p.grad"
    },
    "update by foreach": {
        "inside": "ps = [p.data for p in critic.parameters()]\ntorch._foreach_add_(ps, [p.grad for p in critic.parameters()], alpha=-0.01)"
    },
    "update by a function": {
        "above": "def go(m):\n    for p in m.parameters():\n        p.data.add_(p.grad, alpha=-0.01)",
        "inside": "go(critic)",
    },
    "other backward": {
        "inside": "critic(x).mean().backward()\nfor_critic.step()\nfor_critic.zero_grad()"
    },
    "kept output": {
        "between": "kept = critic(maker(noise).detach())",
        "inside": "kept.mean().backward()\nfor_critic.step()",
    },
    "kept output of the first": {"between": "kept = loss", "inside": "pass"},
    "kept score, later": {
        "before": "scores = []",
        "between": "scores.append(critic(x))",
        "last": "if len(scores) == 2:\n    for_critic.zero_grad()\n    scores[-1].mean().backward()\n    scores.clear()",
    },
    "score shown": {"between": "s = critic(x)\nprint(s.requires_grad, s.mean().item())"},
    "copy between": {"between": "twin = copy.deepcopy(critic)\nprint(twin.a.weight.requires_grad)"},
    "copy made": {
        "between": "twin = copy.deepcopy(critic)\ntwin(x).mean().backward()\nprint(twin.a.weight.grad.sum().item())"
    },
    "state saved": {
        "between": "f = io.BytesIO()\ntorch.save(critic, f)\nf.seek(0)\nprint(torch.load(f, weights_only=False).a.weight.requires_grad)"
    },
    "new optimizer between": {
        "between": "fresh = torch.optim.SGD([p for p in critic.parameters() if p.requires_grad], lr=0.01)",
        "last": "for_critic.zero_grad()\ncritic(x).mean().backward()\nfresh.step()",
    },
    "frozen before": {"before": "critic.a.requires_grad_(False)"},
    "frozen in part": {"before": "critic.a.weight.requires_grad = False"},
    "frozen by turns": {"first": "critic.a.requires_grad_(epoch % 2 == 0)"},
    "frozen by setattr": {"before": "setattr(critic.a.weight, 'requires_grad', False)"},
    "frozen by vars": {
        "before": "for p in vars(critic.a)['_parameters'].values():\n    p.requires_grad = False"
    },
    "frozen by a map": {
        "before": "list(map(lambda p: p.requires_grad_(False), critic.a.parameters()))"
    },
    "frozen by methodcaller": {
        "before": "operator.methodcaller('requires_grad_', False)(critic.a)"
    },
    "frozen by apply": {"before": "critic.a.apply(lambda m: m.requires_grad_(False))"},
    "frozen by a partial": {
        "before": "functools.partial(nn.Module.requires_grad_, critic.a, False)()"
    },
    "frozen by eval": {"before": "eval('critic.a.requires_grad_(False)')"},
    "frozen by a class": {"init": "for p in self.a.parameters():\n    p.requires_grad = False"},
    "a buffer parameter": {"init": "self.a.weight.requires_grad_(False)"},
    "accumulated": {"critic": "if epoch % 2:\n    for_critic.step()\n    continue"},
    "several steps": {
        "critic": "for_critic.step()\nfor _ in range(2):\n    for_critic.zero_grad()\n    critic(x).mean().backward()\n    for_critic.step()"
    },
    "exception": {
        "inside": "try:\n    print(critic.a.weight.grad.sum().item())\nexcept AttributeError:\n    print('none')"
    },
    "checkpointed": {
        "forward": "from torch.utils.checkpoint import checkpoint\nh = checkpoint(lambda v: v * self.a.bias, h, use_reentrant=True)"
    },
    "double use": {"between": "loss = loss - critic(x).mean() * 0"},
    "spectral norm": {
        "before": "nn.utils.spectral_norm(critic.a)\nfor_critic = torch.optim.SGD(critic.parameters(), lr=0.1)"
    },
    "weight norm": {
        "before": "nn.utils.parametrizations.weight_norm(critic.a)\nfor_critic = torch.optim.SGD(critic.parameters(), lr=0.1)"
    },
    "gradient in the forward": {
        "forward": "if self.a.weight.grad is not None:\n    h = h + self.a.weight.grad.sum() * 0.01"
    },
    "function": {
        "above": "class R(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, v, w):\n        return v * 1\n    @staticmethod\n    def backward(ctx, g):\n        print(ctx.needs_input_grad)\n        return g, None",
        "forward": "h = R.apply(h, self.a.weight)",
    },
}

CLAIMS = [
    Claim("parameters are not one memory", "foreach-update", AVERAGE, UPDATED),
    Claim("nobody reads these gradients", "frozen-critic", ADVERSARIES, SEEN),
]
