"""CS 285-style homework 6: Soft Actor-Critic with a learned temperature."""
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

LOG_STD_MIN, LOG_STD_MAX = -20, 2


def mlp(sizes):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.net = mlp([obs_dim, hidden, hidden, 2 * act_dim])

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        return mean, torch.clamp(log_std, LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, obs):
        mean, log_std = self.forward(obs)
        dist = Normal(mean, log_std.exp())
        u = dist.rsample()
        a = torch.tanh(u)
        log_prob = dist.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)
        return a, log_prob.sum(-1, keepdim=True)


class Critic(nn.Module):
    """N independent Q functions (N=2 is the usual clipped double Q; REDQ uses 10)."""

    def __init__(self, obs_dim, act_dim, hidden, n_critics):
        super().__init__()
        self.qs = nn.ModuleList([mlp([obs_dim + act_dim, hidden, hidden, 1]) for _ in range(n_critics)])

    def forward(self, obs, act):
        return torch.stack([q(torch.cat([obs, act], dim=-1)) for q in self.qs], dim=0)


class SAC:
    def __init__(self, obs_dim, act_dim, hidden, n_critics, lr, gamma, tau, device):
        self.device = device
        self.gamma = gamma
        self.tau = tau
        self.actor = Actor(obs_dim, act_dim, hidden).to(device)
        self.critic = Critic(obs_dim, act_dim, hidden, n_critics).to(device)
        self.critic_target = copy.deepcopy(self.critic)
        self.log_alpha = torch.zeros(1, requires_grad=True, device=device)
        self.target_entropy = -float(act_dim)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=lr)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=lr)

    def act(self, obs, deterministic=False):
        obs = torch.FloatTensor(obs).unsqueeze(0).to(self.device)
        if deterministic:
            mean, _ = self.actor(obs)
            action = torch.tanh(mean)
        else:
            action, _ = self.actor.sample(obs)
        return action.detach().cpu().numpy()[0]

    def update_critic(self, obs, act, rew, next_obs, done):
        next_act, next_logp = self.actor.sample(next_obs)
        target_q = self.critic_target(next_obs, next_act)
        alpha = self.log_alpha.exp().item()
        target = rew + self.gamma * (1 - done) * (target_q.min(dim=0)[0] - alpha * next_logp)
        q = self.critic(obs, act)
        loss = 0
        for i in range(q.shape[0]):
            loss = loss + F.mse_loss(q[i], target.detach())
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        return loss.item(), q.mean().item()

    def update_actor(self, obs):
        act, logp = self.actor.sample(obs)
        q = self.critic(obs, act).min(dim=0)[0]
        alpha = self.log_alpha.exp().item()
        loss = (alpha * logp - q).mean()
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()

        # temperature
        _, logp = self.actor.sample(obs)
        alpha_loss = -(self.log_alpha * (logp + self.target_entropy).detach()).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        return loss.item(), -logp.mean().item()

    def soft_update(self):
        for p, tp in zip(self.critic.parameters(), self.critic_target.parameters()):
            tp.data.copy_(self.tau * p.data + (1.0 - self.tau) * tp.data)

    def state_dict(self):
        return {"actor": self.actor.state_dict(), "critic": self.critic.state_dict(),
                "log_alpha": float(np.asarray(self.log_alpha.detach().cpu())[0])}
