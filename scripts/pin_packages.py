#!/usr/bin/env python3
"""Writes the hashes into lists of Python packages: pin_packages.py [list...], by default all of scripts/packages/.

A list has one package in each version that the scripts install, as in `name==version`, and comments. To change a version or to
add a package, edit that line and run this script. It asks pip, whose settings name the registry, which file it would install
on each architecture, and writes the SHA-256 hash of each file after the package, in place of those that were there. It
trusts the registry for that: compare the hashes with a second source before you commit them.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

PACKAGES = pathlib.Path(__file__).resolve().parent / "packages"
ARCHITECTURES = ["x86_64", "aarch64"]
# LibTorch's wheel needs glibc 2.28: a package for a newer one would exclude systems that have it. Tests run on Debian 12.
GLIBC_MINOR = 28
GLIBC_MINOR_OF_TESTS = 36
# As in lib.sh.
PYTHON_VERSION = "3.11"


def normalized(name):
    """The name by which registries compare packages."""
    return name.lower().replace("_", "-").replace(".", "-")


def requirements_of(text):
    """The requirements of a list, without their hashes."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def sha256_of(archive):
    """The hash of an archive in pip's report; pip before 23.1 writes it in the older form alone."""
    return archive["hashes"]["sha256"] if "hashes" in archive else archive["hash"].removeprefix("sha256=")


def platforms(architecture, glibc_minor):
    """The platforms of wheels that a system with this glibc can install."""
    names = [*(f"manylinux_2_{minor}" for minor in range(5, glibc_minor + 1)), "manylinux1", "manylinux2010", "manylinux2014"]
    return [f"{name}_{architecture}" for name in names]


def hashes_of(requirements, architecture, glibc_minor):
    """Maps the normalized name of each package to the hash of the file that pip chooses for the architecture."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps",
             "--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:", "--implementation", "cp",
             "--python-version", PYTHON_VERSION,
             *(f"--platform={platform}" for platform in platforms(architecture, glibc_minor)),
             "--target", f"{folder}/target", "--report", str(report), *requirements],
            check=True, stdout=sys.stderr)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {normalized(package["metadata"]["name"]): sha256_of(package["download_info"]["archive_info"]) for package in installed}


def pinned(text, glibc_minor):
    """The text of a list with the hashes of each package after it."""
    requirements = requirements_of(text)
    by_architecture = [hashes_of(requirements, architecture, glibc_minor) for architecture in ARCHITECTURES]
    lines = [line for line in text.splitlines() if line.startswith("#")]
    for requirement in requirements:
        name = normalized(requirement.partition("==")[0])
        # A package without compiled parts has one file for all architectures.
        hashes = dict.fromkeys(hashes[name] for hashes in by_architecture)
        lines.append(" \\\n    ".join([requirement, *(f"--hash=sha256:{value}" for value in hashes)]))
    return "\n".join(lines) + "\n"


def main():
    lists = [pathlib.Path(argument) for argument in sys.argv[1:]] or sorted(PACKAGES.glob("*.txt"))
    for path in lists:
        glibc_minor = GLIBC_MINOR_OF_TESTS if path.name == "test_python.txt" else GLIBC_MINOR
        path.write_text(pinned(path.read_text(encoding="utf-8"), glibc_minor), encoding="utf-8")


if __name__ == "__main__":
    main()
