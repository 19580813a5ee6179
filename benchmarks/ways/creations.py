"""Tensors that are made on the device directly are those that were copied there."""

from benchmarks.ways.claim import Claim

STEPS = """
...above
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 3)
        ...init
    def forward(self, x):
        h = self.a(x)
        ...forward
        return self.b(h)
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
...before
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        n = len(x)
        optimizer.zero_grad()
        out = model(x)
        w = torch.ones(3, device=device)
        ...inside
        loss = (F.cross_entropy(out, y, reduction="none").mean() * w.sum())
        loss.backward()
        optimizer.step()
        ...end
        print(repr(loss.item()))
...after
"""
ONES = "t = torch.ones(n)\n"
MADE: dict[str, str | dict[str, str]] = {
    "ones": "w = torch.ones(3).to(device)",
    "ones of an old type": "w = torch.FloatTensor(3).fill_(1).to(device)",
    "old type of a list": "w = torch.FloatTensor([3]).to(device)",
    "old type of a number that is a list": {
        "before": "s = [3, 1]",
        "inside": "w = torch.FloatTensor(s).to(device)",
    },
    "old type of sizes": "w = torch.Tensor(3, 1).zero_().to(device) + 1",
    "old long": "w = torch.LongTensor(3).fill_(1).to(device).float()",
    "old long, of a float": {
        "before": "v = 1.5",
        "inside": "w = torch.LongTensor(3).fill_(int(v)).to(device).float()",
    },
    "old byte": "w = torch.ByteTensor(3).fill_(1).to(device).float()",
    "old byte, wraps": "w = torch.ByteTensor(3).fill_(1).to(device) * 255 + 1\nw = w.float() + 1",
    "old with new": "w = x.new(3).fill_(1)",
    "full of a number": {"before": "v = 2", "inside": "w = torch.full((3,), v).to(device).float()"},
    "full of a bool": "w = torch.full((3,), True).to(device).float()",
    "full of a tensor": "w = torch.full((3,), torch.tensor(2.0)).to(device)",
    "full of a loss": "w = torch.full((3,), out.sum().item()).to(device)",
    "full of nan": "w = torch.full((3,), float('nan')).to(device).nan_to_num(1.0)",
    "full like": "w = torch.full_like(torch.zeros(3), 2.0).to(device)",
    "zeros like of the host": {
        "before": "h = torch.randn(3)",
        "inside": "w = torch.zeros_like(h).to(device) + 1",
    },
    "ones like of the batch": "w = torch.ones_like(x).to(device)",
    "ones like of the loss": "w = torch.ones_like(out.sum()).to(device)",
    "empty, filled": "w = torch.empty(3)\nw.fill_(2)\nw = w.to(device)",
    "empty, by item": "w = torch.empty(3)\nfor k in range(3):\n    w[k] = k\nw = w.to(device)",
    "zeros, by item": "w = torch.zeros(3)\nw[1] = 5\nw = w.to(device)",
    "zeros, by items of the device": "w = torch.zeros(3)\nw[1] = out.detach()[0, 0]\nw = w.to(device)",
    "zeros, by a row of the device": "t = torch.zeros(n, 3)\nt[:, :] = out.detach()\nw = t.to(device)",
    "zeros, by a list": "w = torch.zeros(3)\nw[[0, 1]] = 5\nw = w.to(device)",
    "zeros, by a host mask": "w = torch.zeros(3)\nw[torch.tensor([True, False, True])] = 5\nw = w.to(device)",
    "zeros, by a host index": {
        "before": "ix = torch.tensor([0, 2])",
        "inside": "w = torch.zeros(3)\nw[ix] = 5\nw = w.to(device)",
    },
    "zeros, by a device index": "w = torch.zeros(n, 3)\nw[torch.arange(n), y.cpu()] = 1\nw = w.to(device)",
    "zeros, by numpy": "t = torch.zeros(3)\nt.numpy()[1] = 7\nw = t.to(device)",
    "zeros, numpy kept": "t = torch.zeros(3)\na = t.numpy()\na += 2\nw = t.to(device)",
    "zeros, np add at": "t = torch.zeros(3)\nnp.add.at(t.numpy(), [0, 1], 2)\nw = t.to(device)",
    "zeros, scattered": "t = torch.zeros(n, 3).scatter_(1, y.cpu().view(-1, 1), 1)\nw = t.to(device)",
    "zeros, scattered there": "w = torch.zeros(n, 3).to(device).scatter_(1, y.view(-1, 1), 1)",
    "zeros, scattered of the host's": {
        "before": "hy = torch.randint(0, 3, (8, 1))",
        "inside": "w = torch.zeros(8, 3).scatter_(1, hy, 1).to(device)",
    },
    "read on the host": ONES + "print(t.sum().item())\nw = t.to(device)",
    "read by numpy": ONES + "print(t.numpy().sum())\nw = t.to(device)",
    "read by numpy later": ONES + "w = t.to(device)\nprint(t.numpy().sum())",
    "read by asarray later": ONES + "w = t.to(device)\nprint(np.asarray(t).sum())",
    "read by np.sum later": ONES + "w = t.to(device)\nprint(float(np.sum(t.numpy())))",
    "read by tolist later": ONES + "w = t.to(device)\nprint(t.tolist())",
    "read by print later": ONES + "w = t.to(device)\nprint(t)",
    "printed there": "w = torch.ones(3).to(device)\nprint(w)",
    "printed device": ONES + "w = t.to(device)\nprint(t.device, t.is_cuda)",
    "same name, printed device": "t = torch.ones(3)\nprint(t.device)\nw = t.to(device)",
    "written later": ONES + "w = t.to(device)\nt.zero_()",
    "written between": ONES + "t.add_(1)\nw = t.to(device)",
    "written there": ONES + "w = t.to(device)\nw.zero_().add_(2)\nprint(t.sum().item())",
    "kept on the host": ONES + "kept.append(t)\nw = t.to(device)",
    "kept on the host, read": {
        "inside": ONES + "kept.append(t)\nw = t.to(device)\nw.add_(1)",
        "after": "print(sum(k.sum().item() for k in kept))",
    },
    "kept on the host, numpy": {
        "inside": ONES + "kept.append(t)\nw = t.to(device)",
        "after": "print(sum(k.numpy().sum() for k in kept))",
    },
    "same object": ONES + "w = t.to(device)\nprint(w is t)",
    "same object, dtype": ONES + "w = t.to(device, torch.float32)\nprint(w is t)",
    "leaf": "w = torch.ones(3, requires_grad=True)\nv = w.to(device)\nv.sum().backward()\nprint(w.grad)\nw = v.detach()",
    "leaf later": "t = torch.ones(3).to(device)\nt.requires_grad_()\n(t * 2).sum().backward()\nprint(t.grad.sum().item(), t.is_leaf)",
    "leaf before": "t = torch.ones(3)\nt.requires_grad_()\nv = t.to(device)\n(v * 2).sum().backward()\nprint(t.grad.sum().item(), v.is_leaf)",
    "leaf by attribute": "t = torch.ones(3)\nt.requires_grad = True\nv = t.to(device)\n(v * 2).sum().backward()\nprint(t.grad.sum().item(), v.is_leaf)",
    "leaf by Variable": "t = torch.autograd.Variable(torch.ones(3), requires_grad=True).to(device)\n(t * 2).sum().backward()\nprint(t.is_leaf, t.grad)",
    "leaf by Parameter": "t = nn.Parameter(torch.ones(3)).to(device)\n(t * 2).sum().backward()\nprint(t.is_leaf, t.grad)",
    "parameter of the device": "t = nn.Parameter(torch.ones(3).to(device))\n(t * 2).sum().backward()\nprint(t.is_leaf, t.grad.sum().item())",
    "default dtype": {
        "before": "torch.set_default_dtype(torch.float64)\nmodel.double()\nloader = [(a.double(), b) for a, b in loader]",
        "inside": "w = torch.ones(3).to(device)\nprint(w.dtype)",
    },
    "default dtype, old type": {
        "before": "torch.set_default_dtype(torch.float64)\nmodel.double()\nloader = [(a.double(), b) for a, b in loader]",
        "inside": "w = torch.Tensor(3).fill_(1).to(device)\nprint(w.dtype)",
    },
    "default dtype, float type": {
        "before": "torch.set_default_dtype(torch.float64)\nmodel.double()\nloader = [(a.double(), b) for a, b in loader]",
        "inside": "w = torch.FloatTensor(3).fill_(1).to(device)\nprint(w.dtype)",
    },
    "default device": {
        "before": "torch.set_default_device('cpu')",
        "inside": "w = torch.ones(3).to(device)",
    },
    "default device, context": "with torch.device('cpu'):\n    t = torch.ones(3)\nw = t.to(device)",
    "dtype by to": "w = torch.ones(3).to(device, torch.float64)\nprint(w.dtype)",
    "dtype by keyword": "w = torch.ones(3).to(device=device, dtype=torch.float64)\nprint(w.dtype)",
    "dtype of a tensor": "w = torch.ones(3).to(y)\nprint(w.dtype, w.device)",
    "dtype of a tensor, zeros": "w = torch.zeros(3).to(y) + 1\nprint(w.dtype, w.device)",
    "type as": "w = torch.ones(3).type_as(y)\nprint(w.dtype, w.device)",
    "type as, arange": "w = torch.arange(3).type_as(x)\nprint(w.dtype, w.device)",
    "type as of a half": "w = torch.arange(3).type_as(x.half())\nprint(w.dtype, w.device)",
    "type as, then": "w = torch.ones(3).type_as(x).to(device)\nprint(w.dtype)",
    "cast before": "w = torch.arange(3).float().to(device)",
    "cast after": "w = torch.ones(3).to(device).long().float()",
    "cast after, double": "w = torch.ones(3).to(device).double()\nprint(w.dtype)",
    "cast behind, with dtype": "w = torch.ones(3, dtype=torch.int32).to(device).float()\nprint(w.dtype)",
    "cast behind, zeros like": "w = torch.zeros_like(y).to(device).float() + 1\nprint(w.dtype)",
    "eye": "w = torch.eye(3).to(device)",
    "eye, dtype": "w = torch.eye(3).to(device, torch.float64)\nprint(w.dtype)",
    "eye of a row": "w = torch.eye(3).to(device)[y]",
    "eye of a row, host": "w = torch.eye(3)[y.cpu()].to(device)",
    "eye of a row by the device": "w = torch.eye(3).to(device)[y.to(device)]",
    "arange": "w = torch.arange(3).to(device)",
    "arange of floats": "w = torch.arange(0, 1, 0.3).to(device)",
    "arange of a tensor": "w = torch.arange(int(y.max()) + 1).to(device)",
    "arange with a step": {"before": "s = 0.1", "inside": "w = torch.arange(0, 1, s).to(device)"},
    "arange, old": "w = torch.LongTensor(range(3)).to(device)",
    "range list": "w = torch.tensor(list(range(3))).to(device)",
    "list times": "w = torch.tensor([2] * 3).to(device)",
    "list times, float": "w = torch.tensor([0.1] * 3).to(device)\nprint(w.dtype)",
    "list times a bool": "w = torch.tensor([True] * 3).to(device)\nprint(w.dtype)",
    "list times an item": "w = torch.tensor([out[0, 0].item()] * 3).to(device)",
    "list times, old long": "w = torch.LongTensor([2] * 3).to(device)\nprint(w.dtype)",
    "list times, old float of ints": "w = torch.FloatTensor([2] * 3).to(device)\nprint(w.dtype)",
    "list times, large": "w = torch.tensor([2**40] * 3).to(device)\nprint(w.dtype)",
    "list times, larger than floats": "w = torch.FloatTensor([16777217] * 3).to(device)",
    "list times, negative number": "w = torch.tensor([2] * -1).to(device)\nprint(w.shape, w.dtype)\nw = torch.ones(3, device=device)",
    "list times zero": "w = torch.tensor([2] * (n - 8)).to(device)\nprint(w.shape, w.dtype)\nw = torch.ones(3, device=device)",
    "list of ranges": "w = torch.FloatTensor([range(1, 4)]).to(device)",
    "range that is empty": "w = torch.tensor(range(0)).to(device)\nprint(w.dtype)\nw = torch.ones(3, device=device)",
    "range with a step": "w = torch.LongTensor(range(0, 9, 4)).to(device)",
    "range as floats": "w = torch.FloatTensor(range(3)).to(device)\nprint(w.dtype)",
    "range in a Tensor": "w = torch.Tensor(range(3)).to(device)\nprint(w.dtype)",
    "Tensor of a list": "w = torch.Tensor([1, 2, 3]).to(device)",
    "Tensor of a number": "w = torch.Tensor(3).fill_(1).to(device)",
    "Tensor of a tensor": "w = torch.Tensor(torch.ones(3)).to(device)",
    "tensor of mixed": "w = torch.tensor([1, 2.0, 3]).to(device)\nprint(w.dtype)",
    "tensor of an array": "w = torch.tensor(np.ones(3)).to(device)\nprint(w.dtype)",
    "tensor of np floats": "w = torch.tensor([np.float64(1), np.float64(2)]).to(device)\nprint(w.dtype)",
    "tensor of losses": "w = torch.tensor([out.sum().item(), 1.0]).to(device)",
    "tensor of tensors": "w = torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).to(device)",
    "from numpy of ones": "w = torch.from_numpy(np.ones(3)).to(device)\nprint(w.dtype)",
    "from numpy of ones, float": "w = torch.from_numpy(np.ones(3, dtype='float32')).to(device)\nprint(w.dtype)",
    "from numpy, astype": "w = torch.from_numpy(np.ones(3).astype('float32')).to(device)\nprint(w.dtype)",
    "from numpy, triu": "w = torch.from_numpy(np.triu(np.ones((3, 3)), k=1).astype('uint8')).to(device).float()\nprint(w.dtype)",
    "from numpy, triu compared": "w = (torch.from_numpy(np.triu(np.ones((3, 3)), k=1).astype('uint8')) == 0).to(device).float()",
    "from numpy, kept array": {
        "before": "a = np.ones(3)",
        "inside": "w = torch.from_numpy(a).to(device)\na += 1",
    },
    "as tensor": "w = torch.as_tensor([1.0, 2.0]).to(device)",
    "as tensor of an array": {
        "before": "a = np.ones(3)",
        "inside": "w = torch.as_tensor(a).to(device)\na += 1",
    },
    "old with an array": "w = torch.Tensor(np.ones(3)).to(device)\nprint(w.dtype)",
    "cuda": "w = torch.ones(3).cuda() if device.type == 'cuda' else torch.ones(3)",
    "cuda by a switch": {
        "before": "use_cuda = torch.cuda.is_available()",
        "inside": "w = torch.ones(3)\nif use_cuda:\n    w = w.cuda()",
    },
    "cuda by a switch, long": {
        "before": "use_cuda = torch.cuda.is_available()",
        "inside": "w = torch.ones(3)\nif use_cuda:\n    w = w.cuda()\nelse:\n    w = w + 0",
    },
    "cuda by a switch that changes": {
        "before": "use_cuda = False",
        "inside": "w = torch.ones(3)\nif use_cuda:\n    w = w.cuda()\nprint(w.device)\nuse_cuda = not use_cuda\nw = w.to(device)",
    },
    "cuda by a tensor": "w = torch.ones(3)\nif x.is_cuda:\n    w = w.cuda()",
    "cuda by a model": "w = torch.ones(3)\nif next(model.parameters()).is_cuda:\n    w = w.cuda()",
    "cuda, numbered": {
        "before": "g = 0 if torch.cuda.is_available() else None",
        "inside": "w = torch.ones(3)\nif g is not None:\n    w = w.cuda(g)",
    },
    "cuda, none": {
        "before": "g = None",
        "inside": "w = torch.ones(3)\nif torch.cuda.is_available():\n    w = w.cuda(g)",
    },
    "to the device of a model": "w = torch.ones(3).to(next(model.parameters()).device)",
    "to the device of the batch": "w = torch.ones(3).to(x.device)",
    "to the device of a function": {
        "above": "asked = []\ndef where():\n    asked.append(1)\n    return device",
        "inside": "w = torch.ones(3).to(where())\nprint(len(asked))",
    },
    "to the device of a property": {
        "above": "class C:\n    n = 0\n    @property\n    def device(self):\n        self.n += 1\n        return device\nc = C()",
        "inside": "w = torch.ones(3).to(c.device)\nprint(c.n)",
    },
    "to a device that is set between": {
        "before": "where = 'cpu'",
        "inside": "t = torch.ones(3)\nwhere = device\nw = t.to(where)\nwhere = 'cpu'",
    },
    "to a device that is set between, by a function": {
        "above": "where = torch.device('cpu')\ndef go():\n    global where\n    where = device",
        "inside": "t = torch.ones(3)\ngo()\nw = t.to(where)\nwhere = torch.device('cpu')",
    },
    "to a device of walrus": "w = torch.ones(3).to(d := device)\nprint(d)",
    "to the host": "t = torch.ones(3).to('cpu')\nprint(t.numpy().sum())",
    "to the host's device": {
        "before": "host = torch.device('cpu')",
        "inside": "t = torch.ones(3).to(host)\nprint(t.numpy().sum())",
    },
    "to an index": "w = torch.ones(3).to(0) if torch.cuda.is_available() else torch.ones(3)",
    "to None": "w = torch.ones(3).to(device, None)",
    "non blocking": "w = torch.ones(3).to(device, non_blocking=True)",
    "with copy": "t = torch.ones(3).to(device)\nw = t.to(device, copy=True)\nw.add_(1)\nprint(t.sum().item())",
    "memory format": "t = torch.ones(2, 3, 4, 4).to(device, memory_format=torch.channels_last)\nprint(t.stride())",
    "pinned": "w = torch.ones(3).pin_memory().to(device)",
    "pinned by an argument": "w = torch.ones(3, pin_memory=torch.cuda.is_available()).to(device)",
    "pinned, asked": "t = torch.ones(3).pin_memory()\nprint(t.is_pinned())\nw = t.to(device)",
    "pinned later": "t = torch.ones(3)\nt = t.pin_memory()\nw = t.to(device)",
    "shared memory": "t = torch.ones(3)\nt.share_memory_()\nw = t.to(device)",
    "sparse": "w = torch.eye(3).to_sparse().to(device).to_dense()",
    "sparse, made": "w = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,)).to(device).to_dense()",
    "complex": "w = torch.complex(torch.ones(3), torch.zeros(3)).to(device).real",
    "quantised": "w = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).dequantize().to(device)",
    "subclass": {
        "above": "class T(torch.Tensor):\n    pass",
        "inside": "t = torch.ones(3).as_subclass(T).to(device)\nprint(type(t).__name__)\nw = t.as_subclass(torch.Tensor)",
    },
    "named": "w = torch.ones(3, names=('a',)).to(device).rename(None)",
    "an attribute of the tensor": "t = torch.ones(3)\nt.mark = 1\nw = t.to(device)\nprint(hasattr(w, 'mark'))",
    "out": {"before": "o = torch.empty(3)", "inside": "w = torch.ones(3, out=o).to(device)"},
    "out, read later": {
        "before": "o = torch.empty(3)",
        "inside": "w = torch.ones(3, out=o).to(device)\nw.add_(1)\nprint(o.sum().item())",
    },
    "cat": "w = torch.cat([torch.ones(3), torch.zeros(3)]).to(device)",
    "cat with the batch": "t = torch.cat([torch.ones(n, 4), x.cpu()]).to(device)\nprint(t.sum().item())",
    "cat with the host": {
        "before": "h = torch.randn(3)",
        "inside": "w = torch.cat([torch.ones(3), h]).to(device)",
    },
    "stack": "w = torch.stack([torch.ones(3), torch.zeros(3)]).to(device)",
    "sum of two": "w = (torch.ones(3) + torch.zeros(3)).to(device)",
    "sum with the host": {
        "before": "h = torch.randn(3)",
        "inside": "w = (torch.ones(3) + h).to(device)",
    },
    "sum with a number of the host": {
        "before": "h = torch.tensor(2.0)",
        "inside": "w = (torch.ones(3) + h).to(device)",
    },
    "power": "w = (torch.arange(3).float() ** 2).to(device)",
    "division": "w = (torch.arange(3) / 3).to(device)",
    "compared": "w = (torch.arange(3) > 1).to(device).float()",
    "positions": "pos = torch.arange(n)\npos = pos.unsqueeze(0).expand(2, n)\nw = pos.to(device).float()",
    "positions, expanded, written": "pos = torch.arange(3).repeat(2, 1)\npos[0] = 0\nw = pos.to(device).float()",
    "mask": "m = torch.triu(torch.ones(3, 3), diagonal=1).bool().to(device)\nw = m.float()",
    "mask filled": "m = torch.zeros(3, 3)\nm = m.masked_fill(torch.triu(torch.ones(3, 3), 1).bool(), -1.0).to(device)\nw = m",
    "mask by a function": {
        "above": "def mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = mask(3).to(device)",
    },
    "mask by a function, also on the host": {
        "above": "def mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = mask(3).to(device)\nprint(mask(3).numpy().sum())",
    },
    "mask by a function, by a name": {
        "above": "def mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "before": "f = mask",
        "inside": "w = f(3).to(device)",
    },
    "mask by a function, by a partial": {
        "above": "def mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "before": "f = functools.partial(mask, 3)",
        "inside": "w = mask(3).to(device) + f().to(device)",
    },
    "mask by a function, cached": {
        "above": "@functools.lru_cache\ndef mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = mask(3).to(device)",
    },
    "mask by a function, inspected": {
        "above": "import inspect\ndef mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = mask(3).to(device)\nprint(len(inspect.signature(mask).parameters))",
    },
    "mask by a function with defaults": {
        "above": "def mask(n, k=1):\n    return torch.triu(torch.ones(n, n), diagonal=k)",
        "inside": "w = mask(3, 0).to(device)",
    },
    "mask by a function with keywords": {
        "above": "def mask(n, *, k=1):\n    return torch.triu(torch.ones(n, n), diagonal=k)",
        "inside": "w = mask(3, k=0).to(device)",
    },
    "mask by a function, replaced": {
        "above": "def mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "before": "old = mask\ndef mask(n):\n    return old(n) * 2",
        "inside": "w = mask(3).to(device)",
    },
    "mask by a function, patched": {
        "above": "def mask(n):\n    return torch.triu(torch.ones(n, n), diagonal=1)",
        "before": "globals()['mask'] = lambda n: torch.zeros(n, n)",
        "inside": "w = mask(3).to(device) + 1",
    },
    "mask by a method": {
        "above": "class M:\n    def mask(self, n):\n        return torch.triu(torch.ones(n, n), diagonal=1)",
        "before": "m = M()",
        "inside": "w = m.mask(3).to(device)",
    },
    "mask by a method that is overridden": {
        "above": "class M:\n    def mask(self, n):\n        return torch.ones(n, n)\nclass N(M):\n    def mask(self, n):\n        return super().mask(n) * 2",
        "before": "m = N()",
        "inside": "w = m.mask(3).to(device)",
    },
    "mask by a static method": {
        "above": "class M:\n    @staticmethod\n    def mask(n):\n        return torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = M.mask(3).to(device)",
    },
    "mask by a class method": {
        "above": "class M:\n    @classmethod\n    def mask(cls, n):\n        return torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = M.mask(3).to(device)",
    },
    "mask by numpy": {
        "above": "def mask(n):\n    return torch.from_numpy(np.triu(np.ones((1, n, n)), k=1).astype('uint8'))",
        "inside": "w = mask(3).to(device).float()",
    },
    "mask by numpy, compared": {
        "above": "def mask(n):\n    m = np.triu(np.ones((1, n, n)), k=1).astype('uint8')\n    return torch.from_numpy(m) == 0",
        "inside": "w = mask(3).to(device).float()",
    },
    "mask by numpy, printed": {
        "above": "def mask(n):\n    m = np.triu(np.ones((1, n, n)), k=1)\n    print(m.sum())\n    return torch.from_numpy(m) == 0",
        "inside": "w = mask(3).to(device).float()",
    },
    "mask by a lambda": {
        "above": "mask = lambda n: torch.triu(torch.ones(n, n), diagonal=1)",
        "inside": "w = mask(3).to(device)",
    },
    "mask by a generator": {
        "above": "def masks(n):\n    while True:\n        yield torch.ones(n)",
        "before": "g = masks(3)",
        "inside": "w = next(g).to(device)",
    },
    "mask by a nested function": {
        "inside": "def mask(n):\n    return torch.ones(n)\nw = mask(3).to(device)"
    },
    "mask in a named tuple": {
        "above": "M = collections.namedtuple('M', 'm')\ndef mask(n):\n    return M(torch.ones(n))",
        "inside": "w = mask(3).m.to(device)",
    },
    "helper moves": {
        "above": "def there(t):\n    return t.to(device)",
        "inside": "w = there(torch.ones(3))",
    },
    "helper moves by a switch": {
        "above": "def there(t):\n    if torch.cuda.is_available():\n        t = t.cuda()\n    return t",
        "inside": "w = there(torch.ones(3))",
    },
    "helper moves, reads before": {
        "above": "def there(t):\n    print(t.numpy().sum())\n    return t.to(device)",
        "inside": "w = there(torch.ones(3))",
    },
    "helper moves, keeps the host's": {
        "above": "seen = []\ndef there(t):\n    seen.append(t)\n    return t.to(device)",
        "inside": "w = there(torch.ones(3))\nprint(seen[-1].numpy().sum())",
    },
    "helper moves, in a decorator": {
        "above": "def d(f):\n    def g(t):\n        print(t.numpy().sum())\n        return f(t)\n    return g\n@d\ndef there(t):\n    return t.to(device)",
        "inside": "w = there(torch.ones(3))",
    },
    "helper moves several": {
        "above": "def there(*ts):\n    return [t.to(device) for t in ts]",
        "inside": "w, _ = there(torch.ones(3), torch.zeros(3))",
    },
    "helper moves to an argument": {
        "above": "def there(t, d):\n    return t.to(d)",
        "inside": "w = there(torch.ones(3), device)",
    },
    "helper moves to the host": {
        "above": "def there(t, d):\n    return t.to(d)",
        "inside": "print(there(torch.ones(3), 'cpu').numpy().sum())\nw = there(torch.ones(3), device)",
    },
    "helper makes": {
        "above": "def made(n, d):\n    return torch.ones(n).to(d)",
        "inside": "w = made(3, device)",
    },
    "helper makes on the host, too": {
        "above": "def made(n, d):\n    return torch.ones(n).to(d)",
        "inside": "w = made(3, device)\nprint(made(3, 'cpu').numpy().sum())",
    },
    "helper makes of a tensor": {
        "above": "def made(t):\n    return torch.ones(len(t)).to(t.device)",
        "inside": "w = made(x)\nprint(made(torch.ones(2)).numpy().sum())",
    },
    "helper makes of a tensor's type": {
        "above": "def made(t):\n    return torch.zeros(len(t)).to(t) + 1",
        "inside": "w = made(x)\nprint(made(torch.ones(2).long()).numpy().sum())",
    },
    "index": "w = out[torch.arange(n), y]",
    "index, kept": "ix = torch.arange(n)\nw = out[ix, y]\nprint(ix.numpy().sum())",
    "index of the host's": {
        "before": "h = torch.randn(8, 3)",
        "inside": "w = h[torch.arange(8), 0].to(device)",
    },
    "index of both": {
        "before": "h = torch.randn(8, 3)",
        "inside": "ix = torch.arange(8)\nw = out[ix, 0] + h[ix, 0].to(device)",
    },
    "index of an array": {
        "before": "h = np.ones((8, 3))",
        "inside": "ix = torch.arange(8)\nw = out[ix, 0]\nprint(h[ix, 0].sum())",
    },
    "index of a list": {
        "before": "h = list(range(8))",
        "inside": "ix = torch.arange(8)\nw = out[ix, 0]\nprint(h[ix[3]])",
    },
    "index of the data": "ix = torch.arange(n)\nw = out[ix, 0]\nprint(data.tensors[0][ix].sum().item())",
    "index by an operator": "w = operator.getitem(out, (torch.arange(n), y))",
    "index written": "o = out.detach().clone()\no[torch.arange(n), y] = 0\nw = o",
    "index select": "w = out.index_select(0, torch.arange(n).to(device))",
    "gather": "w = out.gather(1, torch.zeros(n, 1).long().to(device))",
    "permuted": "ix = torch.randperm(n)\nw = out[ix]",
    "permuted, with the host": "ix = torch.randperm(n)\nw = x[ix] \nprint(data.tensors[1][ix].sum().item())",
    "random": "w = torch.rand(3).to(device)",
    "random integers": "w = torch.randint(0, 3, (3,)).to(device)",
    "random, generator": {
        "before": "g = torch.Generator().manual_seed(0)",
        "inside": "w = torch.rand(3, generator=g).to(device)",
    },
    "random in place": "w = torch.empty(3).uniform_().to(device)",
    "random, numpy": "w = torch.from_numpy(np.random.randn(3)).float().to(device)",
    "random, old": "w = torch.FloatTensor(3).normal_().to(device)",
    "drawn beside": "w = torch.bernoulli(torch.ones(3) * 0.5).to(device)",
    "multinomial": "w = torch.multinomial(torch.ones(3), 2).to(device)",
    "shuffled after": "t = torch.ones(3).to(device)\nprint(torch.rand(()).item())",
    "a loop over it": "for v in torch.arange(3).to(device):\n    w = w + v",
    "a loop over the host's": "for v in torch.arange(3):\n    w = w + v",
    "a range by it": "for k in range(int(torch.ones(3).to(device).sum())):\n    w = w + k",
    "as a size": "t = torch.ones(3)\nw = torch.ones(t.shape).to(device)",
    "in a dict": "d = {'w': torch.ones(3)}\nw = d['w'].to(device)",
    "in a dict, moved": "d = {'w': torch.ones(3)}\nd = {k: v.to(device) for k, v in d.items()}\nw = d['w']",
    "in a list, moved": "d = [torch.ones(3), torch.zeros(3)]\nw = [t.to(device) for t in d][0]",
    "in a tuple, moved": "a, b = torch.ones(3), torch.zeros(3)\na, b = a.to(device), b.to(device)\nw = a",
    "in a tuple, swapped": "a, b = torch.ones(3), torch.zeros(3)\na, b = b.to(device), a.to(device)\nw = b",
    "by a condition": "t = torch.ones(3) if i else torch.zeros(3)\nw = t.to(device) + 1",
    "by a condition, moved once": "t = torch.ones(3)\nif i % 2:\n    t = t.to(device)\nprint(t.device)\nw = t.to(device)",
    "by try": "try:\n    w = torch.ones(3).to(device)\nexcept RuntimeError:\n    pass",
    "by walrus": "w = (t := torch.ones(3)).to(device)\nprint(t.device)",
    "by an exec": "exec('w = torch.ones(3).to(device)')",
    "by a default": {
        "above": "def f(t=torch.ones(3)):\n    return t.to(device)",
        "inside": "w = f()",
    },
    "by a chain": "w = torch.ones(3).mul(2).add(1).to(device)",
    "by a chain of writes": "w = torch.ones(3).mul_(2).add_(1).to(device)",
    "by a chain with the host": {
        "before": "h = torch.randn(3)",
        "inside": "w = torch.ones(3).mul_(h).to(device)",
    },
    "by a chain with numpy": "w = torch.ones(3).mul(np.float32(2)).to(device)",
    "by a chain to numpy": "w = torch.from_numpy(torch.ones(3).numpy() * 2).to(device)",
    "by an apply": "w = torch.ones(3).apply_(lambda v: v * 2).to(device)",
    "by a map": "w = torch.ones(3).map_(torch.ones(3), lambda a, b: a + b).to(device)",
    "by a lookup": {
        "before": "e = nn.Embedding(3, 3)",
        "inside": "w = e(torch.arange(3)).detach().to(device)",
    },
    "by a host model": {
        "before": "h = nn.Linear(3, 3)",
        "inside": "w = h(torch.ones(3)).detach().to(device)",
    },
    "by a host model, moved after": {
        "before": "h = nn.Linear(3, 3)",
        "inside": "t = torch.ones(3)\nv = h(t).detach()\nw = t.to(device) + v.to(device)",
    },
    "given to a host model and moved": {
        "before": "h = nn.Linear(3, 3)",
        "inside": "t = torch.ones(3)\nw = t.to(device)\nprint(h(t).sum().item())",
    },
    "pickled": "t = torch.ones(3).to(device)\nprint(len(pickle.dumps(t.cpu())))\nw = t",
    "saved": "t = torch.ones(3).to(device)\nf = io.BytesIO()\ntorch.save(t.cpu(), f)\nf.seek(0)\nw = torch.load(f).to(device)",
    "deep copied": "w = copy.deepcopy(torch.ones(3)).to(device)",
    "cloned": "t = torch.ones(3)\nw = t.clone().to(device)\nw.add_(1)\nprint(t.sum().item())",
    "detached": "t = torch.ones(3)\nw = t.detach().to(device)\nw.add_(1)\nprint(t.sum().item())",
    "of a view": "t = torch.ones(6)\nw = t[:3].to(device)\nw.add_(1)\nprint(t.sum().item())",
    "expanded": "w = torch.ones(1).expand(3).to(device)\nw = w + 1",
    "expanded, written": "w = torch.ones(1).to(device).expand(3).contiguous()\nw.add_(1)",
    "expanded before, written": "w = torch.ones(1, 3).expand(2, 3).to(device)\nprint(w.stride())",
    "versions": "w = torch.ones(3).to(device)\nprint(w._version)",
    "versions, old type": "w = torch.FloatTensor(3).fill_(1).to(device)\nprint(w._version)",
    "strides": "w = torch.zeros(2, 3).t().to(device)\nprint(w.stride(), w.is_contiguous())\nw = w + 1",
    "for the loss": "loss2 = torch.zeros(1).to(device)\nloss2 += out.sum()\nw = loss2",
    "for the sum of losses": "loss2 = torch.zeros(1)\nloss2 = loss2.to(device) + out.sum()\nw = loss2",
    "for the sum of losses on the host": "loss2 = torch.zeros(1)\nloss2 += out.sum().cpu()\nw = loss2.to(device)",
    "for gradients": "g = torch.ones(n, 3).to(device)\nout.backward(g, retain_graph=True)\nmodel.zero_grad()",
    "for gradients of the loss": "out.sum().backward(torch.tensor(2.0).to(device), retain_graph=True)\nmodel.zero_grad()",
    "real and fake labels": "real = torch.ones(n, 1).to(device)\nfake = torch.zeros(n, 1).to(device)\nw = real - fake",
    "labels filled": "l = torch.full((n,), 1.0).to(device)\nl.fill_(0)\nw = l + 1",
    "labels of a type": {
        "before": "Tensor = torch.cuda.FloatTensor if False else torch.FloatTensor",
        "inside": "w = Tensor(n, 1).fill_(1.0).to(device)",
    },
    "labels in Variable": "w = torch.autograd.Variable(torch.ones(n, 1)).to(device)",
    "labels in Variable of the device": "w = torch.autograd.Variable(torch.ones(n, 1).to(device))",
    "state of an rnn": {
        "before": "rnn = nn.LSTM(4, 3).to(device)",
        "inside": "h = (torch.zeros(1, 1, 3).to(device), torch.zeros(1, 1, 3).to(device))\nw, _ = rnn(x[:, None], (h[0].expand(1, 1, 3), h[1]))",
    },
    "state in a method": {
        "above": "class R(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.r = nn.LSTM(4, 3)\n    def start(self, n):\n        return torch.zeros(1, n, 3), torch.zeros(1, n, 3)\n    def forward(self, x, h):\n        return self.r(x, h)",
        "before": "rnn = R().to(device)",
        "inside": "h = tuple(t.to(device) for t in rnn.start(1))\nw, _ = rnn(x[:, None], h)",
    },
    "state in a method, moved in it": {
        "above": "class R(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.r = nn.GRU(4, 3)\n    def start(self, n):\n        p = next(self.parameters())\n        return torch.zeros(1, n, 3).to(p.device)\n    def forward(self, x):\n        return self.r(x, self.start(1))",
        "before": "rnn = R().to(device)",
        "inside": "w, _ = rnn(x[:, None])",
    },
    "in forward": {"forward": "h = h + torch.ones(4).to(h.device)"},
    "in forward, host copy": {
        "forward": "h = h + torch.ones(4).to(h.device)",
        "after": "print(model.cpu()(torch.ones(2, 4)).detach().numpy().sum())",
    },
    "in forward, in half": {
        "forward": "h = h + torch.ones(4).to(h)",
        "after": "print(model.double()(torch.ones(2, 4, device=device).double()).dtype)",
    },
    "in forward, scripted": {
        "before": "class S(nn.Module):\n    def forward(self, x):\n        return x + torch.ones(4).to(x.device)\ns = torch.jit.script(S()) if False else S()",
        "inside": "w = s(x)",
    },
    "in forward, positions": {
        "init": "self.e = nn.Embedding(9, 4)",
        "forward": "h = h + self.e(torch.arange(len(x)).to(x.device))",
    },
    "in forward, positions kept": {
        "init": "self.e = nn.Embedding(9, 4)",
        "forward": "self.p = torch.arange(len(x))\nh = h + self.e(self.p.to(x.device))",
        "end": "print(model.p.numpy().sum())",
    },
    "in forward, under no_grad": {
        "forward": "with torch.no_grad():\n    m = torch.ones(4).to(x.device)\nh = h * m"
    },
    "in forward, in inference": {
        "forward": "m = torch.ones(4).to(x.device)\nh = h * m",
        "end": "with torch.inference_mode():\n    print(model(x).sum().item())",
    },
    "end": {"end": "t = torch.ones(3).to(device)\nprint(t.sum().item())"},
}
TABLE = "self.t = torch.arange(8).float().view(2, 4)"
USED = "h = h + self.t[0].to(x.device)"


