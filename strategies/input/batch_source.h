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

namespace lockstep {

/// Without end.
inline constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

/// Batches by epoch and step, as the local replicas see them. The stages below stand on one another.
template <typename Batch>
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// The replicas that the batches are for.
  virtual const InputPlacement& placement() const = 0;
  /// Steps of an epoch, kEndless, or nothing where that shows only at the end.
  virtual std::optional<int64_t> num_steps() const = 0;
  /// What decides which examples come at a step, besides their values; empty where that is not known.
  virtual std::string describe() const { return {}; }
  /// Whether load() must be called for one step after another, by one thread at a time.
  virtual bool is_sequential() const { return false; }
  /// Whether every worker draws the whole global batch and keeps its replicas' part: then none of them may
  /// have another one, or end before the others.
  virtual bool has_whole_batches() const { return false; }
  /// The batch of a step; nothing past the end. Safe to call from several threads unless sequential. Throws
  /// what making it throws, OutOfMemory and DeviceFailure naming the replica.
  virtual std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) = 0;
  /// An empty shard for each replica, for steps of other workers past this one's end. Not while load() runs.
  /// Throws InvalidArgument where there was no batch that it could be cut from.
  virtual PerReplica<Batch> load_nothing() {
    throw InvalidArgument("[dataset] expected all workers to have the same steps");
  }
};

/// Applies a function to every shard.
template <typename Batch, typename Result>
class MappedSource : public BatchSource<Result> {
 public:
  MappedSource(std::shared_ptr<BatchSource<Batch>> inner, std::function<Result(Batch)> function)
      : inner_(std::move(inner)), function_(std::move(function)) {}

  const InputPlacement& placement() const override { return inner_->placement(); }
  std::optional<int64_t> num_steps() const override { return inner_->num_steps(); }
  std::string describe() const override { return inner_->describe(); }
  bool is_sequential() const override { return inner_->is_sequential(); }
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
      with_device_errors("map", placement().first_replica + local, (*placement().devices)[results.size()],
                         [&] { results.push_back(function_(std::move(shard))); });
    }
    PerReplica<Result> mapped(std::move(results), batch.devices());
    if (batch.batch_sizes()) mapped.set_batch_sizes(*batch.batch_sizes());
    return mapped;
  }

  std::shared_ptr<BatchSource<Batch>> inner_;
  std::function<Result(Batch)> function_;
};

/// The first `count` steps of every epoch.
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
  bool has_whole_batches() const override { return inner_->has_whole_batches(); }

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    if (step >= count_) return std::nullopt;
    return inner_->load(epoch, step);
  }
  PerReplica<Batch> load_nothing() override { return inner_->load_nothing(); }

 private:
  std::shared_ptr<BatchSource<Batch>> inner_;
  int64_t count_;
};

/// `count` epochs one after another as one. Each of them has its own order. Needs to know how long one is.
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

  std::optional<PerReplica<Batch>> load(int64_t epoch, int64_t step) override {
    if (steps_ == 0 || step / steps_ >= count_) return std::nullopt;
    // Epochs of an endless stream are far apart, so that no two of them share an inner epoch.
    constexpr int64_t kApart = int64_t{1} << 32;
    return inner_->load(epoch * (count_ == kEndless ? kApart : count_) + step / steps_, step % steps_);
  }

 private:
  std::shared_ptr<BatchSource<Batch>> inner_;
  int64_t steps_;
  int64_t count_;  // kEndless also where the steps would be more than that
};

/// The elements [begin, end) of a global batch of n examples that go to replica r of R: pieces of ceil(n/R),
/// so that the last ones may be smaller or empty.
inline std::pair<int64_t, int64_t> shard_bounds(int64_t n, int replica, int num_replicas) {
  const int64_t piece = (n + num_replicas - 1) / num_replicas;
  return {std::min(n, replica * piece), std::min(n, (replica + 1) * piece)};
}

}  // namespace lockstep
