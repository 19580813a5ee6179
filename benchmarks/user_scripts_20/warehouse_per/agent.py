import copy
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class DuelingNet(nn.Module):
    def __init__(self, in_ch, n_actions, pixels):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(in_ch, 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        )
        with torch.no_grad():
            n = self.conv(torch.zeros(1, in_ch, pixels, pixels)).numel()
        self.adv = nn.Sequential(nn.Linear(n, 512), nn.ReLU(), nn.Linear(512, n_actions))
        self.val = nn.Sequential(nn.Linear(n, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x):
        x = self.conv(x)
        x = x.view(x.size(0), -1)
        a = self.adv(x)
        return self.val(x) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, shape, n_actions, hp, device):
        self.hp = hp
        self.device = device
        self.n_actions = n_actions
        self.online = DuelingNet(shape[0], n_actions, shape[1]).to(device)
        self.target = copy.deepcopy(self.online)
        self.opt = torch.optim.RMSprop(self.online.parameters(), lr=hp["lr"], alpha=0.95, eps=1e-5)

    def act(self, state, eps):
        if random.random() < eps:
            return random.randrange(self.n_actions)
        s = torch.FloatTensor(state).unsqueeze(0).to(self.device) / 255.0
        q = self.online(s)
        return q.argmax(1).item()

    def learn(self, transitions, weights):
        states, actions, rewards, next_states, dones = zip(*transitions)
        s = torch.FloatTensor(np.array(states)).to(self.device) / 255.0
        ns = torch.FloatTensor(np.array(next_states)).to(self.device) / 255.0
        a = torch.LongTensor(actions).to(self.device)
        r = torch.FloatTensor(rewards).to(self.device)
        d = torch.FloatTensor(dones).to(self.device)
        w = torch.FloatTensor(weights).to(self.device)

        q = self.online(s).gather(1, a.unsqueeze(1)).squeeze(1)
        # double dqn
        best = self.online(ns).argmax(1, keepdim=True)
        q_next = self.target(ns).gather(1, best).squeeze(1).detach()
        y = r + self.hp["gamma"] * (1 - d) * q_next

        td = y - q
        loss = (w * F.smooth_l1_loss(q, y, reduction="none")).mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10)
        self.opt.step()
        self.soft_update(self.hp["tau"])
        return loss.item(), q.mean().item(), td.detach().cpu().numpy()

    def soft_update(self, tau):
        for p, tp in zip(self.online.parameters(), self.target.parameters()):
            tp.data.copy_(tau * p.data + (1.0 - tau) * tp.data)

    def save(self, path):
        torch.save(self.online.state_dict(), path)
