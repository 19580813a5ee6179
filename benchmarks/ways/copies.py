"""Copies to the device that nobody waits for, and casts behind them."""

from benchmarks.ways.claim import Claim

COPIES = """
class Data(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(4, generator=g), torch.randint(0, 3, (), generator=g)
...above
data = Data()
loader = DataLoader(data, batch_size=8, pin_memory=True)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
...before
for epoch in range(2):
    ...epoch
    for i, (x, y) in enumerate(loader):
        ...first
        bx, by = x.to(device), y.to(device)
        ...inside
        optimizer.zero_grad()
        loss = F.cross_entropy(model(bx), by)
        loss.backward()
        optimizer.step()
        ...end
        print(repr(loss.item()))
    ...after
"""


def inside(**ways: str) -> dict[str, str | dict[str, str]]:
    return {name.replace("_", " ").strip(): text for name, text in ways.items()}


WRITTEN: dict[str, str | dict[str, str]] = {
    **inside(
        method="x.neg_()",
        at_the_end="...",
        augmented="x *= -1",
        item="x[0] = 3.0",
        slice_="x[:, 1] = 0",
        mask="x[x > 0] = 0",
        by_class="torch.Tensor.neg_(x)",
        imul="x.__imul__(-1)",
        setitem="x.__setitem__(0, 3.0)",
        operator_imul="operator.imul(x, -1)",
        operator_setitem="operator.setitem(x, 0, 3.0)",
        methodcaller="operator.methodcaller('neg_')(x)",
        getattr_="getattr(x, 'neg_')()",
        bound="f = x.neg_\nf()",
        bound_in_a_list="for f in [x.neg_]:\n    f()",
        data_="x.data.neg_()",
        detached="x.detach().neg_()",
        view="x.view(-1).neg_()",
        view_kept="v = x.view(-1)\nv.neg_()",
        row="r = x[0]\nr.neg_()",
        row_augmented="r = x[0]\nr += 1",
        rows="for r in x:\n    r.neg_()",
        transposed="x.t().neg_()",
        chunk="a, b = x.chunk(2)\na.neg_()",
        split="for a in x.split(2):\n    a.zero_()",
        unbind="for a in x.unbind():\n    a.zero_()",
        expand="x[:1].expand(1, 4).contiguous().neg_()\nx[:1].squeeze(0).neg_()",
        narrow="x.narrow(0, 0, 1).zero_()",
        select="x.select(0, 0).zero_()",
        diagonal="x.diagonal().zero_()",
        reshape="x.reshape(-1).zero_()",
        flatten="x.flatten().zero_()",
        as_strided="x.as_strided((1,), (1,)).zero_()",
        unsqueeze="x.unsqueeze(0).zero_()",
        to_host="x.to('cpu').zero_()",
        cpu="x.cpu().zero_()",
        float_="x.float().zero_()",
        to_dtype="x.to(torch.float32).zero_()",
        contiguous="x.contiguous().zero_()",
        type_="x.type(torch.float32).zero_()",
        type_as="x.type_as(torch.zeros(1)).zero_()",
        as_tensor="torch.as_tensor(x).zero_()",
        asarray="torch.asarray(x).zero_()",
        numpy="x.numpy()[0] = 3",
        numpy_kept="a = x.numpy()\na[:] = 0",
        numpy_augmented="a = x.numpy()\na *= 2",
        numpy_row="a = x.numpy()[0]\na += 1",
        np_asarray="a = np.asarray(x)\na[:] = 0",
        np_array_shared="a = np.array(x, copy=False)\na[:] = 0",
        np_copyto="np.copyto(x.numpy(), 0)",
        np_out="np.multiply(x.numpy(), 2, out=x.numpy())",
        np_out_by_place="np.multiply(x.numpy(), 2, x.numpy())",
        np_fill="x.numpy().fill(0)",
        np_sort="x.numpy().sort()",
        np_shuffle="np.random.shuffle(x.numpy())",
        np_add_at="np.add.at(x.numpy(), 0, 1)",
        np_put="np.put(x.numpy(), 0, 1)",
        memoryview_="memoryview(x.numpy())[0, 0] = 5.0",
        dlpack="torch.from_dlpack(x).zero_()",
        dlpack_utils="torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).zero_()",
        storage="x.untyped_storage().fill_(0)",
        ctypes_="ctypes.memset(x.data_ptr(), 0, 4)",
        set_="torch.tensor([]).set_(x).zero_()",
        from_numpy="torch.from_numpy(x.numpy()).zero_()",
        out="torch.add(x, 1, out=x)",
        out_other="torch.add(torch.zeros(8, 4), 1, out=x)",
        copy_="x.copy_(torch.zeros(8, 4))",
        fill_diagonal="x.fill_diagonal_(0)",
        scatter="x.scatter_(0, torch.zeros(1, 4, dtype=torch.long), 1.0)",
        index_fill="x.index_fill_(0, torch.tensor([0]), 1.0)",
        masked_fill="x.masked_fill_(x > 0, 0)",
        uniform="x.uniform_()",
        clamp="x.clamp_(0, 1)",
        torch_clamp="torch.clamp_(x, 0, 1)",
        relu="F.relu_(x)",
        relu_inplace="F.relu(x, inplace=True)",
        module_inplace="nn.ReLU(inplace=True)(x)",
        dropout_inplace="F.dropout(x, 0.5, inplace=True)",
        init="nn.init.zeros_(x)",
        init_normal="nn.init.normal_(x)",
        foreach="torch._foreach_neg_([x])",
        foreach_both="torch._foreach_mul_([x], 2)",
        swap="x, z = torch.zeros(8, 4), x\nz.zero_()",
        second_name="z = x\nz.zero_()",
        tuple_="z = (x, y)\nz[0].zero_()",
        list_="z = [x]\nz[0].zero_()",
        list_comprehension="[t.zero_() for t in (x, y)]",
        dict_="z = {'x': x}\nz['x'].zero_()",
        dict_values="for t in {'x': x}.values():\n    t.zero_()",
        namespace="z = types.SimpleNamespace(x=x)\nz.x.zero_()",
        lambda_="(lambda t: t.zero_())(x)",
        map_="list(map(torch.Tensor.zero_, [x]))",
        partial="functools.partial(torch.Tensor.mul_, x)(0)",
        reduce="functools.reduce(torch.Tensor.mul_, [x, 0])",
        eval_="eval('x.zero_()')",
        exec_="exec('x.zero_()')",
        globals_="globals()['x'].zero_()",
        vars_="vars()['x'].zero_()",
        main="import __main__\n__main__.x.zero_()",
        walrus="(z := x).zero_()",
        ternary="(x if i else x).zero_()",
        or_="(None or x).zero_()",
        with_="with torch.no_grad():\n    x.zero_()",
        try_="try:\n    x.zero_()\nfinally:\n    pass",
        condition="if i % 2:\n    x.zero_()",
        match="match x:\n    case t:\n        t.zero_()",
        thread="t = threading.Thread(target=x.zero_)\nt.start()\nt.join()",
        weakref_="weakref.ref(x)().zero_()",
        gc_="[o.zero_() for o in gc.get_objects() if isinstance(o, torch.Tensor) and o is x]",
        targets="y.fill_(0)",
        targets_augmented="y += 0\ny %= 2",
        targets_item="y[0] = 0",
        targets_numpy="y.numpy()[:] = 0",
        resized="x.resize_(2, 4)\nx.zero_()",
        unsafe_chunk="torch.unsafe_chunk(x, 2)[0].zero_()",
        atleast="torch.atleast_2d(x).zero_()",
        broadcast="torch.broadcast_tensors(x, x)[0][0].zero_()",
        squeeze="torch.squeeze(x).zero_()",
        real="torch.real(x).zero_()",
        conj="torch.conj(x).resolve_conj().zero_()",
        positive="(+x).zero_()",
        tensor_split="x.tensor_split(2)[0].zero_()",
        unfold="x.unfold(0, 1, 1).zero_()",
        movedim="x.movedim(0, 1).zero_()",
        view_dtype="x.view(torch.int32).zero_()",
        only_a_copy="x.clone().zero_()",
        only_a_sum="z = x + 1\nz.zero_()",
        only_read="print(x.sum().item())",
        waits="loss0 = model(bx).sum().item()\nx.zero_()",
    ),
}
WRITTEN["at the end"] = {"end": "x.zero_()"}
WRITTEN |= {
    "kept": {"end": "kept.append(x)", "after": "for k in kept:\n    k.zero_()"},
    "kept, next batch": {"first": "for k in kept:\n    k.zero_()\nkept[:] = [x]"},
    "kept in an attribute": {"first": "if i:\n    model.last.zero_()", "end": "model.last = x"},
    "kept as a view": {"end": "kept.append(x[0])", "first": "if kept:\n    kept[-1].zero_()"},
    "kept as an array": {"end": "kept.append(x.numpy())", "first": "if kept:\n    kept[-1][:] = 0"},
    "kept in a global": {
        "above": "last = None\ndef keep(t):\n    global last\n    if last is not None:\n        last.zero_()\n    last = t",
        "inside": "keep(x)",
    },
    "in a function": {"above": "def f(t):\n    t.zero_()", "inside": "f(x)"},
    "in a function, view": {"above": "def f(t):\n    t.view(-1)[0] = 3", "inside": "f(x)"},
    "in a function, numpy": {"above": "def f(a):\n    a[:] = 0", "inside": "f(x.numpy())"},
    "in a function, numpy row": {"above": "def f(a):\n    a[0] = 0", "inside": "f(x.numpy()[1])"},
    "in a function, star": {"above": "def f(*ts):\n    ts[0].zero_()", "inside": "f(x, y)"},
    "in a function, keywords": {"above": "def f(**ts):\n    ts['x'].zero_()", "inside": "f(x=x)"},
    "in a function, default": {"inside": "def f(t=x):\n    t.zero_()\nf()"},
    "in a closure": {"inside": "def f():\n    x.zero_()\nf()"},
    "in a closure of a module": {"above": "def f():\n    x.zero_()", "inside": "f()"},
    "in a generator": {
        "above": "def f(t):\n    yield\n    t.zero_()",
        "inside": "g = f(x)\nnext(g)\nnext(g, None)",
    },
    "in a generator, later": {
        "above": "def f(t):\n    yield\n    t.zero_()",
        "inside": "g = f(x)\nnext(g)",
        "end": "next(g, None)",
    },
    "in an object": {
        "above": "class Q:\n    def __init__(self, t):\n        self.t = t\n    def go(self):\n        self.t.zero_()",
        "inside": "Q(x).go()",
    },
    "in an object's call": {
        "above": "class Q:\n    def __call__(self, t):\n        t.zero_()",
        "inside": "Q()(x)",
    },
    "in a property": {
        "above": "class Q:\n    def __init__(self, t):\n        self.t = t\n    @property\n    def go(self):\n        return self.t.zero_()",
        "inside": "Q(x).go",
    },
    "in a context": {
        "above": "@contextlib.contextmanager\ndef f(t):\n    yield\n    t.zero_()",
        "inside": "with f(x):\n    pass",
    },
    "in del": {
        "above": "class Q:\n    def __init__(self, t):\n        self.t = t\n    def __del__(self):\n        self.t.zero_()",
        "inside": "Q(x)",
    },
    "in a module": {
        "above": "class Q(nn.Module):\n    def forward(self, t):\n        return t.neg_()",
        "inside": "Q()(x)",
    },
    "in a module, registered": {
        "above": "class Q(nn.Module):\n    def forward(self, t):\n        t[:, 0] = 1\n        return t",
        "before": "q = Q()",
        "inside": "q(x)",
    },
    "in a hook": {
        "before": "host = nn.Identity()\nhost.register_forward_pre_hook(lambda m, a: a[0].zero_())",
        "inside": "host(x)",
    },
    "in a dispatch": {
        "above": "@functools.singledispatch\ndef f(t):\n    t.zero_()",
        "inside": "f(x)",
    },
    "in a decorated function": {
        "above": "def d(g):\n    def h(t):\n        t.zero_()\n        return g(t)\n    return h\n@d\ndef f(t):\n    return t",
        "inside": "f(x)",
    },
    "in a cache": {"above": "@functools.lru_cache\ndef f(t):\n    t.zero_()", "inside": "f(x)"},
    "in a function of a dict": {"above": "fs = {'z': lambda t: t.zero_()}", "inside": "fs['z'](x)"},
    "in a partial": {
        "above": "def f(v, t):\n    t.fill_(v)",
        "before": "g = functools.partial(f, 0)",
        "inside": "g(x)",
    },
    "in a pool": {
        "before": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)",
        "inside": "pool.submit(x.zero_).result()",
    },
    "by a queue": {"before": "q = queue.Queue()", "inside": "q.put(x)\nq.get().zero_()"},
    "by a deque": {"before": "q = collections.deque()", "inside": "q.append(x)\nq.pop().zero_()"},
    "by a class attribute": {
        "above": "class Q:\n    t = None",
        "inside": "Q.t = x\nQ.t.zero_()",
    },
    "by setattr": {
        "above": "class Q:\n    t = None",
        "inside": "setattr(Q, 't', x)\nQ.t.zero_()",
    },
    "by a dataclass": {
        "above": "@dataclasses.dataclass\nclass B:\n    x: torch.Tensor\n    def clear(self):\n        self.x.zero_()",
        "inside": "B(x).clear()",
    },
    "by a named tuple": {
        "above": "B = collections.namedtuple('B', 'x y')",
        "inside": "B(x, y).x.zero_()",
    },
    "by a default dict": {
        "before": "d = collections.defaultdict(list)",
        "inside": "d[0].append(x)\nd[0][-1].zero_()",
    },
    "by zip": {"inside": "for t, v in zip((x, y), (0, 1)):\n    t.fill_(v)"},
    "by enumerate": {"inside": "for n, t in enumerate((x, y)):\n    t.fill_(n)"},
    "by chain": {"inside": "for t in itertools.chain([x], [y]):\n    t.fill_(0)"},
    "by a star": {"inside": "a, *_ = x, y\na.zero_()"},
    "by reversed": {"inside": "for t in reversed([y, x]):\n    t.zero_()"},
    "before the copy": {"first": "x.neg_()"},
    "a copy of a copy": {"inside": "z = x.clone()\nbz = z.to(device)\nz.zero_()\nbx = bx + bz"},
    "a sum, then changed": {"inside": "z = x + 1\nbz = z.to(device)\nz.zero_()\nbx = bx + bz"},
    "a view is copied": {
        "inside": "bz = x[:4].to(device)\nx.zero_()\nbx = torch.cat([bz, bx[4:]])"
    },
    "a helper copies": {
        "above": "def there(t):\n    return t.to(device)",
        "inside": "bx = there(x)\nx.zero_()",
    },
    "a helper copies several": {
        "above": "def there(*ts):\n    return [t.to(device) for t in ts]",
        "inside": "bx, by = there(x, y)\nx.zero_()",
    },
    "a helper copies a dict": {
        "above": "def there(d):\n    return {k: v.to(device) for k, v in d.items()}",
        "inside": "bx = there({'x': x})['x']\nx.zero_()",
    },
    "a helper copies back": {
        "above": "def move(t, d):\n    return t.to(d)",
        "inside": "bx = move(x, device)\nprint(move(bx * 2, 'cpu').numpy().sum())",
    },
    "a helper copies back, torch.device": {
        "above": "def move(t, d):\n    return t.to(d)",
        "inside": "bx = move(x, device)\nprint(move(bx * 2, torch.device('cpu')).numpy().sum())",
    },
    "a helper copies back by default": {
        "above": "def move(t, d=torch.device('cpu')):\n    return t.to(d)",
        "inside": "bx = move(x, device)\nprint(move(bx * 2).numpy().sum())",
    },
    "a helper copies back, recursive": {
        "above": "def move(t, d):\n    if isinstance(t, (list, tuple)):\n        return [move(u, d) for u in t]\n    return t.to(d)",
        "inside": "bx, by = move([x, y], device)\nprint(move([bx * 2], 'cpu')[0].numpy().sum())",
    },
    "a lambda copies back": {
        "above": "move = lambda t, d: t.to(d)",
        "inside": "bx = move(x, device)\nprint(move(bx * 2, 'cpu').numpy().sum())",
    },
    "a loop over devices": {
        "inside": "t = x\nfor d in (device, 'cpu'):\n    t = t.to(d)\nprint(t.numpy().sum())"
    },
    "a device that changes": {
        "before": "where = device",
        "inside": "bx = x.to(where)\nwhere = torch.device('cpu')\nprint((bx * 2).to(where).numpy().sum())\nwhere = device",
    },
    "a device of a class": {
        "above": "class C:\n    where = device",
        "inside": "C.where = device\nbx = x.to(C.where)\nC.where = torch.device('cpu')\nprint(bx.to(C.where).numpy().sum())",
    },
    "a device of a dict": {
        "before": "where = {'d': device}",
        "inside": "for d in (device, torch.device('cpu')):\n    where['d'] = d\n    bx = bx.to(where['d'])\nprint(bx.numpy().sum())\nbx = x.to(device)",
    },
    "a device of a function": {
        "above": "def where(i):\n    return device if i % 2 == 0 else torch.device('cpu')",
        "inside": "t = x.to(where(0)).to(where(1))\nprint(t.numpy().sum())",
    },
    "there and back": {"inside": "print(bx.cpu().numpy().sum())"},
    "there and back by to": {"inside": "print(bx.to('cpu').numpy().sum())"},
    "there and back by type": {"inside": "print(bx.to(x.device).numpy().sum())"},
    "back to a tensor's": {"inside": "print(bx.to(x).numpy().sum())"},
    "back to a host model": {
        "before": "host = nn.Linear(4, 3)",
        "inside": "print(host(bx.to(next(host.parameters()).device)).sum().item())",
    },
    "back by type_as": {"inside": "print(bx.type_as(x).numpy().sum())"},
    "back by copy_": {"inside": "z = torch.empty(8, 4)\nz.copy_(bx)\nprint(z.numpy().sum())"},
    "staging buffer": {
        "before": "stage = torch.empty(8, 4).pin_memory()",
        "inside": "stage.copy_(x)\nbx = stage.to(device)",
    },
    "staging buffer, filled by numpy": {
        "before": "stage = torch.empty(8, 4).pin_memory()",
        "inside": "stage.numpy()[:] = x.numpy()\nbx = stage.to(device)",
    },
    "staging buffer of a list": {
        "before": "stage = [torch.empty(8, 4).pin_memory()]",
        "inside": "stage[0][:] = x\nbx = stage[0].to(device)",
    },
    "device buffer": {
        "before": "there = torch.empty(8, 4, device=device)",
        "inside": "there.copy_(x)\nbx = there\nx.zero_()",
    },
    "device buffer, then host": {
        "before": "there = torch.empty(8, 4, device=device)\nhere = torch.empty(8, 4)",
        "inside": "there.copy_(x)\nhere.copy_(there)\nprint(here.numpy().sum())",
    },
    "same batch again": {
        "before": "loader = [(x, y) for x, y in DataLoader(data, batch_size=8, pin_memory=True)]",
        "end": "x.mul_(0.5)",
    },
    "cached batches": {
        "first": "if epoch:\n    x, y = kept[i]",
        "end": "kept.append((x, y))\nx.mul_(0.5)",
    },
    "a loader's buffer by collate": {
        "above": "buffer = torch.empty(8, 4)\ndef collate(items):\n    for n, (a, _) in enumerate(items):\n        buffer[n] = a\n    return buffer, torch.stack([b for _, b in items])",
        "before": "loader = DataLoader(data, batch_size=8, collate_fn=collate)",
    },
    "a loader's pinned buffer by collate": {
        "above": "buffer = torch.empty(8, 4).pin_memory()\ndef collate(items):\n    for n, (a, _) in enumerate(items):\n        buffer[n] = a\n    return buffer, torch.stack([b for _, b in items])",
        "before": "loader = DataLoader(data, batch_size=8, collate_fn=collate)",
    },
    "batch size one, item is the buffer": {
        "above": "class Same(Dataset):\n    t = torch.zeros(4)\n    def __len__(self):\n        return 8\n    def __getitem__(self, i):\n        self.t.fill_(i)\n        return self.t, torch.tensor(i % 3)",
        "before": "loader = DataLoader(Same(), batch_size=None)",
        "inside": "bx, by = bx[None], by[None]",
    },
    "identity of what is copied": {"inside": "print(bx is x, bx.data_ptr() == x.data_ptr())"},
    "a batch of a class": {
        "above": "class B:\n    def __init__(self, items):\n        self.x = torch.stack([a for a, _ in items])\n        self.y = torch.stack([b for _, b in items])\n    def pin_memory(self):\n        self.x = self.x.pin_memory()\n        return self\n    def to(self, d):\n        return self.x.to(d), self.y.to(d)\n    def __iter__(self):\n        return iter((self.x, self.y))",
        "before": "loader = DataLoader(data, batch_size=8, collate_fn=B, pin_memory=True)",
    },
    "a batch with a to of its own": {
        "above": "class B:\n    def __init__(self, items):\n        self.t = [torch.stack(c) for c in zip(*items)]\n    def to(self, d):\n        self.t = [t.to(d) for t in self.t]\n        return self\n    def __iter__(self):\n        return iter(self.t)",
        "before": "loader = DataLoader(data, batch_size=8, collate_fn=B, pin_memory=True)\nfor b in loader:\n    b.to(device)\n    bx, by = b\n    print(model(bx).sum().item())",
    },
    "a tensor of a class": {
        "above": "class T(torch.Tensor):\n    def to(self, d):\n        return super().to(d)",
        "inside": "bx = x.as_subclass(T).to(device).as_subclass(torch.Tensor)",
    },
    "to is replaced": {
        "above": "def there(t, d):\n    return old(t, d)\nold = torch.Tensor.to\ntorch.Tensor.to = lambda t, *a, **k: old(t, *a, **k) * 2",
    },
    "to is replaced, without keywords": {
        "above": "old = torch.Tensor.to\ntorch.Tensor.to = lambda t, d: old(t, d)",
        "before": "torch.Tensor.to = old",
    },
    "to by a name": {"inside": "go = x.to\nbx = go(device)\nx.zero_()"},
    "to by getattr": {"inside": "bx = getattr(x, 'to')(device)\nx.zero_()"},
    "to by map": {"inside": "bx, by = map(lambda t: t.to(device), (x, y))\nx.zero_()"},
    "to by a generator": {"inside": "bx, by = (t.to(device) for t in (x, y))\nx.zero_()"},
    "to by a list": {"inside": "bx, by = [t.to(device) for t in [x, y]]\nx.zero_()"},
    "to late, by a generator": {
        "inside": "there = (t.to(device) for t in (x, y))\nx.neg_()\nbx, by = there\nx.zero_()"
    },
    "to in a wrapper of the loader": {
        "above": "class There:\n    def __init__(self, l):\n        self.l = l\n    def __iter__(self):\n        for x, y in self.l:\n            yield x.to(device), y.to(device)\n            x.zero_()",
        "before": "loader = There(loader)",
    },
    "to in a generator of batches": {
        "above": "def there(l):\n    for x, y in l:\n        a = x.to(device), y.to(device)\n        x.zero_()\n        yield a",
        "before": "batches = there",
        "epoch": "for x, y in batches(loader):\n    print(model(x).sum().item())",
    },
    "cuda": {"inside": "bx = x.cuda() if torch.cuda.is_available() else x\nx.zero_()"},
    "cuda, by a number": {
        "inside": "bx = x.cuda(0) if torch.cuda.is_available() else x\nx.zero_()"
    },
    "to a number": {"inside": "bx = x.to(0) if torch.cuda.is_available() else x\nx.zero_()"},
    "to another tensor": {"inside": "bx = x.to(model[0].weight)\nx.zero_()"},
    "to with a dtype": {"inside": "bx = x.to(device, torch.float64).float()\nx.zero_()"},
    "to with a dtype, copied": {
        "inside": "bx = x.to(device=device, dtype=torch.float32)\nx.zero_()"
    },
    "to with copy": {"inside": "bx = x.to(device, copy=True)\nx.zero_()"},
    "no reads but a comparison": {"inside": "if (x > 0).all():\n    x.zero_()"},
    "profiled": {"inside": "import time\nt = time.time()\nbx = x.to(device)\nt = time.time() - t"},
    "double": {"inside": "bx = x.double().to(device).float()\nx.zero_()"},
    "half": {"inside": "bx = x.half().to(device).float()\nx.zero_()"},
    "iterated by hand": {
        "epoch": "it = iter(loader)\nx, y = next(it)\nbx = x.to(device)\nx.zero_()\nprint(model(bx).sum().item())"
    },
    "prefetched by hand": {
        "epoch": "nxt = None\nfor x, y in loader:\n    cur, nxt = nxt, x.to(device)\n    if cur is not None:\n        print(model(cur).sum().item())\n    x.zero_()"
    },
    "a double buffer": {
        "before": "stage = [torch.empty(8, 4).pin_memory() for _ in range(2)]",
        "inside": "stage[i % 2].copy_(x)\nbx = stage[i % 2].to(device)",
    },
    "batches in a list, later": {
        "epoch": "bs = [(x.to(device), x) for x, y in loader]\nfor b, x in bs:\n    x.zero_()\nprint(sum(model(b).sum().item() for b, _ in bs))"
    },
}

