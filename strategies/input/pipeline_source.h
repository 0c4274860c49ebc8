#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/strategies/input/batch_source.h"
#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep::detail {

/// Base of all streams: draws steps one after another from a pipeline that is made once per epoch.
template <typename Batch>
class PipelineSource : public BatchSource<Batch> {
 public:
  using Pipeline = std::function<std::optional<Batch>()>;
  using MakePipeline = std::function<Pipeline(const InputContext&)>;

  /// Calls `make` with `context` and the epoch's number. Errors begin with [who].
  PipelineSource(const char* who, MakePipeline make, InputContext context, InputPlacement placement)
      : who_(who), make_(std::move(make)), context_(std::move(context)), placement_(std::move(placement)) {}

  const InputPlacement& placement() const override { return placement_; }
  std::optional<int64_t> num_steps() const override { return std::nullopt; }
  bool is_sequential() const override { return true; }

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    // Loops over the same stream may run at the same time: they take turns, and each draws from its own
    // place.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pipeline_ || epoch != context_.epoch || step < step_) {
      pipeline_ = nullptr;  // frees its resources for the next one
      context_.epoch = epoch;
      step_ = 0;
      has_ended_ = false;
      pipeline_ = make_(context_);
    }
    // A restored position may be ahead in the stream: the batches before it are drawn and dropped.
    while (true) {
      auto drawn =
          detail::with_place_of_batch([this] { return draw_step(); }, [this] { return place_of_step(); });
      if (!drawn) return std::nullopt;
      if (step_++ == step) return place(*drawn);
    }
  }

  PerReplica<Batch> load_nothing() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!nothing_) {
      throw InvalidArgument("[" + std::string(who_) + "] worker " + std::to_string(placement_.worker) +
                            "'s pipeline has not a single batch, and others' have: there is nothing to make "
                            "empty shards of");
    }
    return place({std::vector<Batch>(placement_.devices->size(), *nothing_), 0});
  }

 protected:
  struct Step {
    std::vector<Batch> shards;  ///< One for each local replica.
    int64_t num_examples = 0;   ///< See BatchSizes::global.
  };

  /// Returns the next step, made with draw(); nothing at the end.
  virtual std::optional<Step> draw_step() = 0;

  /// Returns the pipeline's next batch. A pipeline that has ended is not called again, since not every
  /// callable stays at its end. A pipeline that threw may be in the middle of a step, and is dropped.
  std::optional<Batch> draw() {
    if (has_ended_) return std::nullopt;
    try {
      auto batch = pipeline_();
      has_ended_ = !batch;
      if (batch && placement_.gather) nothing_ = BatchTraits<Batch>::none_of(*batch);
      return batch;
    } catch (...) {
      pipeline_ = nullptr;
      throw;
    }
  }

  /// Ends the epoch as if the pipeline had ended.
  void end_epoch() { has_ended_ = true; }

 private:
  std::string place_of_step() const {
    return "[" + std::string(who_) + "] step " + std::to_string(step_) + " of epoch " +
           std::to_string(context_.epoch) + " of the pipeline";
  }

  /// Copies each shard to its replica's device.
  PerReplica<Batch> place(const Step& step) {
    std::vector<Batch> shards;
    BatchSizes sizes{step.num_examples, {}};
    for (const auto& shard : step.shards) {
      sizes.local.push_back(BatchTraits<Batch>::size(shard));
      const auto local = static_cast<int>(shards.size());
      const LogicalDevice& device = (*placement_.devices)[shards.size()];
      with_device_errors(who_, placement_.first_replica + local, device,
                         [&] { shards.push_back(BatchTraits<Batch>::to(shard, device.torch_device())); });
    }
    PerReplica<Batch> batch(std::move(shards), placement_.devices);
    batch.set_batch_sizes(std::move(sizes));
    return batch;
  }

  const char* who_;
  MakePipeline make_;
  InputContext context_;  // with the pipeline's epoch
  InputPlacement placement_;
  std::mutex mutex_;
  Pipeline pipeline_;  // null until it is made
  // An empty batch for steps of other workers, once there was a batch to make it from.
  std::optional<Batch> nothing_;
  bool has_ended_ = false;
  int64_t step_ = 0;  // the next step of the pipeline
};

}  // namespace lockstep::detail
