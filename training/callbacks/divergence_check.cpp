#include "lockstep/training/callbacks/divergence_check.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/state/internal/state_digests.h"

namespace lockstep {

void check_divergence(Strategy& strategy, int64_t step, const std::vector<ModulePointer>& modules,
                      const std::vector<torch::optim::Optimizer*>& optimizers) {
  if (strategy.num_ranks() > 1) check_equal(digest_states(strategy, modules, optimizers), step);
}

DivergenceCheck::DivergenceCheck(const DivergenceCheckOptions& options) : options_(options) {
  if (options.every_steps < 1) {
    throw InvalidArgument(
        c10::str("[DivergenceCheck] expected every_steps of 1 or more, but got ", options.every_steps));
  }
}

void DivergenceCheck::on_step_end(FitState& state) {
  if (state.global_step % options_.every_steps == 0) check(state);
}

void DivergenceCheck::on_fit_end(FitState& state) {
  check(state);
}

void DivergenceCheck::check(FitState& state) {
  check_divergence(state.strategy(), state.global_step, state.objects().modules, state.objects().optimizers);
}

}  // namespace lockstep
