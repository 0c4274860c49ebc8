"""Reads the .pt files that Lockstep saves, without torch."""

import array
import pickle
import zipfile


class StateReader(pickle.Unpickler):
    """Tensors become the bytes of their values."""

    def __init__(self, archive):
        super().__init__(archive.open("archive/data.pkl"))
        self.archive = archive

    def persistent_load(self, pid):
        return self.archive.read(f"archive/data/{pid[2]}")

    def find_class(self, module, name):
        return {"_rebuild_tensor_v2": lambda storage, *_: storage, "OrderedDict": dict}.get(name, name)


def load(path):
    with zipfile.ZipFile(path) as archive:
        return StateReader(archive).load()


def newest(folder):
    """The newest checkpoint in a folder of backups."""
    return max(folder.glob("checkpoint-*"))


def weights_of(folder):
    """The parameters and statistics of the newest checkpoint of a model in float64, by their names."""
    model = load(newest(folder) / "state.pt")["model"]
    return {name: array.array("d", values) for name, values in model.items()}


def values_named(state, name):
    """The values of all keys `name` in a tree of dicts and lists."""
    if not isinstance(state, (dict, list)):
        return []
    items = state.items() if isinstance(state, dict) else enumerate(state)
    return [value for key, below in items for value in ([below] if key == name else values_named(below, name))]
