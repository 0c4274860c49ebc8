#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/replica_mailbox.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// Messages between this worker's replicas and those of other workers. Each direction between two replicas
/// has a channel of its own, which is opened with the first message, so replicas do not wait for each
/// other's. Thread-safe.
class AwayMessages {
 public:
  /// `channel` opens the channels.
  AwayMessages(std::shared_ptr<const WorkerLayout> layout, std::shared_ptr<WorkerChannel> channel)
      : layout_(std::move(layout)), channel_(std::move(channel)) {}

  /// Sends a copy of the value, which may be on any device. Does not wait for the receiver. Throws the error
  /// of an earlier message between the two, and InvalidArgument if the workers have no such channels.
  void send(const ReplicaMailbox::Route& route, const std::string& description, const at::Tensor& value);
  /// Blocks until the next message from a replica of another worker to one of this worker is there, and puts
  /// it into the mailbox. Throws CollectiveMismatch, which names both workers, if it is of another run, and
  /// otherwise what the channel throws.
  void fetch(int from, int to, ReplicaMailbox& mailbox);

  /// Begins a run, which must be the same one on all workers.
  void begin_run();
  /// Blocks until all messages of the run have been handed over. Throws the error of one that was not.
  void drain();
  /// Refuses further messages. A message's history may outlive the workers' connections.
  void close();
  /// Ends all messages with the error.
  void fail(const std::exception_ptr& error);

 private:
  struct Channel {
    std::shared_ptr<WorkerChannel> channel;
    uint64_t next = 0;  // position of the next collective
  };
  Channel& channel_between(int from, int to) LOCKSTEP_REQUIRES(mutex_);
  struct Place {
    std::shared_ptr<WorkerChannel> channel;
    uint64_t position = 0;
    std::string description;
  };
  Place next_place(int from, int to);

  const std::shared_ptr<const WorkerLayout> layout_;
  const std::shared_ptr<WorkerChannel> channel_;
  Mutex mutex_;
  std::map<std::pair<int, int>, Channel> channels_ LOCKSTEP_GUARDED_BY(mutex_);
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t run_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
