#!/usr/bin/env python3
"""TensorBoard itself reads event files of EventFileWriter, and its HTTP interface shows every tag with its values."""

import math
import pathlib
import struct
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from run_record_case import RunRecordCase
from tensorboard_server import MISSING, SECONDS_TO_LOAD, TensorBoard

if not MISSING:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

START = 1700000000.5


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


@unittest.skipIf(MISSING, MISSING)
class EventFileLoaderTest(RunRecordCase):
    """The reader below TensorBoard, which checks every checksum."""

    def events(self, folder):
        (path,) = folder.glob("events.out.tfevents.*")
        return list(EventFileLoader(str(path)).Load())

    def test_every_record_is_whole(self):
        events = self.events(self.folder / "tb/train")
        self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertEqual(len(events), 1 + 50 + 3 + 3 + 3)
        self.assertTrue(all(len(event.summary.value) == 1 for event in events[1:]))

    def test_images_have_their_size_before_them(self):
        (value,) = [event.summary.value[0] for event in self.events(self.folder / "tb/validation")
                    if event.summary.value and event.summary.value[0].tag == "misclassified"]
        self.assertEqual(list(value.tensor.string_val)[:2], [b"7", b"5"])

    def test_steps_and_times_are_exact(self):
        losses = [event for event in self.events(self.folder / "tb/train")[1:] if event.summary.value[0].tag == "step/loss"]
        self.assertEqual([(event.step, event.wall_time) for event in losses], [(step, START + step) for step in range(50)])


class Served:
    """The tests, for each of TensorBoard's two loaders."""

    arguments = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = TensorBoard(cls.folder, cls.arguments)
        cls.addClassCleanup(cls.server.close)
        end = time.monotonic() + SECONDS_TO_LOAD
        while set(cls.server.json("runs")) != {"tb", "tb/train", "tb/validation"} or not all(
                cls.server.json(f"plugin/{plugin}/tags") for plugin in ("scalars", "histograms", "images", "text")):
            if time.monotonic() > end:
                raise AssertionError(f"not loaded after {SECONDS_TO_LOAD} s: {cls.server.json('runs')}")
            time.sleep(0.2)

    def tags(self, plugin):
        tags = self.server.json(f"plugin/{plugin}/tags")
        return {(run, tag) for run, found in tags.items() for tag in found}

    def test_scalars(self):
        self.assertEqual(self.tags("scalars"), {("tb/train", "step/loss"), ("tb/train", "step/odd"), ("tb/train", "epoch/loss"),
                                                ("tb/validation", "epoch/accuracy"), ("tb", "images_per_second")})
        points = self.server.json("plugin/scalars/scalars", run="tb/train", tag="step/loss")
        self.assertEqual(points, [[START + step, step, float32(2 / (step + 1))] for step in range(50)])
        points = self.server.json("plugin/scalars/scalars", run="tb/validation", tag="epoch/accuracy")
        self.assertEqual([point[1:] for point in points], [[1, 0.5], [2, 0.75], [3, 0.875]])

    def test_scalars_that_are_not_finite(self):
        points = self.server.json("plugin/scalars/scalars", run="tb/train", tag="step/odd")
        self.assertEqual([step for _, step, _ in points], [1, 2, 2**40])
        values = [float(value) for _, _, value in points]
        self.assertTrue(math.isnan(values[0]))
        self.assertEqual(values[1:], [math.inf, float32(-3e-7)])

    def test_histograms(self):
        names = ("weight", "bias", "none")
        self.assertEqual(self.tags("histograms"), {("tb/train", f"gradients/{name}") for name in names})
        weight, bias, none = (self.server.json("plugin/histograms/histograms", run="tb/train", tag=f"gradients/{name}")
                              for name in names)
        ((_, step, bins),) = weight
        values = [math.sin(i) for i in range(1000)]
        self.assertEqual(step, 1)
        self.assertEqual(len(bins), 30)
        self.assertEqual((bins[0][0], bins[-1][1]), (min(values), max(values)))
        for left, right, count in bins[:-1]:
            self.assertEqual(count, sum(left <= value < right for value in values))
        self.assertEqual(sum(count for _, _, count in bins), 1000)
        self.assertEqual(bias[0][2], [[0.25, 0.25, 2]])
        self.assertEqual(none[0][2], [])

    def test_images(self):
        self.assertEqual(self.tags("images"), {("tb/validation", "misclassified")})
        (image,) = self.server.json("plugin/images/images", run="tb/validation", tag="misclassified", sample=0)
        self.assertEqual(image["step"], 3)
        query = dict(urllib.parse.parse_qsl(image["query"]))
        png = self.server.get("plugin/images/individualImage", **query)
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", png[16:24]), (7, 5))

    def test_text(self):
        self.assertEqual(self.tags("text"), {("tb", "configuration")})
        (text,) = self.server.json("plugin/text/text", run="tb", tag="configuration")
        self.assertIn("<table>", text["text"])
        self.assertIn("<em>simple_cnn</em>", text["text"])

    def test_hyperparameters(self):
        experiment = self.server.post("plugin/hparams/experiment", {"experimentName": ""})
        self.assertEqual({(info["name"], info["type"]) for info in experiment["hparamInfos"]},
                         {("learning_rate", "DATA_TYPE_FLOAT64"), ("model", "DATA_TYPE_STRING"), ("shuffle", "DATA_TYPE_BOOL")})
        metrics = {(info["name"]["group"], info["name"]["tag"]) for info in experiment["metricInfos"]}
        self.assertEqual(metrics, {("train", "epoch/loss"), ("validation", "epoch/accuracy"), ("", "images_per_second")})
        (group,) = self.server.post("plugin/hparams/session_groups", {
            "experimentName": "", "allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 10,
            "colParams": [{"metric": {"group": group, "tag": tag}} for group, tag in sorted(metrics)],
        })["sessionGroups"]
        self.assertEqual(group["name"], "group-a")
        self.assertEqual(group["hparams"], {"learning_rate": 0.001, "model": "simple_cnn", "shuffle": True})
        values = {value["name"]["tag"]: (value["value"], value["trainingStep"]) for value in group["metricValues"]}
        self.assertEqual(values, {"epoch/loss": (float32(1 / 3), 3), "epoch/accuracy": (0.875, 3),
                                  "images_per_second": (512, 3)})
        (session,) = group["sessions"]
        self.assertEqual((session["startTimeSecs"], session["endTimeSecs"]), (START, START + 60))


@unittest.skipIf(MISSING, MISSING)
class PythonLoaderTest(Served, RunRecordCase):
    arguments = ("--load_fast", "false")


@unittest.skipIf(MISSING, MISSING)
class DataServerTest(Served, RunRecordCase):
    """The loader written in Rust, TensorBoard's default where it is installed."""

    arguments = ("--load_fast", "true")


if __name__ == "__main__":
    unittest.main()
