#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

#include <ATen/Context.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <string>
#include <tuple>
#include <variant>

#include "lockstep/parameter_server/variables/optimizer_rule.h"
#include "lockstep/parameter_server/variables/row_growth.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/runtime/gradients/gradient_step.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/internal/single_process_config.h"
#include "lockstep/strategies/parameter_server/internal/parameter_server_step_work.h"
#include "lockstep/strategies/parameter_server/internal/served_variables.h"

namespace lockstep {
namespace {

constexpr const char* kParameterServerStrategy = "ParameterServerStrategy";

/// Number of steps that may wait for a worker, so that no worker waits for the chief.
constexpr size_t kScheduledSteps = 256;
constexpr std::chrono::milliseconds kSaveTimeout = std::chrono::hours(1);
/// Number of steps after which the chief tells the servers which of them are done.
constexpr int64_t kForgetEvery = 64;

std::shared_ptr<const ClusterResolver> with_servers(std::shared_ptr<const ClusterResolver> resolver) {
  if (!resolver) resolver = resolve_cluster(process_environment());
  for (const char* job : {"ps", "worker"}) {
    if (resolver && resolver->cluster_spec().has_job(job)) continue;
    throw InvalidArgument(c10::str(
        "[", kParameterServerStrategy, "] expected a cluster with tasks ps, worker ", "and chief, but got ",
        resolver ? c10::str("no ", job, " in ", resolver->source()) : "none, such as by TF_CONFIG"));
  }
  return resolver;
}

ParameterClientOptions client_options(const ClusterResolver& resolver,
                                      const ParameterServerOptions& parameters, const ClusterOptions& cluster,
                                      const std::string& secret) {
  ParameterClientOptions options{.partitioner = parameters.partitioner, .placement = parameters.placement};
  const auto spec = resolver.cluster_spec();
  for (const int server : spec.task_indices("ps")) {
    const auto& address = spec.task_address("ps", server);
    options.servers.push_back({.name = c10::str("ps ", server),
                               .host = address.host,
                               .port = address.port,
                               .token = secret,
                               .task = c10::str(resolver.task_type(), " ", resolver.task_id()),
                               .server_task = c10::str("ps ", server),
                               .connect_timeout = cluster.join_timeout});
  }
  if (!options.partitioner) {
    options.partitioner = std::make_shared<BalancedPartitioner>(
        BalancedOptions{.num_servers = static_cast<int64_t>(options.servers.size())});
  }
  return options;
}

/// Returns the number of workers, this one included, that compute on this process's machine. The chief
/// computes only while they do not.
int num_workers_here(const ClusterResolver& resolver) {
  if (resolver.task_type() != "worker") return 1;
  const auto spec = resolver.cluster_spec();
  const auto& here = spec.task_address("worker", resolver.task_id()).host;
  const auto workers = spec.task_indices("worker");
  return static_cast<int>(std::count_if(workers.begin(), workers.end(), [&](int worker) {
    return spec.task_address("worker", worker).host == here;
  }));
}

StrategyConfig configured(const ClusterResolver& resolver, const std::vector<std::string>& devices,
                          const StrategyOptions& options) {
  if (options.sharding.stage != 0) {
    throw InvalidArgument(c10::str("[", kParameterServerStrategy, "] expected no sharding, but got stage ",
                                   options.sharding.stage,
                                   ": the parameter servers hold the optimizers' state"));
  }
  if (options.sharding.host_optimizer_state) {
    throw InvalidArgument(c10::str("[", kParameterServerStrategy,
                                   "] expected no host_optimizer_state: the parameter servers hold the "
                                   "optimizers' state"));
  }
  if (options.replica_weights.are_measured() || !options.replica_weights.values().empty()) {
    throw InvalidArgument(
        c10::str("[", kParameterServerStrategy,
                 "] expected no replica_weights: each worker takes as many steps as it can"));
  }
  if (!options.mesh.axes().empty()) {
    throw InvalidArgument(c10::str("[", kParameterServerStrategy, "] expected no mesh, but got ",
                                   options.mesh.str(),
                                   ": the replicas communicate with the parameter servers only"));
  }
  auto config = single_process_config(
      kParameterServerStrategy,
      devices_of_replicas(kParameterServerStrategy, devices, options.replicas_per_device), options);
  config.has_graphs = false;  // gradients go through the host
  config.num_processes_here = num_workers_here(resolver);
  return config;
}

/// Returns a different number at each call, even after a restart of the chief.
int64_t number_of_run() {
  return std::chrono::system_clock::now().time_since_epoch().count();
}

int checked_slots(const ParameterServerOptions& parameters, const ClusterResolver& resolver) {
  const int slots = parameters.slots_per_step;
  const bool is_synchronous = parameters.max_staleness == 0;
  if (slots < 0 || (slots > 1 && !is_synchronous))
    throw InvalidArgument(c10::str("[", kParameterServerStrategy, "] expected ",
                                   is_synchronous ? "0 or more" : "1 slot or 0", " slots per step, but got ",
                                   slots,
                                   is_synchronous ? "" : ": several make a step with a max_staleness of 0"));
  if (!is_synchronous) return 1;
  return slots > 0 ? slots : static_cast<int>(resolver.cluster_spec().task_indices("worker").size());
}

}  // namespace

void check_has_batches(int64_t steps_per_epoch) {
  if (steps_per_epoch == 0)
    throw InvalidArgument("[training steps] expected a dataset that gives a batch, but it has none");
}

void check_steps(int64_t begin, int64_t end) {
  if (begin < 0 || end < begin)
    throw InvalidArgument(
        c10::str("[training steps] expected steps from 0 on, but got ", begin, " to ", end));
}

ParameterServerStrategy::ParameterServerStrategy(std::shared_ptr<const ClusterResolver> resolver,
                                                 const std::vector<std::string>& devices,
                                                 const ParameterServerOptions& parameters,
                                                 const StrategyOptions& options,
                                                 const ClusterOptions& cluster)
    : Strategy(configured(*(resolver = with_servers(std::move(resolver))), devices, options)),
      seed_(options.seed.value_or(at::globalContext().defaultGenerator(at::kCPU).current_seed())),
      is_synchronous_(parameters.max_staleness == 0),
      looks_ahead_(parameters.looks_ahead && !is_synchronous_),
      is_leaving_(parameters.is_leaving) {
  slots_per_step_ = checked_slots(parameters, *resolver);
  CoordinatorOptions coordinator{.on_message = parameters.on_message, .is_ending = parameters.is_leaving};
  // The chief keeps together the steps that workers take together.
  if (!is_synchronous_) coordinator.max_staleness = parameters.max_staleness;
  coordinator_ = std::make_unique<ClusterCoordinator>(resolver, coordinator, cluster);
  client_options_ = std::make_unique<ParameterClientOptions>(
      client_options(*resolver, parameters, cluster, coordinator_->cluster_.token));
  variables_ = std::make_shared<ServedVariables>(*client_options_);
}

ParameterServerStrategy::~ParameterServerStrategy() = default;

void ParameterServerStrategy::on_modules(const std::vector<ModulePointer>& modules) {
  for (const auto& replica : modules) {
    for (const auto& module : replica->modules()) {
      auto* table = dynamic_cast<ServedTable*>(module.get());
      if (table == nullptr) continue;
      table->read_from(variables_);
      tables_.emplace_back(module);
    }
  }
}

void ParameterServerStrategy::on_optimizers(const std::vector<torch::optim::Optimizer*>& optimizers) {
  std::vector<std::vector<torch::Tensor>> parameters;  // for each local replica
  for (const auto* optimizer : optimizers) parameters.push_back(parameters_of(*optimizer));
  size_t position = 0;
  const auto& groups = optimizers.front()->param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto rule = update_rule_of(*optimizers.front(), group);
    for (size_t i = 0; i < groups[group].params().size(); ++i, ++position) {
      ServedVariables::NewVariable variable{.rule = rule};
      for (const auto& of_replica : parameters) variable.replicas.push_back(of_replica[position]);
      variable.name = parameter_name(variable.replicas.front());
      if (const auto* table = table_of(variable.replicas.front())) {
        variable.initial = table->initial_values();
        variable.filter = table->row_filter();
        if (const auto* growing = dynamic_cast<const GrowingTable*>(table))
          variable.growth = growing->row_growth();
      }
      const auto created = variables_->add(variable, is_chief());
      variable_counts_.num_new += created.num_new;
      variable_counts_.num_restored += created.num_restored;
      variable_counts_.sources.insert(created.sources.begin(), created.sources.end());
    }
  }
}

