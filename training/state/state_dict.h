#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// Returns the parameters and buffers of a module with the names and in the order of Python's state_dict():
/// each module's own parameters, its own buffers, then its children. The tensors share the module's memory
/// and require no gradient. A tensor registered under several names appears under each.
NamedTensors state_dict(const torch::nn::Module& module);

struct LoadStateOptions {
  /// If true, every tensor must match: a missing or unexpected one, or another shape, is an error. If false,
  /// tensors that match in name and shape are loaded, and the report lists the rest.
  bool strict = true;
  std::string source = "state_dict";  ///< Origin of the tensors, for error messages.
};

/// Result of load_state_dict().
struct LoadReport {
  struct Difference {
    std::string name;
    std::string expected;  ///< Dtype and shape in the module, such as "Float [10, 1280]".
    std::string actual;
  };

  std::vector<std::string> loaded;
  std::vector<std::string> missing;     ///< Tensors of the module that were not given.
  std::vector<std::string> unexpected;  ///< Given tensors that the module does not have.
  std::vector<Difference> differing;    ///< Tensors with another shape, or a dtype that does not convert.

  bool is_complete() const { return missing.empty() && unexpected.empty() && differing.empty(); }
  /// Returns one line for each of the first 50 tensors that were not loaded, and one with the number of the
  /// others. Names are shortened and control characters escaped, because they may come from an untrusted
  /// file.
  std::vector<std::string> describe() const;
};

/// Copies tensors into the module's parameters and buffers of the same names. Floating-point dtypes convert
/// into each other; other dtypes must be equal. Throws CheckpointError if a tensor is undefined or a name
/// occurs twice, and, if `strict`, naming the first tensor that differs, with both shapes; the module is
/// unchanged then.
LoadReport load_state_dict(torch::nn::Module& module, const NamedTensors& tensors,
                           const LoadStateOptions& options = {});

/// Copies tensors into the module of every local replica, as above. `first_replica` is the id of the first of
/// them, Strategy::first_local_replica(): of a buffer that is summed over the replicas (see
/// BufferAggregation), only replica 0 gets the value, and the others get 0.
LoadReport load_state_dict(const std::vector<ModulePointer>& replicas, int first_replica,
                           const NamedTensors& tensors, const LoadStateOptions& options = {});

/// Copies tensors into every replica's module, as above.
template <ModuleLike T>
LoadReport load_state_dict(Mirrored<T>& model, const NamedTensors& tensors,
                           const LoadStateOptions& options = {}) {
  return load_state_dict(module_pointers(model.local_values()), model.first_replica(), tensors, options);
}

}  // namespace lockstep
