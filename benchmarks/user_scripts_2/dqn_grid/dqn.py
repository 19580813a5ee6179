# DQN on a small windy grid. Based on the pytorch reinforcement_q_learning tutorial.
# everything global, no gym on this machine
import math
import random
from collections import deque, namedtuple
from itertools import count

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)   # had a nan once

use_cuda = torch.cuda.is_available()
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if use_cuda else torch.LongTensor
device = 'cuda' if use_cuda else 'cpu'

H = W = 5
BATCH_SIZE = 32
GAMMA = 0.95
EPS_START = 0.9
EPS_END = 0.05
EPS_DECAY = 250
TARGET_UPDATE = 40
NUM_EPISODES = 45


class Grid:
    """state: 3 planes (agent, goal, holes); the wind comes from python's random"""
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]

    def reset(self):
        self.t = 0
        self.pos = (0, 0)
        self.goal = (H - 1, W - 1)
        self.holes = {(1, 3), (3, 1), (2, 2)}
        return self.obs()

    def obs(self):
        s = np.zeros((3, H, W), dtype=np.float32)
        s[0][self.pos] = 1
        s[1][self.goal] = 1
        for h in self.holes:
            s[2][h] = 1
        return torch.from_numpy(s).unsqueeze(0)

    def step(self, a):
        self.t += 1
        if random.random() < 0.1:
            a = random.randrange(4)
        y = min(max(self.pos[0] + self.moves[a][0], 0), H - 1)
        x = min(max(self.pos[1] + self.moves[a][1], 0), W - 1)
        self.pos = (y, x)
        if self.pos in self.holes:
            return self.obs(), -1.0, True
        if self.pos == self.goal:
            return self.obs(), 1.0, True
        return self.obs(), -0.02, self.t >= 30


Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward', 'done'))


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)
        self.prio = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))
        self.prio.append(max(self.prio) if self.prio else 1.0)

    def sample(self, n):
        p = np.array(self.prio) ** 0.6
        idx = np.random.choice(len(self.memory), n, replace=False, p=p / p.sum())
        w = (len(self.memory) * p[idx] / p.sum()) ** -0.4
        return idx, [self.memory[i] for i in idx], w / w.max()

    def __len__(self):
        return len(self.memory)


class NoisyLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.mu = nn.Linear(i, o)
        self.sigma = nn.Parameter(torch.full((o, i), 0.02))
        self.register_buffer('eps', torch.zeros(o, i))

    def reset_noise(self):
        # on the host, so that cpu and gpu runs are the same
        self.eps.copy_(torch.randn(self.eps.shape))

    def forward(self, x):
        if self.training:
            return F.linear(x, self.mu.weight + self.sigma * self.eps, self.mu.bias)
        return self.mu(x)


class DQN(nn.Module):
    def __init__(self):
        super(DQN, self).__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.adv = NoisyLinear(16 * H * W, 4)
        self.val = nn.Linear(16 * H * W, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x)).view(x.size(0), -1)
        a = self.adv(x)
        return self.val(x) + a - a.mean(1, keepdim=True)


policy_net = DQN()
target_net = DQN()
if use_cuda:
    policy_net.cuda()
    target_net.cuda()
target_net.load_state_dict(policy_net.state_dict())
# target stays in train mode: noisy targets

optimizer = optim.RMSprop(policy_net.parameters(), lr=0.0005)
memory = ReplayMemory(2000)
env = Grid()
steps_done = 0
episode_returns = []
q_trace = []


def select_action(state):
    global steps_done
    sample = random.random()
    eps_threshold = EPS_END + (EPS_START - EPS_END) * math.exp(-1. * steps_done / EPS_DECAY)
    steps_done += 1
    if sample > eps_threshold:
        with torch.no_grad():
            return policy_net(state.type(FloatTensor)).max(1)[1].view(1, 1)
    return LongTensor([[random.randrange(4)]])


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return None
    idx, transitions, w = memory.sample(BATCH_SIZE)
    batch = Transition(*zip(*transitions))

    state_batch = torch.cat(batch.state).to(device)
    next_batch = torch.cat(batch.next_state).to(device)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.tensor(batch.reward).to(device)
    mask = torch.tensor([0.0 if d else 1.0 for d in batch.done]).to(device)
    weights = torch.from_numpy(w).float().to(device)

    policy_net.adv.reset_noise()
    target_net.adv.reset_noise()

    state_action_values = policy_net(state_batch).gather(1, action_batch).squeeze(1)
    with torch.no_grad():
        a_star = policy_net(next_batch).argmax(1, keepdim=True)
        next_values = target_net(next_batch).gather(1, a_star).squeeze(1)
    expected = reward_batch + GAMMA * mask * next_values

    td = expected - state_action_values
    loss = (weights * F.smooth_l1_loss(state_action_values, expected, reduction='none')).mean()

    # priorities are needed by the very next sample()
    for i, e in zip(idx, td):
        memory.prio[i] = abs(e.item()) + 1e-3

    optimizer.zero_grad()
    loss.backward()
    for param in policy_net.parameters():
        param.grad.data.clamp_(-1, 1)
    optimizer.step()
    q_trace.append(state_action_values.mean())
    return loss.item()


total = 0
for i_episode in range(NUM_EPISODES):
    state = env.reset()
    ret, losses = 0.0, []
    for t in count():
        action = select_action(state)
        next_state, reward, done = env.step(action.item())
        memory.push(state, action, next_state, reward, done)
        state = next_state
        ret += reward
        total += 1
        l = optimize_model()
        if l is not None:
            losses.append(l)
        if total % TARGET_UPDATE == 0:
            target_net.load_state_dict(policy_net.state_dict())
        if done:
            episode_returns.append(ret)
            break
    if losses:
        print('episode', i_episode, 'len', t + 1, 'return', ret, 'loss', np.mean(losses), 'q', q_trace[-1].item())
    if i_episode == 20:
        # slower from here on, RMSprop state stays
        for g in optimizer.param_groups:
            g['lr'] *= 0.5
    if len(episode_returns) > 10 and np.mean(episode_returns[-10:]) > 0.85:
        print('solved at', i_episode)
        break


def evaluate(n=20):
    policy_net.eval()
    good = 0
    for _ in range(n):
        s = env.reset()
        done = False
        while not done:
            a = policy_net(s.to(device)).argmax(1).item()
            s, r, done = env.step(a)
        good += r > 0
    policy_net.train()
    return good / n


def q_map():
    env.reset()
    rows = []
    for y in range(H):
        for x in range(W):
            env.pos = (y, x)
            rows.append(policy_net(env.obs().to(device)).max().item())
    return np.array(rows).reshape(H, W)


print('success', evaluate())
print(q_map())
print('mean q over training', sum(q.item() for q in q_trace) / len(q_trace), 'steps', total, 'memory', len(memory))
