#!/usr/bin/env python3
"""Builds a made-up project with cmake/LockstepHardening.cmake: what is hardened, and what is left as it is."""

import json
import pathlib
import subprocess
import sys
import unittest

import scripts_case

sys.path.insert(0, str(scripts_case.ROOT / "tests/install"))
sys.dont_write_bytecode = True

import check_hardening

# The compiler sees the size of `name` and not that of the word, and cannot tell whether it fits.
SOURCE = """#include <cstring>
int copy(const char* word) {
  char name[16];
  std::strcpy(name, word);
  return name[3] + name[7];
}
#ifdef PROGRAM
int main(int count, char** words) { return copy(words[count - 1]); }
#endif
"""
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(made_up LANGUAGES CXX)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
include({cmake}/LockstepHardening.cmake)
add_library(library SHARED source.cpp)
add_executable(program source.cpp)
target_compile_definitions(program PRIVATE PROGRAM)
"""
OUTER = """cmake_minimum_required(VERSION 3.22)
project(outer LANGUAGES CXX)
add_subdirectory({inner} inner)
"""


class HardeningCmakeTest(scripts_case.ScriptsCase):
    def setUp(self):
        super().setUp()
        (self.project / "source.cpp").write_text(SOURCE, encoding="utf-8")
        (self.project / "CMakeLists.txt").write_text(PROJECT.format(cmake=scripts_case.ROOT / "cmake"), encoding="utf-8")

    def configure(self, source, *options, name="build"):
        """The folder of the build, and the commands that it compiles with."""
        build = self.root / name
        self.expect_success(subprocess.run(
            ["cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options],
            capture_output=True, text=True, check=False, timeout=120))
        commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        return build, [entry["command"] for entry in commands]

    def test_a_release_build_has_hardened_programs_and_libraries(self):
        build, commands = self.configure(self.project, "-DCMAKE_BUILD_TYPE=Release")
        self.assertEqual(len(commands), 2)
        self.expect_success(subprocess.run(["cmake", "--build", build], capture_output=True, text=True, check=False, timeout=120))
        for name in ["program", "liblibrary.so"]:
            with self.subTest(file=name):
                file = check_hardening.File(build / name)
                self.assertEqual(list(file.lacking()), [])
                self.assertTrue(file.is_fortified)

    def test_other_builds_and_projects_that_embed_it_are_left_as_they_are(self):
        outer = self.root / "outer"
        outer.mkdir()
        (outer / "CMakeLists.txt").write_text(OUTER.format(inner=self.project), encoding="utf-8")
        for number, (source, options) in enumerate([(self.project, ["-DCMAKE_BUILD_TYPE=Debug"]),
                                                    (self.project, ["-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_SANITIZER=address"]),
                                                    (outer, ["-DCMAKE_BUILD_TYPE=Release"])]):
            with self.subTest(source=pathlib.Path(source).name, options=options):
                build, commands = self.configure(source, *options, name=f"build{number}")
                self.assertEqual(len(commands), 2)
                for word in ["-fstack-protector", "FORTIFY", "-fcf-protection", "-fstack-clash"]:
                    self.assertNotIn(word, " ".join(commands))
                self.assertNotIn("relro", (build / "build.ninja").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
