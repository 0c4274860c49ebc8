#!/usr/bin/env python3
"""Plants one violation after another in a small tree and expects the checks to find just that one."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import check_built_sources
import check_folder_sizes
import check_layering
import check_public_headers
import check_type_names
import rooms


class ChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for layer in rooms.LAYERS:
            self.write(f"{layer}/{layer}.h", "#include <vector>\n")
            self.write(f"{layer}.h", f'#include "lockstep/{layer}/{layer}.h"\n')
            self.write(f"{layer}/CMakeLists.txt", f"lockstep_add_layer({layer} SOURCES {layer}.cpp)\n")
        self.write("runtime/CMakeLists.txt", "lockstep_add_layer(runtime\n  ROOMS\n    base\n    base/files  # torch-free\n"
                                             "    devices\n    workers\n  LINK Threads::Threads)\n")
        for room, flags in [("base", "TORCH_FREE"), ("base/files", "TORCH_FREE"), ("devices", ""), ("workers", "INTERNAL")]:
            self.write(f"runtime/{room}/CMakeLists.txt", f"lockstep_add_room({flags}\n  SOURCES a.cpp)\n")
        self.write("runtime/base/errors.h", "")
        self.write("runtime/base/files/output_file.h", "")
        self.write("runtime/base/internal/utf8.h", "")
        self.write("runtime/devices/device.h", '#include "lockstep/runtime/base/errors.h"\n')
        self.write("runtime/workers/worker_group.h", "")
        self.write("runtime.h", "".join(f'#include "lockstep/runtime/{name}.h"\n'
                                        for name in ["runtime", "devices/device", "base/files/output_file"]))
        self.write("strategies/strategies.cpp", '#include "lockstep/runtime/runtime.h"\n')
        self.write("apps/apps.h", "")
        self.write("apps/apps.cpp", '#include "lockstep/lockstep.h"\n#include "lockstep/training/training.h"\n')
        self.umbrella = "".join(f'#include "lockstep/{layer}.h"\n' for layer in rooms.LAYERS)
        self.write("lockstep.h", self.umbrella)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def planted(self, name, text):
        """Returns the problems of a file, which is removed afterwards."""
        self.write(name, text)
        problems = check_layering.check(self.root)
        (self.root / name).unlink()
        return problems

    def test_an_example_may_include_a_file_beside_it(self):
        self.write("examples/one/net.h", "")
        self.assertEqual(self.planted("examples/one/main.cpp", '#include "net.h"\n'), [])
        self.assertEqual(len(self.planted("examples/two/main.cpp", '#include "net.h"\n')), 1)

    def test_a_tree_in_order_passes(self):
        self.assertEqual(check_layering.check(self.root), [])
        self.assertEqual(check_public_headers.check(self.root), [])
        self.assertEqual(check_folder_sizes.check(self.root), [])
        self.assertEqual(check_type_names.check(self.root), [])

    def test_includes_that_do_not_point_down_are_found(self):
        for layer, other in [
            ("runtime", "strategies"), ("runtime", "models"), ("runtime", "datasets"), ("models", "training"),
            ("models", "datasets"), ("datasets", "runtime"), ("datasets", "training"), ("strategies", "training"),
            ("strategies", "models"), ("strategies", "datasets"), ("training", "models"), ("training", "datasets"),
            ("training", "apps"), ("datasets", "apps"), ("parameter_server", "strategies"), ("runtime", "parameter_server"),
        ]:
            with self.subTest(layer=layer, other=other):
                (problem,) = self.planted(f"{layer}/planted.cpp", f'\n#include "lockstep/{other}/{other}.h"\n')
                self.assertIn(f"{layer}/planted.cpp:2: {layer} may include", problem)

    def test_a_layer_may_include_no_header_of_whole_layers(self):
        for name in ["lockstep.h", "runtime.h"]:
            (problem,) = self.planted("training/planted.h", f'#include "lockstep/{name}"\n')
            self.assertIn("training may include", problem)

    def test_rooms_that_include_later_ones_are_found(self):
        for room, other in [("base", "base/files/output_file"), ("devices", "workers/worker_group"), ("devices", "runtime")]:
            with self.subTest(room=room, other=other):
                found = self.planted(f"runtime/{room}/planted.cpp", f'#include "lockstep/runtime/{other}.h"\n')
                self.assertIn(f"runtime/{room}/planted.cpp:1: runtime/{room} comes before runtime", found[0])
        self.assertEqual(self.planted("runtime/workers/planted.cpp", '#include "lockstep/runtime/devices/device.h"\n'), [])

    def test_programs_have_rooms_in_order_too(self):
        self.write("apps/train_images/training/training.h", "")
        (problem,) = self.planted("apps/train_images/options/planted.cpp",
                                  '#include "lockstep/apps/train_images/training/training.h"\n')
        self.assertIn("apps/train_images/options comes before apps/train_images/training", problem)

    def test_libtorch_in_a_room_without_it_is_found(self):
        for include in ["<torch/types.h>", "<ATen/ATen.h>", "<c10/util/Exception.h>"]:
            with self.subTest(include=include):
                (problem,) = self.planted("runtime/base/files/planted.cpp", f"#include {include}\n")
                self.assertIn("runtime/base/files does without LibTorch, but includes <", problem)
                self.assertEqual(self.planted("runtime/devices/planted.cpp", f"#include {include}\n"), [])

    def test_a_room_without_libtorch_that_includes_one_with_it_is_found(self):
        # Allowed by the layers' order, as reports are written by training without LibTorch.
        self.write("training/CMakeLists.txt", "lockstep_add_layer(training\n  ROOMS\n    reporting)\n")
        self.write("training/reporting/CMakeLists.txt", "lockstep_add_room(TORCH_FREE\n  SOURCES a.cpp)\n")
        (problem,) = self.planted("training/reporting/planted.cpp", '#include "lockstep/runtime/devices/device.h"\n')
        self.assertIn('does without LibTorch, but includes "runtime/devices/device.h" of runtime/devices', problem)
        self.assertEqual(self.planted("training/reporting/planted.cpp", '#include "lockstep/runtime/base/errors.h"\n'), [])

    def test_public_headers_that_include_internal_ones_are_found(self):
        for name in ["base/internal/utf8.h", "workers/worker_group.h"]:
            (problem,) = self.planted("strategies/planted.h", f'#include "lockstep/runtime/{name}"\n')
            self.assertIn(f'strategies/planted.h is public, but includes "runtime/{name}", which is internal', problem)
            for place in ["strategies/internal/planted.h", "strategies/planted.cpp"]:
                self.assertEqual(self.planted(place, f'#include "lockstep/runtime/{name}"\n'), [])

    def test_other_spellings_are_found_everywhere(self):
        for include in ['"runtime.h"', '"runtime/runtime.h"', '"../runtime/runtime.h"', "<lockstep/runtime/runtime.h>",
                        '"lockstep/apps/../runtime/runtime.h"', '"lockstep/runtime/absent.h"']:
            for name in ["runtime/planted.cpp", "apps/planted.cpp", "tests/runtime/planted.cpp"]:
                with self.subTest(include=include, name=name):
                    (problem,) = self.planted(name, f"  # include {include}\n")
                    self.assertIn(f"{name}:1: ", problem)

    def test_a_public_header_that_lockstep_h_does_not_reach_is_found(self):
        self.write("models/planted.h", "")
        (problem,) = check_public_headers.check(self.root)
        self.assertIn("does not reach models/planted.h", problem)
        self.write("models/models.h", '#include "lockstep/models/planted.h"\n')  # through another
        self.assertEqual(check_public_headers.check(self.root), [])

    def test_a_layer_without_its_header_is_found(self):
        self.write("lockstep.h", self.umbrella.replace('#include "lockstep/models.h"\n', ""))
        self.assertEqual(check_public_headers.check(self.root),
                         ["lockstep.h does not reach models.h, the header of a layer",
                          "lockstep.h does not reach models/models.h: include it, or move it to an internal folder"])

    def test_an_internal_or_absent_header_in_lockstep_h_is_found(self):
        for name, expected in [("runtime/base/internal/utf8.h", "internal by its place"),
                               ("runtime/workers/worker_group.h", "internal by its place"),
                               ("models/absent.h", "does not exist")]:
            with self.subTest(name=name):
                self.write("lockstep.h", self.umbrella + f'#include "lockstep/{name}"\n')
                (problem,) = check_public_headers.check(self.root)
                self.assertIn(name, problem)
                self.assertIn(expected, problem)

    def test_a_header_that_calls_itself_internal_is_found(self):
        self.write("runtime/workers/worker_group.h", "// Internal: for sources alone.\n")
        self.assertEqual(check_public_headers.check(self.root),
                         ["runtime/workers/worker_group.h says in a comment that it is internal: its place should"])

    def test_folders_that_are_too_large_are_found(self):
        for i in range(check_folder_sizes.MOST + 1):
            self.write(f"tests/fuzz/corpus/{i}", "")
            self.write(f"models/internal/{i}.cpp", "")
        self.assertEqual(check_folder_sizes.check(self.root),
                         ["models/internal: expected 45 files or less, but got 46: cut it into rooms"])

    def test_sources_that_are_never_built_are_found(self):
        self.write("tests/CMakeLists.txt", "lockstep_add_test(a_test SOURCES runtime/listed_test.cpp)\n")
        self.write("tests/runtime/listed_test.cpp", "")
        self.write("tests/runtime/forgotten_test.cpp", "")
        (problem,) = [line for line in check_built_sources.check(self.root) if line.startswith("tests/")]
        self.assertIn("tests/runtime/forgotten_test.cpp: expected a CMakeLists.txt that names it", problem)

    def test_sources_that_the_fuzz_programs_lack_are_found(self):
        self.write("runtime/base/parser.h", "")
        self.write("runtime/base/parser.cpp", '#include "lockstep/runtime/base/parser.h"\n#include "lockstep/runtime/base/errors.h"\n'
                                              '#include "lockstep/runtime/base/text.h"\n')
        self.write("runtime/base/text.cpp", "")
        self.write("tests/fuzz/parser.cpp", '#include "lockstep/runtime/base/parser.h"\n')
        self.write("tests/fuzz/CMakeLists.txt", "set(parsers\n  runtime/base/parser.cpp  # runtime/base/text.cpp\n)\n")
        self.assertEqual(check_built_sources.check_fuzz(self.root),
                         ["tests/fuzz/CMakeLists.txt: expected runtime/base/text.cpp, as runtime/base/parser.cpp includes its header"])
        self.write("tests/fuzz/CMakeLists.txt", "set(parsers runtime/base/text.cpp)\n")
        self.assertEqual(check_built_sources.check_fuzz(self.root),
                         ["tests/fuzz/CMakeLists.txt: expected runtime/base/parser.cpp, as tests/fuzz/parser.cpp includes its header"])
        self.write("tests/fuzz/CMakeLists.txt", "set(parsers runtime/base/parser.cpp ${lockstep}/runtime/base/text.cpp)\n")
        self.assertEqual(check_built_sources.check_fuzz(self.root), [])
        # Those that only one program has are missing in the others.
        libtorch = "set(parsers runtime/base/parser.cpp)\nif(LOCKSTEP_FUZZ_LIBTORCH)\nadd_executable(p {} runtime/base/text.cpp)\nendif()\n"
        self.write("tests/fuzz/CMakeLists.txt", libtorch.format(""))
        self.assertEqual(len(check_built_sources.check_fuzz(self.root)), 1)
        self.write("runtime/base/parser.cpp", "")
        self.write("tests/fuzz/parser.cpp", '#include "lockstep/runtime/base/text.h"\n')
        self.assertEqual(len(check_built_sources.check_fuzz(self.root)), 1)
        self.write("tests/fuzz/CMakeLists.txt", libtorch.format("parser.cpp"))
        self.assertEqual(check_built_sources.check_fuzz(self.root), [])

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
