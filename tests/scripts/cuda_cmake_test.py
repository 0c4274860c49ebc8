#!/usr/bin/env python3
"""CMake chooses headers and libraries for a build for GPUs, from made-up wheels, archives and toolkits."""

import pathlib
import shutil
import subprocess
import textwrap
import unittest

import cuda_case
import scripts_case
from cuda_case import HEADERS, write

# Prints the properties of the target that everything is compiled and linked with.
PROJECT = """
    get_target_property(folders lockstep_torch INTERFACE_INCLUDE_DIRECTORIES)
    get_target_property(libraries lockstep_torch INTERFACE_LINK_LIBRARIES)
    message(STATUS "folders: ${folders}")
    message(STATUS "libraries: ${libraries}")
    message(STATUS "cudart: ${lockstep_cudart}")
    """


class CudaCmakeTest(cuda_case.CudaCase):
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
