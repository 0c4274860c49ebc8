#!/usr/bin/env python3
"""A PyTorch module with the weights that keras_weights.py converts computes what the layers of Keras do."""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import h5py
import numpy
import safetensors.torch
import torch
from numpy.lib.stride_tricks import sliding_window_view

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "keras_weights.py"
EPSILON = 1e-3  # of Keras's normalizations

# The network of both sides, in Keras's layouts: {layer: (class, {variable: shape})}. norm1 has no gamma, norm3 no beta.
NORM = ("beta", "moving_mean", "moving_variance")
LAYERS = {
    "stem": ("Conv2D", {"kernel": (3, 3, 3, 4), "bias": (4,)}),
    "norm1": ("BatchNormalization", {name: (4,) for name in NORM}),
    "depthwise": ("DepthwiseConv2D", {"kernel": (3, 3, 4, 2)}),
    "norm2": ("BatchNormalization", {name: (8,) for name in ("gamma",) + NORM}),
    "grouped": ("Conv2D", {"kernel": (2, 2, 4, 6), "bias": (6,)}),
    "dense": ("Dense", {"kernel": (3 * 2 * 6, 5), "bias": (5,)}),
    "norm3": ("LayerNormalization", {"gamma": (5,)}),
    "embedding": ("Embedding", {"embeddings": (11, 5)}),
    "words": ("Conv1D", {"kernel": (3, 5, 5), "bias": (5,)}),
    "head": ("Dense", {"kernel": (5, 3), "bias": (3,)}),
}
OPTIONS = {"norm1": {"scale": False}, "norm3": {"center": False}, "depthwise": {"use_bias": False}}
MAPPING = {name: name for name in LAYERS} | {"dense": {"module": "dense", "flattened": [3, 2, 6]}}
NEEDS_OPTIONS = MAPPING | {name: {"module": name} | OPTIONS[name] for name in ("norm1", "norm3")}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3)
        self.norm1 = torch.nn.BatchNorm2d(4, eps=EPSILON)
        self.depthwise = torch.nn.Conv2d(4, 8, 3, groups=4, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(8, eps=EPSILON)
        self.grouped = torch.nn.Conv2d(8, 6, 2, groups=2)
        self.dense = torch.nn.Linear(36, 5)
        self.norm3 = torch.nn.LayerNorm(5, eps=EPSILON)
        self.embedding = torch.nn.Embedding(11, 5)
        self.words = torch.nn.Conv1d(5, 5, 3)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, images, words):
        images = self.grouped(self.norm2(self.depthwise(self.norm1(self.stem(images)))))
        words = self.words(self.embedding(words).transpose(1, 2)).mean(2)
        return self.head(self.norm3(self.dense(images.flatten(1))) + words)


def weights(seed=1):
    """Returns {layer: {variable: array}}."""
    generator = numpy.random.default_rng(seed)
    return {name: {variable: generator.uniform(0.5, 1.5, shape).astype("float32") - (0.8 if variable in ("kernel", "embeddings") else 0)
                   for variable, shape in shapes.items()} for name, (_, shapes) in LAYERS.items()}


def inputs():
    generator = numpy.random.default_rng(2)
    return generator.normal(size=(16, 8, 7, 3)).astype("float32"), generator.integers(0, 11, (16, 4))


def convolve(images, kernel):
    """Cross-correlates images [n, height, width, in] with a kernel [h, w, in, out]."""
    windows = sliding_window_view(images, kernel.shape[:2], axis=(1, 2))  # [n, height, width, in, h, w]
    return numpy.einsum("nyxiab,abio->nyxo", windows, kernel)


def normalize(values, mean, variance, gamma=1.0, beta=0.0):
    return (values - mean) / numpy.sqrt(variance + EPSILON) * gamma + beta


def moving(values, layer):
    return normalize(values, layer["moving_mean"], layer["moving_variance"], layer.get("gamma", 1.0), layer["beta"])


