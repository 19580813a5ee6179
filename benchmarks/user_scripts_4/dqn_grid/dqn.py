# double dqn w/ prioritized replay, based on my older gist
import copy, math, random, sys
from collections import deque, namedtuple
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from env import GridEnv

GAMMA = 0.95
BATCH_SIZE = 64
EPS_START, EPS_END, EPS_DECAY = 0.9, 0.05, 800
TAU = 0.01
TOTAL_STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2500
LEARN_START = 300
SEED = 3

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))


class PrioritizedReplay(object):
    def __init__(self, capacity, alpha=0.6):
        self.capacity = capacity
        self.alpha = alpha
        self.memory = []
        self.prios = np.zeros(capacity, dtype=np.float64)
        self.ptr = 0

    def push(self, *args):
        m = self.prios.max() if self.memory else 1.0
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.ptr] = Transition(*args)
        self.prios[self.ptr] = m
        self.ptr = (self.ptr + 1) % self.capacity

    def sample(self, n, beta):
        p = self.prios[:len(self.memory)] ** self.alpha
        p /= p.sum()
        idx = np.random.choice(len(self.memory), n, p=p)
        w = (len(self.memory) * p[idx]) ** (-beta)
        w /= w.max()
        return [self.memory[i] for i in idx], idx, torch.tensor(w, dtype=torch.float32)

    def update(self, idx, td):
        for i, e in zip(idx, td):
            self.prios[i] = abs(e.item()) + 1e-5

    def __len__(self):
        return len(self.memory)


class NoisyLinear(nn.Module):
    def __init__(self, i, o, sigma=0.3):
        super().__init__()
        self.mu = nn.Linear(i, o)
        self.sw = nn.Parameter(torch.full((o, i), sigma / math.sqrt(i)))

    def forward(self, x):
        if not self.training:
            return self.mu(x)
        eps = torch.randn(self.sw.shape).to(x.device)
        return F.linear(x, self.mu.weight + self.sw * eps, self.mu.bias)


class DuelingDQN(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 4 * 4, 128)
        self.adv = NoisyLinear(128, n_actions)
        self.val = nn.Linear(128, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x)).flatten(1)
        x = F.relu(self.fc(x))
        a = self.adv(x)
        return self.val(x) + a - a.mean(1, keepdim=True)


env = GridEnv(SEED)
policy_net = DuelingDQN(env.n_actions).to(device)
target_net = copy.deepcopy(policy_net)
target_net.eval()
optimizer = torch.optim.Adam(policy_net.parameters(), lr=5e-4)
memory = PrioritizedReplay(2000)


def select_action(state, step):
    eps = EPS_END + (EPS_START - EPS_END) * math.exp(-1. * step / EPS_DECAY)
    if random.random() > eps:
        return policy_net(state).max(1)[1].view(1, 1)
    return torch.tensor([[random.randrange(env.n_actions)]], device=device, dtype=torch.long)


def optimize_model(step):
    if len(memory) < LEARN_START:
        return None
    transitions, idx, weights = memory.sample(BATCH_SIZE, beta=min(1.0, 0.4 + step / TOTAL_STEPS))
    weights = weights.to(device)
    batch = Transition(*zip(*transitions))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], device=device, dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch = torch.cat(batch.state)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)

    q = policy_net(state_batch).gather(1, action_batch).squeeze(1)
    next_v = torch.zeros(BATCH_SIZE, device=device)
    best = policy_net(non_final_next_states).argmax(1, keepdim=True)
    next_v[non_final_mask] = target_net(non_final_next_states).gather(1, best).squeeze(1)
    expected = (reward_batch + GAMMA * next_v).detach()

    td = expected - q
    loss = (weights * F.smooth_l1_loss(q, expected, reduction='none')).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in policy_net.parameters():
        p.grad.data.clamp_(-1, 1)
    optimizer.step()
    memory.update(idx, td)
    return loss.item()


def soft_update():
    target_sd = target_net.state_dict()
    policy_sd = policy_net.state_dict()
    for key in policy_sd:
        target_sd[key] = policy_sd[key] * TAU + target_sd[key] * (1 - TAU)
    target_net.load_state_dict(target_sd)


@torch.no_grad()
def evaluate(n=20):
    policy_net.eval()
    e, total = GridEnv(123), 0.
    for _ in range(n):
        s, done = e.reset(), False
        while not done:
            a = policy_net(torch.from_numpy(s).unsqueeze(0).to(device)).argmax(1).item()
            s, r, done, _ = e.step(a)
            total += r
    policy_net.train()
    return total / n


returns, losses = deque(maxlen=50), deque(maxlen=200)
state = torch.from_numpy(env.reset()).unsqueeze(0).to(device)
ret = 0
for step in range(TOTAL_STEPS):
    action = select_action(state, step)
    obs, r, done, _ = env.step(action.item())
    ret += r
    reward = torch.tensor([r], device=device)
    next_state = None if done else torch.from_numpy(obs).unsqueeze(0).to(device)
    memory.push(state, action, next_state, reward)
    state = next_state
    l = optimize_model(step)
    if l is not None:
        losses.append(l)
        soft_update()
    if done:
        returns.append(ret)
        ret = 0
        state = torch.from_numpy(env.reset()).unsqueeze(0).to(device)
    if (step + 1) % 500 == 0:
        print('step %5d | return %.3f | loss %.5f | eval %.3f' % (step + 1, np.mean(returns), np.mean(losses) if losses else 0, evaluate()))
