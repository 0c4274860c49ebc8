#include "lockstep/strategies/parallel/internal/stage_messages.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <stdexcept>
#include <utility>

#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {

bool StageMessages::is_here(int stage) const {
  return stage >= 0 && stage < context_.schedule.num_stages() && rank_of(stage) == context_.rank;
}

PipelineShapes::Key StageMessages::key_of(int stage, int micro_batch) const {
  const torch::Tensor& input = context_.batches.whole_input(micro_batch);
  PipelineShapes::Key key = context_.key;
  key.place = stage;
  key.input = input.sizes().vec();
  key.input.front() = context_.batches.num_examples(micro_batch);
  key.dtype = input.scalar_type();
  return key;
}

void StageMessages::send_activation(int stage, int micro_batch, const torch::Tensor& value) {
  const int to = rank_of(stage + 1);
  const auto key = key_of(stage + 1, micro_batch);
  const ActivationShape shape(value);
  const WaitClock::Wait wait(context_.waits);
  if (const auto* known = context_.shapes.find(key)) {
    PipelineShapes::check(
        *known, shape,
        c10::str("the result of stage ", stage, " for ", context_.batches.describe(micro_batch)));
  } else {
    send(context_.ranks, shape.header(), to);
    context_.shapes.add(key, shape);
  }
  send(context_.ranks, shape.packed(value), to);
}

torch::Tensor StageMessages::receive_activation(int stage, int micro_batch) {
  return receive_from(rank_of(stage - 1), {Kind::kActivation, stage, micro_batch});
}

void StageMessages::send_gradient(int stage, int micro_batch, const torch::Tensor& gradient) {
  const WaitClock::Wait wait(context_.waits);
  const ActivationShape* shape = context_.shapes.find(key_of(stage, micro_batch));
  // An input of integers has none, but the schedule has a place for it.
  send(context_.ranks,
       gradient.defined() ? shape->packed(gradient) : shape->empty_packed(device_of(micro_batch)).zero_(),
       rank_of(stage - 1));
}

torch::Tensor StageMessages::receive_gradient(int stage, int micro_batch) {
  return receive_from(rank_of(stage + 1), {Kind::kGradient, stage, micro_batch});
}

void StageMessages::send_result(const torch::Tensor& result) {
  const WaitClock::Wait wait(context_.waits);
  const ActivationShape shape(result);
  const torch::Tensor packed = shape.packed(result);
  for (int rank = 0; rank < context_.schedule.num_ranks(); ++rank) {
    if (rank == context_.rank) continue;
    send(context_.ranks, shape.header(), rank);
    send(context_.ranks, packed, rank);
  }
}

torch::Tensor StageMessages::receive_result(size_t batch) {
  return receive_from(context_.schedule.rank_of_stage.back(), {Kind::kResult, 0, static_cast<int>(batch)});
}

/// Messages from a rank come in the order in which it sends them, which need not be that in which this rank
/// uses them.
torch::Tensor StageMessages::receive_from(int source, const Message& wanted) {
  if (const auto early = early_.find(wanted); early != early_.end()) {
    auto value = std::move(early->second);
    early_.erase(early);
    return value;
  }
  const WaitClock::Wait wait(context_.waits);
  while (true) {
    const Message next = next_from(source);
    torch::Tensor value = receive_message(source, next);
    if (next == wanted) return value;
    early_.emplace(next, std::move(value));
  }
}

ActivationShape StageMessages::receive_shape(int source) const {
  const torch::Tensor header = ActivationShape::empty_header();
  receive_(context_.ranks, header, source);
  return ActivationShape::of_header(header);
}

torch::Tensor StageMessages::receive_message(int source, const Message& message) {
  const torch::NoGradGuard no_grad;
  const auto receive_as = [&](const ActivationShape& shape, int micro_batch) {
    const torch::Tensor packed = shape.empty_packed(device_of(micro_batch));
    receive_(context_.ranks, packed, source);
    return shape.unpacked(packed);
  };
  // The last stage's function may be another in each call.
  if (message.kind == Kind::kResult) return receive_as(receive_shape(source), 0);
  const int place = message.kind == Kind::kGradient ? message.stage + 1 : message.stage;
  const auto key = key_of(place, message.micro_batch);
  const ActivationShape* shape = context_.shapes.find(key);
  if (shape == nullptr) shape = &context_.shapes.add(key, receive_shape(source));
  return receive_as(*shape, message.micro_batch);
}

/// Returns the next message that a rank sends to this one.
StageMessages::Message StageMessages::next_from(int source) {
  const auto& actions = context_.schedule.actions[static_cast<size_t>(source)];
  const int last_stage = context_.schedule.num_stages() - 1;
  size_t& next = next_sent_[source];
  while (next < actions.size()) {
    const auto& [op, stage, micro_batch] = actions[next++];
    if (op == PipelineOp::kSendActivation && is_here(stage + 1))
      return {Kind::kActivation, stage + 1, micro_batch};
    if (op == PipelineOp::kSendGradient && is_here(stage - 1))
      return {Kind::kGradient, stage - 1, micro_batch};
    const bool ends_batch =
        op == PipelineOp::kForward && stage == last_stage && context_.batches.ends_batch(micro_batch);
    if (context_.batches.is_stream() && ends_batch)
      return {Kind::kResult, 0, static_cast<int>(context_.batches.batch_of(micro_batch))};
  }
  throw std::logic_error("[Pipeline] a rank waits for a message that nobody sends");  // the check's task
}

}  // namespace lockstep
