import torch
import torch.nn as nn


class CRF(nn.Module):
    """Linear-chain CRF; emissions (B, T, K), mask (B, T) with the first step always on."""

    def __init__(self, num_tags):
        super().__init__()
        self.num_tags = num_tags
        self.transitions = nn.Parameter(torch.randn(num_tags, num_tags) * 0.1)   # [from, to]
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.end = nn.Parameter(torch.zeros(num_tags))

    def gold_score(self, emissions, tags, mask):
        B, T, _ = emissions.shape
        idx = torch.arange(B).to(emissions.device)
        score = self.start[tags[:, 0]] + emissions[idx, 0, tags[:, 0]]
        for t in range(1, T):
            step = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[idx, t, tags[:, t]]
            score = score + step * mask[:, t].float()
        last = mask.sum(1) - 1
        return score + self.end[tags[idx, last]]

    def partition(self, emissions, mask):
        T = emissions.shape[1]
        alpha = self.start + emissions[:, 0]
        for t in range(1, T):
            nxt = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, dim=1) + emissions[:, t]
            alpha = torch.where(mask[:, t].unsqueeze(1), nxt, alpha)
        return torch.logsumexp(alpha + self.end, dim=1)

    def forward(self, emissions, tags, mask):
        nll = self.partition(emissions, mask) - self.gold_score(emissions, tags, mask)
        return nll.mean()

    def decode(self, emissions, mask):
        """Viterbi, sentence by sentence."""
        paths = []
        for b in range(emissions.shape[0]):
            n = int(mask[b].sum())
            e = emissions[b, :n]
            score = self.start + e[0]
            back = []
            for t in range(1, n):
                best, arg = (score.unsqueeze(1) + self.transitions).max(dim=0)
                score = best + e[t]
                back.append(arg)
            tag = (score + self.end).argmax().item()
            path = [tag]
            for arg in reversed(back):
                tag = arg[tag].item()
                path.append(tag)
            paths.append(path[::-1])
        return paths
