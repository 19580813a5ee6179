"""python predict.py runs/unet/best.pt image.jpg out.png   (single image, for the slides)"""
import sys

import numpy as np
import torch
from PIL import Image

from segkit.data import MEAN, STD
from segkit.model import UNet

weights, source, target = sys.argv[1:4]
state = torch.load(weights, map_location="cpu")
model = UNet(state["inc.net.0.weight"].shape[0])
model.load_state_dict(state)
model.eval()
image = Image.open(source).convert("RGB")
x = np.asarray(image.resize((352, 352), Image.BILINEAR), dtype=np.float32) / 255.0
x = torch.from_numpy(((x - MEAN) / STD).transpose(2, 0, 1)).unsqueeze(0)
with torch.no_grad():
    prob = model(x)[0, 0].numpy()
Image.fromarray((prob * 255).astype(np.uint8)).resize(image.size).save(target)
