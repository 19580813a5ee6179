from reid.modeling import backbones, heads  # noqa: F401  (fills the registries)
from reid.modeling.baseline import Baseline
from reid.modeling.losses import CenterLoss, ReIDLoss
