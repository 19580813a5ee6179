"""What a pass in 16 bits leaves behind: attributes, lists, what hooks get, outputs that something
else holds. Refused where fp32 code, NumPy or another type of gradient would meet it.
"""

from __future__ import annotations

import pytest

from tests.amp import HEAD, LOOP, amp, close, run, script, trained

LOSS = "loss = criterion(model(x), y)"
RETURN = "return self.b(torch.relu(self.a(x)))"
PROBE = "probe = nn.Linear(32, 2).to(device)\nw = torch.eye(32, device=device)\n"
BODY = "h = torch.relu(self.a(x))\n        {}\n        return self.b(h)"


def text(forward: str = "", before: str = "", loss: str = "", inside: str = "", end: str = "") -> str:
    """A training with lines in the forward pass, behind the model, in the loss, in the loop, at the
    end.
    """
    head = HEAD.replace(RETURN, BODY.format(forward.replace("\n", "\n        ")))
    assert head != HEAD
    loop = LOOP
    if loss:
        lines = f"out = model(x)\n{loss}".replace("\n", "\n    ")
        loop = loop.replace(LOSS, lines)
    if inside:
        loop += "    " + inside.replace("\n", "\n    ") + "\n"
    return script(loop, head + PROBE + before + "\n") + end + "\n"


GRAD = "if h.requires_grad:\n    h.register_hook({})"
KEEP = "got = {}\ndef keep(m, a, o):\n    got['h'] = o.detach()\n"

