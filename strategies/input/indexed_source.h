#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/strategies/input/batch_source.h"
#include "lockstep/strategies/input/chunked_order.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/strategies/input/epoch_order.h"
#include "lockstep/strategies/input/input_times.h"

namespace lockstep {

struct DistributeOptions {
  /// Examples of one step over all replicas. Required, except in fit(), which has a default.
  std::optional<int64_t> global_batch_size{};
  /// Seed of the order of the examples. Each epoch has its own permutation, the same for every number of
  /// replicas. None: the dataset's order.
  std::optional<uint64_t> shuffle_seed;
  /// The most places that the shuffle moves an example, so that the examples of a step are near each other
  /// in their files. 0: any number. With 0, the order takes 8 bytes of memory for each example; an order of
  /// more than 2^27 examples takes none. Datasets in chunks are shuffled as ChunkedOrder says.
  int64_t shuffle_window = 0;
  /// Whether to leave out a last batch that is smaller than the others.
  bool drop_remainder = false;
  /// Number of batches made ahead in the background. 0: each is made when it is asked for.
  int prefetch = 2;
  /// Number of threads that make batches. With more than one, the dataset's get_batch() must be thread-safe.
  int num_workers = 1;
  /// Receives the times of making batches. None: they are not measured.
  std::shared_ptr<InputTimes> times{};
};

/// An indexed dataset whose examples are stored in chunks that are read as a whole, such as the row groups of
/// Parquet files. `chunk_sizes()` returns the number of examples of each, in the order of their indices, and
/// `max_open_chunks()` how many of them may be in use at the same time. Shuffled epochs are a ChunkedOrder
/// with as many lanes. If the dataset has `prefetch_chunks(chunks, order_within)`, that is called before each
/// get_batch() with the chunks that the batch is from and those that are needed next; it must be thread-safe
/// and not block. `order_within(chunk)` returns the order in which the chunk's examples will be asked for, as
/// ChunkedOrder::order_within() does, and may be called at any time by any thread.
template <typename D>
concept ChunkedDataset = IndexedDataset<D> && requires(const D& dataset) {
  { dataset.chunk_sizes() } -> std::convertible_to<std::vector<size_t>>;
  { dataset.max_open_chunks() } -> std::convertible_to<size_t>;
};

namespace detail {

/// Cuts the batches of an indexed dataset. `get_batch` is called once for each replica's shard.
template <IndexedDataset D>
class IndexedSource : public BatchSource<BatchOf<D>> {
 public:
  using Batch = BatchOf<D>;

  IndexedSource(D dataset, const DistributeOptions& options, InputPlacement placement)
      : dataset_(std::move(dataset)),
        options_(options),
        batch_size_(options.global_batch_size.value()),
        placement_(std::move(placement)) {
    const std::optional<size_t> size = dataset_.size();
    if (!size) throw InvalidArgument("[distribute_dataset] expected a dataset that knows its size");
    size_ = static_cast<int64_t>(*size);
    if constexpr (ChunkedDataset<D>) {
      const std::vector<size_t> chunks = dataset_.chunk_sizes();
      const size_t total = std::accumulate(chunks.begin(), chunks.end(), size_t{0});
      if (total != *size)
        throw InvalidArgument(
            "[distribute_dataset] expected the dataset's chunk_sizes() to add up to its size, " +
            std::to_string(*size) + ", but got " + std::to_string(total));
      lanes_ = std::clamp<size_t>(dataset_.max_open_chunks(), 1, std::max<size_t>(chunks.size(), 1));
    }
  }

  const InputPlacement& placement() const override { return placement_; }
  InputTimes* times() const override { return options_.times.get(); }
  std::string describe() const override {
    return "batches of " + std::to_string(batch_size_) + " out of " + std::to_string(size_) + " examples" +
           (options_.drop_remainder ? ", the last one dropped if short" : "") +
           (options_.shuffle_seed ? ", shuffled with seed " + std::to_string(*options_.shuffle_seed)
                                  : ", not shuffled") +
           (options_.shuffle_seed && options_.shuffle_window > 0
                ? " in a window of " + std::to_string(options_.shuffle_window)
                : "") +
           (options_.shuffle_seed && ChunkedDataset<D> ? " in " + std::to_string(lanes_) + " lanes" : "");
  }
  /// Returns the dataset's own description of its examples; empty if it has no identity().
  std::string identity() const {
    if constexpr (requires {
                    { dataset_.identity() } -> std::convertible_to<std::string>;
                  }) {
      return dataset_.identity();
    } else {
      return {};
    }
  }
  std::optional<int64_t> num_steps() const override {
    return size_ / batch_size_ + (options_.drop_remainder || size_ % batch_size_ == 0 ? 0 : 1);
  }

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    std::vector<int> replicas;
    for (size_t local = 0; local < placement_.devices->size(); ++local)
      replicas.push_back(placement_.replica_of(local));
    return load_shards_of(epoch, step, replicas, [this](int64_t n) { return placement_.cut(n); });
  }

