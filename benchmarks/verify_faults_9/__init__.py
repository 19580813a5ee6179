"""A ninth set, small: pretraining by restoring masked patches beside a labelled task, two loaders, a Trainer of the script's own with callbacks.

Eight wrong and four sound rewrites, written together with the script, before any of them was run; by somebody who knows the judge, so it is not blind: a
kind of script that no set before has. Each run once.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import Case

HERE = Path(__file__).parent / "scripts"


def fault(name: str, *edits: tuple[str, str]) -> Case:
    return Case(name, "restorer", "unknown", edits, folder=HERE)


def sound(name: str, *edits: tuple[str, str]) -> Case:
    return Case(name, "restorer", "unknown", edits, sound=True, folder=HERE)


ELEVENTH = [
    fault("one mask for the whole batch", ("torch.rand(x.shape[0], PATCHES, device=x.device).argsort(1)", "torch.rand(1, PATCHES, device=x.device).argsort(1).expand(x.shape[0], -1)")),
    fault("error of all patches", ("(error * masked).sum() / masked.sum()", "error.mean()")),
    fault("error of the patches that are seen", ("order.argsort(1) >= keep", "order.argsort(1) < keep")),
    fault("evaluated without the average", ("        self.model.load_state_dict(self.average.weights)\n", "")),
    fault("the labelled loader begun anew for each step", ("                try:\n                    labelled = next(second)\n                except StopIteration:\n                    second = iter(self.labelled)\n                    labelled = next(second)\n", "                labelled = next(iter(self.labelled))\n")),
    fault("the last weights in restorer.pt", ('            self.best = figures["restored"]\n', "")),
    fault("the generator not set back after evaluation", ("        torch.set_rng_state(state)\n", "")),
    fault("blank patches have no place", ("(self.blank + self.place).expand(x.shape[0], -1, -1)", "self.blank.expand(x.shape[0], PATCHES, -1)")),
    sound("fused AdamW", ("betas=(0.9, 0.95))", "betas=(0.9, 0.95), fused=True)")),
    sound("average with foreach", ("        for k, v in trainer.model.state_dict().items():\n            self.weights[k].mul_(self.decay).add_(v.detach(), alpha=1 - self.decay)\n",
                                   "        now = [v.detach() for v in trainer.model.state_dict().values()]\n        torch._foreach_mul_(list(self.weights.values()), self.decay)\n        torch._foreach_add_(list(self.weights.values()), now, alpha=1 - self.decay)\n")),
    sound("losses read once an epoch", ("return loss.item(), (both - loss).item()", "return loss.detach(), (both - loss).detach()"),
          ("np.mean(losses, axis=0)", "np.mean([[a.item(), b.item()] for a, b in losses], axis=0)")),
    sound("masks by scatter", ("order.argsort(1) >= keep", "torch.ones(order.shape, dtype=torch.bool, device=x.device).scatter(1, order[:, :keep], False)")),
]  # fmt: skip
