#pragma once

#include <cstdint>
#include <stdexcept>

#include "lockstep/training/callback.h"

namespace lockstep {

/// A loss stopped being a number. The message names epoch, step, replica and device.
class NotFinite : public std::runtime_error {
 public:
  NotFinite(int64_t epoch, int64_t step, int64_t replica, const std::string& device);
  int64_t epoch() const { return epoch_; }
  int64_t step() const { return step_; }  ///< of the epoch, from 1
  int64_t replica() const { return replica_; }
  const std::string& device() const { return device_; }

 private:
  int64_t epoch_, step_, replica_;
  std::string device_;
};

struct NanGuardOptions {
  /// Looks after so many steps, which waits for the devices, besides the end of every epoch; 0: only there.
  int64_t every_steps = 0;
};

/// Ends a fit by NotFinite where a loss was NaN or infinite on any replica of any worker: all workers find
/// the same step, in the same step.
class NanGuard : public Callback {
 public:
  /// Throws InvalidArgument for a negative number of steps.
  explicit NanGuard(const NanGuardOptions& options = {});
  void on_step_end(FitState& state) override;
  void on_epoch_trained(FitState& state) override;

  /// Throws NotFinite for the earliest step that one of `counts` broke at.
  static void check(int64_t epoch, const std::vector<FiniteCount>& counts);

 private:
  NanGuardOptions options_;
};

}  // namespace lockstep
