#!/usr/bin/env python3
"""Plants one violation after another in a small tree and expects the checks to find just that one."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import check_layering
import check_type_names
import check_umbrella


class ChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for layer in [*check_layering.ALLOWED, "apps"]:
            self.write(f"{layer}/{layer}.h", "#include <vector>\n")
        self.write("runtime/queue.h", "// Internal: only the runtime waits on it.\n")
        self.write("strategies/strategies.cpp", '#include "lockstep/runtime/runtime.h"\n')
        self.write("apps/apps.cpp", '#include "lockstep/lockstep.h"\n#include "lockstep/training/training.h"\n')
        self.umbrella = "".join(f'#include "lockstep/{layer}/{layer}.h"\n' for layer in check_layering.ALLOWED)
        self.write("lockstep.h", self.umbrella)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def test_a_tree_in_order_passes(self):
        self.assertEqual(check_layering.check(self.root), [])
        self.assertEqual(check_umbrella.check(self.root), [])

    def test_includes_that_do_not_point_down_are_found(self):
        for layer, other in [
            ("runtime", "strategies"), ("runtime", "models"), ("runtime", "datasets"), ("models", "runtime"),
            ("models", "datasets"), ("datasets", "runtime"), ("datasets", "training"), ("strategies", "training"),
            ("strategies", "models"), ("strategies", "datasets"), ("training", "models"), ("training", "datasets"),
            ("training", "apps"), ("datasets", "apps"), ("parameter_server", "strategies"), ("runtime", "parameter_server"),
        ]:
            with self.subTest(layer=layer, other=other):
                self.write(f"{layer}/planted.cpp", f'\n#include "lockstep/{other}/{other}.h"\n')
                (problem,) = check_layering.check(self.root)
                self.assertIn(f"{layer}/planted.cpp:2: {layer} may include", problem)
                (self.root / layer / "planted.cpp").unlink()

    def test_a_layer_may_not_include_the_header_of_all_layers(self):
        self.write("training/planted.h", '#include "lockstep/lockstep.h"\n')
        (problem,) = check_layering.check(self.root)
        self.assertIn("training may include", problem)

    def test_other_spellings_are_found_everywhere(self):
        for include in ['"runtime.h"', '"runtime/runtime.h"', '"../runtime/runtime.h"', "<lockstep/runtime/runtime.h>",
                        '"lockstep/apps/../runtime/runtime.h"', '"lockstep/runtime/absent.h"']:
            for name in ["runtime/planted.cpp", "apps/planted.cpp", "tests/runtime/planted.cpp"]:
                with self.subTest(include=include, name=name):
                    self.write(name, f"  # include {include}\n")
                    (problem,) = check_layering.check(self.root)
                    self.assertIn(f"{name}:1: ", problem)
                    (self.root / name).unlink()

    def test_a_public_header_that_lockstep_h_does_not_reach_is_found(self):
        self.write("models/planted.h", "")
        (problem,) = check_umbrella.check(self.root)
        self.assertIn("does not reach models/planted.h", problem)

    def test_a_header_may_be_reached_through_another(self):
        self.write("models/planted.h", "")
        self.write("models/models.h", '#include "lockstep/models/planted.h"\n')
        self.assertEqual(check_umbrella.check(self.root), [])

    def test_an_internal_or_absent_header_in_lockstep_h_is_found(self):
        for name, expected in [("runtime/queue.h", "says that it is internal"), ("models/absent.h", "does not exist")]:
            with self.subTest(name=name):
                self.write("lockstep.h", self.umbrella + f'#include "lockstep/{name}"\n')
                (problem,) = check_umbrella.check(self.root)
                self.assertIn(name, problem)
                self.assertIn(expected, problem)

    def test_types_of_one_name_are_found(self):
        body = "namespace lockstep {{\n\n/// One.\n{}\n\n}}  // namespace lockstep\n"
        self.write("runtime/planted.h", body.format("class Value : public Base {\n};"))
        for same in ["struct Value {\n};", "enum class Value { kOne };"]:
            with self.subTest(same=same):
                self.write("training/planted.h", body.format(same))
                self.assertEqual(check_type_names.check(self.root),
                                 ["Value is defined by runtime/planted.h and by training/planted.h"])
        for other in ["struct Value;", "namespace detail {\nstruct Value {\n};\n}  // namespace detail",
                      "struct Other {\n  struct Value {\n  };\n};"]:
            with self.subTest(other=other):
                self.write("training/planted.h", body.format(other))
                self.assertEqual(check_type_names.check(self.root), [])


if __name__ == "__main__":
    unittest.main()
