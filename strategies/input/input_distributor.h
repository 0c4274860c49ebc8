#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/input/indexed_source.h"
#include "lockstep/strategies/input/input_context.h"
#include "lockstep/strategies/input/sharded_stream.h"
#include "lockstep/strategies/input/stream_source.h"

namespace lockstep {

namespace detail {

template <typename>
inline constexpr bool is_dataset = false;

/// A data loader as LibTorch's, or a pointer to one, which torch::data::make_data_loader() returns.
template <typename T>
concept DataLoader = requires(T& loader) {
  loader.begin();
  loader.end();
  loader.options();
};
template <typename T>
concept DataLoaderOrPointer = DataLoader<T> || requires(T& pointer) {
  requires DataLoader<std::remove_reference_t<decltype(*pointer)>>;
};

}  // namespace detail

/// Distributes datasets and values over a strategy's replicas: the part of every Strategy that depends on
/// nothing but where its replicas are.
///
/// Example:
///
///     auto batches = strategy.distribute_dataset(Mnist("data/mnist", {}), {.global_batch_size = 64});
///     for (const auto& batch : batches) strategy.run(train_step, model, optimizer, batch);
class InputDistributor {
 public:
  virtual ~InputDistributor() = default;

  /// Calls `make(ValueContext)` once for each local rank, with its replica, in the caller's thread.
  template <typename Fn>
  requires std::invocable<const Fn&, const ValueContext&>
  auto distribute_values_from_function(const Fn& make) const {
    const InputPlacement placed = placement();
    std::vector<std::invoke_result_t<const Fn&, const ValueContext&>> values;
    for (size_t local = 0; local < placed.devices->size(); ++local)
      values.push_back(make(ValueContext{placed.replica_of(local), placed.num_replicas}));
    return PerReplica(std::move(values), placed.devices);
  }

  /// Cuts a dataset with size() and get_batch() into global batches, and each batch into the replicas'
  /// shards; see DistributedDataset. A dataset that also has get_batch(indices, epoch) is asked for examples
  /// of that epoch (0, 1, ...), so that it may change them from one to the next. With several workers, a
  /// collective of them that throws ClusterError if their options, their sizes, or the texts that the
  /// datasets' identity() returns differ; a dataset need not have that function (see CollatedDataset). Throws
  /// InvalidArgument if the batch size is below 1, the prefetch is negative, there are no workers, or the
  /// dataset does not know its size.
  template <IndexedDataset D>
  auto distribute_dataset(D dataset, const DistributeOptions& options) const {
    return make_distributed_dataset(std::move(dataset), options, placement());
  }

  /// The same for streams: `make(InputContext)` returns this process's StreamedDataset, by value or by
  /// pointer, once per epoch. Batches of up to `context.batch_size` examples are cut into the replicas'
  /// shards; AutoShardPolicy decides which of them a worker reads. With kData, batches and their order do not
  /// depend on the number of replicas and workers. A worker whose stream ends early takes part with empty
  /// shards. The loop throws ClusterError if batch sizes show that the workers' streams differ.
  ///
  /// A collective of the workers, as is each loop over the stream. One thread at a time calls `make` and its
  /// streams: a background thread, or the loop's own without prefetch. The loop rethrows their errors at the
  /// batch that they belong to. Throws as stream_sharding_of(), and InvalidArgument for a negative prefetch.
  template <typename Fn>
  requires std::invocable<const Fn&, const InputContext&>
  auto distribute_dataset(const Fn& make, const DistributeStreamOptions& options) const {
    return make_sharded_stream(make, options, placement());
  }

  /// Other values do not compile; the error states the rule.
  template <typename D>
  requires(!IndexedDataset<D> && !std::invocable<const D&, const InputContext&>) auto distribute_dataset(
      const D&, const DistributeOptions&) const {
    if constexpr (detail::DataLoaderOrPointer<D>) {
      static_assert(
          detail::is_dataset<D>,
          "distribute_dataset() takes a dataset, not a data loader: pass the dataset, and the batch size as "
          ".global_batch_size; distribute_datasets_from_function() takes a function that makes a loader");
    } else {
      static_assert(detail::is_dataset<D>,
                    "distribute_dataset() takes a dataset with size() and get_batch(indices), such as "
                    "TensorDataset(data, target) for tensors, or a function of const InputContext& that "
                    "makes a stream");
    }
  }

  /// `make(InputContext)` returns this process's pipeline, once per epoch: a callable
  /// `std::optional<Batch>()`, or a pointer to something with begin() and end(), such as a torch::data
  /// loader. Nothing is cut: each replica takes one batch a step, and replicas for which none is left in the
  /// last step have an empty shard. Threads and errors are those of distribute_dataset() for streams.
  template <typename Fn>
  requires std::invocable<const Fn&, const InputContext&>
  auto distribute_datasets_from_function(const Fn& make, const StreamOptions& options = {}) const {
    return make_distributed_stream(make, options, placement());
  }
  /// Other functions do not compile; the error states the rule.
  template <typename Fn>
  requires(!std::invocable<const Fn&, const InputContext&>) auto distribute_datasets_from_function(
      const Fn&, const StreamOptions& = {}) const {
    static_assert(
        detail::is_dataset<Fn>,
        "distribute_datasets_from_function() takes a function of const InputContext& that makes a pipeline");
  }

 protected:
  /// Returns where this process's replicas are among all.
  virtual InputPlacement placement() const = 0;
};

}  // namespace lockstep
