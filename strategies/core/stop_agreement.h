#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

class Strategy;

/// Lets all workers of a job stop after the same step if one of them is asked to stop, for instance by a
/// signal. A worker that stopped alone would leave the others waiting for its gradients.
///
/// A background thread looks for requests of other workers about ten times a second, so that steps cost
/// nothing. Only after a request does a worker wait, for a few tenths of a second, until all have told how
/// far they are.
///
/// Example:
///
///     StopAgreement agreement(strategy, [&] { return interruption.signal(); });
///     for (const auto& batch : batches) {
///       strategy.run(train_step, model, optimizer, batch);
///       if (agreement.should_stop()) break;  // on all workers after the same step
///     }
class StopAgreement {
 public:
  /// `reason` returns why this worker is asked to stop, as a number such as a signal's, or 0 if it is not.
  /// The calling thread and a background thread call it. A collective if there are several workers. The
  /// strategy must outlive this object.
  StopAgreement(Strategy& strategy, std::function<int()> reason);
  /// Does not wait for the other workers, and not long for a store that does not answer.
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// Returns 0 until the workers agree to stop, then the reason of the worker that was asked first. Call it
  /// after each step, from one thread and equally often on all workers: all get the reason from the same call
  /// on. Returns 0 if a worker is lost meanwhile; the next collective then throws why. A request in the very
  /// last step of a loop may reach only some workers, since nothing is left to stop.
  int should_stop();

 private:
  class Workers;
  std::function<int()> reason_;
  std::shared_ptr<Workers> workers_;  // null if this process decides alone
};

}  // namespace lockstep
