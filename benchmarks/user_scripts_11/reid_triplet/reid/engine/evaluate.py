import numpy as np
import torch


def extract_features(model, loader, device):
    feats, pids, camids = [], [], []
    model.eval()
    with torch.no_grad():
        for img, pid, camid in loader:
            img = img.to(device)
            feat = model(img) + model(img.flip(3))
            feat = feat / torch.norm(feat, 2, 1, keepdim=True)
            feats.append(feat.cpu())
            pids.extend(pid.numpy())
            camids.extend(camid.numpy())
    return torch.cat(feats).numpy(), np.asarray(pids), np.asarray(camids)


def compute_distmat(qf, gf):
    distmat = np.zeros((len(qf), len(gf)))
    for i in range(len(qf)):
        distmat[i] = np.sqrt(((qf[i] - gf) ** 2).sum(axis=1))
    return distmat


def eval_func(distmat, q_pids, g_pids, q_camids, g_camids, max_rank=20):
    indices = np.argsort(distmat, axis=1, kind='stable')
    matches = (g_pids[indices] == q_pids[:, np.newaxis]).astype(np.int32)
    all_cmc, all_AP = [], []
    for q_idx in range(len(q_pids)):
        # remove gallery samples that have the same pid and camid with query
        order = indices[q_idx]
        keep = ~((g_pids[order] == q_pids[q_idx]) & (g_camids[order] == q_camids[q_idx]))
        orig_cmc = matches[q_idx][keep]
        if not orig_cmc.any():
            continue
        all_cmc.append(np.minimum(orig_cmc.cumsum(), 1)[:max_rank])
        tmp_cmc = orig_cmc.cumsum() / (np.arange(len(orig_cmc)) + 1.0)
        all_AP.append((tmp_cmc * orig_cmc).sum() / orig_cmc.sum())
    return np.stack(all_cmc).mean(0), float(np.mean(all_AP))


def evaluate(model, loader, num_query, device):
    feats, pids, camids = extract_features(model, loader, device)
    distmat = compute_distmat(feats[:num_query], feats[num_query:])
    return eval_func(distmat, pids[:num_query], pids[num_query:], camids[:num_query], camids[num_query:])
