#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/internal/parameter_mark.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/parallel/parallel_axis.h"

namespace lockstep {

class ParallelizedLayer;

/// A rank's place in a parallelized module's forward.
struct LayerTrace {
  std::string last;       ///< name of the last layer whose forward began
  std::string last_part;  ///< name of the last layer that returned a part of its features
  /// Called after each layer's operation, without the bias if the layer adds it later. May be empty.
  std::function<void(const ParallelizedLayer&, const at::Tensor& input, const at::Tensor& output)> observe;
};

/// The weight of a layer of an ordinary module that parallelize() was given, cut or not, and what the layer's
/// operations do around it. Kernels find it by the weight's mark.
class ParallelizedLayer {
 public:
  struct LinearUse {
    bool gather_output = true;
    bool input_is_parallel = false;
  };
  struct EmbeddingUse {
    bool gather_output = true;
    std::optional<int64_t> padding_idx = std::nullopt;  ///< a row of the whole table
  };

  ParallelizedLayer(std::string name, std::vector<int64_t> sizes, const ReplicaAxis& axis,
                    std::shared_ptr<LayerTrace> trace);

  const std::string& name() const { return name_; }
  ParallelAxis& axis() { return axis_; }

  /// Kernels call these around the operation of a linear layer. Throws InvalidArgument for an input that has
  /// another number of features than the operation needs.
  at::Tensor linear_input(const at::Tensor& input) const;
  at::Tensor linear_output(const at::Tensor& output) const;
  /// Computes an embedding. `padding_idx` is the caller's.
  at::Tensor embedding(const at::Tensor& own_weight, const at::Tensor& ids, int64_t padding_idx) const;
  /// Throws InvalidArgument if a norm's input does not have its features.
  void check_norm(const at::Tensor& input) const;
  /// Tells the trace of an operation.
  void note(const at::Tensor& input, const at::Tensor& output, bool is_part) const;
  bool returns_part_of_linear() const { return cut && *cut->dim == 0 && !linear.gather_output; }
  bool returns_part_of_embedding() const { return cut && *cut->dim == 1 && !table.gather_output; }

  /// The place of the rank's part of the weight; none if it is whole.
  std::optional<ShardedParameter> cut;
  LinearUse linear;
  EmbeddingUse table;
  std::string line;  ///< the plan's line that cut it, as text
  std::shared_ptr<LayerTrace> trace;

 private:
  void check_input(const at::Tensor& input) const;

  std::string name_;
  std::vector<int64_t> sizes_;  ///< of the whole weight
  ParallelAxis axis_;
};

/// The mark of such a weight.
class LayerMark final : public ParameterMark {
 public:
  explicit LayerMark(std::shared_ptr<const ParallelizedLayer> layer) : layer_(std::move(layer)) {}
  const ShardedParameter* shard() const override { return layer_->cut ? &*layer_->cut : nullptr; }
  const std::shared_ptr<const ParallelizedLayer>& layer() const { return layer_; }

 private:
  std::shared_ptr<const ParallelizedLayer> layer_;
};

/// Returns the layer of a weight, or null.
const ParallelizedLayer* parallelized_layer_of(const at::Tensor& weight);

/// Makes operations in the calling thread find the layers of weights, also outside of runs, in which parts
/// are refused. In runs, all threads of replicas do.
void watch_weights();

}  // namespace lockstep
