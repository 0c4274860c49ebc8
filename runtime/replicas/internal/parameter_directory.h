#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Knows the names and replicas of the parameters of all modules made in a strategy's scope, for checks and
/// errors. Modules that are gone are forgotten. Not thread-safe: the strategy writes to it between runs only.
class ParameterDirectory {
 public:
  struct Entry {
    std::string name;
    int replica = 0;
  };

  /// `replicas[r]` is replica r's module.
  void add(const std::vector<std::shared_ptr<torch::nn::Module>>& replicas);
  /// Searches all modules, so it is slow; nothing for a parameter that belongs to none of them.
  std::optional<Entry> find(const at::Tensor& parameter) const;
  /// `'features.0.weight'`, or the position and shape where no module knows the tensor.
  std::string describe(const at::Tensor& parameter, size_t position) const;

 private:
  std::vector<std::vector<std::weak_ptr<torch::nn::Module>>> modules_;
};

}  // namespace lockstep
