#pragma once

#include <unordered_map>
#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

class StepLog;

/// The memory that ranks of this process, each in its own thread, have allocated in steps that are recorded
/// at the same time. One may free what another one has allocated, such as a message.
///
/// Thread-safe.
class RankAllocations {
 public:
  void add(const void* memory, const StepLog& owner);
  /// Call it if the owner itself frees it.
  void remove(const void* memory);
  /// Call it if another thread frees it; memory that nobody has added is ignored.
  void free_elsewhere(const void* memory);
  /// Returns what other threads have freed of the owner's since the last call.
  std::vector<const void*> take_freed(const StepLog& owner);
  /// Forgets all of the owner's.
  void forget(const StepLog& owner);

 private:
  Mutex mutex_;
  std::unordered_map<const void*, const StepLog*> owners_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<const StepLog*, std::vector<const void*>> freed_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
