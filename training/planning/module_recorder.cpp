#include "lockstep/training/planning/module_recorder.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/gradient_hooks.h"
#include "lockstep/training/planning/internal/operator_kernel.h"
#include "lockstep/training/planning/internal/step_log.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

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

/// The backward of a block ends where that of the block before begins, and is to be noted first.
void sort_ends(StepLog& log) {
  for (size_t i = 0; i + 1 < log.events.size(); ++i) {
    auto& event = log.events[i];
    auto& next = log.events[i + 1];
    if (event.kind != Kind::kBackwardBegins || next.kind != Kind::kBackwardEnds) continue;
    std::swap(event, next);
    log.calls[static_cast<size_t>(event.number)].backward_ends_at = static_cast<int>(i);
    log.calls[static_cast<size_t>(next.number)].backward_begins_at = static_cast<int>(i) + 1;
  }
}

/// A quantity from its values for two numbers of examples.
class Line {
 public:
  explicit Line(const ModuleRecorderOptions& options)
      : fewer_(static_cast<double>(options.fewer_examples)),
        more_(static_cast<double>(options.more_examples)) {}
  BatchQuantity through(double of_fewer, double of_more) const {
    const double slope = (of_more - of_fewer) / (more_ - fewer_);
    return {of_fewer - slope * fewer_, slope};
  }
  BatchQuantity through(int64_t of_fewer, int64_t of_more) const {
    return through(static_cast<double>(of_fewer), static_cast<double>(of_more));
  }

 private:
  double fewer_, more_;
};

[[noreturn]] void refuse_other_step(const ModuleRecorderOptions& options, const std::string& difference) {
  throw InvalidArgument(c10::str("[ModuleRecorder] expected a step that does the same for ",
                                 options.fewer_examples, " and for ", options.more_examples,
                                 " examples, but with more of them ", difference,
                                 ": take other numbers of examples, closer to those that you plan"));
}

std::string name_of_operator(const StepLog& log, size_t index) {
  return index < log.operators.size() ? log.operators[index].name : std::string("nothing");
}

void check_alike(const ModuleRecorderOptions& options, const StepLog& fewer, const StepLog& more) {
  for (size_t i = 0; i < std::max(fewer.operators.size(), more.operators.size()); ++i) {
    const std::string expected = name_of_operator(fewer, i), given = name_of_operator(more, i);
    if (expected != given) refuse_other_step(options, "it calls " + given + " in place of " + expected);
  }
  const auto is_alike = [](const auto& a, const auto& b) { return a.kind == b.kind && a.number == b.number; };
  if (fewer.events.size() != more.events.size() ||
      !std::equal(fewer.events.begin(), fewer.events.end(), more.events.begin(), is_alike)) {
    refuse_other_step(options, c10::str("it allocates memory in another way, ", more.allocations.size(),
                                        " times instead of ", fewer.allocations.size()));
  }
}

void take_allocations(RecordedStep& record, const Line& line, const StepLog& fewer, const StepLog& more) {
  const auto forward_end = std::find_if(more.events.begin(), more.events.end(),
                                        [](const auto& event) { return event.kind == Kind::kForwardEnds; });
  const auto end = static_cast<int>(forward_end - more.events.begin());
  for (size_t i = 0; i < more.allocations.size(); ++i) {
    const auto& own = more.allocations[i];
    record.allocations.push_back({.bytes = line.through(fewer.allocations[i].bytes, own.bytes),
                                  .call = own.call,
                                  .is_backward = own.is_backward,
                                  .is_saved = !own.is_backward && own.freed_at > end,
                                  .freed_at = own.freed_at});
  }
  for (size_t i = 0; i < more.gradients.size(); ++i) {
    const int allocation = more.gradients[i];
    record.parameters[i].gradient = allocation;
    if (allocation >= 0) record.allocations[static_cast<size_t>(allocation)].parameter = static_cast<int>(i);
  }
}

void take_operators(RecordedStep& record, const Line& line, const StepLog& fewer, const StepLog& more) {
  for (size_t i = 0; i < more.operators.size(); ++i) {
    const auto& small = fewer.operators[i];
    const auto& own = more.operators[i];
    const int block = own.call < 0 ? -1 : more.calls[static_cast<size_t>(own.call)].block;
    record.operators.push_back({.name = own.name,
                                .block = block,
                                .is_backward = own.is_backward,
                                .shapes = own.shapes,
                                .dtypes = own.dtypes,
                                .flops = line.through(small.flops, own.flops),
                                .bytes_read = line.through(small.bytes_read, own.bytes_read),
                                .bytes_written = line.through(small.bytes_written, own.bytes_written)});
  }
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
                                 .block = block_of(parameters.names[i], record.blocks)});
  }
}

}  // namespace

torch::Tensor ModuleRecorder::call(const std::string& name, const Function& function,
                                   const torch::Tensor& x) {
  StepLog* log = log_;
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
  const auto record_run = [&](int64_t examples, int64_t& input_bytes) {
    const Batch batch = batch_of(examples);
    input_bytes = bytes_of(batch);
    drop_gradients(parameters.tensors);
    run(nullptr, batch);  // makes what is made once
    drop_gradients(parameters.tensors);
    const auto log = std::make_shared<StepLog>();
    log->gradients.assign(parameters.tensors.size(), -1);
    const GradientHooks hooks(parameters.tensors, [&](size_t i) {
      log->take_gradient(static_cast<int>(i), parameters.tensors[i].grad());
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
    sort_ends(*log);
    return log;
  };
  int64_t fewer_bytes = 0, more_bytes = 0;
  const auto fewer = record_run(options_.fewer_examples, fewer_bytes);
  const auto more = record_run(options_.more_examples, more_bytes);
  check_alike(options_, *fewer, *more);
  const Line line(options_);
  RecordedStep record;
  record.blocks = more->blocks;
  record.calls = more->calls;
  record.events = more->events;
  record.input_bytes = line.through(fewer_bytes, more_bytes);
  record.least_examples = options_.fewer_examples;
  record.most_examples = options_.more_examples;
  record.buffer_bytes = bytes_of(model.buffers());
  take_parameters(record, parameters);
  take_allocations(record, line, *fewer, *more);
  take_operators(record, line, *fewer, *more);
  return record;
}

}  // namespace lockstep
