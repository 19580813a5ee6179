"""Learns a web of facts: entities are complex vectors, relations turn them; negatives weigh by how hard they are, frequent facts weigh less, heads and tails are corrupted in turn, filtered ranks choose the best tables."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

PLACES, SHELVES, RELATIONS = 40, 5, 7
ENTITIES = PLACES * SHELVES + 20
DIM, GAMMA, SHARP, N3 = 20, 6.0, 1.0, 1e-3
EPOCHS, BATCH, NEGATIVES, LR = 20, 64, 24, 0.03
SPAN = (GAMMA + 2) / DIM


def make_facts(seed):
    """Places on a ring with shelves: steps along the ring, up the shelves, across; many places belong to few regions, and a few facts are false."""
    g = torch.Generator().manual_seed(seed)
    facts = []
    for p in range(PLACES):
        for s in range(SHELVES):
            e = p * SHELVES + s
            tails = [((p + 1) % PLACES) * SHELVES + s, ((p + 7) % PLACES) * SHELVES + s, p * SHELVES + (s + 1) % SHELVES, ((p + PLACES // 2) % PLACES) * SHELVES + s]
            tails += [((p + 1) % PLACES) * SHELVES + (s + 1) % SHELVES, PLACES * SHELVES + p // 4, PLACES * SHELVES + 10 + (p // 8 if s < 2 else 5 + s)]
            for r, t in enumerate(tails):
                if torch.rand(1, generator=g) < 0.85:
                    wrong = torch.rand(1, generator=g) < 0.03
                    facts.append((e, r, int(torch.randint(0, ENTITIES, (1,), generator=g)) if wrong else t))
    facts = torch.tensor(facts)[torch.randperm(len(facts), generator=g)]
    return facts[300:], facts[:150], facts[150:300]


class Rotations(nn.Module):
    def __init__(self):
        super().__init__()
        self.entity = nn.Embedding(ENTITIES, 2 * DIM)
        self.relation = nn.Embedding(RELATIONS, DIM)
        nn.init.uniform_(self.entity.weight, -SPAN, SPAN)
        nn.init.uniform_(self.relation.weight, -SPAN, SPAN)

    def vectors(self, idx):
        return torch.view_as_complex(self.entity(idx).unflatten(-1, (DIM, 2)))

    def forward(self, head, relation, tail):
        """GAMMA less the distance; indices may be (n, 1) and (n, k)."""
        phase = self.relation(relation) / SPAN * math.pi
        turn = torch.polar(torch.ones_like(phase), phase)
        return GAMMA - (self.vectors(head) * turn - self.vectors(tail)).abs().sum(-1)


def fact_weights(facts):
    """The rarer a fact's head and tail are with its relation, the more it weighs."""
    h, r, t = facts.unbind(1)
    out = (h * RELATIONS + r).bincount(minlength=ENTITIES * RELATIONS)
    into = (t * RELATIONS + r).bincount(minlength=ENTITIES * RELATIONS)
    return (out[h * RELATIONS + r] + into[t * RELATIONS + r] + 2).float().rsqrt()


def known_table(facts):
    table = torch.zeros(ENTITIES, RELATIONS, ENTITIES, dtype=torch.bool)
    table[tuple(facts.T)] = True
    return table


def losses(model, fact, weight, corrupt, heads, known):
    h, r, t = fact.unsqueeze(2).unbind(1)
    negative = model(corrupt, r, t) if heads else model(h, r, corrupt)
    true = known[corrupt, r, t] if heads else known[h, r, corrupt]
    hard = (SHARP * negative).masked_fill(true, -math.inf).softmax(1).detach()
    against = -(hard * F.logsigmoid(-negative)).sum(1)
    fit = -F.logsigmoid(model(h, r, t)).squeeze(1)
    size = (model.vectors(h).abs() ** 3 + model.vectors(t).abs() ** 3).sum(-1).mean()
    fit, against = (weight * fit).sum() / weight.sum(), (weight * against).sum() / weight.sum()
    return fit, against, (fit + against) / 2 + N3 * size


@torch.no_grad()
def ranks(model, facts, known, batch=30):
    """Ranks (2, n) of the true head and the true tail among all that are not known to be true."""
    everyone, found = torch.arange(ENTITIES).unsqueeze(0), []
    for h, r, t in (part.unsqueeze(2).unbind(1) for part in facts.split(batch)):
        by_side = []
        for side, true in ((0, h), (1, t)):
            scores = model(everyone, r, t) if side == 0 else model(h, r, everyone)
            other = known[everyone, r, t] if side == 0 else known[h, r, everyone]
            own = scores.gather(1, true)
            by_side.append(1 + (scores.masked_fill(other, -math.inf) > own).sum(1))
        found.append(torch.stack(by_side))
    return torch.cat(found, 1).float()


def main():
    torch.manual_seed(63)
    train, held, test = make_facts(1)
    weights, known, all_known = fact_weights(train), known_table(train), known_table(torch.cat([train, held, test]))
    model = Rotations()
    step, best, kept = 0, 0.0, None
    for epoch in range(EPOCHS):
        if epoch in (0, 12):
            optimizer = torch.optim.Adam(model.parameters(), lr=LR if epoch == 0 else LR / 5)
        sum_fit, sum_against = 0.0, 0.0
        for idx in torch.randperm(len(train)).split(BATCH):
            corrupt = torch.randint(0, ENTITIES, (len(idx), NEGATIVES))
            fit, against, loss = losses(model, train[idx], weights[idx], corrupt, step % 2 == 0, known)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            sum_fit += fit.item() * len(idx)
            sum_against += against.item() * len(idx)
        mrr = (1 / ranks(model, held, all_known)).mean().item()
        if mrr > best:
            best, kept = mrr, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch} fit {sum_fit / len(train):.5f} against {sum_against / len(train):.5f} mrr {mrr:.5f}")
    model.load_state_dict(kept)
    torch.save({"model": kept, "mrr": best}, "atlas.pt")
    r = ranks(model, test, all_known)
    print(f"best {best:.5f} test mrr {(1 / r).mean().item():.5f} hits at 1 {(r <= 1).float().mean().item():.4f} at 10 {(r <= 10).float().mean().item():.4f} mean rank {r.mean().item():.3f}")


if __name__ == "__main__":
    main()
