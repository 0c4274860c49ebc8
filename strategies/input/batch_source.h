#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/input/input_context.h"
#include "lockstep/strategies/input/input_times.h"

namespace lockstep {

/// Number of steps of a source without an end.
inline constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

/// The batches of the local replicas, by epoch and step. The sources below each change the batches of another
/// one.
///
/// Example:
///
///     struct Ones : BatchSource<torch::Tensor> {
///       const InputPlacement& placement() const override;
///       std::optional<int64_t> num_steps() const override { return kEndless; }
///       std::optional<PerReplica<torch::Tensor>> load(int64_t epoch, int64_t step) override;
///     };
template <typename Batch>
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Returns the replicas that the batches are for.
  virtual const InputPlacement& placement() const = 0;
  /// Returns the number of steps in an epoch, kEndless, or nothing if only the end of the data shows it.
  virtual std::optional<int64_t> num_steps() const = 0;
  /// Describes everything but the examples' values that decides which examples a step gets. Empty if not
  /// known.
  virtual std::string describe() const { return {}; }
  /// Returns whether load() must be called for one step after another, by one thread at a time.
  virtual bool is_sequential() const { return false; }
  /// Returns whether every worker draws the whole global batch and keeps its replicas' part. If so, all
  /// workers must have the same batches and the same end.
  virtual bool has_whole_batches() const { return false; }
  /// Returns the receiver of the times of making batches, or null.
  virtual InputTimes* times() const { return nullptr; }
  /// Returns the batch of a step, or nothing past the end. Thread-safe unless sequential. Rethrows errors of
  /// making the batch, and throws OutOfMemory and DeviceFailure naming the replica.
  virtual std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) = 0;
  /// Returns an empty shard for each replica, for steps of other workers past the end of this one. Must not
  /// be called while load() runs. Throws InvalidArgument if there was no batch to cut it from.
  virtual PerReplica<Batch> load_nothing() {
    throw InvalidArgument("[dataset] expected all workers to have the same steps");
  }
};

/// Applies a function to every shard.
///
/// Example:
///
///     auto halve = [](torch::Tensor shard) { return shard / 2; };
///     MappedSource<torch::Tensor, torch::Tensor> halves(source, halve);
template <typename Batch, typename Result>
class MappedSource : public BatchSource<Result> {
 public:
  MappedSource(std::shared_ptr<BatchSource<Batch>> inner, std::function<Result(Batch)> function)
      : inner_(std::move(inner)), function_(std::move(function)) {}

  const InputPlacement& placement() const override { return inner_->placement(); }
  std::optional<int64_t> num_steps() const override { return inner_->num_steps(); }
  std::string describe() const override { return inner_->describe(); }
  bool is_sequential() const override { return inner_->is_sequential(); }
  InputTimes* times() const override { return inner_->times(); }
  bool has_whole_batches() const override { return inner_->has_whole_batches(); }

  std::optional<PerReplica<Result>> load(int64_t epoch, int64_t step) override {
    auto batch = inner_->load(epoch, step);
    if (!batch) return std::nullopt;
    return apply(std::move(*batch));
  }
  PerReplica<Result> load_nothing() override { return apply(inner_->load_nothing()); }

 private:
  PerReplica<Result> apply(PerReplica<Batch> batch) {
    std::vector<Result> results;
    for (auto& shard : batch.local_values()) {
      const auto local = static_cast<int>(results.size());
      with_device_errors(
          "map", placement().first_replica + local, (*placement().devices)[results.size()], [&] {
            results.push_back(
                InputTimes::timed(times(), InputPart::kMap, [&] { return function_(std::move(shard)); }));
          });
    }
    PerReplica<Result> mapped(std::move(results), batch.devices());
    if (batch.batch_sizes()) mapped.set_batch_sizes(*batch.batch_sizes());
    return mapped;
  }

  std::shared_ptr<BatchSource<Batch>> inner_;
  std::function<Result(Batch)> function_;
};

/// Keeps the first `count` steps of every epoch.
///
/// Example:
///
///     TakenSource<torch::Tensor> first_ten(source, 10);
template <typename Batch>
class TakenSource : public BatchSource<Batch> {
 public:
  TakenSource(std::shared_ptr<BatchSource<Batch>> inner, int64_t count)
      : inner_(std::move(inner)), count_(count) {}

  const InputPlacement& placement() const override { return inner_->placement(); }
  std::optional<int64_t> num_steps() const override {
    const auto steps = inner_->num_steps();
    if (!steps) return std::nullopt;
    return std::min(count_, *steps);
  }
  std::string describe() const override { return inner_->describe(); }
  bool is_sequential() const override { return inner_->is_sequential(); }
  InputTimes* times() const override { return inner_->times(); }
  bool has_whole_batches() const override { return inner_->has_whole_batches(); }

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    if (step >= count_) return std::nullopt;
    auto batch = inner_->load(epoch, step);
    // An epoch of one batch has no order that shuffling could change.
    if (count_ == 1 && batch && batch->batch_sizes()) {
      BatchSizes sizes = *batch->batch_sizes();
      sizes.is_repeated = false;
      batch->set_batch_sizes(std::move(sizes));
    }
    return batch;
  }
  PerReplica<Batch> load_nothing() override { return inner_->load_nothing(); }

 private:
  std::shared_ptr<BatchSource<Batch>> inner_;
  int64_t count_;
};

/// Joins `count` epochs into one. Each keeps its own order. The source must know its number of steps.
///
/// Example:
///
///     RepeatedSource<torch::Tensor> three_epochs(source, 3);
template <typename Batch>
class RepeatedSource : public BatchSource<Batch> {
 public:
  RepeatedSource(std::shared_ptr<BatchSource<Batch>> inner, int64_t count)
      : inner_(std::move(inner)),
        steps_(*inner_->num_steps()),
        count_(steps_ > 0 && count > kEndless / steps_ ? kEndless : count) {}

  const InputPlacement& placement() const override { return inner_->placement(); }
  std::optional<int64_t> num_steps() const override {
    return steps_ == 0 ? 0 : count_ == kEndless ? kEndless : count_ * steps_;
  }
  std::string describe() const override { return inner_->describe(); }
  bool is_sequential() const override { return inner_->is_sequential(); }
  InputTimes* times() const override { return inner_->times(); }

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    if (steps_ == 0 || step / steps_ >= count_) return std::nullopt;
    // Epochs of an endless stream are far apart, so that no two of them share an inner epoch.
    constexpr int64_t kApart = int64_t{1} << 32;
    return inner_->load(epoch * (count_ == kEndless ? kApart : count_) + step / steps_, step % steps_);
  }

 private:
  std::shared_ptr<BatchSource<Batch>> inner_;
  int64_t steps_;
  int64_t count_;  // kEndless also if the number of steps would exceed it
};

}  // namespace lockstep