def table(**given: str) -> dict[str, str]:
    return {"init": TABLE, "forward": USED, **given}


TABLES: dict[str, str | dict[str, str]] = {
    "plain": table(),
    "rows": table(forward="h = h + self.t[:1].to(x.device)"),
    "by indices": table(
        forward="h = h + self.t[y0].to(x.device)",
        above="y0 = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])",
    ),
    "written in forward": table(forward="self.t += 1\n" + USED),
    "written by a copy": table(forward="t = self.t.to(x.device)\nt += 1\nh = h + t[0]"),
    "written by a row": table(forward="t = self.t[0].to(x.device)\nt[0] += 1\nh = h + t"),
    "written by a function": table(
        above="def f(t):\n    t.add_(1)\n    return t", forward="h = h + f(self.t[0].to(x.device))"
    ),
    "written through a list": table(
        forward="ts = [self.t[0].to(x.device)]\nts[0].add_(1)\nh = h + ts[0]"
    ),
    "written by map": table(
        forward="t = self.t[0].to(x.device)\nlist(map(torch.Tensor.neg_, [t]))\nh = h + t"
    ),
    "written by out": table(
        forward="t = self.t[0].to(x.device)\ntorch.add(t, 1, out=t)\nh = h + t"
    ),
    "written by relu": table(
        forward="t = self.t[0].to(x.device)\nF.relu(t - 0, inplace=True)\nh = h + F.relu_(t)"
    ),
    "written outside": table(end="model.t.add_(1)"),
    "written outside by data": table(end="model.t.data.add_(1)"),
    "set outside": table(end="model.t = model.t + 1"),
    "set outside by setattr": table(end="setattr(model, 't', model.t + 1)"),
    "set outside by vars": table(before="vars(model)['t'] = model.t + 1"),
    "set to None": table(forward="if self.t is not None:\n    h = h + self.t[0].to(x.device)"),
    "set to a list": table(end="model.t = None if False else model.t"),
    "read outside": table(end="print(model.t.sum().item())"),
    "read outside by numpy": table(end="print(model.t.numpy().sum())"),
    "read outside by getattr": table(end="print(getattr(model, 't').numpy().sum())"),
    "read by an array": table(end="print(np.asarray(model.t).sum())"),
    "kept by a name": table(before="t = model.t", end="t.add_(1)"),
    "kept before": table(
        above="T = torch.arange(8).float().view(2, 4)", init="self.t = T", end="T.add_(1)"
    ),
    "kept array": table(
        above="A = np.arange(8, dtype='float32').reshape(2, 4)",
        init="self.t = torch.from_numpy(A)",
        end="A += 1",
    ),
    "shared by two": table(
        before="twin = Net().to(device)\ntwin.t = model.t", end="print(twin(x).sum().item())"
    ),
    "state dict": table(after="print(list(model.state_dict()))"),
    "state dict, counted": table(
        after="print(len(model.state_dict()), sum(v.numel() for v in model.state_dict().values()))"
    ),
    "loaded state": table(after="m = Net()\nprint(m.load_state_dict(model.state_dict()))"),
    "buffers": table(after="print([n for n, _ in model.named_buffers()])"),
    "buffers counted": table(after="print(len(list(model.buffers())))"),
    "vars": table(after="print(sorted(k for k in vars(model) if k == 't'))"),
    "dict": table(after="print('t' in model.__dict__)"),
    "hasattr": table(after="print(hasattr(model, 't'))"),
    "dir": table(after="print('t' in dir(model))"),
    "printed": table(after="print(model)"),
    "pickled": table(
        after="m = pickle.loads(pickle.dumps(model.cpu()))\nprint(m(torch.ones(1, 4)).sum().item())"
    ),
    "copied": table(after="m = copy.deepcopy(model)\nm.t.add_(1)\nprint(model.t.sum().item())"),
    "copied flat": table(after="m = copy.copy(model)\nm.t = m.t + 1\nprint(model.t.sum().item())"),
    "half": table(after="m = model.half()\nprint(m.t.dtype)"),
    "double": table(after="print(model.double()(torch.ones(1, 4, device=device).double()).dtype)"),
    "double of integers": table(
        init="self.t = torch.arange(8).view(2, 4)",
        after="print(model.double()(torch.ones(1, 4, device=device).double()).dtype)",
    ),
    "to a dtype": table(
        after="print(model.to(torch.float64)(torch.ones(1, 4, device=device).double()).dtype)"
    ),
    "moved to the host": table(after="print(model.cpu()(torch.ones(1, 4)).sum().item())"),
    "moved by a loop": table(before="for p in model.parameters():\n    p.data = p.data.to(device)"),
    "never moved": table(before="model.a.to(device)\nmodel.b.to(device)"),
    "moved by parts": table(
        before="model = Net()\nmodel.a.to(device)\nmodel.b.to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    ),
    "moved by apply": table(
        before="model = Net()\nmodel.apply(lambda m: m.to(device) if not list(m.children()) else m)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    ),
    "moved by children": table(
        before="model = Net()\nfor m in model.children():\n    m.to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    ),
    "moved by parameters": table(
        before="model = Net()\nfor p in model.parameters():\n    p.data = p.data.to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    ),
    "in a child, of a child": table(
        above="class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.t = torch.ones(4)\n    def forward(self, x):\n        return x + self.t.to(x.device)",
        init="self.c = C()",
        forward="h = self.c(h)",
    ),
    "in a child in a list": table(
        above="class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.t = torch.ones(4)\n    def forward(self, x):\n        return x + self.t.to(x.device)",
        init="self.c = [C()]",
        forward="h = self.c[0](h)",
    ),
    "in a child in a list, read": table(
        above="class C(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.t = torch.ones(4)\n    def forward(self, x):\n        return x + self.t.to(x.device)",
        init="self.c = [C()]",
        forward="h = self.c[0](h)",
        end="print(model.c[0].t.numpy().sum())",
    ),
    "two of a class": table(before="twin = Net()\nprint(twin(torch.ones(1, 4)).sum().item())"),
    "set before super": table(
        above="class C(nn.Module):\n    def __init__(self):\n        self.__dict__['t'] = torch.ones(4)\n        super().__init__()\n    def forward(self, x):\n        return x + self.t.to(x.device)",
        init="self.c = C()",
        forward="h = self.c(h)",
    ),
    "set after a condition": table(
        init="if True:\n    self.t = torch.arange(8).float().view(2, 4)"
    ),
    "set twice": table(init=TABLE + "\nself.t = self.t * 2"),
    "set in a method": table(
        above="", init="self.fill()\n", forward="h = h + self.t[0].to(x.device)", before=""
    ),
    "a parameter elsewhere": table(
        before="p = nn.Parameter(model.t)\noptimizer = torch.optim.SGD([*model.parameters(), p], lr=0.1)"
    ),
    "a gradient": table(
        init="self.t = torch.ones(2, 4, requires_grad=True)",
        before="optimizer = torch.optim.SGD([*model.parameters(), model.t], lr=0.1)",
    ),
    "a gradient later": table(before="model.t.requires_grad_()", end="print(model.t.grad)"),
    "of the batch": table(init="self.t = data.tensors[0][:2]"),
    "of the batch, written": table(
        init="self.t = data.tensors[0][:2]", end="data.tensors[0].add_(0.1)"
    ),
    "by a property": table(
        above="class P:\n    @property\n    def u(self):\n        return self.t",
        forward="h = h + self.t[0].to(x.device)",
    ),
    "slots": table(forward="h = h + self.t[0].to(x.device)", after="print(type(model.t).__name__)"),
    "index of the host": table(
        init="self.t = torch.tensor([1, 0, 3, 2])", forward="h = h[:, self.t.to(x.device)]"
    ),
    "index of lists": table(
        init="self.t = torch.tensor([1, 0, 3, 2])",
        forward="h = h[:, self.t.to(x.device)]\nself.l = [i for i in self.t]",
        end="print(len(model.l))",
    ),
    "a loop over it": table(forward="for v in self.t:\n    h = h + v.to(x.device)"),
    "a loop over it on the host": table(
        forward="h = h + self.t[0].to(x.device) * sum(float(v) for v in self.t[1])"
    ),
    "with a host tensor": table(
        above="H = torch.ones(4)", forward="h = h + (self.t[0] + H).to(x.device)"
    ),
    "swa": table(
        before="avg = torch.optim.swa_utils.AveragedModel(model)",
        end="avg.update_parameters(model)",
        after="print(avg(torch.ones(1, 4, device=device)).sum().item())",
    ),
    "swa with buffers": table(
        before="avg = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)",
        end="avg.update_parameters(model)",
        after="print(avg(torch.ones(1, 4, device=device)).sum().item())",
    ),
    "functional": table(
        end="print(torch.func.functional_call(model, dict(model.named_parameters()), (x,)).sum().item())"
    ),
    "returned": table(
        above="",
        forward="self.last = self.t.to(x.device)\nh = h + self.last[0]",
        end="model.last.add_(1)",
    ),
    "to a second device by hand": table(end="print(model(x).sum().item(), model.t.device)"),
}
CLAIMS = [
    Claim(
        "what is made is made there",
        "device-creation",
        STEPS,
        MADE,
        cuda=True,
        configs=("copies",),
    ),
    Claim(
        "a table can be a buffer",
        "device-creation",
        STEPS,
        TABLES,
        cuda=True,
        configs=("copies",),
    ),
]
