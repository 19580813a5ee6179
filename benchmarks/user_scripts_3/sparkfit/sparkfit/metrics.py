class Metric:
    name = 'metric'
    def reset(self): raise NotImplementedError
    def update(self, learner): raise NotImplementedError
    def value(self): raise NotImplementedError


class MeanLoss(Metric):
    name = 'loss'
    def reset(self):
        self.total, self.n = 0.0, 0
    def update(self, learner):
        bs = learner.yb.shape[0]
        self.total += learner.loss.item() * bs
        self.n += bs
    def value(self):
        return self.total / max(self.n, 1)


class Accuracy(Metric):
    name = 'acc'
    def reset(self):
        self.hits, self.n = 0, 0
    def update(self, learner):
        self.hits += int((learner.pred.argmax(-1) == learner.yb).sum())
        self.n += learner.yb.shape[0]
    def value(self):
        return self.hits / max(self.n, 1)
