#include "lockstep/training/state/memory_by_part.h"

#include <sys/resource.h>

#include "lockstep/training/state/internal/device_bytes.h"
#include "lockstep/training/state/internal/distinct_memory.h"
#include "lockstep/training/state/internal/state_memory.h"

namespace lockstep {

MemoryRecord memory_by_part(Strategy& strategy, const std::vector<ModulePointer>& modules,
                            const std::vector<torch::optim::Optimizer*>& optimizers) {
  DistinctMemory memory;
  MemoryRecord record{.optimizer_state = 0};
  if (!optimizers.empty()) {
    for (const auto& bucket : strategy.extended().gradient_buckets(*optimizers[0]))
      record.communication_buckets += memory.add(bucket);
  }
  for (const auto& module : modules) {
    for (const auto& parameter : module->parameters()) {
      record.parameters += memory.add(parameter);
      record.gradients += memory.add(parameter.grad());
    }
    for (const auto& buffer : module->buffers()) record.buffers += memory.add(buffer);
  }
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const auto on_replicas = strategy.extended().optimizers_on_replicas(*optimizers[i]);
    const auto bytes =
        state_bytes(*optimizers[i], i < on_replicas.size() ? on_replicas[i].part : nullptr, memory);
    if (!bytes) record.optimizer_state.reset();
    if (record.optimizer_state) *record.optimizer_state += *bytes;
  }
  return record;
}

void add_peak(MemoryRecord& memory, const Strategy& strategy) {
  if (const AllocatedBytes bytes = bytes_on_accelerators(strategy); bytes.peak > 0) {
    memory.peak = bytes.peak;
    return;
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return;
  constexpr int64_t kUnit = 1024;  // Linux counts in KiB
  memory.peak = usage.ru_maxrss * kUnit;
  memory.is_of_process = true;
}

}  // namespace lockstep
