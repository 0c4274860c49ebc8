#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// The parameters and buffers of a module by the names and in the order of Python's state_dict(): each
/// module's own parameters, its own buffers, then its children. They share the module's memory and require no
/// gradient. A tensor that is registered under several names appears under each.
NamedTensors state_dict(const torch::nn::Module& module);

struct LoadStateOptions {
  /// Refuses anything missing, unexpected or of another shape; otherwise what matches in name and shape is
  /// loaded, and the report names the rest.
  bool strict = true;
  std::string source = "state_dict";  ///< where the tensors come from, for error messages
};

/// What load_state_dict() did.
struct LoadReport {
  struct Difference {
    std::string name;
    std::string expected;  ///< the module's dtype and shape, such as "Float [10, 1280]"
    std::string actual;
  };

  std::vector<std::string> loaded;
  std::vector<std::string> missing;     ///< of the module, not given
  std::vector<std::string> unexpected;  ///< given, not the module's
  std::vector<Difference> differing;    ///< in shape, or in a dtype that does not convert

  bool is_complete() const { return missing.empty() && unexpected.empty() && differing.empty(); }
  /// One line for each tensor that was not loaded, of which the first 50, and how many more there are. Names
  /// are shortened and control characters escaped: they may come from a file that is not trusted.
  std::vector<std::string> describe() const;
};

/// Copies tensors into the module's parameters and buffers of their names. Floating-point dtypes convert into
/// each other, others must be equal. Throws CheckpointError naming the first tensor that differs, with both
/// shapes, if `strict`: nothing is changed then.
LoadReport load_state_dict(torch::nn::Module& module, const NamedTensors& tensors,
                           const LoadStateOptions& options = {});

/// The same into every replica's module.
LoadReport load_state_dict(const std::vector<ModulePointer>& replicas, const NamedTensors& tensors,
                           const LoadStateOptions& options = {});

/// The same into every replica's module.
template <ModuleLike T>
LoadReport load_state_dict(Mirrored<T>& model, const NamedTensors& tensors,
                           const LoadStateOptions& options = {}) {
  return load_state_dict(module_pointers(model.local_values()), tensors, options);
}

}  // namespace lockstep
