import numpy as np
import torch

import world


class ShopDataset:
    """Synthetic implicit feedback: users and items in latent communities, power-law popularity."""

    def __init__(self, n_user=600, m_item=400, seed=0):
        rng = np.random.RandomState(seed)
        self.n_user, self.m_item = n_user, m_item
        u_com, i_com = rng.randint(0, 8, n_user), rng.randint(0, 8, m_item)
        pop = 1.0 / (np.arange(1, m_item + 1) ** 0.7)
        rng.shuffle(pop)
        train_u, train_i, self._test = [], [], {}
        for u in range(n_user):
            p = pop * np.where(i_com == u_com[u], 8.0, 1.0)
            k = rng.randint(8, 26)
            items = rng.choice(m_item, k, replace=False, p=p / p.sum())
            n_test = max(1, k // 5)
            self._test[u] = items[:n_test].tolist()
            train_u += [u] * (k - n_test)
            train_i += items[n_test:].tolist()
        self.trainUser, self.trainItem = np.array(train_u), np.array(train_i)
        self._allPos = [[] for _ in range(n_user)]
        for u, i in zip(train_u, train_i):
            self._allPos[u].append(i)
        self.Graph = None

    @property
    def trainDataSize(self):
        return len(self.trainUser)

    @property
    def testDict(self):
        return self._test

    @property
    def allPos(self):
        return self._allPos

    def getUserPosItems(self, users):
        return [self._allPos[u] for u in users]

    def getSparseGraph(self):
        if self.Graph is None:
            n = self.n_user + self.m_item
            row = np.concatenate([self.trainUser, self.trainItem + self.n_user])
            col = np.concatenate([self.trainItem + self.n_user, self.trainUser])
            deg = np.bincount(row, minlength=n).astype(np.float64)
            d_inv = np.power(np.maximum(deg, 1), -0.5)
            vals = d_inv[row] * d_inv[col]
            index = torch.from_numpy(np.stack([row, col]))
            graph = torch.sparse_coo_tensor(index, torch.from_numpy(vals).float(), (n, n))
            self.Graph = graph.coalesce().to(world.device)
        return self.Graph


def UniformSample(dataset):
    """ one (user, positive, negative) triple per training interaction """
    allPos = dataset.allPos
    users = np.random.randint(0, dataset.n_user, dataset.trainDataSize)
    S = []
    for i, user in enumerate(users):
        posForUser = allPos[user]
        if len(posForUser) == 0:
            continue
        posindex = np.random.randint(0, len(posForUser))
        positem = posForUser[posindex]
        while True:
            negitem = np.random.randint(0, dataset.m_item)
            if negitem in posForUser:
                continue
            else:
                break
        S.append([user, positem, negitem])
    return np.array(S)


def shuffle(*arrays):
    shuffle_indices = np.arange(len(arrays[0]))
    np.random.shuffle(shuffle_indices)
    return tuple(x[shuffle_indices] for x in arrays)


def minibatch(*tensors, batch_size):
    for i in range(0, len(tensors[0]), batch_size):
        yield tuple(x[i:i + batch_size] for x in tensors)
