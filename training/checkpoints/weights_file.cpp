#include "lockstep/training/checkpoints/weights_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/checkpoints/checkpoint_state.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/formats/safetensors.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"

namespace lockstep {
namespace {

/// Keys under which dicts with other entries keep the weights.
constexpr std::array<const char*, 3> kWeightsKeys{"model", "state_dict", "model_state_dict"};

bool is_zip_archive(const std::string& path) {
  const InputFile file(path);
  std::array<char, 4> magic{};
  file.read(0, magic.data(), std::min<uint64_t>(magic.size(), file.size()));
  return magic == std::array<char, 4>{'P', 'K', 3, 4};
}

NamedTensors weights_of(const StateValue::Dict& dict, const std::string& path) {
  NamedTensors weights;
  for (const auto& entry : dict.entries) {
    const auto* name = std::get_if<std::string>(&entry.key);
    const auto* tensor = entry.value.get_if<torch::Tensor>();
    if (name == nullptr)
      throw CheckpointError(path, "weights", "names", std::to_string(std::get<int64_t>(entry.key)));
    if (tensor == nullptr)
      throw CheckpointError(path, "weights " + quoted_excerpt(*name), "a tensor", "another value");
    weights.emplace_back(*name, *tensor);
  }
  return weights;
}

NamedTensors state_weights(const StateValue& state, const std::string& path) {
  const auto* dict = state.get_if<StateValue::Dict>();
  if (dict == nullptr) throw CheckpointError(path, "weights", "a dict", "another value");
  check_whole(*dict, path);
  for (const char* key : kWeightsKeys) {
    const StateValue* inner = dict->find(key);
    if (inner == nullptr) continue;
    if (const auto* weights = inner->get_if<StateValue::Dict>()) return weights_of(*weights, path);
  }
  return weights_of(*dict, path);
}

}  // namespace

NamedTensors load_weights(const std::string& path) {
  std::error_code ignored;  // reading the file reports the error
  if (std::filesystem::is_directory(path, ignored) && is_checkpoint(path))
    return state_weights(load_checkpoint(path), path);
  return is_zip_archive(path) ? state_weights(load_state_file(path), path) : load_safetensors(path).tensors;
}

void save_weights(const std::string& path, const NamedTensors& weights) {
  for (const auto& [name, tensor] : weights) {
    if (!is_shard(tensor)) continue;
    throw InvalidArgument("[save_weights] expected whole parameters, but " + quoted_excerpt(name) +
                          " is a replica's shard of one: save a TrainingState, from which load_weights() and "
                          "export_weights read whole weights");
  }
  if (path.ends_with(".safetensors")) {
    save_safetensors(path, weights, {{"format", "pt"}});
  } else if (path.ends_with(".pt") || path.ends_with(".pth")) {
    StateValue::Dict dict;
    for (const auto& [name, tensor] : weights) dict.add(name, tensor);
    save_state_file(path, dict);
  } else {
    throw InvalidArgument(path + ": expected a name that ends in .safetensors, .pt or .pth");
  }
}

}  // namespace lockstep
