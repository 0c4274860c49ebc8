#include "lockstep/training/nan_guard.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/errors.h"

namespace lockstep {

NotFinite::NotFinite(int64_t epoch, int64_t step, int64_t replica, const std::string& device)
    : std::runtime_error(c10::str("[fit] expected finite losses, but in epoch ", epoch, ", step ", step,
                                  ", replica ", replica, " (", device, ") has one that is not")),
      epoch_(epoch),
      step_(step),
      replica_(replica),
      device_(device) {}

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
  if (first->good < first->steps) throw NotFinite(epoch, first->good + 1, first->replica, first->device);
}

void NanGuard::on_step_end(FitState& state) {
  if (options_.every_steps > 0 && state.step % options_.every_steps == 0)
    check(state.epoch, state.finite_counts(/*all_workers=*/true));
}

void NanGuard::on_epoch_trained(FitState& state) {
  check(state.epoch, state.finite_counts(/*all_workers=*/true));
}

}  // namespace lockstep
