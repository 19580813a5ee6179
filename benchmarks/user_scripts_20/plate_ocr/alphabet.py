CHARS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
BLANK = 0


def encode(text: str) -> list[int]:
    return [CHARS.index(c) + 1 for c in text.upper() if c in CHARS]


def decode(ids) -> str:
    return "".join(CHARS[i - 1] for i in ids if i != BLANK)


def collapse(path) -> list[int]:
    """CTC rule: repeats first, blanks after."""
    out, last = [], None
    for i in path:
        if i != last and i != BLANK:
            out.append(int(i))
        last = i
    return out


def edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]
