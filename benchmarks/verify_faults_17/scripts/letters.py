"""A recurrent tagger of letters, windows drawn anywhere; words dropped; two members whose mean is judged."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LONG, BATCH, STEPS = 20, 24, 16, 120


def text(n=6000, seed=3):
    g = torch.Generator().manual_seed(seed)
    table = torch.rand(VOCAB, VOCAB, generator=g) ** 6 + 1e-3
    table = table / table.sum(1, keepdim=True)
    out = [0]
    for _ in range(n):
        out.append(int(torch.multinomial(table[out[-1]], 1, generator=g)))
    return torch.tensor(out)


class Member(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB + 1, 16)
        self.drop = nn.Dropout(0.3)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, VOCAB)

    def forward(self, x):
        return self.out(self.rnn(self.drop(self.emb(x)))[0])


def main():
    torch.manual_seed(6)
    words = text()
    train, test = words[:5000], words[5000:]
    members = nn.ModuleList(Member() for _ in range(2))
    opt = torch.optim.AdamW(members.parameters(), lr=4e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    total = 0.0
    for step in range(STEPS):
        members.train()
        at = torch.randint(0, len(train) - LONG - 1, (BATCH,))
        rows = at[:, None] + torch.arange(LONG + 1)
        x, y = train[rows[:, :-1]], train[rows[:, 1:]]
        hide = torch.rand(x.shape) < 0.1
        x = torch.where(hide, VOCAB, x)
        opt.zero_grad()
        loss = sum(F.cross_entropy(m(x).flatten(0, 1), y.flatten()) for m in members)
        loss.backward()
        opt.step()
        warm.step()
        total += loss.item()
        if step % 20 == 19:
            members.eval()
            with torch.no_grad():
                x, y = test[:-1].view(1, -1), test[1:]
                chance = sum(m(x)[0].softmax(1) for m in members) / 2
                nats = F.nll_loss(chance.log(), y).item()
            print(f"step {step + 1} loss {total / 20:.4f} test {nats:.4f}")
            total = 0.0
    torch.save(members.state_dict(), "letters.pt")


if __name__ == "__main__":
    main()
