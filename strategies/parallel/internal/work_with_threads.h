#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"

namespace lockstep {

/// Does another's work, with a number of threads of its own for each action, in order.
class WorkWithThreads final : public PipelineWork {
 public:
  /// Both must outlive it.
  WorkWithThreads(PipelineWork& work, const std::vector<int>& threads) : work_(work), threads_(threads) {}

  void forward(int stage, int micro_batch) override {
    const auto threads = next();
    work_.forward(stage, micro_batch);
  }
  void backward(int stage, int micro_batch) override {
    const auto threads = next();
    work_.backward(stage, micro_batch);
  }
  void backward_inputs(int stage, int micro_batch) override {
    const auto threads = next();
    work_.backward_inputs(stage, micro_batch);
  }
  void backward_weights(int stage, int micro_batch) override {
    const auto threads = next();
    work_.backward_weights(stage, micro_batch);
  }
  void send_activation(int stage, int micro_batch) override {
    const auto threads = next();
    work_.send_activation(stage, micro_batch);
  }
  void receive_activation(int stage, int micro_batch) override {
    const auto threads = next();
    work_.receive_activation(stage, micro_batch);
  }
  void send_gradient(int stage, int micro_batch) override {
    const auto threads = next();
    work_.send_gradient(stage, micro_batch);
  }
  void receive_gradient(int stage, int micro_batch) override {
    const auto threads = next();
    work_.receive_gradient(stage, micro_batch);
  }

 private:
  IntraOpThreadsGuard next() { return IntraOpThreadsGuard(threads_.at(next_++)); }

  PipelineWork& work_;
  const std::vector<int>& threads_;
  size_t next_ = 0;
};

}  // namespace lockstep
