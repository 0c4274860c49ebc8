#include "lockstep/apps/train_gpt/training/gpt_weights_choice.h"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/training/checkpoints/weights_file.h"

namespace lockstep::apps {

LoadReport load_initial_weights(const GptTrainOptions& options, Mirrored<Gpt>& model) {
  const std::string& path = options.init_weights;
  std::error_code ignored;
  if (std::filesystem::exists(path + "/model.safetensors.index.json", ignored))
    throw CheckpointError("--init-weights " + path +
                          ": expected model.safetensors, but got a model that is split into several files");
  if (configuration_of_weights(path).empty()) return init_weights(model, path, {.strict = true});
  const std::string file = std::filesystem::is_directory(path, ignored) ? path + "/model.safetensors" : path;
  const auto tensors = load_weights(file);
  try {
    return load_state_dict(model, gpt_weights_from_file(model.primary()->options(), tensors, file),
                           {.strict = true, .source = file});
  } catch (const std::invalid_argument& error) {
    throw CheckpointError(error.what());
  }
}

}  // namespace lockstep::apps
