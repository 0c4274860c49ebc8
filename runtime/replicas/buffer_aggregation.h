#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/module_state.h"

namespace lockstep {

/// How the replicas' values of a buffer are combined when Mirrored::eval() or a checkpoint reads it. In
/// between, every replica changes its own value, and the values may differ.
enum class BufferAggregation : uint8_t {
  /// The mean, such as of BatchNorm's running statistics. Buffers that are not floating-point take replica
  /// 0's value. This is the default.
  kMean,
  /// The sum, such as of counters. Only replica 0 starts from the module's value; the others start from 0, so
  /// that the sum does not depend on the number of replicas. After eval(), and after a checkpoint is loaded
  /// on another number of replicas, replica 0 holds the sum and the others hold 0.
  kSum,
  /// Replica 0's value.
  kFirstReplica,
  /// The value that all replicas hold. Reading it throws InconsistentReplicas if they differ.
  kSame,
};

/// Base of modules that declare how their buffers are combined.
///
/// Example:
///
///     struct CountingImpl : torch::nn::Module, AggregatesBuffers {
///       BufferAggregation buffer_aggregation(const std::string&) const override {
///         return BufferAggregation::kSum;
///       }
///       torch::Tensor forward(torch::Tensor x) {
///         seen += x.size(0);
///         return x;
///       }
///       torch::Tensor seen = register_buffer("seen", torch::zeros({}, torch::kLong));
///     };
class AggregatesBuffers {
 public:
  virtual ~AggregatesBuffers() = default;
  /// Returns the rule for a buffer of this module itself, without those of its children. The same module must
  /// give the same answer on all replicas and at all times.
  virtual BufferAggregation buffer_aggregation(const std::string& name) const = 0;
};

/// Returns the rules of all buffers of a module and its children, by full name.
std::map<std::string, BufferAggregation> buffer_aggregations(const torch::nn::Module& module);

/// Returns the full names of the buffers that are summed.
std::set<std::string> summed_buffers(const torch::nn::Module& module);

/// Returns the combined value of one buffer, in its dtype and on the first value's device. `values` are those
/// of all replicas, in order. Floating-point values are added in float64, integers in int64. Throws
/// InconsistentReplicas naming the buffer and the replica if a kSame buffer differs.
at::Tensor aggregate_values(const std::string& name, BufferAggregation aggregation,
                            const std::vector<at::Tensor>& values);

/// The other processes' replicas, for functions that read buffers.
struct ReplicaPeers {
  int first_replica = 0;  ///< id of this process's first replica
  /// Returns the tensors of all processes, in order. A collective. Empty if there is only this process.
  std::function<std::vector<std::vector<at::Tensor>>(const std::vector<at::Tensor>&)> gather_tensors;
  /// Returns whether a local module's buffers count. If replicas have several ranks (see Mesh), those of the
  /// first ones do. Null: all count.
  std::function<bool(size_t local)> counts = nullptr;
};

/// Combines the buffers of all replicas, and sets those of the local replicas to the result. `replicas` are
/// the local replicas' modules. A collective if there are several processes. Throws as aggregate_values()
/// does, on all processes.
void aggregate_buffers(const std::vector<ModulePointer>& replicas, const ReplicaPeers& peers = {});

/// Sets kSum buffers to 0 on all replicas but replica 0, after all got the same values.
void keep_sums_once(const std::vector<ModulePointer>& replicas, int first_replica);

}  // namespace lockstep
