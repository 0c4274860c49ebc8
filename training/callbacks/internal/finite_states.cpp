#include "lockstep/training/callbacks/internal/finite_states.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/training/state/not_finite.h"

namespace lockstep {
namespace {

/// Throws NotFinite for the earliest step at which one of `counts` broke.
void check_losses(const FitState& state, const std::vector<FiniteCount>& counts) {
  const auto first = std::min_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return (a.good < a.steps ? a.good : INT64_MAX) < (b.good < b.steps ? b.good : INT64_MAX);
  });
  if (first->good == first->steps) return;
  // `steps` leaves out undone steps, which `state.step` counts.
  throw NotFinite({.epoch = state.epoch,
                   .step = state.step - first->steps + first->good + 1,
                   .replica = first->replica,
                   .device = first->device});
}

StateDigests digests_of_finite(FitState& state) {
  check_losses(state, state.finite_counts(/*all_workers=*/true));
  const auto& objects = state.objects();
  auto states = digest_states(state.strategy(), objects.modules, objects.optimizers);
  check_finite(states, state.epoch, state.step);
  return states;
}

}  // namespace

StateDigests require_finite(FitState& state) {
  while (true) {
    try {
      return digests_of_finite(state);
    } catch (const NotFinite& error) {
      if (!state.on_not_finite || !state.on_not_finite(error)) throw;
    }
  }
}

}  // namespace lockstep
