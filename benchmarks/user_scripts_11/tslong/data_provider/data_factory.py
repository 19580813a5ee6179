from torch.utils.data import DataLoader

from data_provider.data_loader import Dataset_Plant_hour


def data_provider(args, flag):
    if flag == 'test':
        shuffle_flag, drop_last = False, False
    else:
        shuffle_flag, drop_last = True, True

    data_set = Dataset_Plant_hour(
        root_path=args.root_path,
        data_path=args.data_path,
        flag=flag,
        size=[args.seq_len, args.label_len, args.pred_len],
        n_rows=args.n_rows,
    )
    print(flag, len(data_set))
    data_loader = DataLoader(
        data_set,
        batch_size=args.batch_size,
        shuffle=shuffle_flag,
        num_workers=args.num_workers,
        drop_last=drop_last)
    return data_set, data_loader
