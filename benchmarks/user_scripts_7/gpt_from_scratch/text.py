"""endless nursery rhymes so I don't have to download shakespeare on the train"""
import random

WHO = "the fox|a crow|my aunt|old king Cole|the miller|Jack|the moon|a tailor|seven mice|the queen".split("|")
DID = "ran over|sang to|baked|lost|climbed|sold|dreamt of|painted|hid|married".split("|")
WHAT = "a hill|the bell|a pie|her shoe|the sea|a penny|the garden gate|nine geese|a cabbage|the wind".split("|")
END = "and nobody knew why|on a Sunday|all in the rain|for a song|hey ho|before the cock crew".split("|")


def make_text(n_chars, seed):
    r = random.Random(seed)
    out, n = [], 0
    while n < n_chars:
        line = "%s %s %s %s%s\n" % (r.choice(WHO), r.choice(DID), r.choice(WHAT), r.choice(END), r.choice(".,;!"))
        line = line[0].upper() + line[1:]
        out.append(line)
        n += len(line)
    return "".join(out)[:n_chars]


class CharTokenizer:
    def __init__(self, text):
        self.chars = sorted(set(text))
        self.s2i = {c: i for i, c in enumerate(self.chars)}

    def encode(self, s):
        return [self.s2i[c] for c in s]

    def decode(self, ids):
        return "".join(self.chars[i] for i in ids)
