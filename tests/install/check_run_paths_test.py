#!/usr/bin/env python3
"""Links programs with one run path after another and expects check_run_paths to find those that it should."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import check_run_paths


class CheckRunPathsTest(unittest.TestCase):
    def problems_of(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "main.c"
            source.write_text("int main(void) { return 0; }\n")
            subprocess.run(["cc", source, "-o", f"{folder}/program", *flags], check=True)
            (program,) = check_run_paths.elf_files(pathlib.Path(folder))
            return [problem.partition("but got ")[2] for problem in check_run_paths.check(program)]

    def test_entries_of_the_current_directory_are_found(self):
        self.assertEqual(self.problems_of("-Wl,-rpath,/usr/lib:::"), ["'' in '/usr/lib:::'"] * 3)
        self.assertEqual(self.problems_of("-Wl,-rpath,lib:/usr/lib"), ["'lib' in 'lib:/usr/lib'"])
        self.assertEqual(self.problems_of("-Wl,--disable-new-dtags,-rpath,."), ["'.' in '.'"])

    def test_programs_in_order_pass(self):
        self.assertEqual(self.problems_of(), [])
        self.assertEqual(self.problems_of("-Wl,-rpath,$ORIGIN/../lib:$ORIGIN:/usr/lib"), [])


if __name__ == "__main__":
    unittest.main()
