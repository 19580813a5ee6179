"""
Double dueling DQN with prioritized replay for my rocket env.
usage: python dqn.py --steps 3000
"""
import argparse
import csv
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from env import RocketEnv
from replay import PrioritizedReplay

parser = argparse.ArgumentParser()
parser.add_argument('--steps', type=int, default=2500)
parser.add_argument('--batch', type=int, default=64)
parser.add_argument('--gamma', type=float, default=0.99)
parser.add_argument('--lr', type=float, default=5e-4)
parser.add_argument('--tau', type=float, default=0.005)
parser.add_argument('--start', type=int, default=300)
parser.add_argument('--eval-every', type=int, default=1000)
parser.add_argument('--seed', type=int, default=3)
args = parser.parse_args()

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
random.seed(args.seed)
torch.manual_seed(args.seed)


class NoisyLinear(nn.Module):
    def __init__(self, i, o, sigma=0.5):
        super().__init__()
        self.mu_w = nn.Parameter(torch.empty(o, i).uniform_(-i ** -0.5, i ** -0.5))
        self.mu_b = nn.Parameter(torch.empty(o).uniform_(-i ** -0.5, i ** -0.5))
        self.sig_w = nn.Parameter(torch.full((o, i), sigma * i ** -0.5))
        self.sig_b = nn.Parameter(torch.full((o,), sigma * i ** -0.5))

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.mu_w, self.mu_b)
        f = lambda n: (lambda e: e.sign() * e.abs().sqrt())(torch.randn(n))
        ei = f(self.mu_w.size(1)).to(x.device)
        eo = f(self.mu_w.size(0)).to(x.device)
        return F.linear(x, self.mu_w + self.sig_w * torch.outer(eo, ei), self.mu_b + self.sig_b * eo)


class Dueling(nn.Module):
    def __init__(self, n_obs, n_act, hid=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, hid), nn.ReLU(), nn.Linear(hid, hid), nn.ReLU())
        self.v = NoisyLinear(hid, 1)
        self.a = NoisyLinear(hid, n_act)

    def forward(self, x):
        h = self.body(x)
        a = self.a(h)
        return self.v(h) + a - a.mean(1, keepdim=True)


env = RocketEnv(args.seed)
policy_net = Dueling(env.n_obs, env.n_actions).to(device)
target_net = Dueling(env.n_obs, env.n_actions).to(device)
target_net.load_state_dict(policy_net.state_dict())
target_net.eval()
optimizer = optim.Adam(policy_net.parameters(), lr=args.lr, eps=1.5e-4)
memory = PrioritizedReplay(8192, device=device)

log_file = open('steps.csv', 'w')
writer = csv.writer(log_file)
writer.writerow(['step', 'reward', 'loss', 'q'])


def select_action(state):
    q = policy_net(state)          # noisy nets: exploration comes from the weights
    return q.max(1)[1].view(1, 1)


def optimize_model(step):
    if len(memory) < args.start:
        return 0.0, 0.0
    beta = min(1.0, 0.4 + 0.6 * step / args.steps)
    idxs, w, batch = memory.sample(args.batch, beta)
    state = torch.cat(batch.state)
    action = torch.cat(batch.action)
    reward = torch.cat(batch.reward)
    next_state = torch.cat(batch.next_state)
    done = torch.cat(batch.done)

    q = policy_net(state).gather(1, action).squeeze(1)

    next_action = policy_net(next_state).argmax(1, keepdim=True)
    next_q = target_net(next_state).gather(1, next_action).squeeze(1)
    target = reward + args.gamma * next_q * (1 - done)

    td = q - target.detach()
    loss = (w * F.smooth_l1_loss(q, target.detach(), reduction='none')).mean()

    optimizer.zero_grad()
    loss.backward()
    for p in policy_net.parameters():
        p.grad.data.clamp_(-1, 1)
    optimizer.step()

    memory.update(idxs, td.detach().cpu().numpy())

    # soft update
    for tp, p in zip(target_net.parameters(), policy_net.parameters()):
        tp.data.copy_(args.tau * p.data + (1.0 - args.tau) * tp.data)
    return loss.item(), q.mean().item()


def evaluate(n=5):
    policy_net.eval()
    e = RocketEnv(seed=999)
    total = 0
    for _ in range(n):
        s, done = e.reset(), False
        while not done:
            x = torch.tensor([s], dtype=torch.float32, device=device)
            with torch.no_grad():
                a = policy_net(x).argmax(1).item()
            s, r, done = e.step(a)
            total += r
    policy_net.train()
    return total / n


t0 = time.time()
state = torch.tensor([env.reset()], dtype=torch.float32).to(device)
ep_reward, ep, last10 = 0, 0, []
for step in range(args.steps):
    action = select_action(state)
    obs, r, done = env.step(action.item())
    ep_reward += r
    next_state = torch.tensor([obs], dtype=torch.float32).to(device)
    memory.push(state, action, next_state,
                torch.tensor([r], dtype=torch.float32).to(device),
                torch.tensor([float(done)]).to(device))
    state = next_state

    loss, qm = optimize_model(step)
    writer.writerow([step, r, loss, qm])
    log_file.flush()

    if done:
        ep += 1
        last10 = (last10 + [ep_reward])[-10:]
        if ep % 5 == 0:
            print('ep %4d  step %6d  mean10 %.2f  loss %.4f  %.0f sps' % (
                ep, step, sum(last10) / len(last10), loss, (step + 1) / (time.time() - t0)))
        ep_reward = 0
        state = torch.tensor([env.reset()], dtype=torch.float32).to(device)

    if (step + 1) % args.eval_every == 0:
        print('eval', evaluate())
        torch.save(policy_net.state_dict(), 'dqn.pt')
log_file.close()
