#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

namespace lockstep {

/// Keeps the state that one replica's optimizer has for parameters on a GPU in the host's memory, and steps
/// there (ZeRO-Offload; Ren et al., 2021). Use it from the replica's thread only.
///
/// The state stays under its parameters in Optimizer::state(), as without; only its tensors are on the CPU.
class HostOptimizerState {
 public:
  /// Steps the optimizer by `take_step`. While that runs, the optimizer's groups hold copies of the
  /// parameters and gradients in pinned memory of the host. Blocks until the device has computed the
  /// gradients and copied both. The stepped values are copied back without a wait, in the order of the
  /// current stream. Moves state that is elsewhere, such as that of a checkpoint, to the host.
  ///
  /// Throws what `take_step` throws; the parameters on the device are then as they were. Throws
  /// InvalidArgument for a state elsewhere that cannot be cloned and serialized.
  void step(torch::optim::Optimizer& optimizer, const std::function<void()>& take_step);

 private:
  struct Copy {
    at::Tensor value;
    at::Tensor gradient;
    const torch::optim::OptimizerParamState* state = nullptr;  // which is on the host
  };
  /// A parameter of a group while its copy takes its place.
  struct Place {
    size_t group;
    size_t index;
    at::Tensor parameter;
    Copy* copy;
  };
  class Swapped;

  std::vector<Place> copy_to_host(torch::optim::Optimizer& optimizer);
  Copy& copy_of(const at::Tensor& parameter);

  std::unordered_map<const void*, Copy> copies_;  // by the parameter
};

}  // namespace lockstep
