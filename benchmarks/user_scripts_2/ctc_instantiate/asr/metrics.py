from .data import ALPHABET


def greedy(logits, lens):
    out = []
    for row, n in zip(logits.argmax(-1), lens):
        prev, s = 0, ''
        for t in range(n):
            k = row[t].item()
            if k != prev and k != 0:
                s += ALPHABET[k]
            prev = k
        out.append(s)
    return out


def edit(a, b):
    d = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        p, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            p, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, p + (ca != cb))
    return d[-1]
