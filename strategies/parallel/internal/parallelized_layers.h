#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/parallel/internal/parallelized_layer.h"
#include "lockstep/strategies/parallel/parallel_plan.h"

namespace lockstep {

/// The layers of a module that parallelize() was given. It is registered in that module, whose last child it
/// is, so that it gets the rank's collectives, and so that it marks parameters again after they were moved.
class ParallelizedLayers final : public torch::nn::Module, public ReplicaBound {
 public:
  ParallelizedLayers();

  const std::shared_ptr<LayerTrace>& trace() const { return trace_; }

  /// Marks a weight, now and whenever it was moved. `name` is the parameter's.
  void add_weight(const std::string& name, const torch::Tensor& weight,
                  const std::shared_ptr<ParallelizedLayer>& layer);
  /// Marks another parameter as a part.
  void add_part(const std::string& name, const torch::Tensor& parameter, const ShardedParameter& part);
  /// Throws InvalidArgument naming the first parameter that has lost its mark.
  void check_marks() const;

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  struct Entry {
    std::string name;
    torch::Tensor parameter;
    std::shared_ptr<ParallelizedLayer> layer;  ///< of a weight
    std::optional<ShardedParameter> part;      ///< of another parameter
  };
  void add(Entry entry);
  static void mark(const Entry& entry);
  void mark_all() const;

  std::shared_ptr<LayerTrace> trace_ = std::make_shared<LayerTrace>();
  std::vector<Entry> entries_;
};

/// Does what parallelize() does, also with an empty plan: then it only marks layers, so that their names are
/// known. Returns the layers.
std::shared_ptr<ParallelizedLayers> parallelize_layers(torch::nn::Module& module, const ReplicaAxis& axis,
                                                       const ParallelPlan& plan);

}  // namespace lockstep
