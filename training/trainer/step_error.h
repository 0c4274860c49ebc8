#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep {

/// LibTorch refused an operation in a step of a Trainer, for example because shapes or dtypes do not match.
/// The message is one line: the replica, LibTorch's reason, and the shapes and dtypes of the replica's shard.
/// LibTorch's own error, with its stack frames, is nested: std::rethrow_if_nested() throws it.
///
/// Example:
///
///     try {
///       trainer.fit(x, y, {.epochs = 5});
///     } catch (const lockstep::StepError& error) {
///       std::cerr << error.what() << '\n';
///     }
class StepError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

using NamedShardTensors = std::vector<std::pair<const char*, torch::Tensor>>;

template <typename Batch>
concept HasDataAndTarget = requires(const Batch& batch) {
  { batch.data } -> std::convertible_to<torch::Tensor>;
  { batch.target } -> std::convertible_to<torch::Tensor>;
};

template <typename Batch>
NamedShardTensors tensors_of(const Batch& shard) {
  NamedShardTensors tensors;
  if constexpr (HasDataAndTarget<Batch>) {
    tensors = {{"data", shard.data}, {"targets", shard.target}};
  } else if constexpr (HasTensors<Batch>) {
    BatchTraits<Batch>::for_each_tensor(
        shard, [&](const torch::Tensor& tensor) { tensors.emplace_back("a tensor", tensor); });
  }
  return tensors;
}

/// Call it in a handler of a c10::Error. Throws StepError, with the error nested; but rethrows it as it is if
/// others explain it better: errors of devices, of collectives and of a CUDA graph's capture, and those of
/// shards of at most one example.
[[noreturn]] void rethrow_step_error(const char* step, const ReplicaContext& replica, int64_t num_examples,
                                     const NamedShardTensors& shard);

/// Returns `work()`. LibTorch's errors become StepError; `step` says what the replica did.
template <typename Batch, typename Work>
decltype(auto) with_step_errors(const char* step, const ReplicaContext& replica, const Batch& shard,
                                const Work& work) {
  try {
    return work();
  } catch (const c10::Error&) {
    rethrow_step_error(step, replica, BatchTraits<Batch>::size(shard), tensors_of(shard));
  }
}

}  // namespace detail
}  // namespace lockstep
