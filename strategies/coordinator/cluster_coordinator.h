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

/// Thrown for a closure that did not run to its end because an earlier one failed, closures were cancelled,
/// or the coordinator has ended.
///
/// Example:
///
///     try {
///       value.fetch_all();
///     } catch (const lockstep::ClosureCancelled& error) {
///       std::cerr << error.what() << "\n";
///     }
class ClosureCancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The future result of a closure. Copies refer to the same result. Thread-safe; may outlive its coordinator.
///
/// Example:
///
///     RemoteValue square = coordinator.schedule("square", 7);
///     std::cout << square.fetch<int64_t>() << "\n";
class RemoteValue {
 public:
  /// Returns the closure's number; a coordinator counts from 0.
  uint64_t closure() const { return closure_; }
  /// Returns whether fetching does not block.
  bool is_ready() const;

  /// Returns the closure's results. Blocks until it has ended, on any worker. If it failed, throws its error,
  /// as the coordinator does, at every call. Throws ClosureCancelled if it was cancelled.
  const ClosureValues& fetch_all() const;
  /// Returns the only value of a closure that returns one. Throws as fetch_all(), and InvalidArgument for
  /// another number of values and for a value that is not a `T`.
  template <typename T>
  T fetch() const {
    const auto& values = fetch_all();
    if (values.size() != 1)
      throw InvalidArgument("[RemoteValue] expected a closure that returns one value, but got " +
                            std::to_string(values.size()) + " values");
    return detail::closure_value_as<T>(values.front(),
                                       {"closure " + std::to_string(closure_), "as its result"});
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
  /// A closure begins only if at most this many others can end while it runs. 0: one closure runs after
  /// another. None: each begins at once.
  std::optional<uint64_t> max_staleness;
  /// A worker that is silent for this long counts as lost.
  std::chrono::milliseconds worker_timeout{3'000};
  /// Called on the chief with a line for each worker that comes or is lost, by any thread. Empty: prints to
  /// std::cerr.
  std::function<void(const std::string&)> on_message;
  /// Returns whether the job is asked to end. Called on the chief by another thread. Once it returns true and
  /// all workers have left, closures that wait are cancelled at once; otherwise the chief waits for workers
  /// to come back. Empty: the chief always waits.
  std::function<bool()> is_ending;
};

/// The dataset of a worker, made in the worker's process when a closure first asks for it. Copies refer to
/// the same dataset.
///
/// Example:
///
///     auto batches = coordinator.create_per_worker_dataset(open_batches);
///     coordinator.define("evaluate", [&](int64_t part) { return evaluate(batches->read(part)); });
template <typename Dataset>
class PerWorkerDataset {
 public:
  /// Returns this process's dataset. Not thread-safe; closures run one at a time. Throws InvalidArgument on
  /// the chief, and rethrows errors of `make`.
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

/// Schedules closures, which are calls of functions that every process knows by name, on the workers of a
/// job. The chief schedules them; each worker runs one after another. Workers may be lost and come at any
/// time. The closure of a lost worker runs again elsewhere, so a closure may run several times, in full or in
/// part; its result is that of one full run.
///
/// All processes run the same program: they define the same functions, then take their own part. Not
/// thread-safe.
///
/// Example:
///
///     ClusterCoordinator coordinator;
///     auto batches = coordinator.create_per_worker_dataset([](const InputContext& context) { ... });
///     coordinator.define("train_step", [&](int64_t step) { return train(batches->next(), step); });
///     if (coordinator.is_chief()) {
///       for (int64_t step = 0; step < 2000; ++step) coordinator.schedule("train_step", step);
///       coordinator.join();
///     } else {
///       coordinator.serve();
///     }
class ClusterCoordinator {
 public:
  /// A null `resolver` uses the cluster that resolve_cluster() finds in the environment. From now on, the
  /// chief listens at its address in the cluster, and a worker tells the chief that it is there.
  /// `cluster.join_timeout` limits how long the chief waits for any worker while closures wait for one, and
  /// how long a worker waits for the chief. If the chief gives the job's secret to the workers, by MUNGE or
  /// certificates, this blocks until a worker has it. Throws InvalidArgument for a job without a chief, for
  /// tasks other than chief and worker, and for a job without a secret (ClusterOptions::token) that is not on
  /// loopback, and ClusterError naming an address that the chief cannot listen on, or the chief if it does
  /// not give the secret.
  explicit ClusterCoordinator(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                              const CoordinatorOptions& options = {},
                              ClusterOptions cluster = cluster_options(process_environment()));
  /// On the chief, the same as end(). A worker that has not served leaves the job.
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  bool is_chief() const { return server_ != nullptr; }
  const ClusterResolver& cluster_resolver() const { return *resolver_; }

  /// Defines a function of this name on this process; see make_closure_function(). Throws InvalidArgument if
  /// the name is taken.
  template <typename Fn>
  void define(const std::string& name, Fn fn) {
    define_function(name, make_closure_function(std::move(fn), name));
  }
  /// The same for a function that takes any arguments.
  void define_function(const std::string& name, ClosureFunction function);
  /// The same for work in several parts; see ClosureWork.
  void define_work(const std::string& name, BeginClosure begin);

  /// Creates a dataset of any type for each worker: `make(InputContext)` returns it, in the worker's process.
  /// The context's pipelines are the workers. A restarted worker makes its dataset again.
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

  /// Has a worker call the function of this name with these arguments: bools, numbers, strings and dense
  /// tensors, which arrive on the CPU. Does not block. Throws InvalidArgument on a worker, and if the name is
  /// not defined here.
  ///
  /// If a closure fails, all waiting closures are cancelled. The next call of schedule(), join() or done()
  /// throws its error, once; if several fail, the first error. These calls also throw ClusterError, once, if
  /// closures have waited too long without any worker.
  template <typename... Args>
  RemoteValue schedule(const std::string& name, Args&&... args) {
    return schedule_values(name, detail::closure_values(std::forward<Args>(args)...));
  }
  /// Blocks until all closures have ended. Throws as schedule().
  void join();
  /// Returns whether all closures have ended. Does not block. Throws as schedule().
  bool done();
  /// Cancels the waiting closures, and blocks until the running ones have ended. Throws as schedule().
  void cancel();

  /// Returns the value of each. Blocks until all of these closures have ended. Throws as
  /// RemoteValue::fetch().
  template <typename T>
  std::vector<T> fetch(const std::vector<RemoteValue>& values) const {
    std::vector<T> fetched;
    for (const auto& value : values) fetched.push_back(value.fetch<T>());
    return fetched;
  }

  /// Returns the names of the connected workers. Throws InvalidArgument on a worker.
  std::vector<std::string> workers() const;
  /// Returns how many workers were lost, including those that came back. Throws InvalidArgument on a worker.
  int64_t num_lost_workers() const;

  /// Runs closures on a worker, in the calling thread. Blocks until the chief ends or, once `is_leaving()`
  /// returns true, until the worker's current closures have ended. Another thread calls `is_leaving` between
  /// closures; leave it empty for a worker that stays. Errors of the functions go to the chief. Throws
  /// PeerLost if the chief is lost and does not come back in time, ClusterError if the chief has another
  /// token, and InvalidArgument on the chief.
  void serve(const std::function<bool()>& is_leaving = {});
  /// Returns the number of the running closure, inside its function; see RemoteValue::closure().
  uint64_t current_closure() const { return current_closure_; }

  /// Cancels the waiting closures. Blocks until all connected workers have ended the closures that they run,
  /// and know that the chief has ended. Does nothing on a worker.
  void end();

 private:
  friend class ParameterServerStrategy;  // connects to the servers with the same secret

  RemoteValue schedule_values(const std::string& name, ClosureValues arguments);
  std::optional<InputContext> input_context() const;
  ClosureServer& server(const char* call) const;
  ClosureWorkerOptions worker_options() const;
  const BeginClosure& function(const std::string& name) const;

  std::shared_ptr<const ClusterResolver> resolver_;
  ClusterOptions cluster_;  // whose token is the job's secret
  std::map<std::string, BeginClosure> functions_;
  std::unique_ptr<ClosureServer> server_;       // null on a worker
  std::unique_ptr<WorkerHeartbeat> heartbeat_;  // of a worker, until it serves
  uint64_t current_closure_ = 0;
};

}  // namespace lockstep
