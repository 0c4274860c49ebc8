#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/apps/plan/memory_chart.h"
#include "lockstep/apps/plan/plan_flags.h"
#include "lockstep/apps/plan/plan_json.h"
#include "lockstep/apps/plan/plan_options.h"
#include "lockstep/apps/plan/plan_report.h"
#include "lockstep/apps/plan/plan_text.h"
#include "lockstep/apps/shared/exit_code.h"
#include "lockstep/apps/shared/planning/click_parts.h"
#include "lockstep/apps/shared/planning/gpt_parts.h"
#include "lockstep/apps/shared/planning/image_parts.h"
#include "lockstep/apps/shared/planning/measured_rates.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/apps/train_ctr/ctr_plan.h"
#include "lockstep/apps/train_images/training/image_layout.h"
#include "lockstep/measurement/seconds_since.h"
#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep::apps {
namespace {

/// Completes the machines' numbers by those of this one.
void complete_cluster(PlanOptions& options) {
  PlannedCluster& cluster = options.cluster;
  if (!options.is_here) return;
  measure_rates(options.numbers, cluster);
  if (std::isinf(cluster.memory_bytes))
    cluster.memory_bytes = memory_of_machine() / static_cast<double>(cluster.devices);
}

void write_files(const PlanOptions& options, const LayoutPlanner& planner, const LayoutSearch& search) {
  if (!options.json.empty()) replace_file(options.json, plan_json(options, planner, search));
  if (options.svg.empty() || search.ranked.empty()) return;
  const auto& best = search.ranked.front().layout;
  const bool has_servers = best.servers > 0;
  const std::string layout = has_servers ? "tables " + placement_text(best)
                                         : best.mesh() + ", sharding " + std::to_string(best.stage);
  const double limit =
      has_servers && planner.cluster().server_memory_bytes > 0 ? 0 : planner.cluster().memory_bytes;
  replace_file(options.svg, memory_chart_svg({.title = "Memory of each device: " + layout +
                                                       (options.is_here ? "" : " (arithmetic)"),
                                              .ranks = planner.memory_of_ranks(best),
                                              .devices_per_stage = best.ranks() / best.pipeline,
                                              .limit = limit,
                                              .has_servers = has_servers}));
}

LayoutPlanner make_planner(const PlanOptions& options) {
  switch (options.program) {
    case PlannedProgram::kTrainGpt:
      return LayoutPlanner(planned_gpt(options.model, options.sequence_length, options.numbers),
                           options.cluster, options.training);
    case PlannedProgram::kTrainImages:
      return image_planner(planned_image_model(options.images, options.classes), options.cluster,
                           options.training.global_batch);
    case PlannedProgram::kTrainCtr:
      break;
  }
  return LayoutPlanner(planned_clicks(planned_click_model(options.clicks)), options.cluster,
                       options.training);
}

int run_action(const std::string& program, const std::vector<std::string>& arguments) {
  auto [action, options] = parse_plan_command_line(arguments);
  if (action == PlanCommandLine::Action::kHelp) {
    print(plan_help_text(program));
    return 0;
  }
  if (action == PlanCommandLine::Action::kVersion) {
    print("plan " LOCKSTEP_VERSION "\n");
    return 0;
  }
  complete_cluster(options);
  const LayoutPlanner planner = make_planner(options);
  const auto began = std::chrono::steady_clock::now();
  const LayoutSearch search = search_layouts(planner, options.search);
  options.search_seconds = measurement::seconds_since(began);
  print(plan_report(options, planner, search));
  write_files(options, planner, search);
  return static_cast<int>(search.ranked.empty() ? ExitCode::kResources : ExitCode::kOk);
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_torch_program("plan", argc, argv, lockstep::apps::run_action);
}
