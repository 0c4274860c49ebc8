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
#include <variant>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/input/batch_source.h"
#include "lockstep/strategies/input/handed_batches.h"
#include "lockstep/strategies/input/input_streams.h"
#include "lockstep/strategies/input/prefetcher.h"

namespace lockstep {

/// A position in a distributed dataset: the next batch to return.
struct DatasetPosition {
  int64_t epoch = 0;
  int64_t step = 0;
  friend bool operator==(const DatasetPosition&, const DatasetPosition&) = default;
};

/// Throws InvalidArgument for a negative prefetch and for less than one worker.
inline void check_prefetch(int prefetch, int num_workers) {
  if (prefetch < 0)
    throw InvalidArgument("[dataset] expected a prefetch of 0 or more batches, but got " +
                          std::to_string(prefetch));
  if (num_workers < 1)
    throw InvalidArgument("[dataset] expected 1 or more workers, but got " + std::to_string(num_workers));
}

/// Global batches, each cut into one shard for each replica.
///
/// Each loop over the dataset is one epoch, with its own order if the dataset is shuffled. If you leave a
/// loop early, its epoch ends, and the next loop begins the next epoch. A batch of n examples is cut into
/// pieces of ceil(n / replicas), so the last batch may be uneven and leave replicas with empty shards,
/// tensors of shape [0, ...]. StrategyOptions::replica_weights cuts other pieces.
///
/// Background threads, which live as long as the loop's iterator, make batches ahead. Batches for GPUs are
/// made on a separate stream; when the loop takes a batch, its current stream waits for that one, and the
/// host does not. Not thread-safe. Must outlive its iterators. With several workers, an error in making a
/// batch ends the job: the other workers are told of it.
///
/// Example:
///
///     auto batches = strategy.distribute_dataset(dataset, {.global_batch_size = 64, .shuffle_seed = 1});
///     for (const auto& batch : batches) strategy.run(train_step, model, optimizer, batch);
template <typename Batch>
class DistributedDataset {
 public:
  class Iterator;

  DistributedDataset(std::shared_ptr<BatchSource<Batch>> source, int prefetch, int num_workers)
      : source_(std::move(source)),
        prefetch_(prefetch),
        num_workers_(source_->is_sequential() ? 1 : num_workers) {}

  /// Returns the number of batches in an epoch. Throws InvalidArgument for an endless dataset and for a
  /// stream, whose length is not known before its end.
  int64_t size() const {
    const auto steps = source_->num_steps();
    if (!steps || *steps == kEndless)
      throw InvalidArgument("[dataset] expected a dataset of known length, but this one has none");
    return *steps;
  }

  /// Returns size(), or nothing if that would throw.
  std::optional<int64_t> known_size() const { return is_endless() ? std::nullopt : source_->num_steps(); }
  /// Returns a description such as "batches of 32 out of 60000 examples, shuffled with seed 1". Empty for a
  /// stream.
  std::string describe() const { return source_->describe(); }
  /// Returns whether repeat() made the dataset endless.
  bool is_endless() const { return source_->num_steps() == kEndless; }

  /// Returns a dataset that joins `count` epochs into one, each in its own order. Without a count, it is
  /// endless: take batches by the iterator. Throws InvalidArgument for a negative count, for a stream and for
  /// an endless dataset.
  DistributedDataset repeat(std::optional<int64_t> count = std::nullopt) const {
    if (count && *count < 0)
      throw InvalidArgument("[repeat] expected 0 or more repetitions, but got " + std::to_string(*count));
    const auto steps = source_->num_steps();
    if (!steps || *steps == kEndless)
      throw InvalidArgument("[repeat] expected a dataset of known length, but this one has none");
    return {std::make_shared<RepeatedSource<Batch>>(source_, count.value_or(kEndless)), prefetch_,
            num_workers_};
  }

  /// Returns a dataset of the first `count` batches of every epoch, or of all if there are fewer. Throws
  /// InvalidArgument for a negative count.
  DistributedDataset take(int64_t count) const {
    if (count < 0)
      throw InvalidArgument("[take] expected 0 or more batches, but got " + std::to_string(count));
    return {std::make_shared<TakenSource<Batch>>(source_, count), prefetch_, num_workers_};
  }

