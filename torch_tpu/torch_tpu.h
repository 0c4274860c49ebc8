#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/torch_tpu/embedded_python.h"
#include "lockstep/torch_tpu/tpu_hardware.h"

namespace lockstep::torch_tpu {

/// Options of TorchTpu.
struct TorchTpuOptions {
  /// Shared library of the Python that has torch_tpu. Empty: LOCKSTEP_LIBPYTHON, or else
  /// libpython3.11.so.1.0.
  std::string libpython;
  /// Folder of the locks by which processes of this machine agree on its devices. Empty: lockstep-tpu in the
  /// system's folder for temporary files.
  std::string lock_folder;
  /// Whether to refuse a machine without a TPU. If false, TPU_LIBRARY_PATH names another PJRT plugin, whose
  /// first device takes the place of a TPU. This serves to try the integration, and locks no device.
  bool requires_tpu = true;
};

/// Makes LibTorch's device "tpu" of torch_tpu 0.2.0 available to this process, by running its Python module
/// in an interpreter inside of the process. Experimental: it has never run on a TPU (docs/tpu.md).
///
/// Example:
///
///     const torch_tpu::TorchTpu tpu;
///     const auto ones = torch::ones({2, 2}, tpu.device()) + 1;
///     std::cout << ones.cpu() << '\n';
///
/// A process uses one device, so start as many processes as devices. Operators may be called in any thread.
class TorchTpu {
 public:
  /// Checks first, and then loads, which takes many seconds. Within 2 s, throws InvalidArgument: if this
  /// machine has no TPU, which is asked before any operator; if another process of Lockstep has the device;
  /// if there is no libpython, or one of another version than torch's; and if the Python has no torch_tpu
  /// 0.2.0, or another torch than this program's LibTorch. Later it throws InvalidArgument if the backend
  /// finds no device, and std::runtime_error with Python's error.
  explicit TorchTpu(const TorchTpuOptions& options = {});

  /// Returns the device of this process.
  c10::Device device() const { return {c10::DeviceType::PrivateUse1, 0}; }

  /// Returns torch_tpu's collectives among the processes of `cluster`, for BackendAllReduce and the like.
  /// Blocks until all of them call it. A process calls it at most once. They have no abort: if a peer is
  /// lost, the others wait for torch_tpu's own timeout. Throws InvalidArgument for a process without a rank
  /// or with several devices, and std::runtime_error with Python's error.
  c10::intrusive_ptr<c10d::Backend> collectives(const ClusterResolver& cluster) const;

 private:
  std::unique_ptr<TpuLocks> locks_;
  std::unique_ptr<EmbeddedPython> python_;
};

}  // namespace lockstep::torch_tpu
