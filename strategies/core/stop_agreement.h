#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

class Strategy;

/// Lets the workers of a job stop after the same step where one of them, or each at a time of its own, is
/// asked to: by a signal, say. A worker that stopped alone would leave the others waiting for its gradients.
///
///     StopAgreement agreement(strategy, [&] { return interruption.signal(); });
///     for (const auto& batch : batches) {
///       strategy.run(train_step, model, optimizer, batch);
///       if (agreement.should_stop()) break;                      // on all workers after the same step
///     }
///
/// Steps cost nothing by it: a thread of its own asks for the others' requests, some ten times a second, and
/// only once there is one a worker waits, for some tenths of a second, until all have said how far they are.
class StopAgreement {
 public:
  /// `reason` says why this worker is asked to stop, as a number such as a signal's; 0: it is not. It is
  /// called by two threads. A collective where there are several workers. The strategy outlives the object.
  StopAgreement(Strategy& strategy, std::function<int()> reason);
  /// Does not wait for the others, nor for long where their store does not answer.
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// To be called after each step, by one thread, on all workers as often. From the same call on it gives the
  /// same reason on all of them, the one of the worker that was asked first, and 0 before. Where a worker is
  /// lost meanwhile it gives 0: the next collective says why. A request in a loop's very last step may be
  /// told to some only: there is nothing left to stop.
  int should_stop();

 private:
  class Workers;
  std::function<int()> reason_;
  std::shared_ptr<Workers> workers_;  // null: this process decides alone
};

}  // namespace lockstep
