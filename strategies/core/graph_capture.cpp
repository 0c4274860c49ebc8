// Strategy::run() of a CudaGraph: the facts that a run depends on, and the capture of one replica's call.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <exception>
#include <string>

#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/graphs/capturable_step.h"
#include "lockstep/runtime/graphs/capture_gate.h"
#include "lockstep/runtime/graphs/device_graph.h"
#include "lockstep/runtime/graphs/graph_recording.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

/// All of CUDA's errors about captures contain this text.
bool is_capture_error(const std::string& message) {
  return message.find("captur") != std::string::npos;
}

void refresh(const std::vector<torch::optim::Optimizer*>& optimizers) {
  for (auto* optimizer : optimizers) {
    if (auto* step = dynamic_cast<CapturableStep*>(optimizer)) step->refresh_step();
  }
}

}  // namespace

/// While alive, makes a replica's collectives, gradients and steps part of a recording.
class Strategy::Recorder {
 public:
  Recorder(Core& core, int replica, const std::shared_ptr<GraphRecording>& recording)
      : core_(core), replica_(replica), optimizers_(core.live_optimizers()) {
    for (const auto& group : optimizers_) {
      if (group->sharding_stage() > 1) {
        throw InvalidArgument(
            "[CudaGraph] a step with sharded gradients (stages 2 and 3) cannot be captured, since their "
            "memory "
            "comes and goes: use stage 1 with graphs");
      }
      if (group->host_state(replica) != nullptr) {
        throw InvalidArgument(
            "[CudaGraph] a step of an optimizer whose state is on the host cannot be captured: train without "
            "host_optimizer_state, or without graphs");
      }
      phases_.push_back(phase_of(*group));
    }
    set(recording);
  }
  ~Recorder() { set(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Throws InvalidArgument if the function began a step that only a later run would end: a replay leaves
  /// nothing on the host that the later run could continue from.
  void check_steps_ended() const {
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      if (phase_of(*optimizers_[i]) == phases_[i]) continue;
      throw InvalidArgument(
          "[CudaGraph] the function leaves gradients to a later run: call apply_gradients() in it, after "
          "backward");
    }
  }

 private:
  GradientReducer::Phase phase_of(const OptimizerGroup& group) const {
    const auto* reducer = group.reducer(replica_);
    return reducer == nullptr ? GradientReducer::Phase::kIdle : reducer->phase();
  }

  void set(const std::shared_ptr<GraphRecording>& recording) {
    core_.states[static_cast<size_t>(replica_)].recording = recording.get();
    for (auto* channel : core_.called_channels()) channel->record(replica_, recording);
    for (const auto& group : optimizers_) {
      for (auto* channel : group->channels()) channel->record(replica_, recording);
      auto* reducer = group->reducer(replica_);
      if (reducer == nullptr) continue;
      reducer->set_captured(recording != nullptr);
      if (!group->channel()->is_capturable()) reducer->record(recording.get());
    }
  }

  Core& core_;
  const int replica_;
  const std::vector<std::shared_ptr<OptimizerGroup>> optimizers_;
  std::vector<GradientReducer::Phase> phases_;  // phases when the call began
};

std::function<void()> Strategy::Core::meeting_of(int replica) const {
  const auto host = collectives->backends(replica).host;
  if (!collectives->occupies_devices() || host->getSize() == 1) return nullptr;
  return [host] { all_reduce_(*host, ReduceOp::kSum, {at::zeros({1})}); };
}

bool Strategy::has_graphs() const {
  return core_->has_graphs;
}

void Strategy::describe_run(Fingerprint& fingerprint, const std::optional<BatchSizes>& sizes) const {
  fingerprint.add(sizes.has_value());
  if (sizes) {
    fingerprint.add(sizes->global);
    for (const int64_t local : sizes->local) fingerprint.add(local);
  }
  fingerprint.add(at::GradMode::is_enabled());
  fingerprint.add(c10::InferenceMode::is_enabled());
  const auto device_type = core_->devices->front().type;  // graphs are of devices of one type
  fingerprint.add(at::autocast::is_autocast_enabled(device_type));
  fingerprint.add(static_cast<int8_t>(at::autocast::get_autocast_dtype(device_type)));
  for (const auto& state : core_->states) fingerprint.add(state.accumulations);
  // Replays could not be measured, and batches change their sizes.
  if (core_->measured_weights) fingerprint.add_unsettled();
  const auto& context = at::globalContext();
  for (const bool flag :
       {context.deterministicAlgorithms(), context.userEnabledCuDNN(), context.benchmarkCuDNN(),
        context.deterministicCuDNN(), context.allowTF32CuBLAS(), context.allowTF32CuDNN()})
    fingerprint.add(flag);
  for (const auto& group : core_->live_optimizers()) fingerprint.add(group->id());
}

void Strategy::describe_replicas(Fingerprint& fingerprint,
                                 const std::function<void(int replica, Fingerprint& own)>& describe) const {
  core_->check_caller("run");
  const auto optimizers = core_->live_optimizers();
  std::vector<Fingerprint> parts(core_->states.size());
  const auto describe_one = [&](int replica) {
    Fingerprint& own = parts[static_cast<size_t>(replica)];
    for (const auto& group : optimizers) {
      if (const auto* reducer = group->reducer(replica)) reducer->describe(own);
      if (auto* sharded = group->sharded(replica)) sharded->describe(own);
    }
    describe(replica, own);
  };
  if (parts.size() == 1) {
    describe_one(0);  // before another thread would be awake
  } else {
    for (const auto& error : core_->threads->run_on_host(describe_one)) {
      if (error) std::rethrow_exception(error);
    }
  }
  for (const auto& part : parts) fingerprint.add(part);
}

/// A graph also contains contributions of other workers, such as their part of a sum on the host, and its
/// collectives on devices meet those of their graphs. So all workers replay, or all capture, or all call.
GraphUse Strategy::agree_on_graphs(GraphUse plan) const {
  const auto& workers = core_->config.workers;
  if (!workers) return plan;
  const auto sums =
      workers->sum(torch::tensor({int64_t{plan == GraphUse::kReplay}, int64_t{plan == GraphUse::kCapture}}));
  const auto* counts = sums.const_data_ptr<int64_t>();
  const int num_workers = workers->layout()->num_workers();
  if (counts[0] == num_workers) return GraphUse::kReplay;
  // Workers that could replay capture again with those whose runs have changed.
  return counts[0] + counts[1] == num_workers ? GraphUse::kCapture : GraphUse::kCall;
}

void Strategy::capture_call(ReplicaContext& replica, std::shared_ptr<GraphRecording>& recording,
                            detail::GraphObjects& objects, const std::function<void()>& call) {
  auto pool = make_device_graph_pool(replica.device(), replica.generator());
  if (!pool) throw InvalidArgument("[CudaGraph] this build of Lockstep has no CUDA graphs");
  recording =
      std::make_shared<GraphRecording>(std::move(pool), core_->meeting_of(replica.local_replica_id()));
  refresh(objects.optimizers());
  const CaptureGuard capturing(replica.device());
  const Recorder recorder(*core_, replica.local_replica_id(), recording);
  try {
    recording->begin(objects.take_parameters());
    call();
    recorder.check_steps_ended();
    recording->end();
  } catch (const c10::Error& error) {
    recording->abandon();
    if (!is_capture_error(error.what_without_backtrace())) throw;
    throw InvalidArgument(c10::str(
        "[CudaGraph] the function cannot be captured: something in it makes the host wait for the GPU, as "
        "item(), cpu(), nonzero() and copies from memory that is not pinned do, or works on another stream (",
        error_line(std::current_exception()), ")"));
  } catch (...) {
    recording->abandon();
    throw;
  }
}

void Strategy::replay_call(GraphRecording& recording, const detail::GraphObjects& objects) {
  refresh(objects.optimizers());
  recording.replay();
}

}  // namespace lockstep
