"""Items that worker processes fetch are those that the main process would have."""

from benchmarks.ways.claim import Claim

ITEMS = """
class Data(Dataset):
    def __init__(self, n=16):
        self.x = torch.randn(n, 4)
        self.y = torch.randint(0, 3, (n,))
        self.paths = [f"item{i}.pt" for i in range(n)]
        for i, p in enumerate(self.paths):
            torch.save((self.x[i].clone(), self.y[i].clone()), p)
        self.scale, self.epoch, self.seen, self.cache = 1.0, 0, 0, {}
        ...init
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        x, y = torch.load(self.paths[i])
        ...item
        return x * self.scale, y
    ...methods
...above
data = Data()
...data
loader = DataLoader(data, batch_size=4, ARGS)
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
...before
for epoch in range(3):
    ...epoch
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        ...inside
        print(repr(loss.item()))
    ...after
"""
STATE: dict[str, str | dict[str, str]] = {
    "plain": "",
    "scale set each epoch": {"epoch": "data.scale = 1.0 + epoch"},
    "scale set by a method": {
        "methods": "def set(self, e):\n    self.scale = 1.0 + e",
        "epoch": "data.set(epoch)",
    },
    "scale set by the loader": {"epoch": "loader.dataset.scale = 1.0 + epoch"},
    "scale set by setattr": {"epoch": "setattr(data, 'scale', 1.0 + epoch)"},
    "scale set by vars": {"epoch": "vars(data)['scale'] = 1.0 + epoch"},
    "scale set by dict": {"epoch": "data.__dict__['scale'] = 1.0 + epoch"},
    "scale set by update": {"epoch": "data.__dict__.update(scale=1.0 + epoch)"},
    "scale set by object": {"epoch": "object.__setattr__(data, 'scale', 1.0 + epoch)"},
    "scale set by a function": {
        "above": "def go(d, e):\n    d.scale = 1.0 + e",
        "epoch": "go(data, epoch)",
    },
    "scale set by a callback": {
        "above": "class C:\n    def __init__(self, d):\n        self.d = d\n    def on_epoch(self, e):\n        self.d.scale = 1.0 + e",
        "before": "cs = [C(data)]",
        "epoch": "for c in cs:\n    c.on_epoch(epoch)",
    },
    "scale set by a hook": {
        "before": "model.register_forward_hook(lambda *a: setattr(data, 'scale', data.scale + 0.1))"
    },
    "scale set by an exec": {"epoch": "exec('data.scale = 1.0 + epoch')"},
    "scale set by attrgetter": {
        "epoch": "operator.attrgetter('dataset')(loader).scale = 1.0 + epoch"
    },
    "scale set by methodcaller": {
        "epoch": "operator.methodcaller('__setattr__', 'scale', 1.0 + epoch)(data)"
    },
    "scale set by a partial": {
        "before": "f = functools.partial(setattr, data, 'scale')",
        "epoch": "f(1.0 + epoch)",
    },
    "scale set by a thread": {
        "epoch": "t = threading.Thread(target=setattr, args=(data, 'scale', 1.0 + epoch))\nt.start()\nt.join()"
    },
    "scale of the class": {
        "epoch": "Data.factor = 1.0 + epoch",
        "item": "x = x * getattr(type(self), 'factor', 1)",
    },
    "scale of a global": {
        "above": "factor = 1.0",
        "item": "x = x * factor",
        "epoch": "factor = 1.0 + epoch",
    },
    "scale of a global by globals": {
        "above": "factor = 1.0",
        "item": "x = x * factor",
        "epoch": "globals()['factor'] = 1.0 + epoch",
    },
    "scale of a global list": {
        "above": "factor = [1.0]",
        "item": "x = x * factor[0]",
        "epoch": "factor[0] += epoch",
    },
    "scale of a global tensor": {
        "above": "factor = torch.ones(1)",
        "item": "x = x * factor",
        "epoch": "factor += epoch",
    },
    "scale of a global tensor, shared": {
        "above": "factor = torch.ones(1).share_memory_()",
        "item": "x = x * factor",
        "epoch": "factor += epoch",
    },
    "scale of a global array": {
        "above": "factor = np.ones(1)",
        "item": "x = x * float(factor[0])",
        "epoch": "factor += epoch",
    },
    "scale of a global array by out": {
        "above": "factor = np.ones(1)",
        "item": "x = x * float(factor[0])",
        "epoch": "np.add(factor, epoch, out=factor)",
    },
    "scale of a global array by copyto": {
        "above": "factor = np.ones(1)",
        "item": "x = x * float(factor[0])",
        "epoch": "np.copyto(factor, epoch + 1)",
    },
    "scale of a config": {
        "above": "cfg = types.SimpleNamespace(f=1.0)",
        "item": "x = x * cfg.f",
        "epoch": "cfg.f += epoch",
    },
    "scale of a config given": {
        "above": "cfg = {'f': 1.0}",
        "init": "self.cfg = cfg",
        "item": "x = x * self.cfg['f']",
        "epoch": "cfg['f'] += epoch",
    },
    "scale of a config updated": {
        "above": "cfg = {'f': 1.0}",
        "init": "self.cfg = cfg",
        "item": "x = x * self.cfg['f']",
        "epoch": "cfg.update(f=1.0 + epoch)",
    },
    "scale of a config, |=": {
        "above": "cfg = {'f': 1.0}",
        "init": "self.cfg = cfg",
        "item": "x = x * self.cfg['f']",
        "epoch": "cfg |= {'f': 1.0 + epoch}",
    },
    "scale of a default": {
        "above": "cfg = {'f': 1.0}\ndef scaled(x, c=cfg):\n    return x * c['f']",
        "item": "x = scaled(x)",
        "epoch": "cfg['f'] += 1",
    },
    "scale of the environment": {
        "item": "import os\nx = x * float(os.environ.get('F', 1))",
        "epoch": "import os\nos.environ['F'] = str(1 + epoch)",
    },
    "scale of the environment, putenv": {
        "item": "import os\nx = x * float(os.getenv('F', '1'))",
        "epoch": "import os\nos.environ.update(F=str(1 + epoch))",
    },
    "scale of a module": {
        "item": "import math\nx = x * getattr(math, 'factor', 1)",
        "epoch": "import math\nmath.factor = 1.0 + epoch",
    },
    "scale of the file": {
        "item": "import os\nif os.path.exists('f.txt'):\n    x = x * float(open('f.txt').read())",
        "epoch": "open('f.txt', 'w').write(str(1 + epoch))",
    },
    "scale of the model": {
        "item": "x = x * float(model.bias.detach()[0].cpu() * 0 + 1)",
        "epoch": "",
    },
    "items by the model": {"item": "x = x + model.weight.detach()[0].cpu()"},
    "items by a copy of the model": {
        "item": "x = x + net.weight.detach()[0].cpu()",
        "before": "net = copy.deepcopy(model).cpu()",
        "epoch": "net.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})",
    },
    "files change": {"epoch": "torch.save((torch.ones(4) * epoch, torch.tensor(1)), 'item0.pt')"},
    "files change in the loop": {
        "inside": "torch.save((torch.ones(4) * i, torch.tensor(1)), 'item15.pt')"
    },
    "paths change": {"epoch": "data.paths.reverse()"},
    "paths are shuffled": {"epoch": "random.shuffle(data.paths)"},
    "paths are replaced": {"epoch": "data.paths = data.paths[::-1]"},
    "paths are fewer": {"epoch": "data.paths.pop()"},
    "paths are more": {"epoch": "data.paths.append(data.paths[0])"},
    "paths change in the loop": {"inside": "data.paths[-1] = data.paths[0]"},
    "paths by a slice": {"epoch": "data.paths[:] = data.paths[::-1]"},
    "paths by sort": {
        "epoch": "data.paths.sort(key=lambda p: hash(p) * 0 + len(p) * (1 - 2 * (epoch % 2)))"
    },
    "paths by a name": {"before": "ps = data.paths", "epoch": "ps.reverse()"},
    "paths by a name before": {
        "above": "ps = []",
        "init": "ps[:] = self.paths\nself.paths = ps",
        "epoch": "ps.reverse()",
    },
    "paths by a deque": {
        "init": "self.paths = collections.deque(self.paths)",
        "epoch": "data.paths.rotate(1)",
    },
    "paths by a numpy array": {
        "init": "self.paths = np.array(self.paths)",
        "epoch": "np.random.shuffle(data.paths)",
    },
    "paths by a method": {
        "methods": "def mix(self):\n    random.shuffle(self.paths)",
        "epoch": "data.mix()",
    },
    "paths by len": {
        "methods": "def more(self):\n    return self.paths.pop()",
        "epoch": "data.more()",
    },
    "a subset's indices": {
        "data": "whole = data\ndata = torch.utils.data.Subset(whole, list(range(8)))",
        "epoch": "random.shuffle(data.indices)",
    },
    "a subset's indices, kept": {
        "data": "ix = list(range(8))\ndata = torch.utils.data.Subset(data, ix)",
        "epoch": "ix.reverse()",
    },
    "a subset's dataset": {
        "data": "whole = data\ndata = torch.utils.data.Subset(whole, list(range(8)))",
        "epoch": "whole.scale = 1.0 + epoch",
    },
    "a concat's dataset": {
        "data": "whole = data\ndata = torch.utils.data.ConcatDataset([whole, whole])",
        "epoch": "whole.scale = 1.0 + epoch",
    },
    "a wrapper's dataset": {
        "above": "class W(Dataset):\n    def __init__(self, d):\n        self.d = d\n    def __len__(self):\n        return len(self.d)\n    def __getitem__(self, i):\n        return self.d[i]",
        "data": "whole = data\ndata = W(whole)",
        "epoch": "whole.scale = 1.0 + epoch",
    },
    "a wrapper by getattr": {
        "above": "class W(Dataset):\n    def __init__(self, d):\n        self.d = d\n    def __len__(self):\n        return len(self.d)\n    def __getattr__(self, n):\n        return getattr(self.__dict__['d'], n)\n    def __getitem__(self, i):\n        return self.d[i]",
        "data": "whole = data\ndata = W(whole)",
        "epoch": "whole.scale = 1.0 + epoch",
    },
    "counts items": {"item": "self.seen += 1", "after": "print(data.seen)"},
    "counts items in a global": {
        "above": "seen = collections.Counter()",
        "item": "seen[i] += 1",
        "after": "print(sum(seen.values()))",
    },
    "counts items in a class": {
        "item": "Data.n = getattr(Data, 'n', 0) + 1",
        "after": "print(getattr(Data, 'n', 0))",
    },
    "counts items in a list": {
        "above": "seen = []",
        "item": "seen.append(i)",
        "after": "print(len(seen))",
    },
    "counts items in a default": {
        "above": "def note(i, seen=[]):\n    seen.append(i)\n    return len(seen)",
        "item": "note(i)",
        "after": "print(note(0))",
    },
    "counts items in a closure": {
        "above": "def counter():\n    n = 0\n    def f():\n        nonlocal n\n        n += 1\n        return n\n    return f\ncount = counter()",
        "item": "count()",
        "after": "print(count())",
    },
    "counts items by itertools": {
        "above": "count = itertools.count()",
        "item": "next(count)",
        "after": "print(next(count))",
    },
    "counts items in an attribute of a function": {
        "above": "def note():\n    note.n += 1\nnote.n = 0",
        "item": "note()",
        "after": "print(note.n)",
    },
    "counts items in a tensor": {
        "init": "self.n = torch.zeros(1)",
        "item": "self.n += 1",
        "after": "print(data.n.item())",
    },
    "counts items in an array": {
        "init": "self.n = np.zeros(1)",
        "item": "self.n[0] += 1",
        "after": "print(data.n)",
    },
    "counts items in a file": {
        "item": "open('log.txt', 'a').write('.')",
        "after": "print(len(open('log.txt').read()))",
    },
    "counts items by setdefault": {
        "item": "self.cache.setdefault(i, len(self.cache))",
        "after": "print(len(data.cache))",
    },
    "counts items by print": {"item": "print(i)"},
    "counts items in a lock": {
        "above": "lock = threading.Lock()\nn = [0]",
        "item": "with lock:\n    n[0] += 1",
        "after": "print(n)",
    },
    "counts items in a queue": {
        "above": "q = queue.Queue()",
        "item": "q.put(i)",
        "after": "print(q.qsize())",
    },
    "counts items by a logger": {
        "above": "import logging\nclass H(logging.Handler):\n    n = 0\n    def emit(self, r):\n        H.n += 1\nlog = logging.getLogger('a')\nlog.addHandler(H())\nlog.setLevel(10)",
        "item": "log.info('i')",
        "after": "print(H.n)",
    },
    "counts calls of the transform": {
        "above": "class T:\n    n = 0\n    def __call__(self, x):\n        self.n += 1\n        return x",
        "init": "self.t = T()",
        "item": "x = self.t(x)",
        "after": "print(data.t.n)",
    },
    "counts calls of the collate": {
        "above": "calls = []\ndef collate(items):\n    calls.append(1)\n    return torch.utils.data.default_collate(items)",
        "data": "DataLoader = functools.partial(DataLoader, collate_fn=collate)",
        "after": "print(len(calls))",
    },
    "caches items": {
        "item": "if i in self.cache:\n    return self.cache[i]\nself.cache[i] = (x, y)",
        "after": "print(len(data.cache))",
    },
    "caches items quietly": {
        "item": "if i in self.cache:\n    return self.cache[i]\nself.cache[i] = (x, y)"
    },
    "caches items by lru": {
        "above": "@functools.lru_cache(None)\ndef load(p):\n    return torch.load(p)",
        "item": "x, y = load(self.paths[i])",
    },
    "caches items by lru, asked": {
        "above": "@functools.lru_cache(None)\ndef load(p):\n    return torch.load(p)",
        "item": "x, y = load(self.paths[i])",
        "after": "print(load.cache_info().misses)",
    },
    "caches items, written": {
        "above": "@functools.lru_cache(None)\ndef load(p):\n    return torch.load(p)",
        "item": "x, y = load(self.paths[i])\nx += 1",
    },
    "depends on the last item": {"item": "last, self.seen = self.seen, i\nx = x + last / 10"},
    "depends on the last item, global": {
        "above": "last = 0",
        "item": "global last\nx = x + last / 10\nlast = i",
    },
    "draws by torch": {"item": "x = x + torch.randn(4)"},
    "draws by numpy": {"item": "x = x + float(np.random.rand())"},
    "draws by random": {"item": "x = x + random.random()"},
    "draws by a generator": {
        "init": "self.g = torch.Generator().manual_seed(0)",
        "item": "x = x + torch.randn(4, generator=self.g)",
    },
    "draws by a numpy generator": {
        "init": "self.g = np.random.default_rng(0)",
        "item": "x = x + float(self.g.random())",
    },
    "draws by a Random": {"init": "self.g = random.Random(0)", "item": "x = x + self.g.random()"},
    "draws by a generator of a module": {
        "above": "G = np.random.RandomState(0)",
        "item": "x = x + float(G.rand())",
    },
    "draws by a generator of a default": {
        "above": "def noise(g=np.random.RandomState(0)):\n    return float(g.rand())",
        "item": "x = x + noise()",
    },
    "draws by a generator made each time": {
        "item": "x = x + float(np.random.RandomState(i).rand())"
    },
    "draws by a seed of the item": {"item": "torch.manual_seed(i)\nx = x + torch.randn(4)"},
    "draws by a seed of the item, numpy": {
        "item": "np.random.seed(i)\nx = x + float(np.random.rand())"
    },
    "draws by a seed of the item, random": {"item": "random.seed(i)\nx = x + random.random()"},
    "draws by a seed of the epoch": {
        "item": "g = torch.Generator().manual_seed(self.epoch * 100 + i)\nx = x + torch.randn(4, generator=g)",
        "epoch": "data.epoch = epoch",
    },
    "draws by fork_rng": {
        "item": "with torch.random.fork_rng():\n    torch.manual_seed(i)\n    x = x + torch.randn(4)"
    },
    "draws by a hash": {"item": "x = x + (hash(i) % 7) / 7"},
    "draws by the initial seed": {"item": "x = x + (torch.initial_seed() % 7) / 7"},
    "draws by time": {"item": "import time\nx = x + 0 * time.time()"},
    "draws by uuid": {"item": "import uuid\nx = x + 0 * float(uuid.uuid4().int % 2)"},
    "draws by secrets": {"item": "import secrets\nx = x + 0 * float(secrets.randbelow(2))"},
    "draws by os": {"item": "import os\nx = x + 0 * float(os.urandom(1)[0])"},
    "draws by a distribution": {"item": "x = x + torch.distributions.Normal(0.0, 1.0).sample()"},
    "draws by dropout": {"item": "x = F.dropout(x)"},
    "draws by a layer": {"init": "self.d = nn.Dropout()", "item": "x = self.d(x)"},
    "draws by randperm": {"item": "x = x[torch.randperm(4)]"},
    "draws by scipy": {"item": "x = x + float(np.random.default_rng().random() * 0)"},
    "the main draws by torch": {"inside": "print(torch.rand(1).item())"},
    "the main draws by numpy": {"inside": "print(np.random.rand())"},
    "the main draws by random": {"inside": "print(random.random())"},
    "the main draws beside": {
        "item": "x = x + random.random() * 0",
        "inside": "print(random.random())",
    },
    "the main draws beside, numpy": {
        "item": "x = x + float(np.random.rand()) * 0",
        "inside": "print(np.random.rand())",
    },
    "the main draws after": {
        "after": "print(torch.rand(1).item(), random.random(), np.random.rand())"
    },
    "the main makes a layer after": {"after": "print(nn.Linear(2, 2).weight.sum().item())"},
    "the main seeds each epoch": {"epoch": "torch.manual_seed(epoch)"},
    "the main asks the state": {"after": "print(torch.get_rng_state().sum().item())"},
    "shuffled": {"data": "DataLoader = functools.partial(DataLoader, shuffle=True)"},
    "shuffled by a generator": {
        "data": "g = torch.Generator().manual_seed(3)\nDataLoader = functools.partial(DataLoader, shuffle=True, generator=g)",
        "after": "print(torch.rand(1, generator=g).item())",
    },
    "sampled": {
        "data": "DataLoader = functools.partial(DataLoader, sampler=torch.utils.data.RandomSampler(data))"
    },
    "sampled by weights": {
        "data": "w = torch.ones(16)\nDataLoader = functools.partial(DataLoader, sampler=torch.utils.data.WeightedRandomSampler(w, 16))",
        "inside": "w[0] += 1",
    },
    "sampled by a class": {
        "above": "class S(torch.utils.data.Sampler):\n    def __init__(self):\n        self.n = 0\n    def __len__(self):\n        return 16\n    def __iter__(self):\n        for i in range(16):\n            self.n += 1\n            yield (i * 3) % 16",
        "data": "s = S()\nDataLoader = functools.partial(DataLoader, sampler=s)",
        "inside": "print(s.n)",
    },
    "sampled by a class that learns": {
        "above": "class S(torch.utils.data.Sampler):\n    hard = 0\n    def __len__(self):\n        return 16\n    def __iter__(self):\n        for i in range(16):\n            yield (i + self.hard) % 16",
        "data": "s = S()\nDataLoader = functools.partial(DataLoader, sampler=s)",
        "inside": "s.hard += int(loss.item() * 10)",
    },
    "sampled in batches": {
        "above": "class S:\n    def __len__(self):\n        return 4\n    def __iter__(self):\n        for i in range(4):\n            yield [random.randrange(16) for _ in range(4)]",
        "before": "loader = DataLoader(data, batch_sampler=S(), num_workers=0)",
        "inside": "print(random.random())",
    },
    "the loader is left": {"inside": "if i == 1:\n    break"},
    "the loader is left, drawing": {
        "item": "x = x + 0 * torch.rand(1)",
        "inside": "if i == 1:\n    break",
        "after": "print(torch.rand(1).item())",
    },
    "the loader is iterated in itself": {"inside": "print(sum(b.sum().item() for _, b in loader))"},
    "the loader is iterated twice": {"after": "print(sum(b.sum().item() for _, b in loader))"},
    "two iterators at once": {
        "after": "for (a, _), (b, _) in zip(loader, loader):\n    print((a + b).sum().item())"
    },
    "an iterator kept": {
        "before": "it = iter(loader)",
        "inside": "try:\n    print(next(it)[1].sum().item())\nexcept StopIteration:\n    it = iter(loader)",
    },
    "a first batch": {"before": "x0, y0 = next(iter(loader))\nprint(x0.sum().item())"},
    "length": {"epoch": "print(len(loader), len(data))"},
    "attributes of the loader": {"epoch": "print(loader.batch_size, loader.drop_last)"},
    "number of workers": {"epoch": "print(loader.num_workers)"},
    "the iterator's class": {"epoch": "print(type(iter(loader)).__name__ != '')"},
    "worker info": {
        "item": "info = torch.utils.data.get_worker_info()\nx = x + (0 if info is None else 1)"
    },
    "the process": {"item": "import os\nx = x + 0 * os.getpid()"},
    "the process's name": {
        "item": "import multiprocessing as mp\nx = x + (0 if mp.current_process().name == 'MainProcess' else 1)"
    },
    "an error that is caught": {
        "item": "if i == 5:\n    raise ValueError('five')",
        "epoch": "try:\n    list(loader)\nexcept ValueError as e:\n    print('caught')\n    break",
    },
    "an error by index": {
        "item": "if i == 5:\n    raise IndexError('five')",
        "epoch": "try:\n    list(loader)\nexcept IndexError as e:\n    print('caught')\n    break",
    },
    "an error by key": {
        "item": "if i == 5:\n    raise KeyError('five')",
        "epoch": "try:\n    list(loader)\nexcept KeyError as e:\n    print('caught')\n    break",
    },
    "an error of its own": {
        "above": "class E(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\n        self.b = b",
        "item": "if i == 5:\n    raise E('five', 5)",
        "epoch": "try:\n    list(loader)\nexcept E as e:\n    print('caught', e.b)\n    break",
    },
    "an open file": {
        "init": "self.f = open(__file__)",
        "item": "self.f.seek(i)\nx = x + len(self.f.read(1))",
    },
    "an open file, made when needed": {
        "init": "self.f = None",
        "item": "if self.f is None:\n    self.f = open('train.py')\nself.f.seek(i)\nx = x + len(self.f.read(1))",
    },
    "a database": {
        "init": "import sqlite3\nself.d = sqlite3.connect(':memory:')\nself.d.execute('create table t (v)')\nself.d.execute('insert into t values (1)')",
        "item": "x = x + self.d.execute('select v from t').fetchone()[0]",
    },
    "a memory map": {
        "init": "np.save('m.npy', np.ones(16))\nself.m = np.load('m.npy', mmap_mode='r+')",
        "item": "x = x + float(self.m[i])",
        "epoch": "data.m += 1",
    },
    "a lambda": {"init": "self.t = lambda v: v * 2", "item": "x = self.t(x)"},
    "a generator held": {
        "init": "self.n = (k for k in itertools.count())",
        "item": "x = x + next(self.n) / 10",
    },
    "an iterator held": {
        "init": "self.n = itertools.cycle([1, 2, 3])",
        "item": "x = x + next(self.n)",
    },
    "a weak reference": {"init": "self.w = weakref.ref(self)", "item": "x = x * self.w().scale"},
    "a property that counts": {
        "methods": "@property\ndef n(self):\n    self.seen += 1\n    return self.seen",
        "item": "x = x + self.n / 100",
    },
    "a descriptor that counts": {
        "above": "class N:\n    def __get__(self, o, t):\n        o.seen += 1\n        return o.seen\nData.n = N()",
        "item": "x = x + self.n / 100",
    },
    "getattr that counts": {
        "methods": "def __getattr__(self, n):\n    if n != 'late':\n        raise AttributeError(n)\n    self.__dict__['seen'] += 1\n    return self.seen",
        "item": "x = x + self.late / 100",
    },
    "getattribute that counts": {
        "methods": "def __getattribute__(self, n):\n    d = object.__getattribute__(self, '__dict__')\n    if n == 'scale':\n        d['seen'] = d.get('seen', 0) + 1\n    return object.__getattribute__(self, n)",
        "after": "print(data.seen)",
    },
    "getitem is wrapped": {
        "data": "get = Data.__getitem__\ndef noted(self, i):\n    self.seen += 1\n    return get(self, i)\nData.__getitem__ = noted",
        "after": "print(data.seen)",
    },
    "getitem is decorated": {
        "above": "def noted(f):\n    def g(self, i):\n        self.seen += 1\n        return f(self, i)\n    return g\nData.__getitem__ = noted(Data.__getitem__)",
        "after": "print(data.seen)",
    },
    "getitem draws by a decorator": {
        "above": "def noisy(f):\n    def g(self, i):\n        x, y = f(self, i)\n        return x + random.random(), y\n    return g\nData.__getitem__ = noisy(Data.__getitem__)"
    },
    "getitem of a subclass": {
        "above": "class Other(Data):\n    def __getitem__(self, i):\n        self.seen += 1\n        return super().__getitem__(i)",
        "data": "data = Other()",
        "after": "print(data.seen)",
    },
    "getitem on the device": {"item": "x = x.to(device)"},
    "getitem asks for CUDA": {"item": "x = x * (1 if torch.cuda.is_available() else 2)"},
    "items are long": {"item": "x = x.expand(4)"},
    "items share memory": {"item": "return self.x[i], y"},
    "items share memory, written": {
        "item": "return self.x[i], y",
        "before": "loader = DataLoader(data, batch_size=None, num_workers=0)",
        "epoch": "for a, b in loader:\n    a += 1\nprint(data.x.sum().item())\nbreak",
    },
    "items are objects": {
        "above": "class P:\n    def __init__(self, x):\n        self.x = x\ndef collate(items):\n    return [P(a) for a, _ in items], torch.stack([b for _, b in items])",
        "before": "loader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "epoch": "for ps, b in loader:\n    print(sum(p.x.sum().item() for p in ps), b.sum().item())\nbreak",
    },
    "items are identities": {
        "above": "mark = object()\ndef collate(items):\n    return mark, torch.stack([b for _, b in items])",
        "before": "loader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "epoch": "for m, b in loader:\n    print(m is mark)\nbreak",
    },
    "items are generators": {
        "above": "def collate(items):\n    return (a for a, _ in items), torch.stack([b for _, b in items])",
        "before": "loader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "epoch": "for m, b in loader:\n    print(sum(v.sum().item() for v in m))\nbreak",
    },
    "collate is a lambda": {
        "before": "loader = DataLoader(data, batch_size=4, collate_fn=lambda items: torch.utils.data.default_collate(items))"
    },
    "collate is a closure": {
        "before": "def made():\n    k = 2.0\n    def collate(items):\n        a, b = torch.utils.data.default_collate(items)\n        return a * k, b\n    return collate\nloader = DataLoader(data, batch_size=4, collate_fn=made())"
    },
    "collate draws": {
        "before": "def collate(items):\n    random.shuffle(items)\n    return torch.utils.data.default_collate(items)\nloader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "inside": "print(random.random())",
    },
    "collate reads a global": {
        "above": "k = 1.0",
        "before": "def collate(items):\n    a, b = torch.utils.data.default_collate(items)\n    return a * k, b\nloader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "epoch": "k = 1.0 + epoch",
    },
    "collate reads a global in the loop": {
        "above": "k = 1.0",
        "before": "def collate(items):\n    a, b = torch.utils.data.default_collate(items)\n    return a * k, b\nloader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "inside": "k += 0.1",
    },
    "collate reads the model's mode": {
        "before": "def collate(items):\n    a, b = torch.utils.data.default_collate(items)\n    return a * (1 if model.training else 2), b\nloader = DataLoader(data, batch_size=4, collate_fn=collate)",
        "epoch": "model.train(epoch % 2 == 0)",
    },
    "an init function": {
        "before": "def init(w):\n    random.seed(w)\nloader = DataLoader(data, batch_size=4, worker_init_fn=init)"
    },
    "scale set in the loop": {"inside": "data.scale += 0.1"},
    "scale set in the loop by a scheduler": {
        "above": "class Sched:\n    def __init__(self, d):\n        self.d = d\n    def step(self):\n        self.d.scale *= 1.1",
        "before": "sched = Sched(data)",
        "inside": "sched.step()",
    },
    "scale set in the loop by the loss": {"inside": "data.scale = 1.0 + loss.item() / 10"},
    "scale set at the last batch": {"inside": "if i == len(loader) - 1:\n    data.scale += 1"},
    "weights per item": {
        "init": "self.w = torch.ones(16)",
        "item": "x = x * self.w[i]",
        "inside": "data.w[i] += 1",
    },
    "weights per item, list": {
        "init": "self.w = [1.0] * 16",
        "item": "x = x * self.w[i]",
        "inside": "data.w[15 - i] = loss.item()",
    },
    "labels are refined": {
        "init": "self.labels = [0] * 16",
        "item": "y = torch.tensor(self.labels[i])",
        "after": "data.labels = [(v + 1) % 3 for v in data.labels]",
    },
    "labels are refined in place": {
        "init": "self.labels = torch.zeros(16, dtype=torch.long)",
        "item": "y = self.labels[i].clone()",
        "after": "data.labels.add_(1).remainder_(3)",
    },
    "a mode": {
        "init": "self.train = True",
        "item": "if not self.train:\n    x = x * 0",
        "after": "data.train = False\nprint(sum(a.sum().item() for a, _ in loader))\ndata.train = True",
    },
    "a mode by a method": {
        "init": "self.train = True",
        "methods": "def eval(self):\n    self.train = False\n    return self",
        "item": "if not self.train:\n    x = x * 0",
        "after": "data.eval()",
    },
    "a mode of a transform": {
        "above": "class T:\n    on = True\n    def __call__(self, x):\n        return x * 2 if self.on else x",
        "init": "self.t = T()",
        "item": "x = self.t(x)",
        "epoch": "data.t.on = epoch % 2 == 0",
    },
    "a mode of a transform by a name": {
        "above": "class T:\n    on = True\n    def __call__(self, x):\n        return x * 2 if self.on else x\nt = T()",
        "init": "self.t = t",
        "item": "x = self.t(x)",
        "epoch": "t.on = epoch % 2 == 0",
    },
    "transforms are replaced": {
        "init": "self.t = torch.abs",
        "item": "x = self.t(x)",
        "epoch": "data.t = torch.neg if epoch else torch.abs",
    },
    "transforms are appended": {
        "init": "self.ts = [torch.abs]",
        "item": "for t in self.ts:\n    x = t(x)",
        "epoch": "data.ts.append(torch.neg)",
    },
}


def with_args(said: str) -> str:
    return ITEMS.replace("ARGS", said)


CLAIMS = [
    Claim(
        "workers give the same items",
        "num-workers, prefetch-factor",
        with_args("num_workers=0"),
        STATE,
        configs=("forced workers",),
    ),
    Claim(
        "workers that stay give the same items",
        "persistent-workers",
        with_args("num_workers=2"),
        STATE,
        configs=("kept workers",),
    ),
]
