// A kernel for all operators, of a dispatch key that no backend uses: it notes the operator, and passes it
// on.
#include "lockstep/training/planning/internal/operator_kernel.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/training/planning/internal/operator_costs.h"
#include "lockstep/training/planning/internal/step_log.h"

namespace lockstep {
namespace {

constexpr c10::DispatchKey kRecordingKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// Calls `visit` with each defined tensor of a value.
template <typename Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
    }
  }
}

int64_t bytes_of_elements(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool allocates_only(const std::string& name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") || name == "aten::resize_";
}

/// Returns the bytes of the results that are new, or that the operator has written to.
int64_t written_bytes(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& results,
                      const std::vector<const void*>& inputs) {
  int64_t bytes = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto* alias = i < schema.returns().size() ? schema.returns()[i].alias_info() : nullptr;
    const bool is_written = alias != nullptr && alias->isWrite();
    visit_tensors(results[i], [&](const at::Tensor& tensor) {
      const bool is_view = std::find(inputs.begin(), inputs.end(), storage_of(tensor)) != inputs.end();
      if (is_written || !is_view) bytes += bytes_of_elements(tensor);
    });
  }
  return bytes;
}

void record_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecordingKey);
  StepLog* log = StepLog::of_thread();
  const c10::FunctionSchema& schema = op.schema();
  if (log != nullptr && log->is_accumulating() && schema.name() == "aten::copy_")
    log->take_copy((stack->end() - 3)->toTensor(), (stack->end() - 2)->toTensor());
  if (log == nullptr || !log->counts_operators()) return op.redispatchBoxed(below, stack);
  StepLog::Operator seen{.name = schema.name(),
                         .has_kernel = op.hasKernelForDispatchKey(c10::DispatchKey::CPU)};
  std::vector<const void*> storages;
  const size_t num_arguments = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<int64_t>(num_arguments), stack->end());
  for (const c10::IValue& argument : arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      seen.shapes.push_back(tensor.sizes().vec());
      seen.dtypes.emplace_back(c10::toString(tensor.scalar_type()));
      seen.bytes_read += bytes_of_elements(tensor);
      storages.push_back(storage_of(tensor));
    });
  }
  const bool is_known = has_known_flops(seen.name);
  // They work in another way if tensors are large.
  const bool is_whole = is_known || seen.name == "aten::cat" || seen.name == "aten::zero_";
  const auto inner = log->begin_operator(is_whole, /*may_need_scratch=*/is_known);
  try {
    op.redispatchBoxed(below, stack);
  } catch (...) {
    log->end_operator(inner, nullptr);
    throw;
  }
  const std::vector<c10::IValue> results(stack->end() - static_cast<int64_t>(schema.returns().size()),
                                         stack->end());
  Shapes shapes;
  for (const c10::IValue& result : results)
    visit_tensors(result, [&](const at::Tensor& tensor) { shapes.push_back(tensor.sizes().vec()); });
  seen.flops = flops_of(seen.name, arguments, seen.shapes, shapes);
  seen.bytes_written = written_bytes(schema, results, storages);
  const bool computes = seen.bytes_written > 0 && !allocates_only(seen.name);
  log->end_operator(inner, is_known || computes ? &seen : nullptr);
}

/// Returns this thread's log if the scope is a part of a collective, whichever rank it is for.
StepLog* log_in_collective(const at::RecordFunction& scope) {
  return std::string_view(scope.name()) == "lockstep::collective" ? StepLog::of_thread() : nullptr;
}

bool gives_gradient(const at::RecordFunction& node) {
  return std::string_view(node.name()) == "torch::autograd::AccumulateGrad";
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_operator>());
}

}  // namespace

OperatorKernelGuard::OperatorKernelGuard() : guard_(kRecordingKey) {
  const auto look = [](const at::RecordFunction& node) -> std::unique_ptr<at::ObserverContext> {
    StepLog* log = StepLog::of_thread();
    if (log == nullptr) return nullptr;
    log->begin_node(node.seqNr());
    if (gives_gradient(node)) log->begin_accumulation();
    return nullptr;
  };
  const auto leave = [](const at::RecordFunction& node, at::ObserverContext*) {
    StepLog* log = StepLog::of_thread();
    if (log != nullptr && gives_gradient(node)) log->end_accumulation();
  };
  nodes_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(look, leave).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  const auto begin = [](const at::RecordFunction& scope) -> std::unique_ptr<at::ObserverContext> {
    if (StepLog* log = log_in_collective(scope)) log->begin_collective();
    return nullptr;
  };
  const auto end = [](const at::RecordFunction& scope, at::ObserverContext*) {
    if (StepLog* log = log_in_collective(scope)) log->end_collective();
  };
  collectives_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::USER_SCOPE}));
}

OperatorKernelGuard::~OperatorKernelGuard() {
  at::removeCallback(collectives_);
  at::removeCallback(nodes_);
}

}  // namespace lockstep
