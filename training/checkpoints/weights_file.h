#pragma once

#include <string>

#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {

/// The weights in a file by their names, whatever its name: a .safetensors file; a state_dict that Python's
/// torch.save() wrote; or a dict of more with the state_dict under "model", "state_dict" or
/// "model_state_dict", such as Lockstep's training states; or the folder of a checkpoint of Backup's. Throws
/// CheckpointError naming the file for a damaged or hostile one, and for one without weights.
NamedTensors load_weights(const std::string& path);

/// Writes weights as Python reads them: with safetensors.torch.load_file() where `path` ends in
/// .safetensors, else, for .pt and .pth, with torch.load(weights_only=True). Throws InvalidArgument for
/// another ending, and as save_safetensors() and save_state_file().
void save_weights(const std::string& path, const NamedTensors& weights);

/// Gives a model the weights of a file, as load_state_dict(); `options.source` becomes the file. `model` is a
/// module, or what a strategy's scope() returned.
template <typename Model>
LoadReport init_weights(Model& model, const std::string& path, LoadStateOptions options = {}) {
  options.source = path;
  return load_state_dict(model, load_weights(path), options);
}

}  // namespace lockstep
