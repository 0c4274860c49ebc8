#include "lockstep/training/planning/internal/rank_allocations.h"

#include <utility>

namespace lockstep {

void RankAllocations::add(const void* memory, const StepLog& owner) {
  const MutexLock lock(mutex_);
  owners_[memory] = &owner;
}

void RankAllocations::remove(const void* memory) {
  const MutexLock lock(mutex_);
  owners_.erase(memory);
}

void RankAllocations::free_elsewhere(const void* memory) {
  const MutexLock lock(mutex_);
  const auto found = owners_.find(memory);
  if (found == owners_.end()) return;
  freed_[found->second].push_back(memory);
  owners_.erase(found);
}

std::vector<const void*> RankAllocations::take_freed(const StepLog& owner) {
  const MutexLock lock(mutex_);
  const auto found = freed_.find(&owner);
  return found == freed_.end() ? std::vector<const void*>() : std::exchange(found->second, {});
}

void RankAllocations::forget(const StepLog& owner) {
  const MutexLock lock(mutex_);
  freed_.erase(&owner);
  std::erase_if(owners_, [&](const auto& one) { return one.second == &owner; });
}

}  // namespace lockstep
