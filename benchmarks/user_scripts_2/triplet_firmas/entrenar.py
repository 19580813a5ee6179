#!/usr/bin/env python
"""
Trabajo final: verificacion de firmas con red siamesa y triplet loss
(minado "batch hard", Hermans et al.)
"""
import os, sys, gc, math, random
from collections import defaultdict
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader, Sampler


class Config:
    semilla = 11
    personas = 24
    firmas = 14            # por persona
    P, K = 8, 4            # P personas x K firmas en cada lote
    lotes = 14             # por epoca
    epocas = 5
    dim = 24
    margen = 0.3
    lr = 2e-3
    cola = 64              # memoria de negativos
    dispositivo = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def fijar_semilla(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)
    torch.cuda.manual_seed_all(s)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


# ---------------------------------------------------------------- datos
def trazo(persona, rng):
    """firma = curva de lissajous propia de la persona + temblor"""
    p = np.random.RandomState(persona)
    a, b = p.randint(1, 5, 2)
    d, e = p.uniform(0, 3, 2)
    t = np.linspace(0, 2 * np.pi, rng.randint(150, 260))
    x = 14 + 10 * np.sin(a * t + d) + rng.normal(0, .35, t.size).cumsum() * .15
    y = 10 + 7 * np.sin(b * t + e) + rng.normal(0, .35, t.size).cumsum() * .15
    return np.stack([x, y], 1)


class Firmas(Dataset):
    def __init__(self, personas, cfg, aumentar):
        rng = np.random.RandomState(cfg.semilla + len(personas))
        self.trazos, self.quien, self.nombre = [], [], []
        for p in personas:
            for k in range(cfg.firmas):
                self.trazos.append(trazo(p, rng))
                self.quien.append(p)
                self.nombre.append('p%02d_f%02d' % (p, k))
        self.por_persona = defaultdict(list)
        for i, p in enumerate(self.quien):
            self.por_persona[p].append(i)
        self.aumentar = aumentar

    def __len__(self):
        return len(self.quien)

    def __getitem__(self, i):
        t = self.trazos[i]
        if self.aumentar:
            ang = random.uniform(-.15, .15)
            R = np.array([[math.cos(ang), -math.sin(ang)], [math.sin(ang), math.cos(ang)]])
            t = (t - t.mean(0)) @ R + t.mean(0) + np.random.uniform(-1, 1, 2)
        img = np.zeros((20, 28), np.float32)
        ij = np.clip(np.round(t).astype(int), 0, [27, 19])
        np.add.at(img, (ij[:, 1], ij[:, 0]), .5)
        return {'img': torch.from_numpy(np.minimum(img, 1))[None], 'persona': self.quien[i],
                'nombre': self.nombre[i], 'trazo': torch.from_numpy(t).float()}


def juntar(lote):
    """los trazos tienen largo distinto, quedan en una lista"""
    return {'img': torch.stack([m['img'] for m in lote]),
            'persona': torch.tensor([m['persona'] for m in lote]),
            'nombre': [m['nombre'] for m in lote],
            'trazo': [m['trazo'] for m in lote]}


class MuestreoPK(Sampler):
    """lotes P x K; las personas mas confundidas salen mas (self.peso cambia al entrenar)"""

    def __init__(self, ds, cfg):
        self.ds, self.cfg = ds, cfg
        self.ids = sorted(ds.por_persona)
        self.peso = {p: 1.0 for p in self.ids}

    def __iter__(self):
        for _ in range(self.cfg.lotes):
            w = np.array([self.peso[p] for p in self.ids])
            elegidas = np.random.choice(self.ids, self.cfg.P, replace=False, p=w / w.sum())
            lote = []
            for p in elegidas:
                lote += random.sample(self.ds.por_persona[p], self.cfg.K)
            yield lote

    def __len__(self):
        return self.cfg.lotes


