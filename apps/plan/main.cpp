#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/apps/plan/memory_chart.h"
#include "lockstep/apps/plan/plan_flags.h"
#include "lockstep/apps/plan/plan_json.h"
#include "lockstep/apps/plan/plan_options.h"
#include "lockstep/apps/plan/plan_report.h"
#include "lockstep/apps/shared/exit_code.h"
#include "lockstep/apps/shared/planning/measured_rates.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/torch_program.h"
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
  replace_file(options.svg, memory_chart_svg({.title = "Memory of each device: " + best.mesh() +
                                                       ", sharding " + std::to_string(best.stage) +
                                                       (options.is_here ? "" : " (arithmetic)"),
                                              .ranks = planner.memory_of_ranks(best),
                                              .devices_per_stage = best.ranks() / best.pipeline,
                                              .limit = planner.cluster().memory_bytes}));
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
  const LayoutPlanner planner(planned_gpt(options.model, options.sequence_length, options.numbers),
                              options.cluster, options.training);
  const auto began = std::chrono::steady_clock::now();
  const LayoutSearch search = search_layouts(planner, options.search);
  options.search_seconds = measurement::seconds_since(began);
  print(plan_report(options, search));
  write_files(options, planner, search);
  return static_cast<int>(search.ranked.empty() ? ExitCode::kResources : ExitCode::kOk);
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_torch_program("plan", argc, argv, lockstep::apps::run_action);
}