INTEGERS = """
class Data(Dataset):
    def __init__(self):
        self.x = torch.randint(0, 256, (24, 4), dtype=torch.uint8)
        self.y = torch.randint(0, 3, (24,))
        ...init
    def __len__(self):
        return 24
    def __getitem__(self, i):
        ...item
        return self.x[i], self.y[i]
...above
data = Data()
loader = DataLoader(data, batch_size=8, pin_memory=True)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
...before
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        ...first
        bx, by = x.float().to(device), y.to(device)
        ...inside
        optimizer.zero_grad()
        loss = F.cross_entropy(model(bx / 255), by)
        loss.backward()
        optimizer.step()
        ...end
        print(repr(loss.item()))
"""
CASTS: dict[str, str | dict[str, str]] = {
    "plain": "",
    "changed after": "x.zero_()",
    "changed after by numpy": "x.numpy()[:] = 0",
    "changed by a function": {"above": "def f(t):\n    t.zero_()", "inside": "f(x)"},
    "changed by a view": "x[0].zero_()",
    "changed by exec": "exec('x.zero_()')",
    "changed by map": "list(map(torch.Tensor.zero_, [x]))",
    "changed at the end": {"end": "x.zero_()"},
    "changed by the collate": {
        "above": "buffer = torch.empty(8, 4, dtype=torch.uint8).pin_memory()\ndef collate(items):\n    for n, (a, _) in enumerate(items):\n        buffer[n] = a\n    return buffer, torch.stack([b for _, b in items])",
        "before": "loader = DataLoader(data, batch_size=8, collate_fn=collate)",
    },
    "data of floats": {"init": "self.x = self.x.double() / 3"},
    "data of halves": {"init": "self.x = (self.x.float() / 3).half()"},
    "data of bools": {"init": "self.x = self.x > 100"},
    "data of long": {"init": "self.x = self.x.long() * 100000007"},
    "data of both": {"item": "if i % 2:\n    return self.x[i].float() / 3, self.y[i]"},
    "data of floats, later": {"before": "data.x = data.x.double() / 3"},
    "data of floats by setattr": {"before": "setattr(data, 'x', data.x.double() / 3)"},
    "data of floats by vars": {"before": "vars(data)['x'] = data.x.double() / 3"},
    "data of another class": {
        "above": "class Other(Data):\n    def __getitem__(self, i):\n        return self.x[i].double() / 3, self.y[i]",
        "before": "loader = DataLoader(Other(), batch_size=8)",
    },
    "items wrapped": {
        "before": "get = Data.__getitem__\nData.__getitem__ = lambda s, i: (get(s, i)[0].double() / 3, get(s, i)[1])"
    },
    "changed before": {"first": "x = x / 3"},
    "changed before, double": {"first": "x = x.double() / 3"},
    "changed before, in place": {"first": "x += 1"},
    "to double": "bx = x.double().to(device).float()",
    "to half": "bx = x.half().to(device).float()",
    "to bfloat16": "bx = x.bfloat16().to(device).float()",
    "to half, of long": {
        "init": "self.x = self.x.long() * 1000",
        "inside": "bx = x.half().to(device).float().clamp(0, 1000)",
    },
    "by type": "bx = x.type(torch.FloatTensor).to(device)",
    "by type, text": "bx = x.type('torch.FloatTensor').to(device)",
    "by type, dtype": "bx = x.type(torch.float32).to(device)",
    "by to": "bx = x.to(torch.float32).to(device)",
    "view between": "bx = x.float().view(8, 4).to(device)",
    "view of the dtype between": "bx = x.float().view(torch.int32).to(device).float() / 2**30",
    "flatten between": "bx = x.float().flatten(1).to(device)",
    "sum between": "bx = x.float().sum(1, keepdim=True).to(device) + bx",
    "division before": "bx = (x / 255.0).float().to(device)",
    "bool": "bx = x.bool().float().to(device)",
    "wraps": "bx = (x + x).float().to(device)",
    "wraps by neg": "bx = (-x).float().to(device)",
    "read after": "f = x.float()\nbx = f.to(device)\nprint(f.sum().item())",
    "pinned": "bx = x.float().pin_memory().to(device)",
    "number": "bx = bx * 0 + y.float().to(device).mean()",
    "twice": "bx = x.float().to(device) + x.float().to(device)",
    "printed": "print(x.float().to(device).dtype)",
    "backed up": "bx = x.float().to(device).requires_grad_()",
    "by type_as": "bx = x.type_as(model[0].weight)",
    "on the host by a switch": {
        "before": "where = torch.device('cpu')",
        "inside": "print(x.float().to(where).numpy().sum())",
    },
    "host, then device": "print(x.float().to('cpu').numpy().sum())",
    "complex": "bx = x.to(torch.complex64).to(device).real",
    "signed": {"init": "self.x = self.x.view(torch.int8)"},
    "numpy items": {"init": "self.x = self.x.numpy()"},
    "numpy floats": {"init": "self.x = self.x.numpy() / 3"},
    "list items": {
        "init": "self.x = [[0.1, 0.2, 0.3, i / 7] for i in range(24)]",
        "item": "return torch.tensor(self.x[i]), self.y[i]",
    },
    "list of ints": {
        "init": "self.x = [[1, 2, 3, i] for i in range(24)]",
        "item": "return torch.tensor(self.x[i]), self.y[i]",
    },
    "channels last": "bx = x.view(8, 1, 2, 2).float().to(device, memory_format=torch.channels_last).flatten(1)",
    "autograd": "bx = x.float().requires_grad_().to(device)\nbx.sum().backward()",
}

CLAIMS = [
    Claim(
        "no copy is overtaken",
        "non-blocking, pin-memory, cuda-prefetch",
        COPIES,
        WRITTEN,
        cuda=True,
        configs=("copies", "everything", "on request"),
    ),
    Claim(
        "a cast can follow the copy",
        "cast-on-device, uint8-transfer",
        INTEGERS,
        CASTS,
        cuda=True,
        configs=("copies", "everything"),
    ),
]
