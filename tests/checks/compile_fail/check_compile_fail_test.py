#!/usr/bin/env python3
"""Tests the harness with sources that it must accept, and others that it must refuse: check_compile_fail_test.py <compiler>."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import check_compile_fail as harness

TAKE = """
void take(int) {}
void take(double) = delete;
template <typename T>
struct Held {
  static_assert(sizeof(T) > 1, "too small to hold");
  T value;
};
template <typename T>
void hold(const T& value) {
  Held<T> held{value};
  static_assert(sizeof(T) > 2, "a missing byte");
}
"""
DELETED = """
void call() {
  take(1);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  take(1.0);
#endif
}
"""
TWO = """
void call_twice() {
  Held<int> held{1};
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  // offence: deleted
  take(1.0);
  // offence: in_a_template
  hold('c');
#endif
}
"""


class HarnessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "sources").mkdir()

    def compile(self, **sources):
        """Returns the compiler's output for sources that all.cpp includes, the problems that the harness has with it, and the
        offences."""
        folder = self.folder / "sources"
        for name, text in sources.items():
            (folder / f"{name}.cpp").write_text(text, encoding="utf-8")
        source = self.folder / "all.cpp"
        source.write_text(TAKE + "".join(f'#include "sources/{name}.cpp"\n' for name in sources), encoding="utf-8")
        command = [COMPILER, "-std=c++20", "-fsyntax-only", "-c", str(source)]
        return *harness.compile_offences(command, self.folder, folder), harness.offences_of(folder)

    def problem(self, compiled, *arguments):
        output, _, offences = compiled
        return harness.problem_of(output, offences, *arguments)

    def test_an_offence_that_is_refused_as_expected_passes(self):
        compiled = self.compile(call=DELETED)
        self.assertEqual(compiled[1], [])
        self.assertIsNone(self.problem(compiled, "call", "deleted function.*take"))

    def test_offences_of_several_sources_are_told_apart(self):
        compiled = self.compile(call=DELETED, mistakes=TWO)
        self.assertEqual(compiled[1], [])
        for offence, expected in (("call", "deleted function.*take"), ("deleted", "deleted function.*take"),
                                  ("in_a_template", "too small to hold")):
            with self.subTest(offence):
                self.assertIsNone(self.problem(compiled, offence, expected))
        self.assertIn("expected a first error", self.problem(compiled, "deleted", "too small to hold"))

    def test_an_offence_that_compiles_fails(self):
        _, problems, _ = self.compile(call=DELETED.replace("1.0", "2"))
        self.assertEqual(problems, ["expected the offence call to be refused, but it compiles"])

    def test_one_of_several_offences_that_compiles_fails(self):
        _, problems, _ = self.compile(mistakes=TWO.replace("hold('c');", "take(2);"))
        self.assertEqual(problems, ["expected the offence in_a_template to be refused, but it compiles"])

    def test_another_reason_fails(self):
        compiled = self.compile(call=DELETED)
        self.assertIn("expected a first error that matches 'no member named'", self.problem(compiled, "call", "no member named"))

    def test_a_note_is_no_error(self):
        compiled = self.compile(call=DELETED)
        self.assertIn("expected a first error that matches 'note:'", self.problem(compiled, "call", "note:"))

    def test_a_later_error_is_not_the_first(self):
        compiled = self.compile(mistakes=TWO)
        self.assertIn("expected a first error", self.problem(compiled, "in_a_template", "missing"))

    def test_a_forbidden_error_fails(self):
        compiled = self.compile(mistakes=TWO)
        self.assertIn("expected no error that matches 'missing'",
                      self.problem(compiled, "in_a_template", "too small to hold", "missing"))
        self.assertIsNone(self.problem(compiled, "in_a_template", "too small to hold", "deleted"))

    def test_an_error_outside_of_the_offences_fails(self):
        _, problems, _ = self.compile(call=DELETED.replace("take(1);", "take(1.5);"))
        self.assertEqual(len(problems), 1)
        self.assertIn("expected errors of the offences only, but got ", problems[0])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    COMPILER = sys.argv.pop(1)
    unittest.main()
