from .callbacks import Callback, Checkpoint, EarlyStop, GradStats, History, LRScheduler, Progress, StopTraining
from .learner import Learner
from .metrics import Accuracy, MeanLoss
