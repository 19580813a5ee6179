"""PPO for a ferry that has to reach the landing stage against a gusty current: parallel boats, GAE, normalised observations, clipped values, annealed rate, stop at a KL limit."""
import torch
from torch import nn
from torch.distributions import Categorical

NUM_ENVS, ROLLOUT, UPDATES = 16, 40, 24
EPOCHS, MINIBATCHES = 4, 4
GAMMA, LAM, CLIP = 0.98, 0.95, 0.2
LR, ENT_COEF, VF_COEF, MAX_GRAD, TARGET_KL = 4e-3, 0.01, 0.5, 0.5, 0.03


class RiverEnv:
    """Boats with position and speed; five engine orders; a trip ends on the shore, at the stage or after LIMIT steps."""

    LIMIT = 30
    ORDERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)
        self.pos, self.vel, self.wind, self.t = torch.zeros(n, 2), torch.zeros(n, 2), torch.zeros(n), torch.zeros(n, dtype=torch.long)

    def spawn(self, which):
        k = int(which.sum())
        self.pos[which] = torch.rand(k, 2, generator=self.g) * torch.tensor([3.0, 1.0]) + torch.tensor([-1.5, -2.5])
        self.vel[which] = 0.0
        self.wind[which] = torch.randn(k, generator=self.g) * 0.5
        self.t[which] = 0

    def observe(self):
        return torch.cat([self.pos, self.vel, 10 * self.wind[:, None] + 50, self.t[:, None].float()], 1)

    def reset(self):
        self.spawn(torch.ones(self.n, dtype=torch.bool))
        return self.observe()

    def step(self, action):
        before = self.pos.norm(dim=1)
        gust = 0.1 * torch.randn(self.n, 2, generator=self.g)
        current = torch.stack([0.15 * self.wind, torch.zeros(self.n)], 1)
        self.vel = 0.8 * self.vel + 0.12 * self.ORDERS[action] + 0.3 * gust
        self.pos = self.pos + self.vel + 0.3 * current
        self.t = self.t + 1
        dist = self.pos.norm(dim=1)
        landed, wrecked = dist < 0.3, (self.pos.abs() > 3.0).any(1)
        reward = (before - dist) + 3.0 * landed.float() - 2.0 * wrecked.float() - 0.02
        done = landed | wrecked
        truncated = (self.t >= self.LIMIT) & ~done
        final = self.observe()
        if (done | truncated).any():
            self.spawn(done | truncated)
        return self.observe(), reward, done, truncated, final, landed


class RunningNorm:
    def __init__(self, size):
        self.mean, self.var, self.count = torch.zeros(size), torch.ones(size), 1e-4

    def update(self, x):
        n, mean, var = len(x), x.mean(0), x.var(0, unbiased=False)
        delta, total = mean - self.mean, self.count + n
        self.var = (self.var * self.count + var * n + delta**2 * self.count * n / total) / total
        self.mean = self.mean + delta * n / total
        self.count = total

    def __call__(self, x):
        return ((x - self.mean) / (self.var + 1e-8).sqrt()).clamp(-5, 5)


def mlp(out, scale, width=48):
    net = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, out))
    nn.init.orthogonal_(net[-1].weight, scale)
    return net


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(5, 0.01), mlp(1, 1.0)

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


def gae(rewards, values, next_values, dones, ends):
    """A trip that is cut off keeps the value of where it got to; one that is done has none."""
    advantages, running = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + GAMMA * next_values[t] * (1 - dones[t]) - values[t]
        running = delta + GAMMA * LAM * (1 - ends[t]) * running
        advantages[t] = running
    return advantages


@torch.no_grad()
def evaluate(agent, norm, trips=64, seed=99):
    env = RiverEnv(trips, seed)
    obs, alive = env.reset(), torch.ones(trips)
    total, reached = torch.zeros(trips), torch.zeros(trips)
    for _ in range(RiverEnv.LIMIT):
        action = agent.actor(norm(obs)).argmax(-1)
        obs, reward, done, truncated, _, landed = env.step(action)
        total += alive * reward
        reached += alive * landed.float()
        alive = alive * (1 - (done | truncated).float())
    return total.mean().item(), reached.mean().item()


def main():
    torch.manual_seed(3)
    env, agent, norm = RiverEnv(NUM_ENVS, 7), Agent(), RunningNorm(6)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5)
    obs = env.reset()
    for update in range(UPDATES):
        for group in optimizer.param_groups:
            group["lr"] = LR * (1 - update / UPDATES)
        seen, rows = [], []
        with torch.no_grad():
            for _ in range(ROLLOUT):
                seen.append(obs)
                x = norm(obs)
                dist = Categorical(logits=agent.actor(x))
                action = dist.sample()
                obs, reward, done, truncated, final, _ = env.step(action)
                next_value = agent.value(norm(final))
                rows.append((x, action, dist.log_prob(action), agent.value(x), reward, next_value, done.float(), (done | truncated).float()))
            xs, actions, old_logp, old_values, rewards, next_values, dones, ends = (torch.stack(r) for r in zip(*rows))
            advantages = gae(rewards, old_values, next_values, dones, ends)
            returns = advantages + old_values
            norm.update(torch.cat(seen))
        xs, actions, old_logp, old_values, advantages, returns = (v.flatten(0, 1) for v in (xs, actions, old_logp, old_values, advantages, returns))
        losses = []
        for _ in range(EPOCHS):
            kls = []
            for idx in torch.randperm(len(xs)).chunk(MINIBATCHES):
                dist, value = Categorical(logits=agent.actor(xs[idx])), agent.value(xs[idx])
                logratio = dist.log_prob(actions[idx]) - old_logp[idx]
                ratio = logratio.exp()
                adv = advantages[idx]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg_loss = -torch.min(adv * ratio, adv * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                clipped = old_values[idx] + (value - old_values[idx]).clamp(-CLIP, CLIP)
                v_loss = 0.5 * torch.max((value - returns[idx]) ** 2, (clipped - returns[idx]) ** 2).mean()
                entropy = dist.entropy().mean()
                loss = pg_loss + VF_COEF * v_loss - ENT_COEF * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD)
                optimizer.step()
                losses.append((pg_loss.item(), v_loss.item(), entropy.item()))
                kls.append((ratio.detach() - 1 - logratio.detach()).mean().item())
            if sum(kls) / len(kls) > TARGET_KL:
                break
        if (update + 1) % 3 == 0:
            score, reached = evaluate(agent, norm)
            pg, vf, ent = (sum(c) / len(c) for c in zip(*losses))
            print(f"update {update + 1} steps {len(losses)} pg {pg:.4f} vf {vf:.4f} entropy {ent:.4f} | return {score:.4f} reached {reached:.4f}")
    score, reached = evaluate(agent, norm, 256, 100)
    print(f"final return {score:.4f} reached {reached:.4f}")
    torch.save({"agent": agent.state_dict(), "mean": norm.mean, "var": norm.var, "optimizer": optimizer.state_dict()}, "ferry.pt")


if __name__ == "__main__":
    main()
