#include "lockstep/strategies/core/strategy.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/devices/internal/cpu_affinity.h"
#include "lockstep/runtime/devices/internal/device_location.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/devices/internal/spare_cores.h"
#include "lockstep/runtime/devices/internal/threads_per_replica.h"
#include "lockstep/runtime/replicas/internal/replica_random.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/internal/cross_device_choice.h"
#include "lockstep/strategies/core/internal/strategy_core.h"

namespace lockstep {
namespace {

/// Returns none if the replicas may use any CPUs. Processes on one machine do not know each other's devices,
/// so their launcher assigns CPUs to them.
std::vector<Cpus> cpus_of_replicas(const StrategyConfig& config, int threads) {
  if (config.num_processes_here > 1) return {};
  std::vector<Cpus> near;
  for (const auto& device : config.devices)
    near.push_back(device.is_cuda() ? cpus_near(device.torch_device()) : Cpus());
  return cpus_to_keep_to(near, cpus_of_this_thread(), threads);
}

/// Tells the seeds of ranks' own streams from those of replicas, which may have the same numbers.
constexpr uint64_t kOfRanks = 0x6c8e9cf570932bd5ULL;

/// Returns whether replicas with a rank among the `count` local ones have all of their ranks there.
bool has_whole_replicas(const Mesh& mesh, int first, int count) {
  std::vector<int> num_here(static_cast<size_t>(mesh.num_replicas()), 0);
  for (int rank = first; rank < first + count; ++rank) ++num_here[static_cast<size_t>(mesh.replica_of(rank))];
  const int of_replica = mesh.size() / mesh.num_replicas();
  return std::all_of(num_here.begin(), num_here.end(),
                     [of_replica](int here) { return here == 0 || here == of_replica; });
}

std::vector<AxisPosition> axis_positions(const Mesh& mesh, int replica) {
  std::vector<AxisPosition> positions;
  const auto coordinates = mesh.coordinates(replica);
  for (size_t i = 0; i < coordinates.size(); ++i)
    positions.push_back({mesh.axes()[i].name, coordinates[i], mesh.axes()[i].size, mesh.axes()[i].role});
  return positions;
}

/// Returns given weights as they are, and measured ones as parts of the batch.
std::string weights_text(std::vector<double> weights, bool are_measured) {
  if (weights.empty()) return "(equal so far)";
  if (are_measured) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (auto& weight : weights) weight = std::round(weight / total * 1000) / 1000;
  }
  return c10::Join(" ", weights);
}

}  // namespace

Strategy::Strategy(StrategyConfig config) : core_(std::make_unique<Core>()) {
  if (config.devices.empty())
    throw InvalidArgument(c10::str("[", config.name, "] expected at least one device, but got none"));
  if (config.intra_op_threads < 0) {
    throw InvalidArgument(c10::str("[", config.name, "] expected 0 or more threads a replica, but got ",
                                   config.intra_op_threads));
  }
  core_->warnings.emplace(config.name);
  const int count = static_cast<int>(config.devices.size());
  first_replica_ = config.workers ? config.workers->layout()->first_local() : 0;
  core_->mesh = config.mesh.over(config.workers ? config.workers->layout()->num_replicas() : count);
  num_replicas_ = core_->mesh.num_replicas();
  core_->num_ranks = core_->mesh.size();
  if (core_->mesh.cuts_models() && config.gradient_compression) {
    throw InvalidArgument(c10::str("[", config.name, "] expected no gradient compression with the mesh ",
                                   core_->mesh.str(), ", whose replicas have several ranks, but got ",
                                   config.gradient_compression->name()));
  }
  core_->sharding = checked_sharding(config, core_->mesh);
  core_->shares = checked_shares(config, core_->mesh);
  // Must precede all threads that Lockstep starts: NCCL's settings are in the environment.
  const auto candidates =
      config.cross_device_ops
          ? std::vector<CrossDeviceCandidate>{{config.cross_device_ops, config.cross_device_ops_reason}}
          : candidates_for(config.devices);
  auto opened = open_first(candidates, config.devices, config.timeout);
  config.cross_device_ops = std::move(opened.ops);
  core_->ops_reason = std::move(opened.reason);
  core_->collectives = std::move(opened.channel);
  core_->collectives->keep_together(kSettlingRuns);
  uint64_t seed = config.seed.value_or(at::globalContext().defaultGenerator(torch::kCPU).current_seed());
  core_->has_graphs = config.has_graphs && std::all_of(config.devices.begin(), config.devices.end(),
                                                       [](const auto& device) { return device.is_cuda(); });
  if (config.workers) {
    const auto num_with = config.workers->sum(torch::tensor({int64_t{core_->has_graphs}}));
    core_->has_graphs = num_with.item<int64_t>() == config.workers->layout()->num_workers();
    // Random streams differ by replica id, so all workers start from the same seed: worker 0's.
    const auto shared = torch::tensor({static_cast<int64_t>(seed)}, torch::kLong);
    config.workers->broadcast_({shared});
    seed = static_cast<uint64_t>(shared.item<int64_t>());
  }
  for (int local = 0; local < count; ++local) {
    const LogicalDevice& device = config.devices[static_cast<size_t>(local)];
    const int rank = first_replica_ + local;
    const int replica = core_->mesh.replica_of(rank);
    // This is the first use of the device.
    with_device_errors(config.name.c_str(), rank, device, [&] {
      check_index_is_kept(device);
      core_->states.push_back(
          {replica, local, num_replicas_, device, make_replica_generator(device, seed, replica), 0, nullptr});
      core_->states.back().axes = axis_positions(core_->mesh, rank);
      core_->states.back().rank = rank;
      core_->states.back().rank_generator = make_replica_generator(device, seed ^ kOfRanks, rank);
      core_->streams.push_back(make_replica_stream(device));
    });
    core_->bindings.push_back(std::make_shared<ReplicaCollectives>(config.name, replica, num_replicas_,
                                                                   axis_positions(core_->mesh, rank)));
  }
  const int threads = config.intra_op_threads > 0 ? config.intra_op_threads
                                                  : threads_per_replica(count * config.num_processes_here);
  core_->devices = std::make_shared<const Devices>(config.devices);
  core_->threads =
      std::make_unique<ReplicaThreads>(count, threads, core_->streams, cpus_of_replicas(config, threads));
  // A number of threads that the user has set is a limit.
  const double cores = config.intra_op_threads > 0 ? 0 : cores_per_replica(count * config.num_processes_here);
  core_->threads->run_on_host([cores](int) { set_cores_of_this_replica(cores); });
  core_->config = std::move(config);
  core_->open_axes();
  if (core_->config.replica_weights.are_measured() && core_->shares) {
    std::vector<int> replicas;
    for (const auto& state : core_->states) replicas.push_back(state.replica_id);
    core_->measured_weights.emplace(core_->shares, std::move(replicas));
  }
}

