#!/usr/bin/env python3
"""How the scripts set up a build for GPUs: what they fetch and what they say, on made-up machines."""

import shutil
import unittest

import cuda_case


class CudaSetupTest(cuda_case.CudaCase):
    def need_libtorch(self, **environment):
        """Returns the decision of need_libtorch, its downloads and its messages."""
        process = self.expect_success(self.run_script('need_libtorch\necho "$cuda"\n', **environment))
        fetches = [line for line in self.calls_of("pip") if "install" in line]
        return process.stdout.strip(), fetches[-1] if fetches else "", process.stderr

    def test_a_machine_with_a_gpu_and_no_toolkit_gets_libtorch_with_cuda_and_the_headers(self):
        self.make_gpu("13.0")
        cuda, fetch, says = self.need_libtorch()
        self.assertEqual(cuda, "ON")
        versions = dict(package.split("==") for package in self.packages_of(fetch))
        self.assertLessEqual({"torch", "nvidia-cublas", "nvidia-nccl-cu13"}, set(versions))
        for package in ["nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl"]:
            self.assertEqual(versions[package].rpartition(".")[0], "13.0", package)
        self.assertNotIn("warning", says)

    def test_a_driver_that_does_not_say_what_it_supports_is_taken_to_do(self):
        self.make_gpu(cuda="")
        self.assertEqual(self.need_libtorch()[0], "ON")

    def test_a_machine_without_a_gpu_gets_a_quiet_build_without_cuda(self):
        cuda, fetch, says = self.need_libtorch()
        self.assertEqual(cuda, "OFF")
        self.assertNotIn("nvidia-cuda-crt", " ".join(self.packages_of(fetch)))
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
        """Returns the messages of the script."""
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


if __name__ == "__main__":
    unittest.main()
