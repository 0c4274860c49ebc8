#include "lockstep/benchmarks/emulation/emulated_operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/training/planning/internal/operator_costs.h"

namespace lockstep::benchmarks {
namespace {

/// Operators of a thread that run now. LibTorch calls observers by plain functions, which find it by the
/// thread.
struct RunningOperators {
  EmulatedDevice* device = nullptr;
  int num_uncounted = 0;     // guards and operators within which others do not count
  int64_t num_computed = 0;  // operators that have taken time
};

thread_local RunningOperators running;

struct OperatorSeen : at::ObserverContext {
  double flops = 0;
  double bytes = 0;
  bool is_whole = false;  // those that it calls are parts of it
  int64_t num_computed_before = 0;
  std::vector<const void*> storages;
};

template <typename Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
  }
}

double bytes_of(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_written(const std::vector<c10::Argument>& arguments, size_t i) {
  const auto* alias = i < arguments.size() ? arguments[i].alias_info() : nullptr;
  return alias != nullptr && alias->isWrite();
}

bool allocates_only(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

/// Returns the share of an attention's products that a causal mask hides in whole blocks.
double masked_share(std::string_view name, c10::ArrayRef<const c10::IValue> inputs, const Shapes& shapes) {
  constexpr double kBlock = 64;
  constexpr std::string_view kForward = "aten::_scaled_dot_product_flash_attention_for_cpu";
  constexpr size_t kCausal = 4, kCausalOfBackward = 7;
  if (!name.starts_with(kForward)) return 0;
  const size_t argument = name == kForward ? kCausal : kCausalOfBackward;
  if (argument >= inputs.size() || !inputs[argument].isBool() || !inputs[argument].toBool()) return 0;
  const auto tokens = static_cast<double>(shapes[0][2]);
  return std::max(0.0, (tokens - kBlock) / (2 * tokens));
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  if (running.device == nullptr || running.num_uncounted > 0) return nullptr;
  const auto schema = function.operator_schema();
  if (!schema) return nullptr;
  auto seen = std::make_unique<OperatorSeen>();
  seen->num_computed_before = running.num_computed;
  const std::string_view name(function.name());
  const bool has_flops = has_known_flops(name);
  Shapes shapes;
  const auto inputs = function.inputs();
  double written = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    visit_tensors(inputs[i], [&](const at::Tensor& tensor) {
      if (has_flops) shapes.push_back(tensor.sizes().vec());
      seen->bytes += bytes_of(tensor);
      if (is_written(schema->arguments(), i)) written += bytes_of(tensor);
      seen->storages.push_back(storage_of(tensor));
    });
  }
  if (has_flops) {
    const c10::ArrayRef<c10::IValue> arguments(inputs.data(), inputs.size());
    seen->flops = flops_of(name, arguments, shapes, {}) * (1 - masked_share(name, inputs, shapes));
  }
  // The result of copy_() and the like is the argument that they write to, which they need not read.
  seen->bytes += written;
  seen->is_whole = has_flops || name == "aten::cat";
  if (!has_flops && written == 0) seen->flops = -1;  // computes only if it has new results
  if (seen->is_whole) ++running.num_uncounted;
  return seen;
}

void end_operator(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* seen = dynamic_cast<OperatorSeen*>(context);
  if (seen == nullptr) return;
  if (seen->is_whole) --running.num_uncounted;
  if (running.device == nullptr || running.num_computed != seen->num_computed_before) return;
  double created = 0;
  for (const c10::IValue& result : function.outputs()) {
    visit_tensors(result, [&](const at::Tensor& tensor) {
      const bool is_view =
          std::find(seen->storages.begin(), seen->storages.end(), storage_of(tensor)) != seen->storages.end();
      if (!is_view) created += bytes_of(tensor);
    });
  }
  const bool computes = seen->flops >= 0 || (created > 0 && !allocates_only(function.name()));
  if (!computes) return;
  ++running.num_computed;
  running.device->compute(std::max(0.0, seen->flops), seen->bytes + created);
}

}  // namespace

EmulatedOperatorsGuard::EmulatedOperatorsGuard(EmulatedDevice& device)
    : operators_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin_operator, end_operator)
                                                .needsInputs(true)
                                                .needsOutputs(true)
                                                .scopes({at::RecordScope::FUNCTION}))) {
  running.device = &device;
}

EmulatedOperatorsGuard::~EmulatedOperatorsGuard() {
  running.device = nullptr;
  at::removeCallback(operators_);
}

UncountedOperatorsGuard::UncountedOperatorsGuard() {
  ++running.num_uncounted;
}

UncountedOperatorsGuard::~UncountedOperatorsGuard() {
  --running.num_uncounted;
}

}  // namespace lockstep::benchmarks
