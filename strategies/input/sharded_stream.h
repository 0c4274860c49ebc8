#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/strategies/input/pipeline_source.h"
#include "lockstep/strategies/input/shuffled_stream.h"
#include "lockstep/strategies/input/stream_sharding.h"

namespace lockstep {

namespace detail {

template <typename T>
struct WithoutOptional {
  using Type = T;
};
template <typename T>
struct WithoutOptional<std::optional<T>> {
  using Type = T;
};

/// The type that `stream.get_batch(n)` returns, without std::optional.
template <typename Stream>
using GivenBatch = typename WithoutOptional<
    std::remove_cvref_t<decltype(std::declval<Stream&>().get_batch(std::declval<size_t>()))>>::Type;
template <typename Stream>
using CollatedBatch = decltype(collate(std::declval<GivenBatch<Stream>>()));

template <typename Stream>
concept HasBatches = requires(const CollatedBatch<Stream>& batch) {
  BatchTraits<CollatedBatch<Stream>>::size(batch);
  BatchTraits<CollatedBatch<Stream>>::slice(batch, 0, 1);
};

/// Returns the stream, which may be behind a pointer.
template <typename Made>
auto& stream_of(Made& made) {
  if constexpr (HasBatches<Made>) {
    return made;
  } else {
    return *made;
  }
}

}  // namespace detail

/// A type, or a pointer to one, whose `get_batch(n)` returns the next n examples: fewer only if it has no
/// more at hand, and std::nullopt, no examples or a batch of 0 at the end. LibTorch's stateful and stream
/// datasets are such types, mapped or not. If it has reset(), that is called once before.
template <typename T>
concept StreamedDataset = detail::HasBatches<T> || requires(T& made) {
  requires detail::HasBatches<std::remove_reference_t<decltype(*made)>>;
};

namespace detail {

template <typename Stream>
concept HasNoState = requires {
  requires !Stream::is_stateful;
};
/// LibTorch's MapDataset has a reset() that does not compile if the mapped dataset has no state.
template <typename Stream>
concept HasReset = !HasNoState<Stream> && requires(Stream & stream) {
  stream.reset();
};

/// Returns the stream as a function that returns its next `size` examples.
template <StreamedDataset Made>
auto batches_of_stream(Made made, int64_t size) {
  using Stream = std::remove_reference_t<decltype(stream_of(made))>;
  using Batch = CollatedBatch<Stream>;
  auto shared = std::make_shared<Made>(std::move(made));
  if constexpr (HasReset<Stream>) stream_of(*shared).reset();
  return [shared, size]() -> std::optional<Batch> {
    std::optional<GivenBatch<Stream>> given = stream_of(*shared).get_batch(static_cast<size_t>(size));
    if (!given) return std::nullopt;
    if constexpr (!std::is_same_v<GivenBatch<Stream>, Batch>) {
      if (given->empty()) return std::nullopt;  // nothing to stack
    }
    auto batch = collate(std::move(*given));
    if (const int64_t count = BatchTraits<Batch>::size(batch); count > size) {
      throw InvalidArgument("[distribute_dataset] expected up to " + std::to_string(size) +
                            " examples of the stream's get_batch(), but got " + std::to_string(count));
    }
    return batch;
  };
}

/// Cuts the batches of one pipeline over the replicas.
template <typename Batch>
class ShardedStreamSource : public PipelineSource<Batch> {
 public:
  ShardedStreamSource(typename PipelineSource<Batch>::MakePipeline make, const StreamSharding& share,
                      InputPlacement placement)
      : PipelineSource<Batch>("distribute_dataset", std::move(make), share.context, std::move(placement)),
        is_whole_(share.is_whole),
        smallest_(share.drop_remainder ? share.context.batch_size : 1) {}

  bool has_whole_batches() const override { return is_whole_; }

 private:
  std::optional<typename PipelineSource<Batch>::Step> draw_step() override {
    const auto batch = this->draw();
    if (!batch) return std::nullopt;
    const int64_t count = BatchTraits<Batch>::size(*batch);
    if (count < smallest_) {
      this->end_epoch();
      return std::nullopt;
    }
    const auto& placement = this->placement();
    typename PipelineSource<Batch>::Step step{{}, count};
    const std::vector<int64_t> bounds = is_whole_ ? placement.cut(count) : placement.cut_among_local(count);
    const int first = is_whole_ ? 0 : placement.first_local_replica();
    for (size_t local = 0; local < placement.devices->size(); ++local) {
      const auto piece = static_cast<size_t>(placement.replica_of(local) - first);
      step.shards.push_back(BatchTraits<Batch>::slice(*batch, bounds[piece], bounds[piece + 1]));
    }
    return step;
  }

  bool is_whole_;
  int64_t smallest_;  // least number of examples in a step
};

}  // namespace detail

/// Implements Strategy::distribute_dataset() for streams.
template <typename Fn>
auto make_sharded_stream(const Fn& make, const DistributeStreamOptions& options, InputPlacement placement) {
  using Made = std::decay_t<std::invoke_result_t<const Fn&, const InputContext&>>;
  static_assert(StreamedDataset<Made>,
                "distribute_dataset takes a function that makes a stream, or a pointer to one: something "
                "whose get_batch(n) gives a batch of up to n examples, of a type that BatchTraits can slice");
  using Batches = decltype(detail::batches_of_stream(std::declval<Made>(), 1));
  using Batch = typename std::invoke_result_t<Batches&>::value_type;
  check_prefetch(options.prefetch, 1);
  const StreamSharding share = stream_sharding_of(options, placement);
  if (options.shuffle_seed && !Selectable<Batch>)
    throw InvalidArgument(
        "[distribute_dataset] expected batches whose BatchTraits have cat() and select(), to shuffle them");
  auto source = std::make_shared<detail::ShardedStreamSource<Batch>>(
      [=](const InputContext& context) {
        using Draw = std::function<std::optional<Batch>()>;
        Draw draw = detail::batches_of_stream(make(context), context.batch_size);
        if constexpr (Selectable<Batch>) {
          if (options.shuffle_seed) {
            const EpochOrderOptions order{.seed = *options.shuffle_seed,
                                          .epoch = context.epoch,
                                          .window = static_cast<size_t>(options.shuffle_window)};
            return Draw(detail::ShuffledStream<Batch>(std::move(draw), order, context.batch_size));
          }
        }
        return draw;
      },
      share, std::move(placement));
  return DistributedDataset<Batch>(std::move(source), options.prefetch, 1);
}

}  // namespace lockstep
