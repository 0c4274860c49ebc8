// The fake GPU's operators without a special implementation: the CPU's kernels compute them on copies of
// their arguments.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/clone.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/device/boxed_tensors.h"
#include "lockstep/tests/gpu/driver_calls.h"
#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_memory.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

using torch::jit::Stack;

/// These two operators write running statistics, although their schemas do not say so.
bool writes_running_statistics(const std::string& name, const Stack& arguments) {
  return name == "aten::batch_norm_gather_stats_with_counts" ||
         (name == "aten::native_batch_norm" && arguments.at(5).toBool());
}

bool is_written(const c10::OperatorHandle& op, size_t argument, const Stack& arguments) {
  const auto* const alias = op.schema().arguments().at(argument).alias_info();
  if (alias != nullptr && alias->isWrite()) return true;
  return (argument == 3 || argument == 4) && writes_running_statistics(op.schema().name(), arguments);
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
    if (value.isDevice() && value.toDevice().is_cuda())
      asked_for = value.toDevice().has_index() ? value.toDevice() : current_device();
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!device && tensor.is_cuda()) device = tensor.device();
    });
  }
  return device ? device : asked_for;
}

int64_t kernels_of(const c10::OperatorHandle& op, const Stack& arguments) {
  size_t lists = 0;
  size_t tensors = 0;
  for (const auto& value : arguments) {
    if (!value.isTensorList() || value.toTensorVector().empty()) continue;
    ++lists;
    tensors = value.toTensorVector().size();
  }
  if (!op.schema().name().starts_with("aten::_foreach") && !op.schema().name().starts_with("aten::_fused"))
    return 1;
  const int64_t kernels = kernels_for_lists(lists, tensors);
  // Norms are first taken of parts of the tensors.
  return op.schema().name() == "aten::_foreach_norm" ? 2 * kernels : kernels;
}

/// One call on the CPU.
struct Computed {
  std::vector<at::Tensor> written;  // copies of the arguments that were written, in order
  std::vector<at::Tensor> made;     // results that are not arguments
  Stack results;
};

/// Calls `op` on CPU copies of the tensors, aligned as LibTorch's allocator aligns them, so that the results
/// are bit-equal wherever the tensors themselves lie.
Computed compute(const c10::OperatorHandle& op, const Stack& arguments) {
  Computed computed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_result = is_written(op, i, arguments);
    computed.results.push_back(with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      at::Tensor copy = is_number ? tensor : tensor.clone();
      if (is_result) computed.written.push_back(copy);
      return copy;
    }));
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &computed.results);
  for (size_t i = 0; i < computed.results.size(); ++i) {
    if (returned_argument(op, i)) continue;
    for_each_tensor(computed.results[i], [&](const at::Tensor& tensor) { computed.made.push_back(tensor); });
  }
  return computed;
}

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  TORCH_INTERNAL_ASSERT(to.size() == from.size());
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

/// One call on a fake GPU.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack arguments, c10::Device device)
      : op_(op), arguments_(std::move(arguments)), device_(device) {}

  /// Returns the results.
  Stack run();

 private:
  /// Returns the arguments with `view` of each tensor, and with `generator` of each generator drawn from.
  template <typename View, typename GeneratorFunction>
  Stack host_arguments(const View& view, const GeneratorFunction& generator) const;
  Computed compute_eagerly() const;
  Computed compute_in(Capture& capture) const;
  void note_in(Capture& capture) const;
  void note_accesses();
  at::Tensor empty_result(const at::Tensor& like) const;

  const c10::OperatorHandle& op_;
  const Stack arguments_;
  const c10::Device device_;
  std::vector<at::Tensor> written_;  // arguments
  std::vector<at::Tensor> made_;
  std::vector<StreamOrder::Range> reads_;
  std::vector<StreamOrder::Range> writes_;
};

template <typename View, typename GeneratorFunction>
Stack Call::host_arguments(const View& view, const GeneratorFunction& generator) const {
  Stack host;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& value = arguments_[i];
    if (takes_generator(op_.schema().arguments()[i])) {
      const at::Generator given =
          value.isNone() ? at::globalContext().defaultGenerator(device_) : value.toGenerator();
      host.emplace_back(given.device().is_cuda() ? generator(given) : given);
    } else if (value.isDevice()) {
      host.emplace_back(c10::Device(at::kCPU));
    } else {
      host.push_back(with_tensors(value, view));
    }
  }
  return host;
}

