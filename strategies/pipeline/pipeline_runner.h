#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"

namespace lockstep {

/// The work of one rank of a pipeline. Each function does one action for one micro-batch. Those that send and
/// receive may block until the other rank is ready.
///
/// Example:
///
///     class LoggedWork : public PipelineWork {
///       void forward(int stage, int micro_batch) override { std::cout << "F" << stage << micro_batch; }
///       // ...
///     };
///     LoggedWork work;
///     const auto times = run_pipeline_rank(schedule, rank, work, start);  // in each rank's thread
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;

  virtual void forward(int stage, int micro_batch) = 0;
  /// Computes both halves.
  virtual void backward(int stage, int micro_batch) = 0;
  virtual void backward_inputs(int stage, int micro_batch) = 0;
  virtual void backward_weights(int stage, int micro_batch) = 0;
  /// Sends the result of the stage to the one after it.
  virtual void send_activation(int stage, int micro_batch) = 0;
  /// Receives the input of the stage from the one before it.
  virtual void receive_activation(int stage, int micro_batch) = 0;
  /// Sends the gradient of the stage's input to the one before it.
  virtual void send_gradient(int stage, int micro_batch) = 0;
  /// Receives the gradient of the stage's result from the one after it.
  virtual void receive_gradient(int stage, int micro_batch) = 0;
};

/// Does one action.
void do_pipeline_action(PipelineWork& work, const PipelineAction& action);

/// Does the actions of one rank, in order, in the caller's thread, and calls `before` with the number of each
/// before it. Returns when each of them began and ended, in seconds since `start`, which all ranks share.
/// Errors of the work come through.
std::vector<TimedPipelineAction> run_pipeline_rank(const PipelineSchedule& schedule, int rank,
                                                   PipelineWork& work,
                                                   std::chrono::steady_clock::time_point start,
                                                   const std::function<void(size_t action)>& before = {});

}  // namespace lockstep
