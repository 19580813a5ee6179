# seq2seq with attention: numbers spelled as letters -> sorted letters
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, SOS, EOS = 0, 1, 2
VOCAB = 13
HIDDEN = 48
EPOCHS = 6
CLIP = 0.5
TEACHER_FORCING = 0.6
random.seed(1)
torch.manual_seed(1)


class SortedLetters(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.pairs = []
        for _ in range(count):
            word = [rng.randrange(3, VOCAB) for _ in range(rng.randint(2, 7))]
            self.pairs.append((torch.tensor(word), torch.tensor([*sorted(word), EOS])))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def collate(items):
    src, tgt = zip(*items)
    lengths = torch.tensor([len(s) for s in src])
    return pad_sequence(src, batch_first=True), lengths, pad_sequence(tgt, batch_first=True)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 24, padding_idx=PAD)
        self.dropout = nn.Dropout(0.1)
        self.rnn = nn.GRU(24, HIDDEN, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, src, lengths):
        embedded = self.dropout(self.embedding(src))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        outputs, hidden = self.rnn(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        hidden = torch.tanh(self.fc(torch.cat([hidden[0], hidden[1]], dim=1)))
        return outputs, hidden


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(2 * HIDDEN, HIDDEN)
        self.score = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, hidden, outputs, mask):
        energy = torch.tanh(self.query(hidden).unsqueeze(1) + self.key(outputs))
        scores = self.score(energy).squeeze(2).masked_fill(mask == 0, -1e9)
        weights = F.softmax(scores, dim=1)
        return torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 24, padding_idx=PAD)
        self.dropout = nn.Dropout(0.1)
        self.attention = Attention()
        self.rnn = nn.GRUCell(24 + 2 * HIDDEN, HIDDEN)
        self.out = nn.Linear(3 * HIDDEN, VOCAB)

    def forward(self, token, hidden, outputs, mask):
        embedded = self.dropout(self.embedding(token))
        context = self.attention(hidden, outputs, mask)
        hidden = self.rnn(torch.cat([embedded, context], dim=1), hidden)
        return self.out(torch.cat([hidden, context], dim=1)), hidden


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, src, lengths, tgt, teacher_forcing=0.0):
        outputs, hidden = self.encoder(src, lengths)
        mask = src != PAD
        token = torch.full((src.size(0),), SOS)
        logits = []
        for t in range(tgt.size(1)):
            step, hidden = self.decoder(token, hidden, outputs, mask)
            logits.append(step)
            teacher = random.random() < teacher_forcing
            token = tgt[:, t] if teacher else step.argmax(dim=1)
        return torch.stack(logits, dim=1)


def train_epoch(model, loader, optimizer, criterion):
    model.train()
    epoch_loss = 0
    for src, lengths, tgt in loader:
        optimizer.zero_grad()
        output = model(src, lengths, tgt, TEACHER_FORCING)
        loss = criterion(output.reshape(-1, VOCAB), tgt.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        epoch_loss += loss.item()
    return epoch_loss / len(loader)


def evaluate(model, loader, criterion):
    model.eval()
    epoch_loss, right, tokens, whole, seen = 0, 0, 0, 0, 0
    with torch.no_grad():
        for src, lengths, tgt in loader:
            output = model(src, lengths, tgt)
            epoch_loss += criterion(output.reshape(-1, VOCAB), tgt.reshape(-1)).item() * (tgt != PAD).sum().item()
            hit = (output.argmax(2) == tgt) & (tgt != PAD)
            right += hit.sum().item()
            tokens += (tgt != PAD).sum().item()
            whole += (hit.sum(1) == (tgt != PAD).sum(1)).sum().item()
            seen += src.size(0)
    return epoch_loss / tokens, right / tokens, whole / seen


train_loader = DataLoader(SortedLetters(720, 10), batch_size=32, shuffle=True, collate_fn=collate)
valid_loader = DataLoader(SortedLetters(150, 20), batch_size=64, collate_fn=collate)
model = Seq2Seq()
for name, param in model.named_parameters():
    if "weight" in name:
        nn.init.normal_(param.data, mean=0, std=0.1)
    else:
        nn.init.constant_(param.data, 0)
optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.85)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
best_valid = float("inf")
for epoch in range(EPOCHS):
    start = time.time()
    train_loss = train_epoch(model, train_loader, optimizer, criterion)
    valid_loss, token_acc, word_acc = evaluate(model, valid_loader, criterion)
    scheduler.step()
    if valid_loss < best_valid:
        best_valid = valid_loss
        torch.save(model.state_dict(), "interpreter.pt")
    print(f"Epoch: {epoch + 1:02} | Time: {time.time() - start:.1f}s")
    print(f"\tTrain Loss: {train_loss:.4f} | Train PPL: {math.exp(train_loss):7.3f}")
    print(f"\t Val. Loss: {valid_loss:.4f} |  Val. PPL: {math.exp(valid_loss):7.3f} | tokens {token_acc:.3f} | words {word_acc:.3f}")
