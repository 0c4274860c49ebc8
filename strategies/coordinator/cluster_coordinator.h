#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/coordinator/closure_values.h"
#include "lockstep/strategies/coordinator/closure_work.h"
#include "lockstep/strategies/input/input_context.h"

namespace lockstep {

class ClosureQueue;
class ClosureServer;
class WorkerHeartbeat;
struct ClosureWorkerOptions;
struct ClosureResult;

/// A closure was not run, or not to its end, since an earlier one failed or its coordinator has ended.
class ClosureCancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a closure returns, once it has. Copies are the same value. Thread-safe; outlives its coordinator.
class RemoteValue {
 public:
  /// The closure's number: the first of a coordinator is 0.
  uint64_t closure() const { return closure_; }
  /// Whether fetching does not block.
  bool is_ready() const;

  /// Blocks until the closure has come to its end, on whichever worker. Throws what it threw, as the
  /// coordinator throws it, but as often as it is asked, and ClosureCancelled.
  const ClosureValues& fetch_all() const;
  /// The sole value of a closure that returns one. Throws InvalidArgument for another number of values, or
  /// one that is no `T`.
  template <typename T>
  T fetch() const {
    const auto& values = fetch_all();
    if (values.size() != 1)
      throw InvalidArgument("[RemoteValue] expected a closure that returns one value, but got " +
                            std::to_string(values.size()) + " values");
    return detail::closure_value_as<T>(values.front(), "as what the closure returns");
  }

 private:
  friend class ClusterCoordinator;
  RemoteValue(std::shared_ptr<ClosureQueue> queue, uint64_t closure,
              std::shared_ptr<const ClosureResult> result)
      : queue_(std::move(queue)), closure_(closure), result_(std::move(result)) {}

  std::shared_ptr<ClosureQueue> queue_;
  uint64_t closure_ = 0;
  std::shared_ptr<const ClosureResult> result_;
};

struct CoordinatorOptions {
  /// A closure begins only when no more than so many others can end while it runs: with 0 they run one after
  /// another. None: it begins at once.
  std::optional<uint64_t> max_staleness;
  /// A worker that has not been heard of for so long is lost.
  std::chrono::milliseconds worker_timeout{3'000};
  /// The chief gets a line for each worker that comes or is lost; called by any thread. Empty: std::cerr
  /// does.
  std::function<void(const std::string&)> on_message;
};

/// What a worker reads its batches from: made in its process, when a closure there first asks for it. Copies
/// are the same dataset.
template <typename Dataset>
class PerWorkerDataset {
 public:
  /// For one thread at a time, as closures are. Throws InvalidArgument on the chief, and what `make` throws.
  Dataset& local() const {
    if (!state_->dataset) state_->dataset.emplace(state_->make());
    return *state_->dataset;
  }
  Dataset& operator*() const { return local(); }
  Dataset* operator->() const { return &local(); }

 private:
  friend class ClusterCoordinator;
  struct State {
    std::function<Dataset()> make;
    std::optional<Dataset> dataset;
  };
  explicit PerWorkerDataset(std::function<Dataset()> make) : state_(new State{std::move(make), {}}) {}

  std::shared_ptr<State> state_;
};

/// Spreads closures, calls of functions that every process knows by name, over the workers of a job: the
/// chief schedules them, each worker runs one after another. Workers may be lost and come at any time: what a
/// lost one was at runs again elsewhere, so that a closure may run several times, to the end or in part; its
/// value is that of one whole run.
///
/// All processes run the same program, which defines its functions and then asks for its part:
///
///   ClusterCoordinator coordinator;
///   auto batches = coordinator.create_per_worker_dataset([](const InputContext& context) { ... });
///   coordinator.define("train_step", [&](int64_t step) { return train(batches->next(), step); });
///   if (coordinator.is_chief()) {
///     for (int64_t step = 0; step < 2000; ++step) coordinator.schedule("train_step", step);
///     coordinator.join();
///   } else {
///     coordinator.serve();
///   }
///
/// For one thread at a time.
class ClusterCoordinator {
 public:
  /// `resolver` null: what resolve_cluster() finds in the environment. The chief listens from now on, at the
  /// address that the cluster names; a worker tells the chief from now on that it is there;
  /// `cluster.join_timeout` is how long it does without any worker while closures wait for one, and how long
  /// a worker does without the chief. Throws InvalidArgument for a job without a chief, and for tasks other
  /// than chief and worker; ClusterError naming an address that cannot be listened on.
  explicit ClusterCoordinator(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                              const CoordinatorOptions& options = {},
                              ClusterOptions cluster = cluster_options(process_environment()));
  /// The chief: as end(). A worker that has not served leaves the job.
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  bool is_chief() const { return server_ != nullptr; }
  const ClusterResolver& cluster_resolver() const { return *resolver_; }

