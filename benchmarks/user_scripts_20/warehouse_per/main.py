"""
Double dueling DQN with prioritised replay on the pixel warehouse.

usage: python main.py [--steps 1500000] [--seed 1] [--name test]
"""
import argparse
import collections
import csv
import os
import random
import time

import numpy as np
import torch

from agent import Agent
from env import Warehouse
from replay import PrioritizedReplay

HP = {
    "gamma": 0.99,
    "lr": 1e-4,
    "tau": 0.005,
    "batch": 64,
    "buffer": 2 ** 17,
    "learn_start": 20_000,
    "learn_every": 2,
    "eps_start": 1.0,
    "eps_end": 0.02,
    "eps_steps": 250_000,
    "beta_start": 0.4,
    "eval_every": 25_000,
    "eval_episodes": 20,
}


def schedule(a, b, frac):
    return a + (b - a) * min(1.0, frac)


def evaluate(agent, args, episodes):
    """same 20 layouts each time (seed 10_000), so the numbers of two runs can be compared"""
    env = Warehouse(args.grid, seed=10_000)
    returns = []
    for _ in range(episodes):
        s, total, done, cut = env.reset(), 0.0, False, False
        while not (done or cut):
            s, r, done, cut = env.step(agent.act(s, 0.0))
            total += r
        returns.append(total)
    return float(np.mean(returns))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1_500_000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--grid", type=int, default=12)
    ap.add_argument("--name", default="run")
    ap.add_argument("--hp", nargs="*", default=[], help="key=value")
    args = ap.parse_args()
    hp = dict(HP)
    for kv in args.hp:
        k, v = kv.split("=")
        hp[k] = type(HP[k])(float(v))

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    env = Warehouse(args.grid, seed=args.seed)
    agent = Agent(env.shape, len(env.ACTIONS), hp, device)
    replay = PrioritizedReplay(hp["buffer"], seed=args.seed)
    os.makedirs("logs", exist_ok=True)
    out = open(f"logs/{args.name}.csv", "w", newline="")
    writer = csv.writer(out)
    writer.writerow(["step", "episode", "return", "loss", "q", "eps", "fps"])

    s = env.reset()
    ep, ep_ret = 0, 0.0
    recent = collections.deque(maxlen=100)
    losses, qs = collections.deque(maxlen=500), collections.deque(maxlen=500)
    best = -1e9
    t0 = time.time()
    for step in range(1, args.steps + 1):
        eps = schedule(hp["eps_start"], hp["eps_end"], step / hp["eps_steps"])
        a = agent.act(s, eps)
        ns, r, done, cut = env.step(a)
        replay.push(s, a, r, ns, float(done))
        s = ns
        ep_ret += r

        if step > hp["learn_start"] and step % hp["learn_every"] == 0:
            beta = schedule(hp["beta_start"], 1.0, step / args.steps)
            idx, batch, w = replay.sample(hp["batch"], beta)
            loss, q, td = agent.learn(batch, w)
            replay.update(idx, td)
            losses.append(loss)
            qs.append(q)

        if done or cut:
            recent.append(ep_ret)
            ep += 1
            l = np.mean(losses) if losses else 0.0
            qm = np.mean(qs) if qs else 0.0
            fps = step / (time.time() - t0)
            writer.writerow([step, ep, round(ep_ret, 3), round(float(l), 5), round(float(qm), 4), round(eps, 3), int(fps)])
            if ep % 20 == 0:
                print(f"{step:8d} ep {ep:5d} return {np.mean(recent):7.3f} loss {l:.4f} q {qm:.3f} eps {eps:.2f} {fps:.0f} fps")
                out.flush()
            s, ep_ret = env.reset(), 0.0

        if step % hp["eval_every"] == 0:
            score = evaluate(agent, args, hp["eval_episodes"])
            print(f"   eval @ {step}: {score:.3f}")
            if score > best:
                best = score
                agent.save(f"logs/{args.name}_best.pt")
    out.close()


if __name__ == "__main__":
    main()
