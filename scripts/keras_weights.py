#!/usr/bin/env python3
"""Writes the weights of a Keras model as a .safetensors file that Lockstep and PyTorch load.

    keras_weights.py model.keras                                    # lists the layers
    keras_weights.py model.keras mapping.json model.safetensors     # converts them

IN is a .keras file, a Keras 3 .weights.h5 file, a legacy .h5 file, or a TensorFlow checkpoint (the path without .index; this
needs TensorFlow). The mapping is a JSON object that gives each layer its module:

    {"stem": "features.0", "head": {"module": "classifier", "flattened": [7, 7, 64]}, "old_head": null}

`null` leaves a layer out. A layer's object may hold:

    module      the module's name in state_dict()
    type        the layer's class, if the file does not tell: Dense, Conv1D, Conv2D, Conv3D, DepthwiseConv2D,
                BatchNormalization, LayerNormalization or Embedding
    flattened   [height, width, channels] of the images that a Flatten layer made the input of this Dense layer from
    scale, center, use_bias   false if the layer was made so, if the file does not tell

Exit codes: 0 done; 2 usage, or a wrong mapping; 4 IN cannot be used.
"""

import argparse
import dataclasses
import difflib
import io
import json
import os
import pathlib
import re
import sys
import zipfile

import numpy

KERNEL = ("kernel", "bias")
SCALE = ("gamma", "beta")
MOVING = ("moving_mean", "moving_variance")
EMBEDDING = ("embeddings",)
# The variables of each type of layer, in the order in which Keras makes them.
VARIABLES = {"Dense": KERNEL, "Conv1D": KERNEL, "Conv2D": KERNEL, "Conv3D": KERNEL, "DepthwiseConv2D": KERNEL,
             "BatchNormalization": SCALE + MOVING, "LayerNormalization": SCALE, "Embedding": EMBEDDING}
# The option that leaves a variable out.
OPTION = {"bias": "use_bias", "gamma": "scale", "beta": "center"}
TF_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class ConversionError(Exception):
    def __init__(self, message, exit_code):
        super().__init__(message)
        self.exit_code = exit_code


class MappingError(ConversionError):
    def __init__(self, message):
        super().__init__(message, 2)


class FileError(ConversionError):
    def __init__(self, message):
        super().__init__(message, 4)


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
        return __import__(module, fromlist=["_"])
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
            if name == "layers":  # groups called after classes; the layers' own names are beside the variables
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
        if ".OPTIMIZER_SLOT" in name or variable.lstrip("_") not in {*KERNEL, *SCALE, *MOVING, *EMBEDDING, "depthwise_kernel"}:
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


def named_variables(name, layer):
    """Returns the layer's variables by name. Raises MappingError if they are not those of its type."""
    expected = VARIABLES[layer.type]
    if layer.variables and isinstance(next(iter(layer.variables)), int):
        names = [variable for variable in expected if layer.options.get(OPTION.get(variable), True)]
        if len(names) == 2 and len(layer.variables) == 1 and names == list(KERNEL):
            names = ["kernel"]
        if len(expected) == 4 and len(layer.variables) == 2:
            names = list(MOVING)
        if len(names) != len(layer.variables):
            raise MappingError(f"{name}: expected {layer.type} with {', '.join(names)}, but the file has {len(layer.variables)} "
                               f"variables: set scale, center or use_bias to false if the layer was made so")
        return dict(zip(names, layer.variables.values()))
    if unknown := sorted(set(layer.variables) - set(expected)):
        raise MappingError(f"{name}: expected {layer.type} with {', '.join(expected)}, but the file has {', '.join(unknown)}")
    return layer.variables


def convert(name, layer):
    """Returns a layer's tensors as a torch::nn module has them, by the names in its state_dict()."""
    given = named_variables(name, layer)
    if missing := [variable for variable in VARIABLES[layer.type] if variable not in given and variable not in OPTION]:
        raise FileError(f"{name}: expected {layer.type} with {', '.join(missing)}, but the file has only {', '.join(given)}")
    if layer.type == "Embedding":
        return {"weight": given["embeddings"]}
    if "kernel" in given:
        tensors = {"weight": kernel_of(name, layer, given["kernel"])}
        return tensors | ({"bias": given["bias"]} if "bias" in given else {})
    size = next(iter(given.values())).shape
    tensors = {"weight": given.get("gamma", numpy.ones(size, "float32")), "bias": given.get("beta", numpy.zeros(size, "float32"))}
    if layer.type == "BatchNormalization":
        tensors |= {"running_mean": given["moving_mean"], "running_var": given["moving_variance"],
                    "num_batches_tracked": numpy.array(0, "int64")}
    return tensors