/// Returns null if the parameter stands for no table.
const ServedTable* ParameterServerStrategy::table_of(const torch::Tensor& parameter) const {
  for (const auto& weak : tables_) {
    const auto module = weak.lock();
    const auto* table = dynamic_cast<const ServedTable*>(module.get());
    if (table != nullptr && table->table().is_same(parameter)) return table;
  }
  return nullptr;
}

void ParameterServerStrategy::before_run() {
  variables_->refresh(work_ != nullptr ? work_->begin_run() : nullptr);
}

torch::Tensor ParameterServerStrategy::apply_gradients(ReplicaContext& replica,
                                                       torch::optim::Optimizer& optimizer,
                                                       const ApplyOptions& options) {
  if (work_ == nullptr || work_->only_reads())
    throw InvalidArgument(c10::str("[", name(), "] expected gradients to be applied inside the function of ",
                                   "define_step(), which workers call, and which does not only read"));
  const bool is_scaled = options.scaler != nullptr && options.scaler->is_enabled();
  if (slots_per_step_ > 1 && (options.clip_norm || is_scaled))
    throw InvalidArgument(c10::str("[", name(), "] expected no ", is_scaled ? "scaler" : "clip_norm",
                                   " with ", slots_per_step_,
                                   " slots per step, whose sum only the servers know: take one slot"));
  const auto group = optimizer_group(optimizer);
  reduce_gradients(replica, optimizer);
  const int local = replica.local_replica_id();
  auto norm = clip_and_step(*group, local, optimizer, options, [&] {
    if (local == 0) variables_->note_gradients(optimizer);
  });
  if (auto* reducer = group->reducer(local)) reducer->mark_applied();
  return norm;
}

