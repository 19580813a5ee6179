import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from tqdm import tqdm

from gin import GraphCNN
from util import load_data, separate_data

criterion = nn.CrossEntropyLoss()


def train(args, model, device, train_graphs, optimizer, epoch):
    model.train()
    total_iters = args.iters_per_epoch
    pbar = tqdm(range(total_iters), unit='batch', disable=args.quiet)
    loss_accum = 0
    grad_stats = []
    for pos in pbar:
        selected_idx = np.random.permutation(len(train_graphs))[:args.batch_size]
        batch_graph = [train_graphs[idx] for idx in selected_idx]
        output = model(batch_graph)
        labels = torch.LongTensor([graph.label for graph in batch_graph]).to(device)

        loss = criterion(output, labels)
        # l1 on eps keeps the layers comparable
        loss = loss + args.eps_l1 * sum(e.abs() for e in model.eps)

        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            grad_stats.append(torch.stack([p.grad.abs().max() for p in model.parameters()
                                           if p.grad is not None]).cpu().numpy())
            optimizer.step()

        loss = loss.detach().cpu().numpy()
        loss_accum += loss
        # report
        pbar.set_description('epoch: %d' % (epoch))

    average_loss = loss_accum / total_iters
    print("epoch %d loss training: %.7f  max |g| %.6f" % (epoch, average_loss, np.max(grad_stats)))
    return average_loss


# pass data to model with minibatch during testing to avoid memory overflow (does not perform backpropagation)
def pass_data_iteratively(model, graphs, minibatch_size=32):
    model.eval()
    output = []
    idx = np.arange(len(graphs))
    for i in range(0, len(graphs), minibatch_size):
        sampled_idx = idx[i:i + minibatch_size]
        if len(sampled_idx) == 0:
            continue
        output.append(model([graphs[j] for j in sampled_idx]).detach())
    return torch.cat(output, 0)


def accuracy(model, device, graphs):
    output = pass_data_iteratively(model, graphs)
    pred = output.max(1, keepdim=True)[1]
    correct = 0
    for i, graph in enumerate(graphs):
        if pred[i].item() == graph.label:
            correct += 1
    labels = torch.LongTensor([g.label for g in graphs]).to(device)
    return correct / float(len(graphs)), criterion(output, labels).item()


def main():
    parser = argparse.ArgumentParser(description='graph isomorphism network on synthetic motifs')
    parser.add_argument('--device', type=int, default=0, help='which gpu to use if any (default: 0)')
    parser.add_argument('--batch_size', type=int, default=32)
    parser.add_argument('--iters_per_epoch', type=int, default=12)
    parser.add_argument('--epochs', type=int, default=4)
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--fold_idx', type=int, default=0)
    parser.add_argument('--num_layers', type=int, default=4, help='number of layers INCLUDING the input one')
    parser.add_argument('--num_mlp_layers', type=int, default=2)
    parser.add_argument('--hidden_dim', type=int, default=32)
    parser.add_argument('--final_dropout', type=float, default=0.3)
    parser.add_argument('--graph_pooling_type', type=str, default="sum", choices=["sum", "average"])
    parser.add_argument('--dont_learn_eps', action="store_true")
    parser.add_argument('--eps_l1', type=float, default=1e-3)
    parser.add_argument('--loud', dest='quiet', action='store_false')
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    device = torch.device("cuda:" + str(args.device)) if torch.cuda.is_available() else torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(args.seed)
        torch.backends.cudnn.benchmark = False

    graphs, num_classes = load_data(300, seed=args.seed)
    train_graphs, test_graphs = separate_data(graphs, args.fold_idx)

    model = GraphCNN(args.num_layers, args.num_mlp_layers, train_graphs[0].node_features.shape[1],
                     args.hidden_dim, num_classes, args.final_dropout, not args.dont_learn_eps,
                     args.graph_pooling_type, device).to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_graphs, optimizer, epoch)
        scheduler.step()
        acc_train, _ = accuracy(model, device, train_graphs)
        acc_test, test_loss = accuracy(model, device, test_graphs)
        print("accuracy train: %.5f test: %.5f  test loss: %.7f" % (acc_train, acc_test, test_loss))
        print('eps', ' '.join('%.6f' % e.item() for e in model.eps))


if __name__ == '__main__':
    main()
