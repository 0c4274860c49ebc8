#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/parallel/parallel_axis.h"

namespace lockstep {

/// Base of layers that are cut along an axis of the mesh, such as "tensor": each rank along it has a part of
/// the parameters, and computes a part of the result. The axis must not cut the batch (see AxisRole), since
/// all of its ranks need the same input.
///
/// Example:
///
///     struct ScaleImpl : ParallelModule {  // of which each rank scales some of the features
///       ScaleImpl(const ReplicaAxis& axis, int64_t features) : ParallelModule("Scale", axis) {
///         weight = register_cut("weight", torch::ones({features}), 0);
///       }
///       torch::Tensor forward(const torch::Tensor& part) { return part * weight; }
///       torch::Tensor weight;
///     };
class ParallelModule : public torch::nn::Module, public ReplicaBound {
 public:
  /// `type` is the layer's, which begins its errors.
  ParallelModule(const std::string& type, const ReplicaAxis& axis);

  const ParallelAxis& parallel_axis() const { return axis_; }

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override { axis_.bind(std::move(replica)); }
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 protected:
  /// Registers this rank's part of a parameter, and returns it. `whole` has the values of all of it, which
  /// must be the same on all ranks, and is not kept. Parts are equal, along `dim`. If the dimension has
  /// `sections`, each of them is cut by itself (see ShardedParameter). The part requires a gradient if
  /// `whole` does, or is not a leaf. Throws InvalidArgument if the ranks do not divide the size along `dim`,
  /// or that of a section.
  torch::Tensor register_cut(const std::string& name, const torch::Tensor& whole, int64_t dim,
                             const std::vector<int64_t>& sections = {});

 private:
  void mark();

  ParallelAxis axis_;
  std::map<std::string, ShardedParameter> cuts_;
};

}  // namespace lockstep
