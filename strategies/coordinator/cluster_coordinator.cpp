#include "lockstep/strategies/coordinator/cluster_coordinator.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/cluster/internal/job_secret.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/strategies/coordinator/internal/closure_server.h"
#include "lockstep/strategies/coordinator/internal/closure_worker.h"

namespace lockstep {
namespace {

constexpr const char* kChief = "chief 0";  // its task
constexpr const char* kPrefix = "[ClusterCoordinator] ";

std::shared_ptr<const ClusterResolver> checked(std::shared_ptr<const ClusterResolver> resolver) {
  if (!resolver) resolver = resolve_cluster(process_environment());
  if (!resolver || !resolver->cluster_spec().has_job("chief"))
    throw InvalidArgument(c10::str(kPrefix, "expected a cluster with a chief, but got ",
                                   resolver ? resolver->source() : "none, such as by TF_CONFIG"));
  const auto type = resolver->task_type();
  if (type != "chief" && type != "worker")
    throw InvalidArgument(
        c10::str(kPrefix, "expected a chief or a worker, but got ", type, " ", resolver->task_id()));
  return resolver;
}

std::string worker_names(const ClusterSpec& spec) {
  std::vector<std::string> names;
  for (const int index : spec.task_indices("worker"))
    names.push_back(c10::str("worker ", index, " (", spec.task_address("worker", index).host, ")"));
  return names.empty() ? "any worker" : c10::Join(", ", names);
}

/// Calls a function, without a prepare or finish phase.
class FunctionCall : public ClosureWork {
 public:
  FunctionCall(const ClosureFunction& function, ClosureValues arguments)
      : function_(function), arguments_(std::move(arguments)) {}
  ClosureValues run() override { return function_(arguments_); }

 private:
  const ClosureFunction& function_;
  const ClosureValues arguments_;
};

/// Records which closure runs.
class NumberedWork : public ClosureWork {
 public:
  NumberedWork(std::unique_ptr<ClosureWork> work, uint64_t closure, uint64_t& current)
      : work_(std::move(work)), closure_(closure), current_(current) {}
  void prepare() override { work_->prepare(); }
  ClosureValues run() override {
    current_ = closure_;
    return work_->run();
  }
  void finish(ClosureValues& results) override { work_->finish(results); }
  bool looks_ahead() const override { return work_->looks_ahead(); }

