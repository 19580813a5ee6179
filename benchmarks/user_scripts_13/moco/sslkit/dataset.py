import glob
import os

from PIL import Image
from torch.utils.data import Dataset


class ShapeFolder(Dataset):
    def __init__(self, root, split, transform):
        self.files = sorted(glob.glob(os.path.join(root, split, "*.png")))
        self.labels = [int(f[:-4].rsplit("_", 1)[1]) for f in self.files]
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        img = Image.open(self.files[i]).convert("RGB")
        return self.transform(img), self.labels[i]
