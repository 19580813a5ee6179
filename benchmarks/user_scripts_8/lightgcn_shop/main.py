import os
import tempfile
import time

import numpy as np
import torch
from torch import optim

import world
from dataloader import ShopDataset, UniformSample, minibatch, shuffle
from model import LightGCN


class BPRLoss:
    def __init__(self, recmodel, config):
        self.model = recmodel
        self.weight_decay = config['decay']
        self.opt = optim.Adam(recmodel.parameters(), lr=config['lr'])

    def stageOne(self, users, pos, neg):
        loss, reg_loss = self.model.bpr_loss(users, pos, neg)
        loss = loss + reg_loss * self.weight_decay
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.cpu().item()


class timer:
    TAPE = {}

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.start = time.time()

    def __exit__(self, *a):
        timer.TAPE[self.name] = timer.TAPE.get(self.name, 0) + time.time() - self.start


def BPR_train_original(dataset, recommend_model, bpr, epoch):
    recommend_model.train()
    with timer("Sample"):
        S = UniformSample(dataset)
    users = torch.Tensor(S[:, 0]).long()
    posItems = torch.Tensor(S[:, 1]).long()
    negItems = torch.Tensor(S[:, 2]).long()
    users, posItems, negItems = users.to(world.device), posItems.to(world.device), negItems.to(world.device)
    users, posItems, negItems = shuffle(users, posItems, negItems)
    total_batch = len(users) // world.config['bpr_batch_size'] + 1
    aver_loss = 0.
    for batch_users, batch_pos, batch_neg in minibatch(users, posItems, negItems,
                                                       batch_size=world.config['bpr_batch_size']):
        cri = bpr.stageOne(batch_users, batch_pos, batch_neg)
        aver_loss += cri
    return aver_loss / total_batch


def NDCGatK_r(test_data, r, k):
    pred_data = r[:, :k]
    test_matrix = np.zeros((len(pred_data), k))
    for i, items in enumerate(test_data):
        length = k if k <= len(items) else len(items)
        test_matrix[i, :length] = 1
    idcg = np.sum(test_matrix * 1. / np.log2(np.arange(2, k + 2)), axis=1)
    dcg = np.sum(pred_data * (1. / np.log2(np.arange(2, k + 2))), axis=1)
    idcg[idcg == 0.] = 1.
    return np.sum(dcg / idcg)


def test_one_batch(sorted_items, groundTrue):
    r = []
    for i in range(len(groundTrue)):
        r.append(np.array(list(map(lambda x: x in groundTrue[i], sorted_items[i]))).astype("float"))
    r = np.array(r)
    recall, ndcg = [], []
    for k in world.topks:
        right = r[:, :k].sum(1)
        recall.append(np.sum(right / np.array([len(g) for g in groundTrue])))
        ndcg.append(NDCGatK_r(groundTrue, r, k))
    return np.array(recall), np.array(ndcg)


def Test(dataset, Recmodel, epoch):
    u_batch_size = world.config['test_u_batch_size']
    testDict = dataset.testDict
    Recmodel = Recmodel.eval()
    max_K = max(world.topks)
    results = {'recall': np.zeros(len(world.topks)), 'ndcg': np.zeros(len(world.topks))}
    with torch.no_grad():
        users = list(testDict.keys())
        rating_list, groundTrue_list = [], []
        for (batch_users,) in minibatch(users, batch_size=u_batch_size):
            allPos = dataset.getUserPosItems(batch_users)
            groundTrue = [testDict[u] for u in batch_users]
            batch_users_gpu = torch.Tensor(batch_users).long()
            batch_users_gpu = batch_users_gpu.to(world.device)
            rating = Recmodel.getUsersRating(batch_users_gpu)
            exclude_index, exclude_items = [], []
            for range_i, items in enumerate(allPos):
                exclude_index.extend([range_i] * len(items))
                exclude_items.extend(items)
            rating[exclude_index, exclude_items] = -(1 << 10)
            _, rating_K = torch.topk(rating, k=max_K)
            rating_list.append(rating_K.cpu())
            groundTrue_list.append(groundTrue)
            del rating
            torch.cuda.empty_cache()
        for sorted_items, groundTrue in zip(rating_list, groundTrue_list):
            rec, ndcg = test_one_batch(sorted_items.numpy(), groundTrue)
            results['recall'] += rec
            results['ndcg'] += ndcg
        results = {k: v / float(len(users)) for k, v in results.items()}
    print('[TEST] epoch %d recall %s ndcg %s' % (epoch, np.round(results['recall'], 5), np.round(results['ndcg'], 5)))
    return results


def main():
    np.random.seed(world.args.seed)
    torch.manual_seed(world.args.seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(world.args.seed)
    dataset = ShopDataset(seed=world.args.seed)
    Recmodel = LightGCN(world.config, dataset)
    Recmodel = Recmodel.to(world.device)
    bpr = BPRLoss(Recmodel, world.config)
    weight_file = os.path.join(tempfile.mkdtemp(prefix='lgn_'), 'lgn-shop.pth.tar')
    print('%d users %d items %d interactions' % (dataset.n_user, dataset.m_item, dataset.trainDataSize))
    best, bad = 0., 0
    for epoch in range(world.args.epochs):
        if epoch % world.args.eval_every == 0:
            res = Test(dataset, Recmodel, epoch)
            if res['recall'][-1] > best:
                best, bad = res['recall'][-1], 0
            else:
                bad += 1
                if bad >= 5:
                    break
        loss = BPR_train_original(dataset, Recmodel, bpr, epoch)
        print('EPOCH[%d/%d] loss %.5f' % (epoch + 1, world.args.epochs, loss))
        torch.save(Recmodel.state_dict(), weight_file)
    Test(dataset, Recmodel, world.args.epochs)


if __name__ == '__main__':
    main()
