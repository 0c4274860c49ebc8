#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Knows the names and replicas of the parameters of all modules created in a strategy's scope, for checks
/// and error messages. Forgets destroyed modules. Not thread-safe: the strategy writes to it between runs
/// only.
class ParameterDirectory {
 public:
  struct Entry {
    std::string name;
    int replica = 0;
  };

  /// `replicas[r]` is replica r's module.
  void add(const std::vector<std::shared_ptr<torch::nn::Module>>& replicas);
  /// Returns each parameter's name and replica, or nullopt if no module owns it. Searches all modules once.
  std::vector<std::optional<Entry>> find_all(const std::vector<at::Tensor>& parameters) const;
  /// Returns the modules that registered the parameters themselves, and null for those that no module owns.
  /// Searches all modules once.
  std::vector<std::shared_ptr<const torch::nn::Module>> owners(
      const std::vector<at::Tensor>& parameters) const;
  /// As find_all() for one parameter, and as slow.
  std::optional<Entry> find(const at::Tensor& parameter) const;
  /// Returns the name in quotes, such as `'features.0.weight'`, or the position and shape if no module knows
  /// the tensor. Slow: searches all modules.
  std::string describe(const at::Tensor& parameter, size_t position) const;

 private:
  std::vector<std::vector<std::weak_ptr<torch::nn::Module>>> modules_;
};

}  // namespace lockstep
