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

Exit codes: 0 done; 2 usage, or a wrong mapping; 4 IN cannot be used; 7 OUT cannot be written.
"""

import argparse
import difflib
import json
import os
import pathlib
import sys

import numpy
from keras_files import KERNEL, MOVING, VARIABLES, FileError, Layer, need, read

# The option of Keras that leaves a variable out.
OPTION = {"bias": "use_bias", "gamma": "scale", "beta": "center"}
RANK = {"Dense": 2, "Conv1D": 3, "Conv2D": 4, "Conv3D": 5, "DepthwiseConv2D": 4}


class MappingError(Exception):
    """A mapping that does not fit the file."""

    exit_code = 2


def named_variables(name, layer):
    """Returns the layer's variables by name. Raises MappingError if they are not those of its type."""
    expected = VARIABLES[layer.type]
    if layer.variables and isinstance(next(iter(layer.variables)), int):
        names = [variable for variable in expected if layer.options.get(OPTION.get(variable), True)]
        # Some numbers of variables leave no doubt: a kernel alone, and moving statistics alone.
        if names == list(KERNEL) and len(layer.variables) == 1:
            names = ["kernel"]
        if expected[-2:] == MOVING and len(layer.variables) == 2:
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
    if kernel.ndim != RANK[layer.type]:
        raise MappingError(f"{name}: expected the kernel of {layer.type} to have {RANK[layer.type]} dimensions, but got {list(kernel.shape)}")
    if shape := layer.options.get("flattened"):
        if layer.type != "Dense" or not isinstance(shape, list) or len(shape) != 3 or numpy.prod(shape) != kernel.shape[0]:
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
        partial = pathlib.Path(f"{arguments.output}.partial")
        partial.write_bytes(need("safetensors.numpy", "safetensors").save(tensors))
        os.replace(partial, arguments.output)
        print(f"{arguments.output}: {len(tensors)} tensors of {len({key.rpartition('.')[0] for key in tensors})} modules")
    except (FileError, MappingError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {arguments.output}: cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(7)


if __name__ == "__main__":
    main()
