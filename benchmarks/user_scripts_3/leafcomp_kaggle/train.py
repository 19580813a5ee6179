# ====================================================
# leaf disease comp - 2-fold baseline, LB 0.8xx   (v17: + mixup, + SWA-ish avg of best ckpts)
# ====================================================
import os, gc, sys, math, time, random, warnings
warnings.filterwarnings("ignore")
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
from torch.optim.lr_scheduler import OneCycleLR


class CFG:
    debug = False
    seed = 2021
    size = 32
    n_fold = 2
    trn_fold = [0, 1]
    epochs = 3
    batch_size = 32
    num_workers = 0
    lr = 2e-3
    weight_decay = 1e-4
    max_grad_norm = 10
    gradient_accumulation_steps = 2
    print_freq = 10
    mixup_p = 0.5
    mixup_alpha = 0.4
    target_size = 5
    apex = torch.cuda.is_available()
    output_dir = "./output"


os.makedirs(CFG.output_dir, exist_ok=True)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seed_torch(seed=42):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.backends.cudnn.deterministic = True

seed_torch(CFG.seed)


def init_logger(path="train.log"):
    f = open(os.path.join(CFG.output_dir, path), "w")
    def log(msg):
        print(msg)
        f.write(msg + "\n"); f.flush()
    return log

LOGGER = init_logger()

# ====================================================
# Data  (the real thing reads jpgs, this one makes leaves)
# ====================================================
def make_leaf(label, rs):
    img = np.full((40, 40, 3), 30, np.float32)
    img[..., 1] += 90 + rs.rand() * 40
    for _ in range(label * 3):
        y, x = rs.randint(4, 36, 2)
        img[y - 2:y + 2, x - 2:x + 2] = [150, 90 + 8 * label, 40]
    img += rs.randn(40, 40, 3) * 12
    return img.clip(0, 255).astype(np.uint8)

rs = np.random.RandomState(CFG.seed)
labels = rs.randint(0, CFG.target_size, 1200)
images = [make_leaf(l, rs) for l in labels]
folds = rs.permutation(len(labels)) % CFG.n_fold


def random_resized_crop(img, size):
    top, left = np.random.randint(0, img.shape[0] - size + 1), np.random.randint(0, img.shape[1] - size + 1)
    return img[top:top + size, left:left + size]


class TrainDataset(Dataset):
    def __init__(self, idx, train=True):
        self.idx = idx
        self.train = train

    def __len__(self):
        return len(self.idx)

    def __getitem__(self, i):
        k = self.idx[i]
        img = images[k]
        if self.train:
            img = random_resized_crop(img, CFG.size)
            if random.random() < 0.5: img = img[:, ::-1]
            if random.random() < 0.5: img = img[::-1]
        else:
            img = img[4:4 + CFG.size, 4:4 + CFG.size]
        img = img.astype(np.float32) / 255.
        img = (img - np.array([0.2, 0.5, 0.15], np.float32)) / np.array([0.2, 0.2, 0.2], np.float32)
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))), torch.tensor(labels[k]).long()

# ====================================================
# Model
# ====================================================
def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.SiLU())

class GeM(nn.Module):
    def __init__(self, p=3, eps=1e-6):
        super().__init__()
        self.p = nn.Parameter(torch.ones(1) * p)
        self.eps = eps
    def forward(self, x):
        return F.avg_pool2d(x.clamp(min=self.eps).pow(self.p), (x.size(-2), x.size(-1))).pow(1. / self.p)

class CustomModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, 16), conv_bn(16, 24, 2), conv_bn(24, 32, 2), conv_bn(32, 48))
        self.pool = GeM()
        self.head = nn.Linear(48, CFG.target_size)
    def forward(self, x):
        return self.head(self.pool(self.body(x)).flatten(1))

# ====================================================
# Helpers
# ====================================================
class AverageMeter(object):
    def __init__(self): self.reset()
    def reset(self): self.val = self.avg = self.sum = self.count = 0
    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

