#pragma once

#include <torch/types.h>

#include <compare>
#include <cstddef>
#include <map>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/replicas/wait_clock.h"
#include "lockstep/strategies/parallel/internal/pass_batches.h"
#include "lockstep/strategies/parallel/internal/pipeline_shapes.h"
#include "lockstep/strategies/pipeline/pipeline_schedule.h"

namespace lockstep {

/// The surroundings of a pass, as its messages need them.
struct MessageContext {
  const PipelineSchedule& schedule;
  const PassBatches& batches;
  int rank = 0;                  ///< this one
  const ReplicaBackends& ranks;  ///< along the pipeline's axis
  WaitClock& waits;
  PipelineShapes& shapes;
  PipelineShapes::Key key;  ///< of the pass: without a place and an input
};

/// The messages that one rank of a pipeline exchanges with others during a pass. Sends do not wait for the
/// other rank, receives block.
class StageMessages {
 public:
  explicit StageMessages(const MessageContext& context) : context_(context) {}

  /// Sends the result of a stage to the one after it. Throws InvalidArgument if results of other inputs of
  /// this size had another shape.
  void send_activation(int stage, int micro_batch, const torch::Tensor& value);
  torch::Tensor receive_activation(int stage, int micro_batch);
  /// Sends the gradient of a stage's input to the stage before it; zeros if it is undefined.
  void send_gradient(int stage, int micro_batch, const torch::Tensor& gradient);
  torch::Tensor receive_gradient(int stage, int micro_batch);
  /// Sends the last stage's result of a batch of a stream to all other ranks. Call it before the next action.
  void send_result(const torch::Tensor& result);
  torch::Tensor receive_result(size_t batch);

 private:
  enum class Kind : uint8_t { kActivation, kGradient, kResult };
  struct Message {
    Kind kind = Kind::kActivation;
    int stage = 0;        ///< which receives it; 0 of a result
    int micro_batch = 0;  ///< of a result: the batch
    auto operator<=>(const Message&) const = default;
  };

  int rank_of(int stage) const { return context_.schedule.rank_of_stage[static_cast<size_t>(stage)]; }
  bool is_here(int stage) const;
  PipelineShapes::Key key_of(int stage, int micro_batch) const;
  torch::Device device_of(int micro_batch) const {
    return context_.batches.whole_input(micro_batch).device();
  }
  torch::Tensor receive_from(int source, const Message& wanted);
  torch::Tensor receive_message(int source, const Message& message);
  ActivationShape receive_shape(int source) const;
  Message next_from(int source);

  MessageContext context_;
  std::map<int, size_t> next_sent_;  // for each rank, its next action
  std::map<Message, torch::Tensor> early_;
};

}  // namespace lockstep
