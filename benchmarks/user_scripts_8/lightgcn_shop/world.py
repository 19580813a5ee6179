'''Global config, in the manner of the original LightGCN-pytorch code.'''
import argparse
import torch


def parse_args():
    parser = argparse.ArgumentParser(description="Go lightGCN")
    parser.add_argument('--bpr_batch', type=int, default=512, help="the batch size for bpr loss training procedure")
    parser.add_argument('--recdim', type=int, default=32, help="the embedding size of lightGCN")
    parser.add_argument('--layer', type=int, default=3, help="the layer num of lightGCN")
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--decay', type=float, default=1e-4, help="the weight decay for l2 normalizaton")
    parser.add_argument('--dropout', type=int, default=1, help="using the edge dropout or not")
    parser.add_argument('--keepprob', type=float, default=0.8)
    parser.add_argument('--testbatch', type=int, default=100)
    parser.add_argument('--topks', nargs='?', default="[10,20]")
    parser.add_argument('--epochs', type=int, default=8)
    parser.add_argument('--eval_every', type=int, default=4)
    parser.add_argument('--seed', type=int, default=2020)
    return parser.parse_args()


args = parse_args()
device = torch.device('cuda' if torch.cuda.is_available() else "cpu")
config = {
    'bpr_batch_size': args.bpr_batch,
    'latent_dim_rec': args.recdim,
    'lightGCN_n_layers': args.layer,
    'dropout': args.dropout,
    'keep_prob': args.keepprob,
    'lr': args.lr,
    'decay': args.decay,
    'test_u_batch_size': args.testbatch,
}
topks = eval(args.topks)
