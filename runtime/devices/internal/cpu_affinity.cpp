#include "lockstep/runtime/devices/internal/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace lockstep {
namespace {

Cpus common(const Cpus& a, const Cpus& b) {
  Cpus both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

Cpus cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};  // more CPUs than cpu_set_t can hold
  Cpus cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void restrict_this_thread(const Cpus& cpus) {
  const Cpus wanted = common(cpus, cpus_of_this_thread());
  if (wanted.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : wanted) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

std::vector<Cpus> cpus_to_keep_to(const std::vector<Cpus>& near, const Cpus& allowed, int threads) {
  std::vector<Cpus> kept;
  for (const Cpus& own : near) {
    Cpus cpus = common(own, allowed);
    const auto sharing = std::count_if(near.begin(), near.end(),
                                       [&](const Cpus& other) { return !common(other, cpus).empty(); });
    if (cpus.size() < static_cast<size_t>(sharing) * static_cast<size_t>(threads)) cpus.clear();
    kept.push_back(std::move(cpus));
  }
  return kept;
}

}  // namespace lockstep
