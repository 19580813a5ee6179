# draws digits like seven segment displays and saves them like the old MNIST .pt files
import numpy as np
import torch

SEG = {0: 'abcdef', 1: 'bc', 2: 'abged', 3: 'abgcd', 4: 'fgbc', 5: 'afgcd', 6: 'afgedc', 7: 'abc', 8: 'abcdefg', 9: 'abcfgd'}
BOX = {'a': (2, 4, 5, 15), 'b': (3, 10, 13, 15), 'c': (10, 17, 13, 15), 'd': (16, 18, 5, 15),
       'e': (10, 17, 5, 7), 'f': (3, 10, 5, 7), 'g': (9, 11, 5, 15)}


def digit(k, r):
    im = np.zeros((20, 20))
    for s in SEG[k]:
        a, b, c, d = BOX[s]
        im[a:b, c:d] = r.uniform(.7, 1)
    im = np.roll(im, tuple(r.randint(-2, 3, 2)), (0, 1))
    return np.clip(im + r.rand(20, 20) * .15, 0, 1)


if __name__ == '__main__':
    r = np.random.RandomState(0)
    for name, n in (('training', 700), ('test', 150)):
        y = r.randint(0, 10, n)
        x = np.stack([digit(k, r) for k in y])
        torch.save((torch.from_numpy((x * 255).astype(np.uint8)), torch.from_numpy(y)), name + '.pt')
