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
#include "lockstep/runtime/exchange/algorithm_choice.h"
#include "lockstep/runtime/exchange/link_hub.h"
#include "lockstep/runtime/store/store_client.h"
#include "lockstep/runtime/store/store_server.h"
#include "lockstep/runtime/workers/heartbeat.h"
#include "lockstep/runtime/workers/stall_detector.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_failures.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// How worker processes exchange values on the host.
enum class WorkerTransport {
  kGloo,      ///< by Gloo's collectives over TCP
  kExchange,  ///< by Lockstep's own exchanges, through shared memory between processes of one machine
};

struct JoinOptions {
  int rank = 0;
  int size = 1;
  /// Address of worker 0's store, at which the workers meet.
  std::string master_host;
  int master_port = 0;
  /// True if another process, such as torchrun's agent, serves the store; worker 0 is then a client too.
  bool is_master_served = false;
  /// Socket bound to the master's port, on which worker 0 listens.
  std::optional<int> listening_socket;
  /// The address on which this worker listens and by which the others reach it. If empty, this machine's
  /// address on the route to the master.
  std::string address;
  /// The job's secret, the same on all workers. Required.
  std::string token;
  /// Lets worker 0's store give the secret to the others; nullptr if they know it from elsewhere.
  std::shared_ptr<const SecretGrant> grant;
  /// How often the job was started before. Workers of different starts do not meet.
  int restart_count = 0;
  int num_replicas = 1;  ///< number of replicas on this worker
  /// Names and values that must be the same on all workers.
  std::vector<std::pair<std::string, std::string>> facts;
  std::chrono::milliseconds join_timeout{std::chrono::minutes(5)};
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< for each collective
  WorkerTransport transport = WorkerTransport::kExchange;       ///< the same on all workers
  /// False: exchanges with this worker go over TCP even on one machine.
  bool uses_shared_memory = true;
  /// Encrypts exchanges over TCP, but not those of Gloo. The same on all workers.
  bool encrypts = true;
  /// The algorithm of all-reduces by exchanges, the same on all workers. None: the fastest for each size.
  std::optional<PlanAlgorithm> all_reduce_algorithm;
  /// How long a worker waits in a collective before it reports for whom.
  std::chrono::milliseconds report_stall_after{std::chrono::seconds(30)};
};

/// The worker processes of a job, as seen by one of them: their names, channels to them, and what they agree
/// on between runs. All workers create one, and call its collectives in the same order. Thread-safe, except
/// that only one thread at a time may call collectives.
class WorkerGroup {
 public:
  using Clock = std::chrono::steady_clock;

  /// Blocks until all workers have joined. Throws ClusterError naming the master's address if it cannot be
  /// reached or listened on, the workers that did not join within the join timeout, or both workers and the
  /// field if their facts or sizes differ. Throws InvalidArgument if the token is empty.
  static std::shared_ptr<WorkerGroup> join(const JoinOptions& options);
  /// Blocks until all workers have reached this point, since workers that finish early still provide what the
  /// others need. Does not wait for them if a worker has failed or an exception is in flight.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  const std::shared_ptr<const WorkerLayout>& layout() const { return layout_; }
  WorkerTransport transport() const { return transport_; }
  /// Returns how exchanges choose their algorithms: by the costs of shared memory if all workers are on one
  /// machine, and of a network otherwise.
  const ExchangePolicy& exchange_policy() const { return exchange_policy_; }
  /// Returns a worker's name, such as "worker 1 (node7)".
  const std::string& name_of(int worker) const { return failures_->name_of(worker); }

  /// Opens a new channel among the workers; a collective call. `op` begins its errors, which are PeerLost if
  /// a worker is gone or has failed. The group should outlive the channel's use.
  std::shared_ptr<WorkerChannel> open_channel(const std::string& op) { return open_channel(op, {}); }
  /// The same among `members` only, whose ranks in the channel are their places in this list; empty: all.
  /// Every worker calls it with the same members, and gets null if it is none of them.
  std::shared_ptr<WorkerChannel> open_channel(const std::string& op, const std::vector<int>& members);
  /// Returns a new, unshared part of the workers' store, the same for all workers, which must call this in
  /// the same order. Its waits throw CollectiveAborted if a worker is lost or has failed. It may outlive the
  /// group, whose end it then reports as a lost connection.
  c10::intrusive_ptr<c10d::Store> open_key_space();
  /// Returns a function that returns the failure that this worker reported, or PeerLost with what is known to
  /// have failed in another worker, for which it waits as CauseSearch says; null if nothing is known. The
  /// function does not keep the group alive.
  std::function<std::exception_ptr()> cause_finder() const {
    return [failures = failures_] { return failures->find_cause(); };
  }

