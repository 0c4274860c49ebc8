#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/workers/heartbeat.h"
#include "lockstep/runtime/workers/stall_detector.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_failures.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

struct JoinOptions {
  int rank = 0;
  int size = 1;
  /// Where worker 0's store listens, the workers' meeting place.
  std::string master_host;
  int master_port = 0;
  /// Somebody else listens there, such as torchrun's agent: worker 0 is a client, too.
  bool is_master_served = false;
  /// A socket that is bound to the master's port, for worker 0 to listen by.
  std::optional<int> listening_socket;
  /// By which the other workers reach this one, and all that it listens on; empty: the address of this
  /// machine that leads to the master.
  std::string address;
  /// The job's secret, the same on all workers. Empty: none, so that who finds the ports can join.
  std::string token;
  /// How often the job was started before. Those of different starts do not meet.
  int restart_count = 0;
  int num_replicas = 1;  ///< of this worker
  /// Names and values that must be the same on all workers.
  std::vector<std::pair<std::string, std::string>> facts;
  std::chrono::milliseconds join_timeout{std::chrono::minutes(5)};
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of each collective
  /// How long a worker waits in a collective before it says for whom.
  std::chrono::milliseconds report_stall_after{std::chrono::seconds(30)};
};

/// The worker processes of a job, as one of them sees them: what they are called, channels to them, and what
/// they agree on between runs. All make it, and call its collectives in the same order. Thread-safe, but for
/// the collectives, which one thread at a time may call.
class WorkerGroup {
 public:
  using Clock = std::chrono::steady_clock;

  /// Blocks until all workers have joined. Throws ClusterError naming the master's address where it cannot be
  /// reached or listened on, the workers that did not come within the join timeout, and both workers and the
  /// field where their facts or sizes differ.
  static std::shared_ptr<WorkerGroup> join(const JoinOptions& options);
  /// Blocks until all workers have come here, unless one has failed or an exception is on its way: those that
  /// are done earlier keep up what the others still need.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  const std::shared_ptr<const WorkerLayout>& layout() const { return layout_; }
  /// Such as "worker 1 (node7)".
  const std::string& name_of(int worker) const { return failures_->name_of(worker); }

  /// A collective: a new channel among the workers. `op` begins its errors, which are PeerLost where a worker
  /// is gone or has failed. The group should outlive its use.
  std::shared_ptr<WorkerChannel> open_channel(const std::string& op);
  /// A part of the workers' store that nobody else has, the same one for all workers, who must call this at
  /// the same places. Its waits end with CollectiveAborted where a worker is lost or has failed.
  c10::intrusive_ptr<c10d::Store> open_key_space();
  /// A function that gives PeerLost with what is known to have gone wrong in another worker, or what this one
  /// has reported, for which it waits a second at most; null: nothing. It does not keep the group.
  std::function<std::exception_ptr()> cause_finder() const {
    return [failures = failures_] { return failures->find_cause(); };
  }

  /// Tells the other workers, who get PeerLost with the error's first line, of a failure of this one's that
  /// is in no channel's use. The first failure of the job is the one that counts; a PeerLost is none. Does
  /// not throw.
  void report(const std::exception_ptr& error) const { reporter()(error); }

  // Collectives between runs, which block, and throw as a channel's.

  /// Each worker's text.
  std::vector<std::string> gather(const std::string& own);
  /// Throws ClusterError, on every worker, where a worker has other lines than worker 0: naming both and the
  /// first line that differs. `what` is what the lines describe.
  void check_same(const std::string& what, const std::vector<std::string>& lines);
  /// Worker 0's values, in place.
  void broadcast_(const std::vector<at::Tensor>& tensors);
  /// Each worker's tensors, on the CPU. The workers may bring any number of them, of any shape and dtype.
  std::vector<std::vector<at::Tensor>> gather_tensors(const std::vector<at::Tensor>& own);
  /// The sum over the workers, on the CPU.
  at::Tensor sum(const at::Tensor& value);

 private:
  /// Those to the other workers, which may still receive from them after this one's use.
  class Connections {
   public:
    void add(c10::intrusive_ptr<c10d::Backend> backend);
    /// Cuts them all, and whatever is added, so that the others notice. Does not block or throw.
    void cut();

   private:
    Mutex mutex_;
    std::vector<c10::intrusive_ptr<c10d::Backend>> backends_ LOCKSTEP_GUARDED_BY(mutex_);
    bool is_cut_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  };

  explicit WorkerGroup(const JoinOptions& options);

  void open_store(const JoinOptions& options);
  void meet(const JoinOptions& options);
  c10::intrusive_ptr<c10d::Backend> connect();
  std::function<void(const std::exception_ptr&)> reporter() const;
  void on_lost(const LostPeer& peer);
  void fail_channels(const std::exception_ptr& error);
  std::vector<std::shared_ptr<WorkerChannel>> open_channels();
  std::vector<uint64_t> num_completed();
  std::unique_ptr<StallDetector> watch_stalls(const JoinOptions& options);
  void finish_together();

  const int rank_;
  const int size_;
  const std::chrono::milliseconds join_timeout_;
  const std::chrono::milliseconds timeout_;
  const std::string prefix_;  // of the job's keys
  std::string address_;
  c10::intrusive_ptr<c10d::Store> server_;  // worker 0's has the server in it
  c10::intrusive_ptr<c10d::Store> store_;   // below the job's prefix
  // Another client, which threads that are left behind may hold on to.
  c10::intrusive_ptr<c10d::Store> connecting_store_;
  c10::intrusive_ptr<c10d::Store> stalls_store_;
  std::vector<Peer> peers_;
  std::shared_ptr<const WorkerLayout> layout_;
  std::shared_ptr<WorkerFailures> failures_;  // once all have met
  const std::shared_ptr<Connections> connections_ = std::make_shared<Connections>();
  const std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  int num_key_spaces_ = 0;

  Mutex mutex_;
  std::vector<std::weak_ptr<WorkerChannel>> channels_ LOCKSTEP_GUARDED_BY(mutex_);
  // Of each channel by its number, closed ones included: the collectives that are through.
  std::vector<std::shared_ptr<std::atomic<uint64_t>>> completed_ LOCKSTEP_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerChannel> between_runs_;
  std::thread cause_search_;               // once another worker has said that it failed
  std::unique_ptr<StallDetector> stalls_;  // its thread looks at the channels, and ends them
  std::shared_ptr<Heartbeat> heartbeat_;   // last: its thread calls on_lost()
};

}  // namespace lockstep