def kernel_of(name, layer, kernel):
    rank = {"Dense": 2, "Conv1D": 3, "Conv2D": 4, "Conv3D": 5, "DepthwiseConv2D": 4}[layer.type]
    if kernel.ndim != rank:
        raise MappingError(f"{name}: expected the kernel of {layer.type} to have {rank} dimensions, but got {list(kernel.shape)}")
    if shape := layer.options.get("flattened"):
        if layer.type != "Dense" or len(shape) != 3 or numpy.prod(shape) != kernel.shape[0]:
            raise MappingError(f"{name}: expected flattened to be [height, width, channels] with a product of {kernel.shape[0]}, the "
                               f"inputs of a Dense layer, but got {shape} for {layer.type}")
        kernel = kernel.reshape(*shape, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)
    if layer.type == "DepthwiseConv2D":
        height, width, channels, multiplier = kernel.shape
        return kernel.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    return numpy.moveaxis(kernel, (-1, -2), (0, 1))  # from [..., in, out] to [out, in, ...]


def convert_all(layers, mapping):
    """Returns all tensors by name. Raises MappingError unless the mapping names every layer."""
    if not isinstance(mapping, dict):
        raise MappingError("the mapping: expected a JSON object")
    for name in mapping.keys() - layers.keys():
        near = difflib.get_close_matches(name, layers, 1)
        raise MappingError(f"{name}: the file has no such layer with weights" + (f"; did you mean {near[0]}?" if near else ""))
    if forgotten := [name for name in layers if name not in mapping]:
        raise MappingError(f"expected a module, or null, for every layer, but got none for {', '.join(forgotten)}")
    tensors = {}
    for name, entry in mapping.items():
        if entry is None:
            continue
        entry = {"module": entry} if isinstance(entry, str) else entry
        options = {"module", "type", "flattened", "scale", "center", "use_bias"}
        if not isinstance(entry, dict) or not isinstance(entry.get("module"), str) or entry.keys() - options:
            raise MappingError(f"{name}: expected a module's name, or an object with module and {', '.join(sorted(options - {'module'}))}")
        layer = layers[name]
        layer = Layer(layer.variables, entry.get("type", layer.type), layer.options | entry)
        if layer.type not in VARIABLES:
            given = f"it is {layer.type}" if layer.type else "the file does not tell"
            raise MappingError(f"{name}: expected a type among {', '.join(VARIABLES)}, but {given}: give it as \"type\", or null to leave "
                               "the layer out")
        for part, array in convert(name, layer).items():
            key = f"{entry['module']}.{part}" if entry["module"] else part
            if key in tensors:
                raise MappingError(f"{name}: another layer has the module {entry['module']} already")
            tensors[key] = numpy.ascontiguousarray(array)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="IN")
    parser.add_argument("mapping", nargs="?", metavar="MAPPING")
    parser.add_argument("output", nargs="?", metavar="OUT")
    arguments = parser.parse_args()
    if arguments.mapping and not arguments.output:
        parser.error("expected MAPPING and OUT, or neither")
    try:
        layers = read(arguments.input)
        if not arguments.mapping:
            for name, layer in layers.items():
                print(f"{name}: {layer.type or 'unknown type'}", *(list(array.shape) for array in layer.variables.values()))
            return
        try:
            mapping = json.loads(pathlib.Path(arguments.mapping).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MappingError(f"{arguments.mapping}: expected a JSON file: {error}") from error
        tensors = convert_all(layers, mapping)
        partial = f"{arguments.output}.partial"
        need("safetensors.numpy", "safetensors").save_file(tensors, partial)
        os.replace(partial, arguments.output)
        print(f"{arguments.output}: {len(tensors)} tensors of {len({key.rpartition('.')[0] for key in tensors})} modules")
    except ConversionError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
