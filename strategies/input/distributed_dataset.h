#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/input/batch_source.h"
#include "lockstep/strategies/input/input_streams.h"
#include "lockstep/strategies/input/prefetcher.h"

namespace lockstep {

/// A place in a distributed dataset: the next batch to hand out.
struct DatasetPosition {
  int64_t epoch = 0;
  int64_t step = 0;
  friend bool operator==(const DatasetPosition&, const DatasetPosition&) = default;
};

/// Throws InvalidArgument for a negative prefetch or less than one worker.
inline void check_prefetch(int prefetch, int num_workers) {
  if (prefetch < 0)
    throw InvalidArgument("[dataset] expected a prefetch of 0 or more batches, but got " +
                          std::to_string(prefetch));
  if (num_workers < 1)
    throw InvalidArgument("[dataset] expected 1 or more workers, but got " + std::to_string(num_workers));
}

/// Global batches, each cut into one shard a replica: `for (const auto& batch : batches) strategy.run(step,
/// ..., batch);`
///
/// Each loop over it is one epoch, with an order of its own where the dataset is shuffled. Leaving a loop
/// early ends its epoch: the next loop begins the next epoch. A batch of n examples is cut by ceil(n /
/// replicas), so the last one may be uneven and leave replicas with empty shards, tensors of shape [0, ...].
///
/// Batches are made ahead by background threads that live as long as the loop's iterator. For GPUs that is
/// done on a stream of its own, for which the loop's current stream waits as it takes the batch, not the
/// host. Not thread-safe; it must outlive its iterators. What making a batch throws ends the job of several
/// workers: the others are told of it.
template <typename Batch>
class DistributedDataset {
 public:
  class Iterator;

  DistributedDataset(std::shared_ptr<BatchSource<Batch>> source, int prefetch, int num_workers)
      : source_(std::move(source)),
        prefetch_(prefetch),
        num_workers_(source_->is_sequential() ? 1 : num_workers) {}

  /// Batches an epoch. Throws InvalidArgument for an endless dataset and for a stream, whose end shows only
  /// when it is there.
  int64_t size() const {
    const auto steps = source_->num_steps();
    if (!steps || *steps == kEndless)
      throw InvalidArgument("[dataset] expected a dataset of known length, but this one has none");
    return *steps;
  }

  /// Nothing where size() would throw.
  std::optional<int64_t> known_size() const { return is_endless() ? std::nullopt : source_->num_steps(); }
  /// Such as "batches of 32 out of 60000 examples, shuffled with seed 1"; empty for a stream.
  std::string describe() const { return source_->describe(); }
  /// Whether repeat() has left it without an end.
  bool is_endless() const { return source_->num_steps() == kEndless; }

  /// `count` epochs as one, each in its own order; without a count, no end: take batches by the iterator.
  /// Throws InvalidArgument for a negative count, for a stream and for an endless dataset.
  DistributedDataset repeat(std::optional<int64_t> count = std::nullopt) const {
    if (count && *count < 0)
      throw InvalidArgument("[repeat] expected 0 or more repetitions, but got " + std::to_string(*count));
    const auto steps = source_->num_steps();
    if (!steps || *steps == kEndless)
      throw InvalidArgument("[repeat] expected a dataset of known length, but this one has none");
    return {std::make_shared<RepeatedSource<Batch>>(source_, count.value_or(kEndless)), prefetch_,
            num_workers_};
  }

  /// The first `count` batches of every epoch, or all where it has fewer. Throws InvalidArgument for a
  /// negative count.
  DistributedDataset take(int64_t count) const {
    if (count < 0)
      throw InvalidArgument("[take] expected 0 or more batches, but got " + std::to_string(count));
    return {std::make_shared<TakenSource<Batch>>(source_, count), prefetch_, num_workers_};
  }

  /// `function(shard)` for every shard, which lies on its replica's device by then. Called on the background
  /// threads, several at once with several workers (in the loop's thread without prefetch). What it throws
  /// comes out of the loop at that batch. The number of examples must stay; this is not checked.
  template <typename Fn>
  auto map(Fn function) const {
    using Result = std::invoke_result_t<Fn&, Batch>;
    return DistributedDataset<Result>(
        std::make_shared<MappedSource<Batch, Result>>(source_, std::move(function)), prefetch_, num_workers_);
  }

  /// Where the next batch is. Inside a loop's body the present batch counts as handed out: training that is
  /// saved after its step goes on with the next one.
  DatasetPosition position() const { return position_; }
  /// The next loop begins at `position`. Throws InvalidArgument for negative values. Iterators from before go
  /// on where they were, but no longer move the position.
  void restore(DatasetPosition position) {
    if (position.epoch < 0 || position.step < 0)
      throw InvalidArgument("[dataset] expected a position of 0 or more");
    position_ = position;
    restored_ = true;
    ++generation_;
  }

