import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x ** 2, dim=1, keepdim=True)
    pairwise_distance = -xx - inner - xx.transpose(2, 1)
    return pairwise_distance.topk(k=k, dim=-1)[1]   # (batch_size, num_points, k)


def get_graph_feature(x, k):
    batch_size, num_dims, num_points = x.size()
    idx = knn(x, k)
    idx_base = torch.arange(0, batch_size, device=x.device).view(-1, 1, 1) * num_points
    idx = (idx + idx_base).view(-1)
    x = x.transpose(2, 1).contiguous()   # (B, N, C)
    feature = x.view(batch_size * num_points, -1)[idx, :]
    feature = feature.view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)
    feature = torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()
    return feature                       # (B, 2C, N, k)


class DGCNN(nn.Module):
    def __init__(self, args, output_channels):
        super(DGCNN, self).__init__()
        self.k = args.k
        w = args.width
        self.conv1 = self.edge_conv(6, w)
        self.conv2 = self.edge_conv(2 * w, w)
        self.conv3 = self.edge_conv(2 * w, 2 * w)
        self.conv4 = self.edge_conv(4 * w, 4 * w)
        self.conv5 = nn.Sequential(nn.Conv1d(8 * w, args.emb_dims, kernel_size=1, bias=False),
                                   nn.BatchNorm1d(args.emb_dims), nn.LeakyReLU(negative_slope=0.2))
        self.linear1 = nn.Linear(args.emb_dims * 2, 512, bias=False)
        self.bn6 = nn.BatchNorm1d(512)
        self.dp1 = nn.Dropout(p=args.dropout)
        self.linear2 = nn.Linear(512, 256)
        self.bn7 = nn.BatchNorm1d(256)
        self.dp2 = nn.Dropout(p=args.dropout)
        self.linear3 = nn.Linear(256, output_channels)

    def edge_conv(self, i, o):
        return nn.Sequential(nn.Conv2d(i, o, kernel_size=1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(negative_slope=0.2))

    def forward(self, x):
        outs = []
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = conv(get_graph_feature(x, self.k)).max(dim=-1, keepdim=False)[0]
            outs.append(x)
        x = self.conv5(torch.cat(outs, dim=1))
        x1 = F.adaptive_max_pool1d(x, 1).view(x.size(0), -1)
        x2 = F.adaptive_avg_pool1d(x, 1).view(x.size(0), -1)
        x = torch.cat((x1, x2), 1)
        x = self.dp1(F.leaky_relu(self.bn6(self.linear1(x)), negative_slope=0.2))
        x = self.dp2(F.leaky_relu(self.bn7(self.linear2(x)), negative_slope=0.2))
        return self.linear3(x)


def cal_loss(pred, gold, smoothing=True):
    """Cross entropy with label smoothing"""
    gold = gold.contiguous().view(-1)
    if smoothing:
        eps = 0.2
        n_class = pred.size(1)
        one_hot = torch.zeros(pred.size()).scatter(1, gold.cpu().view(-1, 1), 1).to(pred.device)
        one_hot = one_hot * (1 - eps) + (1 - one_hot) * eps / (n_class - 1)
        log_prb = F.log_softmax(pred, dim=1)
        return -(one_hot * log_prb).sum(dim=1).mean()
    return F.cross_entropy(pred, gold, reduction='mean')
