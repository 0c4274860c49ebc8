// The test device's operators without a kernel of their own: the CPU's kernels compute them in the device's
// memory.
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "lockstep/tests/device/boxed_tensors.h"
#include "lockstep/tests/device/test_device_memory.h"
#include "lockstep/tests/device/test_device_state.h"

namespace lockstep::test_device {
namespace {

using torch::jit::Stack;

/// native_batch_norm writes running statistics in training, although its schema does not say so.
bool is_written(const c10::OperatorHandle& op, size_t argument, const Stack& arguments) {
  const auto* const alias = op.schema().arguments().at(argument).alias_info();
  if (alias != nullptr && alias->isWrite()) return true;
  return (argument == 3 || argument == 4) && op.schema().name() == "aten::native_batch_norm" &&
         arguments.at(5).toBool();
}

/// Returns the argument that the operator returns as this result, if any.
std::optional<size_t> returned_argument(const c10::OperatorHandle& op, size_t result) {
  const auto* const alias = op.schema().returns().at(result).alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && *arguments[i].alias_info() == *alias) return i;
  }
  return std::nullopt;
}

bool takes_generator(const c10::Argument& argument) {
  static const c10::TypePtr generator = c10::OptionalType::create(c10::GeneratorType::get());
  return argument.type()->isSubtypeOf(*generator);
}

/// Returns the tensors' device; without tensors, the one asked for.
std::optional<c10::Device> device_of(const Stack& arguments) {
  std::optional<c10::Device> device;
  std::optional<c10::Device> asked_for;
  for (const auto& value : arguments) {
    if (value.isDevice() && value.toDevice().type() == kType) asked_for = existing(value.toDevice());
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!device && is_on_device(tensor)) device = tensor.device();
    });
  }
  return device ? device : asked_for;
}

/// As on other devices, a number may come from the CPU, and so may indices, which are copied.
void check_devices(const c10::OperatorHandle& op, const Stack& arguments, c10::Device device) {
  for (const auto& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.device() == device ||
          (tensor.is_cpu() && (tensor.dim() == 0 || value.isOptionalTensorList())))
        return;
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                  device, " and ", tensor.device(), "! (in a call of ", op.schema().name(), ")");
    });
  }
}

/// A view made by a CPU kernel would be a copy.
void check_is_no_view(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    TORCH_CHECK_NOT_IMPLEMENTED(result.alias_info() == nullptr || result.alias_info()->isWrite(),
                                "[test_device] ", op.schema().name(),
                                " returns a view, for which there is no kernel");
  }
}

Stack host_arguments(const c10::OperatorHandle& op, const Stack& arguments, c10::Device device,
                     HostViews& views) {
  Stack host;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (takes_generator(op.schema().arguments()[i])) {
      const at::Generator given = value.isNone() ? default_generator(device.index()) : value.toGenerator();
      host.emplace_back(given.device().type() == kType ? cpu_generator(given) : given);
    } else if (value.isDevice()) {
      host.emplace_back(c10::Device(at::kCPU));
    } else {
      host.push_back(with_tensors(value, [&](const at::Tensor& tensor) { return views.of(tensor); }));
    }
  }
  return host;
}

void append_ranges(std::vector<StreamOrder::Range>& ranges, const c10::IValue& value) {
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    for (const auto& range : ranges_of(tensor)) ranges.push_back(range);
  });
}

/// Returns the results of `op` on `device`, by the CPU's kernel for `key`.
Stack run_on_device(const c10::OperatorHandle& op, const Stack& arguments, c10::Device device,
                    c10::DispatchKey key) {
  check_is_no_view(op);
  if (op.schema().name() != "aten::copy_") check_devices(op, arguments, device);
  const c10::DeviceGuard on_device(device);
  const OperatorRun run(device);
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  HostViews views;
  Stack computed = host_arguments(op, arguments, device, views);
  op.redispatchBoxed(c10::DispatchKeySet(key), &computed);
  views.adopt_changes();

  std::vector<StreamOrder::Range> reads;
  std::vector<StreamOrder::Range> writes;
  for (size_t i = 0; i < arguments.size(); ++i)
    append_ranges(is_written(op, i, arguments) ? writes : reads, arguments[i]);
  Stack results;
  for (size_t i = 0; i < computed.size(); ++i) {
    if (const auto argument = returned_argument(op, i)) {
      results.push_back(arguments[*argument]);
      continue;
    }
    results.push_back(with_tensors(computed[i], &copied_to_device));
    append_ranges(writes, results.back());
  }
  const StreamName stream = current_stream(device);
  order().launch(stream, op.schema().name(), reads, writes);
  if (waits_for_device(op.schema().name(), arguments)) wait_on_host(stream, op.schema().name());
  return results;
}

template <c10::DispatchKey key>
void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  if (const auto device = device_of(arguments)) {
    for (auto& result : run_on_device(op, arguments, *device, key)) stack->push_back(std::move(result));
    return;
  }
  Stack computed = arguments;
  op.redispatchBoxed(c10::DispatchKeySet(key), &computed);
  for (auto& result : computed) stack->push_back(std::move(result));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu<c10::DispatchKey::CPU>>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu<c10::DispatchKey::SparseCPU>>());
}

// LibTorch has kernels for these that do not expect sparse tensors.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  for (const char* name : {"copy_", "clone", "empty_like"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu<c10::DispatchKey::SparseCPU>>());
}

// Without a kernel, LibTorch would refuse the overrideable ones, and compute the others from other operators
// and so not with the CPU's bits.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : {"convolution_overrideable", "convolution_backward_overrideable",
                           "_scaled_dot_product_fused_attention_overrideable",
                           "_scaled_dot_product_fused_attention_overrideable_backward", "native_layer_norm",
                           "native_group_norm", "silu_backward", "mish_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu<c10::DispatchKey::CPU>>());
}

}  // namespace
}  // namespace lockstep::test_device
