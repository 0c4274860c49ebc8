#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// A caller's mistake. The message says what was expected, what was given, and names the flag, device or
/// tensor.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Thrown out of a collective whose other replicas cannot come any more: one of them threw, returned without
/// joining, or the wait timed out. `run` reports the error that caused it rather than this one, where there
/// is one.
class CollectiveAborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The replicas called different collectives, or the same with different shapes. Names the operation, its
/// sequence number and both shapes.
class CollectiveMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A backend that others made, such as NCCL, failed by itself: it could not connect its ranks, or a
/// collective of it went wrong. Names the cross-device op, the replica, its device, and what the backend
/// said. It may show after the collective has returned; what the run computed is not to be trusted then.
class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The replicas no longer hold the same state: a failed run let some of them finish a step and others not, or
/// cut off sums that steps were made by. Strategy::restore_consistency() repairs it where a replica is left
/// with a good state.
class InconsistentReplicas : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A replica's device had no memory left. Names the replica, the device, and the bytes wanted and free as far
/// as LibTorch says them.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A GPU reported an error, which may have arisen in earlier work of the replica's. Names the replica and the
/// device. CUDA lets no process use a GPU again after most of them.
class DeviceFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The worker processes of a job could not come together, or do not fit together: they were started with
/// other clusters, options, models or data. Names the address, or both ranks and what differs.
class ClusterError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Another worker process of the job is gone, frozen, cut off, or has given up. Names its rank and host, and
/// what is known of the cause.
class PeerLost : public ClusterError {
 public:
  using ClusterError::ClusterError;
};

/// What a program of Lockstep's returns to its shell.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,  ///< usage or cluster configuration
  kData = 3,
  kCheckpoint = 4,
  kPeer = 5,     ///< peer or cluster
  kNumbers = 6,  ///< NaN, or replicas that drifted apart
  kResources = 7,
  kInterrupted = 130,
  kTerminated = 143,
};

}  // namespace lockstep
