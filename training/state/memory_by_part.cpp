#include "lockstep/training/state/memory_by_part.h"

#include <sys/resource.h>

#include <optional>
#include <string>
#include <unordered_set>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/pending_gradient.h"
#include "lockstep/training/formats/nested_value.h"
#include "lockstep/training/state/internal/gpu_bytes.h"
#include "lockstep/training/state/optimizer_state.h"

namespace lockstep {
namespace {

/// Adds up the memory of tensors, each piece once.
class DistinctMemory {
 public:
  /// Returns the bytes of the tensor's memory, 0 if they were counted before.
  int64_t add(const torch::Tensor& tensor) {
    if (!tensor.defined() || is_pending(tensor)) return 0;
    if (tensor.is_sparse()) return add(tensor._indices()) + add(tensor._values());
    if (!tensor.has_storage()) return 0;
    const auto& storage = tensor.storage();
    if (!seen_.insert(storage.unsafeGetStorageImpl()).second) return 0;
    return static_cast<int64_t>(storage.nbytes());
  }

 private:
  std::unordered_set<const c10::StorageImpl*> seen_;
};

/// Returns nothing if the optimizer is not supported.
std::optional<int64_t> state_bytes(const torch::optim::Optimizer& optimizer, DistinctMemory& memory) {
  int64_t bytes = 0;
  try {
    visit_tensors(StateValue(optimizer_state(optimizer)),
                  [&](const std::string& name, const torch::Tensor& tensor) {
                    // Counts of steps may be made for the state alone.
                    if (!name.ends_with(".step")) bytes += memory.add(tensor);
                  });
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace

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
  for (const auto* optimizer : optimizers) {
    const auto bytes = state_bytes(*optimizer, memory);
    if (!bytes) record.optimizer_state.reset();
    if (record.optimizer_state) *record.optimizer_state += *bytes;
  }
  return record;
}

void add_peak(MemoryRecord& memory, const Strategy& strategy) {
  if (const GpuBytes bytes = bytes_on_gpus(strategy); bytes.peak > 0) {
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