void ParameterServerStrategy::define_step_parts(const std::string& name, StepParts parts) {
  const auto& kept = steps_.emplace(name, std::move(parts)).first->second;
  coordinator_->define_work(
      name,
      [this, &kept,
       check = make_closure_function(
           [](int64_t step, int64_t slot, int64_t run) { return std::tuple(step, slot, run); }, name)](
          const ClosureValues& arguments) mutable -> std::unique_ptr<ClosureWork> {
        const auto checked = check(arguments);
        const StepSlot slot{.step = std::get<int64_t>(checked[0]),
                            .slot = static_cast<int>(std::get<int64_t>(checked[1])),
                            .num_slots = slots_per_step_};
        return std::make_unique<StepWork>(*this, kept, slot, std::get<int64_t>(checked[2]));
      });
}

std::vector<RemoteValue> ParameterServerStrategy::schedule_slots(const std::string& name, int64_t step,
                                                                 int64_t run) {
  std::vector<RemoteValue> slots;
  for (int slot = 0; slot < slots_per_step_; ++slot)
    slots.push_back(coordinator_->schedule(name, step, slot, run));
  return slots;
}

std::vector<ClosureValues> ParameterServerStrategy::fetch_slots(const std::vector<RemoteValue>& slots) {
  std::vector<ClosureValues> fetched;
  for (const auto& slot : slots) {
    const auto [counts, times] = take_report(fetched.emplace_back(slot.fetch_all()));
    for (const auto& [staleness, updates] : counts.staleness) update_counts_.staleness[staleness] += updates;
    update_counts_.num_repeated += counts.num_repeated;
    update_counts_.num_outdated += counts.num_outdated;
    worker_times_.computing += times.computing;
    worker_times_.waiting += times.waiting;
    worker_times_.idle += times.idle;
  }
  return fetched;
}

void ParameterServerStrategy::run_steps(const std::string& name, int64_t begin, int64_t end,
                                        const OnStep& on_step) {
  check_steps(begin, end);
  const auto found = steps_.find(name);
  const bool only_reads = found != steps_.end() && found->second.only_reads;
  try {
    is_synchronous_ && !only_reads ? run_together(name, begin, end, on_step)
                                   : run_apart(name, begin, end, on_step);
  } catch (...) {
    if (is_chief()) coordinator_->cancel();  // throws the cause if a step has failed
    throw;
  }
}

void ParameterServerStrategy::run_apart(const std::string& name, int64_t begin, int64_t end,
                                        const OnStep& on_step) {
  const int64_t run = number_of_run();
  std::deque<std::vector<RemoteValue>> open;
  int64_t next = begin;
  for (int64_t step = begin; step < end; ++step) {
    for (; next < end && open.size() < kScheduledSteps; ++next)
      open.push_back(schedule_slots(name, next, run));
    const auto values = fetch_slots(open.front());
    open.pop_front();
    on_step(step, values);
    if (!steps_.at(name).only_reads && (step + 1) % kForgetEvery == 0)
      variables_->forget_before(static_cast<uint64_t>(step) + 1);
  }
}

void ParameterServerStrategy::run_together(const std::string& name, int64_t begin, int64_t end,
                                           const OnStep& on_step) {
  const int64_t run = number_of_run();
  const int64_t reconnects = variables_->num_reconnects();
  for (int64_t step = begin; step < end; ++step) {
    const auto values = fetch_slots(schedule_slots(name, step, run));
    const auto missing =
        variables_->commit(static_cast<uint64_t>(step), static_cast<uint32_t>(slots_per_step_));
    if (!missing.empty() || variables_->num_reconnects() != reconnects)
      throw PeerLost(c10::str("[", this->name(), "] a parameter server was lost at step ", step,
                              ", and may have gone back to an earlier step than the others: start again from "
                              "what was saved"));
    ++update_counts_.staleness[0];
    on_step(step, values);
  }
}

bool ParameterServerStrategy::serve() {
  if (is_chief()) return false;
  coordinator_->serve(is_leaving_);
  return true;
}

void ParameterServerStrategy::end() {
  coordinator_->end();
  if (is_chief()) variables_->end_servers();
}

std::vector<std::string> ParameterServerStrategy::save_on_servers(const std::string& folder) const {
  auto options = *client_options_;
  for (auto& server : options.servers) server.call_timeout = kSaveTimeout;
  return ParameterClient(options).save(folder);
}

}  // namespace lockstep
