"""Data that lie in memory stay as they are, and nobody sees whether they are copied."""

from benchmarks.ways.claim import Claim

TENSORS = """
x = torch.randn(24, 4)
y = torch.randint(0, 3, (24,))
...above
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
...before
for epoch in range(3):
    ...epoch
    for bx, by in loader:
        bx, by = bx.to(device), by.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(bx), by)
        loss.backward()
        optimizer.step()
        ...inside
        print(repr(loss.item()))
"""


def at_epoch(**ways: str) -> dict[str, str | dict[str, str]]:
    return {name.replace("_", " "): {"epoch": text} for name, text in ways.items()}


WAYS: dict[str, str | dict[str, str]] = {
    **at_epoch(
        method="x.neg_()",
        by_class="torch.Tensor.neg_(x)",
        augmented="x *= -1",
        item="x[0] = 3.0",
        slice="x[:] = -x",
        special="x.__setitem__(0, 3.0)",
        special_of_class="torch.Tensor.__setitem__(x, 0, 3.0)",
        imul="x.__imul__(-1)",
        operator_imul="operator.imul(x, -1)",
        operator_setitem="operator.setitem(x, 0, 3.0)",
        methodcaller="operator.methodcaller('neg_')(x)",
        methodcaller_on_data="operator.methodcaller('neg_')(data.tensors[0])",
        attrgetter="operator.attrgetter('tensors')(data)[0].neg_()",
        itemgetter="operator.itemgetter(0)(data.tensors).neg_()",
        map_of_method="list(map(torch.Tensor.neg_, [x]))",
        map_over_tensors="list(map(torch.Tensor.neg_, data.tensors[:1]))",
        map_over_rows="list(map(torch.Tensor.neg_, x))",
        map_of_lambda="list(map(lambda t: t.neg_(), [x]))",
        deque_of_map="collections.deque(map(torch.Tensor.neg_, x), maxlen=0)",
        any_of_map="any(t is None for t in map(torch.Tensor.neg_, x))",
        filter_="list(filter(lambda t: t.neg_() is None, [x]))",
        starmap="list(itertools.starmap(torch.Tensor.mul_, [(x, -1)]))",
        reduce="functools.reduce(torch.Tensor.mul_, [x, -1])",
        accumulate="list(itertools.accumulate([x, -1], torch.Tensor.mul_))",
        partial="functools.partial(torch.Tensor.neg_, x)()",
        partial_of_mul="functools.partial(torch.Tensor.mul_, x)(-1)",
        partial_bound="functools.partial(x.mul_, -1)()",
        partialmethod="type('T', (), {'t': x, 'go': functools.partialmethod(lambda self: self.t.neg_())})().go()",
        eval_="eval('x.neg_()')",
        exec_="exec('x.neg_()')",
        exec_with_scope="exec('t.neg_()', {'t': x})",
        compile_="exec(compile('x.neg_()', 'f', 'exec'))",
        globals_="globals()['x'].neg_()",
        vars_="vars()['x'].neg_()",
        getattr_="getattr(x, 'ne' + 'g_')()",
        bound_method="go = x.neg_\ngo()",
        loop_of_methods="for go in (x.neg_,):\n    go()",
        dict_of_methods="{'go': x.neg_}['go']()",
        lambda_="(lambda t: t.neg_())(x)",
        default_of_a_lambda="(lambda t=x: t.neg_())()",
        closure="def go():\n    x.neg_()\ngo()",
        generator="def go():\n    yield x.neg_()\nlist(go())",
        generator_send="def go():\n    t = yield\n    t.neg_()\n    yield\ng = go()\nnext(g)\ng.send(x)",
        comprehension="[t.neg_() for t in [x]]",
        loop_over_rows="for row in x:\n    row.neg_()",
        zip_="for row, label in zip(x, y):\n    row.neg_()",
        enumerate_="for i, row in enumerate(x):\n    row.neg_()",
        reversed_="for row in reversed([x]):\n    row.neg_()",
        unbind="for row in x.unbind():\n    row.neg_()",
        split="a, b = x.split(12)\na.neg_()",
        chunk="torch.chunk(x, 2)[0].neg_()",
        transposed="x.T.neg_()",
        view="x.view(-1)[0] = 3",
        detach="x.detach().neg_()",
        data_attr="x.data.neg_()",
        set_data="x.data = -x",
        narrow="x.narrow(0, 0, 5).neg_()",
        as_strided="torch.as_strided(x, (5,), (1,)).neg_()",
        diagonal="x.diagonal().neg_()",
        flatten="x.flatten().neg_()",
        contiguous="x.contiguous().neg_()",
        to_float="x.float().neg_()",
        type_as="x.type_as(x).neg_()",
        to_cpu="x.to('cpu').neg_()",
        expand_as="x.expand_as(x).neg_()",
        storage="x.untyped_storage().fill_(0)",
        storage_copy="x.untyped_storage().copy_((-x).untyped_storage())",
        set_="x.set_(-x)",
        numpy="x.numpy()[:] = 0",
        numpy_imul="a = x.numpy()\na *= -1",
        numpy_out="np.negative(x.numpy(), out=x.numpy())",
        numpy_copyto="np.copyto(x.numpy(), -x.numpy())",
        numpy_put="np.put(x.numpy(), [0], 3)",
        numpy_sort="x.numpy().sort()",
        numpy_fill="x.numpy().fill(1)",
        numpy_shuffle="np.random.shuffle(x.numpy())",
        generator_shuffle="np.random.default_rng(0).shuffle(x.numpy())",
        numpy_asarray="np.asarray(x)[0] = 3",
        numpy_flat="x.numpy().flat[0] = 3",
        numpy_nditer="for v in np.nditer(x.numpy(), op_flags=['readwrite']):\n    v[...] = -v",
        memoryview="memoryview(x.numpy())[0, 0] = 3.0",
        ctypes_="(ctypes.c_float * 1).from_address(x.data_ptr())[0] = 3.0",
        memmove="ctypes.memmove(x.data_ptr(), x.data_ptr() + 16, 16)",
        dlpack="torch.from_dlpack(x).neg_()",
        frombuffer="torch.frombuffer(x.numpy(), dtype=torch.float32).neg_()",
        from_numpy="torch.from_numpy(x.numpy()).neg_()",
        as_tensor="torch.as_tensor(x).neg_()",
        out="torch.neg(x, out=x)",
        out_of_randn="torch.randn(24, 4, out=x)",
        relu_inplace="F.relu(x, inplace=True)",
        relu_="torch.relu_(x)",
        relu_layer="nn.ReLU(inplace=True)(x)",
        relu_in_sequence="nn.Sequential(nn.ReLU(True))(x)",
        dropout_inplace="F.dropout(x, 0.5, inplace=True)",
        hardtanh="F.hardtanh_(x)",
        init="nn.init.zeros_(x)",
        init_uniform="nn.init.uniform_(x)",
        aten="torch.ops.aten.neg_(x)",
        aten_default="torch.ops.aten.neg_.default(x)",
        foreach="torch._foreach_neg_([x])",
        index_put="torch.index_put_(x, (torch.tensor([0]),), torch.tensor(3.0)) if hasattr(torch, 'index_put_') else x.index_put_((torch.tensor([0]),), torch.tensor(3.0))",
        clip="nn.utils.clip_grad_norm_([x], 1)\nx.clamp_(-1, 1)",
        normal="torch.Tensor.normal_(x)",
        swap="torch.utils.swap_tensors(x, -x)",
        optimizer="x.grad = torch.ones_like(x)\ntorch.optim.SGD([x], lr=0.1).step()",
        tensors_of_data="data.tensors[0].neg_()",
        other_tensors="data.tensors = (-x, y)",
        setattr_="setattr(data, 'tensors', (-x, y))",
        dict_of_data="data.__dict__['tensors'] = (-x, y)",
        vars_of_data="vars(data)['tensors'] = (-x, y)",
        update_of_dict="data.__dict__.update(tensors=(-x, y))",
        of_loader="loader.dataset.tensors[0].neg_()",
        of_item="data[0][0].neg_()",
        of_items="data[:][0].neg_()",
        dataset_getitem="data.__getitem__(0)[0].neg_()",
        loader_getattr="getattr(loader, 'dataset').tensors[0].neg_()",
        globals_in_function="def go():\n    globals()['x'].neg_()\ngo()",
        ternary="(x if epoch >= 0 else y).neg_()",
        walrus="(t := x).neg_()",
        starred="first, *rest = [y, x]\nrest[0].neg_()",
        nested="[[t]] = [[x]]\nt.neg_()",
        match_="match [x]:\n    case [t]:\n        t.neg_()",
        with_as="with contextlib.nullcontext(x) as t:\n    t.neg_()",
        exit_stack="with contextlib.ExitStack() as s:\n    s.callback(x.neg_)",
        context_manager="@contextlib.contextmanager\ndef go():\n    yield\n    x.neg_()\nwith go():\n    pass",
        finally_="try:\n    pass\nfinally:\n    x.neg_()",
        error="try:\n    raise ValueError(x)\nexcept ValueError as e:\n    e.args[0].neg_()",
        thread="t = threading.Thread(target=x.neg_)\nt.start()\nt.join()",
        thread_args="t = threading.Thread(target=torch.Tensor.neg_, args=(x,))\nt.start()\nt.join()",
        namespace="types.SimpleNamespace(t=x).t.neg_()",
        named_tuple="collections.namedtuple('N', 't')(x).t.neg_()",
        dataclass="D = dataclasses.make_dataclass('D', ['t'])\nD(x).t.neg_()",
        class_attr="class A:\n    t = x\nA.t.neg_()",
        object_="class A:\n    def __init__(self, t):\n        self.t = t\n    def go(self):\n        self.t.neg_()\nA(x).go()",
        getattr_of_class="class A:\n    def __getattr__(self, name):\n        return x\nA().anything.neg_()",
        property_="class A:\n    @property\n    def t(self):\n        return x.neg_()\nA().t",
        static_method="class A:\n    @staticmethod\n    def go(t):\n        t.neg_()\nA.go(x)",
        class_method="class A:\n    @classmethod\n    def go(cls, t):\n        t.neg_()\nA.go(x)",
        call="class A:\n    def __call__(self, t):\n        t.neg_()\nA()(x)",
        iterator="class A:\n    def __iter__(self):\n        x.neg_()\n        return iter([])\nlist(A())",
        contains="class A:\n    def __contains__(self, t):\n        t.neg_()\n        return True\nx in A()",
        add="class A:\n    def __add__(self, t):\n        t.neg_()\nA() + x",
        radd="class A:\n    def __format__(self, s):\n        x.neg_()\n        return ''\nf'{A()}'",
        weak="weakref.ref(x)().neg_()",
        weak_dict="w = weakref.WeakValueDictionary(t=x)\nw['t'].neg_()",
        deque_="collections.deque([x]).pop().neg_()",
        queue_="q = queue.Queue()\nq.put(x)\nq.get().neg_()",
        list_="l = []\nl.append(x)\nl[0].neg_()",
        dict_="d = dict(t=x)\nd['t'].neg_()",
        dict_get="{'t': x}.get('t').neg_()",
        dict_values="for t in {'t': x}.values():\n    t.neg_()",
        chain_map="collections.ChainMap({'t': x})['t'].neg_()",
        defaultdict="collections.defaultdict(lambda: x)['t'].neg_()",
        shallow_copy="copy.copy([x])[0].neg_()",
        copy_of_data="copy.copy(data).tensors[0].neg_()",
        copy_of_tensor="copy.copy(x).neg_()",
        array_of_objects="a = np.empty(1, dtype=object)\na[0] = x\na[0].neg_()",
        iter_next="next(iter([x])).neg_()",
        sorted_="sorted([x], key=id)[0].neg_()",
        max_="max([x], key=id).neg_()",
        identity="nn.Identity()(x).neg_()",
        module_that_writes="class M(nn.Module):\n    def forward(self, t):\n        return t.neg_()\nM()(x)",
        module_buffer="m = nn.Module()\nm.register_buffer('t', x)\nm.t.neg_()",
        buffers="m = nn.Module()\nm.register_buffer('t', x)\nfor b in m.buffers():\n    b.neg_()",
        state_dict="m = nn.Module()\nm.register_buffer('t', x)\nm.state_dict()['t'].neg_()",
        load_state_dict="m = nn.Module()\nm.register_buffer('t', x)\nm.load_state_dict({'t': -x})",
        embedding="nn.Embedding.from_pretrained(x).weight.data.neg_()",
        parameter="nn.Parameter(x).data.neg_()",
        max_norm="F.embedding(y, x, max_norm=0.1)",
        function="class A(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, t):\n        return t.neg_()\nA.apply(x)",
        vmap="torch.func.vmap(lambda t: t.neg_())(x)",
        apply_="x.apply_(lambda v: -v)",
        map_="x.map_(x, lambda a, b: -a)",
        gc_="for t in gc.get_objects():\n    if t is x:\n        t.neg_()",
        del_="class A:\n    def __del__(self):\n        x.neg_()\nA()",
        decorator="def once(f):\n    return f(x)\n@once\ndef go(t):\n    t.neg_()",
        recursion="def go(t, n):\n    return t.neg_() if n == 0 else go(t, n - 1)\ngo(x, 2)",
        star_args="def go(*ts):\n    ts[0].neg_()\ngo(*[x])",
        star_star="def go(**ts):\n    ts['t'].neg_()\ngo(**{'t': x})",
        lru_cache="@functools.lru_cache\ndef go():\n    return x\ngo().neg_()",
        singledispatch="@functools.singledispatch\ndef go(t):\n    t.neg_()\ngo(x)",
        wraps="def w(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\nw(torch.Tensor.neg_)(x)",
        import_="__import__('torch').neg_(x)",
        getattr_of_torch="getattr(torch, 'neg_')(x)",
        alias_of_function="flip = torch.neg_\nflip(x)",
        alias_of_method="flip = torch.Tensor.neg_\nflip(x)",
        nonlocal_="def outer():\n    t = x\n    def inner():\n        nonlocal t\n        t *= -1\n    inner()\nouter()",
        resize="x.resize_(24, 4).zero_()",
        masked="x.masked_fill_(x > 0, 0)",
        where_out="torch.where(x > 0, -x, x, out=x)",
        scatter="x.scatter_(0, torch.zeros(1, 4, dtype=torch.long), 9.0)",
        setflags="x.index_fill_(0, torch.tensor([0]), 3.0)",
        roll="x.copy_(x.roll(1, 0))",
        permuted="x[:] = x[torch.randperm(24)]",
        labels="y.copy_((y + 1) % 3)",
        labels_augmented="y %= 2",
        share="x.share_memory_().neg_()",
        pin="io.BytesIO().write(x.numpy().tobytes())\nx.neg_()",
        under_inference="with torch.inference_mode():\n    x.neg_()",
        fill_by_class="torch.Tensor.fill_(x, 0.5)",
    ),
    "hook of a module": {
        "before": "model.register_forward_hook(lambda m, i, o: (x.mul_(0.9), None)[1])"
    },
    "pre-hook of an optimizer": {
        "before": "optimizer.register_step_pre_hook(lambda *a: (x.mul_(0.9), None)[1])"
    },
    "hook of a gradient": {"before": "model.bias.register_hook(lambda g: (x.mul_(0.9), None)[1])"},
    "scheduler": {
        "before": "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: (x.mul_(0.9), 1.0)[1])",
        "epoch": "s.step()",
    },
    "source array": {
        "above": "a = np.random.randn(24, 4).astype('float32')\nx = torch.from_numpy(a)",
        "epoch": "a[:] = -a",
    },
    "source array by out": {
        "above": "a = np.random.randn(24, 4).astype('float32')\nx = torch.from_numpy(a)",
        "epoch": "np.multiply(a, -1, a)",
    },
    "source array by at": {
        "above": "a = np.random.randn(24, 4).astype('float32')\nx = torch.as_tensor(a)",
        "epoch": "np.add.at(a, 0, 1)",
    },
    "source bytes": {
        "above": "raw = bytearray(np.random.randn(24, 4).astype('float32').tobytes())\nx = torch.frombuffer(raw, dtype=torch.float32).view(24, 4)",
        "epoch": "raw[:16] = raw[16:32]",
    },
    "source tensor": {
        "above": "whole = torch.randn(30, 4)\nx = whole[:24]",
        "epoch": "whole.neg_()",
    },
    "source buffer": {
        "above": "net = nn.BatchNorm1d(4)\nx = net.running_mean.repeat(24, 1)\nx = net.running_mean.expand(24, 4)",
        "epoch": "net(torch.randn(8, 4) + 2)",
    },
    "source parameter": {
        "above": "table = nn.Embedding(24, 4)\nx = table.weight.data",
        "epoch": "table.weight.data.neg_()",
    },
    "partial set above": {
        "above": "go = functools.partial(torch.Tensor.neg_, x)",
        "epoch": "go()",
    },
    "bound method set above": {"above": "go = x.neg_", "epoch": "go()"},
    "callbacks": {
        "above": "calls = [x.neg_, lambda: x.mul_(0.5)]",
        "epoch": "for go in calls:\n    go()",
    },
    "generator set above": {
        "above": "def changes():\n    while True:\n        x.neg_()\n        yield\ng = changes()",
        "epoch": "next(g)",
    },
    "iter with a sentinel": {"epoch": "next(iter(x.neg_, None))"},
    "in the loop": "x.mul_(0.9)",
    "by a batch's index": "x[by] = 0",
    "finalizer": {
        "epoch": "class A:\n    pass\na = A()\nweakref.finalize(a, x.neg_)\ndel a",
    },
    "metaclass": {
        "epoch": "class M(type):\n    def __call__(cls):\n        x.neg_()\nclass A(metaclass=M):\n    pass\nA()",
    },
    "descriptor": {
        "epoch": "class D:\n    def __get__(self, o, c):\n        return x.neg_()\nclass A:\n    d = D()\nA().d",
    },
    "set by an attribute": {
        "epoch": "class A:\n    def __setattr__(self, n, v):\n        v.neg_()\nA().t = x",
    },
    "subclass hook": {
        "epoch": "class B:\n    def __init_subclass__(cls, t):\n        t.neg_()\nclass A(B, t=x):\n    pass",
    },
    "order of the loader": {"epoch": "loader.sampler.data_source = data if epoch < 9 else None"},
    "batch size": {"epoch": "loader.batch_sampler.batch_size = 4"},
    "collate": {
        "epoch": "loader.collate_fn = lambda items: (torch.stack([i[0] for i in items]).neg(), torch.stack([i[1] for i in items]))"
    },
    "method of the dataset": {
        "epoch": "data.__class__ = type('D', (TensorDataset,), {'__getitem__': lambda self, i: (-self.tensors[0][i], self.tensors[1][i])})"
    },
    "class of the dataset": {
        "before": "old = TensorDataset.__getitem__\nTensorDataset.__getitem__ = lambda self, i: tuple(-t if t.is_floating_point() else t for t in old(self, i))"
    },
}

