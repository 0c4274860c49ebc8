#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

class ReplicaContext;
int local_index(const ReplicaContext& replica);

/// Numbers of examples in one global batch.
struct BatchSizes {
  int64_t global = 0;          ///< Examples on all replicas of all workers.
  std::vector<int64_t> local;  ///< Examples in each local replica's shard.
  /// Whether the batch comes at the same place in every epoch, and this is not the first one. Not compared.
  bool is_repeated = false;

  bool operator==(const BatchSizes& other) const { return global == other.global && local == other.local; }
};

/// One value for each local replica, in replica order, as `Strategy::run` returns them and a distributed
/// dataset yields them.
///
/// Example:
///
///     PerReplica<torch::Tensor> losses = strategy.run(train_step, model, optimizer, batch);
///     std::cout << losses << '\n' << strategy.reduce(ReduceOp::kMean, losses) << '\n';
///
/// It is not a tensor: `losses.item<double>()` does not compile. Reduce it first with `Strategy::reduce`.
template <typename T>
class PerReplica {
  static_assert(!std::is_reference_v<T> && !std::is_void_v<T>);

 public:
  using value_type = T;
  using Devices = std::shared_ptr<const std::vector<LogicalDevice>>;

  PerReplica(std::vector<T> values, Devices devices)
      : values_(std::move(values)), devices_(std::move(devices)) {}

  /// Returns the value of the calling replica.
  typename std::vector<T>::reference operator[](const ReplicaContext& replica) {
    return values_[static_cast<size_t>(local_index(replica))];
  }
  typename std::vector<T>::const_reference operator[](const ReplicaContext& replica) const {
    return values_[static_cast<size_t>(local_index(replica))];
  }

  /// Returns the value of a local replica by its number, from 0. Throws std::out_of_range if there is none.
  typename std::vector<T>::reference operator[](int replica) {
    return values_.at(static_cast<size_t>(replica));
  }
  typename std::vector<T>::const_reference operator[](int replica) const {
    return values_.at(static_cast<size_t>(replica));
  }

  /// Returns what `function` returns for each value, on the same devices.
  ///
  ///     const auto shares = losses.map([](const torch::Tensor& loss) { return loss.item<double>(); });
  template <typename Fn>
  auto map(const Fn& function) const {
    using R = std::remove_cvref_t<std::invoke_result_t<const Fn&, const T&>>;
    std::vector<R> results;
    results.reserve(values_.size());
    for (const auto& value : values_) results.push_back(function(value));
    return PerReplica<R>(std::move(results), devices_);
  }

  const std::vector<T>& local_values() const { return values_; }
  std::vector<T>& local_values() { return values_; }
  const Devices& devices() const { return devices_; }

  /// Sizes of a batch from a distributed dataset; empty for any other value. `run` passes them to the
  /// replicas' contexts.
  const std::optional<BatchSizes>& batch_sizes() const { return batch_sizes_; }
  void set_batch_sizes(BatchSizes sizes) { batch_sizes_ = std::move(sizes); }

 private:
  std::vector<T> values_;
  Devices devices_;
  std::optional<BatchSizes> batch_sizes_;
};

/// Prints `values` such as `{0: 0.25 (cpu:0), 1: 0.5 (cpu:1)}`.
template <typename T>
requires requires(std::ostream& stream, const T& value) {
  stream << value;
}
std::ostream& operator<<(std::ostream& stream, const PerReplica<T>& values) {
  stream << '{';
  for (size_t i = 0; i < values.local_values().size(); ++i) {
    stream << (i == 0 ? "" : ", ") << i << ": " << values.local_values()[i] << " (" << (*values.devices())[i]
           << ')';
  }
  return stream << '}';
}

}  // namespace lockstep
