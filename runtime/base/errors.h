#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// A caller made a mistake. The message says what was expected and what was given, and names the flag, device
/// or tensor.
///
/// Example:
///
///     try {
///       MirroredStrategy strategy({"gpu:9"});
///     } catch (const lockstep::InvalidArgument& error) {
///       std::cerr << error.what() << '\n';  // names gpu:9 and the devices that are available
///     }
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A collective cannot finish because another replica threw or did not arrive within the timeout. If another
/// error caused it, Strategy::run() throws that error instead.
///
/// Example:
///
///     try {
///       strategy.run(train_step, model, optimizer, batch);
///     } catch (const lockstep::CollectiveAborted& error) {
///       std::cerr << error.what() << '\n';  // names the replicas that are missing
///     }
class CollectiveAborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Replicas called different collectives, or the same with different shapes, or one returned too early. The
/// message names the run, the replicas, the operation, its sequence number and the shapes.
///
/// Example:
///
///     try {
///       strategy.run(train_step, model, optimizer, batch);
///     } catch (const lockstep::CollectiveMismatch& error) {
///       std::cerr << error.what() << '\n';
///     }
class CollectiveMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A third-party backend, such as NCCL, failed: it could not connect its ranks, or one of its collectives
/// went wrong. The message names the cross-device op, the replica, its device and the backend's own error. It
/// may be thrown after the collective has returned; do not trust the results of that run.
///
/// Example:
///
///     try {
///       MirroredStrategy strategy({}, {.cross_device_ops = std::make_shared<NcclAllReduce>()});
///     } catch (const lockstep::BackendError& error) {
///       std::cerr << error.what() << '\n';
///     }
class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The replicas no longer hold the same state: a failed run let only some of them finish a step, or cut off
/// sums that steps had used. Strategy::restore_consistency() repairs it if at least one replica still has a
/// good state.
///
/// Example:
///
///     try {
///       strategy.run(train_step, model, optimizer, batch);
///     } catch (const lockstep::InconsistentReplicas&) {
///       strategy.restore_consistency(model, optimizer);
///     }
class InconsistentReplicas : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A replica's device ran out of memory. The message names the replica and the device, and the bytes that
/// were wanted and free if LibTorch reports them.
///
/// Example:
///
///     try {
///       strategy.run(train_step, model, optimizer, batch);
///     } catch (const lockstep::OutOfMemory& error) {
///       std::cerr << error.what() << '\n';  // try a smaller batch
///     }
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A GPU reported an error, which earlier work of the replica may have caused. The message names the replica
/// and the device. After most of these errors, CUDA lets the process use no GPU again.
///
/// Example:
///
///     try {
///       strategy.run(train_step, model, optimizer, batch);
///     } catch (const lockstep::DeviceFailure& error) {
///       return 7;  // the exit code of Lockstep's programs for a lack of resources
///     }
class DeviceFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The worker processes of a job could not find each other, or do not match: they were started with different
/// clusters, options, models or data. The message names the address, or both ranks and the difference.
///
/// Example:
///
///     try {
///       MultiWorkerMirroredStrategy strategy;
///     } catch (const lockstep::ClusterError& error) {
///       return 5;  // the exit code of Lockstep's programs for lost peers
///     }
class ClusterError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Another worker process of the job is gone, frozen, cut off, or has given up. The message names its rank
/// and host, and the cause if it is known.
///
/// Example:
///
///     try {
///       strategy.run(train_step, model, optimizer, batch);
///     } catch (const lockstep::PeerLost& error) {
///       return 5;  // the exit code of Lockstep's programs for lost peers
///     }
class PeerLost : public ClusterError {
 public:
  using ClusterError::ClusterError;
};

}  // namespace lockstep
