#!/usr/bin/env python3
"""The checks of this folder find what they are for, and nothing else."""

import pathlib
import tempfile
import unittest
import unittest.mock

import check_architecture
import check_code_blocks
import check_examples
import check_library_names
import check_links
import check_messages
import check_names
import check_page_diffs
import check_shown_sources
import check_versions
import page_commands
from declared_names import DeclaredNames

HEADER = """#pragma once
namespace lockstep {
/// Replicas; see Hidden::nowhere().
class Base {
 public:
  virtual int size() const { return count(7); }
};
class Strategy : public Base {
 public:
  void run(int argument = 1);
  int replicas_ = 0;
};
enum class Op { kSum, kMean };
template <typename T>
double result(const T& metric);
namespace detail {
void hidden();
}
}  // namespace lockstep
"""
TABLE = "| theirs | ours | |\n|---|---|---|\n"


PICTURE = """<svg xmlns="http://www.w3.org/2000/svg">
  <style>text { fill: black }</style>
  <g id="runtime"><text>runtime/</text>
    <g class="room torch-free"><rect/><text>base</text></g>
    <g class="room internal"><rect/><text>workers</text></g>
  </g>
  <g id="models"><text>models/</text></g>
</svg>
"""
ARCHITECTURE = """# Architecture
![](images/architecture_light.svg) images/architecture_dark.svg

## Rooms
| room | for | |
|---|---|---|
| [`runtime/base`](../runtime/base/) | Errors. | without LibTorch |
| [`runtime/workers`](../runtime/workers/) | Worker processes. | internal |
| [`models`](../models/) | Models. | |

## Where do I change ...
| to get | change | covered by |
|---|---|---|
| another NCCL option | [a](../models/a.h) | [t](../tests/a_test.cpp) |
| a new callback | [a](../models/a.h), [a](../runtime/base/a.h) | [t](../tests/a_test.cpp) |
| a new cluster resolver | [a](../models/a.h) | [t](../tests/a_test.cpp) |
| a new checkpoint format version | [a](../models/a.h) | [t](../tests/a_test.cpp) |
| one more column in the comparison's report | [a](../models/a.h) | [t](../tests/a_test.cpp) |
"""


