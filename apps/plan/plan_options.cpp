#include "lockstep/apps/plan/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "lockstep/apps/plan/model_to_plan.h"
#include "lockstep/apps/plan/plan_flags.h"
#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/measurement/gpu_peak.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kDevices{.least = 1, .most = 1'048'576};
template <typename Parse>
double quantity_of(const Arguments& given, const std::string& flag, const Parse& parse, double otherwise) {
  return given.has(flag) ? parse(flag, given.text(flag)) : otherwise;
}

double flops_of_flags(const Arguments& given) {
  if (given.has("flops")) return parse_flop_rate("flops", given.text("flops"));
  if (!given.has("gpu"))
    throw UsageError("--memory: expected --gpu or --flops with it, for machines that are not here");
  const auto precision = read_precision(given, PrecisionKind::kFloat32);
  const auto peak = measurement::gpu_peak_flops(given.text("gpu"), matrix_numbers(precision));
  if (!peak)
    given.refuse(
        "gpu", fmt::format("a GPU with a known speed for {}; --flops takes any", precision_name(precision)));
  constexpr double kReached = 0.5;
  return *peak * given.factor("efficiency", kReached);
}

void read_machine(const Arguments& given, PlanOptions& options) {
  PlannedCluster& cluster = options.cluster;
  options.is_here = !given.has("gpu") && !given.has("flops");
  options.has_gpus = given.has("gpu");
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  cluster.devices = given.integer("devices", kDevices, options.is_here ? cores : 8);
  const double memory = quantity_of(given, "memory", parse_bytes, 0);
  constexpr double kReservedShare = 0.05;
  const double reserve = quantity_of(given, "reserve", parse_bytes, kReservedShare * memory);
  if (memory > 0) {
    if (reserve >= memory) given.refuse("reserve", "less than --memory");
    cluster.memory_bytes = memory - reserve;
  }
  cluster.server_memory_bytes = quantity_of(given, "server-memory", parse_bytes, 0);
  constexpr int64_t kUsualDevices = 8;
  cluster.devices_per_machine = options.is_here && !given.has("gpus-per-machine")
                                    ? cluster.devices
                                    : given.integer("gpus-per-machine", kDevices, kUsualDevices);
  cluster.devices_per_machine = std::min(cluster.devices_per_machine, cluster.devices);
  if (cluster.devices % cluster.devices_per_machine != 0)
    given.refuse_together(
        given.has("devices") ? "devices" : "gpus-per-machine",
        fmt::format("expected a multiple of the {} of --gpus-per-machine", cluster.devices_per_machine));
  constexpr double kMachineLatency = 10e-6, kLocalLatency = 5e-6, kOperator = 5e-6;
  constexpr double kLink = 25e9, kLocalLink = 200e9, kBandwidth = 2e12;
  cluster.between = {
      quantity_of(given, "link-latency", parse_seconds, kMachineLatency),
      quantity_of(given, "link", parse_byte_rate, kLink) * static_cast<double>(cluster.devices_per_machine)};
  cluster.within = {
      quantity_of(given, "link-within-latency", parse_seconds, options.is_here ? 0 : kLocalLatency),
      quantity_of(given, "link-within", parse_byte_rate, options.is_here ? 0 : kLocalLink)};
  cluster.bytes_per_second =
      quantity_of(given, "memory-bandwidth", parse_byte_rate, options.is_here ? 0 : kBandwidth);
  cluster.operator_seconds =
      quantity_of(given, "operator-time", parse_seconds, options.is_here ? 0 : kOperator);
  cluster.flops_per_second = options.is_here ? 0 : flops_of_flags(given);
  if (!options.is_here && memory == 0)
    throw UsageError(
        "--memory: expected the memory of a device, such as 80GiB, for machines that are not here");
}

}  // namespace

PlanCommandLine parse_plan_command_line(const std::vector<std::string>& arguments) {
  const FlagTable table = plan_flags();
  const Arguments given = parse_arguments(table, arguments);
  PlanCommandLine line;
  if (given.is_on("help")) {
    line.action = PlanCommandLine::Action::kHelp;
    return line;
  }
  if (given.is_on("version")) {
    line.action = PlanCommandLine::Action::kVersion;
    return line;
  }
  given.check_alternatives(table);
  given.check_needs(table);
  read_model_to_plan(given, line.options);
  read_machine(given, line.options);
  line.options.search.most_ranked =
      static_cast<size_t>(given.integer("top", {.least = 1, .most = 100'000}, 10));
  line.options.search.mesh = given.text("mesh", "");
  line.options.json = given.text("json", "");
  line.options.svg = given.text("svg", "");
  return line;
}

}  // namespace lockstep::apps
