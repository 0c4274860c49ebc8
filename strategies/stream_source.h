#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/strategies/batch_source.h"
#include "lockstep/strategies/device_error.h"
#include "lockstep/strategies/distributed_dataset.h"

namespace lockstep {

struct StreamOptions {
  int prefetch = 2;
};

namespace detail {

template <typename Pipeline>
concept CallablePipeline = requires(Pipeline& pipeline) {
  pipeline().has_value();
};

/// Makes a callable of what has begin() and end() behind a pointer.
template <typename Pipeline>
auto make_callable(Pipeline pipeline) {
  if constexpr (CallablePipeline<Pipeline>) {
    return pipeline;
  } else {
    using Batch = decltype(collate(*pipeline->begin()));
    auto shared = std::make_shared<Pipeline>(std::move(pipeline));
    auto at = std::make_shared<std::optional<decltype((*shared)->begin())>>();
    return [shared, at]() -> std::optional<Batch> {
      if (!*at) {
        at->emplace((*shared)->begin());
      } else if (**at != (*shared)->end()) {
        ++**at;
      }
      if (**at == (*shared)->end()) return std::nullopt;
      return collate(***at);
    };
  }
}

/// One pipeline's batches, one for each local replica a step.
template <typename Batch>
class StreamSource : public BatchSource<Batch> {
 public:
  using Pipeline = std::function<std::optional<Batch>()>;

  StreamSource(std::function<Pipeline(const InputContext&)> make, InputPlacement placement)
      : make_(std::move(make)), placement_(std::move(placement)) {}

  const InputPlacement& placement() const override { return placement_; }
  std::optional<int64_t> num_steps() const override { return std::nullopt; }
  bool is_sequential() const override { return true; }

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    // Loops over the same stream that are under way at once draw in turns, each from its own place.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pipeline_ || epoch != epoch_ || step < step_) {
      pipeline_ =
          make_(InputContext{placement_.num_workers, placement_.worker, placement_.num_replicas, epoch});
      has_ended_ = false;
      epoch_ = epoch;
      step_ = 0;
    }
    // A restored position lies ahead in the stream: what comes before it is drawn and dropped.
    for (; step_ < step; ++step_) {
      for (size_t i = 0; i < placement_.devices->size(); ++i) {
        const auto dropped = draw();
        if (!dropped) return std::nullopt;
        if (placement_.sum) nothing_ = BatchTraits<Batch>::none_of(*dropped);
      }
    }
    ++step_;
    std::vector<Batch> drawn;
    for (size_t i = 0; i < placement_.devices->size(); ++i) {
      auto batch = draw();
      if (!batch && drawn.empty()) return std::nullopt;
      drawn.push_back(batch ? std::move(*batch) : BatchTraits<Batch>::none_of(drawn.front()));
    }
    if (placement_.sum) nothing_ = BatchTraits<Batch>::none_of(drawn.front());
    return place(std::move(drawn));
  }

  PerReplica<Batch> load_nothing() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!nothing_) {
      throw InvalidArgument(
          "[distribute_datasets_from_function] worker " + std::to_string(placement_.worker) +
          "'s pipeline has not a single batch, and others' have: there is nothing to make empty shards of");
    }
    return place(std::vector<Batch>(placement_.devices->size(), *nothing_));
  }

 private:
  /// A shard to each replica's device.
  PerReplica<Batch> place(std::vector<Batch> drawn) {
    std::vector<Batch> shards;
    BatchSizes sizes;
    for (const auto& shard : drawn) {
      sizes.local.push_back(BatchTraits<Batch>::size(shard));
      sizes.global += sizes.local.back();
      const LogicalDevice& device = (*placement_.devices)[shards.size()];
      on_replica("distribute_datasets_from_function",
                 placement_.first_replica + static_cast<int>(shards.size()), device,
                 [&] { shards.push_back(BatchTraits<Batch>::to(shard, device.torch_device())); });
    }
    PerReplica<Batch> batch(std::move(shards), placement_.devices);
    batch.set_batch_sizes(std::move(sizes));
    return batch;
  }

  /// The pipeline's next batch. One that has ended is not asked again: not every callable stays at its end.
  /// One that threw stands somewhere within a step, and is given up.
  std::optional<Batch> draw() {
    if (has_ended_) return std::nullopt;
    try {
      auto batch = pipeline_();
      has_ended_ = !batch;
      return batch;
    } catch (...) {
      pipeline_ = nullptr;
      throw;
    }
  }

  std::function<Pipeline(const InputContext&)> make_;
  InputPlacement placement_;
  std::mutex mutex_;
  Pipeline pipeline_;
  std::optional<Batch> nothing_;  // an empty batch, once there was one to make it of
  bool has_ended_ = false;
  int64_t epoch_ = 0;
  int64_t step_ = 0;
};

}  // namespace detail

/// What Strategy::distribute_datasets_from_function does.
template <typename Fn>
auto make_distributed_stream(const Fn& make, const StreamOptions& options, InputPlacement placement) {
  using Callable = decltype(detail::make_callable(make(std::declval<const InputContext&>())));
  using Batch = typename std::invoke_result_t<Callable&>::value_type;
  check_prefetch(options.prefetch, 1);
  auto source = std::make_shared<detail::StreamSource<Batch>>(
      [make](const InputContext& context) {
        return std::function<std::optional<Batch>()>(detail::make_callable(make(context)));
      },
      std::move(placement));
  return DistributedDataset<Batch>(std::move(source), options.prefetch, 1);
}

}  // namespace lockstep
