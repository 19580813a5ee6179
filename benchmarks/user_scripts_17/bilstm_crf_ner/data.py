import torch
from torch.utils.data import Dataset

PAD, UNK = "<pad>", "<unk>"


def build_vocabs(sents):
    words, chars, tags = {PAD: 0, UNK: 1}, {PAD: 0, UNK: 1}, {}
    for sent in sents:
        for w, t in sent:
            words.setdefault(w, len(words))
            tags.setdefault(t, len(tags))
            for c in w:
                chars.setdefault(c, len(chars))
    return words, chars, tags


class NERDataset(Dataset):
    def __init__(self, sents, words, chars, tags, max_len, max_word_len):
        self.sents = sents
        self.words, self.chars, self.tags = words, chars, tags
        self.max_len, self.max_word_len = max_len, max_word_len

    def __len__(self):
        return len(self.sents)

    def __getitem__(self, i):
        sent = self.sents[i][: self.max_len]
        word_ids = torch.zeros(self.max_len, dtype=torch.long)
        char_ids = torch.zeros(self.max_len, self.max_word_len, dtype=torch.long)
        tag_ids = torch.zeros(self.max_len, dtype=torch.long)
        for k, (w, t) in enumerate(sent):
            word_ids[k] = self.words.get(w, self.words[UNK])
            tag_ids[k] = self.tags[t]
            for j, c in enumerate(w[: self.max_word_len]):
                char_ids[k, j] = self.chars.get(c, self.chars[UNK])
        mask = torch.zeros(self.max_len, dtype=torch.bool)
        mask[: len(sent)] = True
        return word_ids, char_ids, tag_ids, mask
