#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/strategies/sharding/unit_options.h"

namespace lockstep {

/// Decides which elements of a sequence form a unit.
struct UnitPolicy {
  /// Elements join a unit until it has parameters, and at least this many bytes of them. 0: each element with
  /// parameters is a unit. Parameters of units in an element do not count.
  int64_t min_unit_bytes = 0;
};

/// Makes an element of a sequence when it is needed.
///
/// Example:
///
///     ElementFactory layer([] { return torch::nn::Linear(1024, 1024); });
struct ElementFactory {
  /// `make` returns a module's holder or an AnyModule.
  template <typename Make>
  requires std::invocable<Make> &&(!std::same_as<std::remove_cvref_t<Make>, ElementFactory>)  //
      ElementFactory(Make make, std::string name = {})
      : make([make = std::move(make)] { return torch::nn::AnyModule(make()); }), name(std::move(name)) {}

  std::function<torch::nn::AnyModule()> make;
  std::string name;  ///< empty: the element's number
};

/// Elements one after another, as torch::nn::Sequential, in units whose parameters are cut over the ranks;
/// see ShardedModule. Parameters and buffers have the names of a Sequential's.
///
/// Example:
///
///     ShardedSequential model(layers, options, UnitPolicy{.min_unit_bytes = 64 << 20});
///     std::cout << model->units().size() << " units\n";
class ShardedSequentialImpl : public torch::nn::Module, public ReplicaBound, public HasShardedUnits {
 public:
  /// Makes the elements, in order, and cuts and frees each unit before the next element is made. Throws as
  /// ShardedModule's constructor.
  ShardedSequentialImpl(const std::vector<ElementFactory>& elements, const UnitOptions& options,
                        const UnitPolicy& policy = {});

  /// Passes `input` through all elements. The first element of each unit takes a tensor, and the last returns
  /// one. A collective, as is its backward; see ShardedModule::call().
  torch::Tensor forward(const torch::Tensor& input);

  const std::vector<std::shared_ptr<ShardedModule>>& units() const { return units_; }
  void bind(std::shared_ptr<const ReplicaCollectives> replica) override;
  void train(bool on = true) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  std::vector<ShardedModule*> sharded_units() override;
  void name_units(const std::string& name) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  using Elements = std::vector<torch::nn::AnyModule>;
  void close_unit(const UnitOptions& options, const std::vector<std::string>& names, Elements elements);

  std::vector<std::shared_ptr<ShardedModule>> units_;
  std::vector<Elements> elements_;   // of each unit
  std::vector<std::string> ranges_;  // the names of each unit's elements
};
TORCH_MODULE(ShardedSequential);

/// Returns a sequence of these elements, which needs the memory of its shards and of one unit.
///
/// Example:
///
///     std::vector<ElementFactory> layers;
///     for (int i = 0; i < 24; ++i) layers.emplace_back([] { return Layer(4096); });
///     auto model = shard_elements(layers, along(replica.axis("data")));
ShardedSequential shard_elements(const std::vector<ElementFactory>& elements, const UnitOptions& options,
                                 const UnitPolicy& policy = {});
/// Returns a sequence of the elements of `model`, which nothing else may use from then on. It has the memory
/// of all of `model` until its elements are cut.
ShardedSequential shard_elements(const torch::nn::Sequential& model, const UnitOptions& options,
                                 const UnitPolicy& policy = {});

}  // namespace lockstep
