# FlexMatch-style thresholds with a mean teacher, 10 classes, 25 labels each
seed = 0
work_dir = 'work_dirs/flex_textures'

data = dict(
    image_size=32,
    num_classes=10,
    labels_per_class=25,
    num_unlabeled=50000,
    num_test=10000,
    batch_size=64,      # labelled; unlabelled is mu times as much
    mu=7,
    workers=8,
)
model = dict(type='WideResNet', depth=28, widen=2, drop=0.0)
method = dict(
    type='FlexTeacher',
    p_cutoff=0.95,
    lambda_u=1.0,
    ema_decay=0.999,
    thresh_warmup=True,
    dist_align=True,
)
optim = dict(lr=0.03, momentum=0.9, weight_decay=5e-4)
schedule = dict(steps=100000, eval_every=1000, log_every=50)
amp = True
