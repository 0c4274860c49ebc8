#include "lockstep/training/planning/module_recorder.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/gradient_hooks.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/planning/internal/operator_kernel.h"
#include "lockstep/training/planning/internal/step_log.h"
#include "lockstep/training/planning/internal/step_of_logs.h"

namespace lockstep {
namespace {

struct NamedTensors {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

/// The parameters of a model, each once.
NamedTensors distinct_parameters(const torch::nn::Module& model) {
  NamedTensors found;
  for (const auto& item : model.named_parameters()) {
    const bool is_known = std::any_of(found.tensors.begin(), found.tensors.end(),
                                      [&](const auto& other) { return other.is_same(item.value()); });
    if (is_known) continue;
    if (!item.value().is_cpu()) {
      throw InvalidArgument(c10::str("[ModuleRecorder] expected parameters on the CPU, but '", item.key(),
                                     "' is on ", item.value().device()));
    }
    found.names.push_back(item.key());
    found.tensors.push_back(item.value());
  }
  return found;
}

/// Puts the values of a model's buffers back.
class BuffersGuard {
 public:
  explicit BuffersGuard(const torch::nn::Module& model) : buffers_(model.buffers()) {
    for (const auto& buffer : buffers_) values_.push_back(buffer.defined() ? buffer.clone() : buffer);
  }
  ~BuffersGuard() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].defined()) buffers_[i].copy_(values_[i]);
    }
  }
  BuffersGuard(const BuffersGuard&) = delete;
  BuffersGuard& operator=(const BuffersGuard&) = delete;

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (auto parameter : parameters) parameter.mutable_grad().reset();
}

void check_loss(const at::Tensor& loss) {
  if (loss.defined() && loss.requires_grad() && loss.numel() == 1) return;
  throw InvalidArgument(
      c10::str("[ModuleRecorder] expected a loss of one element with a gradient, but got ",
               !loss.defined() ? std::string("an undefined tensor")
                               : c10::str(loss.sizes(), loss.requires_grad() ? "" : " without a gradient")));
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

/// In how many slices the ranks along an axis have the parameter.
int64_t num_slices(const at::Tensor& parameter) {
  if (!is_slice(parameter) || parameter.numel() == 0) return 1;
  return sharded_parameter_of(parameter)->num_elements_along_axis() / parameter.numel();
}

/// The block whose name a parameter's begins with; the longest name of several.
int block_of(const std::string& parameter, const std::vector<std::string>& blocks) {
  int best = -1;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool is_in = parameter.starts_with(blocks[i] + ".");
    if (is_in && (best < 0 || blocks[i].size() > blocks[static_cast<size_t>(best)].size()))
      best = static_cast<int>(i);
  }
  return best;
}

void take_parameters(RecordedStep& record, const NamedTensors& parameters) {
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    const auto& tensor = parameters.tensors[i];
    record.parameters.push_back({.name = parameters.names[i],
                                 .elements = tensor.numel(),
                                 .element_bytes = static_cast<int64_t>(tensor.element_size()),
                                 .is_trained = tensor.requires_grad(),
                                 .block = block_of(parameters.names[i], record.blocks),
                                 .num_slices = num_slices(tensor)});
  }
}

void take_gradients(RecordedStep& record, const std::vector<int>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int allocation = gradients[i];
    record.parameters[i].gradient = allocation;
    if (allocation >= 0) record.allocations[static_cast<size_t>(allocation)].parameter = static_cast<int>(i);
  }
}

}  // namespace

torch::Tensor ModuleRecorder::call(const std::string& name, const Function& function,
                                   const torch::Tensor& x) {
  StepLog* log = log_;
  if (halves_ != nullptr) return call_in_halves(name, function, x);
  if (log == nullptr || log->is_in_call()) return function(x);
  const int call = log->begin_call(name, x);
  if (x.defined() && x.requires_grad())
    x.register_hook([log, call](const at::Tensor&) { log->end_backward_of(call); });
  torch::Tensor result = function(x);
  log->end_call(call, result);
  if (result.defined() && result.requires_grad())
    result.register_hook([log, call](const at::Tensor& gradient) { log->begin_backward_of(call, gradient); });
  return result;
}

RecordedStep ModuleRecorder::record(torch::nn::Module& model,
                                    const std::function<Batch(int64_t examples)>& batch_of,
                                    const std::function<torch::Tensor(const Batch& batch)>& loss_of) {
  if (options_.fewer_examples < 1 || options_.more_examples <= options_.fewer_examples) {
    throw InvalidArgument(
        c10::str("[ModuleRecorder] expected 1 or more examples, and then more of them, but got ",
                 options_.fewer_examples, " and ", options_.more_examples));
  }
  if (StepLog::of_thread() != nullptr)
    throw InvalidArgument(
        "[ModuleRecorder] expected no other recording in this thread, but one is under way");
  const auto parameters = distinct_parameters(model);
  const BuffersGuard buffers(model);
  const at::AutoGradMode with_gradients(true);
  const auto run = [&](StepLog* log, const Batch& batch) {
    at::Tensor loss = loss_of(batch);
    check_loss(loss);
    if (log != nullptr) log->end_forward();
    loss.backward();
    if (log != nullptr) log->is_recording = false;
  };
  std::vector<Batch> batches;
  std::vector<bool> is_sparse(parameters.tensors.size(), false);  // their gradients
  const auto record_run = [&](int64_t examples) {
    const Batch& batch = batches.emplace_back(batch_of(examples));
    drop_gradients(parameters.tensors);
    run(nullptr, batch);  // makes what is made once
    drop_gradients(parameters.tensors);
    const auto log = std::make_shared<StepLog>(ranks_);
    log->gradients.assign(parameters.tensors.size(), -1);
    const GradientHooks hooks(parameters.tensors, [&](size_t i) {
      const at::Tensor& gradient = parameters.tensors[i].grad();
      is_sparse[i] = gradient.defined() && gradient.layout() != at::kStrided;
      log->take_gradient(static_cast<int>(i), gradient);
    });
    struct Recording {
      Recording(StepLog*& place, StepLog* log) : place(place) { place = log; }
      ~Recording() { place = nullptr; }
      StepLog*& place;
    };
    {
      const Recording recording(log_, log.get());
      const c10::DebugInfoGuard allocations(c10::DebugInfoKind::PROFILER_STATE, log);
      const OperatorKernelGuard operators;
      run(log.get(), batch);
    }
    drop_gradients(parameters.tensors);
    return log;
  };
  const auto fewer = record_run(options_.fewer_examples);
  const auto more = record_run(options_.more_examples);
  const BatchLine line(options_.fewer_examples, options_.more_examples);
  RecordedStep record = step_of_logs(line, *fewer, *more);
  record.input_bytes = line.through(bytes_of(batches[0]), bytes_of(batches[1]));
  record.buffer_bytes = bytes_of(model.buffers());
  take_parameters(record, parameters);
  take_gradients(record, more->gradients);
  for (size_t i = 0; i < is_sparse.size(); ++i) record.parameters[i].has_sparse_gradient = is_sparse[i];
  if (options_.records_halves) record_halves(record, model, batches, loss_of);
  return record;
}

}  // namespace lockstep
