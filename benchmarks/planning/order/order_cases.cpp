#include <string>
#include <utility>

#include "lockstep/apps/shared/planning/gpt_parts.h"
#include "lockstep/apps/shared/planning/measured_rates.h"
#include "lockstep/benchmarks/planning/order/order_case.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kMicrosecond = 1e-6;
constexpr double kMegabyte = 1e6;

/// A small model, whose products take a hundredth of a second on a real core.
GptOptions small_gpt(int64_t layers, int64_t width, int64_t length) {
  return {.vocabulary_size = 64, .max_length = length, .num_layers = layers, .num_heads = 8, .width = width};
}

/// Devices that together compute four billion operations in a second.
PlannedCluster devices(int64_t count, double megabytes_per_second, double latency_microseconds) {
  return {.devices = count,
          .devices_per_machine = count,
          .flops_per_second = 4e9 / static_cast<double>(count),
          .bytes_per_second = 8e9 / static_cast<double>(count),
          .operator_seconds = 10 * kMicrosecond,
          .within = {.latency_seconds = latency_microseconds * kMicrosecond,
                     .bytes_per_second = megabytes_per_second * kMegabyte}};
}

PlannedCluster with_memory(PlannedCluster cluster, double megabytes) {
  cluster.memory_bytes = megabytes * kMegabyte;
  return cluster;
}

/// Divides the devices among machines with a slower link between them.
PlannedCluster on_machines(PlannedCluster cluster, int64_t machines, double megabytes_per_second,
                           double latency_microseconds) {
  cluster.devices_per_machine = cluster.devices / machines;
  cluster.between = {.latency_seconds = latency_microseconds * kMicrosecond,
                     .bytes_per_second = megabytes_per_second * kMegabyte};
  return cluster;
}

PlannedTraining batches_of(int64_t examples, int64_t optimizer_states = 0) {
  return {.global_batch = examples,
          .optimizer_states = optimizer_states,
          .first_bucket_bytes = int64_t{32} << 10,
          .bucket_bytes = int64_t{128} << 10};
}

OrderCase emulated(std::string name, const GptOptions& model, const PlannedTraining& training,
                   const PlannedCluster& cluster) {
  return {.name = std::move(name),
          .model = model,
          .length = model.max_length,
          .training = training,
          .cluster = cluster};
}

/// This machine with two replicas, whose rates are measured.
OrderCase real(std::string name, const GptOptions& model, int64_t examples, double megabytes = 0) {
  OrderCase order_case = emulated(std::move(name), model, {.global_batch = examples}, {});
  order_case.is_emulated = false;
  auto& cluster = order_case.cluster;
  cluster.devices = cluster.devices_per_machine = 2;
  cluster.flops_per_second = cluster.bytes_per_second = cluster.within.bytes_per_second = 0;
  if (megabytes > 0) cluster.memory_bytes = megabytes * kMegabyte;
  return order_case;
}

}  // namespace

std::vector<OrderCase> order_cases() {
  return {
      emulated("2 devices, fast link", small_gpt(4, 64, 32), batches_of(16), devices(2, 1000, 50)),
      emulated("2 devices, slow link", small_gpt(4, 64, 32), batches_of(16), devices(2, 4, 500)),
      emulated("2 devices, 1 example", small_gpt(4, 64, 128), batches_of(1), devices(2, 100, 50)),
      emulated("4 devices, fast link", small_gpt(6, 64, 32), batches_of(32), devices(4, 1000, 50)),
      emulated("4 devices, slow link", small_gpt(6, 64, 32), batches_of(32), devices(4, 4, 500)),
      emulated("4 devices, medium link", small_gpt(6, 64, 32), batches_of(16), devices(4, 20, 200)),
      emulated("4 devices, wide layers, 2 examples", small_gpt(3, 128, 32), batches_of(2),
               devices(4, 200, 50)),
      emulated("4 devices, long sequence", small_gpt(3, 64, 512), batches_of(1), devices(4, 100, 50)),
      emulated("4 devices, Adam in 4 MB", small_gpt(6, 64, 32), batches_of(16, 2),
               with_memory(devices(4, 200, 50), 4)),
      emulated("4 devices, Adam in 2.5 MB", small_gpt(6, 64, 32), batches_of(16, 2),
               with_memory(devices(4, 200, 50), 2.5)),
      emulated("2 machines with 2 devices", small_gpt(6, 64, 32), batches_of(32),
               on_machines(devices(4, 500, 50), 2, 8, 500)),
      emulated("8 devices, fast link", small_gpt(6, 64, 32), batches_of(32), devices(8, 500, 50)),
      emulated("2 machines with 4 devices", small_gpt(6, 64, 32), batches_of(16),
               on_machines(devices(8, 500, 50), 2, 10, 500)),
      emulated("8 devices, 4 examples", small_gpt(6, 64, 64), batches_of(4), devices(8, 200, 50)),
      real("this machine, 4 layers of 128", small_gpt(4, 128, 64), 16),
      real("this machine, 2 layers of 256, 8 examples", small_gpt(2, 256, 64), 8),
      real("this machine, 12 layers of 64", small_gpt(12, 64, 64), 16),
      real("this machine, 1 example", small_gpt(4, 128, 256), 1),
      real("this machine in 20 MB", small_gpt(4, 128, 64), 16, 20),
      real("this machine in 14 MB", small_gpt(4, 128, 64), 16, 14),
  };
}

LayoutPlanner planner_of(const OrderCase& order_case) {
  constexpr auto kNumbers = apps::PlannedNumbers::kFloat32;
  PlannedCluster cluster = order_case.cluster;
  if (!order_case.is_emulated) apps::measure_rates(kNumbers, cluster);
  return {apps::planned_gpt(order_case.model, order_case.length, kNumbers), cluster, order_case.training};
}

}  // namespace lockstep::benchmarks
