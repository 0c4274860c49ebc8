#!/usr/bin/env python3
"""Links programs without one measure after another and expects check_hardening to miss it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import check_hardening

# The compiler sees the size of `name` and not that of the text, and cannot tell whether it fits.
SOURCE = """#include <stdio.h>
#include <string.h>
int main(int count, char** words) {
  char name[16];
  strcpy(name, words[count - 1]);
  return puts(name) < 0;
}
"""
# Nothing to fortify.
CALLER = """int main(int count, char** words) {
  volatile char text[16] = {0};
  text[count & 15] = words[0][0];
  return text[3];
}
"""
HARDENED = ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fPIC", "-fstack-protector-strong",
            "-Wl,-z,relro,-z,now,-z,noexecstack"]


class CheckHardeningTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "main.c").write_text(SOURCE, encoding="utf-8")
        for name in ["programs", "tests"]:
            (self.folder / name).mkdir()

    def link(self, name, *flags, source="main.c"):
        subprocess.run(["cc", self.folder / source, "-o", self.folder / name, *HARDENED, *flags], check=True)

    def lacking(self, *folders_of_tests):
        _, problems = check_hardening.check([self.folder / "programs"], [self.folder / name for name in folders_of_tests])
        return [problem.rpartition("(")[2].rstrip(")") for problem in problems]

    def test_a_hardened_program_and_library_pass(self):
        self.link("programs/program", "-pie")
        self.link("programs/library.so", "-shared")
        self.assertEqual(self.lacking(), [])

    def test_each_measure_that_lacks_is_found(self):
        for flags, measure in [
            (["-no-pie"], "-pie"),
            (["-Wl,-z,norelro"], "-z relro"),
            (["-Wl,-z,lazy"], "-z now"),
            (["-Wl,-z,execstack"], "-z noexecstack"),
            (["-fno-stack-protector"], "-fstack-protector-strong"),
            (["-U_FORTIFY_SOURCE"], "-D_FORTIFY_SOURCE"),
            (["-O0", "-U_FORTIFY_SOURCE"], "-D_FORTIFY_SOURCE"),
        ]:
            with self.subTest(flags=flags):
                self.link("programs/program", "-pie", *flags)
                self.assertEqual(self.lacking(), [measure])

    def test_programs_of_tests_need_no_fortified_function_but_the_rest(self):
        self.link("programs/program", "-pie")
        self.link("tests/program", "-pie", "-U_FORTIFY_SOURCE", "-Wl,-z,lazy")
        self.assertEqual(self.lacking("tests"), ["-z now"])

    def test_a_program_may_have_its_code_in_a_library(self):
        (self.folder / "caller.c").write_text(CALLER, encoding="utf-8")
        flags = ["-pie", "-Wl,--no-as-needed", str(self.folder / "programs/library.so")]
        for library_flags, expected in [(["-U_FORTIFY_SOURCE"], ["-D_FORTIFY_SOURCE"]), ([], [])]:
            self.link("programs/library.so", "-shared", "-Wl,-soname,library.so", *library_flags)
            self.link("programs/program", *flags, source="caller.c")
            self.assertEqual(self.lacking(), expected)

    def test_folders_without_programs_are_refused(self):
        self.link("programs/library.so", "-shared")
        self.assertIn("but found none", check_hardening.check([self.folder / "programs"])[1][0])


if __name__ == "__main__":
    unittest.main()
