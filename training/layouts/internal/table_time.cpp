#include "lockstep/training/layouts/internal/table_time.h"

#include <algorithm>

#include "lockstep/training/layouts/internal/axis_links.h"
#include "lockstep/training/layouts/internal/layout_memory.h"

namespace lockstep {
namespace {

constexpr double kRowNumber = 8;  // bytes of a row's number
/// Times that a list of rows' numbers is read or written to find the different ones: a radix sort.
constexpr double kSortPasses = 12;

struct RowTraffic {
  double looked_up = 0;  ///< bytes of values that a replica looks up
  double lookups = 0;    ///< bytes of their numbers
  double numbers = 0;    ///< bytes of the numbers of different rows
  double values = 0;     ///< bytes of these rows
};

RowTraffic traffic_of(const PlannedModel& model, const PlannedTraining& training, double examples) {
  RowTraffic traffic;
  for (const auto& table : model.tables) {
    const double row = table.columns * static_cast<double>(training.parameter_bytes);
    const double distinct = table.distinct_rows(examples);
    traffic.looked_up += examples * table.lookups * row;
    traffic.lookups += examples * table.lookups * kRowNumber;
    traffic.numbers += distinct * kRowNumber;
    traffic.values += distinct * row;
  }
  return traffic;
}

/// Processes that exchange messages with servers, as they lie on machines.
struct Serving {
  double workers = 1, servers = 1;
  double worker_rate = 0, server_rate = 0;  // bytes per second
  double latency = 0;

  /// Of so many bytes of each worker, which all go to or come from the servers, in equal parts.
  double seconds(double bytes) const {
    return latency + std::max(bytes / worker_rate, workers * bytes / servers / server_rate);
  }
};

Serving serving_of(const PlannedCluster& cluster, const PlannedLayout& layout) {
  Serving serving{.workers = static_cast<double>(layout.data),
                  .servers = static_cast<double>(layout.servers)};
  const auto machines = static_cast<double>(cluster.machines());
  const bool is_one_machine = cluster.machines() == 1;
  const auto& link = is_one_machine ? cluster.within : cluster.between;
  serving.latency = 2 * link.latency_seconds;  // a request and its reply
  // Processes of a machine share its link to the others; within a machine, each pair has its own.
  const auto of_each = [&](double processes) {
    return is_one_machine ? 1 : std::max(1.0, processes / machines);
  };
  serving.worker_rate = link.bytes_per_second / of_each(serving.workers);
  serving.server_rate = link.bytes_per_second / of_each(serving.servers);
  return serving;
}

}  // namespace

void add_table_time(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training,
                    const PlannedLayout& layout, LayoutTime& time) {
  const double examples = examples_of_micro_batch(training, layout);
  const RowTraffic own = traffic_of(model, training, examples);
  // Rows are read and written forward; backward reads gradients, and reads and writes sums.
  time.operators += (5 * own.looked_up + kSortPasses * own.lookups) / cluster.bytes_per_second;
  const double touched = 3 + 2 * static_cast<double>(training.optimizer_states);
  const RowTraffic all = traffic_of(model, training, examples * static_cast<double>(layout.replicas()));
  if (layout.servers == 0) {
    time.optimizer += touched * all.values / cluster.bytes_per_second;
    if (layout.replicas() == 1) return;
    const auto replicas = static_cast<double>(layout.replicas());
    const auto ranks = along_axis(cluster, layout, PlannedAxis::kData);
    // Everyone gets the rows of all, and sorts and adds them.
    const double gathered = replicas * (own.values + own.numbers);
    time.rows = gather_seconds(ranks, gathered) +
                replicas * (3 * own.values + kSortPasses * own.numbers) / cluster.bytes_per_second;
    return;
  }
  double dense = 0;
  for (const size_t kind : model.parts)
    dense += model.kinds[kind].elements.sum() * static_cast<double>(training.parameter_bytes);
  const Serving serving = serving_of(cluster, layout);
  const double bytes = dense + own.numbers + own.values;
  // Values to the workers, gradients back; servers copy both.
  time.rows =
      2 * serving.seconds(bytes) + 4 * serving.workers * bytes / serving.servers / cluster.bytes_per_second;
  time.sums = time.gathers = 0;
  time.optimizer = touched * (dense + all.values) / serving.servers / cluster.bytes_per_second;
}

}  // namespace lockstep
