#include "lockstep/training/nan_guard.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/errors.h"
#include "lockstep/training/state_digests.h"

namespace lockstep {

NanGuard::NanGuard(const NanGuardOptions& options) : options_(options) {
  if (options.every_steps < 0) {
    throw InvalidArgument(
        c10::str("[NanGuard] expected every_steps of 0 or more, but got ", options.every_steps));
  }
}

void NanGuard::check(int64_t epoch, const std::vector<FiniteCount>& counts) {
  const auto first = std::min_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return (a.good < a.steps ? a.good : INT64_MAX) < (b.good < b.steps ? b.good : INT64_MAX);
  });
  if (first->good < first->steps) {
    throw NotFinite(
        {.epoch = epoch, .step = first->good + 1, .replica = first->replica, .device = first->device});
  }
}

void NanGuard::on_step_end(FitState& state) {
  if (options_.every_steps > 0 && state.step % options_.every_steps == 0) check(state);
}

void NanGuard::on_epoch_trained(FitState& state) {
  check(state);
}

void NanGuard::check(FitState& state) {
  check(state.epoch, state.finite_counts(/*all_workers=*/true));
  const auto& objects = state.objects();
  check_finite(digest_states(state.strategy(), objects.modules, objects.optimizers), state.epoch, state.step);
}

}  // namespace lockstep