Computed Call::compute_eagerly() const {
  const auto view = [](const at::Tensor& tensor) { return tensor.is_cuda() ? host_view(tensor) : tensor; };
  return compute(op_, host_arguments(view, [](const at::Generator& drawn) {
                   if (drawn == at::globalContext().defaultGenerator(drawn.device()))
                     refuse_draw_outside_capture(drawn.device());
                   return cpu_generator(drawn);
                 }));
}

Computed Call::compute_in(Capture& capture) const {
  const auto view = [&](const at::Tensor& tensor) {
    if (tensor.is_cuda()) return capture.view(tensor);
    // A number travels with the call; other values must be copied first.
    if (tensor.dim() > 0) capture.fail(kNotPermitted);
    return tensor;
  };
  return compute(op_, host_arguments(view, [&](const auto& drawn) { return capture.generator(drawn); }));
}

void Call::note_in(Capture& capture) const {
  Work work{.name = op_.schema().name(), .reads = reads_, .writes = writes_};
  const auto view = [&](const at::Tensor& tensor) {
    if (!tensor.is_cuda()) return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? tensor : tensor.clone();
    if (tensor.numel() > 0) work.memory.emplace_back(block_at(tensor.const_data_ptr()));
    return host_view(tensor);
  };
  const auto views = [](const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> views;
    for (const auto& tensor : tensors) views.push_back(host_view(tensor));
    return views;
  };
  work.compute = [op = op_, arguments = host_arguments(view, &cpu_generator), written = views(written_),
                  made = views(made_)] {
    const Computed again = compute(op, arguments);
    copy_all(written, again.written);
    copy_all(made, again.made);
  };
  capture.note(current_stream(device_), std::move(work));
}

void Call::note_accesses() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    auto& accesses = is_written(op_, i, arguments_) ? writes_ : reads_;
    for_each_tensor(arguments_[i], [&](const at::Tensor& tensor) { accesses.push_back(range_of(tensor)); });
  }
  for (const auto& tensor : made_) writes_.push_back(range_of(tensor));
}

at::Tensor Call::empty_result(const at::Tensor& like) const {
  auto* const allocator = &device_allocator();
  const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
  if (!like.is_non_overlapping_and_dense())
    return at::detail::empty_generic(like.sizes(), allocator, keys, like.scalar_type(), std::nullopt);
  return at::detail::empty_strided_generic(like.sizes(), like.strides(), allocator, keys, like.scalar_type());
}

Stack Call::run() {
  const c10::OptionalDeviceGuard on_device(device_);
  const StreamName stream = current_stream(device_);
  const std::string& name = op_.schema().name();
  const bool host_waits = waits_for_device(name, arguments_);
  if (host_waits) refuse_host_wait_in_capture(stream);
  const auto capture = capture_for_work(stream);
  const Computed computed = capture ? compute_in(*capture) : compute_eagerly();
  const auto writable = [&](const at::Tensor& tensor) {
    if (!tensor.is_cuda()) return tensor;
    return capture ? capture->writable_view(tensor) : host_view(tensor);
  };
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!is_written(op_, i, arguments_)) continue;
    for_each_tensor(arguments_[i], [&](const at::Tensor& tensor) {
      const at::Tensor& result = computed.written.at(written_.size());
      if (tensor.sizes() != result.sizes()) tensor.resize_(result.sizes());
      writable(tensor).copy_(result);
      written_.push_back(tensor);
    });
  }
  Stack results;
  for (size_t i = 0; i < computed.results.size(); ++i) {
    if (const auto argument = returned_argument(op_, i)) {
      results.push_back(arguments_[*argument]);
      continue;
    }
    results.push_back(with_tensors(computed.results[i], [&](const at::Tensor& result) {
      const at::Tensor made = empty_result(result);
      writable(made).copy_(result);
      made_.push_back(made);
      return made;
    }));
  }
  note_accesses();
  if (capture) {
    note_in(*capture);
  } else {
    count_call(&DriverCalls::kernels, kernels_of(op_, arguments_));
    order().launch(stream, name, reads_, writes_);
    if (host_waits) order().wait_on_host(order().record(stream), name);
  }
  return results;
}

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const auto device = device_of(arguments);
  for (auto& result : device ? Call(op, arguments, *device).run() : compute(op, arguments).results)
    stack->push_back(std::move(result));
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// GPUs have kernels of their own for these; other devices call an operator for each tensor of the lists.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const char* name : {"_foreach_norm.Scalar", "_foreach_mul_.Tensor", "_foreach_copy_",
                           "_foreach_add_.Scalar", "_foreach_add_.Tensor"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace
}  // namespace lockstep::fake_gpu
