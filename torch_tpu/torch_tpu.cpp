#include "lockstep/torch_tpu/torch_tpu.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/library.h>
#include <torch/version.h>

#include <filesystem>
#include <sstream>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/internal/tpu_variables.h"

namespace lockstep::torch_tpu {
namespace {

namespace fs = std::filesystem;

constexpr char kVersion[] = "0.2.0";

/// Finds both packages without importing them, which would take seconds.
constexpr char kFindPackages[] = R"(
import importlib.machinery, importlib.metadata, importlib.util, os, platform
def lockstep_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
lockstep_torch = importlib.util.find_spec("torch")
lockstep_torch = lockstep_torch.submodule_search_locations[0] if lockstep_torch else ""
lockstep_modules = [os.path.join(lockstep_torch, "_C" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
result = "\n".join([lockstep_version("torch_tpu"), lockstep_version("torch"), lockstep_torch,
                    "" if any(map(os.path.exists, lockstep_modules)) else platform.python_version()])
)";

/// The module registers the backend by itself if it finds a TPU. Without one, it has to be told.
constexpr char kLoad[] = R"(
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch, torch_tpu
from torch_tpu import _loader
_loader._init_device("tpu")
)";

bool is_dense(const at::Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::Dense) && (tensor.is_cpu() || tensor.is_privateuseone());
}

/// Lets Module::to() move parameters to the device. LibTorch asks the backend whether a CPU tensor may become
/// one of its own, torch_tpu leaves the answer to LibTorch, and LibTorch's is no.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return is_dense(self) && is_dense(from);
}

/// Returns the folder of the LibTorch in this process.
std::string libtorch_folder() {
  void* library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr)
    throw std::runtime_error("[torch_tpu] the dynamic loader does not tell where libc10.so is");
  return fs::canonical(map->l_name).parent_path().string();
}

void check_packages(const EmbeddedPython& python, const std::string& libpython) {
  std::istringstream lines(python.run(kFindPackages));
  std::string torch_tpu, torch, folder, wrong_python;
  std::getline(lines, torch_tpu);
  std::getline(lines, torch);
  std::getline(lines, folder);
  std::getline(lines, wrong_python);
  if (torch_tpu != kVersion) {
    throw InvalidArgument(std::string("[torch_tpu] expected Python to have torch_tpu ") + kVersion +
                          ", but it has " + (torch_tpu.empty() ? "none" : torch_tpu) +
                          ": set PYTHONPATH to where it is installed");
  }
  if (torch.substr(0, torch.find('+')) != TORCH_VERSION) {
    throw InvalidArgument(std::string("[torch_tpu] expected Python to have torch ") + TORCH_VERSION +
                          ", as this program, but it has " + (torch.empty() ? "none" : torch));
  }
  const std::string own = libtorch_folder();
  std::error_code error;
  if (!fs::equivalent(fs::path(folder) / "lib" / "libc10.so", fs::path(own) / "libc10.so", error)) {
    throw InvalidArgument("[torch_tpu] expected Python's torch to be the LibTorch of this program, in " +
                          own + ", but it is " + folder +
                          "/lib: build Lockstep with CMAKE_PREFIX_PATH=" + folder);
  }
  if (!wrong_python.empty()) {
    throw InvalidArgument("[torch_tpu] expected the Python that torch is installed for, in " + folder +
                          ", but " + libpython + " is Python " + wrong_python +
                          ": set LOCKSTEP_LIBPYTHON to the libpython3.X.so of that Python");
  }
}

int num_devices() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).deviceCount();
}

std::string libpython_of(const TorchTpuOptions& options) {
  if (!options.libpython.empty()) return options.libpython;
  return process_environment()("LOCKSTEP_LIBPYTHON").value_or("libpython3.11.so.1.0");
}

}  // namespace

TorchTpu::TorchTpu(const TorchTpuOptions& options) {
  if (options.requires_tpu) {
    const int chips = num_tpu_chips();
    if (chips == 0) {
      throw InvalidArgument(
          "[torch_tpu] expected a TPU among the PCI devices of this machine, but found none: run on a TPU "
          "VM");
    }
    const Environment environment = process_environment();
    const int devices = chips * TpuVariables(environment).devices_per_chip();
    const std::string folder = options.lock_folder.empty()
                                   ? (fs::temp_directory_path() / "lockstep-tpu").string()
                                   : options.lock_folder;
    locks_ = std::make_unique<TpuLocks>(devices_of_process(environment, devices), folder);
  }
  const std::string libpython = libpython_of(options);
  python_ = std::make_unique<EmbeddedPython>(libpython);
  check_packages(*python_, libpython);
  python_->run(kLoad);
  static const auto kLibrary = [] {
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                    c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    library->impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
    return library;
  }();
  // An operator without a device would end the process.
  if (num_devices() == 0)
    throw InvalidArgument(
        "[torch_tpu] expected a device, but torch_tpu found none, for the reason that it has printed above");
  const c10::Device given = at::empty({1}, at::TensorOptions().device(device())).device();
  if (given != device()) {
    throw InvalidArgument("[torch_tpu] expected tensors on " + device().str() + ", but they came on " +
                          given.str());
  }
}

c10::intrusive_ptr<c10d::Backend> TorchTpu::collectives(const ClusterResolver& cluster) const {
  const int devices = num_devices();
  if (devices != 1) {
    throw InvalidArgument(
        "[torch_tpu] expected one device for this process, for collectives, but torch_tpu found " +
        std::to_string(devices) + ": set TPU_VISIBLE_CHIPS");
  }
  const auto master = cluster.master().value_or(HostPort{.host = "127.0.0.1", .port = 29500});
  std::ostringstream code;
  code << "import os, torch.distributed as dist\n"
       << "os.environ.update(RANK='" << cluster.rank() << "', WORLD_SIZE='" << cluster.world_size()
       << "', LOCAL_RANK='" << cluster.local_rank() << "')\n"
       << "os.environ.setdefault('MASTER_ADDR', '" << master.host << "')\n"
       << "os.environ.setdefault('MASTER_PORT', '" << master.port << "')\n"
       << "dist.init_process_group('tpu_dist')\n"
       << "result = dist.distributed_c10d._get_default_group().group_name\n";
  return c10d::resolve_process_group(python_->run(code.str()))->getBackend(c10::DeviceType::PrivateUse1);
}

}  // namespace lockstep::torch_tpu