 private:
  const std::unique_ptr<ClosureWork> work_;
  const uint64_t closure_;
  uint64_t& current_;
};

}  // namespace

bool RemoteValue::is_ready() const {
  return !queue_->is_open(closure_);
}

const ClosureValues& RemoteValue::fetch_all() const {
  const auto outcome = queue_->wait_for(closure_);
  if (outcome == ClosureQueue::Outcome::kCancelled)
    throw ClosureCancelled(c10::str("[RemoteValue] closure ", closure_,
                                    " was cancelled: an earlier one failed, or the coordinator has ended"));
  if (result_->error) std::rethrow_exception(result_->error);
  return result_->values;
}

ClusterCoordinator::ClusterCoordinator(std::shared_ptr<const ClusterResolver> resolver,
                                       const CoordinatorOptions& options, ClusterOptions cluster)
    : resolver_(checked(std::move(resolver))), cluster_(std::move(cluster)) {
  const auto secret = job_secret(*resolver_, cluster_);
  cluster_.token = secret.token;
  if (resolver_->task_type() != "chief") {
    heartbeat_ = std::make_unique<WorkerHeartbeat>(worker_options());
    return;
  }
  const auto spec = resolver_->cluster_spec();
  const auto& address = spec.task_address("chief", 0);
  server_ = std::make_unique<ClosureServer>(
      ClosureServerOptions{.rpc = {.host = cluster_.address.empty() ? address.host : cluster_.address,
                                   .port = address.port,
                                   .token = secret.token,
                                   .grant = secret.grant,
                                   .task = kChief,
                                   .listening_socket = cluster_.listening_socket},
                           .max_staleness = options.max_staleness,
                           .worker_timeout = options.worker_timeout,
                           .join_timeout = cluster_.join_timeout,
                           .expected_workers = worker_names(spec),
                           .on_message = options.on_message,
                           .is_ending = options.is_ending});
}

ClusterCoordinator::~ClusterCoordinator() {
  end();
  if (heartbeat_) heartbeat_->leave();
}

ClosureWorkerOptions ClusterCoordinator::worker_options() const {
  const auto spec = resolver_->cluster_spec();
  const auto& chief = spec.task_address("chief", 0);
  return {.coordinator = {.name = "the chief",
                          .host = chief.host,
                          .port = chief.port,
                          .token = cluster_.token,
                          .task = c10::str("worker ", resolver_->task_id()),
                          .server_task = kChief,
                          .connect_timeout = cluster_.join_timeout},
          .name = c10::str("worker ", resolver_->task_id())};
}

ClosureServer& ClusterCoordinator::server(const char* call) const {
  if (server_) return *server_;
  throw InvalidArgument(c10::str(kPrefix, call, " was called by ", resolver_->task_type(), " ",
                                 resolver_->task_id(),
                                 ": only the chief schedules closures, workers serve()"));
}

void ClusterCoordinator::define_function(const std::string& name, ClosureFunction function) {
  define_work(name, [function = std::move(function)](const ClosureValues& arguments) {
    return std::make_unique<FunctionCall>(function, arguments);
  });
}

void ClusterCoordinator::define_work(const std::string& name, BeginClosure begin) {
  if (!functions_.emplace(name, std::move(begin)).second)
    throw InvalidArgument(c10::str(kPrefix, "expected a new name, but '", name, "' is defined already"));
}

const BeginClosure& ClusterCoordinator::function(const std::string& name) const {
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, function] : functions_) names.push_back(known);
  throw InvalidArgument(c10::str(kPrefix, "expected the name of a function that is defined, ",
                                 names.empty() ? "of which there are none" : c10::Join(", ", names),
                                 ", but got '", name, "'"));
}

RemoteValue ClusterCoordinator::schedule_values(const std::string& name, ClosureValues arguments) {
  auto& server = this->server("schedule()");
  function(name);
  auto [closure, result] = server.submit(name, std::move(arguments));
  return {server.shared_queue(), closure, std::move(result)};
}

void ClusterCoordinator::join() {
  server("join()").queue().join();
}

bool ClusterCoordinator::done() {
  return server("done()").queue().is_done();
}

void ClusterCoordinator::cancel() {
  auto& queue = server("cancel()").queue();
  queue.fail_waiting(std::make_exception_ptr(ClosureCancelled(c10::str(kPrefix, "closures were cancelled"))));
  try {
    queue.join();
  } catch (const ClosureCancelled&) {  // the closures cancelled above
  }
}

std::vector<std::string> ClusterCoordinator::workers() const {
  return server("workers()").workers();
}

int64_t ClusterCoordinator::num_lost_workers() const {
  return server("num_lost_workers()").num_lost_workers();
}

std::optional<InputContext> ClusterCoordinator::input_context() const {
  if (server_) return std::nullopt;
  const auto spec = resolver_->cluster_spec();
  const auto indices = spec.task_indices("worker");
  const auto own = std::find(indices.begin(), indices.end(), resolver_->task_id());
  return InputContext{.num_input_pipelines = static_cast<int>(indices.size()),
                      .input_pipeline_id = static_cast<int>(own - indices.begin())};
}

void ClusterCoordinator::serve(const std::function<bool()>& is_leaving) {
  if (server_)
    throw InvalidArgument(c10::str(kPrefix, "serve() was called by the chief: workers serve closures"));
  auto options = worker_options();
  options.is_leaving = is_leaving;
  const auto heartbeat =
      heartbeat_ ? std::exchange(heartbeat_, nullptr) : std::make_unique<WorkerHeartbeat>(options);
  serve_closures(
      options, *heartbeat, [this](uint64_t closure, const std::string& name, const ClosureValues& arguments) {
        return std::make_unique<NumberedWork>(function(name)(arguments), closure, current_closure_);
      });
}

void ClusterCoordinator::end() {
  if (server_) server_->end();
}

}  // namespace lockstep
