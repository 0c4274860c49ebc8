#include "lockstep/apps/train_gpt/training/gpt_axes.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
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

/// Checks what a model of which the ranks along the axis `name` have different tokens cannot do.
void check_tokens_axis(const Mesh& mesh, const std::string& name, const GptTrainOptions& options,
                       const GptOptions& model) {
  const bool exchanges_heads = options.context_attention == GptContextAttention::kAllToAll;
  if (name.empty()) {
    if (!exchanges_heads) return;
    throw UsageError(
        c10::str("--context-attention all_to_all: expected a --mesh with several ranks along the "
                 "axis context, but got ",
                 mesh.str()));
  }
  refuse_other_axes(mesh, AxisRole::kContext, {name},
                    name + " as the only axis along which sequences are cut");
  if (options.dropout > 0) {
    throw UsageError(c10::str("--dropout ", options.dropout, ": expected 0 with --mesh ", mesh.str(),
                              ", as ranks along the axis ", name, " have different tokens"));
  }
  const int64_t parts = ranks_along(mesh, axis_of_parts(mesh));
  const int64_t ranks = ranks_along(mesh, name);
  const int64_t unit = parts * ranks;
  if (!exchanges_heads || model.num_heads % unit == 0) return;
  const int64_t below = model.num_heads / unit * unit;
  throw UsageError(c10::str("--context-attention all_to_all: expected ",
                            parts == 1 ? "heads" : "heads of each part", " that the ", ranks,
                            " ranks along the axis ", name, " of --mesh ", mesh.str(), " divide, but got ",
                            model.num_heads / parts, ": --heads ", below > 0 ? c10::str(below, " or ") : "",
                            below + unit, " would do, as does ring"));
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

void plan_pipeline(const Strategy& strategy, const GptTrainOptions& options, GptPlan& plan) {
  const Mesh& mesh = strategy.mesh();
  if (axis_of_pipeline(mesh).empty()) return refuse_schedule_without_stages(mesh, options);
  if (options.cuda_graph) refuse_with_stages(mesh, "--cuda-graph", "no CUDA graph");
  // The embeddings and the head are parts, too.
  const int64_t stages = num_stages(mesh, options);
  if (plan.model.num_layers + 2 < stages) {
    throw UsageError(c10::str("--layers ", plan.model.num_layers, ": expected at least ", stages - 2,
                              " for the ", stages, " stages of --mesh ", mesh.str(),
                              " and --pipeline-schedule ", options.pipeline_schedule));
  }
  const int64_t replicas = strategy.num_replicas_in_sync();
  plan.micro_batches =
      micro_batches_of_stages(mesh, options,
                              {.largest = (plan.global_batch_size + replicas - 1) / replicas,
                               .micro_batches = options.micro_batch_size == 0 ? 0 : plan.micro_batches});
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
  if (sharding.stage == 3 && sharding.axis != name) {
    throw UsageError(c10::str("--sharding 3: expected a --mesh whose last axis is ", name, ", but got ",
                              mesh.str(), ": parameters are divided along the axis of the experts"));
  }
}

std::string axis_of_tokens(const Mesh& mesh) {
  for (const auto& axis : mesh.axes())
    if (axis.role == AxisRole::kContext && axis.size > 1) return axis.name;
  return "";
}

void check_axes(const Mesh& mesh, const GptTrainOptions& options, const BaseModel& base,
                const GptOptions& model) {
  const std::string name = axis_of_parts(mesh);
  refuse_other_axes(
      mesh, AxisRole::kModel, {kTensorAxis, kPipelineAxis},
      c10::str(kTensorAxis, " and ", kPipelineAxis, " as the only axes along which the model is cut"));
  const int64_t ranks = ranks_along(mesh, name);
  const auto uncut = name.empty() ? std::nullopt : uncut_gpt_size(model, ranks);
  if (!uncut) return check_tokens_axis(mesh, axis_of_tokens(mesh), options, model);
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
  const std::string tokens = axis_of_tokens(mesh);
  const int64_t parts = ranks_along(mesh, name);
  const int64_t contexts = ranks_along(mesh, tokens);
  const int64_t unit = parts * contexts;
  if (sequence_length % unit == 0) return;
  const int64_t below = sequence_length / unit * unit;
  throw UsageError(c10::str(
      "--sequence-length ", sequence_length, ": expected a number that the ", parts, " ranks along the axis ",
      name, contexts == 1 ? "" : c10::str(" and the ", contexts, " along ", tokens),
      " divide, because of --sequence-parallel: ", below > 0 ? c10::str(below, " or ") : "", below + unit,
      " would do"));
}

}  // namespace lockstep::apps
