#!/usr/bin/env python3
"""Random changes of images, with given draws, beside torchvision's transforms of the same names."""

import math
import os
import subprocess
import unittest

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

PROGRAM = os.environ["AUGMENT_IMAGES"]
COUNT = 40
CHANGES = ("crop", "flip", "rotation", "brightness", "contrast", "saturation", "hue")


class AugmentationTorchvisionTest(unittest.TestCase):
    def setUp(self):
        generator = torch.Generator().manual_seed(5)

        def uniform(low, high):
            return (low + (high - low) * torch.rand(COUNT, generator=generator)).tolist()

        self.crops = torch.randint(-3, 4, (COUNT, 2), generator=generator).tolist()
        self.flips = torch.randint(0, 2, (COUNT,), generator=generator).tolist()
        self.angles = uniform(-180, 180)
        self.factors = {name: uniform(0, 2) for name in ("brightness", "contrast", "saturation")}
        self.hues = uniform(-0.5, 0.5)
        # The larger images take several blocks of pixels, the last of which is not full.
        self.images = {(channels, *size): torch.rand((COUNT, channels, *size), generator=generator)
                       for channels in (1, 3) for size in ((9, 12), (23, 140))}
        for images in self.images.values():
            images[:, :, 2] = images[:, :1, 2]  # grey
            images[:, :, 3] = 0
            images[:, :, 4] = 1

    def expected(self, image, i, changes):
        height, width = image.shape[1:]
        if "crop" in changes:
            row, column = self.crops[i]
            image = functional.crop(functional.pad(image, [3]), 3 + row, 3 + column, height, width)
        if "flip" in changes and self.flips[i]:
            image = functional.horizontal_flip(image)
        if "rotation" in changes:
            image = functional.rotate(image, self.angles[i], interpolation=InterpolationMode.BILINEAR)
        if "brightness" in changes:
            image = functional.adjust_brightness(image, self.factors["brightness"][i])
        if "contrast" in changes:
            image = functional.adjust_contrast(image, self.factors["contrast"][i])
        if "saturation" in changes:
            image = functional.adjust_saturation(image, self.factors["saturation"][i])
        if "hue" in changes:
            image = functional.adjust_hue(image, self.hues[i])
        return image

    def changed(self, images, changes):
        def given(name, values, otherwise):
            return values if name in changes else [otherwise] * COUNT

        angles = [math.radians(angle) for angle in given("rotation", self.angles, 0)]
        crops = given("crop", self.crops, [0, 0])
        columns = [[row for row, _ in crops], [column for _, column in crops], given("flip", self.flips, 0),
                   [math.cos(angle) for angle in angles], [math.sin(angle) for angle in angles],
                   *(given(name, self.factors[name], 1) for name in ("brightness", "contrast", "saturation")),
                   given("hue", self.hues, 0)]
        draws = torch.tensor(columns, dtype=torch.float32).T.contiguous()
        most = {"crop": 3, "flip": 1, "rotation": 180, "brightness": 1, "contrast": 1, "saturation": 1, "hue": 0.5}
        arguments = [*images.shape, *(most[name] if name in changes else 0 for name in CHANGES)]
        result = subprocess.run([PROGRAM, *map(str, arguments)], input=images.numpy().tobytes() + draws.numpy().tobytes(),
                                stdout=subprocess.PIPE, check=True, timeout=300)
        return torch.frombuffer(bytearray(result.stdout), dtype=torch.float32).view(2, *images.shape)

    def check(self, changes, shape, tolerance):
        expected = torch.stack([self.expected(image, i, changes) for i, image in enumerate(self.images[shape])])
        for changed in self.changed(self.images[shape], changes):
            torch.testing.assert_close(changed, expected, rtol=0, atol=tolerance)

    def test_crops_and_mirrors_bit_for_bit(self):
        for shape in self.images:
            self.check(("crop", "flip"), shape, 0)

    def test_each_change_alone(self):
        for name in CHANGES[2:]:
            for shape in self.images:
                with self.subTest(change=name, shape=shape):
                    # Coordinates in larger images are rounded more coarsely.
                    self.check((name,), shape, 1e-4 if name == "rotation" and shape[1] > 9 else 2e-5)

    def test_all_changes_one_after_another(self):
        for shape in self.images:
            # Hue magnifies rounding where colours are nearly grey.
            self.check(CHANGES[:-1], shape, 1e-4)
            self.check(CHANGES, shape, 1e-3)


if __name__ == "__main__":
    unittest.main()
