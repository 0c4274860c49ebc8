#pragma once

#include <exception>
#include <optional>
#include <string>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Collects the errors of one run and keeps the one that caused the others: the first that is neither a
/// CollectiveAborted nor a BackendError, which a device's failure causes on other replicas. If there is none,
/// keeps the first BackendError, otherwise the first error. record() and reason() are thread-safe.
class RunFailure {
 public:
  /// `first_replica` is the global id of the first local replica.
  explicit RunFailure(int first_replica = 0) : first_replica_(first_replica) {}

  /// `replica` is a local replica, or -1 for an error of the whole run.
  void record(int replica, std::exception_ptr error);
  bool happened() const;
  /// Returns the text that released replicas are told.
  std::string reason() const;
  /// Throws the kept error: as OutOfMemory or DeviceFailure if a device caused it; if LibTorch threw it on a
  /// replica with a shard of at most one example (on which BatchNorm and some views cannot work), as a
  /// std::runtime_error that wraps it and names the shard's size and drop_remainder; otherwise unchanged.
  [[noreturn]] void rethrow(const std::string& strategy, const Devices& devices,
                            const std::optional<BatchSizes>& sizes) const;

 private:
  const int first_replica_;
  mutable Mutex mutex_;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  int replica_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  int weight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // weight of error_
};

}  // namespace lockstep
