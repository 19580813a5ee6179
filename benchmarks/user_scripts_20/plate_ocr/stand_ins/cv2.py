"""What plate_ocr uses of OpenCV, for gray images, by Pillow."""

import numpy as np
from PIL import Image, ImageFilter

IMREAD_GRAYSCALE, INTER_AREA = 0, 3


def imread(path, flags):
    assert flags == IMREAD_GRAYSCALE
    return np.array(Image.open(path).convert("L"))


def resize(image, size, interpolation):
    assert interpolation == INTER_AREA
    return np.array(Image.fromarray(image).resize(size, Image.Resampling.BOX))


def warpAffine(image, matrix, size, borderValue):
    a, b, c = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))[0]
    moved = Image.fromarray(image).transform(
        size, Image.Transform.AFFINE, (a, b, c, 0, 1, 0), fillcolor=borderValue
    )
    return np.array(moved)


def GaussianBlur(image, size, sigma):
    assert size == (3, 3) and sigma == 0
    return np.array(Image.fromarray(image).filter(ImageFilter.GaussianBlur(0.8)))
