import csv
import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


class XRays(Dataset):
    """decodes one file per sample: pure function of the index (augmentation is done later, on the device)"""

    def __init__(self, root, fold, size):
        with open(os.path.join(root, 'index.csv')) as f:
            rows = list(csv.DictReader(f))
        self.rows = [r for k, r in enumerate(rows) if (k % 5 == 0) == (fold == 'val')]
        self.root, self.size = root, size

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        with Image.open(os.path.join(self.root, r['file'])) as im:
            im = im.convert('L')
            s = max(im.size)
            sq = Image.new('L', (s, s))
            sq.paste(im, ((s - im.size[0]) // 2, (s - im.size[1]) // 2))
            x = np.asarray(sq.resize((self.size, self.size), Image.BILINEAR))
        x = np.clip((x - np.percentile(x, 1)) / (np.percentile(x, 99) - np.percentile(x, 1) + 1e-3), 0, 1)
        return (torch.from_numpy(x.astype(np.float32))[None], torch.tensor([float(r['sex'] == 'M')]),
                torch.tensor(float(r['months'])))