def expected_outputs(given, images, words):
    """Computes the network by its formulas, in Keras's layouts."""
    given = {name: {key: array.astype("float64") for key, array in layer.items()} for name, layer in given.items()}
    x = moving(convolve(images, given["stem"]["kernel"]) + given["stem"]["bias"], given["norm1"])
    # The output channel of a depthwise convolution is input channel * multiplier + which of the multiplier's.
    kernel = given["depthwise"]["kernel"]
    x = numpy.concatenate([convolve(x[..., i:i + 1], kernel[:, :, i:i + 1, :]) for i in range(4)], axis=-1)
    x = moving(x, given["norm2"])
    kernel = given["grouped"]["kernel"]
    x = numpy.concatenate([convolve(x[..., 4 * g:4 * g + 4], kernel[..., 3 * g:3 * g + 3]) for g in range(2)], axis=-1)
    x = (x + given["grouped"]["bias"]).reshape(len(x), -1) @ given["dense"]["kernel"] + given["dense"]["bias"]
    x = normalize(x, x.mean(1, keepdims=True), x.var(1, keepdims=True), given["norm3"]["gamma"])
    w = convolve(given["embedding"]["embeddings"][words][:, None], given["words"]["kernel"][None]) + given["words"]["bias"]
    return (x + w.mean((1, 2))) @ given["head"]["kernel"] + given["head"]["bias"]


def write_weights_h5(target, given):
    """As Keras 3: groups called after classes, numbered variables, and the layer's name in an attribute."""
    with h5py.File(target, "w") as file:
        counts = {}
        for name, variables in given.items():
            kind = {"Conv2D": "conv2d", "Conv1D": "conv1d", "DepthwiseConv2D": "depthwise_conv2d", "Dense": "dense",
                    "BatchNormalization": "batch_normalization", "LayerNormalization": "layer_normalization",
                    "Embedding": "embedding"}[LAYERS[name][0]]
            number = counts[kind] = counts.get(kind, -1) + 1
            group = file.create_group(f"layers/{kind}{f'_{number}' if number else ''}/vars")
            group.attrs["name"] = name
            for index, array in enumerate(variables.values()):
                group[str(index)] = array
        file.create_group("layers/dropout/seed_generator/vars")["0"] = numpy.zeros(2, "uint32")
        file.create_group("optimizer/vars")["0"] = numpy.zeros(())


def write_keras(path, given):
    layers = [{"class_name": kind, "config": {"name": name} | OPTIONS.get(name, {})} for name, (kind, _) in LAYERS.items()]
    buffer = io.BytesIO()
    write_weights_h5(buffer, given)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Functional", "config": {"name": "net", "layers": layers}}))
        archive.writestr("model.weights.h5", buffer.getvalue())


def write_legacy_h5(path, given, suffix):
    """As Keras 2 (with ":0" after the variables' names) and Keras 3 write .h5 files."""
    with h5py.File(path, "w") as file:
        layers = [{"class_name": kind, "config": {"name": name}} for name, (kind, _) in LAYERS.items()]
        file.attrs["model_config"] = json.dumps({"class_name": "Functional", "config": {"name": "net", "layers": layers}})
        groups = file.create_group("model_weights")
        # Keras splits a long list.
        groups.attrs["layer_names0"] = [b"input"] + [name.encode() for name in list(given)[:4]]
        groups.attrs["layer_names1"] = [name.encode() for name in list(given)[4:]]
        groups.create_group("input").attrs["weight_names"] = []
        for name, variables in given.items():
            group = groups.create_group(name)
            is_old = suffix and LAYERS[name][0] == "DepthwiseConv2D"
            names = [f"{name}/{'depthwise_' if is_old else ''}{variable}{suffix}" for variable in variables]
            group.attrs["weight_names"] = [full.encode() for full in names]
            for full, array in zip(names, variables.values()):
                group[full] = array


class KerasWeightsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPT, *map(str, arguments)], text=True, capture_output=True, check=False)

    def convert(self, source, mapping):
        """Returns the converted tensors."""
        (self.folder / "mapping.json").write_text(json.dumps(mapping), encoding="utf-8")
        target = self.folder / "out.safetensors"
        done = self.run_script(source, self.folder / "mapping.json", target)
        self.assertEqual(done.returncode, 0, done.stderr)
        return safetensors.torch.load_file(target)

    def refusal(self, source, mapping, exit_code=2):
        (self.folder / "mapping.json").write_text(json.dumps(mapping), encoding="utf-8")
        done = self.run_script(source, self.folder / "mapping.json", self.folder / "out.safetensors")
        self.assertEqual(done.returncode, exit_code, done.stderr)
        self.assertFalse((self.folder / "out.safetensors").exists())
        return done.stderr

    def outputs(self, tensors, images, words):
        net = Net().eval()
        net.load_state_dict(tensors)
        with torch.no_grad():
            return net(torch.tensor(images).permute(0, 3, 1, 2), torch.tensor(words)).numpy()

    def files(self, given):
        """Yields a name, a file of each format, and the mapping that it needs."""
        write_keras(self.folder / "net.keras", given)
        write_weights_h5(self.folder / "net.weights.h5", given)
        write_legacy_h5(self.folder / "keras3.h5", given, "")
        write_legacy_h5(self.folder / "keras2.h5", given, ":0")
        for name, mapping in [("net.keras", MAPPING), ("net.weights.h5", NEEDS_OPTIONS), ("keras3.h5", MAPPING), ("keras2.h5", MAPPING)]:
            yield name, self.folder / name, mapping

    def test_outputs_are_those_of_the_layers_formulas(self):
        given = weights()
        images, words = inputs()
        expected = expected_outputs(given, images, words)
        self.assertGreater(expected.std(), 0.1)
        for name, path, mapping in self.files(given):
            with self.subTest(name):
                found = self.outputs(self.convert(path, mapping), images, words)
                self.assertLess(abs(found - expected).max(), 1e-5 * max(1, abs(expected).max()))

    def test_layers_are_listed_with_type_and_shapes(self):
        for name, path, _ in self.files(weights()):
            done = self.run_script(path)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = sorted(done.stdout.splitlines())
            self.assertEqual(len(lines), len(LAYERS), name)
            self.assertIn("stem: Conv2D [3, 3, 3, 4] [4]", lines)
            self.assertIn("depthwise: DepthwiseConv2D [3, 3, 4, 2]", lines)

    def test_a_layer_in_a_nested_or_subclassed_model_is_named_by_its_path(self):
        kernel, bias = numpy.arange(6, dtype="float32").reshape(2, 3), numpy.ones(3, "float32")
        with h5py.File(self.folder / "nested.weights.h5", "w") as file:
            for place, name in [("layers/functional/layers/dense", "inner"), ("layers/functional_1/layers/dense", "inner"), ("branch/fc", "x")]:
                group = file.create_group(f"{place}/vars")
                group.attrs["name"] = name
                group["0"], group["1"] = kernel, bias
            file.create_group("layers/functional/vars").attrs["name"] = "left"
            file.create_group("layers/functional_1/vars").attrs["name"] = "right"
        mapping = {"left/inner": "a", "right/inner": None, "branch/fc": {"module": "b", "type": "Dense"}}
        tensors = self.convert(self.folder / "nested.weights.h5", mapping)
        self.assertEqual(sorted(tensors), ["a.bias", "a.weight", "b.bias", "b.weight"])
        self.assertTrue(torch.equal(tensors["b.weight"], torch.tensor(kernel.T)))

    def test_a_wrong_mapping_is_refused_by_name(self):
        write_keras(self.folder / "net.keras", weights())
        path = self.folder / "net.keras"
        without = {name: module for name, module in MAPPING.items() if name != "head"}
        for mapping, message in [
                (without, "got none for head"),
                (MAPPING | {"haed": "head"}, "haed: the file has no such layer with weights; did you mean head?"),
                (MAPPING | {"head": "dense"}, "head: another layer has the module dense already"),
                (MAPPING | {"head": 3}, "head: expected a module's name"),
                (MAPPING | {"head": {"module": "head", "typ": "Dense"}}, "head: expected a module's name"),
                (MAPPING | {"head": {"module": "head", "type": "LSTM"}}, "head: expected a type among Dense"),
                (MAPPING | {"head": {"module": "head", "type": "Conv2D"}}, "kernel of Conv2D to have 4 dimensions, but got [5, 3]"),
                (MAPPING | {"dense": {"module": "dense", "flattened": [2, 2, 6]}}, "product of 36"),
                (MAPPING | {"dense": {"module": "dense", "flattened": 36}}, "flattened to be [height, width, channels]"),
                (MAPPING | {"norm1": {"module": "norm1", "scale": True}}, "norm1: expected BatchNormalization with gamma, beta"),
                (["head"], "expected a JSON object")]:
            self.assertIn(message, self.refusal(path, mapping))

    def test_a_file_that_does_not_tell_a_type_asks_for_it(self):
        with h5py.File(self.folder / "own.weights.h5", "w") as file:
            file.create_group("my_layer/vars")["0"] = numpy.ones((2, 3), "float32")
        error = self.refusal(self.folder / "own.weights.h5", {"my_layer": "fc"})
        self.assertIn("my_layer: expected a type among Dense", error)
        self.assertIn("the file does not tell", error)

    def test_a_file_that_cannot_be_used_is_refused_by_name(self):
        (self.folder / "text").write_text("no weights", encoding="utf-8")
        h5py.File(self.folder / "empty.weights.h5", "w").close()
        with zipfile.ZipFile(self.folder / "other.zip", "w") as archive:
            archive.writestr("readme", "")
        for name, message in [("text", "expected a .keras file, an HDF5 file or a TensorFlow checkpoint"),
                              ("missing", "there is no such file"), ("empty.weights.h5", "found none"),
                              ("other.zip", "with config.json and model.weights.h5")]:
            error = self.refusal(self.folder / name, MAPPING, exit_code=4)
            self.assertIn(name, error)
            self.assertIn(message, error)

    def test_an_output_that_cannot_be_written_is_named(self):
        write_keras(self.folder / "net.keras", weights())
        (self.folder / "mapping.json").write_text(json.dumps(MAPPING), encoding="utf-8")
        done = self.run_script(self.folder / "net.keras", self.folder / "mapping.json", self.folder / "none" / "out.safetensors")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("none/out.safetensors: cannot be written", done.stderr)

    def test_files_of_tensorflow_itself_give_its_outputs(self):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        try:
            import keras
            import tensorflow
        except ImportError as error:
            self.skipTest(f"this Python has no TensorFlow: {error}")
        given = weights()
        images, words = inputs()
        layers = keras.layers
        image_input, word_input = keras.Input(images.shape[1:]), keras.Input(words.shape[1:], dtype="int64")
        x = layers.Conv2D(4, 3, name="stem")(image_input)
        x = layers.BatchNormalization(scale=False, name="norm1")(x)
        x = layers.DepthwiseConv2D(3, depth_multiplier=2, use_bias=False, name="depthwise")(x)
        x = layers.BatchNormalization(name="norm2")(x)
        x = layers.Flatten()(layers.Conv2D(6, 2, groups=2, name="grouped")(x))
        x = layers.LayerNormalization(center=False, name="norm3")(layers.Dense(5, name="dense")(x))
        w = layers.Conv1D(5, 3, name="words")(layers.Embedding(11, 5, name="embedding")(word_input))
        x = layers.Dropout(0.5)(layers.Add()([x, layers.GlobalAveragePooling1D()(w)]))
        model = keras.Model([image_input, word_input], layers.Dense(3, name="head")(x))
        for name, variables in given.items():
            model.get_layer(name).set_weights(list(variables.values()))
        model.compile("adam", "mse")
        model.fit([images, words], numpy.ones((16, 3)), epochs=3, verbose=0)
        expected = model.predict([images, words], verbose=0)

        model.save(self.folder / "tf.keras")
        model.save_weights(self.folder / "tf.weights.h5")
        model.save(self.folder / "tf.h5")
        tensorflow.train.Checkpoint(model=model).write(str(self.folder / "checkpoint"))
        operations = {layer.name: f"model/_operations/{i}" for i, layer in enumerate(model.layers)}
        typed = {operations[name]: {"type": LAYERS[name][0]} | (entry if isinstance(entry, dict) else {"module": entry})
                 for name, entry in MAPPING.items()}
        for name, mapping in [("tf.keras", MAPPING), ("tf.weights.h5", NEEDS_OPTIONS), ("tf.h5", MAPPING), ("checkpoint", typed)]:
            with self.subTest(name):
                found = self.outputs(self.convert(self.folder / name, mapping), images, words)
                difference = abs(found - expected).max()
                print(f"{name} of TensorFlow {tensorflow.__version__}, Keras {keras.__version__}: outputs differ by {difference:.1e}")
                self.assertLess(difference, 1e-5 * max(1, abs(expected).max()))


if __name__ == "__main__":
    unittest.main()
