#include "lockstep/apps/plan/plan_ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "lockstep/apps/plan/plan_text.h"
#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/models/gpt/gpt_flops.h"

namespace lockstep::apps {
namespace {

/// Returns the floating-point operations of a step, each once.
double flops_of_step(const PlanOptions& options, const PlannedModel& model) {
  if (options.program == PlannedProgram::kTrainGpt)
    return gpt_training_flops(options.model, options.sequence_length) * tokens_per_step(options);
  double flops = 0;
  for (const size_t kind : model.parts)
    flops += model.kinds[kind].forward.flops.sum() + model.kinds[kind].backward.flops.sum();
  return flops * static_cast<double>(options.training.global_batch);
}

/// Aligns columns: the first ones to the left, and those of numbers to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& is_number) {
  std::vector<size_t> widths(is_number.size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += "  " + (is_number[i] ? fmt::format("{:>{}}", row[i], widths[i])
                                   : fmt::format("{:<{}}", row[i], widths[i]));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

/// A column of the ranking.
struct RankingColumn {
  std::string head;
  bool is_number = false;
  std::function<std::string(const PlannedChoice&)> text;
};

/// The columns of settings that the program's layouts differ in.
std::vector<RankingColumn> setting_columns(const PlanOptions& options) {
  if (options.program == PlannedProgram::kTrainCtr)
    return {{"tables", false, [](const auto& choice) { return placement_text(choice.layout); }},
            {"replicas", true, [](const auto& choice) { return fmt::format("{}", choice.layout.data); }},
            {"rows of each", true, [&](const auto& choice) {
               return fmt::format("{}", micro_batch_size(options.training.global_batch, choice.layout));
             }}};
  std::vector<RankingColumn> columns{
      {"mesh", false, [](const auto& choice) { return choice.layout.mesh(); }},
      {"sharding", true, [](const auto& choice) { return fmt::format("{}", choice.layout.stage); }},
      {"micro-batches", true,
       [&](const auto& choice) {
         return fmt::format("{} x {}", choice.layout.micro_batches,
                            micro_batch_size(options.training.global_batch, choice.layout));
       }},
      {"schedule", false, [](const auto& choice) { return schedule_of(choice.layout); }}};
  if (options.program == PlannedProgram::kTrainGpt)
    columns.push_back(
        {"recompute", false, [](const auto& choice) { return choice.layout.recomputes ? "blocks" : "-"; }});
  return columns;
}

}  // namespace

std::string ranking_text(const PlanOptions& options, const LayoutPlanner& planner,
                         const LayoutSearch& search) {
  const bool is_gpt = options.program == PlannedProgram::kTrainGpt;
  const bool has_products = options.program != PlannedProgram::kTrainCtr;
  auto columns = setting_columns(options);
  columns.push_back(
      {"memory", true, [](const auto& choice) { return gibibytes_text(choice.memory.peak()); }});
  if (options.cluster.server_memory_bytes > 0)
    columns.push_back({"of a server", true, [&](const auto& choice) {
                         return choice.layout.servers == 0
                                    ? "-"
                                    : gibibytes_text(planner.memory_of_ranks(choice.layout).back().peak());
                       }});
  columns.push_back({"step", true, [](const auto& choice) { return seconds_of(choice.time.seconds()); }});
  const double examples =
      is_gpt ? tokens_per_step(options) : static_cast<double>(options.training.global_batch);
  columns.push_back({(is_gpt ? "tokens" : examples_name(options)) + "/s", true, [=](const auto& choice) {
                       return fmt::format("{:.3g}", examples / choice.time.seconds());
                     }});
  const double flops = flops_of_step(options, planner.model()) / static_cast<double>(options.cluster.devices);
  if (has_products)
    columns.push_back({"TFLOP/s", true, [=](const auto& choice) {
                         return fmt::format("{:.3g}", flops / choice.time.seconds() / 1e12);
                       }});
  std::vector<std::vector<std::string>> rows{{"#"}};
  std::vector<bool> is_number{true};
  for (const auto& column : columns) {
    rows.front().push_back(column.head);
    is_number.push_back(column.is_number);
  }
  for (const auto& choice : search.ranked) {
    auto& row = rows.emplace_back(std::vector{fmt::format("{}", rows.size())});
    for (const auto& column : columns) row.push_back(column.text(choice));
  }
  return "\n" + aligned(rows, is_number) +
         (has_products ? "\nTFLOP/s are the model's operations on each device; what is computed twice counts "
                         "once.\n"
                       : "");
}

}  // namespace lockstep::apps
