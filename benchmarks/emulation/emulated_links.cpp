#include "lockstep/benchmarks/emulation/emulated_links.h"

#include <algorithm>
#include <map>

#include "lockstep/training/layouts/all_reduce_model.h"

namespace lockstep::benchmarks {

EmulatedLinks::EmulatedLinks(const PlannedCluster& cluster)
    : within_(cluster.within),
      between_(cluster.between),
      devices_per_machine_(cluster.devices_per_machine),
      device_ports_(static_cast<size_t>(cluster.devices)),
      machine_ports_(machine_of(static_cast<int>(cluster.devices) - 1) + 1) {}

size_t EmulatedLinks::machine_of(int rank) const {
  return static_cast<size_t>(rank / devices_per_machine_);
}

EmulatedLinks::Moment EmulatedLinks::carry(const Transfer& transfer, const DeviceLink& link,
                                           const std::vector<Moment*>& ports, Moment begin) {
  const double alone = transfer.bytes / link.bytes_per_second;
  double queued = 0;
  for (Moment* port : ports) {
    queued = std::max(queued, std::chrono::duration<double>(*port - begin).count());
    *port = later(std::max(*port, begin), alone);
  }
  // With half of the port, it takes twice as long as alone, unless the other transfer ends before.
  return later(begin, std::min(queued, alone) + alone + transfer.steps * link.latency_seconds);
}

EmulatedLinks::Moment EmulatedLinks::collective(CollectiveKind kind, const std::vector<int>& ranks,
                                                double bytes, Moment begin) {
  std::map<size_t, int> machines;  // with the ranks of each
  for (const int rank : ranks) ++machines[machine_of(rank)];
  const auto most = std::max_element(machines.begin(), machines.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const int local = most->second;
  const int away = static_cast<int>(machines.size());
  const auto all = static_cast<double>(ranks.size());
  Transfer within, between;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      within = {2.0 * (local - 1), ring_bytes(local, bytes)};
      between = {2.0 * (away - 1), ring_bytes(away, bytes)};
      break;
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      within = {1.0 * (local - 1), ring_bytes(local, bytes) / 2};
      between = {1.0 * (away - 1), ring_bytes(away, bytes) / 2};
      break;
    case CollectiveKind::kBroadcast:
      within = {1.0 * (local - 1), local > 1 ? bytes : 0};
      between = {1.0 * (away - 1), away > 1 ? bytes : 0};
      break;
    case CollectiveKind::kExchange:  // Each rank sends a part to each other one.
      within = {1.0 * (local - 1), bytes / all * (local - 1)};
      between = {all - local, bytes / all * local * (all - local)};
      break;
  }
  MutexLock lock(mutex_);
  std::vector<Moment*> ports, shared_ports;
  for (const int rank : ranks) ports.push_back(&device_ports_[static_cast<size_t>(rank)]);
  for (const auto& machine : machines) shared_ports.push_back(&machine_ports_[machine.first]);
  if (local > 1) begin = carry(within, within_, ports, begin);
  if (away > 1) begin = carry(between, between_, shared_ports, begin);
  return begin;
}

EmulatedLinks::Moment EmulatedLinks::message(int from, int to, double bytes, Moment begin) {
  MutexLock lock(mutex_);
  const bool is_within = machine_of(from) == machine_of(to);
  Moment* port = is_within ? &device_ports_[static_cast<size_t>(from)] : &machine_ports_[machine_of(from)];
  return carry({.steps = 1, .bytes = bytes}, is_within ? within_ : between_, {port}, begin);
}

}  // namespace lockstep::benchmarks
