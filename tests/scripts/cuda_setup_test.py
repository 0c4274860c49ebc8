#!/usr/bin/env python3
"""How the scripts and CMake set up a build for GPUs, on made-up machines: what the scripts fetch, and which headers CMake takes
out of made-up wheels, archives and toolkits. Their CUDA is 99, so that a real toolkit of this machine fits none of them."""

import os
import pathlib
import shutil
import subprocess
import textwrap
import unittest

import scripts_case

# What the target that everything is compiled and linked with has.
PROJECT = """
    get_target_property(folders lockstep_torch INTERFACE_INCLUDE_DIRECTORIES)
    get_target_property(libraries lockstep_torch INTERFACE_LINK_LIBRARIES)
    message(STATUS "folders: ${folders}")
    message(STATUS "libraries: ${libraries}")
    message(STATUS "cudart: ${lockstep_cudart}")
    """
HEADERS = ["cuda_runtime_api.h", "crt/host_defines.h", "nv/target", "cublas_v2.h", "cusparse.h", "cusolverDn.h"]


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class CudaSetupTest(scripts_case.ScriptsCase):
    def setUp(self):
        super().setUp()
        del self.environment["LOCKSTEP_CUDA"]
        self.environment["PATH"] = os.pathsep.join(
            folder for folder in self.environment["PATH"].split(os.pathsep)
            if folder in ["/bin", "/usr/bin"] or not (pathlib.Path(folder) / "nvcc").exists())
        self.program("nvidia-smi", "exit 9\n")

    # Machines

    def make_gpu(self, cuda="99.0", words="CUDA Version"):
        """A GPU, and a driver that supports this CUDA."""
        says = f"| NVIDIA-SMI 1.0     Driver Version: 1.0     {words}: {cuda}     |"
        self.program("nvidia-smi", f"""
            if [[ $1 == -L ]]; then echo "GPU 0: made up"; else printf '%s\\n' '+----+' '{says if cuda else ""}' '+----+'; fi
            """)

    def make_cuda_headers(self, folder, version="99.0", without=()):
        major, minor = map(int, version.split("."))
        for header in HEADERS:
            if header not in without:
                write(folder / header)
        write(folder / "cuda_runtime_api.h", f"#define CUDART_VERSION  {1000 * major + 10 * minor}\n")

    def make_nccl_header(self, folder, version="2.28"):
        major, minor = version.split(".")
        write(folder / "nccl.h", f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH 9\n")

    def make_toolkit(self, name, version="99.0", nccl=None):
        toolkit = self.root / name
        self.make_cuda_headers(toolkit / "include", version)
        write(toolkit / "lib64" / f"libcudart.so.{version.split('.')[0]}")
        if nccl:
            self.make_nccl_header(toolkit / "include", nccl)
        return toolkit

    def make_cuda_half(self, torch, cudart="libcudart.so.99"):
        (torch / "lib" / "libc10_cuda.so").write_bytes(b"\x7fELF\0libc10.so\0" + cudart.encode() + b"\0libstdc++.so.6\0")
        write(torch / "lib" / "libtorch_cuda.so")
        return torch

    def make_wheel(self, name="site", without=(), nccl="2.28"):
        """A LibTorch as pip installs it, with NVIDIA's libraries and headers beside it."""
        site = self.root / name
        torch = self.make_cuda_half(self.make_libtorch(f"{name}/torch"))
        write(site / "torch-2.11.0.dist-info" / "METADATA",
              'Name: torch\nRequires-Dist: filelock\nRequires-Dist: nvidia-nccl-cu99==2.28.9; platform_system == "Linux"\n')
        write(site / "nvidia/cu99/lib/libcudart.so.99")
        write(site / "nvidia/cudnn/lib/libcudnn.so.9")
        self.make_cuda_headers(site / "nvidia/cu99/include", without=without)
        if nccl:
            self.make_nccl_header(site / "nvidia/nccl/include", nccl)
        return torch

    def make_archive(self):
        """A LibTorch that holds NVIDIA's libraries itself, and no headers of theirs."""
        torch = self.make_cuda_half(self.make_libtorch("archive"), "libcudart-0a1b2c3d.so.99")
        for library in ["libcudart-0a1b2c3d.so.99", "libcudnn.so.9"]:
            write(torch / "lib" / library)
        return torch

    # What the scripts decide

    def need_libtorch(self, **environment):
        """What need_libtorch decides, what it fetches, and what it says."""
        process = self.expect_success(self.run_script('need_libtorch\necho "$cuda"\n', **environment))
        fetches = [line for line in self.calls_of("pip") if "install" in line]
        return process.stdout.strip(), fetches[-1] if fetches else "", process.stderr

    def test_a_machine_with_a_gpu_and_no_toolkit_gets_libtorch_with_cuda_and_the_headers(self):
        self.make_gpu("13.0")
        cuda, fetch, says = self.need_libtorch()
        self.assertEqual(cuda, "ON")
        self.assertNotIn("--no-deps", fetch)
        for package in ["torch==", "nvidia-cuda-crt==13.0.", "nvidia-cuda-cccl==13.0."]:
            self.assertIn(f" {package}", fetch)
        self.assertNotIn("warning", says)

    def test_a_driver_that_does_not_say_what_it_supports_is_taken_to_do(self):
        self.make_gpu(cuda="")
        self.assertEqual(self.need_libtorch()[0], "ON")

    def test_a_machine_without_a_gpu_gets_a_quiet_build_without_cuda(self):
        cuda, fetch, says = self.need_libtorch()
        self.assertEqual(cuda, "OFF")
        self.assertNotIn("nvidia-cuda-crt", fetch)
        self.assertNotIn("warning", says)

    def test_a_driver_that_is_too_old_is_named_with_the_ways_out(self):
        for words in ["CUDA Version", "CUDA UMD Version"]:
            self.make_gpu("12.4", words)
            cuda, _, says = self.need_libtorch()
            self.assertEqual(cuda, "OFF")
            for part in ["warning: ", "WITHOUT CUDA", "needs CUDA 13", "supports CUDA 12.4", "driver 580 or newer",
                         "CMAKE_PREFIX_PATH=<folder> LOCKSTEP_CUDA=ON "]:
                self.assertIn(part, says)

    def test_a_build_without_cuda_that_was_asked_for_is_quiet(self):
        for version in ["12.4", "13.0"]:
            self.make_gpu(version)
            cuda, _, says = self.need_libtorch(LOCKSTEP_CUDA="OFF")
            self.assertEqual(cuda, "OFF")
            self.assertNotIn("warning", says)

    def configure_by_script(self, torch, **environment):
        """What the script says."""
        self.make_project("NONE")
        process = self.run_script(
            "need_libtorch\nconfigure release\n", CMAKE_PREFIX_PATH=str(torch), **environment)
        return self.expect_success(process).stderr

    def test_a_gpu_that_the_build_leaves_out_is_named_with_the_reason(self):
        self.make_gpu()
        torch = self.make_wheel(without=["crt/host_defines.h"])
        says = self.configure_by_script(torch)
        for part in ["warning: this machine has a GPU", "WITHOUT CUDA", "lacks crt/host_defines.h", "CUDAToolkit_ROOT"]:
            self.assertIn(part, says)

    def test_a_libtorch_without_cuda_on_a_machine_with_a_gpu_is_named(self):
        self.make_gpu()
        says = self.configure_by_script(self.make_libtorch("own"))
        self.assertIn("warning: this machine has a GPU", says)
        self.assertIn("has no libtorch_cuda.so", says)

    def test_without_a_gpu_or_with_everything_in_place_the_scripts_do_not_warn(self):
        self.make_gpu()
        self.assertNotIn("warning", self.configure_by_script(self.make_wheel()))
        self.program("nvidia-smi", "exit 9\n")
        shutil.rmtree(self.project / "cmake")
        self.assertNotIn("warning", self.configure_by_script(self.make_libtorch("own")))

    def test_a_libtorch_that_is_too_new_for_the_driver_is_named(self):
        self.make_gpu("98.7")
        says = self.configure_by_script(self.make_wheel())
        for part in ["warning: ", "needs CUDA 99", "supports\n  CUDA 98.7", "CMAKE_PREFIX_PATH=<folder>"]:
            self.assertIn(part, says)

    # What CMake takes

    def configure(self, torch, *flags, setting="", **environment):
        """The completed process of CMake. Toolkits in usual/ lie where CMake looks for them by itself."""
        lists = self.project / "CMakeLists.txt"
        if not lists.exists():
            self.make_project("NONE", PROJECT)
            setting = f"set(CMAKE_SYSTEM_PREFIX_PATH {self.root}/usual)\n{setting}"
            lists.write_text(lists.read_text().replace("include(", setting + "\ninclude("))
        shutil.rmtree(self.root / "build", ignore_errors=True)
        return subprocess.run(
            ["cmake", "-S", self.project, "-B", self.root / "build", f"-DCMAKE_PREFIX_PATH={torch}", *flags],
            env={**self.environment, **environment}, capture_output=True, text=True, check=False, timeout=60)

    def found(self, process, what):
        self.expect_success(process)
        line = next(line for line in process.stdout.splitlines() if line.startswith(f"-- {what}: "))
        return line.split(": ", 1)[1].split(";")

    def expect_cuda(self, process, headers):
        """CMake takes these headers of CUDA, and no others."""
        self.assertIn(", with CUDA 99\n", process.stdout, process.stderr)
        folders = self.found(process, "folders")
        candidates = [folder for folder in folders if (pathlib.Path(folder) / "cuda_runtime_api.h").exists()]
        self.assertEqual([pathlib.Path(folder).resolve() for folder in candidates], [headers.resolve()])

    def expect_failure(self, process, *parts):
        self.assertEqual(process.returncode, 1, process.stdout)
        says = " ".join(process.stderr.split())
        for part in parts:
            self.assertIn(str(part), says)

    def test_wheels_suffice_to_compile_and_link(self):
        torch = self.make_wheel()
        for cuda in ["ON", "AUTO"]:
            process = self.configure(torch, f"-DLOCKSTEP_CUDA={cuda}")
            self.expect_cuda(process, torch.parent / "nvidia/cu99/include")
            self.assertEqual(self.found(process, "cudart"), [str(torch.parent / "nvidia/cu99/lib/libcudart.so.99")])
            libraries = self.found(process, "libraries")
            for library in ["torch_cuda", "c10_cuda", "cudart"]:
                self.assertIn(f"lockstep_{library}", libraries)

    def test_without_cuda_nothing_of_it_is_looked_for(self):
        torch = self.make_wheel()
        process = self.configure(torch, "-DLOCKSTEP_CUDA=OFF")
        self.assertIn(", without CUDA\n", process.stdout)
        self.assertFalse([folder for folder in self.found(process, "folders") if "nvidia" in folder])

    def test_wheels_of_cuda_12_have_a_folder_for_each_library(self):
        torch = self.make_wheel()
        nvidia = torch.parent / "nvidia"
        nvidia.joinpath("cu99").rename(nvidia / "cuda_runtime")
        for part, header in [("cuda_nvcc", "crt/host_defines.h"), ("cuda_cccl", "nv/target"), ("cublas", "cublas_v2.h"),
                             ("cusparse", "cusparse.h"), ("cusolver", "cusolverDn.h")]:
            (nvidia / part / "include" / header).parent.mkdir(parents=True)
            (nvidia / "cuda_runtime/include" / header).rename(nvidia / part / "include" / header)
        process = self.configure(torch, "-DLOCKSTEP_CUDA=ON")
        self.expect_cuda(process, nvidia / "cuda_runtime/include")
        self.assertIn(str(nvidia / "cusolver/include"), self.found(process, "folders"))

    def test_a_toolkit_off_path_is_found_for_an_archive(self):
        torch, toolkit = self.make_archive(), self.make_toolkit("toolkit", "99.3", nccl="2.28")
        for flags, environment in [
                ([f"-DCUDAToolkit_ROOT={toolkit}"], {}),
                ([], {"CUDAToolkit_ROOT": str(toolkit)}),
                ([], {"CUDA_HOME": str(toolkit)}),
                ([], {"CUDA_PATH": str(toolkit)}),
                ([f"-DCMAKE_PREFIX_PATH={torch};{toolkit}"], {})]:
            process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", *flags, **environment)
            self.expect_cuda(process, toolkit / "include")
            self.assertEqual(self.found(process, "cudart"), [str(torch / "lib/libcudart-0a1b2c3d.so.99")])

    def test_the_toolkit_of_an_nvcc_on_path_is_found(self):
        torch, toolkit = self.make_archive(), self.make_toolkit("toolkit", nccl="2.28")
        write(toolkit / "bin/nvcc")
        (toolkit / "bin/nvcc").chmod(0o755)
        (self.root / "programs/nvcc").symlink_to(toolkit / "bin/nvcc")
        self.expect_cuda(self.configure(torch, "-DLOCKSTEP_CUDA=AUTO"), toolkit / "include")

    def test_the_newest_toolkit_that_fits_is_taken_from_the_usual_folder(self):
        torch = self.make_archive()
        for version in ["99.2", "99.10", "100.1"]:
            toolkit = self.make_toolkit(f"usual/cuda-{version}", version, nccl="2.28")
        process = self.configure(torch, "-DLOCKSTEP_CUDA=ON")
        self.expect_cuda(process, toolkit.parent / "cuda-99.10/include")

    def test_a_toolkit_stands_in_for_headers_that_the_wheels_lack(self):
        toolkit = self.make_toolkit("toolkit")
        torch = self.make_wheel(without=["crt/host_defines.h"])
        process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", CUDA_HOME=str(toolkit))
        self.expect_cuda(process, toolkit / "include")
        self.assertEqual(self.found(process, "cudart"), [str(torch.parent / "nvidia/cu99/lib/libcudart.so.99")])

    def test_headers_that_are_missing_are_named_with_the_ways_out(self):
        torch = self.make_wheel(without=["crt/host_defines.h", "nv/target"])
        self.expect_failure(
            self.configure(torch, "-DLOCKSTEP_CUDA=ON"), "was built with CUDA 99", torch.parent / "nvidia/cu99/include",
            "lacks crt/host_defines.h, nv/target", "CUDAToolkit_ROOT", "nvidia-cuda-crt and nvidia-cuda-cccl")

    def test_a_toolkit_of_another_cuda_is_refused(self):
        torch, toolkit = self.make_archive(), self.make_toolkit("toolkit", "98.4", nccl="2.28")
        process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", CUDA_HOME=str(toolkit))
        self.expect_failure(
            process, f"LibTorch in {torch}", "was built with CUDA 99", f"{toolkit}/include is of CUDA 98.4",
            "Name a toolkit of CUDA 99 with CUDAToolkit_ROOT", "-DLOCKSTEP_CUDA=OFF")
        process = self.expect_success(self.configure(torch, "-DLOCKSTEP_CUDA=AUTO", CUDA_HOME=str(toolkit)))
        self.assertIn(", without CUDA: ", process.stdout)
        self.assertIn(f"{toolkit}/include is of CUDA 98.4", " ".join(process.stderr.split()))

    def test_a_toolkit_of_another_cuda_does_not_hide_one_that_fits(self):
        torch, other, toolkit = self.make_archive(), self.make_toolkit("other", "98.4"), self.make_toolkit("toolkit", nccl="2.28")
        process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", CUDA_HOME=str(other), CUDA_PATH=str(toolkit))
        self.expect_cuda(process, toolkit / "include")

    def test_headers_of_another_cuda_in_cpath_are_refused(self):
        toolkit = self.make_toolkit("toolkit", "98.4")
        process = self.configure(self.make_wheel(), "-DLOCKSTEP_CUDA=ON", CPATH=f"/usr/include/none:{toolkit}/include")
        self.expect_failure(process, "was built with CUDA 99", "CPATH", f"{toolkit}/include, which is of CUDA 98.4")

    def test_a_libtorch_without_its_cuda_half_is_refused_if_cuda_is_asked_for(self):
        torch = self.make_libtorch("own")
        self.expect_failure(self.configure(torch, "-DLOCKSTEP_CUDA=ON"), f"LibTorch in {torch}", "has no libtorch_cuda.so")
        process = self.expect_success(self.configure(torch, "-DLOCKSTEP_CUDA=AUTO"))
        self.assertIn(", without CUDA: ", process.stdout)
        self.assertEqual(process.stderr, "")

    def test_the_wheel_for_cpus_is_quietly_taken_for_one_by_default(self):
        torch = self.make_wheel()
        shutil.rmtree(torch.parent / "nvidia/cudnn")
        process = self.expect_success(self.configure(torch, "-DLOCKSTEP_CUDA=AUTO"))
        self.assertIn(", without CUDA: ", process.stdout)
        self.assertEqual(process.stderr, "")

    def test_an_installed_lockstep_needs_no_headers_of_cuda(self):
        torch = self.make_wheel(without=HEADERS[1:], nccl=None)
        process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", setting="set(lockstep_is_installed ON)")
        self.assertIn(", with CUDA 99\n", process.stdout, process.stderr)
        self.assertIn("lockstep_cudart", self.found(process, "libraries"))
        process = self.configure(self.make_libtorch("own"), "-DLOCKSTEP_CUDA=ON")
        self.expect_failure(process, "has no libtorch_cuda.so")
        torch = self.make_wheel("complete")
        self.expect_cuda(self.configure(torch, "-DLOCKSTEP_CUDA=ON"), torch.parent / "nvidia/cu99/include")

    def test_the_package_of_an_installed_lockstep_finds_what_it_was_built_with(self):
        torch, toolkit = self.make_cuda_half(self.make_libtorch("own")), self.make_toolkit("toolkit", nccl="2.28")
        package = self.root / "package"
        self.make_project("NONE", f"""
            include(CMakePackageConfigHelpers)
            configure_package_config_file(cmake/lockstep-config.cmake.in {package}/lockstep-config.cmake INSTALL_DESTINATION lib)
            """)
        self.expect_success(self.configure(torch, "-DLOCKSTEP_CUDA=ON", "-DBUILD_SHARED_LIBS=ON", CUDA_HOME=str(toolkit)))
        for path in (scripts_case.ROOT / "cmake").glob("Lockstep*.cmake"):
            if f"/{path.name}" in (scripts_case.ROOT / "cmake/LockstepInstall.cmake").read_text():
                shutil.copy(path, package)
        write(package / "lockstep-targets.cmake")
        write(self.project / "CMakeLists.txt", textwrap.dedent("""
            cmake_minimum_required(VERSION 3.22)
            project(user LANGUAGES C)
            find_package(lockstep REQUIRED)
            """) + textwrap.dedent(PROJECT))
        process = self.configure(package)
        self.assertIn(f"LibTorch 2.11 in {torch}, with CUDA 99\n", process.stdout, process.stderr)
        self.assertEqual(self.found(process, "cudart"), [str((toolkit / "lib64/libcudart.so.99").resolve())])

    # nccl.h

    def nccl_header(self, process):
        folder, *_ = self.found(process, "folders")
        return pathlib.Path(folder, "nccl.h").read_text()

    def test_nccls_header_of_the_wheels_comes_before_all_others(self):
        torch, toolkit = self.make_wheel(), self.make_toolkit("toolkit", nccl="2.20")
        for flags in [[], [f"-DCMAKE_PREFIX_PATH={toolkit};{torch}"]]:
            process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", *flags, CUDA_HOME=str(toolkit))
            self.assertIn(f'"{torch.parent}/nvidia/nccl/include/nccl.h"', self.nccl_header(process))

    def test_nccls_header_of_another_version_is_refused(self):
        for version in ["2.20", "2.29"]:
            torch, toolkit = self.make_wheel(nccl=None), self.make_toolkit("toolkit", nccl=version)
            process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", CUDA_HOME=str(toolkit))
            self.expect_failure(process, "was built with NCCL 2.28", f"{toolkit}/include/nccl.h is of NCCL {version}",
                                "LOCKSTEP_NCCL_INCLUDE", "nvidia-nccl-cu99")

    def test_the_user_can_name_the_folder_of_nccls_header(self):
        torch, toolkit = self.make_wheel(nccl=None), self.make_toolkit("toolkit", nccl="2.20")
        self.make_nccl_header(self.root / "nccl")
        for flags, environment in [([f"-DLOCKSTEP_NCCL_INCLUDE={self.root}/nccl"], {}),
                                   ([], {"LOCKSTEP_NCCL_INCLUDE": f"{self.root}/nccl"})]:
            process = self.configure(torch, "-DLOCKSTEP_CUDA=ON", *flags, CUDA_HOME=str(toolkit), **environment)
            self.assertIn(f'"{self.root}/nccl/nccl.h"', self.nccl_header(process))

    def test_the_compiler_reads_the_right_nccl_header_whatever_lies_in_its_way(self):
        torch, other = self.make_wheel(), self.make_toolkit("other", nccl="2.20")
        # The toolkit's headers are used, as those of the wheels are not complete. It has an nccl.h, too.
        (torch.parent / "nvidia/cu99/include/nv/target").unlink()
        write(self.project / "nccl.cpp", "#include <nccl.h>\nstatic_assert(NCCL_MINOR == 28);\n")
        self.make_project("CXX", "add_library(made_up OBJECT nccl.cpp)\ntarget_link_libraries(made_up lockstep_torch)\n")
        self.make_nccl_header(self.root / "cpath", "2.20")
        environment = {"CUDA_HOME": str(other), "CPATH": f"{self.root}/cpath"}
        process = self.expect_success(self.configure(torch, "-DLOCKSTEP_CUDA=ON", **environment))
        self.assertIn(f"{other}/include", process.stdout)
        self.expect_success(subprocess.run(
            ["cmake", "--build", self.root / "build"], env={**self.environment, **environment}, capture_output=True,
            text=True, check=False, timeout=60))


if __name__ == "__main__":
    unittest.main()