ARRAYS = """
class Rows(Dataset):
    ...cls
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.scale = 1.0
        ...init

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        ...item
        return self.x[i], self.y[i]

""" + TENSORS.replace("TensorDataset(x, y)", "Rows(x, y)")
SCALED = "return self.x[i] * self.scale, self.y[i]"
ITEMS: dict[str, str | dict[str, str]] = {
    "attribute": {"item": SCALED, "epoch": "data.scale = 1.0 + epoch"},
    "attribute in the loop": {"item": SCALED, "inside": "data.scale *= 0.5"},
    "attribute by setattr": {"item": SCALED, "epoch": "setattr(data, 'scale', 1.0 + epoch)"},
    "attribute by vars": {"item": SCALED, "epoch": "vars(data)['scale'] = 1.0 + epoch"},
    "attribute by the loader": {"item": SCALED, "epoch": "loader.dataset.scale = 1.0 + epoch"},
    "attribute by object": {
        "item": SCALED,
        "epoch": "object.__setattr__(data, 'scale', 1.0 + epoch)",
    },
    "attribute by exec": {"item": SCALED, "epoch": "exec('data.scale = 1.0 + epoch')"},
    "attribute by a loop": {"item": SCALED, "epoch": "for d in [data]:\n    d.scale = 1.0 + epoch"},
    "attribute by a loop's target": {
        "item": SCALED,
        "epoch": "for data.scale in (1.0 + epoch,):\n    pass",
    },
    "attribute by with": {
        "item": SCALED,
        "epoch": "with contextlib.nullcontext(1.0 + epoch) as data.scale:\n    pass",
    },
    "attribute by a thread": {
        "item": SCALED,
        "epoch": "t = threading.Thread(target=setattr, args=(data, 'scale', 1.0 + epoch))\nt.start()\nt.join()",
    },
    "attribute by partial": {
        "item": SCALED,
        "epoch": "functools.partial(setattr, data, 'scale')(1.0 + epoch)",
    },
    "attribute by map": {
        "item": SCALED,
        "epoch": "list(map(data.__setattr__, ['scale'], [1.0 + epoch]))",
    },
    "attribute by a hook": {
        "item": SCALED,
        "before": "optimizer.register_step_post_hook(lambda *a: setattr(data, 'scale', data.scale * 0.5))",
    },
    "attribute of the class": {
        "item": SCALED.replace("self.scale", "self.k"),
        "cls": "k = 1.0",
        "epoch": "Rows.k = 1.0 + epoch",
    },
    "attribute of the type": {
        "item": SCALED.replace("self.scale", "self.k"),
        "cls": "k = 1.0",
        "epoch": "type(data).k = 1.0 + epoch",
    },
    "method": {
        "item": SCALED,
        "cls": "def set(self, v):\n    self.scale = v\n",
        "epoch": "data.set(1.0 + epoch)",
    },
    "property": {
        "item": SCALED.replace("self.scale", "self.k"),
        "cls": "@property\ndef k(self):\n    return 1.0 + epoch\n",
    },
    "global": {
        "item": SCALED.replace("self.scale", "k"),
        "above": "k = 1.0",
        "epoch": "k = 1.0 + epoch",
    },
    "global by globals": {
        "item": SCALED.replace("self.scale", "k"),
        "above": "k = 1.0",
        "epoch": "globals()['k'] = 1.0 + epoch",
    },
    "global list": {
        "item": SCALED.replace("self.scale", "k[0]"),
        "above": "k = [1.0]",
        "epoch": "k[0] = 1.0 + epoch",
    },
    "global of a function": {
        "item": SCALED.replace("self.scale", "k()"),
        "above": "def k():\n    return 1.0 + epoch",
    },
    "counter": {"item": "self.scale += 1\n" + SCALED},
    "counter of the class": {
        "cls": "n = 0",
        "item": "Rows.n += 1\n" + SCALED.replace("self.scale", "Rows.n"),
    },
    "counter of itertools": {
        "init": "self.count = itertools.count()",
        "item": SCALED.replace("self.scale", "next(self.count)"),
    },
    "list that grows": {
        "init": "self.seen = []",
        "item": "self.seen.append(i)\n" + SCALED.replace("self.scale", "len(self.seen)"),
    },
    "set that grows": {
        "init": "self.seen = set()",
        "item": "again = i in self.seen\nself.seen.add(i)\nreturn (self.x[i] * 2 if again else self.x[i]), self.y[i]",
    },
    "item written": {"item": "self.x[i] *= 0.9"},
    "item written by method": {"item": "self.x[i].mul_(0.9)"},
    "item written by a name": {"item": "row = self.x[i]\nrow *= 0.9"},
    "item popped": {
        "init": "self.q = collections.deque(range(1, 100))",
        "item": SCALED.replace("self.scale", "self.q.popleft()"),
    },
    "queue": {
        "init": "self.q = queue.Queue()\nfor n in range(100):\n    self.q.put(n)",
        "item": SCALED.replace("self.scale", "self.q.get()"),
    },
    "generator": {
        "init": "self.g = iter(range(100))",
        "item": SCALED.replace("self.scale", "next(self.g)"),
    },
    "random": {"item": SCALED.replace("self.scale", "random.random()")},
    "numpy random": {"item": SCALED.replace("self.scale", "np.random.rand()")},
    "torch random": {"item": SCALED.replace("self.scale", "torch.rand(())")},
    "own random": {
        "init": "self.r = random.Random(0)",
        "item": SCALED.replace("self.scale", "self.r.random()"),
    },
    "own numpy random": {
        "init": "self.r = np.random.default_rng(0)",
        "item": SCALED.replace("self.scale", "float(self.r.random())"),
    },
    "own torch generator": {
        "init": "self.r = torch.Generator()",
        "item": SCALED.replace("self.scale", "torch.rand((), generator=self.r)"),
    },
    "list of rows": {"above": "x = list(x)", "epoch": "x[0] = -x[0]"},
    "list shuffled": {"above": "x = list(x)", "epoch": "random.shuffle(x)"},
    "list sorted": {
        "above": "x = list(x)",
        "epoch": "x.sort(key=lambda t: t.sum().item() * (-1) ** epoch)",
    },
    "list reversed": {"above": "x = list(x)", "epoch": "x.reverse()"},
    "list by slice": {"above": "x = list(x)", "epoch": "x[:] = x[::-1]"},
    "list grows": {"above": "x = list(x)", "epoch": "x.insert(0, x.pop())"},
    "list of numbers": {"above": "y = y.tolist()", "epoch": "y[0] = (y[0] + 1) % 3"},
    "rows are replaced": {"epoch": "data.x = -data.x"},
    "rows are written": {"epoch": "data.x.neg_()"},
    "rows of an array": {
        "above": "x = np.random.randn(24, 4).astype('float32')",
        "epoch": "x *= -1",
    },
    "rows of an array by map": {
        "above": "x = np.random.randn(24, 4).astype('float32')",
        "epoch": "list(map(np.ndarray.sort, x))",
    },
    "rows of an array by partial": {
        "above": "x = np.random.randn(24, 4).astype('float32')",
        "epoch": "functools.partial(np.negative, out=x)(x)",
    },
    "method is replaced": {
        "epoch": "Rows.__getitem__ = lambda self, i: (self.x[i] * epoch, self.y[i])"
    },
    "method by setattr": {
        "epoch": "setattr(Rows, '__getitem__', lambda self, i: (self.x[i] * epoch, self.y[i]))"
    },
    "class is replaced": {
        "epoch": "class Other(Rows):\n    def __getitem__(self, i):\n        return -self.x[i], self.y[i]\ndata.__class__ = Other"
    },
    "length": {"epoch": "Rows.__len__ = lambda self: 8"},
    "set by __iter__": {"cls": "def __iter__(self):\n    return iter([])\n"},
    "getitems": {
        "cls": "def __getitems__(self, rows):\n    return [(-self.x[i], self.y[i]) for i in rows]\n"
    },
    "getattribute": {
        "cls": "def __getattribute__(self, name):\n    v = object.__getattribute__(self, name)\n    return v + epoch if name == 'scale' else v\n",
        "item": SCALED,
    },
    "time of the epoch": {"item": SCALED.replace("self.scale", "(epoch + 1)")},
    "model": {"item": SCALED.replace("self.scale", "model.bias[0].item()")},
    "parameter": {"item": "return self.x[i] * model.bias[0].detach().cpu(), self.y[i]"},
    "optimizer's rate": {
        "item": SCALED.replace("self.scale", "optimizer.param_groups[0]['lr']"),
        "epoch": "optimizer.param_groups[0]['lr'] *= 0.5",
    },
    "environment": {
        "above": "import os\nos.environ['K'] = '1'",
        "item": SCALED.replace("self.scale", "float(os.environ['K'])"),
        "epoch": "os.environ['K'] = str(epoch)",
    },
    "file": {
        "above": "open('k', 'w').write('1')",
        "item": SCALED.replace("self.scale", "float(open('k').read())"),
        "epoch": "with open('k', 'w') as f:\n    f.write(str(epoch))",
    },
    "cache": {
        "init": "self.cache = {}",
        "item": "if i not in self.cache:\n    self.cache[i] = self.x[i] * self.scale\nreturn self.cache[i], self.y[i]",
        "epoch": "data.scale = epoch + 1.0",
    },
    "lru_cache": {
        "cls": "@functools.lru_cache(None)\ndef row(self, i):\n    return self.x[i] * self.scale\n",
        "item": "return self.row(i), self.y[i]",
        "epoch": "data.scale = epoch + 1.0",
    },
    "dataclass field": {
        "above": "@dataclasses.dataclass\nclass C:\n    k: float = 1.0\nc = C()",
        "item": SCALED.replace("self.scale", "c.k"),
        "epoch": "c.k = epoch + 1.0",
    },
    "held object": {
        "above": "c = types.SimpleNamespace(k=1.0)",
        "before": "data.c = c",
        "item": SCALED.replace("self.scale", "self.c.k"),
        "epoch": "c.k = epoch + 1.0",
    },
    "thread local": {
        "above": "c = threading.local()\nc.k = 1.0",
        "item": SCALED.replace("self.scale", "c.k"),
        "epoch": "c.k = epoch + 1.0",
    },
    "counts seen outside": {
        "init": "self.count = 0",
        "item": "self.count += 1",
        "epoch": "print(data.count)",
    },
    "counts seen outside, global": {
        "above": "count = 0",
        "item": "global count\ncount += 1",
        "epoch": "print(count)",
    },
    "counts seen outside, list": {
        "above": "seen = []",
        "item": "seen.append(int(i))",
        "inside": "print(seen)",
    },
    "prints": {"item": "print(int(i))"},
    "type of the index": {
        "item": "return self.x[i] * (1.0 if isinstance(i, int) else 2.0), self.y[i]"
    },
    "try": {
        "item": "try:\n    return self.x[int(i)], self.y[i]\nexcept Exception:\n    return -self.x[i], self.y[i]"
    },
    "hash of the index": {"item": "return self.x[i] * (hash(i) % 7), self.y[i]"},
    "sum of the row": {"item": "return self.x[i] / self.x[i].sum(), self.y[i]"},
    "norm of the row": {"item": "return self.x[i] / self.x[i].norm(), self.y[i]"},
    "row by condition": {"item": "return (self.x[i] if self.y[i] > 0 else -self.x[i]), self.y[i]"},
    "rolled row": {"item": "return self.x[i].roll(1, 0), self.y[i]"},
    "flipped row": {"item": "return self.x[i].flip(0), self.y[i]"},
    "next row": {"item": "return self.x[(i + 1) % 24], self.y[i]"},
    "row before": {"item": "return self.x[i - 1], self.y[i]"},
    "rows reversed": {"item": "return self.x[-i - 1], self.y[i]"},
    "number for an item": {"item": "return self.x[i], int(self.y[i])"},
    "float for an item": {"item": "return self.x[i].double().float(), self.y[i]"},
    "numpy item": {"item": "return self.x[i].numpy(), self.y[i].item()"},
    "noncontiguous rows": {"above": "x = torch.randn(4, 24).t()"},
    "rows of doubles": {"above": "x = torch.randn(24, 4).double()", "before": "model.double()"},
    "rows with a gradient": {
        "above": "x = torch.randn(24, 4, requires_grad=True)",
        "inside": "print(x.grad.sum().item())",
    },
    "rows that are expanded": {"above": "x = torch.randn(1, 4).expand(24, 4)"},
    "a subclass's item": {
        "before": "class More(Rows):\n    def __getitem__(self, i):\n        a, b = super().__getitem__(i)\n        return a * epoch, b\ndata = More(x, y)\nloader = DataLoader(data, batch_size=8, shuffle=True)"
    },
}

CLAIMS = [
    Claim("data stay as they are", "gpu-data, batched-dataset", TENSORS, WAYS),
    Claim("items are the same each time", "gpu-data, batched-dataset, num-workers", ARRAYS, ITEMS),
]