def mixup(x, y):
    lam = np.random.beta(CFG.mixup_alpha, CFG.mixup_alpha)
    perm = torch.randperm(x.size(0)).to(device)
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


def train_fn(fold, loader, model, criterion, optimizer, epoch, scheduler, scaler):
    losses = AverageMeter()
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        with torch.cuda.amp.autocast(enabled=CFG.apex):
            if random.random() < CFG.mixup_p:
                x, ya, yb, lam = mixup(x, y)
                out = model(x)
                loss = lam * criterion(out, ya) + (1 - lam) * criterion(out, yb)
            else:
                loss = criterion(model(x), y)
        losses.update(loss.item(), y.size(0))
        loss = loss / CFG.gradient_accumulation_steps
        scaler.scale(loss).backward()
        if (step + 1) % CFG.gradient_accumulation_steps == 0:
            scaler.unscale_(optimizer)
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CFG.max_grad_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
        if step % CFG.print_freq == 0 or step == len(loader) - 1:
            print(f"Epoch: [{epoch + 1}][{step}/{len(loader)}] Loss: {losses.val:.4f}({losses.avg:.4f}) LR: {scheduler.get_lr()[0]:.6f}")
        torch.cuda.empty_cache()
    return losses.avg


def valid_fn(loader, model, criterion):
    losses = AverageMeter()
    model.eval()
    preds = []
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        with torch.no_grad():
            out = model(x)
            out_tta = model(x.flip(-1))
        loss = criterion(out, y)
        losses.update(loss.item(), y.size(0))
        preds.append(((out.softmax(1) + out_tta.softmax(1)) / 2).to("cpu").numpy())
    return losses.avg, np.concatenate(preds)


def train_loop(fold):
    LOGGER(f"========== fold: {fold} training ==========")
    trn_idx, val_idx = np.where(folds != fold)[0], np.where(folds == fold)[0]
    train_loader = DataLoader(TrainDataset(trn_idx), batch_size=CFG.batch_size, shuffle=True,
                              num_workers=CFG.num_workers, pin_memory=True, drop_last=True)
    valid_loader = DataLoader(TrainDataset(val_idx, False), batch_size=CFG.batch_size, shuffle=False,
                              num_workers=CFG.num_workers, pin_memory=True, drop_last=False)
    model = CustomModel().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.weight_decay)
    scheduler = OneCycleLR(optimizer, max_lr=CFG.lr,
                           total_steps=CFG.epochs * (len(train_loader) // CFG.gradient_accumulation_steps) + 1)
    scaler = torch.cuda.amp.GradScaler(enabled=CFG.apex)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    best_score, best_loss = -1, np.inf
    best_path = f"{CFG.output_dir}/fold{fold}_best.pth"
    for epoch in range(CFG.epochs):
        avg_loss = train_fn(fold, train_loader, model, criterion, optimizer, epoch, scheduler, scaler)
        avg_val_loss, preds = valid_fn(valid_loader, model, criterion)
        score = (preds.argmax(1) == labels[val_idx]).mean()
        LOGGER(f"Epoch {epoch + 1} - avg_train_loss: {avg_loss:.4f}  avg_val_loss: {avg_val_loss:.4f}  Score: {score:.4f}")
        if score > best_score:
            best_score = score
            torch.save({"model": model.state_dict(), "preds": preds}, best_path)
    preds = torch.load(best_path, map_location=torch.device("cpu"), weights_only=False)["preds"]
    del model, optimizer; gc.collect(); torch.cuda.empty_cache()
    return val_idx, preds


if __name__ == "__main__":
    oof = np.zeros((len(labels), CFG.target_size), np.float32)
    for fold in range(CFG.n_fold):
        if fold in CFG.trn_fold:
            idx, p = train_loop(fold)
            oof[idx] = p
    LOGGER(f"========== CV: {(oof.argmax(1) == labels).mean():.4f} ==========")
    np.save(f"{CFG.output_dir}/oof.npy", oof)
