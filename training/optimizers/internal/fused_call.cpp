#include "lockstep/training/optimizers/internal/fused_call.h"

#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/utils.h>

#include <sstream>
#include <stdexcept>

namespace lockstep {
namespace {

template <typename Given>
[[noreturn]] void throw_for(const ParameterPosition& position, const char* expected, const Given& given) {
  std::ostringstream message;
  message << "[" << position.optimizer << "] expected " << expected << " for parameter " << position.index
          << " of group " << position.group << ", but got " << given;
  throw std::invalid_argument(message.str());
}

torch::Tensor in_layout_of(const torch::Tensor& parameter, const torch::Tensor& tensor) {
  if (tensor.scalar_type() == parameter.scalar_type() && tensor.device() == parameter.device() &&
      (tensor.strides() == parameter.strides() ||
       torch::autograd::utils::obeys_layout_contract(tensor, parameter))) {
    return tensor;
  }
  return torch::empty_like(parameter).copy_(tensor);
}

}  // namespace

FusedCall& fused_call_for(std::vector<FusedCall>& calls, const torch::Tensor& parameter, bool first_step) {
  const auto device = parameter.device();
  const auto dtype = parameter.scalar_type();
  for (auto& call : calls) {
    if (call.device == device && call.dtype == dtype && call.first_step == first_step) return call;
  }
  return calls.emplace_back(FusedCall{.device = device, .dtype = dtype, .first_step = first_step});
}

torch::Tensor fused_gradient(const torch::Tensor& parameter, const ParameterPosition& position) {
  const auto& gradient = parameter.grad();
  if (!gradient.defined()) return gradient;
  if (parameter.layout() != torch::kStrided || !parameter.is_floating_point()) {
    throw_for(position, "a dense tensor of a floating type", parameter.toString());
  }
  if (gradient.layout() != torch::kStrided) throw_for(position, "a dense gradient", gradient.layout());
  if (!parameter.is_non_overlapping_and_dense()) {
    throw_for(position, "a tensor without overlaps and gaps", parameter.strides());
  }
  if (gradient.sizes() != parameter.sizes()) throw_for(position, "a gradient of its shape", gradient.sizes());
  return in_layout_of(parameter, gradient);
}

torch::Tensor fused_state(const torch::Tensor& state, const torch::Tensor& parameter,
                          const ParameterPosition& position) {
  if (state.sizes() != parameter.sizes())
    throw_for(position, "an optimizer state of its shape", state.sizes());
  return in_layout_of(parameter, state);
}

std::optional<torch::Tensor> fused_found_inf(const torch::Tensor& found_inf, torch::Device device) {
  if (!found_inf.defined()) return std::nullopt;
  return found_inf.to(device, /*non_blocking=*/!device.is_cpu());
}

torch::Tensor evaluate_closure(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  torch::AutoGradMode enable_grad(true);
  return closure();
}

void require_option(bool holds, const char* optimizer, const char* option, const char* expected,
                    double given) {
  if (holds) return;
  std::ostringstream message;
  message << "[" << optimizer << "] expected " << option << " to be " << expected << ", but got " << given;
  throw std::invalid_argument(message.str());
}

torch::IValue read_option_value(torch::serialize::InputArchive& archive, const char* key) {
  torch::IValue value;
  archive.read(key, value);
  return value;
}

bool read_maximize(torch::serialize::InputArchive& archive) {
  torch::IValue value;
  return archive.try_read("maximize", value) && value.toBool();
}

void throw_foreign_options(const char* optimizer, size_t group) {
  std::ostringstream message;
  message << "[" << optimizer << "] expected options of type " << optimizer
          << "Options, but got those of another optimizer in parameter group " << group;
  throw std::invalid_argument(message.str());
}

}  // namespace lockstep
