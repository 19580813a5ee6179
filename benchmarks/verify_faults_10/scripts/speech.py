"""Letters out of noise: a recurrent net, a loss over all alignments, batches of like lengths."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

BANDS, LETTERS, BLANK = 10, 7, 0


class Utterances(Dataset):
    def __init__(self, count, seed, training):
        gen = torch.Generator().manual_seed(seed)
        voice = torch.randn(LETTERS + 1, BANDS, generator=torch.Generator().manual_seed(0)) * 1.5
        self.items, self.training = [], training
        for _ in range(count):
            n = int(torch.randint(2, 7, (1,), generator=gen))
            text = torch.randint(1, LETTERS + 1, (n,), generator=gen)
            stretch = torch.randint(3, 7, (n,), generator=gen)
            gaps = torch.randint(1, 3, (n,), generator=gen)
            frames = []
            for letter, long, gap in zip(text, stretch.tolist(), gaps.tolist()):
                frames += [voice[letter]] * long + [torch.zeros(BANDS)] * gap
            frames = torch.stack(frames)
            self.items.append((frames + 1.0 * torch.randn(frames.shape, generator=gen), text))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        frames, text = self.items[index]
        if self.training:
            frames = frames.clone()
            at = int(torch.randint(0, BANDS - 2, (1,)))
            frames[:, at : at + 2] = 0
            begin = int(torch.randint(0, len(frames) - 3, (1,)))
            frames[begin : begin + 3] = 0
        return frames, text


class Buckets(Sampler):
    def __init__(self, data, size, seed=0):
        self.lengths = [len(frames) for frames, _ in data.items]
        self.size, self.seed, self.epoch = size, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return (len(self.lengths) + self.size - 1) // self.size

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed + self.epoch)
        jitter = torch.rand(len(self.lengths), generator=gen) * 6
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + jitter[i])
        batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        for b in torch.randperm(len(batches), generator=gen).tolist():
            yield batches[b]


def collate(items):
    frames, texts = zip(*items)
    lengths = torch.tensor([len(f) for f in frames])
    sizes = torch.tensor([len(t) for t in texts])
    return pad_sequence(frames, batch_first=True), lengths, pad_sequence(texts, batch_first=True), sizes


class Hearer(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(BANDS, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Dropout(0.1))
        self.rnn = nn.GRU(hidden, hidden, num_layers=2, bidirectional=True, batch_first=True, dropout=0.15)
        self.out = nn.Linear(2 * hidden, LETTERS + 1)

    def forward(self, frames, lengths):
        packed = pack_padded_sequence(self.front(frames), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(hidden).log_softmax(dim=-1)


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def spell(path):
    letters, before = [], BLANK
    for c in path:
        if c != before and c != BLANK:
            letters.append(c)
        before = c
    return letters


class Training:
    def __init__(self):
        self.data = Utterances(260, 1, True)
        self.buckets = Buckets(self.data, 16)
        self.train_loader = DataLoader(self.data, batch_sampler=self.buckets, collate_fn=collate)
        self.held = DataLoader(Utterances(80, 2, False), batch_size=20, collate_fn=collate)
        self.model = Hearer()
        self.criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=8e-3, weight_decay=1e-2)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.5, patience=0, threshold=0.05)

    def epoch(self, number):
        self.buckets.set_epoch(number)
        self.model.train()
        total, count = 0.0, 0
        for frames, lengths, texts, sizes in self.train_loader:
            out = self.model(frames, lengths)
            loss = self.criterion(out.transpose(0, 1), texts, lengths, sizes)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item() * len(sizes)
            count += len(sizes)
        return total / count

    def judge(self):
        self.model.eval()
        wrong = letters = 0
        with torch.inference_mode():
            for frames, lengths, texts, sizes in self.held:
                best = self.model(frames, lengths).argmax(-1)
                for path, length, text, size in zip(best.tolist(), lengths.tolist(), texts.tolist(), sizes.tolist()):
                    wrong += edits(spell(path[:length]), text[:size])
                    letters += size
        return wrong / letters

    def fit(self, epochs):
        for number in range(epochs):
            loss, rate = self.epoch(number), self.judge()
            self.scheduler.step(rate)
            print(f"epoch {number} loss {loss:.4f} errors {rate:.4f} lr {self.optimizer.param_groups[0]['lr']:.5f}", flush=True)
            torch.save({
                "epoch": number,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            }, "speech.pt")


if __name__ == "__main__":
    torch.manual_seed(7)
    Training().fit(7)
