"""Made-up machines, wheels, archives and toolkits for tests of builds for GPUs. Their CUDA is 99, so that a real toolkit of this
machine fits none of them."""

import os
import pathlib

import scripts_case

HEADERS = ["cuda_runtime_api.h", "crt/host_defines.h", "nv/target", "cublas_v2.h", "cusparse.h", "cusolverDn.h"]


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class CudaCase(scripts_case.ScriptsCase):
    def setUp(self):
        super().setUp()
        del self.environment["LOCKSTEP_CUDA"]
        self.environment["PATH"] = os.pathsep.join(
            folder for folder in self.environment["PATH"].split(os.pathsep)
            if folder in ["/bin", "/usr/bin"] or not (pathlib.Path(folder) / "nvcc").exists())
        self.program("nvidia-smi", "exit 9\n")

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
        """A LibTorch as pip installs it, with NVIDIA's libraries and headers next to it."""
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