Strategy::~Strategy() = default;

const std::string& Strategy::name() const {
  return core_->config.name;
}
int Strategy::num_ranks() const {
  return core_->num_ranks;
}
int Strategy::replica_of(size_t local) const {
  return core_->states.at(local).replica_id;
}
bool Strategy::is_first_of_replica(size_t local) const {
  return !core_->mesh.cuts_models() || core_->mesh.is_first_of_replica(core_->states.at(local).rank);
}
int Strategy::num_local_replicas() const {
  return static_cast<int>(core_->states.size());
}
const Devices& Strategy::devices() const {
  return core_->config.devices;
}
const CrossDeviceOps& Strategy::cross_device_ops() const {
  return *core_->config.cross_device_ops;
}
std::shared_ptr<const Devices> Strategy::shared_devices() const {
  return core_->devices;
}

std::vector<double> Strategy::replica_weights() const {
  return core_->shares ? core_->shares->weights() : std::vector<double>();
}

std::string Strategy::describe() const {
  std::vector<std::string> names;
  for (const auto& device : devices()) names.push_back(device.str());
  const auto& workers = core_->config.workers;
  const std::string where =
      workers ? c10::str(" over ", workers->layout()->num_workers(), " workers, ", names.size(), " here")
              : "";
  std::string weights;
  if (core_->shares) {
    const bool are_measured = core_->config.replica_weights.are_measured();
    weights = c10::str(", batches cut by ", are_measured ? "measured weights " : "weights ",
                       weights_text(core_->shares->weights(), are_measured));
  }
  return c10::str(name(), " with ", num_replicas_, " ", num_replicas_ == 1 ? "replica" : "replicas", where,
                  mesh().cuts_models() ? c10::str(" of ", num_ranks() / num_replicas_, " ranks") : "", " on ",
                  c10::Join(" ", names), ", ", cross_device_ops().name(), " (", core_->ops_reason, ")",
                  mesh().axes().size() > 1 ? ", mesh " + mesh().str() : "", weights,
                  core_->sharding.stage > 0
                      ? c10::str(", sharding stage ", core_->sharding.stage, " over ", core_->sharding.axis)
                      : "");
}

void Strategy::number_replicas(int first, int num_replicas, uint64_t seed) {
  core_->mesh = Mesh().over(num_replicas);
  for (auto& state : core_->states) {
    state.replica_id = state.rank = first + state.local_id;
    state.num_replicas = num_replicas;
    state.generator = make_replica_generator(state.device, seed, state.replica_id);
    state.rank_generator = make_replica_generator(state.device, seed ^ kOfRanks, state.rank);
    state.axes = axis_positions(core_->mesh, state.replica_id);
  }
}

void Strategy::report_failure(const std::exception_ptr& error) const {
  if (const auto& workers = core_->config.workers) workers->report(error);
}

void Strategy::check_same(const std::string& what, const std::vector<std::string>& lines) const {
  if (const auto& workers = core_->config.workers) workers->check_same(what, lines);
}

InputPlacement Strategy::placement() const {
  InputPlacement placement{shared_devices(), num_replicas_, first_replica_};
  placement.shares = core_->shares;
  if (core_->mesh.cuts_models()) {
    placement.replicas.emplace();
    for (const auto& state : core_->states) placement.replicas->push_back(state.replica_id);
    placement.has_whole_replicas = has_whole_replicas(core_->mesh, first_replica_, num_local_replicas());
  }
  if (const auto& workers = core_->config.workers) {
    placement.num_workers = workers->layout()->num_workers();
    placement.worker = workers->layout()->worker();
    placement.check_same = [workers](const std::string& what, const std::vector<std::string>& lines) {
      workers->check_same(what, lines);
    };
    placement.gather = [workers](int64_t here) {
      const auto& layout = workers->layout();
      const auto own = torch::zeros({layout->num_workers()}, torch::kLong);
      own[layout->worker()] = here;
      const auto all = workers->sum(own);
      const auto* values = all.const_data_ptr<int64_t>();
      return std::vector<int64_t>(values, values + all.numel());
    };
    placement.report = [workers](const std::exception_ptr& error) { workers->report(error); };
  }
  return placement;
}

}  // namespace lockstep
