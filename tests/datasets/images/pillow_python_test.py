#!/usr/bin/env python3
"""Compares decoded images with Pillow's: each file as Pillow's convert("RGB") and as its ImageOps.exif_transpose gives it."""

import io
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest
import zlib

import numpy as np
from PIL import Image, ImageOps, features

HEIGHT, WIDTH = 13, 17
ADOBE_MARKER = b"\xff\xee"


def pixels(*channels, dtype=np.uint8):
    """Returns an image of noise, the same each time."""
    most = np.iinfo(dtype).max
    return np.random.default_rng(3).integers(0, most, (HEIGHT, WIDTH, *channels), dtype=dtype, endpoint=True)


def smooth(channels):
    """Returns an image that keeps its colours when compressed with loss."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([(40 * c + 7 * y + 5 * x) % 256 for c in range(channels)], axis=-1).astype(np.uint8)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def without_adobe_marker(jpeg):
    """Returns the JPEG file without the segment by which Adobe's programs, and Pillow, mark CMYK."""
    start = jpeg.index(ADOBE_MARKER)
    length = struct.unpack(">H", jpeg[start + 2:start + 4])[0]
    return jpeg[:start] + jpeg[start + 2 + length:]


def as_ycck(jpeg):
    """Returns a CMYK JPEG whose marker says that the first three components are luma and chroma."""
    start = jpeg.index(ADOBE_MARKER)
    transform = start + 4 + 11  # after "Adobe", a version and two flags
    return jpeg[:transform] + b"\x02" + jpeg[transform + 1:]


