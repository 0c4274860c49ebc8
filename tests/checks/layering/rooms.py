"""The project's layers and rooms, read from the CMakeLists.txt that builds them: the order there is the order that holds."""

import dataclasses
import re

# Each layer, and the other layers that it may include.
LAYERS = {
    "runtime": set(),
    "datasets": set(),
    "parameter_server": {"runtime"},
    "strategies": {"runtime", "parameter_server"},
    "models": {"runtime", "parameter_server", "strategies"},
    "training": {"runtime", "parameter_server", "strategies"},
}
# These folders stand above the layers. They may include all of them, and the header that gathers them.
ABOVE = {"apps", "benchmarks", "examples", "measurement", "tests", "torch_tpu"}
# Rooms of the programs, in their order. A program's own folder comes after its rooms.
APP_ROOMS = [
    "apps/shared", "apps/train_images/options", "apps/train_images/data", "apps/train_images/training", "apps/train_images",
    "apps/train_ctr", "apps/train_gpt/options", "apps/train_gpt/data", "apps/train_gpt/training", "apps/train_gpt", "apps/plan", "apps/export_weights", "apps/convert_data", "apps/inspect_data",
    "apps/inspect_run", "apps/compare_strategies/options",
    "apps/compare_strategies/trials", "apps/compare_strategies/report", "apps/compare_strategies",
]

ADD_LAYER = re.compile(r"lockstep_add_layer\(\w+(?P<arguments>[^)]*)\)")
ADD_ROOM = re.compile(r"lockstep_add_room\((?P<flags>[A-Z_ ]*)\n")


@dataclasses.dataclass(frozen=True)
class Room:
    """A folder of a layer, or the layer's own folder."""

    path: str
    is_internal: bool = False
    is_torch_free: bool = False


def rooms_of(root, layer):
    """Lists a layer's rooms in the order of its CMakeLists.txt; the layer's own folder is the last one."""
    arguments = ADD_LAYER.search((root / layer / "CMakeLists.txt").read_text(encoding="utf-8"))["arguments"]
    _, _, listed = re.sub(r"#.*", "", arguments).partition("ROOMS")
    rooms = []
    for name in listed.split():
        if name.isupper():
            break
        flags = ADD_ROOM.search((root / layer / name / "CMakeLists.txt").read_text(encoding="utf-8"))["flags"].split()
        rooms.append(Room(f"{layer}/{name}", "INTERNAL" in flags, "TORCH_FREE" in flags))
    return [*rooms, Room(layer)]


def all_rooms(root):
    """Lists the rooms of all layers, and those of the programs."""
    return [room for layer in LAYERS for room in rooms_of(root, layer)] + [Room(path) for path in APP_ROOMS]


def room_of(rooms, path):
    """Returns the position of the innermost room that holds a path such as runtime/base/files/internal/sha256.h, or None."""
    holding = [i for i, room in enumerate(rooms) if path.startswith(room.path + "/")]
    return max(holding, key=lambda i: len(rooms[i].path), default=None)


def is_internal(rooms, path):
    """Whether users do not include this header of a layer: by its folder, or by its room."""
    room = room_of(rooms, path)
    return "/internal/" in path or (room is not None and rooms[room].is_internal)
