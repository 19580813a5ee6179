# -*- coding: utf-8 -*-
"""
A made-up lexicon: words of an invented language with an irregular spelling, and
their pronunciation. Our real lexica (CMUdict, two in-house ones) have the same
shape: one word per line, TAB, phonemes separated by blanks.
"""
import random

ONSETS = ['b', 'br', 'ch', 'd', 'dr', 'f', 'fl', 'g', 'gh', 'k', 'kn', 'l', 'm', 'n', 'p',
          'ph', 'qu', 'r', 's', 'sh', 'st', 't', 'th', 'tr', 'v', 'w', 'wr', 'z', '']
NUCLEI = ['a', 'ai', 'e', 'ea', 'ee', 'i', 'igh', 'o', 'oa', 'oo', 'ou', 'u', 'y']
CODAS = ['', '', '', 'ck', 'd', 'gh', 'l', 'll', 'm', 'mb', 'n', 'nd', 'ng', 'r', 's', 'sh',
         'st', 't', 'tch', 'x']

SOUND = {
    'b': 'B', 'br': 'B R', 'ch': 'CH', 'd': 'D', 'dr': 'D R', 'f': 'F', 'fl': 'F L', 'g': 'G',
    'gh': 'G', 'k': 'K', 'kn': 'N', 'l': 'L', 'll': 'L', 'm': 'M', 'mb': 'M', 'n': 'N',
    'nd': 'N D', 'ng': 'NG', 'p': 'P', 'ph': 'F', 'qu': 'K W', 'r': 'R', 's': 'S', 'sh': 'SH',
    'st': 'S T', 't': 'T', 'th': 'TH', 'tr': 'T R', 'v': 'V', 'w': 'W', 'wr': 'R', 'x': 'K S',
    'z': 'Z', 'ck': 'K', 'tch': 'CH', '': '',
    'a': 'AE', 'ai': 'EY', 'e': 'EH', 'ea': 'IY', 'ee': 'IY', 'i': 'IH', 'igh': 'AY', 'o': 'AO',
    'oa': 'OW', 'oo': 'UW', 'ou': 'AW', 'u': 'AH', 'y': 'AY',
}
LONG = {'AE': 'EY', 'EH': 'IY', 'IH': 'AY', 'AO': 'OW', 'AH': 'UW'}


def syllable(rng):
    o, n, c = rng.choice(ONSETS), rng.choice(NUCLEI), rng.choice(CODAS)
    ph = []
    if o == 'gh' and rng.random() < 0.2:
        o = 'g'
    if SOUND[o]:
        ph += SOUND[o].split()
    v = SOUND[n]
    spelled = o + n + c
    if c == 'gh':                       # silent, lengthens the vowel
        v = LONG.get(v, v)
    if c in ('d', 'm', 'n', 't') and v in LONG and rng.random() < 0.3:
        spelled += 'e'                  # silent e
        v = LONG[v]
    ph.append(v)
    if c and c != 'gh':
        ph += SOUND[c].split()
    return spelled, ph


def make_lexicon(path, n_words, max_syllables, seed):
    rng = random.Random(seed)
    seen = {}
    while len(seen) < n_words:
        spelled, ph = '', []
        for _ in range(rng.randint(1, max_syllables)):
            s, p = syllable(rng)
            spelled += s
            ph += p
        seen.setdefault(spelled, ph)
    with open(path, 'w') as f:
        for w, p in seen.items():
            f.write('%s\t%s\n' % (w, ' '.join(p)))


def read_lexicon(path):
    pairs = []
    with open(path) as f:
        for line in f:
            w, p = line.rstrip('\n').split('\t')
            pairs.append((list(w), p.split()))
    return pairs
