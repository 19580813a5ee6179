# the whole experiment; any leaf can be set on the command line: trainer.epochs=10
conf = {
    'seed': 21,
    'data': {'_target_': 'asr.data.Morse', 'n': 220, 'n_val': 50, 'min_len': 2, 'max_len': 6},
    'sampler': {'_target_': 'asr.data.SortaGrad', 'frames': 300},
    'model': {'_target_': 'asr.model.ConvGRU', 'hidden': 48, 'layers': 1, 'feats': 24},
    'augment': {'_target_': 'asr.model.SpecAugment', 'time': 6, 'freq': 4, 'seed': 99},
    'optim': {'_target_': 'torch.optim.Adam', 'lr': 1e-2},
    'late_optim': {'_target_': 'torch.optim.SGD', 'lr': 2e-2, 'momentum': 0.9, 'nesterov': True},
    'trainer': {'_target_': 'asr.trainer.Trainer', 'epochs': 9, 'switch_at': 5, 'swa_from': 4, 'clip': 5.0, 'device': 'auto'},
}
