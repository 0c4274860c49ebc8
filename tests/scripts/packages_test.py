#!/usr/bin/env python3
"""Fetches made-up Python packages with the real pip, whole and changed, and looks at the lists of the real ones:
packages_test.py <LibTorch>"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import unittest
import zipfile

import scripts_case

LIBTORCH = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path()
LISTS = sorted((scripts_case.ROOT / "scripts/packages").glob("*.txt"))


def entries(path):
    """Maps the name of each package of a list to its version and to its hashes."""
    found = {}
    for line in re.sub(r"\\\n", " ", path.read_text(encoding="utf-8")).splitlines():
        if line.startswith("#"):
            continue
        requirement, *hashes = line.split()
        name, _, version = requirement.partition("==")
        found[name] = (version, hashes)
    return found


def python_with_pip():
    for python in [sys.executable, "/usr/bin/python3"]:
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def make_wheel(folder, name, version, tag="py3-none-any"):
    """A wheel with one module, and its hash."""
    information = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{information}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(
        "{},sha256={},{}\n".format(
            path, base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("="), len(text))
        for path, text in files.items())
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{information}/RECORD": f"{record}{information}/RECORD,,\n"}.items():
            archive.writestr(path, text)
        archive.comment = b"all bytes are right"
    return wheel, hashlib.sha256(wheel.read_bytes()).hexdigest()


class FetchTest(scripts_case.ScriptsCase):
    def setUp(self):
        super().setUp()
        python = python_with_pip()
        if not python:
            self.skipTest("needs pip (Debian: python3-pip)")
        self.program("python3", f'exec {python} "$@"\n')
        self.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.root / "wheels"), PIP_CONFIG_FILE="/dev/null")
        self.list = self.project / "scripts/packages/libtorch.txt"
        self.folder = self.root / "home/.cache/lockstep/libtorch-2.11.0"
        self.wheel, self.hash = make_wheel(self.root / "wheels", "torch", "2.11.0")

    def need_libtorch(self, *lines):
        self.list.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return self.run_script("need_libtorch\n")

    def expect_nothing_kept(self):
        self.assertEqual([path.name for path in self.folder.parent.iterdir() if path.name != ".lock"], [])

    def test_a_file_with_its_hash_is_installed(self):
        self.expect_success(self.need_libtorch(f"torch==2.11.0 --hash=sha256:{self.hash}"))
        self.assertTrue((self.folder / "torch/__init__.py").is_file())
        self.assertEqual((self.folder / ".complete").read_text(encoding="utf-8"), self.list.read_text(encoding="utf-8"))

    def test_one_of_several_hashes_suffices(self):
        self.expect_success(self.need_libtorch(
            "# the file of another processor comes first", f"torch==2.11.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{self.hash}"))
        self.assertTrue((self.folder / "torch/__init__.py").is_file())

    def test_a_changed_byte_is_refused_and_nothing_is_kept(self):
        data = bytearray(self.wheel.read_bytes())
        data[-1] ^= 1  # of the archive's comment: the archive and its files are as whole as before
        self.wheel.write_bytes(data)
        changed = hashlib.sha256(data).hexdigest()
        other = "0" * 64
        for hashes, expected in [([self.hash], self.hash), ([self.hash, other], f"{self.hash} or {other}")]:
            process = self.need_libtorch("torch==2.11.0 " + " ".join(f"--hash=sha256:{value}" for value in hashes))
            self.assertEqual(process.returncode, 1)
            *_, refusal, failure = process.stderr.splitlines()
            self.assertIn(refusal, [
                f"error: torch-2.11.0-py3-none-any.whl: expected SHA-256 {word}, but got {changed}. The file was deleted."
                for word in [expected, " or ".join(reversed(expected.split(" or ")))]])
            self.assertRegex(failure, "^error: Fetching LibTorch 2.11.0 into .*: failed")
            self.expect_nothing_kept()

    def test_the_changed_one_of_several_files_is_named(self):
        other, _ = make_wheel(self.root / "wheels", "runtime", "1.0")
        process = self.need_libtorch(f"torch==2.11.0 --hash=sha256:{self.hash}", f"runtime==1.0 --hash=sha256:{self.hash}")
        self.assertEqual(process.returncode, 1)
        refusals = [line for line in process.stderr.splitlines() if ": expected SHA-256" in line]
        self.assertEqual(len(refusals), 1, process.stderr)
        self.assertTrue(refusals[0].startswith(f"error: {other.name}: expected SHA-256 {self.hash}, but got "), refusals)
        self.expect_nothing_kept()

    def test_a_package_without_a_hash_or_a_version_is_refused(self):
        for line in ["torch==2.11.0", f"torch --hash=sha256:{self.hash}"]:
            process = self.need_libtorch(line)
            self.assertEqual(process.returncode, 1)
            self.assertRegex(process.stderr, "error: Fetching LibTorch .*: failed")
            self.expect_nothing_kept()

    def test_what_an_earlier_version_fetched_is_used(self):
        (self.folder / "torch").mkdir(parents=True)
        (self.folder / ".complete").write_text("--no-deps\ntorch==2.11.0\n", encoding="utf-8")
        self.wheel.unlink()
        self.expect_success(self.need_libtorch(f"torch==2.11.0 --hash=sha256:{self.hash}"))

    def test_what_an_interrupted_fetch_left_is_replaced(self):
        (self.folder.parent / "libtorch-2.11.0.partial/.tmp").mkdir(parents=True)
        (self.folder / "torch").mkdir(parents=True)
        self.expect_success(self.need_libtorch(f"torch==2.11.0 --hash=sha256:{self.hash}"))
        self.assertTrue((self.folder / "torch/__init__.py").is_file())

    def pin(self, text):
        self.list.write_text(text, encoding="utf-8")
        process = subprocess.run([python_with_pip(), "-B", self.project / "scripts/pin_packages.py", self.list],
                                 env=self.environment, capture_output=True, text=True, check=False, timeout=120)
        if "no such option: --report" in process.stderr:
            self.skipTest("needs pip 22.2 or newer")
        self.expect_success(process)
        return self.list.read_text(encoding="utf-8")

    def test_pinning_writes_the_hashes_of_all_processors(self):
        for name in ["x86_64", "aarch64"]:
            _, hash_of = make_wheel(self.root / "wheels", "run_time", "1.0", f"py3-none-manylinux2014_{name}")
            setattr(self, name, hash_of)
        text = self.pin(f"# LibTorch\ntorch==2.11.0 \\\n    --hash=sha256:{'0' * 64}\nrun-time==1.0\n")
        self.assertEqual(text, f"# LibTorch\ntorch==2.11.0 \\\n    --hash=sha256:{self.hash}\n"
                               f"run-time==1.0 \\\n    --hash=sha256:{self.x86_64} \\\n    --hash=sha256:{self.aarch64}\n")
        self.assertEqual(self.pin(text), text)


class ListsTest(unittest.TestCase):
    def test_each_package_has_one_version_and_hashes(self):
        self.assertEqual([path.stem for path in LISTS], ["arrow", "libtorch", "libtorch_cuda", "test_python"])
        for path in LISTS:
            for name, (version, hashes) in entries(path).items():
                with self.subTest(list=path.name, package=name):
                    self.assertRegex(version, r"^[0-9][0-9a-z.]*$")
                    self.assertTrue(hashes)
                    for value in hashes:
                        self.assertRegex(value, "^--hash=sha256:[0-9a-f]{64}$")
                    self.assertEqual(len(set(hashes)), len(hashes))

    def test_lists_agree_on_what_they_share(self):
        seen = {}
        for path in LISTS:
            for name, entry in entries(path).items():
                self.assertEqual(seen.setdefault(name, entry), entry, name)

    def test_versions_are_those_that_the_scripts_name(self):
        text = (scripts_case.ROOT / "scripts/lib.sh").read_text(encoding="utf-8")
        (torch,) = re.findall(r"(?m)^readonly libtorch_version=(\S+)$", text)
        (arrow,) = re.findall(r"(?m)^readonly arrow_version=(\S+)$", text)
        (python,) = re.findall(r"(?m)^readonly test_python_version=(\S+)$", text)
        self.assertEqual({entries(path)["torch"][0] for path in LISTS if path.stem.startswith("libtorch")}, {torch})
        self.assertEqual(entries(scripts_case.ROOT / "scripts/packages/arrow.txt")["pyarrow"][0], arrow)
        self.assertIn(f'PYTHON_VERSION = "{python}"\n',
                      (scripts_case.ROOT / "scripts/pin_packages.py").read_text(encoding="utf-8"))

    def test_the_list_with_cuda_has_all_that_torch_depends_on(self):
        found = list(LIBTORCH.parent.glob("torch-*.dist-info/METADATA"))
        if not found:
            self.skipTest(f"{LIBTORCH} is no wheel, whose metadata would name the dependencies")
        listed = entries(scripts_case.ROOT / "scripts/packages/libtorch_cuda.txt")
        needed = re.findall(r"(?m)^Requires-Dist: ([A-Za-z0-9_.-]+)(\[[^]]*\])?([^;\n]*)(?:; platform_system == \"Linux\")?$",
                            found[0].read_text(encoding="utf-8"))
        self.assertGreater(len(needed), 10)
        for name, _, condition in needed:
            with self.subTest(package=name):
                version, _ = listed[name]
                if condition.startswith("=="):
                    self.assertEqual(version, condition.removeprefix("==").strip())


if __name__ == "__main__":
    unittest.main()
