# makes a fake news corpus, one "label <tab> text" per line
import os
import random

TOPICS = {
    'sport': 'match team goal player coach league season score win defeat stadium referee cup final injury'.split(),
    'economy': 'market stock bank price inflation trade profit budget tax export loan shares growth debt'.split(),
    'science': 'study planet cell energy theory virus data telescope experiment gene climate particle'.split(),
    'politics': 'minister vote party election law president parliament reform campaign senate treaty debate'.split(),
}
COMMON = ('the a of in to and for on with is was after before new last first year week people said that '
          'they will could from about more than over under between many report says').split()


def fake_word(rng):
    return ''.join(rng.choice('bdfgklmnprstvz') + rng.choice('aeiou') for _ in range(rng.randint(2, 4)))


def make_file(path, n, rng, rare, max_len):
    names = sorted(TOPICS)
    with open(path, 'w') as f:
        for _ in range(n):
            label = rng.choice(names)
            other = rng.choice(names)
            words = []
            for _ in range(rng.randint(10, max_len)):
                r = rng.random()
                if r < 0.60:
                    words.append(rng.choice(COMMON))
                elif r < 0.85:
                    words.append(rng.choice(rare))
                elif r < 0.95:
                    words.append(rng.choice(TOPICS[label]))
                else:
                    words.append(rng.choice(TOPICS[other]))
            f.write(label + '\t' + ' '.join(words).capitalize() + '.\n')


def make_corpus(folder, n_train, n_test, n_rare=20000, max_len=200, seed=11):
    rng = random.Random(seed)
    if not os.path.isdir(folder):
        os.makedirs(folder)
    rare = [fake_word(rng) for _ in range(n_rare)]
    make_file(os.path.join(folder, 'train.tsv'), n_train, rng, rare, max_len)
    make_file(os.path.join(folder, 'test.tsv'), n_test, rng, rare, max_len)
