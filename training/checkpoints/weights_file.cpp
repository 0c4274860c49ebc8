#include "lockstep/training/checkpoints/weights_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/checkpoints/checkpoint_state.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/checkpoints/internal/divided_weights.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/internal/tensor_maker.h"
#include "lockstep/training/formats/safetensors.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"
#include "lockstep/training/state/internal/divided_tensor.h"
#include "lockstep/training/state/internal/whole_tensors.h"

namespace lockstep {
namespace {

constexpr const char* kSafetensors = ".safetensors";
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

StateValue::Dict dict_of(const NamedTensors& tensors) {
  StateValue::Dict dict;
  for (const auto& [name, tensor] : tensors) dict.add(name, tensor);
  return dict;
}

/// Returns the entries of a dict of tensors.
NamedTensors tensors_of(const StateValue::Dict& dict) {
  NamedTensors tensors;
  for (const auto& [name, value] : dict.entries)
    tensors.emplace_back(std::get<std::string>(name), *value.get_if<torch::Tensor>());
  return tensors;
}

void check_ending(const std::string& path) {
  if (path.ends_with(kSafetensors) || path.ends_with(".pt") || path.ends_with(".pth")) return;
  throw InvalidArgument(path + ": expected a name that ends in .safetensors, .pt or .pth");
}

void write_weights(const std::string& path, const NamedTensors& weights, const TensorMaker& make) {
  check_ending(path);
  if (path.ends_with(kSafetensors)) {
    save_safetensors(path, weights, {{"format", "pt"}}, make);
  } else {
    save_state_archive(path, dict_of(weights), make);
  }
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
                          " is a replica's shard of one: pass the strategy and its model instead");
  }
  write_weights(path, weights, {});
}

void save_divided_weights(const std::string& path, Strategy& strategy, const NamedTensors& weights) {
  check_ending(path);
  NamedTensors divided;
  for (const auto& named : weights)
    if (pieces_of(named.second) != nullptr) divided.push_back(named);
  const StateValue::Dict ordered =
      dict_of(path.ends_with(kSafetensors) ? in_safetensors_order(divided) : divided);
  std::function<void(WholeTensors&)> write;
  if (strategy.first_local_replica() == 0)
    write = [&](WholeTensors& whole) { write_weights(path, weights, std::ref(whole)); };
  write_whole_tensors(strategy, ordered, ordered, write);
}

void save_weights(const std::string& path, Strategy& strategy, const std::vector<ModulePointer>& replicas) {
  TrainingState state(strategy);
  state.add_model(replicas);
  save_divided_weights(path, strategy, divided_weights(state.collect({})));
}

NamedTensors whole_state_dict(Strategy& strategy, const std::vector<ModulePointer>& replicas) {
  TrainingState state(strategy);
  state.add_model(replicas);
  const StateValue::Dict whole = state.snapshot({});
  const StateValue* model = whole.find("model");
  return model == nullptr ? NamedTensors() : tensors_of(*model->get_if<StateValue::Dict>());
}

NamedTensors divided_weights(const TrainingState::Collected& collected) {
  const auto& state = collected.own.entries.empty() ? collected.shared : collected.own;
  return tensors_of(*state.find("model")->get_if<StateValue::Dict>());
}

}  // namespace lockstep
