#pragma once

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {

/// Loads weights, by name, from any of these, whatever the file's name: a .safetensors file; a state_dict
/// written by Python's torch.save(); a dict with a state_dict under "model", "state_dict" or
/// "model_state_dict", such as Lockstep's training states; or the folder of a checkpoint written by Backup.
/// Throws CheckpointError naming the file if it is damaged or hostile, or has no weights.
NamedTensors load_weights(const std::string& path);

/// Writes weights for Python: for safetensors.torch.load_file() if `path` ends in .safetensors, and for
/// torch.load(weights_only=True) if it ends in .pt or .pth. Throws InvalidArgument for another ending and for
/// a replica's shard of a parameter, and the errors of save_safetensors() and save_state_file().
void save_weights(const std::string& path, const NamedTensors& weights);

/// Writes the weights of a strategy's model, whose parameters may be sharded: whole parameters, and buffers
/// combined over all replicas, as Mirrored::eval() does. `replicas` has the module of each local replica. The
/// worker with replica 0 writes the file. A collective, between runs. Whole parameters are put together and
/// written one after another, so that no worker holds all of them. Throws as the function above on the worker
/// that writes, and InvalidArgument for another ending on all.
void save_weights(const std::string& path, Strategy& strategy, const std::vector<ModulePointer>& replicas);

/// Returns the weights that the function above writes, on the CPU if parameters are sharded. The worker with
/// replica 0 gets all of them, and the others get none. A collective, between runs.
NamedTensors whole_state_dict(Strategy& strategy, const std::vector<ModulePointer>& replicas);

/// Do the same for a model that the strategy's scope() returned.
///
/// Example:
///
///     save_weights("model.safetensors", strategy, model);  // on all workers
template <ModuleLike T>
void save_weights(const std::string& path, Strategy& strategy, Mirrored<T>& model) {
  save_weights(path, strategy, module_pointers(model.local_values()));
}
template <ModuleLike T>
NamedTensors whole_state_dict(Strategy& strategy, Mirrored<T>& model) {
  return whole_state_dict(strategy, module_pointers(model.local_values()));
}

/// Loads the weights of a file into a model, which is a module or the result of a strategy's scope(). Works
/// as load_state_dict(), with the file as `options.source`.
template <typename Model>
LoadReport init_weights(Model& model, const std::string& path, LoadStateOptions options = {}) {
  options.source = path;
  return load_state_dict(model, load_weights(path), options);
}

}  // namespace lockstep
