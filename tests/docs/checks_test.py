#!/usr/bin/env python3
"""The checks of this folder find what they are for, and nothing else."""

import pathlib
import tempfile
import unittest

import check_links
import check_names
import check_shown_sources
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


class ChecksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("runtime/strategy.h", HEADER)
        self.write("runtime/internal/secret.h", "namespace lockstep { class Secret {}; }\n")
        self.write("runtime/workers/worker.h", "namespace lockstep { class Worker {}; }\n")
        self.write("runtime/workers/CMakeLists.txt", "lockstep_add_room(INTERNAL\n  SOURCES worker.cpp)\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def names_in(self, rows):
        return check_names.check(self.write("page.md", TABLE + rows), DeclaredNames(self.root))

    def test_declared_names_pass(self):
        rows = "| `a` | `Strategy::run`, `Strategy::size` | |\n| `b` | `result`, `Op::kMean` | `Base::size` |\n"
        self.assertEqual(self.names_in(rows), [])

    def test_names_that_no_public_header_declares_are_found(self):
        for name in ["walk", "Strategy::walk", "Strategy::argument", "Secret", "Worker", "hidden", "Base::run", "Base::count", "Hidden"]:
            problems = self.names_in(f"| `a` | `{name}` | |\n")
            self.assertEqual(len(problems), 1, name)
            self.assertIn(f"no public header declares {name}", problems[0])

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
        self.assertEqual(check_links.check(self.root), [
            "README.md: docs/none.md: there is no such file",
            "docs/a.md: a.md#gone: there is no such heading",
            "README.md does not link to docs/b.md",
        ])

    def test_a_source_that_differs_from_its_page_is_found(self):
        page = self.write("page.md", "```cpp\nint a;\n```\n\n```cmake\nadd()\n```\n")
        same, other = self.write("same.cpp", "int a;\n"), self.write("other.cpp", "int b;\n")
        self.assertEqual(check_shown_sources.check(page, "cpp", [same]), [])
        self.assertIn("-int b;", check_shown_sources.check(page, "cpp", [other]))
        self.assertIn("expected 2 blocks", check_shown_sources.check(page, "cpp", [same, same])[0])


if __name__ == "__main__":
    unittest.main()