  /// Tells the other workers of a failure of this worker that no channel sees; they get PeerLost with the
  /// first line of the error. The first failure of the job is the one that counts. Ignores a PeerLost. Does
  /// not throw.
  void report(const std::exception_ptr& error) const { reporter()(error); }

  // Collectives between runs. They block, and throw like those of a channel.

  /// Returns each worker's text.
  std::vector<std::string> gather(const std::string& own);
  /// Throws ClusterError on every worker if a worker's lines differ from worker 0's, naming both workers and
  /// the first line that differs. `what` names what the lines describe.
  void check_same(const std::string& what, const std::vector<std::string>& lines);
  /// Copies worker 0's values into the other workers' tensors, in place.
  void broadcast_(const std::vector<at::Tensor>& tensors);
  /// Returns each worker's tensors, on the CPU. Workers may pass any number of tensors of any shape and
  /// dtype.
  std::vector<std::vector<at::Tensor>> gather_tensors(const std::vector<at::Tensor>& own);
  /// Returns the sum over the workers, on the CPU.
  at::Tensor sum(const at::Tensor& value);

 private:
  /// Connections to the other workers, which may still receive from them after this worker has finished using
  /// them.
  class Connections {
   public:
    /// `hub` connects more links, until cut(). May be null.
    explicit Connections(std::shared_ptr<LinkHub> hub) : hub_(std::move(hub)) {}
    void add(c10::intrusive_ptr<c10d::Backend> backend);
    /// Cuts all connections, and any added later, so that the others notice. Does not block or throw.
    void cut();

   private:
    const std::shared_ptr<LinkHub> hub_;
    Mutex mutex_;
    std::vector<c10::intrusive_ptr<c10d::Backend>> backends_ LOCKSTEP_GUARDED_BY(mutex_);
    bool is_cut_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  };

  explicit WorkerGroup(const JoinOptions& options);

  void join_store(const JoinOptions& options);
  void connect_store(const JoinOptions& options);
  void meet(const JoinOptions& options);
  std::string hint_about_strangers() const;
  /// The workers of one channel; a worker's rank is its place among them.
  struct Members {
    std::vector<int> workers;
    int rank = 0;  // this worker's
  };

  c10::intrusive_ptr<c10d::Backend> connect_gloo(const Members& members);
  c10::intrusive_ptr<c10d::Backend> make_exchange(const std::string& op, uint32_t channel,
                                                  const Members& members);
  std::shared_ptr<WorkerChannel> make_channel(WorkerChannel::Options options, const Members& members);
  std::shared_ptr<WorkerChannel> open_pair(const std::string& op, int number, int peer, int pair,
                                           const Members& members);
  std::function<void(const std::exception_ptr&)> reporter() const;
  void on_lost(const LostPeer& peer);
  void fail_channels(const std::exception_ptr& error);
  std::vector<std::shared_ptr<WorkerChannel>> open_channels();
  std::vector<uint64_t> num_completed();
  std::unique_ptr<StallDetector> watch_stalls(const JoinOptions& options);
  void finish_together();
  c10::intrusive_ptr<c10d::Store> open_store(std::chrono::milliseconds timeout) const;

  const int rank_;
  const int size_;
  const std::chrono::milliseconds join_timeout_;
  const std::chrono::milliseconds timeout_;
  const WorkerTransport transport_;
  const int restart_count_;
  const JobToken token_;
  std::string address_;
  std::unique_ptr<StoreServer> server_;  // on worker 0
  std::shared_ptr<StoreClient> store_;
  std::vector<Peer> peers_;
  std::shared_ptr<const WorkerLayout> layout_;
  std::shared_ptr<WorkerFailures> failures_;  // set once all have met
  ExchangePolicy exchange_policy_;
  std::shared_ptr<LinkHub> hub_;  // null: Gloo makes the connections
  std::shared_ptr<Connections> connections_;
  const std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  int num_key_spaces_ = 0;

  Mutex mutex_;
  std::vector<std::weak_ptr<WorkerChannel>> channels_ LOCKSTEP_GUARDED_BY(mutex_);
  // Number of completed collectives of each channel, by its number, including closed channels.
  std::vector<std::shared_ptr<std::atomic<uint64_t>>> completed_ LOCKSTEP_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerChannel> between_runs_;
  std::thread cause_search_;               // runs once another worker has reported a failure
  std::unique_ptr<StallDetector> stalls_;  // its thread reads and ends the channels
  std::shared_ptr<Heartbeat> heartbeat_;   // last: its thread calls on_lost()
};

}  // namespace lockstep