  /// Begins an epoch: the one restored, else the next one. Blocks until its first batch is made and throws
  /// what making it threw; the next loop then begins at the same place again.
  Iterator begin() {
    if (!restored_ && position_.step > 0) position_ = {position_.epoch + 1, 0};
    ++generation_;
    Iterator iterator(*this);
    restored_ = false;
    return iterator;
  }
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  /// The same for all loops: LibTorch's pool has few streams.
  std::shared_ptr<const InputStreams> input_streams() {
    // In the loop's own thread there is nothing to overlap with.
    const bool ahead = HasTensors<Batch> && prefetch_ > 0;
    const auto kind = ahead ? InputStreams::Kind::kOwn : InputStreams::Kind::kCurrent;
    if (!streams_) streams_ = std::make_shared<const InputStreams>(*source_->placement().devices, kind);
    return streams_;
  }

  std::shared_ptr<BatchSource<Batch>> source_;
  std::shared_ptr<const InputStreams> streams_;  // once the first loop begins
  int prefetch_;
  int num_workers_;
  DatasetPosition position_;
  bool restored_ = false;
  uint64_t generation_ = 0;  // of the newest iterator, the one that moves the position
};

/// Goes through one epoch once.
template <typename Batch>
class DistributedDataset<Batch>::Iterator {
 public:
  using value_type = PerReplica<Batch>;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit Iterator(DistributedDataset& dataset)
      : dataset_(&dataset), generation_(dataset.generation_), position_(dataset.position_) {
    streams_ = dataset.input_streams();
    streams_->follow_current();
    auto make = [source = dataset.source_, epoch = position_.epoch, streams = streams_](int64_t step) {
      auto ready = std::make_unique<StreamFence>();
      auto batch = streams->run(*ready, [&] { return source->load(epoch, step); });
      return batch ? std::optional<Made>({std::move(*batch), std::move(ready)}) : std::nullopt;
    };
    batches_ = std::make_unique<Prefetcher<Made>>(std::move(make), position_.step, dataset.prefetch_,
                                                  dataset.num_workers_);
    advance();
  }

  PerReplica<Batch>& operator*() const { return *current_; }
  PerReplica<Batch>* operator->() const { return &*current_; }
  /// Goes to the next batch, in the place of the present one. Blocks until it is made; throws what making it
  /// threw, and again at every further call.
  Iterator& operator++() {
    advance();
    return *this;
  }
  void operator++(int) { advance(); }
  bool operator==(std::default_sentinel_t) const { return !current_.has_value(); }

 private:
  struct Made {
    PerReplica<Batch> batch;
    std::unique_ptr<StreamFence> ready;
  };

  void advance() {
    auto made = told_to_others([this] { return batches_->next(); });
    if (!dataset_->source_->num_steps() && dataset_->source_->placement().gather) agree(made);
    current_.reset();
    if (made) {
      hand_over(*made);
      current_ = std::move(made->batch);
    }
    position_ = current_ ? DatasetPosition{position_.epoch, position_.step + 1}
                         : DatasetPosition{position_.epoch + 1, 0};
    if (dataset_->generation_ == generation_) dataset_->position_ = position_;
  }

  /// Streams of several workers may end at different steps, unless all draw the same: those at their end go
  /// on with empty shards, until all have come to theirs. Called by all workers together.
  void agree(std::optional<Made>& made) {
    auto& source = *dataset_->source_;
    const auto here = made ? std::optional(made->batch.batch_sizes()->global) : std::nullopt;
    const auto examples = examples_of_step(source.placement(), here, source.has_whole_batches());
    if (!examples) return;
    if (!made) {
      auto ready = std::make_unique<StreamFence>();
      auto nothing =
          told_to_others([&] { return streams_->run(*ready, [&] { return source.load_nothing(); }); });
      made.emplace(Made{std::move(nothing), std::move(ready)});
    }
    BatchSizes sizes = *made->batch.batch_sizes();
    sizes.global = *examples;
    made->batch.set_batch_sizes(std::move(sizes));
  }

  /// What `make()` gives. Other workers would wait for this one after an error of it.
  template <typename Make>
  auto told_to_others(const Make& make) {
    try {
      return make();
    } catch (...) {
      const auto& report = dataset_->source_->placement().report;
      if (report) report(std::current_exception());
      throw;
    }
  }

  void hand_over(Made& made) {
    streams_->hand_over(*made.ready);
    if constexpr (HasTensors<Batch>) {
      for (const auto& shard : made.batch.local_values()) {
        BatchTraits<Batch>::for_each_tensor(
            shard, [this](const torch::Tensor& tensor) { streams_->keep_for_current_stream(tensor); });
      }
    }
  }

  DistributedDataset* dataset_;
  uint64_t generation_;
  DatasetPosition position_;
  std::shared_ptr<const InputStreams> streams_;
  std::unique_ptr<Prefetcher<Made>> batches_;
  mutable std::optional<PerReplica<Batch>> current_;
};

}  // namespace lockstep
