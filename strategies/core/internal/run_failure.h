#pragma once

#include <exception>
#include <optional>
#include <string>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Collects the errors of one run and keeps the one that caused the others: the first that is neither a
/// CollectiveAborted nor, as a device's failure makes them elsewhere, a BackendError; without one the first
/// BackendError, else the first of all. record() and reason() may be called by several replicas at once.
class RunFailure {
 public:
  /// `first_replica` is the first local replica's id among all.
  explicit RunFailure(int first_replica = 0) : first_replica_(first_replica) {}

  /// `replica` is a local replica, or -1 for an error of the run as a whole.
  void record(int replica, std::exception_ptr error);
  bool happened() const;
  /// What the released replicas are told.
  std::string reason() const;
  /// Throws the kept error: as OutOfMemory or DeviceFailure where it is a device's; where LibTorch threw it
  /// and its replica had a shard of at most one example (on which BatchNorm and some views cannot work), as a
  /// std::runtime_error around it that names the shard's size and drop_remainder; else as it is.
  [[noreturn]] void rethrow(const std::string& strategy, const Devices& devices,
                            const std::optional<BatchSizes>& sizes) const;

 private:
  const int first_replica_;
  mutable Mutex mutex_;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  int replica_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  int weight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of error_
};

}  // namespace lockstep
