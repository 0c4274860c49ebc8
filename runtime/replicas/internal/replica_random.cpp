#include "lockstep/runtime/replicas/internal/replica_random.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <torch/library.h>

#include "lockstep/runtime/devices/internal/random_state.h"

namespace lockstep {
namespace {

constexpr c10::DispatchKey kRandomKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local const at::Generator* replica_generator = nullptr;
thread_local const at::Generator* rank_generator = nullptr;

bool is_generators_device(c10::Device device) {
  const c10::Device own = replica_generator->device();
  return device.type() == own.type() &&
         (!device.has_index() || !own.has_index() || device.index() == own.index());
}

/// Fills in the replica's generator if the caller gave none, then runs the operator below the key.
void fill_in_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (replica_generator != nullptr) {
    const auto& arguments = op.schema().arguments();
    const size_t first = stack->size() - arguments.size();
    c10::IValue* missing = nullptr;
    std::optional<c10::Device> device;
    for (size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = (*stack)[first + i];
      if (arguments[i].name() == "generator") {
        if (value.isNone()) missing = &value;
      } else if (value.isTensor() && value.toTensor().defined() && !device) {
        device = value.toTensor().device();
      } else if (value.isDevice()) {
        device = value.toDevice();
      }
    }
    if (missing != nullptr && is_generators_device(device.value_or(c10::Device(c10::DeviceType::CPU)))) {
      *missing = c10::IValue(*replica_generator);
    }
  }
  const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRandomKey);
  op.redispatchBoxed(keys & below, stack);
}

/// On accelerators at::dropout calls this operator, which takes no generator. CUDA has the same kernel by
/// another name that does; on others, the mask is drawn as at::dropout draws it on a CPU.
std::tuple<at::Tensor, at::Tensor> native_dropout(c10::DispatchKeySet keys, const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  const bool draws = train.value_or(true) && p > 0 && p < 1 && !input.is_cpu();
  if (!draws || replica_generator == nullptr || !is_generators_device(input.device())) {
    const auto below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRandomKey);
    return at::_ops::native_dropout::redispatch(keys & below, input, p, train);
  }
  if (input.is_cuda()) {
    auto [output, kept] = at::_fused_dropout(input, 1 - p, *replica_generator);
    return {std::move(output), kept.view(at::kBool)};
  }
  const at::Tensor kept = at::empty_like(input).bernoulli_(1 - p, *replica_generator);
  return {input.mul(kept.div(1 - p)), kept.to(at::kBool)};
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

// Covers every aten operator that takes a generator. The dispatcher finds them: a list would miss those that
// a later LibTorch adds.
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema() || name.getNamespace() != "aten") continue;
    for (const auto& argument : op->schema().arguments()) {
      if (argument.name() != "generator") continue;
      const std::string full_name = c10::toString(name);
      library.impl(full_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fill_in_generator>());
      break;
    }
  }
  library.impl("native_dropout", TORCH_FN(native_dropout));
}

/// SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): every
/// bit of the input changes about half the bits of the result.
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

at::Generator make_replica_generator(const LogicalDevice& device, uint64_t seed, int replica_id) {
  at::Generator generator = new_generator(device.torch_device());
  generator.set_current_seed(mix(seed + 0x9e3779b97f4a7c15ULL * (static_cast<uint64_t>(replica_id) + 1)));
  return generator;
}

ReplicaRandomGuard::ReplicaRandomGuard(const at::Generator& generator, const at::Generator* of_rank)
    : previous_(replica_generator), previous_of_rank_(rank_generator), include_key_(kRandomKey) {
  replica_generator = &generator;
  if (of_rank != nullptr) rank_generator = of_rank;
}

ReplicaRandomGuard::~ReplicaRandomGuard() {
  replica_generator = previous_;
  rank_generator = previous_of_rank_;
}

std::optional<at::Generator> ReplicaRandomGuard::current_of_rank() {
  if (rank_generator == nullptr) return std::nullopt;
  return *rank_generator;
}

std::optional<at::Generator> ReplicaRandomGuard::current() {
  if (replica_generator == nullptr) return std::nullopt;
  return *replica_generator;
}

}  // namespace lockstep
