#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"

#include <fmt/format.h>

#include "lockstep/apps/shared/command_line/number_argument.h"

namespace lockstep::apps {
namespace {

constexpr const char* kInterleaved = "interleaved";
constexpr IntegerRange kStagesOfRank{.least = 1, .most = 1'000'000'000};

}  // namespace

Flag pipeline_schedule_flag() {
  return {
      "Training",
      "pipeline-schedule",
      "NAME",
      "With the axis pipeline of --mesh, along which the ranks have consecutive layers: the order in which "
      "they compute micro batches: gpipe, 1f1b, interleaved, zb-h1 or zb-v. The result is the same",
      PipelineChoice().pipeline_schedule,
      FlagRole::kOperation};
}

Flag stages_per_rank_flag() {
  return {"Training",
          "stages-per-rank",
          "N",
          "Parts of the model on each rank, with --pipeline-schedule interleaved",
          fmt::format("{}", PipelineChoice().stages_per_rank),
          FlagRole::kOperation};
}

Flag pipeline_cut_flag() {
  return {"Training",
          "pipeline-cut",
          "NAME",
          "With the axis pipeline of --mesh: cut the model into stages of about as many multiplications "
          "(operations), or of about the same time, which is measured before the training (time). The result "
          "is the same",
          PipelineChoice().pipeline_cut,
          FlagRole::kOperation};
}

void read_pipeline(const Arguments& given, PipelineChoice& choice) {
  choice.pipeline_schedule = given.choice<std::string>("pipeline-schedule",
                                                       {{"gpipe", "gpipe"},
                                                        {"1f1b", "1f1b"},
                                                        {kInterleaved, kInterleaved},
                                                        {"zb-h1", "zb-h1"},
                                                        {"zb-v", "zb-v"}},
                                                       choice.pipeline_schedule);
  choice.stages_per_rank = given.integer("stages-per-rank", kStagesOfRank, choice.stages_per_rank);
  if (given.has("stages-per-rank") && choice.pipeline_schedule != kInterleaved)
    given.refuse_together("stages-per-rank", "expected it with --pipeline-schedule interleaved only");
  choice.pipeline_cut = given.choice<std::string>(
      "pipeline-cut", {{"operations", "operations"}, {"time", "time"}}, choice.pipeline_cut);
}

settings::NamedValues pipeline_values(const PipelineChoice& choice) {
  return {
      {"pipeline-schedule", choice.pipeline_schedule},
      {"stages-per-rank", settings::where(choice.pipeline_schedule == kInterleaved, choice.stages_per_rank)},
      {"pipeline-cut", choice.pipeline_cut}};
}

}  // namespace lockstep::apps