  /// Makes a function known by a name, on this process: see make_closure_function(). Throws InvalidArgument
  /// for a name that is taken.
  template <typename Fn>
  void define(const std::string& name, Fn fn) {
    define_function(name, make_closure_function(std::move(fn)));
  }
  /// The same for a function of whatever arguments come.
  void define_function(const std::string& name, ClosureFunction function);
  /// The same for work in several parts, see ClosureWork.
  void define_work(const std::string& name, BeginClosure begin);

  /// `make(InputContext)` gives what a worker reads its batches from, whatever it is; the context's pipelines
  /// are the workers. A worker that is started again makes its own anew.
  template <typename Make>
  requires std::is_invocable_v<Make&, const InputContext&>
  auto create_per_worker_dataset(Make make) const {
    using Dataset = std::remove_cvref_t<std::invoke_result_t<Make&, const InputContext&>>;
    return PerWorkerDataset<Dataset>([make = std::move(make), context = input_context()]() mutable {
      if (!context)
        throw InvalidArgument(
            "[ClusterCoordinator] a per-worker dataset was asked for by the chief, which "
            "has none: only closures read it");
      return make(*context);
    });
  }

  /// Has a worker call the function of this name with these arguments: truth values, numbers, texts and dense
  /// tensors, which arrive on the CPU. Does not block. Throws InvalidArgument for a name that is not defined
  /// here, and on a worker.
  ///
  /// Where a closure has failed, those that wait are cancelled, and its error, the first of several, comes
  /// out of the next call of schedule(), join() or done(), once; ClusterError likewise where closures have
  /// waited for too long without any worker.
  template <typename... Args>
  RemoteValue schedule(const std::string& name, Args&&... args) {
    return schedule_values(name, detail::closure_values(std::forward<Args>(args)...));
  }
  /// Blocks until all closures have come to their end. Throws as schedule().
  void join();
  /// Whether all closures have come to their end. Does not block. Throws as schedule().
  bool done();
  /// Cancels the closures that wait, and blocks until those that run have come to their end. Throws as
  /// schedule().
  void cancel();

  /// Blocks until all of these have come to their end. Throws as RemoteValue::fetch().
  template <typename T>
  std::vector<T> fetch(const std::vector<RemoteValue>& values) const {
    std::vector<T> fetched;
    for (const auto& value : values) fetched.push_back(value.fetch<T>());
    return fetched;
  }

  /// The workers that are there, by name. Throws InvalidArgument on a worker.
  std::vector<std::string> workers() const;
  /// How many were lost, those that have come back included. Throws InvalidArgument on a worker.
  int64_t num_lost_workers() const;

  /// A worker's part: runs closures in the calling thread until the chief ends, or, where `is_leaving()`
  /// becomes true, until those that it has are done; it is asked between two of them, by another thread, and
  /// empty for a worker that stays. Blocks. What a function
  /// throws goes to the chief. Throws PeerLost where the chief is lost and does not come back in time,
  /// ClusterError for another token, and InvalidArgument on the chief.
  void serve(const std::function<bool()>& is_leaving = {});
  /// The number of the closure that runs, inside a function; see RemoteValue::closure().
  uint64_t current_closure() const { return current_closure_; }

  /// Cancels what waits, and blocks until all workers that are there have ended what they run, and were told
  /// that the chief ends. On a worker it does nothing.
  void end();

 private:
  RemoteValue schedule_values(const std::string& name, ClosureValues arguments);
  std::optional<InputContext> input_context() const;
  ClosureServer& server(const char* call) const;
  ClosureWorkerOptions worker_options() const;
  const BeginClosure& function(const std::string& name) const;

  std::shared_ptr<const ClusterResolver> resolver_;
  const ClusterOptions cluster_;
  std::map<std::string, BeginClosure> functions_;
  std::unique_ptr<ClosureServer> server_;       // the chief's
  std::unique_ptr<WorkerHeartbeat> heartbeat_;  // a worker's, until it serves
  uint64_t current_closure_ = 0;
};

}  // namespace lockstep