class TreeTest(unittest.TestCase):
    """A test with a small source tree of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class ChecksTest(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("runtime/strategy.h", HEADER)
        self.write("runtime/internal/secret.h", "namespace lockstep { class Secret {}; }\n")
        self.write("runtime/internal/parts/part.h", "namespace lockstep { class SecretPart {}; }\n")
        self.write("runtime/workers/worker.h", "namespace lockstep { class Worker {}; }\n")
        self.write("runtime/workers/CMakeLists.txt", "lockstep_add_room(INTERNAL\n  SOURCES worker.cpp)\n")

    def names_in(self, rows, folder=None):
        programs = check_names.Programs(self.root, folder)
        return check_names.check(self.write("page.md", TABLE + rows), DeclaredNames(self.root), programs)

    def write_program(self, name, text):
        """Writes a script that prints `text`."""
        self.write(name, f"#!/bin/sh\ncat <<'END'\n{text}END\n").chmod(0o755)

    def test_classes_without_an_example_are_found(self):
        header = "namespace lockstep {\n\n%s\n}  // namespace lockstep\n"
        plain, derived = "/// One.\nclass One {\n};\n", "/// Two.\ntemplate <typename T>\nclass Two final : public One {\n};\n"
        for name, text, expected in [
                ("plain", plain, ["runtime/plain.h: expected an example in the comment of class One"]),
                ("derived", derived, ["runtime/derived.h: expected an example in the comment of class Two"]),
                ("shown", plain.replace("One.\n", "One.\n///\n/// Example:\n///\n///     One one;\n"), []),
                ("holder", "///     Net net;\nclass NetImpl {\n};\nclass Net : public Holder<NetImpl> {\n};\n", []),
                ("other", "struct Options {\n};\nclass One;\nnamespace detail {\nclass Two {\n};\n}  // namespace detail\n", []),
                ("internal/hidden", plain, [])]:
            with self.subTest(name):
                path = self.write(f"runtime/{name}.h", header % text)
                found = [line for line in check_examples.check(self.root) if line.startswith(f"runtime/{name}.h")]
                self.assertEqual(found, expected)
                path.unlink()

    def test_declared_names_pass(self):
        rows = "| `a` | `Strategy::run`, `Strategy::size` | |\n| `b` | `result`, `Op::kMean` | `Base::size` |\n"
        self.assertEqual(self.names_in(rows), [])

    def test_names_of_libtorch_are_taken_as_they_are(self):
        self.assertEqual(self.names_in("| `a` | `torch::nn::Linear` | |\n"), [])

    def test_names_that_no_public_header_declares_are_found(self):
        for name in ["walk", "Strategy::walk", "Strategy::argument", "Secret", "Worker", "hidden", "Base::run", "Base::count", "Hidden"]:
            problems = self.names_in(f"| `a` | `{name}` | |\n")
            self.assertEqual(len(problems), 1, name)
            self.assertIn(f"no public header declares {name}", problems[0])

    def test_flags_that_no_program_prints_are_found(self):
        self.write("apps/train/main.cpp", "")
        self.write("apps/plan/main.cpp", "")
        self.write_program("bin/train", "Options:\n      --mesh AXES  Axes, unlike --axes\n  -q, --quiet      Print errors only\n")
        self.write_program("bin/plan", "Options:\n      --top N\n")
        self.write_program("scripts/launch.sh", "  --gpus N|all\n")
        for code in ["train", "--mesh", "--quiet", "--top", "train --mesh", "plan --top", "scripts/launch.sh", "scripts/launch.sh --gpus"]:
            self.assertEqual(self.names_in(f"| `a` | `{code}` | |\n", self.root / "bin"), [], code)
        for code in ["--axes", "--gpus", "train --top", "serve --mesh", "scripts/launch.sh --mesh", "scripts/run.sh", "run()"]:
            (problem,) = self.names_in(f"| `a` | `Strategy::run`, `{code}` | |\n", self.root / "bin")
            self.assertIn(f"a flag of one, but got {code}", problem)
        # Without programs, only scripts are asked.
        self.assertEqual(self.names_in("| `a` | `--any`, `plan --any`, `scripts/launch.sh --gpus` | |\n"), [])
        self.assertEqual(len(self.names_in("| `a` | `serve --any`, `scripts/launch.sh --any` | |\n")), 2)

    def test_names_that_a_page_about_a_library_lacks_are_found(self):
        self.write("library/a.py", "from .b import one as two\nfrom os import path\n__all__ = ['one', '_two', 'three']\n")
        self.write("library/b.py", "import os\nif os:\n  class Options:\n    size: int = 1\n    _own: int = 2\n    kind = 3\n"
                   "    def __init__(self, first, *, second=1, **kwargs): pass\n    def step(self, third): pass\n"
                   "def call(*args, fourth, self_=1): pass\n")
        page = self.write("docs/page.md", "| `one(fourth)` | `size` |\n")
        for source, what, missing in [("a.py", "__all__", ["three"]), ("a.py", "imports", []), ("b.py", "Options", []),
                                      ("b.py", "Options.*", ["step"]), ("b.py", "Options.__init__()", ["first", "second"]),
                                      ("b.py", "Options.step()", ["third"]), ("b.py", "call()", ["self_"])]:
            with self.subTest(what=what), unittest.mock.patch.dict(
                    check_library_names.LIBRARIES, {"page": ("library", "", "", {f"library/{source}": [what]})}):
                self.assertEqual(check_library_names.check(page, self.root),
                                 [f"{page}: expected {name} of {what} in library/{source}" for name in missing])
        for what in ["Gone", "Options.gone()", "gone()"]:
            with self.assertRaises(LookupError):
                check_library_names.names_in("class Options:\n  size = 1\n", what)

    def test_the_version_of_a_library_is_found(self):
        for text in ["__version__ = '2.11.0+cu130'\n", "version='2.11.8 '\n", "MAJOR = 2\nMINOR = 11\nPATCH = 2\n"]:
            self.assertEqual(check_library_names.version_in(text), "2.11")
        self.assertIsNone(check_library_names.version_in("# none\n"))

    def test_a_member_in_a_note_is_looked_at(self):
        self.assertEqual(len(self.names_in("| `a` | not needed | `Strategy::walk` does it |\n")), 1)
        self.assertEqual(self.names_in("| `a` | not needed | `std::thread` does it |\n"), [])

    def test_what_is_not_offered_says_why(self):
        self.assertIn("nothing says why", self.names_in("| `a` | not offered | |\n")[0])
        self.assertEqual(self.names_in("| `a` | not offered yet | Later |\n"), [])
        self.assertIn("expected a name", self.names_in("| `a` | something | |\n")[0])

    def test_a_page_without_rows_is_found(self):
        self.assertIn("found none", self.names_in("")[0])

    def test_links_that_lead_nowhere_are_found(self):
        self.write("README.md", "[a](docs/a.md) [b](docs/none.md) `[c](none.md)` [d](https://example.org/none)\n")
        self.write("docs/a.md", "# What it *is*, now\n[self](#what-it-is-now) [other](a.md#gone)\n```sh\n# gone\n```\n")
        self.write("docs/b.md", "")
        self.write("SECURITY.md", "[a](docs/a.md#gone)\n<img alt=\"a > b\" src=\"docs/none.svg\">\n")
        self.assertEqual(check_links.check(self.root), [
            "README.md: docs/none.md: there is no such file",
            "SECURITY.md: docs/a.md#gone: there is no such heading",
            "SECURITY.md: docs/none.svg: there is no such file",
            "docs/a.md: a.md#gone: there is no such heading",
            "README.md does not link to SECURITY.md",
            "README.md does not link to docs/b.md",
        ])

    def test_code_that_nothing_checks_is_found(self):
        self.write("docs/a.md", "x\n\n    run();\n\n```cpp\nint a;\n```\n\n```cpp fragment\nint b;\n```\n\n    $ ls;\n    a;\n")
        self.write("docs/b.md", "```cpp\nint a;\n```\n\n    loss 0.5\n")
        self.assertEqual(check_code_blocks.problems(self.root, {"b"}), [
            "docs/a.md:3: C++ outside of a fence",
            "docs/a.md:6: C++ that no test compiles: make it a fragment, or add the page to the tests",
        ])

    def test_commands_are_told_from_output_and_other_code(self):
        page = ("Text\n\n    A=1 scripts/a.sh --b \\\n      c   # why\n    # a comment\n    train_images\n\nIt prints\n\n    loss 0.5\n\n"
                "```console\n$ cmake .\nok\n```\n\n```bash\n#!/bin/bash\nset -e\nls\n```\n\n```cpp\nscripts/a.sh;\n```\n")
        self.assertEqual(page_commands.commands(page), [
            (3, "A=1 scripts/a.sh --b c   # why"), (6, "train_images"), (13, "cmake ."),
            (18, "#!/bin/bash\nset -e\nls\n"),
        ])

    def test_a_message_that_no_source_has_is_found(self):
        self.write("runtime/a.cpp", 'fail("the worker ended " +\n     name);\nrefuse("one number " \n    "a row", given);\n')
        page = self.write("page.md", "| message | meaning |\n|---|---|\n"
                          "| `the worker ended ...`, `x: expected one number a row, but got` | `not looked at` |\n"
                          "| `the worker began` | |\n| `gone` (from cc) | |\n| `...` | |\n\n| name | |\n|---|---|\n| `other` | |\n")
        self.assertEqual(check_messages.check(self.root, page), [
            "page.md:4: no source has 'the worker began'",
            "page.md:6: expected a message of 4 characters or more, but got '...'",
        ])
        self.assertIn("found none", check_messages.check(self.root, self.write("empty.md", ""))[0])

    def test_a_version_that_differs_is_found(self):
        self.write("CMakeLists.txt", "project(lockstep VERSION 0.2.1 LANGUAGES CXX)\n")
        self.write("CITATION.cff", "cff-version: 1.2.0\nversion: 0.2.1\n")
        self.write("README.md", "**Status:** version 0.2, new\n")
        self.write("docs/building.md", "[CMakeLists.txt](../CMakeLists.txt): now 0.2.1.\n")
        self.write("examples/a/CMakeLists.txt", "find_package(lockstep 0.2 REQUIRED)\n")
        self.assertEqual(check_versions.check(self.root), [])

        self.write("CITATION.cff", "version: 0.2.0\n")
        self.write("README.md", "**Status:** new\n")
        self.write("docs/building.md", "[CMakeLists.txt](../CMakeLists.txt): now 0.2.10.\n")
        self.write("examples/a/CMakeLists.txt", "find_package(lockstep 0.1 REQUIRED)\n")
        self.assertEqual(check_versions.check(self.root), [
            "CITATION.cff: expected the version 0.2.1, but got 0.2.0",
            "README.md: expected the version 0.2.1, but found none",
            "docs/building.md: expected the version 0.2.1, but got 0.2.10",
            "examples/a/CMakeLists.txt: expected find_package(lockstep 0.2), but got 0.1",
        ])

    def test_diffs_lead_from_one_program_to_the_next(self):
        before, diff = "```cpp\nint a;\nint b;\nint c;\n```\n", "```diff\n int a;\n-int b;\n+int d;\n```\n"
        for after in ["int a;\nint d;\nint c;\n", "int d;\nint c;\nint more;\n"]:
            self.assertEqual(check_page_diffs.check(self.write("page.md", f"{before}{diff}```cpp\n{after}```\n")), [])
        for page, problem in [(f"{before}{diff}```cpp\nint d;\n```\n", "begins as the diffs above say"),
                              (f"{before}{diff}", "a program after the last diff"),
                              (f"{before}{diff}{diff}```cpp\nint a;\nint d;\nint c;\n```\n", "applies in one place"),
                              ("```cpp\nint a;\nint a;\n```\n```diff\n-int a;\n```\n", "applies in one place"),
                              (before, "found none")]:
            self.assertIn(problem, check_page_diffs.check(self.write("page.md", page))[0])

    def test_a_source_that_differs_from_its_page_is_found(self):
        page = self.write("page.md", "```cpp\nint a;\n```\n\n```cmake\nadd()\n```\n")
        same, other = self.write("same.cpp", "int a;\n"), self.write("other.cpp", "int b;\n")
        self.assertEqual(check_shown_sources.check(page, "cpp", [same]), [])
        self.assertIn("-int b;", check_shown_sources.check(page, "cpp", [other]))
        self.assertIn("expected 2 blocks", check_shown_sources.check(page, "cpp", [same, same])[0])


class ArchitectureTest(TreeTest):
    def setUp(self):
        super().setUp()
        for layer in check_architecture.rooms.LAYERS:
            self.write(f"{layer}/CMakeLists.txt", f"lockstep_add_layer({layer} SOURCES a.cpp)\n")
        self.write("runtime/CMakeLists.txt", "lockstep_add_layer(runtime\n  ROOMS\n    base\n    workers)\n")
        self.write("runtime/base/CMakeLists.txt", "lockstep_add_room(TORCH_FREE\n  SOURCES a.cpp)\n")
        self.write("runtime/workers/CMakeLists.txt", "lockstep_add_room(INTERNAL\n  SOURCES a.cpp)\n")
        for name in ["runtime/base/a.h", "runtime/workers/a.h", "models/a.h", "tests/a_test.cpp"]:
            self.write(name, "")
        self.write("docs/architecture.md", ARCHITECTURE)
        self.write("docs/images/architecture_light.svg", PICTURE)
        self.write("docs/images/architecture_dark.svg", PICTURE.replace("black", "white"))

    def problem_with(self, name, old, new):
        """The one problem that is found once the first `old` in a file is `new`."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        (problem,) = check_architecture.check(self.root)
        path.write_text(text, encoding="utf-8")
        return problem

    def test_a_page_that_shows_the_sources_passes(self):
        self.assertEqual(check_architecture.check(self.root), [])

    def test_a_room_that_is_missing_or_out_of_order_is_found(self):
        base = "| [`runtime/base`](../runtime/base/) | Errors. | without LibTorch |\n"
        workers = "| [`runtime/workers`](../runtime/workers/) | Worker processes. | internal |\n"
        page = "docs/architecture.md"
        self.assertIn("expected runtime/base, but got runtime/workers", self.problem_with(page, base, ""))
        self.assertIn("expected runtime/base, but got runtime/workers", self.problem_with(page, base + workers, workers + base))
        self.assertIn("expected models, but got no more", self.problem_with(page, "| [`models`](../models/) | Models. | |\n", ""))
        self.write("training/a.h", "")
        problems = check_architecture.check(self.root)
        self.assertIn("docs/architecture.md: table of rooms: expected training, but got no more", problems)
        self.assertIn("docs/images/architecture_dark.svg: expected a box for training, but there is none", problems)

    def test_a_room_that_is_described_wrongly_is_found(self):
        page = "docs/architecture.md"
        self.assertIn("expected the note 'internal', but got ''",
                      self.problem_with(page, "processes. | internal |", "processes. | |"))
        self.assertIn("says what the room is for", self.problem_with(page, "| Errors. |", "| |"))

    def test_a_row_of_changes_that_is_missing_or_leads_nowhere_is_found(self):
        page = "docs/architecture.md"
        links = "[a](../models/a.h) | [t](../tests/a_test.cpp) |"
        self.assertIn("a row for 'NCCL option'", self.problem_with(page, "another NCCL option", "another option"))
        self.assertIn("../models/b.h is no file", self.problem_with(page, "../models/a.h", "../models/b.h"))
        self.assertIn("../models is no file", self.problem_with(page, "(../models/a.h)", "(../models)"))
        self.assertIn("links to tests, but got none", self.problem_with(page, links, "[a](../models/a.h) | |"))
        self.assertIn("links to files to change", self.problem_with(page, links, "a | [t](../tests/a_test.cpp) |"))
        self.assertIn("expected a test, but got ../models/a.h",
                      self.problem_with(page, links, "[a](../models/a.h) | [a](../models/a.h) |"))

    def test_pictures_that_show_other_rooms_are_found(self):
        self.write("docs/images/architecture_dark.svg", PICTURE.replace("<text>workers</text>", "<text>worker</text>"))
        problems = check_architecture.check(self.root)
        self.assertEqual(problems[0], "docs/images/architecture_dark.svg: expected runtime/workers, but got runtime/worker")
        self.assertIn("expected the same but for <style>", problems[1])
        for name in check_architecture.PICTURES:
            self.write(name, PICTURE.replace("room internal", "room"))
        self.assertEqual(check_architecture.check(self.root), [
            f"{name}: runtime/workers: expected it drawn as 'internal', but got ''" for name in check_architecture.PICTURES])

    def test_a_picture_that_the_page_does_not_show_is_found(self):
        self.assertEqual(self.problem_with("docs/architecture.md", "images/architecture_dark.svg", ""),
                         "docs/architecture.md does not show docs/images/architecture_dark.svg")


if __name__ == "__main__":
    unittest.main()
