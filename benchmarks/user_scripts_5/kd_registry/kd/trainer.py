import torch

from .registry import HOOKS, LOSSES, NETS


class DistillTrainer:
    def __init__(self, cfg, loaders):
        self.cfg = cfg
        self.device = torch.device(cfg.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.loaders = loaders
        self.teacher = NETS.build(cfg["teacher"]).to(self.device)
        self.student = NETS.build(cfg["student"]).to(self.device)
        self.losses = {c["type"]: LOSSES.build(c).to(self.device) for c in cfg["losses"]}
        self.hooks = [HOOKS.build(h) for h in cfg["hooks"]]
        self.step = 0

    def call(self, name):
        for h in self.hooks:
            getattr(h, name)(self)

    # ---------------------------------------------------------- teacher
    def pretrain_teacher(self, epochs):
        opt = torch.optim.SGD(self.teacher.parameters(), 0.05, momentum=0.9)
        for ep in range(epochs):
            tot = 0
            self.teacher.train()
            for x, y in self.loaders["train"]:
                x, y = x.to(self.device), y.to(self.device)
                loss = torch.nn.functional.cross_entropy(self.teacher(x)[0], y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                tot += loss
            print(f"teacher epoch {ep}: {tot / len(self.loaders['train']):.4f}")
        self.teacher.eval()

    # ---------------------------------------------------------- student
    def train_step(self, x, y):
        s_out = self.student(x)
        t_out = self.teacher(x)
        self.outputs = {k: fn(s_out, t_out, y) for k, fn in self.losses.items()}
        loss = sum(self.outputs.values())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.outputs["loss"] = loss
        self.outputs["acc"] = (s_out[0].argmax(1) == y).float().mean()

    def fit(self, epochs):
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=self.cfg["lr"])
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs * len(self.loaders["train"]))
        for self.epoch in range(epochs):
            self.call("before_epoch")
            self.student.train()
            for self.batch in self.loaders["train"]:
                x, y = (b.to(self.device) for b in self.batch)
                self.call("before_step")
                self.train_step(x, y)
                self.call("after_step")
                self.step += 1
            self.call("after_epoch")
            print(f"epoch {self.epoch}: val acc {self.evaluate():.4f}")

    def evaluate(self):
        self.student.eval()
        hit = n = 0
        for x, y in self.loaders["val"]:
            logits, _ = self.student(x.to(self.device))
            hit += (logits.argmax(1).cpu() == y).sum().item()
            n += len(y)
        return hit / n
