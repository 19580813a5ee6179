import torch
import torch.nn.functional as F
from torch.optim import Adam

from networks import GaussianPolicy, QNetwork


def soft_update(target, source, tau):
    for target_param, param in zip(target.parameters(), source.parameters()):
        target_param.data.copy_(target_param.data * (1.0 - tau) + param.data * tau)


def hard_update(target, source):
    for target_param, param in zip(target.parameters(), source.parameters()):
        target_param.data.copy_(param.data)


class SAC:
    def __init__(self, num_inputs, action_space, args):
        self.gamma = args.gamma
        self.tau = args.tau
        self.target_update_interval = args.target_update_interval
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

        n_act = action_space.shape[0]
        self.critic = QNetwork(num_inputs, n_act, args.hidden_size).to(self.device)
        self.critic_optim = Adam(self.critic.parameters(), lr=args.lr)
        self.critic_target = QNetwork(num_inputs, n_act, args.hidden_size).to(self.device)
        hard_update(self.critic_target, self.critic)

        self.policy = GaussianPolicy(num_inputs, n_act, args.hidden_size, action_space).to(self.device)
        self.policy_optim = Adam(self.policy.parameters(), lr=args.lr)

        # automatic entropy tuning, target is -dim(A)
        self.target_entropy = -torch.prod(torch.Tensor(action_space.shape)).item()
        self.log_alpha = torch.zeros(1, requires_grad=True, device=self.device)
        self.alpha_optim = Adam([self.log_alpha], lr=args.lr)
        self.alpha = self.log_alpha.exp().item()

    def select_action(self, state, evaluate=False):
        state = torch.FloatTensor(state).to(self.device).unsqueeze(0)
        if evaluate is False:
            action, _, _ = self.policy.sample(state)
        else:
            _, _, action = self.policy.sample(state)
        return action.detach().cpu().numpy()[0]

    def update_parameters(self, memory, batch_size, updates):
        state_batch, action_batch, reward_batch, next_state_batch, done_batch = memory.sample(batch_size=batch_size)

        state_batch = torch.FloatTensor(state_batch).to(self.device)
        next_state_batch = torch.FloatTensor(next_state_batch).to(self.device)
        action_batch = torch.FloatTensor(action_batch).to(self.device)
        reward_batch = torch.FloatTensor(reward_batch).to(self.device).unsqueeze(1)
        done_batch = torch.FloatTensor(done_batch).to(self.device).unsqueeze(1)

        with torch.no_grad():
            next_action, next_log_pi, _ = self.policy.sample(next_state_batch)
            q1_next, q2_next = self.critic_target(next_state_batch, next_action)
            min_q_next = torch.min(q1_next, q2_next) - self.alpha * next_log_pi
            next_q_value = reward_batch + (1 - done_batch) * self.gamma * min_q_next

        q1, q2 = self.critic(state_batch, action_batch)
        q1_loss = F.mse_loss(q1, next_q_value)
        q2_loss = F.mse_loss(q2, next_q_value)
        self.critic_optim.zero_grad()
        (q1_loss + q2_loss).backward()
        self.critic_optim.step()

        pi, log_pi, _ = self.policy.sample(state_batch)
        q1_pi, q2_pi = self.critic(state_batch, pi)
        policy_loss = ((self.alpha * log_pi) - torch.min(q1_pi, q2_pi)).mean()
        self.policy_optim.zero_grad()
        policy_loss.backward()
        self.policy_optim.step()

        alpha_loss = -(self.log_alpha * (log_pi + self.target_entropy).detach()).mean()
        self.alpha_optim.zero_grad()
        alpha_loss.backward()
        self.alpha_optim.step()
        self.alpha = self.log_alpha.exp().item()

        if updates % self.target_update_interval == 0:
            soft_update(self.critic_target, self.critic, self.tau)

        return {
            'q1': q1_loss.item(),
            'q2': q2_loss.item(),
            'policy': policy_loss.item(),
            'entropy': -log_pi.mean().item(),
            'alpha': self.alpha,
        }

    def save_checkpoint(self, path):
        torch.save({'policy': self.policy.state_dict(), 'critic': self.critic.state_dict(),
                    'critic_target': self.critic_target.state_dict(), 'log_alpha': self.log_alpha}, path)
