#include "lockstep/strategies/parallel/internal/stage_work.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>

#include <limits>
#include <stdexcept>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/nn/losses.h"

namespace lockstep {
namespace {

/// Mixes numbers into the seed of a random stream (the finalizer of SplitMix64; Steele et al., 2014).
uint64_t mixed(uint64_t seed, uint64_t number) {
  uint64_t bits = seed + 0x9e3779b97f4a7c15 * (number + 1);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace

PipelineStages::Work::Work(PipelineStages& pipeline, const PipelineSchedule& schedule,
                           const PassBatches& batches, const PipelinePass& pass, ReplicaContext* replica,
                           const BlockFunctions* functions)
    : pipeline_(pipeline),
      schedule_(schedule),
      batches_(batches),
      pass_(pass),
      replica_(replica),
      functions_(functions) {
  if (pipeline_.num_ranks() > 1) {
    ranks_ = pipeline_.backends();
    messages_.emplace(MessageContext{
        .schedule = schedule_,
        .batches = batches_,
        .rank = pipeline_.position_.index,
        .ranks = *ranks_,
        .waits = pipeline_.replica_->waits(),
        .shapes = *pipeline_.shapes_,
        .key = {.pipeline = &pipeline_, .is_of_blocks = functions_ == nullptr, .autocast = pass_.autocast}});
  }
  if (!goes_backward()) return;
  gradients_.emplace(*pipeline_.parameters_, num_stages(), batches_.num_micro_batches());
  if (pipeline_.is_training()) draw_seed();
  // That of one micro-batch would not do.
  if (!replica_->global_batch_size())
    global_batch_size_ = replica_->sum_on_host(batches_.whole_input(0).size(0));
}

/// Calls `work`, whose errors then say what was done. Errors of other ranks stay as they are.
template <typename Fn>
void PipelineStages::Work::with_action_in_errors(const char* what, int stage, int micro_batch,
                                                 const Fn& work) const {
  const auto place = [&] {
    return c10::str(what, " of stage ", stage, " for ", batches_.describe(micro_batch));
  };
  try {
    work();
  } catch (c10::DistError&) {
    throw;
  } catch (c10::Error& error) {
    error.add_context("in the " + place());
    throw;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(c10::str("[Pipeline] in the ", place(), ": ", error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(c10::str("[Pipeline] in the ", place(), ": ", error.what()));
  }
}

void PipelineStages::Work::forward(int stage, int micro_batch) {
  with_action_in_errors("forward", stage, micro_batch, [&] { compute(stage, micro_batch); });
}

void PipelineStages::Work::backward(int stage, int micro_batch) {
  with_action_in_errors("backward", stage, micro_batch, [&] {
    Kept& kept = this->kept(stage, micro_batch);
    if (kept.result.requires_grad()) {
      const auto random = own_random();
      auto all = run_backward(kept.result, kept.input, gradients_->parameters_of(stage), take_gradient(kept));
      kept.of_input = std::move(all.input);
      gradients_->add(stage, std::move(all.parameters));
    }
    end_inputs(stage, micro_batch, kept);
    gradients_->end_micro_batch(stage);
  });
}

void PipelineStages::Work::backward_inputs(int stage, int micro_batch) {
  with_action_in_errors("backward for the inputs", stage, micro_batch, [&] {
    Kept& kept = this->kept(stage, micro_batch);
    if (kept.result.requires_grad()) {
      const auto random = own_random();
      kept.split.emplace(kept.result, kept.input, gradients_->parameters_of(stage));
      kept.of_input = kept.split->inputs(take_gradient(kept));
    }
    end_inputs(stage, micro_batch, kept);
  });
}

void PipelineStages::Work::backward_weights(int stage, int micro_batch) {
  with_action_in_errors("backward for the weights", stage, micro_batch, [&] {
    Kept& kept = this->kept(stage, micro_batch);
    const auto random = own_random();
    if (kept.split) gradients_->add(stage, kept.split->weights());
    kept.split.reset();
    gradients_->end_micro_batch(stage);
  });
}

void PipelineStages::Work::send_activation(int stage, int micro_batch) {
  Kept& kept = this->kept(stage, micro_batch);
  messages_->send_activation(stage, micro_batch, std::exchange(kept.sent, {}));
  if (!goes_backward()) kept_.erase({stage, micro_batch});
}

void PipelineStages::Work::receive_activation(int stage, int micro_batch) {
  incoming_[{stage, micro_batch}] = messages_->receive_activation(stage, micro_batch);
}

void PipelineStages::Work::send_gradient(int stage, int micro_batch) {
  messages_->send_gradient(stage, micro_batch, std::exchange(kept(stage, micro_batch).of_input, {}));
}

void PipelineStages::Work::receive_gradient(int stage, int micro_batch) {
  kept(stage, micro_batch).gradient = messages_->receive_gradient(stage, micro_batch);
}

void PipelineStages::Work::finish() {
  gradients_->finish(pipeline_.position_.index, ranks_ ? &*ranks_ : nullptr,
                     ranks_ ? &pipeline_.replica_->waits() : nullptr);
}

torch::Tensor PipelineStages::Work::take_result(size_t batch) {
  if (!is_here(num_stages() - 1)) return messages_->receive_result(batch);
  const torch::Tensor result = outputs();
  outputs_.clear();
  if (messages_) messages_->send_result(result);
  return result;
}

bool PipelineStages::Work::is_here(int stage) const {
  return stage >= 0 && stage < num_stages() &&
         schedule_.rank_of_stage[static_cast<size_t>(stage)] == pipeline_.position_.index;
}

/// Draws for recomputation, too.
std::optional<RankRandom> PipelineStages::Work::own_random() const {
  return generator_ ? std::optional<RankRandom>(std::in_place, *generator_) : std::nullopt;
}

/// Replicas draw other seeds, and the ranks of one the same.
void PipelineStages::Work::draw_seed() {
  const auto options = torch::dtype(torch::kLong).device(replica_->device());
  seed_ = static_cast<uint64_t>(
      torch::randint(std::numeric_limits<int64_t>::max(), {1}, replica_->generator(), options)
          .item<int64_t>());
  generator_ = replica_->generator().clone();
}

void PipelineStages::Work::compute(int stage, int micro_batch) {
  Kept& kept = this->kept(stage, micro_batch);
  torch::Tensor x =
      stage == 0 ? batches_.input(micro_batch) : std::exchange(incoming_[{stage, micro_batch}], {});
  if (goes_backward() && stage > 0 && x.is_floating_point()) {
    x = x.detach().requires_grad_();
    kept.input = x;
  }
  const bool is_last = stage + 1 == num_stages();
  {
    std::optional<AutocastGuard> cast;
    if (goes_backward()) cast.emplace(batches_.whole_input(micro_batch).device().type(), pass_.autocast);
    for (size_t block = pipeline_.begin_of_stage(stage); block < pipeline_.begin_of_stage(stage + 1);
         ++block) {
      if (generator_)
        generator_->set_current_seed(mixed(mixed(seed_, block), static_cast<uint64_t>(micro_batch)));
      const auto random = own_random();
      x = functions_ != nullptr ? (*functions_)[block](x) : pipeline_.blocks_[block].forward(x);
    }
    if (is_last) {
      if (pass_.returns_outputs) outputs_.push_back(x.detach());
      if (pass_.losses) {
        x = pass_.losses(x, batches_.target(micro_batch));
        losses_.push_back(x.detach());
      }
    }
  }
  if (is_last && goes_backward()) {
    const auto loss = compute_average_loss(*replica_, x, {.global_batch_size = global_batch_size_});
    kept.result = pass_.scaler != nullptr ? pass_.scaler->scale(loss) : loss;
  }
  if (is_last) return;
  (is_here(stage + 1) ? incoming_[{stage + 1, micro_batch}] : kept.sent) = x.detach();
  if (goes_backward()) kept.result = x;
}

torch::Tensor PipelineStages::Work::take_gradient(Kept& kept) {
  return kept.gradient.defined() ? std::exchange(kept.gradient, {}) : torch::ones_like(kept.result);
}

void PipelineStages::Work::end_inputs(int stage, int micro_batch, Kept& kept) {
  const bool has_input = kept.input.defined();
  if (has_input && !kept.of_input.defined()) kept.of_input = torch::zeros_like(kept.input);
  kept.result.reset();
  kept.input.reset();
  if (is_here(stage - 1) && has_input)
    this->kept(stage - 1, micro_batch).gradient = std::exchange(kept.of_input, {});
}

torch::Tensor PipelineStages::Work::concatenated(const std::vector<torch::Tensor>& parts) {
  return parts.empty() ? torch::Tensor() : parts.size() == 1 ? parts.front() : torch::cat(parts);
}

}  // namespace lockstep