def exif_of(orientation, order="<", kind=3):
    """Returns EXIF data with the orientation as its only tag; kind 3 is a number of 16 bits, 4 one of 32."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    value = struct.pack(order + ("Hxx" if kind == 3 else "I"), orientation)
    return mark + struct.pack(order + "IHHHI", 8, 1, 0x0112, kind, 1) + value + b"\0\0\0\0"


def png_chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def chunks_of(png):
    """Returns the chunks of a PNG file after its signature."""
    chunks, at = [], 8
    while at < len(png):
        end = at + 12 + struct.unpack(">I", png[at:at + 4])[0]
        chunks.append(png[at:end])
        at = end
    return chunks


class PillowCase(unittest.TestCase):
    def decode(self, files):
        """Returns Lockstep's results by file name: (stored, upright), or an error's message."""
        results = {}
        with tempfile.TemporaryDirectory() as folder:
            source, out = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
            source.mkdir()
            out.mkdir()
            for name, content in files.items():
                (source / name).write_bytes(content)
            subprocess.run([os.environ["DECODE_IMAGES"], source, out], check=True)
            for name in files:
                error = out / f"{name}.error"
                results[name] = error.read_text() if error.exists() else tuple(
                    self.read(out / f"{name}.{kind}") for kind in ["stored", "upright"])
        return results

    def read(self, path):
        shape, content = path.read_bytes().split(b"\n", 1)
        image = np.frombuffer(content, np.uint8).reshape([int(size) for size in shape.split()])
        return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image

    def expect_as_pillow(self, files, most=0):
        """Expects the files' values to differ from Pillow's by `most` or less."""
        for name, result in self.decode(files).items():
            with self.subTest(name), Image.open(io.BytesIO(files[name])) as image:
                self.assertIsInstance(result, tuple, result)
                for kind, found, expected in zip(["stored", "upright"], result, [image, ImageOps.exif_transpose(image)]):
                    expected = np.asarray(expected.convert("RGB"))
                    self.assertEqual(found.shape, expected.shape, kind)
                    self.assertLessEqual(np.abs(found.astype(int) - expected.astype(int)).max(), most, kind)


class PillowTest(PillowCase):
    def test_jpegs_of_all_colour_spaces(self):
        cmyk = encoded(Image.fromarray(smooth(4), "CMYK"), "JPEG", quality=95)
        self.assertIn(ADOBE_MARKER, cmyk)
        noise = encoded(Image.fromarray(pixels(4), "CMYK"), "JPEG", quality=100)
        self.expect_as_pillow({
            "grey.jpg": encoded(Image.fromarray(smooth(1)[..., 0]), "JPEG", quality=95),
            "rgb.jpg": encoded(Image.fromarray(smooth(3)), "JPEG", quality=95),
            "cmyk.jpg": cmyk,
            "cmyk_progressive.jpg": encoded(Image.fromarray(smooth(4), "CMYK"), "JPEG", progressive=True),
            "cmyk_noise.jpg": noise,
            "cmyk_without_marker.jpg": without_adobe_marker(cmyk),
            "ycck.jpg": as_ycck(cmyk),
            "ycck_noise.jpg": as_ycck(noise),
        })

    def test_every_ink_with_every_black(self):
        """At quality 100, each pair of values fills a block of 8x8 pixels."""
        ink, black = np.mgrid[0:256:5, 0:256:5].astype(np.uint8)
        blocks = np.stack([ink, 255 - ink, ink // 2, black], axis=-1).repeat(8, axis=0).repeat(8, axis=1)
        image = Image.fromarray(blocks, "CMYK")
        self.expect_as_pillow({"pairs.jpg": encoded(image, "JPEG", quality=100, subsampling=0)})

    def test_pngs_of_all_kinds(self):
        palette = Image.fromarray(pixels(3)).quantize(16)
        transparent = palette.copy()
        transparent.info["transparency"] = bytes([0, 128] + [255] * 14)
        grey = Image.fromarray(pixels())
        self.expect_as_pillow({
            "grey.png": encoded(grey, "PNG"),
            "one_bit.png": encoded(grey.convert("1"), "PNG"),
            "rgb.png": encoded(Image.fromarray(pixels(3)), "PNG"),
            "grey_and_alpha.png": encoded(Image.fromarray(pixels(2), "LA"), "PNG"),
            "rgb_and_alpha.png": encoded(Image.fromarray(pixels(4), "RGBA"), "PNG"),
            "palette.png": encoded(palette, "PNG", bits=8),
            "palette_of_4_bits.png": encoded(palette, "PNG", bits=4),
            "palette_and_alpha.png": encoded(transparent, "PNG", bits=8),
            "transparent_grey.png": encoded(grey, "PNG", transparency=int(pixels()[0, 0])),
            "transparent_colour.png": encoded(Image.fromarray(pixels(3)), "PNG", transparency=(1, 2, 3)),
        })

    def test_sixteen_bits_are_scaled_and_rounded(self):
        """The one kind that is not as Pillow's: it turns every grey value above 255 white."""
        values = pixels(dtype=np.uint16)
        result = self.decode({"grey.png": encoded(Image.fromarray(values), "PNG")})["grey.png"]
        np.testing.assert_array_equal(result[0][..., 0], np.rint(values / 257.0))

    def test_a_png_may_end_after_its_image_data(self):
        png = encoded(Image.fromarray(pixels(3)), "PNG")
        *chunks, end = chunks_of(png)
        self.assertEqual(end[4:8], b"IEND")
        complete = png[:8] + b"".join(chunks)
        self.expect_as_pillow({
            "no_end.png": complete,
            "cut_end.png": complete + end[:6],
        })

    def test_a_png_without_all_of_its_image_data_is_refused(self):
        """Pillow refuses most of these files, too, but does not look at the checksum of image data."""
        png = encoded(Image.fromarray(pixels(3)), "PNG")
        complete = len(png) - 12
        files = {f"{length:05}.png": png[:length] for length in range(complete)}
        for name, result in self.decode(files).items():
            self.assertIsInstance(result, str, name)
        for length in range(complete - 40):
            with self.assertRaises((OSError, SyntaxError)):
                Image.open(io.BytesIO(png[:length])).convert("RGB")

    def test_all_orientations(self):
        files = {}
        for order in "<>":
            for orientation in range(10):
                exif = exif_of(orientation, order)
                name = f"{orientation}_{'little' if order == '<' else 'big'}"
                files[f"{name}.jpg"] = encoded(Image.fromarray(smooth(3)), "JPEG", quality=95, exif=b"Exif\0\0" + exif)
                files[f"{name}_grey.jpg"] = encoded(Image.fromarray(smooth(1)[..., 0]), "JPEG", exif=b"Exif\0\0" + exif)
                files[f"{name}.png"] = encoded(Image.fromarray(pixels(3)), "PNG", exif=exif)
        files["number_of_32_bits.png"] = encoded(Image.fromarray(pixels(3)), "PNG", exif=exif_of(6, kind=4))
        self.expect_as_pillow(files)
        turned = self.decode({"6.png": files["6_big.png"]})["6.png"]
        np.testing.assert_array_equal(turned[1], np.rot90(turned[0], -1))

    def test_an_orientation_after_the_image_data(self):
        png = encoded(Image.fromarray(pixels(3)), "PNG")
        *chunks, end = chunks_of(png)
        late = png[:8] + b"".join(chunks) + png_chunk(b"eXIf", exif_of(8, ">"))
        self.expect_as_pillow({"late.png": late + end, "late_without_end.png": late})

    def test_an_orientation_that_other_programs_wrote(self):
        exif = Image.Exif()
        exif[0x010F] = "A maker of cameras"
        exif[0x0112] = 5
        exif.get_ifd(0x8769)[0x9003] = "2024:01:02 03:04:05"
        image = Image.fromarray(smooth(3))
        self.expect_as_pillow({"camera.jpg": encoded(image, "JPEG", exif=exif, comment="first"),
                               "camera.png": encoded(image, "PNG", exif=exif)})

    def test_damaged_exif_data_leaves_an_image_as_it_is_stored(self):
        exif = exif_of(6, ">")
        files = {f"{length}.png": encoded(Image.fromarray(pixels(3)), "PNG", exif=exif[:length] + b"\0")
                 for length in range(18)}
        files["order.png"] = encoded(Image.fromarray(pixels(3)), "PNG", exif=b"XX" + exif[2:])
        files["far.png"] = encoded(Image.fromarray(pixels(3)), "PNG", exif=exif[:4] + b"\xff\xff\xff\xff" + exif[8:])
        for name, result in self.decode(files).items():
            self.assertIsInstance(result, tuple, result)
            np.testing.assert_array_equal(result[0], result[1], name)