# What raises, or trains otherwise, in 16 bits.
HARMED: dict[str, dict[str, str]] = {
    # ------------------------------------------------------------------------ hooks of gradients
    "NumPy in a hook of a tensor": {
        "forward": GRAD.format("lambda g: print(g.cpu().numpy().sum())")
    },
    "NumPy in a function": {
        "before": "def look(g):\n    print(g.cpu().numpy().sum())",
        "forward": GRAD.format("look"),
    },
    "a product in a hook of a tensor": {
        "forward": GRAD.format("lambda g: print((g @ w).shape)")
    },
    "another type": {"forward": GRAD.format("lambda g: g * w[0]")},
    "kept by a list": {
        "before": "got = []",
        "forward": GRAD.format("got.append"),
        "inside": "print((got.pop() @ w).shape)",
    },
    "kept by a lambda": {
        "before": "got = []",
        "forward": GRAD.format("lambda g: got.append(g)"),
        "inside": "print((got.pop() @ w).shape)",
    },
    "NumPy in a backward hook": {
        "before": "model.b.register_full_backward_hook(lambda m, i, o: print(i[0].cpu().numpy().sum()))"
    },
    "a layer in a backward hook": {
        "before": "model.b.register_full_backward_hook(lambda m, i, o: print(probe(i[0]).shape))"
    },
    "another type of a backward hook": {
        "before": "model.b.register_full_backward_hook(lambda m, i, o: (i[0] * w[0],))"
    },
    "kept by an object": {
        "before": "class Keep:\n    def __init__(self, m):\n        m.register_full_backward_hook(self.hook)\n"
        "    def hook(self, m, i, o):\n        self.g = i[0]\nkeep = Keep(model.b)",
        "inside": "print(probe(keep.g).shape)",
    },
    # ----------------------------------------------------------------------------- hooks of passes
    "NumPy in a pre-hook": {
        "before": "model.b.register_forward_pre_hook(lambda m, a: print(a[0].detach().cpu().numpy().sum()))"
    },
    "NumPy in a hook": {
        "before": "model.a.register_forward_hook(lambda m, a, o: print(o.detach().cpu().numpy().sum()))"
    },
    "rows by a mask": {
        "before": "box = torch.zeros(16, 32, device=device)\ndef keep(m, a, o):\n"
        "    box[o > 0] = o.detach()[o > 0]\nmodel.a.register_forward_hook(keep)"
    },
    "kept for a layer": {
        "before": f"{KEEP}model.a.register_forward_hook(keep)",
        "inside": "print(probe(got['h']).shape)",
    },
    "kept under names": {
        "before": "got = {}\ndef keeper(n):\n    def keep(m, a, o):\n        got[n] = o.detach()\n    return keep\n"
        "for name, part in model.named_children():\n    part.register_forward_hook(keeper(name))",
        "inside": "print(probe(got['a']).shape)",
    },
    "kept by a partial": {
        "before": "from functools import partial\ngot = []\ndef keep(box, m, a, o):\n    box.append(o.detach())\n"
        "model.a.register_forward_hook(partial(keep, got))",
        "inside": "print(probe(got.pop()).shape)",
    },
    "set by another name": {
        "before": f"{KEEP}put = model.a.register_forward_hook\nput(keep)",
        "inside": "print(probe(got['h']).shape)",
    },
    "not always removed": {
        "before": f"{KEEP}def look(x, often):\n    handle = model.a.register_forward_hook(keep)\n    model(x)\n"
        "    if often:\n        return\n    handle.remove()\nlook(X[0].to(device), True)",
        "inside": "print(probe(got['h']).shape)",
    },
    # ---------------------------------------------------------------------------------- attributes
    "NumPy": {"forward": "self.h = h.detach()", "inside": "print(model.h.cpu().numpy().sum())"},
    "a product": {"forward": "self.h = h", "inside": "print((model.h.detach() @ w).shape)"},
    "a layer": {"forward": "self.h = h", "inside": "f = model.h.detach()\nprint(probe(f).shape)"},
    "linear algebra": {
        "forward": "self.h = h",
        "inside": "print(torch.linalg.svdvals(model.h.detach()).shape)",
    },
    "a function": {
        "before": "def look(net):\n    return probe(net.h.detach())",
        "forward": "self.h = h",
        "inside": "print(look(model).shape)",
    },
    "getattr": {"forward": "self.h = h", "inside": "print(probe(getattr(model, 'h')).shape)"},
    "setattr": {"forward": "setattr(self, 'h', h)", "inside": "print(probe(model.h).shape)"},
    "names that are computed": {
        "forward": "for n in 'pq':\n    setattr(self, n, h)",
        "inside": "print(probe(model.q).shape)",
    },
    "a tuple": {
        "forward": "self.kept = (x, h)",
        "inside": "x1, h1 = model.kept\nprint(probe(h1).shape)",
    },
    "a list": {
        "before": "model.kept = []",
        "forward": "self.kept.append(h.detach())",
        "inside": "print(probe(torch.cat(model.kept)).shape)",
    },
    "a global list": {
        "before": "KEPT = []",
        "forward": "KEPT.append(h.detach())",
        "inside": "for f in KEPT:\n    print(probe(f).shape)",
    },
    "a global variable": {
        "before": "last = None\ndef keep(h):\n    global last\n    last = h",
        "forward": "keep(h.detach())",
        "inside": "print(probe(last).shape)",
    },
    "a closure": {"forward": "self.late = lambda: h.detach() @ w", "inside": "print(model.late().shape)"},
    "a list by another name": {
        "before": "model.kept = []",
        "forward": "kept = self.kept\nkept.append(h.detach())",
        "inside": "print(probe(model.kept[-1]).shape)",
    },
    "the dict of an object": {
        "forward": "self.__dict__['h'] = h.detach()",
        "inside": "print(probe(model.h).shape)",
    },
    "names that are read by a text": {
        "forward": "self.h = h.detach()",
        "inside": "for name in ['h']:\n    print(probe(getattr(model, name)).shape)",
    },
    "a sum that begins with a number": {
        "before": "model.t = 0",
        "forward": "self.t = self.t + h.detach()",
        "inside": "print(probe(model.t).shape)",
    },
    "a copy of the model": {
        "before": "import copy",
        "forward": "self.h = h.detach()",
        "end": "print(copy.deepcopy(model).h.cpu().numpy().sum())",
    },
    "another object": {
        "before": "class Log:\n    pass\nlog = Log()",
        "forward": "log.h = h.detach()",
        "inside": "print(probe(log.h).shape)",
    },
    "a state that a pass in fp32 takes up": {
        "before": "model.s = torch.zeros(1, 32, device=device)\nmodel.r = nn.Linear(32, 32).to(device)",
        "forward": "self.s = torch.tanh(self.r(self.s) + h).mean(0, keepdim=True).detach()\nh = h + self.s",
        "end": "print(model(X[0].to(device)).shape)",
    },
}


@pytest.mark.parametrize("kind", HARMED)
def test_what_fp32_code_would_find(kind: str) -> None:
    before = text(**HARMED[kind])
    done = amp(before, rules="autocast", target="cpu")
    assert not done.fixes and done.refusals
    assert "16" in done.refusals or "type" in done.refusals, done.refusals
    run(before)
    block = 'with torch.autocast("cpu", dtype=torch.bfloat16):\n        loss = criterion(model(x), y)'
    with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
        run(before.replace(LOSS, block))


