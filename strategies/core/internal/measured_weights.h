#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/input/batch_shares.h"

namespace lockstep {

/// Finds the division of batches for which all replicas compute for the same time, from the times of the
/// first training steps.
///
/// A replica's time is affine in its number of examples: some work, such as reading the weights, does not
/// depend on it. So a division in proportion to the rates n / t that were measured for another division is
/// only a step towards equal times, and is measured again, a few times. The rates are constant once the times
/// are equal. Times begin with the run and not with a replica's thread: a thread that always starts later, as
/// it shares a core with the input pipeline, has less time, too.
///
/// Ranks call begin() and note_gradients() from their own threads; the others are called while no replica
/// runs.
///
/// Example:
///
///     MeasuredWeights weights(shares, {0, 1});
///     ...                              // in the thread of each rank, in a training step:
///     weights.begin(rank, begin_of_run, waits.seconds());
///     weights.note_gradients(rank, MeasuredWeights::Clock::now(), waits.seconds());
///     ...                              // after the step:
///     weights.end_run(sizes);
class MeasuredWeights {
 public:
  using Clock = std::chrono::steady_clock;

  /// Changes `shares`. `replicas` has the replica of each local rank; the replicas are all of the shares'.
  MeasuredWeights(std::shared_ptr<BatchShares> shares, std::vector<int> replicas);

  /// Returns whether times are still wanted.
  bool is_measuring() const { return rounds_left_ > 0; }
  /// Notes that a local rank begins a step, whose run began at `begin`. `waited` is its WaitClock's total.
  void begin(int rank, Clock::time_point begin, double waited);
  /// Notes that a local rank has computed its gradients: call it once its device has done so. The first call
  /// of a step counts, since later ones follow sums with other ranks.
  void note_gradients(int rank, Clock::time_point now, double waited);
  /// Takes the times of the run, if all ranks noted gradients, for a batch of these sizes. Ignores runs whose
  /// sizes are unknown, and batches that were cut before the last change. Ends the measurement after so many
  /// runs with gradients, most of them ignored perhaps; weights that no batch was cut by are undone then.
  void end_run(const std::optional<BatchSizes>& sizes);

 private:
  struct Lap {
    Clock::time_point begin;
    double waited_before = 0;
    double seconds = 0;  // 0: no gradients yet
  };

  void take(const BatchSizes& sizes);
  void end_round();
  /// Returns the (lower) median of the replica's times in this round, in seconds for an example.
  double median_time(size_t replica) const;

  const std::shared_ptr<BatchShares> shares_;
  const std::vector<int> replicas_;  // of each local rank
  std::vector<Lap> laps_;            // of each local rank
  int rounds_left_;
  int runs_left_;
  std::vector<double> confirmed_;           // weights that batches were cut by; empty: equal pieces
  std::vector<double> found_;               // those of the last round, whose sum is 1
  int num_steps_ = 0;                       // steps of this round
  std::vector<std::vector<double>> times_;  // of the round's steps: each replica's seconds for an example
  std::vector<int64_t> num_examples_;       // of each replica in the round's last step
};

}  // namespace lockstep
