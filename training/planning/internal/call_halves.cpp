#include "lockstep/training/planning/internal/call_halves.h"

#include <ATen/ops/ones_like.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/parallel/internal/split_backward.h"
#include "lockstep/training/planning/internal/operator_kernel.h"
#include "lockstep/training/planning/internal/step_log.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

/// The moments of a log, as numbers of events.
struct Moments {
  size_t first_begins = 0;
  size_t second_begins = 0;
  size_t end = 0;
};

/// Returns the most bytes that were allocated and not freed at a time between two moments, of the allocations
/// that `counts` names; those from before count negatively if they are freed.
template <typename Counts>
int64_t most_between(const StepLog& log, size_t begin, size_t end, const Counts& counts) {
  int64_t now = 0, most = 0;
  for (size_t i = begin; i < end; ++i) {
    const auto& [kind, number] = log.events[i];
    const bool is_allocated = kind == Kind::kAllocate;
    if ((!is_allocated && kind != Kind::kFree) || !counts(static_cast<size_t>(number))) continue;
    const int64_t bytes = log.allocations[static_cast<size_t>(number)].bytes;
    now += is_allocated ? bytes : -bytes;
    most = std::max(most, now);
  }
  return most;
}

void measure(const StepLog& log, const Moments& moments, CallHalves& halves) {
  size_t num_of_forward = 0, num_of_first = 0;  // allocations
  for (size_t i = 0; i < moments.second_begins; ++i) {
    if (log.events[i].kind != Kind::kAllocate) continue;
    ++(i < moments.first_begins ? num_of_forward : num_of_first);
  }
  for (size_t i = 0; i < num_of_forward + num_of_first; ++i) {
    const auto& own = log.allocations[i];
    if (own.freed_at >= 0 && own.freed_at < static_cast<int>(moments.second_begins)) continue;
    (i < num_of_forward ? halves.saved : halves.gradients) += own.bytes;
  }
  halves.most_in_first = most_between(log, moments.first_begins, moments.second_begins,
                                      [&](size_t allocation) { return allocation >= num_of_forward; });
  halves.most_in_second = most_between(log, moments.second_begins, moments.end, [](size_t) { return true; });
}

}  // namespace

at::Tensor run_halves(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x,
                      bool has_input, const std::vector<at::Tensor>& parameters,
                      const std::shared_ptr<RankAllocations>& ranks, CallHalves& halves) {
  const auto log = std::make_shared<StepLog>(ranks);
  const c10::DebugInfoGuard allocations(c10::DebugInfoKind::PROFILER_STATE, log);
  const OperatorKernelGuard collectives;
  at::Tensor input = has_input ? x.detach().requires_grad_() : x;
  const size_t uses_of_input = x.storage().use_count();
  at::Tensor result = function(input);
  const auto pause = [&](const auto& work) {
    log->is_recording = false;
    work();
    log->is_recording = true;
  };
  at::Tensor value;
  pause([&] { value = result.detach().clone(); });
  if (!result.requires_grad()) return value;
  const AutocastGuard as_computed(c10::DeviceType::CPU, at::kFloat);  // backward is outside of the user's
  Moments moments{.first_begins = log->events.size()};
  std::optional<SplitBackward> backward;
  at::Tensor gradient = at::ones_like(result.detach());
  const int gradient_number = static_cast<int>(log->allocations.size()) - 1;
  backward.emplace(result, has_input ? input : at::Tensor(), parameters);
  at::Tensor of_input = backward->inputs(gradient);
  halves.are_apart = backward->is_split();
  result.reset();
  input.reset();
  gradient.reset();
  of_input.reset();
  moments.second_begins = log->events.size();
  if (gradient_number >= 0)
    halves.keeps_output_gradient = log->allocations[static_cast<size_t>(gradient_number)].freed_at < 0;
  // The handle that was dropped counted before.
  halves.needs_input = has_input && x.storage().use_count() + 1 > uses_of_input;
  auto of_parameters = backward->weights();
  moments.end = log->events.size();
  log->is_recording = false;
  of_parameters.clear();
  backward.reset();
  if (!halves.are_apart) return value;
  for (const auto& [allocation, event] : log->freed_elsewhere)
    log->allocations[static_cast<size_t>(allocation)].freed_at = event;
  measure(*log, moments, halves);
  return value;
}

}  // namespace lockstep
