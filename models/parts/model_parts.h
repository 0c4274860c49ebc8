#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace lockstep {

/// A part of a model that computes one tensor from another, such as a transformer's block.
struct ModelPart {
  std::string name;  ///< in the model, such as "blocks.3"
  std::shared_ptr<torch::nn::Module> module;
};

/// The function of a part. A copy stays valid as long as you like.
using PartFunction = std::function<torch::Tensor(const torch::Tensor&)>;

/// The module that stands for a part of a model, and how the part is called.
struct WrappedPart {
  /// Registered in the part's place. Its parameters and buffers have the names of the part's.
  std::shared_ptr<torch::nn::Module> module;
  /// Returns `function(x)`, where `function` computes with the part's own parameters. Empty: called directly.
  std::function<torch::Tensor(const PartFunction& function, const torch::Tensor& x)> call{};
};

/// Decides what stands for a part of a model. A model calls it for each part as soon as the part has its
/// initial values, and before it makes the next one. A model in which other modules stand for parts cannot be
/// cloned.
///
/// Example, which cuts the parameters of each part over the replicas:
///
///     PartWrapper wrap = [&](const ModelPart& part) {
///       auto unit = std::make_shared<ShardedModule>(part.module, along(replica.axis("shard")));
///       return WrappedPart{unit, [unit](const auto& function, const auto& x) { return unit->call(function,
///       x); }};
///     };
using PartWrapper = std::function<WrappedPart(const ModelPart& part)>;

}  // namespace lockstep
