#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/collectives/rank_names.h"

namespace lockstep {

class GraphRecording;

/// Number of runs after which devices have allocated the memory, and loaded the kernels, that such runs need.
inline constexpr int kSettlingRuns = 2;

/// The two backends of one replica in a channel: `device` sums tensors on the replica's device, and `host`
/// exchanges values on the host without waiting for a device. One backend may serve both.
struct ReplicaBackends {
  ReplicaBackends(c10::intrusive_ptr<c10d::Backend> for_both) : device(for_both), host(std::move(for_both)) {}
  ReplicaBackends(c10::intrusive_ptr<c10d::Backend> for_device, c10::intrusive_ptr<c10d::Backend> for_host)
      : device(std::move(for_device)), host(std::move(for_host)) {}

  c10::intrusive_ptr<c10d::Backend> device;
  c10::intrusive_ptr<c10d::Backend> host;
  /// Shorter floating-point dtype to which float32 and float64 gradients are to be rounded before `device`
  /// sums them. None: they are not rounded.
  std::optional<at::ScalarType> wire_dtype;
  /// Takes the next place in the order of `device`'s collectives for one that begins on `host`, so that a
  /// rank that calls another collective at that place is told at once. Throws like a collective. Does not
  /// block. Empty if `host` and `device` have one order.
  std::function<void(const std::string& description)> announce;
};

/// A channel of collectives among the local replicas, with a backend for each of them. A failure ends the
/// waits of all.
///
/// Example:
///
///     auto channel = HierarchicalCopyAllReduce().make_channel(parse_devices({"cpu:0", "cpu:1"}), timeout);
///     all_reduce_(*channel->backend(replica), ReduceOp::kSum, {tensor});  // in the thread of each replica
///
/// Collectives of one channel are matched by their order alone. Use separate channels for collectives whose
/// order does not depend on each other, such as each optimizer's gradients and the user's own collectives.
class CollectiveChannel {
 public:
  virtual ~CollectiveChannel() = default;

  const c10::intrusive_ptr<c10d::Backend>& backend(int replica) const {
    return backends_[static_cast<size_t>(replica)];
  }
  /// Returns backend() for both, or another one for CPU tensors if backend() cannot take them.
  virtual ReplicaBackends backends(int replica) const { return backend(replica); }

  /// Sets how errors name the channel's ranks. Call it before the channel is used. By default, errors name
  /// them as without it.
  virtual void name_ranks(const RankNames& names) { static_cast<void>(names); }

  /// Throws the channel's error if it cannot be used again: after a failure, if there are other workers.
  virtual void check_usable() const {}
  /// Begins a run in which all replicas take part again, and reconnects if necessary. Throws BackendError if
  /// that fails, and the channel's error if it cannot be used again.
  virtual void enter() = 0;
  /// Marks that `replica` has returned from the run. Replicas that wait for it in this channel get an error
  /// that says so. If they wait on a device instead of the host, this call throws that error, as
  /// CollectiveMismatch.
  virtual void leave(int replica) = 0;
  /// Checks the run after all replicas have returned. Throws CollectiveMismatch naming a collective that only
  /// some replicas joined, and BackendError for one that has failed on its device by now.
  virtual void check_complete() = 0;
  /// Releases every replica that waits on the host with CollectiveAborted(`reason`), and tells the other
  /// workers if there are any. Does not wait for replicas and does not throw.
  virtual void release(const std::string& reason) = 0;
  /// Calls release() and ends the collectives on the devices. Those that all replicas have joined may finish
  /// within 10 s or the timeout, whichever is shorter. The first call of a run blocks until then, and until
  /// replicas that capture have stopped; call release() first on other channels in which they may wait. Does
  /// not throw.
  virtual void abort(const std::string& reason) = 0;
  /// Makes the channel usable again from the next enter() on. Call it after a failed run, while no replica is
  /// inside.
  virtual void reset() = 0;

  /// Whether a collective on the devices occupies each until all ranks have launched it, as NCCL's kernels
  /// do. Meanwhile calls that wait for the driver, such as allocating device memory, may block until then. In
  /// a process with several ranks that is a deadlock if one of them makes such a call before it launches.
  virtual bool occupies_devices() const { return false; }
  /// Keeps the replicas of this process together if collectives occupy devices; does nothing otherwise. In
  /// the next `num_runs` runs a collective is launched only when all of them have come to it, and its call
  /// returns when all have launched it: first runs allocate memory and load kernels. In later runs a replica
  /// may run ahead of the others by a few collectives only, so that its queue of launches does not fill up.
  /// Call it between runs. Do not use it for collectives that replicas call from within backward in an order
  /// of their own, relative to those of other channels.
  virtual void keep_together(int num_runs) { static_cast<void>(num_runs); }
  /// Whether a graph can hold this channel's collectives. If not, they interrupt a recording.
  virtual bool is_capturable() const = 0;
  /// Adds `replica`'s collectives to `recording` from now on; null: to none. The replica's thread calls it. A
  /// channel whose collectives are captured drops the recording before it aborts or ends.
  virtual void record(int replica, const std::shared_ptr<GraphRecording>& recording) = 0;
  /// Returns how many collectives `replica` has joined since the channel connected. The replica's thread
  /// calls it.
  virtual uint64_t num_joined(int replica) const = 0;
  /// Returns how many collectives, counted from the first one, have succeeded on all devices. Valid between
  /// abort() and reset(). Do not use the results of later collectives.
  virtual uint64_t num_intact() const = 0;

 protected:
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends_;
};

}  // namespace lockstep