# ---------------------------------------------------------------- red
class Rama(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
        self.largo = nn.Linear(3, 8)
        self.fc = nn.Linear(24 * 5 * 7 + 8, dim)

    def forward(self, img, trazos):
        h = self.conv(img).flatten(1)
        est = []
        for t in trazos:
            v = (t[1:] - t[:-1]).norm(dim=1)
            est.append(torch.stack([v.mean(), v.std(), torch.tensor(len(t) / 200).to(t.device)]))
        h = torch.cat([h, self.largo(torch.stack(est))], 1)
        return F.normalize(self.fc(h), dim=1)


def distancias(a, b):
    """euclidea por pares; sin cdist porque su gradiente en cero daba nan"""
    d2 = a.pow(2).sum(1, keepdim=True) - 2 * a @ b.t() + b.pow(2).sum(1)
    d2 = d2.clamp(min=0)
    cero = (d2 == 0).float()
    return (d2 + cero * 1e-16).sqrt() * (1 - cero)


class TripletaDura(nn.Module):
    def __init__(self, margen):
        super().__init__()
        self.margen = margen

    def forward(self, z, y, memoria, mem_y):
        D = distancias(z, z)
        igual = y[:, None] == y[None, :]
        yo = torch.eye(len(y)).bool().to(z.device)
        pos = D.masked_fill(~igual | yo, -1).max(1)[0]
        neg = D.masked_fill(igual, 1e4).min(1)[0]
        if memoria is not None:
            M = distancias(z, memoria).masked_fill(y[:, None] == mem_y[None, :], 1e4)
            neg = torch.min(neg, M.min(1)[0])
        t = F.relu(pos - neg + self.margen)
        activas = t > 0
        return t, activas, D


class Memoria:
    def __init__(self, n, dim, disp):
        self.z = torch.zeros(n, dim).to(disp)
        self.y = torch.full((n,), -1).to(disp)
        self.p = 0

    def poner(self, z, y):
        n = z.size(0)
        if self.p + n > self.z.size(0):
            self.p = 0
        self.z[self.p:self.p + n] = z.detach()
        self.y[self.p:self.p + n] = y
        self.p += n

    def dame(self):
        ok = self.y >= 0
        return (self.z[ok], self.y[ok]) if ok.any() else (None, None)


# ---------------------------------------------------------------- bucles
def a_disp(lote, disp):
    return {k: (v.to(disp) if torch.is_tensor(v) else [x.to(disp) for x in v] if k == 'trazo' else v)
            for k, v in lote.items()}


def entrenar_epoca(red, crit, opt, cargador, memoria, muestreo, epoca, cfg):
    red.train()
    perdidas, fracs, n_saltos = [], [], 0
    for paso, lote in enumerate(cargador):
        lote = a_disp(lote, cfg.dispositivo)
        z = red(lote['img'], lote['trazo'])
        t, activas, D = crit(z, lote['persona'], *memoria.dame())
        n_act = activas.sum().item()
        if n_act == 0:
            n_saltos += 1
            memoria.poner(z, lote['persona'])
            continue
        perdida = t.sum() / n_act
        opt.zero_grad(set_to_none=False)
        perdida.backward()
        opt.step()
        memoria.poner(z, lote['persona'])
        # quien se confunde sale mas en los lotes siguientes
        for p, a in zip(lote['persona'], activas):
            muestreo.peso[p.item()] = .9 * muestreo.peso[p.item()] + .1 * (1 + 3 * a.item())
        fracs.append(n_act / len(activas))
        perdidas.append(perdida.item())
        D_ = D.max().item()
        del z, t, D, perdida
        torch.cuda.empty_cache()      # si no, la GPU del labo se queda sin memoria
        if paso % 4 == 0:
            print(f'  epoca {epoca} paso {paso} perdida {perdidas[-1]} activas {n_act}/{len(activas)} dmax {D_}')
    gc.collect()
    if np.mean(fracs) < .5:
        crit.margen *= 1.2
    return np.mean(perdidas), n_saltos


def extraer(red, ds, cfg):
    red.eval()
    zs, ys, nombres = [], [], []
    for lote in DataLoader(ds, batch_size=32, collate_fn=juntar):
        nombres += lote['nombre']
        ys.append(lote['persona'])
        lote = a_disp(lote, cfg.dispositivo)
        zs.append(red(lote['img'], lote['trazo']))
    return torch.cat(zs), torch.cat(ys).to(cfg.dispositivo), nombres


def evaluar(red, ds, cfg):
    z, y, nombres = extraer(red, ds, cfg)
    D = distancias(z, z)
    D.fill_diagonal_(float('inf')) if not D.requires_grad else D.detach().fill_diagonal_(float('inf'))
    vecino = D.argmin(1)
    rank1 = (y[vecino] == y).float().mean().item()
    # EER recorriendo umbrales
    mejor, eer = 1., None
    igual = (y[:, None] == y[None, :])
    fuera = ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    g, imp = D[igual & fuera], D[~igual]
    for u in np.linspace(0, 2, 60):
        far, frr = (imp < u).float().mean().item(), (g >= u).float().mean().item()
        if abs(far - frr) < mejor:
            mejor, eer = abs(far - frr), (far + frr) / 2
    fallos = [nombres[i] for i in range(len(nombres)) if y[vecino[i]] != y[i]]
    return rank1, eer, fallos


if __name__ == '__main__':
    cfg = Config()
    fijar_semilla(cfg.semilla)
    ent = Firmas(list(range(18)), cfg, True)
    val = Firmas(list(range(18, cfg.personas)), cfg, False)
    muestreo = MuestreoPK(ent, cfg)
    cargador = DataLoader(ent, batch_sampler=muestreo, collate_fn=juntar)
    red = Rama(cfg.dim).to(cfg.dispositivo)
    crit = TripletaDura(cfg.margen)
    opt = torch.optim.Adam(red.parameters(), lr=cfg.lr)
    memoria = Memoria(cfg.cola, cfg.dim, cfg.dispositivo)
    mejor = 9
    for ep in range(cfg.epocas):
        perdida, saltos = entrenar_epoca(red, crit, opt, cargador, memoria, muestreo, ep, cfg)
        r1, eer, fallos = evaluar(red, val, cfg)
        print(f'epoca {ep} perdida {perdida} rank1 {r1} eer {eer} margen {crit.margen} saltos {saltos} fallos {fallos[:3]}')
        if eer < mejor:
            mejor = eer
            torch.save({'red': red.state_dict(), 'margen': crit.margen}, 'firmas.pt')
    print('mejor eer', mejor, 'peso max', max(muestreo.peso.values()))
