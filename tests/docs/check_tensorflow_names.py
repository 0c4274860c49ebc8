#!/usr/bin/env python3
"""Checks that a page has every public name of tf.distribute and the functions and classes of tf.experimental.dtensor:
check_tensorflow_names.py <page.md>

The names are those of the TensorFlow that this Python has; without one, exits with 77.
"""

import inspect
import os
import pathlib
import re
import sys


def names_of(module, seen):
    """Yields the public functions and classes of a module and all below it, and the classes' members."""
    for name in dir(module):
        if name.startswith("_"):
            continue
        value = getattr(module, name)
        if inspect.ismodule(value):
            if id(value) not in seen:
                seen.add(id(value))
                yield from names_of(value, seen)
            continue
        yield name
        if inspect.isclass(value):
            # A tuple's own methods are no names of tf.distribute.
            yield from (member for member in dir(value) if not member.startswith("_") and not hasattr(tuple, member))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        import tensorflow
    except ImportError:
        print("skipped: this Python has no TensorFlow")
        sys.exit(77)
    shown = set(re.findall(r"\w+", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
    modules = [tensorflow.distribute, tensorflow.compat.v1.distribute]
    expected = {name for module in modules for name in names_of(module, set())}
    expected |= {name for name in dir(tensorflow.experimental.dtensor) if not name.startswith("_")}
    missing = sorted(expected - shown)
    print("\n".join(missing) if missing else f"every name of TensorFlow {tensorflow.__version__} is there")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
