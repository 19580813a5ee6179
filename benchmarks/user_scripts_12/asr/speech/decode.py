from .data import ALPHABET


def greedy(log_probs, lengths):
    """best path: collapse repeats, drop blanks"""
    texts = []
    best = log_probs.argmax(-1)
    for b in range(best.shape[0]):
        prev, chars = 0, []
        for t in range(lengths[b]):
            k = best[b, t].item()
            if k != prev and k != 0:
                chars.append(ALPHABET[k])
            prev = k
        texts.append("".join(chars))
    return texts


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diag, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diag, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diag + (x != y))
    return row[-1]


def error_rates(hyps, refs):
    ce = sum(edit_distance(h, r) for h, r in zip(hyps, refs))
    we = sum(edit_distance(h.split(), r.split()) for h, r in zip(hyps, refs))
    return ce, sum(map(len, refs)), we, sum(len(r.split()) for r in refs)
