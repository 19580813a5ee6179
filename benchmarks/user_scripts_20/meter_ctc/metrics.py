"""Decoding and error rates."""


def greedy_decode(logits, widths, alphabet):
    """best path; logits (T, B, S+1) on whatever device the net runs on"""
    texts = []
    for b in range(logits.shape[1]):
        chars, prev = [], 0
        for t in range(int(widths[b]) // 4):
            k = logits[t, b].argmax().item()
            if k != prev and k != 0:
                chars.append(alphabet[k - 1])
            prev = k
        texts.append(''.join(chars))
    return texts


def edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            cur = min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
            prev, row[j] = row[j], cur
    return row[-1]


def error_rates(pred, true):
    edits = sum(edit_distance(p, t) for p, t in zip(pred, true))
    chars = sum(len(t) for t in true)
    wrong = sum(p != t for p, t in zip(pred, true))
    return edits, chars, wrong
