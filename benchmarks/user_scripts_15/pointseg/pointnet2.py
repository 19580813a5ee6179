import torch
import torch.nn as nn
import torch.nn.functional as F


def square_distance(src, dst):
    """(B, N, 3), (B, M, 3) -> (B, N, M)"""
    dist = -2 * torch.matmul(src, dst.permute(0, 2, 1))
    dist += torch.sum(src ** 2, -1).unsqueeze(-1)
    dist += torch.sum(dst ** 2, -1).unsqueeze(1)
    return dist


def index_points(points, idx):
    """(B, N, C), (B, S[, K]) -> (B, S[, K], C)"""
    B = points.shape[0]
    view = [B] + [1] * (idx.dim() - 1)
    batch = torch.arange(B, dtype=torch.long).to(points.device).view(view).expand_as(idx)
    return points[batch, idx, :]


def farthest_point_sample(xyz, npoint):
    B, N, _ = xyz.shape
    centroids = torch.zeros(B, npoint, dtype=torch.long).to(xyz.device)
    distance = torch.ones(B, N).to(xyz.device) * 1e10
    farthest = torch.randint(0, N, (B,), dtype=torch.long).to(xyz.device)
    batch = torch.arange(B, dtype=torch.long).to(xyz.device)
    for i in range(npoint):
        centroids[:, i] = farthest
        centroid = xyz[batch, farthest, :].view(B, 1, 3)
        dist = torch.sum((xyz - centroid) ** 2, -1)
        mask = dist < distance
        distance[mask] = dist[mask]
        farthest = torch.max(distance, -1)[1]
    return centroids


def query_ball_point(radius, nsample, xyz, new_xyz):
    B, N, _ = xyz.shape
    S = new_xyz.shape[1]
    group = torch.arange(N, dtype=torch.long).to(xyz.device).view(1, 1, N).repeat([B, S, 1])
    sqrdists = square_distance(new_xyz, xyz)
    group[sqrdists > radius ** 2] = N
    group = group.sort(dim=-1)[0][:, :, :nsample]
    first = group[:, :, 0].view(B, S, 1).repeat([1, 1, nsample])
    mask = group == N
    group[mask] = first[mask]
    return group


def mlp2d(cin, channels):
    layers = []
    for c in channels:
        layers += [nn.Conv2d(cin, c, 1), nn.BatchNorm2d(c), nn.ReLU()]
        cin = c
    return nn.Sequential(*layers), cin


def mlp1d(cin, channels):
    layers = []
    for c in channels:
        layers += [nn.Conv1d(cin, c, 1, bias=False), nn.BatchNorm1d(c), nn.ReLU(inplace=True)]
        cin = c
    return nn.Sequential(*layers), cin


class SetAbstraction(nn.Module):
    def __init__(self, npoint, radius, nsample, cin, channels):
        super().__init__()
        self.npoint, self.radius, self.nsample = npoint, radius, nsample
        self.mlp, self.cout = mlp2d(cin + 3, channels)

    def forward(self, xyz, feat):
        """xyz (B, N, 3), feat (B, N, C) or None"""
        new_xyz = index_points(xyz, farthest_point_sample(xyz, self.npoint))
        idx = query_ball_point(self.radius, self.nsample, xyz, new_xyz)
        grouped = index_points(xyz, idx) - new_xyz.unsqueeze(2)
        if feat is not None:
            grouped = torch.cat([grouped, index_points(feat, idx)], dim=-1)
        x = self.mlp(grouped.permute(0, 3, 2, 1))          # (B, C, K, S)
        return new_xyz, torch.max(x, 2)[0].permute(0, 2, 1)


class FeaturePropagation(nn.Module):
    def __init__(self, cin, channels):
        super().__init__()
        self.mlp, self.cout = mlp1d(cin, channels)

    def forward(self, xyz1, xyz2, feat1, feat2):
        """features of the coarse set 2 at the points of the fine set 1"""
        dists, idx = square_distance(xyz1, xyz2).sort(dim=-1)
        dists, idx = dists[:, :, :3].float().clamp(min=0), idx[:, :, :3]
        w = 1.0 / (dists + 1e-8)
        w = w / w.sum(2, keepdim=True)
        x = torch.sum(index_points(feat2, idx) * w.unsqueeze(-1), dim=2)
        if feat1 is not None:
            x = torch.cat([feat1, x], -1)
        return self.mlp(x.permute(0, 2, 1)).permute(0, 2, 1)


class PointNet2Seg(nn.Module):
    def __init__(self, cfg, n_cat, n_parts):
        super().__init__()
        self.n_cat = n_cat
        (n1, r1, k1, c1), (n2, r2, k2, c2) = cfg['sa']
        self.sa1 = SetAbstraction(n1, r1, k1, 3, c1)
        self.sa2 = SetAbstraction(n2, r2, k2, self.sa1.cout, c2)
        self.glob, cg = mlp1d(self.sa2.cout + 3, cfg['global'])
        self.fp2, c = mlp1d(cg + self.sa2.cout, cfg['fp2'])
        self.fp1 = FeaturePropagation(c + self.sa1.cout, cfg['fp1'])
        self.fp0 = FeaturePropagation(self.fp1.cout + 3 + n_cat, cfg['fp0'])
        self.head = nn.Sequential(nn.Conv1d(self.fp0.cout, 128, 1, bias=False), nn.BatchNorm1d(128),
                                  nn.ReLU(), nn.Dropout(cfg['dropout']), nn.Conv1d(128, n_parts, 1))

    def forward(self, pts, cat):
        xyz = pts.permute(0, 2, 1)
        xyz1, f1 = self.sa1(xyz, xyz)
        xyz2, f2 = self.sa2(xyz1, f1)
        g = self.glob(torch.cat([xyz2, f2], -1).permute(0, 2, 1)).max(2, keepdim=True)[0]
        f2 = f2.permute(0, 2, 1)
        f2 = self.fp2(torch.cat([f2, g.expand(-1, -1, f2.size(2))], 1)).permute(0, 2, 1)
        f1 = self.fp1(xyz1, xyz2, f1, f2)
        onehot = torch.eye(self.n_cat).to(pts.device)[cat]
        onehot = onehot.unsqueeze(1).expand(-1, xyz.size(1), -1)
        f0 = self.fp0(xyz, xyz1, torch.cat([xyz, onehot], -1), f1)
        return self.head(f0.permute(0, 2, 1))              # (B, parts, N)
