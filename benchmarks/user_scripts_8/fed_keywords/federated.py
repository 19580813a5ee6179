"""FedAvg / FedProx simulation on one machine: clients are trained one after the other."""
import copy
import gc

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from audio_data import KeywordDataset


class Client:
    def __init__(self, cid, wavs, labels, args, device):
        self.cid, self.args, self.device = cid, args, device
        self.dataset = KeywordDataset(wavs, labels, augment=True)

    def num_samples(self):
        return len(self.dataset)

    def train(self, global_state, model, lr):
        model.load_state_dict(global_state)
        model.train()
        loader = DataLoader(self.dataset, batch_size=self.args.local_bs, shuffle=True, drop_last=len(self.dataset) > self.args.local_bs)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        criterion = nn.CrossEntropyLoss().to(self.device)
        epoch_loss = []
        for _ in range(self.args.local_ep):
            batch_loss = []
            for feats, labels in loader:
                feats, labels = feats.to(self.device), labels.to(self.device)
                feats = feats.type(torch.FloatTensor).to(self.device)
                optimizer.zero_grad()
                loss = criterion(model(feats), labels)
                if self.args.mu > 0:
                    prox = 0.0
                    for name, p in model.named_parameters():
                        prox += ((p - global_state[name].to(self.device)) ** 2).sum()
                    loss = loss + self.args.mu / 2 * prox
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                batch_loss.append(loss.item())
            epoch_loss.append(sum(batch_loss) / len(batch_loss))
        state = {k: v.cpu() for k, v in copy.deepcopy(model.state_dict()).items()}
        gc.collect()
        torch.cuda.empty_cache()
        return state, sum(epoch_loss) / len(epoch_loss)


def aggregate(states, weights):
    """Weighted average; integer buffers (num_batches_tracked) are taken from the first client."""
    avg = copy.deepcopy(states[0])
    total = sum(weights)
    for key in avg.keys():
        if not torch.is_floating_point(avg[key]):
            continue
        avg[key] = avg[key] * (weights[0] / total)
        for i in range(1, len(states)):
            avg[key] += states[i][key] * (weights[i] / total)
    return avg


class Server:
    def __init__(self, model, clients, test_set, args, device):
        self.model, self.clients, self.test_set = model, clients, test_set
        self.args, self.device = args, device
        self.global_state = {k: v.cpu().clone() for k, v in model.state_dict().items()}
        self.rng = np.random.RandomState(args.seed)

    def round(self, rnd):
        m = max(int(self.args.frac * len(self.clients)), 1)
        chosen = self.rng.choice(len(self.clients), m, replace=False)
        lr = self.args.lr * self.args.lr_decay ** rnd
        states, weights, losses = [], [], []
        for cid in chosen:
            state, loss = self.clients[cid].train(self.global_state, self.model, lr)
            states.append(state)
            weights.append(self.clients[cid].num_samples())
            losses.append(loss)
        # norm of every client's update, for the drift plot
        drift = []
        for state in states:
            sq = 0.0
            for k, v in state.items():
                if torch.is_floating_point(v):
                    sq += torch.norm(v - self.global_state[k]).item() ** 2
            drift.append(sq ** 0.5)
        self.global_state = aggregate(states, weights)
        return float(np.average(losses, weights=weights)), float(np.mean(drift))

    def evaluate(self, n_classes):
        self.model.load_state_dict(self.global_state)
        self.model.eval()
        loader = DataLoader(self.test_set, batch_size=32, shuffle=False)
        confusion = torch.zeros(n_classes, n_classes, dtype=torch.long)
        loss_sum, n = 0.0, 0
        for feats, labels in loader:
            feats, labels = feats.float().to(self.device), labels.to(self.device)
            logits = self.model(feats)
            loss_sum += nn.functional.cross_entropy(logits, labels, reduction='sum').item()
            preds = logits.argmax(1)
            for t, p in zip(labels, preds):
                confusion[t.item(), p.item()] += 1
            n += len(labels)
        return loss_sum / n, confusion
