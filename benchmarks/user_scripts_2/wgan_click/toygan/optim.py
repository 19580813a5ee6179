import torch


class ExtraAdam(torch.optim.Adam):
    """Adam with extrapolation: extrapolate() moves to a look-ahead point, step() steps from the stored point"""

    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.kept = []

    @torch.no_grad()
    def extrapolate(self):
        if not self.kept:
            for g in self.param_groups:
                for p in g['params']:
                    self.kept.append(p.detach().clone())
        super().step()

    @torch.no_grad()
    def step(self, closure=None):
        if not self.kept:
            raise RuntimeError('extrapolate() first')
        k = 0
        for g in self.param_groups:
            for p in g['params']:
                p.data = self.kept[k]
                k += 1
        self.kept = []
        return super().step(closure)
