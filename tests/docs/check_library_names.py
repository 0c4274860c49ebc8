#!/usr/bin/env python3
"""Checks that a page has every name of the library that it is about: check_library_names.py <page.md>

The library is looked for in the folders of PYTHONPATH. It is read, but not imported, so that it needs neither a GPU nor its own
requirements. If it is not there, or if it is another version than the page names, exits with 77.
"""

import ast
import pathlib
import re
import sys

# (package, file that tells its version, what its version looks like on the page, {source: names}). Names of a source are
#   __all__        the names that it exports
#   imports        those that it takes from its own modules
#   Class          the fields of a class, such as a configuration
#   Class.*        its public methods and properties
#   Class.method() the arguments of a method, and function() those of a function
LIBRARIES = {
    "from_fsdp": ("torch", "torch/version.py", "PyTorch {}", {
        "torch/distributed/fsdp/_fully_shard/__init__.py": ["__all__"],
        "torch/distributed/fsdp/_fully_shard/_fully_shard.py": ["FSDPModule.*", "UnshardHandle.*", "fully_shard()"],
        "torch/distributed/fsdp/_fully_shard/_fsdp_api.py": ["MixedPrecisionPolicy", "CPUOffloadPolicy"],
        "torch/distributed/device_mesh.py": ["DeviceMesh.*", "init_device_mesh()"],
        "torch/distributed/tensor/__init__.py": ["__all__"],
        "torch/distributed/tensor/_api.py": ["DTensor.*"],
        "torch/distributed/tensor/parallel/__init__.py": ["__all__"],
        "torch/distributed/tensor/parallel/style.py": ["ColwiseParallel.__init__()", "RowwiseParallel.__init__()",
                                                       "SequenceParallel.__init__()"],
        "torch/distributed/tensor/experimental/__init__.py": ["__all__"],
        "torch/distributed/checkpoint/__init__.py": ["imports"],
        "torch/distributed/checkpoint/state_dict_saver.py": ["__all__"],
        "torch/distributed/checkpoint/state_dict_loader.py": ["__all__"],
    }),
    "from_pipelining": ("torch", "torch/version.py", "PyTorch {}", {
        "torch/distributed/pipelining/__init__.py": ["__all__"],
        "torch/distributed/pipelining/schedules.py": ["__all__", "PipelineScheduleSingle.__init__()", "PipelineScheduleSingle.step()",
                                                      "PipelineScheduleMulti.__init__()", "_PipelineSchedule.*"],
        "torch/distributed/pipelining/stage.py": ["PipelineStage.__init__()"],
        "torch/distributed/pipelining/_IR.py": ["pipeline()"],
    }),
    "from_deepspeed": ("deepspeed", "deepspeed/git_version_info_installed.py", "DeepSpeed {}", {
        "deepspeed/runtime/zero/config.py": ["DeepSpeedZeroConfig"],
        "deepspeed/runtime/zero/offload_config.py": ["DeepSpeedZeroOffloadParamConfig", "DeepSpeedZeroOffloadOptimizerConfig"],
        "deepspeed/runtime/zero/leaf_module_config.py": ["DeepSpeedZeroLeafModuleConfig"],
        "deepspeed/runtime/zenflow/zenflow_config.py": ["ZenFlowConfig"],
        "deepspeed/runtime/precision_config.py": ["DeepSpeedBF16Config", "DeepSpeedFP16Config"],
        "deepspeed/runtime/tensor_parallel/config.py": ["TPConfig", "TPTrainingConfig"],
        "deepspeed/runtime/config.py": ["HybridEngineConfig"],
        "deepspeed/compile/config.py": ["CompileConfig"],
        "deepspeed/monitor/config.py": ["DeepSpeedMonitorConfig", "TensorBoardConfig", "WandbConfig", "CSVConfig", "CometConfig"],
        "deepspeed/moe/layer.py": ["MoE.__init__()"],
        "deepspeed/runtime/pipe/module.py": ["PipelineModule.__init__()"],
        "deepspeed/__init__.py": ["initialize()"],
    }),
    "from_megatron": ("megatron", "megatron/core/package_info.py", "Megatron-Core {}", {
        "megatron/core/model_parallel_config.py": ["ModelParallelConfig"],
        "megatron/core/transformer/transformer_config.py": ["TransformerConfig", "MLATransformerConfig"],
        "megatron/core/distributed/distributed_data_parallel_config.py": ["DistributedDataParallelConfig"],
        "megatron/core/optimizer/optimizer_config.py": ["OptimizerConfig"],
        "megatron/core/datasets/blended_megatron_dataset_config.py": ["BlendedMegatronDatasetConfig"],
        "megatron/core/datasets/gpt_dataset.py": ["GPTDatasetConfig"],
        "megatron/training/config/common_config.py": ["RNGConfig", "ProfilingConfig", "DistributedInitConfig"],
        "megatron/training/config/resilience_config.py": ["RerunStateMachineConfig", "StragglerDetectionConfig"],
        "megatron/training/config/training_config.py": ["TrainingConfig", "ValidationConfig", "SchedulerConfig", "LoggerConfig",
                                                        "CheckpointConfig", "TokenizerConfig"],
    }),
}
VERSION = re.compile(r"(?:__version__ = |version\s*=\s*)'(\d+\.\d+)|MAJOR = (\d+)\s*MINOR = (\d+)")
NOT_SHOWN = {"self", "cls", "args", "kwargs"}


