import torch


class PrefetchLoader:
    """moves the next batch on a side stream (after apex' data_prefetcher / timm); on the CPU it only passes through"""

    def __init__(self, loader, device, noise=0.0):
        self.loader, self.device, self.noise = loader, device, noise
        self.cuda = device.type == 'cuda'

    def __len__(self):
        return len(self.loader)

    @property
    def dataset(self):
        return self.loader.dataset

    def _move(self, batch):
        x, t = batch
        x = x.to(self.device, non_blocking=True)
        return x, {k: v.to(self.device, non_blocking=True) for k, v in t.items()}

    def __iter__(self):
        if not self.cuda:
            for b in self.loader:
                yield self._noisy(*self._move(b))
            return
        stream = torch.cuda.Stream()
        prev = None
        for b in self.loader:
            with torch.cuda.stream(stream):
                nxt = self._move(b)
            if prev is not None:
                yield self._noisy(*prev)
            torch.cuda.current_stream().wait_stream(stream)
            for t in (nxt[0], *nxt[1].values()):
                t.record_stream(torch.cuda.current_stream())
            prev = nxt
        if prev is not None:
            yield self._noisy(*prev)

    def _noisy(self, x, t):
        if self.noise:
            x = x + self.noise * torch.randn(x.shape).to(x.device)      # CPU numbers: same run on each device
        return x, t