FINE: dict[str, dict[str, str]] = {
    "norms of gradients": {
        "before": "norms = []",
        "forward": GRAD.format("lambda g: norms.append(g.norm().item())"),
    },
    "smaller gradients": {"forward": GRAD.format("lambda g: g * 0.5")},
    "smaller gradients by a setting": {
        "before": "alpha = 0.5",
        "forward": GRAD.format("lambda g: g.clamp(-1, 1) * -alpha * -1"),
    },
    "smaller gradients by an attribute": {
        "before": "model.alpha = 0.5",
        "forward": GRAD.format("lambda g: -self.alpha * -g"),
    },
    "a mask in the type of the gradient": {"forward": GRAD.format("lambda g: (g.float() * w[0]).to(g.dtype)")},
    "shapes": {"forward": GRAD.format("lambda g: print(g.shape)")},
    "gradients of parameters": {
        "before": "for p in model.parameters():\n    p.register_hook(lambda g: print(g.cpu().numpy().sum()))"
    },
    "norms in a backward hook": {
        "before": "norms = {}\ndef note(m, i, o):\n    norms['b'] = o[0].norm().item()\n"
        "model.b.register_full_backward_hook(note)"
    },
    "means in a hook": {
        "before": "means = []\nmodel.a.register_forward_hook(lambda m, a, o: means.append(o.detach().mean().item()))"
    },
    "fp32 of a hook": {
        "before": "got = {}\ndef keep(m, a, o):\n    got['h'] = o.detach().float()\nmodel.a.register_forward_hook(keep)",
        "inside": "print(probe(got['h']).shape)",
    },
    "another output by a hook": {"before": "model.a.register_forward_hook(lambda m, a, o: o * 0.9)"},
    "a hook that is removed": {
        "before": f"{KEEP}def look(x):\n    handle = model.a.register_forward_hook(keep)\n    with torch.no_grad():\n"
        "        model(x)\n    handle.remove()\n    return got['h'].cpu().numpy()",
        "end": "print(look(X[0].to(device)).sum())",
    },
    "features of an evaluation": {
        "before": f"{KEEP}def look(x):\n    handle = model.a.register_forward_hook(keep)\n    try:\n        model(x)\n"
        "    finally:\n        handle.remove()\n    return got['h'].cpu().numpy()",
        "end": "print(look(X[0].to(device)).sum())",
    },
    "saliency when training is over": {
        "before": "class Cam:\n    def __init__(self, net):\n        self.net = net\n"
        "        net.b.register_forward_hook(self.keep)\n        net.b.register_full_backward_hook(self.back)\n"
        "    def keep(self, m, a, o):\n        self.f = o\n    def back(self, m, i, o):\n        self.g = o[0]\n"
        "    def __call__(self, x):\n        self.net(x)[:, 0].sum().backward()\n"
        "        return (self.f * self.g).detach().cpu().numpy()",
        "end": "print(Cam(model)(X[0].to(device)).shape)",
    },
    "an attribute that nobody reads": {"forward": "self.h = h"},
    "sizes and norms": {
        "forward": "self.h = h",
        "inside": "print(model.h.shape, model.h.norm().item() > 0)",
    },
    "an attribute in fp32": {"forward": "self.h = h.detach().float()", "inside": "print(probe(model.h).shape)"},
    "fp32 of an attribute": {"forward": "self.h = h", "inside": "print(probe(model.h.float()).shape)"},
    "a penalty within the block": {
        "forward": "self.p = h.pow(2).mean()",
        "loss": "loss = criterion(out, y) + 0.01 * model.p",
    },
    "a list that the pass uses up": {
        "before": "model.fs = []",
        "forward": "self.fs.clear()\nself.fs.append(h)\nh = sum(self.fs)",
    },
    "a mean that stays fp32": {
        "before": "model.register_buffer('m', torch.zeros(32, device=device))",
        "forward": "self.m = 0.9 * self.m + 0.1 * h.detach().mean(0)",
        "end": "print(model.m.cpu().numpy().sum())",
    },
}


@pytest.mark.parametrize("kind", FINE)
def test_what_nobody_minds(kind: str) -> None:
    before = text(**FINE[kind])
    done = amp(before, rules="autocast", target="cpu")
    assert "with torch.autocast(" in done.text, done.refusals
    assert close(trained(before)["losses"], trained(done.text)["losses"])


def test_weights_of_attention_are_fp32_anyway() -> None:
    """On CUDA, what a softmax gives; on a CPU it is as its input."""
    before = text(forward="self.att = torch.softmax(h, 1)", inside="print(model.att.detach().cpu().numpy().sum())")
    assert amp(before, rules="autocast").fixes
    assert not amp(before, rules="autocast", target="cpu").fixes


