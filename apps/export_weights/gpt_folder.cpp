#include "lockstep/apps/export_weights/gpt_folder.h"

#include <torch/types.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep::apps {
namespace {

GptOptions read_model(const std::string& path) {
  try {
    return read_gpt_configuration(path);
  } catch (const std::exception& error) {
    throw CheckpointError(std::string("--model ") + error.what());
  }
}

/// Returns the dtype of the weights' numbers, so that they are written as they were trained.
torch::Dtype dtype_of(const NamedTensors& weights) {
  for (const auto& [name, tensor] : weights) {
    if (tensor.defined() && tensor.is_floating_point()) return tensor.scalar_type();
  }
  return torch::kFloat;
}

}  // namespace

NamedTensors write_gpt_folder(const std::string& folder, const std::string& model,
                              const NamedTensors& weights, const std::string& source) {
  Gpt gpt(read_model(model));
  gpt->to(dtype_of(weights));
  load_state_dict(*gpt, weights, {.strict = true, .source = source});
  const NamedTensors tensors = gpt_weights_for_file(gpt);
  const std::filesystem::path place(folder);
  std::error_code error;
  std::filesystem::create_directories(place, error);
  if (error) throw std::system_error(error, folder + ": cannot be made");
  save_weights((place / "model.safetensors").string(), tensors);
  replace_file((place / "config.json").string(), gpt_configuration_text(gpt->options()));
  return tensors;
}

}  // namespace lockstep::apps
