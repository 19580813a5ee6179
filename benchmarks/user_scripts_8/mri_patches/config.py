import os
import tempfile

CONFIG = {
    'data': {
        'root': os.path.join(tempfile.gettempdir(), 'lesion_vols_v3'),
        'n_train': 8, 'n_val': 3,
        'shape': (28, 32, 32),
        'patch': (16, 16, 16),
        'modalities': 2,
        'num_classes': 3,
        'fg_ratio': 0.5,
        'patches_per_epoch': 48,
        'num_workers': 0,
    },
    'model': {'base': 8, 'depth': 3, 'deep_supervision': True},
    'train': {
        'epochs': 5, 'batch_size': 4, 'lr': 2e-2, 'momentum': 0.95, 'nesterov': True, 'weight_decay': 3e-5,
        'grad_clip': 12.0, 'amp': True, 'val_every': 2, 'seed': 12345,
    },
    'infer': {'overlap': 0.5, 'sigma_scale': 0.125, 'mirror_axes': [2, 3]},
}
