#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class GraphRecording;

/// One replica's ends of a channel: what it sums tensors on its device with, and what it exchanges values on
/// the host with, without waiting for a device. One backend may serve both.
struct ReplicaBackends {
  ReplicaBackends(c10::intrusive_ptr<c10d::Backend> for_both) : device(for_both), host(std::move(for_both)) {}
  ReplicaBackends(c10::intrusive_ptr<c10d::Backend> for_device, c10::intrusive_ptr<c10d::Backend> for_host)
      : device(std::move(for_device)), host(std::move(for_host)) {}

  c10::intrusive_ptr<c10d::Backend> device;
  c10::intrusive_ptr<c10d::Backend> host;
};

/// One channel of collectives among the local replicas: a backend each, and what ends their waits together.
///
/// Collectives of one channel are matched by their order alone; things whose order does not depend on each
/// other (each optimizer's gradients, the user's own collectives) use a channel of their own.
class CollectiveChannel {
 public:
  virtual ~CollectiveChannel() = default;

  const c10::intrusive_ptr<c10d::Backend>& backend(int replica) const {
    return backends_[static_cast<size_t>(replica)];
  }
  /// Where backend() cannot take CPU tensors, another one for these.
  virtual ReplicaBackends backends(int replica) const { return backend(replica); }

  /// Throws the error of a channel that is of no more use: after a failure where there are other workers.
  virtual void check_usable() const {}
  /// A run begins: all replicas take part again. A channel that has to connect anew does so here, and throws
  /// BackendError where it cannot; one that is of no more use throws its error.
  virtual void enter() = 0;
  /// `replica` has returned from the run: those that wait for it in this channel get an error that says so.
  /// Where they wait on a device instead of the host, the error is thrown here, as CollectiveMismatch.
  virtual void leave(int replica) = 0;
  /// All replicas have returned: throws CollectiveMismatch naming a collective that some joined and others
  /// did not, and BackendError for one that has failed on its device by now.
  virtual void check_complete() = 0;
  /// Releases every replica that waits on the host with CollectiveAborted(`reason`), and tells the other
  /// workers, where there are any. Does not wait for replicas, or throw.
  virtual void release(const std::string& reason) = 0;
  /// release(), and ends the collectives on the devices; those that all replicas have joined may finish, for
  /// 10 s or the timeout at most. The first call of a run blocks meanwhile, and until replicas that capture
  /// have stopped: release() the other channels that they may wait in first. Does not throw.
  virtual void abort(const std::string& reason) = 0;
  /// After a failed run, while no replica is inside: usable again from the next enter() on.
  virtual void reset() = 0;

  /// Whether a graph can hold this channel's collectives. If not, they interrupt a recording.
  virtual bool is_capturable() const = 0;
  /// `replica`'s collectives belong to `recording` from now on; null: to none. Called by its thread. A
  /// channel whose collectives are captured drops the recording before it aborts or ends.
  virtual void record(int replica, const std::shared_ptr<GraphRecording>& recording) = 0;
  /// How many collectives `replica` has joined since the channel was connected. Called by its thread.
  virtual uint64_t num_joined(int replica) const = 0;
  /// After an abort(), before reset(): so many collectives, the first ones, have ended well on all devices.
  /// What the others have left in the tensors means nothing.
  virtual uint64_t num_intact() const = 0;

 protected:
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends_;
};

}  // namespace lockstep
