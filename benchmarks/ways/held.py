"""What outlives a pass in 16 bits: attributes, lists, what hooks get, outputs under two names."""

LAYER = "probe = nn.Linear(32, 2).to(device)"
MATRIX = "w = torch.eye(32, device=device)"
HELD: dict[str, str | dict[str, str]] = {
    # ----------------------------------------------------------------------------- hooks of tensors
    "a tensor hook, numpy": {
        "before": "got = []",
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: got.append(g.cpu().numpy().dtype))",
    },
    "a tensor hook, numpy by a function": {
        "above": "got = []\ndef look(g):\n    got.append(float(g.detach().cpu().numpy().sum()))",
        "forward": "if h.requires_grad:\n    h.register_hook(look)",
    },
    "a tensor hook, kept for a product": {
        "before": f"got = []\n{MATRIX}",
        "forward": "if h.requires_grad:\n    h.register_hook(got.append)",
        "inside": "print((got.pop() @ w).shape)",
    },
    "a tensor hook, a product": {
        "before": MATRIX,
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: print((g @ w).shape))",
    },
    "a tensor hook, a product that returns": {
        "before": MATRIX,
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: g @ w)",
    },
    "a tensor hook, times a mask": {
        "before": "mask = torch.ones(32, device=device)",
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: g * mask)",
    },
    "a tensor hook, times a number": {
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: g * 0.5)"
    },
    "a tensor hook, clamped": {
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: g.clamp(-1, 1))"
    },
    "a tensor hook, a method": {
        "init": "self.w = torch.eye(32, device=device)\nself.g = None",
        "above": "class Base(nn.Module):\n    def keep(self, g):\n        self.g = g",
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: setattr(self, 'g', g))",
        "inside": "print((model.g @ model.w).shape)",
    },
    "a tensor hook, a running sum": {
        "before": "total = torch.zeros(32, device=device)",
        "above": "def add(g):\n    total.copy_(total + g.sum(0))",
        "forward": "if h.requires_grad:\n    h.register_hook(add)",
    },
    "a tensor hook, its norm": {
        "before": "norms = []",
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: norms.append(g.norm().item()))",
    },
    "a tensor hook, its shape": {
        "forward": "if h.requires_grad:\n    h.register_hook(lambda g: print(g.shape))"
    },
    "a hook of a parameter": {
        "before": "got = []\nmodel.a.weight.register_hook(lambda g: got.append(g.cpu().numpy().dtype))",
        "inside": "print(got.pop())",
    },
    "a hook of all parameters": {
        "before": "for p in model.parameters():\n    p.register_hook(lambda g: torch.clamp(g, -1, 1))"
    },
    "a hook of a node": {
        "before": MATRIX,
        "forward": "if h.grad_fn is not None:\n    h.grad_fn.register_prehook(lambda gs: print((gs[0] @ w).shape))",
    },
    # -------------------------------------------------------------------- backward hooks of modules
    "a backward hook, numpy": {
        "before": "model.b.register_full_backward_hook(lambda m, i, o: print(o[0].cpu().numpy().dtype))"
    },
    "a backward hook, kept for a product": {
        "before": f"got = {{}}\n{MATRIX}\ndef keep(m, i, o):\n    got['g'] = i[0]\nmodel.b.register_full_backward_hook(keep)",
        "inside": "print((got['g'] @ w).shape)",
    },
    "a backward hook, a layer": {
        "before": "probe = nn.Linear(16, 2).to(device)\nmodel.b.register_full_backward_hook(lambda m, i, o: print(probe(o[0]).shape))"
    },
    "a backward hook, scaled": {
        "before": "model.b.register_full_backward_hook(lambda m, i, o: (i[0] * 0.5,))"
    },
    "a backward hook, scaled by a tensor": {
        "before": "s = torch.ones(32, device=device)\nmodel.b.register_full_backward_hook(lambda m, i, o: (i[0] * s,))"
    },
    "a backward hook, solved": {
        "before": "model.b.register_full_backward_hook(lambda m, i, o: print(torch.linalg.qr(o[0])[1].shape))"
    },
    "a backward hook, its norm": {
        "before": "norms = []\nmodel.b.register_full_backward_hook(lambda m, i, o: norms.append(o[0].norm().item()))"
    },
    "a backward hook of an object": {
        "above": "class Keep:\n    def __init__(self, m):\n        self.g = None\n        m.register_full_backward_hook(self.keep)\n    def keep(self, m, i, o):\n        self.g = o[0].detach()",
        "before": "probe = nn.Linear(16, 2).to(device)\nk = Keep(model.b)",
        "inside": "print(probe(k.g).shape)",
    },
    "a backward prehook, numpy": {
        "before": "model.b.register_full_backward_pre_hook(lambda m, o: print(o[0].cpu().numpy().dtype))"
    },
    "a backward hook of all, numpy": {
        "before": "torch.nn.modules.module.register_module_full_backward_hook(lambda m, i, o: print(o[0].cpu().numpy().dtype))"
    },
    # ------------------------------------------------------------------------ forward and pre-hooks
    "a pre-hook, numpy": {
        "before": "model.c.register_forward_pre_hook(lambda m, a: print(a[0].detach().cpu().numpy().dtype))"
    },
    "a pre-hook, kept for a layer": {
        "before": "probe = nn.Linear(16, 2).to(device)\ngot = {}\ndef keep(m, a):\n    got['x'] = a[0].detach()\nmodel.c.register_forward_pre_hook(keep)",
        "inside": "print(probe(got['x']).shape)",
    },
    "a pre-hook that scales": {
        "before": "model.c.register_forward_pre_hook(lambda m, a: (a[0] * 0.9,))"
    },
    "a hook, numpy": {
        "before": "model.b.register_forward_hook(lambda m, a, o: print(o.detach().cpu().numpy().dtype))"
    },
    "a hook, solved": {
        "before": "model.b.register_forward_hook(lambda m, a, o: print(torch.linalg.qr(o.detach())[1].shape))"
    },
    "a hook, a product": {
        "before": "w = torch.eye(16, device=device)\nmodel.b.register_forward_hook(lambda m, a, o: print((o.detach() @ w).shape))"
    },
    "a hook, by a mask": {
        "before": "box = torch.zeros(16, 16, device=device)\ndef keep(m, a, o):\n    box[o > 0] = o.detach()[o > 0]\nmodel.b.register_forward_hook(keep)"
    },
    "a hook that returns": {"before": "model.b.register_forward_hook(lambda m, a, o: o * 0.9)"},
    "a hook that returns fp32": {
        "before": "model.b.register_forward_hook(lambda m, a, o: o.float() * 0.9)"
    },
    "a hook, its mean": {
        "before": "means = []\nmodel.b.register_forward_hook(lambda m, a, o: means.append(o.detach().mean().item()))"
    },
    "a hook, its shape": {
        "before": "model.b.register_forward_hook(lambda m, a, o: print(tuple(o.shape)))"
    },
    "a hook of all, numpy": {
        "before": "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: print(o.detach().cpu().numpy().dtype))"
    },
    "a hook, by a partial": {
        "above": "def keep(box, m, a, o):\n    box.append(o.detach())",
        "before": f"{LAYER}\nbox = []\nmodel.a.register_forward_hook(functools.partial(keep, box))",
        "inside": "print(probe(box.pop()).shape)",
    },
    "a hook for each layer": {
        "before": f"{LAYER}\ngot = {{}}\nfor name, m in model.named_modules():\n    if name == 'a':\n        m.register_forward_hook(lambda m, i, o, name=name: got.__setitem__(name, o.detach()))",
        "inside": "print(probe(got['a']).shape)",
    },
    "a hook that is removed": {
        "above": "def look(m, a):\n    got = []\n    handle = m.b.register_forward_hook(lambda m, i, o: got.append(o.detach()))\n    m(a)\n    handle.remove()\n    return got[0].cpu().numpy()",
        "after": "with torch.no_grad():\n    print(look(model, x).dtype)",
    },
    "saliency in an epoch": {
        "above": "class Cam:\n    def __init__(self, m):\n        self.m, self.f, self.g = m, None, None\n        m.b.register_forward_hook(self.keep)\n        m.b.register_full_backward_hook(self.back)\n    def keep(self, m, a, o):\n        self.f = o\n    def back(self, m, i, o):\n        self.g = o[0]\n    def __call__(self, a):\n        self.m.zero_grad()\n        self.m(a)[:, 0].sum().backward()\n        return (self.f * self.g).detach().cpu().numpy()",
        "after": "if epoch == 1:\n    print(Cam(model)(x).dtype)",
    },
    "saliency behind the training": {
        "above": "class Cam:\n    def __init__(self, m):\n        self.m, self.f, self.g = m, None, None\n        m.b.register_forward_hook(self.keep)\n        m.b.register_full_backward_hook(self.back)\n    def keep(self, m, a, o):\n        self.f = o\n    def back(self, m, i, o):\n        self.g = o[0]\n    def __call__(self, a):\n        self.m.zero_grad()\n        self.m(a)[:, 0].sum().backward()\n        return (self.f * self.g).detach().cpu().numpy()",
        "end": "print(Cam(model)(x).dtype)",
    },
    # ----------------------------------------------------------------------------------- attributes
    "an attribute, numpy": {
        "forward": "self.h = h.detach()",
        "inside": "print(model.h.cpu().numpy().dtype)",
    },
    "an attribute, a product": {
        "before": MATRIX,
        "forward": "self.h = h",
        "inside": "print((model.h.detach() @ w).shape)",
    },
    "an attribute, a product with parameters": {
        "forward": "self.h = h",
        "inside": "print((model.h.detach() @ model.b.weight.detach().t()).shape)",
    },
    "an attribute, F.linear": {
        "forward": "self.h = h",
        "inside": "print(F.linear(model.h.detach(), model.b.weight).shape)",
    },
    "an attribute, solved": {
        "forward": "self.h = h",
        "inside": "print(torch.linalg.svd(model.h.detach())[1].shape)",
    },
    "an attribute, under a name": {
        "before": LAYER,
        "forward": "self.h = h",
        "inside": "f = model.h.detach()\nprint(probe(f).shape)",
    },
    "an attribute, by getattr": {
        "before": LAYER,
        "forward": "self.h = h",
        "inside": "print(probe(getattr(model, 'h').detach()).shape)",
    },
    "an attribute, by setattr": {
        "before": LAYER,
        "forward": "setattr(self, 'h', h)",
        "inside": "print(probe(model.h.detach()).shape)",
    },
    "an attribute, by a name that is computed": {
        "before": LAYER,
        "forward": "for n in ('p', 'q'):\n    setattr(self, n, h)",
        "inside": "print(probe(model.q.detach()).shape)",
    },
    "an attribute, by a method": {
        "before": LAYER,
        "init": "self.h = None\nself.last = lambda: self.h",
        "forward": "self.h = h",
        "inside": "print(probe(model.last().detach()).shape)",
    },
    "an attribute, in a function": {
        "above": "def look(m, p):\n    return p(m.h.detach()).shape",
        "before": LAYER,
        "forward": "self.h = h",
        "inside": "print(look(model, probe))",
    },
    "an attribute of another object": {
        "above": "class Log:\n    pass\nlog = Log()",
        "before": LAYER,
        "forward": "log.h = h",
        "inside": "print(probe(log.h.detach()).shape)",
    },
    "a dict of an object": {
        "before": LAYER,
        "init": "self.kept = {}",
        "forward": "self.kept['h'] = h",
        "inside": "print(probe(model.kept['h'].detach()).shape)",
    },
    "a list of an object, stacked": {
        "before": LAYER,
        "init": "self.kept = []",
        "forward": "self.kept.append(h.detach())",
        "inside": "print(probe(torch.cat(model.kept)).shape)\nmodel.kept.clear()",
    },
    "a list of an object, added": {
        "before": LAYER,
        "init": "self.kept = []",
        "forward": "self.kept += [h.detach()]",
        "inside": "for f in model.kept:\n    print(probe(f).shape)\nmodel.kept = []",
    },
    "a tuple": {
        "before": LAYER,
        "forward": "self.kept = (x, h)",
        "inside": "a, b = model.kept\nprint(probe(b.detach()).shape)",
    },
    "a queue": {
        "above": "kept = collections.deque(maxlen=2)",
        "before": LAYER,
        "forward": "kept.append(h.detach())",
        "inside": "print(probe(kept[0]).shape)",
    },
    "a queue of threads": {
        "above": "kept = queue.Queue()",
        "before": LAYER,
        "forward": "kept.put(h.detach())",
        "inside": "print(probe(kept.get()).shape)",
    },
    "a global": {
        "above": "last = None\ndef keep(h):\n    global last\n    last = h",
        "before": LAYER,
        "forward": "keep(h.detach())",
        "inside": "print(probe(last).shape)",
    },
    "a closure": {
        "before": MATRIX,
        "forward": "self.late = lambda: h.detach() @ w",
        "inside": "print(model.late().shape)",
    },
    "a record": {
        "above": "@dataclasses.dataclass\nclass Seen:\n    h: torch.Tensor",
        "before": LAYER,
        "forward": "self.seen = Seen(h)",
        "inside": "print(probe(model.seen.h.detach()).shape)",
    },
    "a namespace": {
        "before": LAYER,
        "forward": "self.seen = types.SimpleNamespace(h=h)",
        "inside": "print(probe(model.seen.h.detach()).shape)",
    },
    "a buffer": {
        "init": "self.register_buffer('m', torch.zeros(32))",
        "forward": "self.m = h.detach().mean(0)",
        "after": "print(model.m.dtype)",
    },
    "a running mean from None": {
        "init": "self.m = None",
        "forward": "m = h.detach().mean(0)\nself.m = m if self.m is None else 0.9 * self.m + 0.1 * m",
        "after": "print(model.m.cpu().numpy().dtype)",
    },
    "a running mean in the buffer": {
        "init": "self.register_buffer('m', torch.zeros(32))",
        "forward": "self.m = 0.9 * self.m + 0.1 * h.detach().mean(0)",
        "after": "print(model.m.dtype, torch.linalg.vector_norm(model.m).shape)",
    },
    "a state that an fp32 pass reads": {
        "init": "self.s = torch.zeros(1, 32, device=device)\nself.r = nn.Linear(32, 32)",
        "forward": "self.s = torch.tanh(self.r(self.s) + h).mean(0, keepdim=True).detach()\nh = h + self.s",
        "after": "net = copy.deepcopy(model)\nprint(net(x).shape, net(x.cpu().to(device)).dtype)",
    },
    "an attribute, its size": {
        "forward": "self.h = h",
        "inside": "print(model.h.shape, model.h.norm().item() > 0)",
    },
    "an attribute, cast": {
        "before": LAYER,
        "forward": "self.h = h",
        "inside": "print(probe(model.h.detach().float()).shape, model.h.float().detach().cpu().numpy().dtype)",
    },
    "an attribute, a part of the loss": {
        "forward": "self.p = h.pow(2).mean()",
        "loss": "loss = loss + 0.01 * model.p",
    },
    "a list, used up within": {
        "forward": "fs = []\nfs.append(h)\nfs.append(h * 2)\nh = torch.stack(fs).mean(0)"
    },
    "a list of the object, used up within": {
        "init": "self.fs = []",
        "forward": "self.fs.clear()\nself.fs.append(h)\nh = sum(self.fs)",
    },
    "an attribute of the object, used up within": {
        "forward": "self.h = h\nh = self.h + 1"
    },
    # ------------------------------------------------------------------------------------ two names
    "changed by the caller": {
        "forward": "self.out = self.c(F.relu(self.b(h)))\nreturn self.out",
        "loss": "out.mul_(30)\nloss = F.cross_entropy(model.out, y)",
    },
    "changed by the caller, by an operator": {
        "forward": "self.out = self.c(F.relu(self.b(h)))\nreturn self.out",
        "loss": "out += 9 * F.one_hot(y, 3)\nloss = F.cross_entropy(model.out, y)",
    },
    "changed by the caller, by a mask": {
        "forward": "self.out = self.c(F.relu(self.b(h)))\nreturn self.out",
        "loss": "out[y == 0] = 9\nloss = F.cross_entropy(model.out, y)",
    },
    "changed by the caller, first kept": {
        "forward": "out = self.c(F.relu(self.b(h)))\nself.out = out\nreturn out",
        "loss": "out.add_(9)\nloss = loss + model.out.pow(2).mean()",
    },
    "changed by the caller, a view": {
        "forward": "out = self.c(F.relu(self.b(h)))\nself.out = out.view(-1)\nreturn out",
        "loss": "out.mul_(30)\nloss = loss + model.out.pow(2).mean()",
    },
    "changed by the caller, kept by a hook": {
        "before": "got = {}\nmodel.c.register_forward_hook(lambda m, a, o: got.update(o=o))",
        "loss": "out.mul_(30)\nloss = loss + got['o'].pow(2).mean()",
    },
    "changed by the caller, kept in a list": {
        "above": "kept = []",
        "forward": "kept.append(self.c(F.relu(self.b(h))))\nreturn kept[-1]",
        "loss": "out.mul_(30)\nloss = loss + kept.pop().pow(2).mean()",
    },
    "changed by its holder": {
        "forward": "self.out = self.c(F.relu(self.b(h)))\nreturn self.out",
        "loss": "model.out.mul_(30)\nloss = loss + (out - 1).pow(2).mean()",
    },
    "changed, and nobody else has it": {"loss": "out.mul_(30)\nloss = F.cross_entropy(out, y)"},
    "changed by a function": {
        "above": "def halve(t):\n    t *= 30",
        "forward": "self.out = self.c(F.relu(self.b(h)))\nreturn self.out",
        "loss": "halve(out)\nloss = F.cross_entropy(model.out, y) + (out - 1).pow(2).mean()",
    },
}
