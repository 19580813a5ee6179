"""PPO with actor processes. The actors act with a CPU copy of the policy in shared memory."""
import argparse
import copy
import time

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn

from env import Lander
from policy import ActorCritic


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument('--iters', type=int, default=6)
    p.add_argument('--actors', type=int, default=2)
    p.add_argument('--horizon', type=int, default=128)
    p.add_argument('--epochs', type=int, default=4)
    p.add_argument('--minibatch', type=int, default=64)
    p.add_argument('--gamma', type=float, default=0.98)
    p.add_argument('--lam', type=float, default=0.95)
    p.add_argument('--clip', type=float, default=0.2)
    p.add_argument('--target_kl', type=float, default=0.003)
    p.add_argument('--lr', type=float, default=3e-3)
    p.add_argument('--seed', type=int, default=0)
    return p.parse_args()


def actor(rank, policy, conn, args):
    torch.set_num_threads(1)
    torch.manual_seed(1000 + args.seed + rank)
    env = Lander(args.seed * 100 + rank)
    obs, ret, returns = env.reset(), 0.0, []
    while conn.recv() == 'go':
        buf = {k: [] for k in ('obs', 'act', 'logp', 'rew', 'done')}
        for _ in range(args.horizon):
            with torch.no_grad():
                dist, _ = policy(torch.from_numpy(obs).unsqueeze(0))
                a = dist.sample()
            buf['obs'].append(obs)
            buf['act'].append(a.item())
            buf['logp'].append(dist.log_prob(a).item())
            obs, r, done = env.step(a.item())
            ret += r
            buf['rew'].append(r)
            buf['done'].append(done)
            if done:
                returns.append(ret)
                obs, ret = env.reset(), 0.0
        out = {k: torch.tensor(np.array(v)) for k, v in buf.items()}
        out['last'] = torch.from_numpy(obs)
        conn.send((out, returns))
        returns = []
    conn.close()


def discounted(x, c):
    """recursive cumulative sum, x_0 + c x_1 + c^2 x_2 ..."""
    if len(x) == 1:
        return [x[0]]
    rest = discounted(x[1:], c)
    return [x[0] + c * rest[0]] + rest


def gae(rew, done, val, last_val, gamma, lam):
    segs, start, adv = [], 0, []
    for t in range(len(rew)):
        if done[t] or t == len(rew) - 1:
            segs.append((start, t + 1))
            start = t + 1
    for s, e in segs:
        nxt = 0.0 if done[e - 1] else (last_val if e == len(rew) else val[e])
        v = val[s:e] + [nxt]
        delta = [rew[s + i] + gamma * v[i + 1] - v[i] for i in range(e - s)]
        adv += discounted(delta, gamma * lam)
    return adv


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    ctx = mp.get_context('spawn' if torch.cuda.is_available() else 'fork')

    policy = ActorCritic()
    shared = copy.deepcopy(policy).share_memory()      # stays on the CPU
    policy = policy.to(device)
    opt = torch.optim.Adam(policy.parameters(), lr=args.lr, eps=1e-5)

    conns, procs = [], []
    for r in range(args.actors):
        a, b = ctx.Pipe()
        p = ctx.Process(target=actor, args=(r, shared, b, args), daemon=True)
        p.start()
        conns.append(a)
        procs.append(p)

    ent_coef, lr_scale = 0.01, 1.0
    for it in range(args.iters):
        t0 = time.time()
        for c in conns:
            c.send('go')
        rolls, returns = [], []
        for c in conns:
            out, rets = c.recv()
            rolls.append(out)
            returns += rets
        obs, act, old_logp, adv, tgt = [], [], [], [], []
        for out in rolls:
            o = out['obs'].to(device)
            _, val = policy(o)
            _, last_val = policy(out['last'].to(device).unsqueeze(0))
            val = val.detach().cpu().tolist()
            a = gae(out['rew'].tolist(), out['done'].tolist(), val, last_val.item(), args.gamma, args.lam)
            obs.append(o)
            act.append(out['act'])
            old_logp.append(out['logp'])
            adv.append(torch.tensor(a))
            tgt.append(torch.tensor(a) + torch.tensor(val))
        obs = torch.cat(obs)
        act = torch.cat(act).to(device)
        old_logp = torch.cat(old_logp).float().to(device)
        adv, tgt = torch.cat(adv).to(device), torch.cat(tgt).to(device)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)

        pl, vl, kls, clipped, stop = [], [], [], [], False
        for ep in range(args.epochs):
            order = torch.randperm(obs.size(0))
            for i in range(0, obs.size(0), args.minibatch):
                idx = order[i:i + args.minibatch].to(device)
                dist, v = policy(obs[idx])
                logp = dist.log_prob(act[idx])
                ratio = torch.exp(logp - old_logp[idx])
                s1, s2 = ratio * adv[idx], ratio.clamp(1 - args.clip, 1 + args.clip) * adv[idx]
                loss_pi = -torch.min(s1, s2).mean()
                loss_v = nn.functional.smooth_l1_loss(v, tgt[idx])
                ent = dist.entropy().mean()
                loss = loss_pi + 0.5 * loss_v - ent_coef * ent
                kl = ((ratio - 1) - (logp - old_logp[idx])).mean().item()
                kls.append(kl)
                if kl > 1.5 * args.target_kl:
                    stop = True
                    break
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                opt.step()
                pl.append(loss_pi.item())
                vl.append(loss_v.item())
                clipped.append(((ratio - 1).abs() > args.clip).float().mean().item())
            if stop:
                break
        policy.norm.update(obs)
        # the step size follows the KL, the entropy bonus the value loss
        lr_scale = float(np.clip(lr_scale * (0.7 if stop else 1.05), 0.1, 2))
        for g in opt.param_groups:
            g['lr'] = args.lr * lr_scale
        ent_coef = 0.01 if np.mean(vl) > 0.1 else 0.003
        # hand the new weights to the actors, in place
        with torch.no_grad():
            for k, v in policy.state_dict().items():
                shared.state_dict()[k].copy_(v)
        print('iter %d return %.5f (%d) pi %.6f v %.6f kl %.6f clip %.4f ep %d lr %.3f [%.2f s]' % (
            it, np.mean(returns) if returns else 0.0, len(returns), np.mean(pl), np.mean(vl), np.mean(kls),
            np.mean(clipped), ep, lr_scale, time.time() - t0))
    for c in conns:
        c.send('stop')
    for p in procs:
        p.join()


if __name__ == '__main__':
    main()