  /// Loads the shards of replicas `first_replica` and following, of `num_replicas` with equal pieces, onto
  /// the local replicas' devices.
  std::optional<PerReplica<Batch>> load_shards(int64_t epoch, int64_t step, int first_replica,
                                               int num_replicas) {
    std::vector<int> replicas(placement_.devices->size());
    std::iota(replicas.begin(), replicas.end(), first_replica);
    return load_shards_of(epoch, step, replicas, [&](int64_t n) { return cut_equally(n, num_replicas); });
  }

 private:
  // Only chunks' orders know which chunks come next.
  using OneOrder = std::conditional_t<ChunkedDataset<D>, ChunkedOrder, EpochOrder>;
  using Order = std::shared_ptr<const OneOrder>;

  /// Loads the shard of a replica for each local rank. `cut(n)` returns the bounds of all replicas' shards.
  template <typename Cut>
  std::optional<PerReplica<Batch>> load_shards_of(int64_t epoch, int64_t step,
                                                  const std::vector<int>& replicas, const Cut& cut) {
    if (step >= *num_steps()) return std::nullopt;
    const int64_t begin = step * batch_size_;
    const int64_t count = std::min(batch_size_, size_ - begin);
    const auto order = InputTimes::timed(times(), InputPart::kOrder, [&] { return order_of(epoch); });
    // A dataset of one batch has no order.
    BatchSizes sizes{count, {}, !options_.shuffle_seed && epoch > 0 && *num_steps() > 1};
    std::vector<Batch> shards;
    std::optional<Batch> prototype;
    const std::vector<int64_t> bounds = cut(count);
    for (const int replica : replicas) {
      const int64_t from = bounds[static_cast<size_t>(replica)];
      const int64_t to = bounds[static_cast<size_t>(replica) + 1];
      sizes.local.push_back(to - from);
      if (from == to) {
        // Not every dataset can return an empty batch, so it is cut from another batch.
        if (!prototype)
          prototype = shards.empty() ? get(order.get(), epoch, {begin, begin + 1}) : shards.front();
        shards.push_back(BatchTraits<Batch>::none_of(*prototype));
      } else {
        will_need(order, {begin + from, begin + to});
        shards.push_back(get(order.get(), epoch, {begin + from, begin + to}));
      }
    }
    for (size_t local = 0; local < shards.size(); ++local) {
      auto& shard = shards[local];
      const LogicalDevice& device = (*placement_.devices)[local];
      with_device_errors("distribute_dataset", replicas[local], device, [&] {
        shard = InputTimes::timed(times(), InputPart::kCopy, [&] { return moved(std::move(shard), device); });
      });
    }
    PerReplica<Batch> batch(std::move(shards), placement_.devices);
    batch.set_batch_sizes(std::move(sizes));
    return batch;
  }

  /// Returns a shard on its replica's device.
  Batch moved(Batch shard, const LogicalDevice& device) {
    shard = BatchTraits<Batch>::to(shard, device.torch_device());
    if constexpr (requires {
                    { dataset_.device_transform(std::move(shard)) } -> std::convertible_to<Batch>;
                  }) {
      return dataset_.device_transform(std::move(shard));
    } else {
      return shard;
    }
  }

  struct Places {
    int64_t begin = 0;
    int64_t end = 0;
    ExampleOrder::Range range() const {
      return {.begin = static_cast<size_t>(begin), .end = static_cast<size_t>(end)};
    }
  };

  /// Returns null for the dataset's own order.
  Order order_of(int64_t epoch) {
    if (!options_.shuffle_seed && !ChunkedDataset<D>) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!order_ || order_epoch_ != epoch) {
      order_ = make_order(epoch);
      order_epoch_ = epoch;
    }
    return order_;
  }

