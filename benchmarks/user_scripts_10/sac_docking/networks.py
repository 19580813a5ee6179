import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

LOG_SIG_MAX = 2
LOG_SIG_MIN = -20
epsilon = 1e-6


def weights_init_(m):
    if isinstance(m, nn.Linear):
        torch.nn.init.xavier_uniform_(m.weight, gain=1)
        torch.nn.init.constant_(m.bias, 0)


class QNetwork(nn.Module):
    """two Q functions (clipped double Q)"""

    def __init__(self, num_inputs, num_actions, hidden_dim):
        super().__init__()
        self.q1 = self._mlp(num_inputs + num_actions, hidden_dim)
        self.q2 = self._mlp(num_inputs + num_actions, hidden_dim)
        self.apply(weights_init_)

    def _mlp(self, n, hidden_dim):
        return nn.Sequential(nn.Linear(n, hidden_dim), nn.ReLU(),
                             nn.Linear(hidden_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1))

    def forward(self, state, action):
        xu = torch.cat([state, action], 1)
        return self.q1(xu), self.q2(xu)


class GaussianPolicy(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_dim, action_space):
        super().__init__()
        self.linear1 = nn.Linear(num_inputs, hidden_dim)
        self.linear2 = nn.Linear(hidden_dim, hidden_dim)
        self.mean_linear = nn.Linear(hidden_dim, num_actions)
        self.log_std_linear = nn.Linear(hidden_dim, num_actions)
        self.apply(weights_init_)
        self.action_low = action_space.low
        self.action_high = action_space.high

    def forward(self, state):
        x = F.relu(self.linear1(state))
        x = F.relu(self.linear2(x))
        mean = self.mean_linear(x)
        log_std = torch.clamp(self.log_std_linear(x), min=LOG_SIG_MIN, max=LOG_SIG_MAX)
        return mean, log_std

    def sample(self, state):
        mean, log_std = self.forward(state)
        scale = torch.FloatTensor((self.action_high - self.action_low) / 2.).to(state.device)
        bias = torch.FloatTensor((self.action_high + self.action_low) / 2.).to(state.device)
        normal = Normal(mean, log_std.exp())
        x_t = normal.rsample()  # reparameterization trick
        y_t = torch.tanh(x_t)
        action = y_t * scale + bias
        log_prob = normal.log_prob(x_t)
        # enforcing action bound
        log_prob -= torch.log(scale * (1 - y_t.pow(2)) + epsilon)
        log_prob = log_prob.sum(1, keepdim=True)
        return action, log_prob, torch.tanh(mean) * scale + bias
