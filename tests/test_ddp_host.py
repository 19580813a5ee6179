"""What scripts do outside their process is done once by several processes, wherever in the script
it is done.
"""

from __future__ import annotations

import pytest

from tests.ranks import refused, shared

pytest.importorskip("torch")

HEAD = """
import csv
import json
import logging
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{imports}

torch.manual_seed(0)
{setup}
data = TensorDataset(torch.randn(24, 3), torch.randint(0, 2, (24,)))
loader = DataLoader(data, batch_size=6, shuffle=True)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{batch}
{epoch}
{after}
"""


def script(
    imports: str = "",
    setup: str = "",
    before: str = "",
    batch: str = "",
    epoch: str = "",
    after: str = "",
) -> str:
    def inside(code: str, depth: int) -> str:
        return "\n".join(" " * depth + line for line in code.splitlines())

    text = HEAD.replace("{imports}", imports).replace("{setup}", setup).replace("{before}", before)
    return (
        text.replace("{batch}", inside(batch, 8))
        .replace("{epoch}", inside(epoch, 4))
        .replace("{after}", after)
    )


# ---------------------------------------------------------------------------------- what is written
@pytest.mark.parametrize(
    "parts",
    [
        {"epoch": "print(epoch)"},
        {
            "setup": "print('start', file=sys.stdout)",
            "after": "sys.stdout.write('end')\nsys.stdout.flush()",
        },
        {"epoch": "if epoch:\n    print('second')\nelse: print('first')"},
        {"batch": "print(i, end=' ')"},
        {"setup": "say = lambda text: print(text)", "epoch": "say(epoch)"},
        {"epoch": "torch.save(model.state_dict(), f'{epoch}.pt')"},
        {
            "epoch": "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'loss': loss.item()}, 'last.pt')"
        },
        {"setup": "os.makedirs('out')", "after": "torch.save(model, 'out/model.pt')"},
        {
            "setup": "if not os.path.exists('out'):\n    os.makedirs('out')",
            "after": "np.save('out/w.npy', model.weight.detach().numpy())",
        },
        {
            "setup": "Path('out').mkdir(parents=True)",
            "after": "Path('out/done.txt').write_text('done')",
        },
        {
            "setup": "log = open('log.txt', 'w')",
            "batch": "log.write(f'{i}\\n')",
            "after": "log.close()",
        },
        {
            "setup": "file = open('log.csv', 'w')\nrows = csv.writer(file)",
            "epoch": "rows.writerow([epoch, 1])",
            "after": "file.close()",
        },
        {"after": "with open('a.json', 'w') as f:\n    json.dump({'epochs': 2}, f)"},
        {"after": "with open('a.pkl', 'wb') as f:\n    pickle.dump([1, 2], f)"},
        {
            "setup": "log = open(file='log.txt', mode='w')",
            "epoch": "print(epoch, file=log)",
            "after": "log.close()",
        },
        {"epoch": "torch.save(model.state_dict(), 'a.pt')\nshutil.copyfile('a.pt', 'b.pt')"},
        {
            "setup": "logger = logging.getLogger('a')\nlogger.addHandler(logging.FileHandler('a.log'))",
            "epoch": "logger.error('epoch %d', epoch)",
        },
        {
            "setup": "logging.basicConfig(filename='b.log', level=logging.INFO)",
            "epoch": "logging.info('epoch %d', epoch)",
        },
    ],
    ids=lambda parts: next(iter(parts.values()))[:30],
)
def test_once(parts: dict[str, str]):
    done = shared(script(**parts))
    assert done.world.written[0] or done.said
    assert [name for name in done.world.written[1] if "." in name] == []


def test_neighbours_stand_under_one_guard():
    done = shared(
        script(after="print('a')\nprint('b')\ntorch.save(model, 'm.pt')\nmodel.eval()\nprint('c')")
    )
    assert done.text.count("if RANK == 0:") == 2
    assert (
        "if RANK == 0:\n    print('a')\n    print('b')\n    torch.save(model, 'm.pt')\nmodel.eval()"
        in done.text
    )


def test_progress_bars():
    pytest.importorskip("tqdm")
    text = script(
        "from tqdm import tqdm, trange", batch="pass", epoch="tqdm.write('done')"
    ).replace("enumerate(loader)", "enumerate(tqdm(loader))")
    done = shared(text)
    assert "tqdm(loader, disable=RANK != 0)" in done.text
    assert "%" in done.world.ranks[0].stderr and "%" not in done.world.ranks[1].stderr
    text = text.replace("tqdm(loader)", "tqdm(loader, disable=None, desc='a')")
    assert "disable=RANK != 0 or None" in shared(text).text


