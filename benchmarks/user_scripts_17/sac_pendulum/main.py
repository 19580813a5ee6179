import argparse
import random

import numpy as np
import torch

from buffer import ReplayBuffer
from envs import Pendulum
from sac import SAC


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200_000)
    ap.add_argument("--start-steps", type=int, default=5_000)
    ap.add_argument("--updates-per-step", type=int, default=1)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--n-critics", type=int, default=2)
    ap.add_argument("--buffer-size", type=int, default=1_000_000)
    ap.add_argument("--eval-every", type=int, default=5_000)
    ap.add_argument("--eval-episodes", type=int, default=10)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--gamma", type=float, default=0.99)
    ap.add_argument("--tau", type=float, default=0.005)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--save", default="sac.pt")
    return ap.parse_args()


def evaluate(agent, episodes, seed):
    env = Pendulum(seed + 100)
    total = 0.0
    for _ in range(episodes):
        obs, over = env.reset(), False
        while not over:
            obs, r, terminated, truncated = env.step(agent.act(obs, deterministic=True))
            total += r
            over = terminated or truncated
    return total / episodes


def main():
    args = parse()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    env = Pendulum(args.seed)
    agent = SAC(env.obs_dim, env.act_dim, args.hidden, args.n_critics, args.lr, args.gamma, args.tau, device)
    buffer = ReplayBuffer(args.buffer_size)

    obs, ep_return, ep_returns = env.reset(), 0.0, []
    critic_losses, q_values, actor_losses, entropies, alphas = [], [], [], [], []
    for step in range(1, args.steps + 1):
        if step <= args.start_steps:
            action = np.random.uniform(-1, 1, size=env.act_dim).astype(np.float32)
        else:
            action = agent.act(obs)
        next_obs, reward, terminated, truncated = env.step(action)
        # time limit is not a terminal state
        buffer.push(obs, action, reward, next_obs, terminated)
        obs = next_obs
        ep_return += reward
        if terminated or truncated:
            ep_returns.append(ep_return)
            obs, ep_return = env.reset(), 0.0

        if step > args.start_steps:
            for _ in range(args.updates_per_step):
                batch = buffer.sample(args.batch_size, device)
                c_loss, q_mean = agent.update_critic(*batch)
                a_loss, entropy = agent.update_actor(batch[0])
                agent.soft_update()
                critic_losses.append(c_loss)
                q_values.append(q_mean)
                actor_losses.append(a_loss)
                entropies.append(entropy)
                alphas.append(agent.log_alpha.exp().item())

        if step % args.eval_every == 0:
            score = evaluate(agent, args.eval_episodes, args.seed)
            line = f"step {step:7d} eval {score:9.2f} train {np.mean(ep_returns[-10:]):9.2f}"
            if critic_losses:
                line += (f" critic {np.mean(critic_losses[-1000:]):.4f} q {np.mean(q_values[-1000:]):.3f}"
                         f" actor {np.mean(actor_losses[-1000:]):.3f} H {np.mean(entropies[-1000:]):.3f}"
                         f" alpha {np.mean(alphas[-1000:]):.4f}")
            print(line)
    torch.save(agent.state_dict(), args.save)


if __name__ == "__main__":
    main()
