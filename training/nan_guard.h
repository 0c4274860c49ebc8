#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/training/callback.h"
#include "lockstep/training/not_finite.h"

namespace lockstep {

struct NanGuardOptions {
  /// Looks after so many steps, which waits for the devices, besides the end of every epoch; 0: only there.
  int64_t every_steps = 0;
};

/// Ends a fit by NotFinite where a loss was NaN or infinite on any replica of any worker, or a parameter or
/// optimizer state is: all workers find the same step, in the same step.
class NanGuard : public Callback {
 public:
  /// Throws InvalidArgument for a negative number of steps.
  explicit NanGuard(const NanGuardOptions& options = {});
  void on_step_end(FitState& state) override;
  void on_epoch_trained(FitState& state) override;

  /// Throws NotFinite for the earliest step that one of `counts` broke at.
  static void check(int64_t epoch, const std::vector<FiniteCount>& counts);

 private:
  static void check(FitState& state);

  NanGuardOptions options_;
};

}  // namespace lockstep
