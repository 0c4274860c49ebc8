#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Collects the errors of one run and keeps the one that caused the others: the first that is neither a
/// CollectiveAborted nor a BackendError, which a device's failure causes on other replicas. If there is none,
/// keeps the first BackendError, otherwise the first error. record() and reason() are thread-safe.
class RunFailure {
 public:
  /// `first_replica` is the number of the first local rank. `run` is the number of the strategy's earlier
  /// runs. With a `mesh` along which models are cut, which must outlive it, errors name ranks by their
  /// coordinates.
  explicit RunFailure(int first_replica = 0, int64_t run = 0, const Mesh* mesh = nullptr)
      : first_replica_(first_replica), run_(run), mesh_(mesh) {}

  /// `replica` is a local replica, or -1 for an error of the whole run.
  void record(int replica, std::exception_ptr error);
  bool happened() const;
  /// Returns the text that released replicas are told.
  std::string reason() const;
  /// Throws the kept error: as OutOfMemory or DeviceFailure if a device caused it; a CollectiveMismatch with
  /// the number of the run; if LibTorch threw it on a replica with a shard of at most one example (on which
  /// BatchNorm and some views cannot work), as a std::runtime_error that wraps it and names the shard's size
  /// and the ways out; otherwise unchanged.
  [[noreturn]] void rethrow(const std::string& strategy, const Devices& devices,
                            const std::optional<BatchSizes>& sizes) const;

 private:
  std::string name_of(int local) const;

  const int first_replica_;
  const int64_t run_;
  const Mesh* const mesh_;
  mutable Mutex mutex_;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  int replica_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  int weight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // weight of error_
};

}  // namespace lockstep