  Order make_order(int64_t epoch) const {
    const auto window = static_cast<size_t>(options_.shuffle_window);
    if constexpr (ChunkedDataset<D>) {
      return std::make_shared<const ChunkedOrder>(
          dataset_.chunk_sizes(), ChunkedOrderOptions{.seed = options_.shuffle_seed,
                                                      .epoch = epoch,
                                                      .window = window,
                                                      .lanes = lanes_,
                                                      .batch_size = static_cast<size_t>(batch_size_)});
    } else {
      return std::make_shared<const EpochOrder>(
          static_cast<size_t>(size_),
          EpochOrderOptions{.seed = *options_.shuffle_seed, .epoch = epoch, .window = window});
    }
  }

  using OrderWithin = std::function<ChunkedOrder::Permutation(size_t chunk)>;

  void will_need(const Order& order, const Places& places) {
    if constexpr (ChunkedDataset<D> && requires(std::vector<size_t> chunks, OrderWithin order_within) {
                    dataset_.prefetch_chunks(chunks, order_within);
                  }) {
      if (options_.prefetch == 0) return;
      dataset_.prefetch_chunks(order->needed_chunks(places.range()),
                               OrderWithin([order](size_t chunk) { return order->order_within(chunk); }));
    } else {
      static_assert(
          !requires(std::vector<size_t> chunks) { dataset_.prefetch_chunks(chunks); },
          "prefetch_chunks() takes the chunks and their order, as ChunkedDataset says");
    }
  }

  static std::vector<size_t> indices_of(const ExampleOrder* order, const Places& places) {
    if (order != nullptr) return order->indices(places.range());
    std::vector<size_t> indices(static_cast<size_t>(places.end - places.begin));
    std::iota(indices.begin(), indices.end(), static_cast<size_t>(places.begin));
    return indices;
  }

  Batch get(const ExampleOrder* order, int64_t epoch, const Places& places) {
    const std::vector<size_t> indices =
        InputTimes::timed(times(), InputPart::kOrder, [&] { return indices_of(order, places); });
    if (times() != nullptr) times()->add_examples(places.end - places.begin);
    // Several loops may run at the same time, each with its own thread.
    std::unique_lock<std::mutex> one_at_a_time(in_dataset_, std::defer_lock);
    if (options_.num_workers == 1) one_at_a_time.lock();
    Batch batch = InputTimes::timed(times(), InputPart::kDataset, [&] { return get_batch(indices, epoch); });
    // The size is asked for only to refuse tensors without dimensions here.
    with_place_of_batch([&] { return BatchTraits<Batch>::size(batch); },
                        [&] {
                          return "[distribute_dataset] the dataset's get_batch() of " +
                                 std::to_string(indices.size()) + " indices";
                        });
    return batch;
  }

  Batch get_batch(const std::vector<size_t>& indices, int64_t epoch) {
    if constexpr (requires {
                    { dataset_.get_batch(indices, epoch) } -> std::convertible_to<Batch>;
                  }) {
      return dataset_.get_batch(indices, epoch);
    } else {
      return collate(dataset_.get_batch(indices));
    }
  }

  D dataset_;
  DistributeOptions options_;
  int64_t batch_size_;
  size_t lanes_ = 1;  // see ChunkedOrder
  InputPlacement placement_;
  int64_t size_ = 0;
  std::mutex in_dataset_;
  std::mutex mutex_;  // guards the two members below
  Order order_;
  int64_t order_epoch_ = 0;
};

}  // namespace detail

/// Makes the source of an indexed dataset. Throws as Strategy::distribute_dataset().
template <IndexedDataset D>
auto make_indexed_source(D dataset, const DistributeOptions& options, InputPlacement placement) {
  if (options.global_batch_size.value_or(0) < 1) {
    throw InvalidArgument(
        "[distribute_dataset] expected a global batch size of 1 or more, but got " +
        (options.global_batch_size ? std::to_string(*options.global_batch_size) : std::string("none")));
  }
  check_prefetch(options.prefetch, options.num_workers);
  if (options.shuffle_window < 0)
    throw InvalidArgument("[distribute_dataset] expected a shuffle window of 0 or more, but got " +
                          std::to_string(options.shuffle_window));
  return std::make_shared<detail::IndexedSource<D>>(std::move(dataset), options, std::move(placement));
}

/// Implements Strategy::distribute_dataset().
template <IndexedDataset D>
auto make_distributed_dataset(D dataset, const DistributeOptions& options, InputPlacement placement) {
  const auto check_same = placement.check_same;
  auto source = make_indexed_source(std::move(dataset), options, std::move(placement));
  if (check_same) check_same("dataset", {source->describe(), source->identity()});
  return DistributedDataset<BatchOf<D>>(std::move(source), options.prefetch, options.num_workers);
}

}  // namespace lockstep