def public(names):
    return {name for name in names if not name.startswith("_") and name not in NOT_SHOWN}


def definitions(tree, name):
    """The classes or functions of a name, also within conditions."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == name]


def fields(cls):
    return public(node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))


def methods(cls):
    return public(node.name for node in cls.body if isinstance(node, ast.FunctionDef))


def arguments(tree, path):
    found = [tree]
    for name in path.split("."):
        found = [node for scope in found for node in definitions(scope, name)]
    return public(argument.arg for function in found for argument in
                  function.args.posonlyargs + function.args.args + function.args.kwonlyargs)


def names_in(source, what):
    """The names that `what` stands for, see LIBRARIES; never none."""
    tree = ast.parse(source)
    if what == "__all__":
        lists = [node.value for node in tree.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == what]
        names = public(element.value for value in lists for element in value.elts)
    elif what == "imports":
        names = public(alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.level for alias in node.names)
    elif what.endswith("()"):
        names = arguments(tree, what[:-2])
    else:
        members = methods if what.endswith(".*") else fields
        names = {name for cls in definitions(tree, what.removesuffix(".*")) for name in members(cls)}
    if not names:
        raise LookupError(f"no names of {what}")
    return names


def check(page, folder):
    """Returns one line for each problem."""
    text = page.read_text(encoding="utf-8")
    shown = set(re.findall(r"\w+", text))
    missing = []
    for source, whats in LIBRARIES[page.stem][3].items():
        code = (folder / source).read_text(encoding="utf-8")
        missing += [f"{page}: expected {name} of {what} in {source}"
                    for what in whats for name in sorted(names_in(code, what) - shown)]
    return missing


def version_in(text):
    found = VERSION.search(text)
    return found[1] or f"{found[2]}.{found[3]}" if found else None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    page = pathlib.Path(sys.argv[1])
    package, version_file, version_text, _ = LIBRARIES[page.stem]
    folder = next((pathlib.Path(path) for path in sys.path if (pathlib.Path(path) / version_file).is_file()), None)
    if folder is None:
        print(f"skipped: no folder of PYTHONPATH has {package}")
        sys.exit(77)
    version = version_text.format(version_in((folder / version_file).read_text(encoding="utf-8")))
    if version not in page.read_text(encoding="utf-8"):
        print(f"skipped: the page is not about {version}")
        sys.exit(77)
    problems = check(page, folder)
    print("\n".join(problems) if problems else f"every name of {version} is there")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
