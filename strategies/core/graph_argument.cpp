#include "lockstep/strategies/core/graph_argument.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/graphs/capturable_step.h"

namespace lockstep::detail {

void describe_tensor(Fingerprint& fingerprint, const torch::Tensor& tensor) {
  fingerprint.add_identity(tensor);
  if (tensor.defined() && tensor.is_leaf()) fingerprint.add(tensor.grad().defined());
}

void describe_module(Fingerprint& fingerprint, const torch::nn::Module& module) {
  fingerprint.add(&module);
  fingerprint.add(module.is_training());
  for (const auto& parameter : module.parameters(/*recurse=*/false)) describe_tensor(fingerprint, parameter);
  for (const auto& buffer : module.buffers(/*recurse=*/false)) fingerprint.add_identity(buffer);
  for (const auto& child : module.children()) describe_module(fingerprint, *child);
}

void describe_optimizer(Fingerprint& fingerprint, const torch::optim::Optimizer& optimizer) {
  const auto* step = dynamic_cast<const CapturableStep*>(&optimizer);
  if (step == nullptr) {
    throw InvalidArgument(c10::str(
        "[CudaGraph] expected an optimizer whose steps can be captured, such as FusedAdam, FusedAdamW "
        "or FusedSgd, but got ",
        c10::demangle(typeid(optimizer).name())));
  }
  fingerprint.add(&optimizer);
  step->describe_step(fingerprint);
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) fingerprint.add(parameter.grad().defined());
  }
}

void GraphObjects::add_parameter(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_leaf() || !tensor.requires_grad()) return;
  if (known_.insert(tensor.unsafeGetTensorImpl()).second) parameters_.push_back(tensor);
}

void GraphObjects::add_of_module(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) add_parameter(parameter);
}

std::vector<torch::Tensor> GraphObjects::take_parameters() {
  for (const auto* optimizer : optimizers_) {
    for (const auto& group : optimizer->param_groups()) {
      for (const auto& parameter : group.params()) add_parameter(parameter);
    }
  }
  return std::move(parameters_);
}

void check_result(const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  throw InvalidArgument(c10::str("[CudaGraph] expected results on the replica's device, ", device,
                                 ", but got one on ", tensor.device(), ", which replays would not change"));
}

void check_input(const torch::Tensor& tensor, torch::Device device) {
  if (tensor.layout() != torch::kStrided) {
    throw InvalidArgument(
        c10::str("[CudaGraph] expected batches of dense tensors, but got a ", tensor.layout(), " one"));
  }
  if (tensor.device() != device) {
    throw InvalidArgument(c10::str("[CudaGraph] expected a batch on its replica's device, ", device,
                                   ", but got one on ", tensor.device()));
  }
  if (tensor.requires_grad()) {
    throw InvalidArgument(
        "[CudaGraph] expected a batch that requires no gradient, but got one that does: the graph would keep "
        "the gradient with its own copy");
  }
}

void refuse_changed_input() {
  throw InvalidArgument(
      "[CudaGraph] the function changes a PerReplica argument in place: that would reach the graph's own "
      "copy "
      "only; hand over what it is to change as Mirrored, from scope()");
}

void check_warm_up(int runs) {
  if (runs >= 1) return;
  throw InvalidArgument(c10::str("[CudaGraph] expected 1 or more warm-up runs, but got ", runs));
}

int64_t version_of(const torch::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? static_cast<int64_t>(tensor._version()) : 0;
}

torch::Tensor copy_of(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const auto strides = tensor.strides();
  // Elements that share memory cannot be written separately.
  if (std::find(strides.begin(), strides.end(), 0) != strides.end()) return tensor.detach().clone();
  return torch::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

}  // namespace lockstep::detail
