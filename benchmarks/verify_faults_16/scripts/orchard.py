"""GraphSAGE with sampled neighbours on a generated web of farms: inductive split, rare classes weighed, full neighbourhoods at evaluation, stops early."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

NODES, KINDS, FEATS = 1200, 5, 10
FANOUTS = (8, 5)


def make_graph(seed=0):
    g = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(torch.tensor([0.4, 0.25, 0.15, 0.12, 0.08]), NODES, replacement=True, generator=g)
    pull = torch.rand(NODES, generator=g) ** 2 * 2 + 0.3
    close = torch.full((KINDS, KINDS), 0.0035) + 0.02 * torch.eye(KINDS)
    p = close[kind][:, kind] * pull[:, None] * pull[None]
    upper = (torch.rand(NODES, NODES, generator=g) < p).triu(1)
    src, dst = (upper | upper.t()).nonzero(as_tuple=True)
    centre = torch.randn(KINDS, FEATS, generator=g) * 0.5
    x = centre[kind] + torch.randn(NODES, FEATS, generator=g)
    # the last two columns: the year of founding, the height in metres
    year = 1990 + 4 * x[:, -2] + 2 * (kind == 4)
    x = torch.cat([x[:, :-2], year[:, None], 700 + 30 * x[:, -1:]], 1)
    order = torch.randperm(NODES, generator=g)
    return src, dst, x, kind, order[:600], order[600:800], order[800:]


class Neighbours:
    """Lists of neighbours, one after the other."""

    def __init__(self, src, dst):
        order = torch.argsort(src, stable=True)
        self.dst = dst[order]
        self.degree = torch.bincount(src, minlength=NODES)
        self.start = torch.cat([torch.zeros(1, dtype=torch.long), self.degree.cumsum(0)])[:-1]

    def sample(self, nodes, fanout):
        """Draws with replacement; a node without neighbours is its own."""
        degree = self.degree[nodes]
        pick = (torch.rand(len(nodes), fanout) * degree[:, None]).long()
        found = self.dst[(self.start[nodes][:, None] + pick).clamp(max=len(self.dst) - 1)]
        return torch.where(degree[:, None] > 0, found, nodes[:, None])

    def mean(self, h):
        """Mean over all the neighbours of every node."""
        src = torch.repeat_interleave(torch.arange(NODES), self.degree)
        total = torch.zeros(NODES, h.size(1)).index_add_(0, src, h[self.dst])
        return torch.where(self.degree[:, None] > 0, total / self.degree.clamp(min=1)[:, None], h)


class SAGE(nn.Module):
    def __init__(self, width=48, dropout=0.4):
        super().__init__()
        self.self1, self.neigh1 = nn.Linear(FEATS, width), nn.Linear(FEATS, width, bias=False)
        self.self2, self.neigh2 = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, KINDS)
        self.dropout = dropout

    def layer1(self, x, around):
        h = F.relu(self.self1(x) + self.neigh1(around))
        return F.dropout(F.normalize(h, dim=-1), self.dropout, self.training)

    def layer2(self, h, around):
        return self.out(F.relu(self.self2(h) + self.neigh2(around)))

    def forward(self, x, graph, seeds):
        near = graph.sample(seeds, FANOUTS[0])
        nodes = torch.cat([seeds[:, None], near], 1)
        far = graph.sample(nodes.flatten(), FANOUTS[1]).view(*nodes.shape, FANOUTS[1])
        h = self.layer1(x[nodes], x[far].mean(2))
        return self.layer2(h[:, 0], h[:, 1:].mean(1))

    @torch.no_grad()
    def full(self, x, graph):
        h = self.layer1(x, graph.mean(x))
        return self.layer2(h, graph.mean(h))


def macro_f1(pred, y):
    table = torch.bincount(y * KINDS + pred, minlength=KINDS**2).view(KINDS, KINDS).float()
    return (2 * table.diag() / (table.sum(0) + table.sum(1)).clamp(min=1)).mean().item()


def evaluate(model, x, graph, y, nodes):
    model.eval()
    logits = model.full(x, graph)[nodes]
    return F.cross_entropy(logits, y[nodes]).item(), macro_f1(logits.argmax(1), y[nodes])


def main():
    torch.manual_seed(77)
    src, dst, x, y, train_idx, val_idx, test_idx = make_graph()
    is_train = torch.zeros(NODES, dtype=torch.bool)
    is_train[train_idx] = True
    inside = is_train[src] & is_train[dst]
    train_graph, full_graph = Neighbours(src[inside], dst[inside]), Neighbours(src, dst)
    x = (x - x[train_idx].mean(0)) / x[train_idx].std(0)
    class_weight = (len(train_idx) / (KINDS * torch.bincount(y[train_idx], minlength=KINDS))).sqrt()
    loader = DataLoader(train_idx, batch_size=64, shuffle=True)

    model = SAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best_f1, best_state, patience = 0.0, None, 0
    for epoch in range(40):
        model.train()
        loss_sum, weight_sum = 0.0, 0.0
        for seeds in loader:
            logits = model(x, train_graph, seeds)
            loss = F.cross_entropy(logits, y[seeds], weight=class_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w = class_weight[y[seeds]].sum().item()
            loss_sum += loss.item() * w
            weight_sum += w
        val_loss, val_f1 = evaluate(model, x, full_graph, y, val_idx)
        print(f"Epoch {epoch + 1:02d} | train {loss_sum / weight_sum:.4f} | val {val_loss:.4f} | macro F1 {val_f1:.4f}")
        if val_f1 > best_f1:
            best_f1, patience = val_f1, 0
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            patience += 1
            if patience >= 10:
                print("no better for 10 epochs, stopping")
                break
    last = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    test_loss, test_f1 = evaluate(model, x, full_graph, y, test_idx)
    print(f"Best val F1 {best_f1:.4f} | test loss {test_loss:.4f} | test F1 {test_f1:.4f}")
    torch.save({"best": best_state, "last": last, "f1": best_f1}, "orchard.pt")


if __name__ == "__main__":
    main()
