"""Reads the weights of Keras models out of their files, for keras_weights.py."""

import dataclasses
import importlib
import io
import json
import os
import re
import zipfile

KERNEL = ("kernel", "bias")
SCALE = ("gamma", "beta")
MOVING = ("moving_mean", "moving_variance")
EMBEDDING = ("embeddings",)
# The variables of each type of layer, in the order in which Keras makes them.
VARIABLES = {"Dense": KERNEL, "Conv1D": KERNEL, "Conv2D": KERNEL, "Conv3D": KERNEL, "DepthwiseConv2D": KERNEL,
             "BatchNormalization": SCALE + MOVING, "LayerNormalization": SCALE, "Embedding": EMBEDDING}
KNOWN = {name for names in VARIABLES.values() for name in names} | {"depthwise_kernel"}
TF_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class FileError(Exception):
    """A file that cannot be used."""

    exit_code = 4


@dataclasses.dataclass
class Layer:
    """The variables are in the file's order, by name, or by number if the file does not name them."""

    variables: dict
    type: str | None = None
    options: dict = dataclasses.field(default_factory=dict)

    def guess_type(self):
        """Takes the type from the variables' names, if only one type has them."""
        names = self.variables.keys()
        if "embeddings" in names:
            self.type = self.type or "Embedding"
        elif "moving_mean" in names:
            self.type = self.type or "BatchNormalization"
        elif "gamma" in names or names == {"beta"}:
            self.type = self.type or "LayerNormalization"
        elif "kernel" in names and self.variables["kernel"].ndim == 2:
            self.type = self.type or "Dense"


def need(module, package):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FileError(f"needs the Python package {package}: pip install {package}") from error


def class_of(group):
    """Returns the type of layer that Keras calls a group after: conv2d_1 gives Conv2D."""
    plain = re.sub(r"_\d+$", "", group).replace("_", "")
    return next((name for name in VARIABLES if name.lower() == plain), None)


def read_weights_h5(file, classes):
    """Reads a Keras 3 file, in which a layer is a group with numbered variables. `classes` gives layers' type and options."""
    layers = {}

    def visit(group, path):
        variables = group.get("vars")
        if variables is not None and len(variables) and path:
            arrays = {int(number): variables[number][()] for number in sorted(variables, key=int)}
            kind, options = classes.get(path, (class_of(group.name.rsplit("/", 1)[1]), {}))
            layers[path] = Layer(arrays, kind, options)
        for name, child in group.items():
            # The state of random generators is not a weight.
            if name in ("vars", "seed_generator") or not hasattr(child, "items") or (not path and name == "optimizer"):
                continue
            if name == "layers":  # groups called after classes; the layers' own names are next to the variables
                for member in child.values():
                    own = member["vars"].attrs.get("name") if "vars" in member else None
                    visit(member, join(path, text_of(own or member.name.rsplit("/", 1)[1])))
            else:
                visit(child, join(path, name))

    visit(file, "")
    return layers


def read_legacy_h5(file):
    """Reads a file of Keras 1 or 2, or what Keras 3 writes for .h5: groups of layers, whose variables have names."""
    classes = classes_in(json.loads(file.attrs["model_config"])) if "model_config" in file.attrs else {}
    groups = file["model_weights"] if "model_weights" in file else file
    layers = {}
    for group in attribute(groups, "layer_names"):
        for weight in attribute(groups[group], "weight_names"):
            place, _, variable = weight.partition(":")[0].rpartition("/")
            path = group if place in ("", group) else join(group, place.removeprefix(f"{group}/"))
            kind, options = classes.get(path, (None, {}))
            add(layers, path, variable, groups[group][weight][()], kind, options)
    return layers


def read_checkpoint(path):
    """Reads a TensorFlow checkpoint, whose variables' names are paths through the model's attributes."""
    reader = need("tensorflow", "tensorflow").train.load_checkpoint(path)
    layers = {}
    for name in sorted(reader.get_variable_to_shape_map()):
        place, _, variable = name.removesuffix(TF_SUFFIX).rpartition("/")
        if ".OPTIMIZER_SLOT" in name or variable.lstrip("_") not in KNOWN:
            continue
        add(layers, place, variable, reader.get_tensor(name))
    return layers


def add(layers, path, variable, array, kind=None, options=None):
    layer = layers.setdefault(path, Layer({}, kind, options or {}))
    variable = variable.lstrip("_")
    if variable == "depthwise_kernel":  # Keras 2's name
        variable, layer.type = "kernel", "DepthwiseConv2D"
    layer.variables[variable] = array


def classes_in(config, path=""):
    """Returns {path of a layer: (class, options)} out of a model's configuration."""
    found = {}
    for layer in config.get("config", {}).get("layers", []) if isinstance(config.get("config"), dict) else []:
        own = join(path, layer["config"]["name"])
        found[own] = (layer["class_name"], layer["config"])
        found.update(classes_in(layer, own))
    return found


def attribute(group, name):
    """Returns a list of strings, which Keras splits into <name>0, <name>1, ... if it is long."""
    if name in group.attrs:
        return [text_of(value) for value in group.attrs[name]]
    values, part = [], 0
    while f"{name}{part}" in group.attrs:
        values += [text_of(value) for value in group.attrs[f"{name}{part}"]]
        part += 1
    return values


def text_of(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def join(path, name):
    return f"{path}/{name}" if path else name


def read(path):
    """Returns the layers that have variables, by name. A layer in a nested model is called `model/layer`."""
    if os.path.exists(f"{path}.index"):
        layers = read_checkpoint(path)
    elif not os.path.isfile(path):
        raise FileError(f"{path}: there is no such file, and no checkpoint {path}.index")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if not {"config.json", "model.weights.h5"} <= set(archive.namelist()):
                raise FileError(f"{path}: expected a .keras file with config.json and model.weights.h5")
            classes = classes_in(json.loads(archive.read("config.json")))
            with need("h5py", "h5py").File(io.BytesIO(archive.read("model.weights.h5"))) as file:
                layers = read_weights_h5(file, classes)
    elif need("h5py", "h5py").is_hdf5(path):
        with need("h5py", "h5py").File(path) as file:
            is_legacy = "model_weights" in file or any(key.startswith("layer_names") for key in file.attrs)
            layers = read_legacy_h5(file) if is_legacy else read_weights_h5(file, {})
    else:
        raise FileError(f"{path}: expected a .keras file, an HDF5 file or a TensorFlow checkpoint")
    if not layers:
        raise FileError(f"{path}: expected layers with weights, but found none")
    for layer in layers.values():
        layer.guess_type()
    return layers
