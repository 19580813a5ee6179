import argparse
import csv
import random

import numpy as np
import torch

from docking_env import DockingEnv
from replay_memory import ReplayMemory
from sac import SAC

parser = argparse.ArgumentParser(description='PyTorch Soft Actor-Critic, docking task')
parser.add_argument('--gamma', type=float, default=0.98)
parser.add_argument('--tau', type=float, default=0.005)
parser.add_argument('--lr', type=float, default=0.0003)
parser.add_argument('--seed', type=int, default=123456)
parser.add_argument('--batch_size', type=int, default=256)
parser.add_argument('--num_steps', type=int, default=300000)
parser.add_argument('--hidden_size', type=int, default=256)
parser.add_argument('--updates_per_step', type=int, default=1)
parser.add_argument('--start_steps', type=int, default=5000, help='steps with random actions')
parser.add_argument('--target_update_interval', type=int, default=1)
parser.add_argument('--replay_size', type=int, default=1000000)
parser.add_argument('--eval_every', type=int, default=5000, help='steps between evaluations')
args = parser.parse_args()

env = DockingEnv(args.seed)
eval_env = DockingEnv(args.seed + 1)
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)

agent = SAC(env.observation_space.shape[0], env.action_space, args)
memory = ReplayMemory(args.replay_size, args.seed)


def evaluate(episodes=5):
    returns, dists = [], []
    for _ in range(episodes):
        state, done, total = eval_env.reset(), False, 0
        while not done:
            action = agent.select_action(state, evaluate=True)
            state, reward, done, info = eval_env.step(action)
            total += reward
        returns.append(total)
        dists.append(info['dist'])
    return np.mean(returns), np.mean(dists)


log_file = open('losses.csv', 'w', newline='')
writer = csv.writer(log_file)
writer.writerow(['update', 'q1', 'q2', 'policy', 'entropy', 'alpha'])

total_numsteps = 0
updates = 0
best = -np.inf
losses = None
while total_numsteps < args.num_steps:
    state = env.reset()
    episode_reward = 0
    done = False
    while not done:
        if total_numsteps < args.start_steps:
            action = env.action_space.sample()
        else:
            action = agent.select_action(state)

        if len(memory) > args.batch_size and total_numsteps >= args.start_steps:
            for i in range(args.updates_per_step):
                losses = agent.update_parameters(memory, args.batch_size, updates)
                writer.writerow([updates, losses['q1'], losses['q2'], losses['policy'],
                                 losses['entropy'], losses['alpha']])
                log_file.flush()
                updates += 1

        next_state, reward, done, _ = env.step(action)
        total_numsteps += 1
        episode_reward += reward
        # time limit only, the task itself has no terminal state
        memory.push(state, action, reward, next_state, 0.0)
        state = next_state

        if total_numsteps % args.eval_every == 0:
            avg_return, avg_dist = evaluate()
            print(f'--- step {total_numsteps}: test return {avg_return:.2f}, final distance {avg_dist:.3f}')
            if avg_return > best:
                best = avg_return
                agent.save_checkpoint('sac_docking.pt')

    msg = f'steps {total_numsteps}, reward {episode_reward:.2f}'
    if losses is not None:
        msg += f", q1 {losses['q1']:.4f}, policy {losses['policy']:.4f}, alpha {losses['alpha']:.4f}"
    print(msg)

print(f'best test return {best:.2f}')
