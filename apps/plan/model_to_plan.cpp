#include "lockstep/apps/plan/model_to_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/apps/plan/plan_flags.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/apps/train_ctr/ctr_plan.h"
#include "lockstep/apps/train_gpt/options/gpt_command_line.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_images/options/read_options.h"
#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kNumbers{.least = 1, .most = 1'000'000'000};
// Of --model gpt.
constexpr int64_t kUsualLength = 1024;
constexpr int64_t kUsualVocabulary = 32000;
constexpr IntegerRange kVocabulary{.least = 1, .most = 4'194'304};

constexpr PlannedProgram kPrograms[] = {PlannedProgram::kTrainGpt, PlannedProgram::kTrainImages,
                                        PlannedProgram::kTrainCtr};

/// Returns the flags that belong to models of the program, besides --model.
std::vector<std::string> flags_of(PlannedProgram program) {
  switch (program) {
    case PlannedProgram::kTrainGpt:
      return {"family",          "layers",          "hidden",          "heads",
              "kv-heads",        "mlp-hidden",      "experts",         "experts-per-token",
              "shared-experts",  "expert-capacity", "sequence-length", "dropout",
              "vocabulary-size", "tokens-per-step"};
    case PlannedProgram::kTrainImages:
      return {"image-size", "head", "classes", "momentum", "optimizer"};
    case PlannedProgram::kTrainCtr:
      break;
  }
  return {"table-rows", "embedding-dim", "server-memory", "optimizer"};
}

PlannedProgram program_of(const std::string& model) {
  for (const auto program : kPrograms) {
    const auto names = planned_model_names(program);
    if (std::find(names.begin(), names.end(), model) != names.end()) return program;
  }
  return PlannedProgram::kTrainGpt;
}

void refuse_flags_of_other_models(const Arguments& given, const PlanOptions& options) {
  const auto own = flags_of(options.program);
  for (const auto program : kPrograms) {
    for (const auto& flag : flags_of(program)) {
      if (!given.has(flag) || std::find(own.begin(), own.end(), flag) != own.end()) continue;
      given.refuse_together(flag,
                            fmt::format("expected it with --model {} only, but got --model {}",
                                        fmt::join(planned_model_names(program), ", "), options.model_name));
    }
  }
}

/// Notes those of the flags that are given and that the program takes, too.
void note_flags(const Arguments& given, const std::vector<std::string>& left_out, PlanOptions& options) {
  auto flags = flags_of(options.program);
  flags.emplace_back("precision");
  for (const auto& flag : flags) {
    if (!given.has(flag) || std::find(left_out.begin(), left_out.end(), flag) != left_out.end()) continue;
    options.model_flags.push_back("--" + flag);
    options.model_flags.push_back(given.text(flag));
  }
}

void read_gpt(const Arguments& given, PlanOptions& options) {
  GptTrainOptions work;
  const std::string& name = options.model_name;
  if (name != kGptModel) read_gpt_model(given, work);
  if (name == kGptModel) {
    for (const std::string flag : {"layers", "hidden", "heads"})
      if (!given.has(flag)) given.refuse_together("model", fmt::format("expected --{} with it", flag));
    read_gpt_sizes(given, work);
    if (work.sequence_length == 0) work.sequence_length = kUsualLength;
  }
  work.vocabulary_size = given.integer("vocabulary-size", kVocabulary, 0);
  const BaseModel base = base_model(work);
  options.sequence_length = sequence_length_of(work, base);
  const int64_t usual = name == kGptModel ? kUsualVocabulary : base.options.vocabulary_size;
  options.model = model_to_train(work, base, work.vocabulary_size != 0 ? work.vocabulary_size : usual);
  if (name != kGptModel && name != kSmallModel) options.model_flags = {"--model", name};
  note_flags(given, {"tokens-per-step"}, options);
  options.training.global_batch =
      given.integer("global-batch-size", kNumbers, GptTrainOptions().global_batch_size);
  if (!given.has("tokens-per-step")) return;
  const int64_t tokens = given.integer("tokens-per-step", {.least = 1, .most = 1'000'000'000'000}, 1);
  if (tokens % options.sequence_length != 0)
    given.refuse("tokens-per-step",
                 fmt::format("a multiple of the sequence length {}", options.sequence_length));
  options.training.global_batch = tokens / options.sequence_length;
}

void read_images(const Arguments& given, PlanOptions& options) {
  read_model(given, options.images);
  read_training(given, options.images);
  options.classes = given.integer("classes", {.least = 1, .most = 1'000'000}, options.classes);
  options.training.global_batch = options.images.global_batch_size;
  options.model_flags = {"--model", options.model_name};
  note_flags(given, {"classes"}, options);
  options.search.choices.with_recomputation = false;
}

void read_clicks(const Arguments& given, PlanOptions& options) {
  read_ctr_work(given, options.clicks);
  options.numbers = options.clicks.precision == CtrPrecision::kFloat64 ? PlannedNumbers::kFloat64
                                                                       : PlannedNumbers::kFloat32;
  options.training = planned_click_training(options.clicks);
  options.model_flags = {"--model", options.model_name};
  note_flags(given, {"server-memory"}, options);
  options.search.choices = click_layout_choices();
}

}  // namespace

std::vector<std::string> planned_model_names(PlannedProgram program) {
  switch (program) {
    case PlannedProgram::kTrainGpt: {
      auto names = gpt_preset_names();
      names.emplace_back(kGptModel);
      return names;
    }
    case PlannedProgram::kTrainImages:
      return {model_name(ModelKind::kSimpleCnn), model_name(ModelKind::kMobileNetV2)};
    case PlannedProgram::kTrainCtr:
      break;
  }
  return {ctr_model_name(CtrModelKind::kWideDeep), ctr_model_name(CtrModelKind::kDlrm)};
}

void read_model_to_plan(const Arguments& given, PlanOptions& options) {
  std::vector<std::string> names;
  for (const auto program : kPrograms)
    for (auto& name : planned_model_names(program)) names.push_back(std::move(name));
  options.model_name = given.name("model", names, kSmallModel);
  options.program = program_of(options.model_name);
  refuse_flags_of_other_models(given, options);
  const PrecisionKind precision = read_precision(given, PrecisionKind::kFloat32);
  options.precision = precision_name(precision);
  options.numbers = planned_numbers(precision);
  if (options.program == PlannedProgram::kTrainGpt) read_gpt(given, options);
  if (options.program == PlannedProgram::kTrainImages) read_images(given, options);
  if (options.program == PlannedProgram::kTrainCtr) read_clicks(given, options);
  options.training.parameter_bytes = parameter_bytes(options.numbers);
}

}  // namespace lockstep::apps
