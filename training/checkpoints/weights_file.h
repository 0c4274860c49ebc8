#pragma once

#include <string>

#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {

/// Loads weights, by name, from any of these, whatever the file's name: a .safetensors file; a state_dict
/// written by Python's torch.save(); a dict with a state_dict under "model", "state_dict" or
/// "model_state_dict", such as Lockstep's training states; or the folder of a checkpoint written by Backup.
/// Throws CheckpointError naming the file if it is damaged or hostile, or has no weights.
NamedTensors load_weights(const std::string& path);

/// Writes weights for Python: for safetensors.torch.load_file() if `path` ends in .safetensors, and for
/// torch.load(weights_only=True) if it ends in .pt or .pth. Throws InvalidArgument for another ending, and
/// the errors of save_safetensors() and save_state_file().
void save_weights(const std::string& path, const NamedTensors& weights);

/// Loads the weights of a file into a model, which is a module or the result of a strategy's scope(). Works
/// as load_state_dict(), with the file as `options.source`.
template <typename Model>
LoadReport init_weights(Model& model, const std::string& path, LoadStateOptions options = {}) {
  options.source = path;
  return load_state_dict(model, load_weights(path), options);
}

}  // namespace lockstep
