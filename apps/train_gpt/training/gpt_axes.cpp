#include "lockstep/apps/train_gpt/training/gpt_axes.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/models/gpt/gpt_cut.h"

namespace lockstep::apps {
namespace {

constexpr const char* kTensorAxis = "tensor";
constexpr const char* kExpertAxis = "expert";

/// A size of a model that ranks divide.
struct CutSize {
  const char* option;
  const char* flag;
  const char* things;
};

constexpr CutSize kCutSizes[] = {{"num_heads", "--heads", "heads"},
                                 {"num_key_value_heads", "--kv-heads", "heads of keys and values"},
                                 {"hidden_width", "--mlp-hidden", "hidden features of an MLP"},
                                 {"vocabulary_size", "--vocabulary-size", "tokens of the vocabulary"}};

int64_t ranks_along(const Mesh& mesh, const std::string& name) {
  for (const auto& axis : mesh.axes())
    if (axis.name == name) return axis.size;
  return 1;
}

/// Returns the numbers of ranks that divide all sizes.
std::vector<int64_t> ranks_that_would_do(const GptOptions& model) {
  std::vector<int64_t> ranks;
  for (int64_t count = 1; count <= model.num_heads; ++count)
    if (!uncut_gpt_size(model, count)) ranks.push_back(count);
  return ranks;
}

}  // namespace

std::string axis_of_parts(const Mesh& mesh) {
  for (const auto& axis : mesh.axes())
    if (axis.name == kTensorAxis && axis.role == AxisRole::kModel && axis.size > 1) return axis.name;
  return "";
}

std::string axis_of_experts(const Mesh& mesh) {
  for (const auto& axis : mesh.axes())
    if (axis.name == kExpertAxis && axis.role == AxisRole::kData && axis.size > 1) return axis.name;
  return "";
}

void check_experts(const Strategy& strategy, const GptOptions& model) {
  const Mesh& mesh = strategy.mesh();
  const std::string name = axis_of_experts(mesh);
  if (name.empty()) return;
  if (model.num_experts == 0) {
    throw UsageError(c10::str("--mesh ", mesh.str(), ": expected --experts with the axis ", name,
                              ", whose ranks share the experts of each layer"));
  }
  const int64_t ranks = ranks_along(mesh, name);
  if (model.num_experts % ranks != 0) {
    const int64_t below = model.num_experts / ranks * ranks;
    throw UsageError(c10::str("--experts ", model.num_experts, ": expected a number that the ", ranks,
                              " ranks along the axis ", name, " of --mesh ", mesh.str(), " divide: ",
                              below > 0 ? c10::str(below, " or ") : "", below + ranks, " would do"));
  }
  const auto& sharding = strategy.sharding();
  if (sharding.stage == 1 || sharding.stage == 2) {
    throw UsageError(c10::str("--sharding ", sharding.stage, ": expected 0 or 3 with the axis ", name,
                              " of --mesh ", mesh.str(), ", whose ranks have parts of the parameters"));
  }
  if (sharding.stage == 3 && sharding.axis != name) {
    throw UsageError(c10::str("--sharding 3: expected a --mesh whose last axis is ", name, ", but got ",
                              mesh.str(), ": parameters are divided along the axis of the experts"));
  }
}

void check_axes(const Mesh& mesh, const GptTrainOptions& options, const BaseModel& base,
                const GptOptions& model) {
  const std::string name = axis_of_parts(mesh);
  for (const auto& axis : mesh.axes()) {
    if (axis.role != AxisRole::kModel || axis.size == 1 || axis.name == name) continue;
    throw UsageError(c10::str("--mesh ", mesh.str(), ": expected ", kTensorAxis,
                              " as the only axis along which the model is cut, but got ", axis.name));
  }
  if (name.empty()) return;
  const int64_t ranks = ranks_along(mesh, name);
  const auto uncut = uncut_gpt_size(model, ranks);
  if (!uncut) return;
  const auto& size = *std::find_if(std::begin(kCutSizes), std::end(kCutSizes),
                                   [&](const CutSize& cut) { return cut.option == uncut->option; });
  const bool is_of_language = is_generated(options) && uncut->option == "vocabulary_size";
  if (base.is_of_file || is_of_language) {  // No flag changes the size.
    throw UsageError(c10::str("--mesh ", mesh.str(), ": expected ranks along the axis ", name,
                              " that divide the ", uncut->given, " ", size.things, " of ",
                              is_of_language ? "the generated language" : base.name, ", but got ", ranks,
                              ": ", c10::Join(" or ", ranks_that_would_do(model)), " would do"));
  }
  throw UsageError(c10::str(size.flag, " ", uncut->given, ": expected a number that the ", ranks,
                            " ranks along the axis ", name, " of --mesh ", mesh.str(),
                            " divide: ", would_do_text(*uncut)));
}

void check_sequence_parallel(const Mesh& mesh, const GptTrainOptions& options, int64_t sequence_length) {
  if (!options.sequence_parallel) return;
  const std::string name = axis_of_parts(mesh);
  if (name.empty()) {
    throw UsageError(c10::str("--sequence-parallel: expected a --mesh with several ranks along the axis ",
                              kTensorAxis, ", but got ", mesh.str()));
  }
  const int64_t ranks = ranks_along(mesh, name);
  if (sequence_length % ranks == 0) return;
  const int64_t below = sequence_length / ranks * ranks;
  throw UsageError(c10::str("--sequence-length ", sequence_length, ": expected a number that the ", ranks,
                            " ranks along the axis ", name, " divide, because of --sequence-parallel: ",
                            below > 0 ? c10::str(below, " or ") : "", below + ranks, " would do"));
}

}  // namespace lockstep::apps