def test_a_buffer_is_saved_as_it_was() -> None:
    buffer = "model.register_buffer('m', torch.zeros(32, device=device))"
    before = text(forward="self.m = h.detach().mean(0)", before=buffer)
    done = amp(before, rules="autocast", target="cpu")
    assert not done.fixes and "is a buffer, and would be saved in 16 bits" in done.refusals
    assert amp(before.replace(".mean(0)", ".mean(0).float()"), rules="autocast", target="cpu").fixes


CAM = """
def saliency(x):
    found, grads = [], []
    handles = [model.b.register_forward_hook(lambda m, a, o: found.append(o))]
    handles.append(model.b.register_full_backward_hook(lambda m, i, o: grads.append(o[0])))
    model(x)[:, 0].sum().backward()
    for handle in handles:
        handle.remove()
    return (found[0] * grads[0]).detach().cpu().numpy()
"""


def test_gradients_that_are_only_looked_at() -> None:
    """Such a pass stays in fp32, and training beside it does not stay with it."""
    loop = "\nfor epoch in range(2):" + LOOP.replace("\n", "\n    ").rstrip() + "\n    print(saliency(X[0]).sum())\n"
    before = HEAD + CAM + loop
    done = amp(before, rules="autocast", target="cpu")
    assert done.text.count("with torch.autocast(") == 1 and "    model(x)[:, 0].sum().backward()" in done.text
    assert close(trained(before)["losses"], trained(done.text)["losses"])


OUT = "self.out = self.b(h)\nreturn self.out"
HELD = {
    "in place": {"forward": OUT, "loss": "out.mul_(30)\nloss = criterion(model.out, y)"},
    "by a mask": {"forward": OUT, "loss": "out[y == 0] = 9\nloss = criterion(model.out, y)"},
    "a view": {
        "forward": "out = self.b(h)\nself.out = out.view(-1, 4)\nreturn out",
        "loss": "out.add_(9 * F.one_hot(y, 4))\nloss = criterion(model.out, y)",
    },
    "by its holder": {
        "forward": OUT,
        "loss": "model.out.mul_(30)\nloss = criterion(out, y) + (out - 1).pow(2).mean()",
    },
    "by a function": {
        "before": "def more(t):\n    t *= 30",
        "forward": OUT,
        "loss": "more(out)\nloss = criterion(model.out, y) + (out - 1).pow(2).mean()",
    },
    "in a list": {
        "before": "kept = []",
        "forward": "kept.append(self.b(h))\nreturn kept[-1]",
        "loss": "out.mul_(30)\nloss = criterion(kept.pop(), y)",
    },
    "by a lambda": {
        "forward": "out = self.b(h)\nself.look = lambda: out\nreturn out",
        "loss": "out.mul_(30)\nloss = criterion(model.look(), y)",
    },
    "by setattr": {
        "forward": "out = self.b(h)\nsetattr(self, 'out', out)\nreturn out",
        "loss": "out.mul_(30)\nloss = criterion(model.out, y)",
    },
    "by a helper": {
        "before": "from types import SimpleNamespace\nbox = SimpleNamespace()\ndef note(t):\n    box.rows = [t]\n    return t",
        "forward": "return note(self.b(h))",
        "loss": "out.mul_(30)\nloss = criterion(box.rows[0], y)",
    },
    "another name": {
        "forward": OUT,
        "loss": "rows = [out]\nfor row in rows:\n    row.mul_(30)\nloss = criterion(model.out, y)",
    },
    "by a hook": {
        "before": f"{KEEP.replace('.detach()', '')}model.b.register_forward_hook(keep)",
        "loss": "out.mul_(30)\nloss = criterion(got['h'], y)",
    },
}


@pytest.mark.parametrize("kind", HELD)
def test_an_output_that_is_changed_while_something_else_holds_it(kind: str) -> None:
    """``model(x).float()`` is another tensor than the one that the model has kept."""
    before = text(**HELD[kind])
    done = amp(before, rules="autocast", target="cpu")
    assert not done.fixes and "in place while something else holds it" in done.refusals
    parted = before.replace("out = model(x)", "out = model(x) + 0")
    assert not close(trained(before)["losses"], trained(parted)["losses"])


def test_an_output_that_is_changed_and_nobody_else_holds() -> None:
    before = text(loss="out.mul_(30)\nloss = criterion(out, y)")
    done = amp(before, rules="autocast", target="cpu")
    assert "out = model(x).float()" in done.lines
    assert close(trained(before)["losses"], trained(done.text)["losses"], 0.1)