@unittest.skipUnless(os.environ["WITH_WEBP"] == "ON", "this build has no libwebp")
@unittest.skipUnless(features.check("webp"), "this Pillow has no libwebp")
class WebpTest(PillowCase):
    def test_webps_of_all_kinds(self):
        # Pillow keeps the colours of transparent pixels if asked to.
        lossless = {"lossless": True, "exact": True}
        self.expect_as_pillow({
            "lossless.webp": encoded(Image.fromarray(pixels(3)), "WEBP", lossless=True),
            "lossless_and_alpha.webp": encoded(Image.fromarray(pixels(4), "RGBA"), "WEBP", **lossless),
            "lossy.webp": encoded(Image.fromarray(smooth(3)), "WEBP", quality=90),
            "lossy_and_alpha.webp": encoded(Image.fromarray(smooth(4), "RGBA"), "WEBP", quality=90, exact=True),
            "grey.webp": encoded(Image.fromarray(smooth(1)[..., 0]), "WEBP", quality=90),
        })

    def test_the_first_frame_of_an_animation(self):
        frames = [Image.fromarray(np.roll(pixels(3), shift, axis=0)) for shift in range(3)]
        self.expect_as_pillow({"moving.webp": encoded(
            frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)})

    def test_a_first_frame_that_covers_a_part_only(self):
        # Only the bounds of a frame, in units of two pixels, are changed.
        frames = [Image.fromarray(pixels(3)[:8, :8]), Image.fromarray(pixels(3)[4:12, :8])]
        webp = bytearray(encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True))
        canvas = webp.index(b"VP8X") + 12
        webp[canvas:canvas + 6] = struct.pack("<HxHx", WIDTH - 1, HEIGHT - 1)
        frame = webp.index(b"ANMF") + 8
        webp[frame:frame + 6] = struct.pack("<HxHx", 4, 2)
        self.expect_as_pillow({"part.webp": bytes(webp)})
        webp[frame:frame + 6] = struct.pack("<HxHx", 5, 2)
        self.assertIn("damaged WebP", self.decode({"beyond.webp": bytes(webp)})["beyond.webp"])

    def test_all_orientations_of_webps(self):
        self.expect_as_pillow({
            f"{orientation}.webp": encoded(Image.fromarray(pixels(3)), "WEBP", lossless=True,
                                           exif=prefix + exif_of(orientation))
            for orientation in range(10) for prefix in [b"", b"Exif\0\0"]})


if __name__ == "__main__":
    unittest.main()