def test_tensorboard():
    pytest.importorskip("tensorboard")
    where = "writer = SummaryWriter('runs')"
    text = script(
        "from torch.utils.tensorboard import SummaryWriter",
        where,
        batch="writer.add_scalar('loss', loss, i)",
        after="writer.close()",
    )
    made = shared_text(text)
    assert "writer = SummaryWriter('runs') if RANK == 0 else None" in made
    assert (
        "mean_loss = mean_over_ranks(loss)\n        if RANK == 0:\n            writer.add_scalar('loss', mean_loss, i)"
        in made
    )
    assert "uses a writer" in refused(
        text.replace("writer.close()", "print(writer.log_dir)\nhere = writer.log_dir")
    )


def shared_text(text: str) -> str:
    """The rewritten script: names of event files hold the time, so its runs write different
    ones.
    """
    from tests.onerule import apply

    made = apply("ddp", text)
    assert made.fixes, made.refusals
    return made.text


def test_the_best_checkpoint_is_read_again_when_it_is_there():
    after = "model.load_state_dict(torch.load('best.pt'))\nprint(sum(p.sum() for p in model.parameters()).item())"
    done = shared(script(epoch="torch.save(model.state_dict(), 'best.pt')", after=after))
    assert "dist.barrier()  # the file is there\nmodel.load_state_dict" in done.text
    assert any(asked.startswith("barrier") for asked in done.world.collectives[1])


def test_data_that_the_script_makes_are_there_for_all():
    setup = "points = torch.randn(24, 3)\nif not os.path.exists('x.pt'):\n    for k in range(3):\n        torch.save(points, 'x.pt')\nx = torch.load('x.pt')"
    done = shared(
        script(setup=setup).replace("TensorDataset(torch.randn(24, 3)", "TensorDataset(x")
    )
    assert "if from_rank_0(not os.path.exists('x.pt')):" in done.text
    assert done.text.count("# the file is there") == 1


def test_downloads_happen_in_one_process_first():
    setup = "data = torchvision.datasets.FakeNumbers('data', download=True)\nother = torchvision.datasets.FakeNumbers('data2', download=True)"
    made = shared_text(script("import torchvision", setup))
    first = "if LOCAL_RANK > 0:\n    dist.barrier()  # the first process downloads, the others wait\ndata = torchvision"
    assert first in made and made.count("the first process downloads") == 1
    assert "if WORLD_SIZE > 1 and LOCAL_RANK == 0:\n    dist.barrier()\n" in made
    assert made.index("init_process_group") < made.index("the first process downloads")


# --------------------------------------------------------------------------------- other structures
def test_in_functions_and_files():
    files = {
        "helpers.py": """
            import os
            import torch

            class History:
                def __init__(self, path):
                    self.file = open(path, "w")

                def add(self, text):
                    print("history:", text)
                    self.file.write(text + "\\n")

                def close(self):
                    self.file.close()

            def save(model, path):
                if not os.path.isdir("out"):
                    os.mkdir("out")
                torch.save(model.state_dict(), os.path.join("out", path))
            """
    }
    parts = {"imports": "from helpers import History, save", "before": "history = History('h.txt')"}
    done = shared(
        script(
            **parts, epoch="history.add(str(epoch))\nsave(model, 'm.pt')", after="history.close()"
        ),
        files,
    )
    assert "path if RANK == 0 else os.devnull" in done.made.texts["helpers.py"]
    assert "RANK = int(" in done.made.texts["helpers.py"]


EVALUATED = """
def evaluate(model):
    model.eval()
    with torch.no_grad():
        right = model(torch.ones(4, 3)).argmax(1).sum().item()
    model.train()
    return right
"""


# ---------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"setup": "input('go?')"}, "asks the user"),
        ({"after": "os.system('rm x')"}, "outside"),
        ({"imports": "import subprocess", "after": "subprocess.run(['ls'])"}, "outside"),
        (
            {"imports": "import strange", "after": "strange.upload(model)"},
            "whether `strange.upload()`",
        ),
        (
            {"setup": "mode = os.environ.get('M', 'w')\nlog = open('log.txt', mode)"},
            "whether `open()`",
        ),
        ({"setup": "torch.save(torch.randn(3), 'x.pt')"}, "draws random numbers"),
        (  # it would leave the model of one process in another mode
            {"setup": EVALUATED, "epoch": "print(f'right {evaluate(model)}')"},
            "put it into a variable first",
        ),
        ({"epoch": "done = [torch.save(model, 'm.pt'), print('x')]"}, "is used on"),
        (
            {
                "after": "state = {}\ndef show():\n    state['n'] = 1\n    return 1\nprint(state.get('n'), show())"
            },
            "changes something",
        ),
        (
            {
                "batch": "try:\n    loss.item()\n    optimizer.step()\nexcept RuntimeError:\n    continue"
            },
            "is caught on",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(parts: dict[str, str], reason: str):
    assert reason in refused(script(**parts))


def test_commands_that_only_ask_are_no_reason():
    done = shared_text(script(setup="size = os.popen('stty size', 'r').read()"))
    assert "os.popen('stty size', 'r').read()" in done