  /// Returns a dataset that applies `function(shard)` to every shard, which is on its replica's device
  /// already. Background threads call the function, several at the same time if there are several workers;
  /// without prefetch, the loop's thread does. The loop rethrows its errors at the batch they belong to. The
  /// function must keep the number of examples, which is not checked.
  template <typename Fn>
  auto map(Fn function) const {
    using Result = std::invoke_result_t<Fn&, Batch>;
    return DistributedDataset<Result>(
        std::make_shared<MappedSource<Batch, Result>>(source_, std::move(function)), prefetch_, num_workers_);
  }

  /// Returns the position of the next batch. Inside a loop, the current batch counts as returned: a training
  /// that is saved after the batch's step resumes with the next one.
  DatasetPosition position() const { return position_; }
  /// Makes the next loop begin at `position`. Iterators made before continue where they were, but no longer
  /// move the position. Throws InvalidArgument for negative values.
  void restore(DatasetPosition position) {
    if (position.epoch < 0 || position.step < 0)
      throw InvalidArgument("[dataset] expected a position of 0 or more");
    position_ = position;
    restored_ = true;
    ++generation_;
  }

  /// Begins the restored epoch, or else the next one. Blocks until its first batch is made. If making it
  /// throws, rethrows the error, and the next loop begins at the same position.
  Iterator begin() {
    if (!restored_ && position_.step > 0) position_ = {position_.epoch + 1, 0};
    ++generation_;
    Iterator iterator(*this);
    restored_ = false;
    return iterator;
  }
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  /// Shared by all loops, because LibTorch's pool has few streams.
  std::shared_ptr<const InputStreams> input_streams() {
    // In the loop's own thread there is nothing to overlap with.
    const bool ahead = HasTensors<Batch> && prefetch_ > 0;
    const auto kind = ahead ? InputStreams::Kind::kOwn : InputStreams::Kind::kCurrent;
    if (!streams_) streams_ = std::make_shared<const InputStreams>(*source_->placement().devices, kind);
    return streams_;
  }

  std::shared_ptr<BatchSource<Batch>> source_;
  std::shared_ptr<const InputStreams> streams_;  // made by the first loop
  int prefetch_;
  int num_workers_;
  DatasetPosition position_;
  bool restored_ = false;
  uint64_t generation_ = 0;  // of the newest iterator, the only one that moves the position
};

/// Iterates once over one epoch.
///
/// Example:
///
///     auto batch = batches.begin();
///     if (batch != batches.end()) strategy.run(train_step, model, optimizer, *batch);
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
    if constexpr (HasTensors<Batch>) {
      if (streams_->are_separate()) handed_ = std::make_unique<HandedBatches<Batch>>(streams_);
    }
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
  /// Moves to the next batch, which replaces the current one. Blocks until it is made. If making it throws,
  /// rethrows the error, again at every further call.
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
    auto made = told_to_others([this] {
      return InputTimes::timed(dataset_->source_->times(), InputPart::kWait,
                               [this] { return batches_->next(); });
    });
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

  /// Streams of several workers may end at different steps, unless all workers draw the same batches. Workers
  /// at their end continue with empty shards until all have ended. All workers must call this together.
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

  /// Returns the result of `make()`. Reports an error to the other workers, which would otherwise wait for
  /// this one.
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
      if (handed_) handed_->add(made.batch);
    }
  }

  DistributedDataset* dataset_;
  uint64_t generation_;
  DatasetPosition position_;
  std::shared_ptr<const InputStreams> streams_;
  std::unique_ptr<Prefetcher<Made>> batches_;
  mutable std::optional<PerReplica<Batch>> current_;
  // Null if the input streams are the current ones.
  std::unique_ptr<std::conditional_t<HasTensors<Batch>, HandedBatches<Batch>, std::monostate>> handed_;
};

}  // namespace lockstep
