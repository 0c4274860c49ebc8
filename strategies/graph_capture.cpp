// Strategy::run() of a CudaGraph: what a run hangs on, and one replica's call while it is captured.
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "lockstep/runtime/capturable_step.h"
#include "lockstep/runtime/device_graph.h"
#include "lockstep/runtime/error_text.h"
#include "lockstep/runtime/graph_recording.h"
#include "lockstep/strategies/strategy.h"
#include "lockstep/strategies/strategy_core.h"

namespace lockstep {
namespace {

/// All of CUDA's errors about captures have it in them.
bool is_capture_error(const std::string& message) {
  return message.find("captur") != std::string::npos;
}

void refresh(const std::vector<torch::optim::Optimizer*>& optimizers) {
  for (auto* optimizer : optimizers) {
    if (auto* step = dynamic_cast<CapturableStep*>(optimizer)) step->refresh_step();
  }
}

}  // namespace

/// While it lives, a replica's collectives, gradients and steps belong to a recording.
class Strategy::Recorder {
 public:
  Recorder(Core& core, int replica, GraphRecording& recording)
      : core_(core), replica_(replica), optimizers_(core.live_optimizers()) {
    set(&recording);
  }
  ~Recorder() { set(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  void set(GraphRecording* recording) {
    core_.states[static_cast<size_t>(replica_)].recording = recording;
    core_.collectives->record(replica_, recording);
    for (const auto& group : optimizers_) {
      auto* channel = group->channel();
      if (channel == nullptr) continue;
      channel->record(replica_, recording);
      auto* reducer = group->reducer(replica_);
      if (reducer != nullptr && !channel->is_capturable()) reducer->record(recording);
    }
  }

  Core& core_;
  const int replica_;
  const std::vector<std::shared_ptr<OptimizerGroup>> optimizers_;
};

bool Strategy::has_graphs() const {
  return std::all_of(devices().begin(), devices().end(),
                     [](const LogicalDevice& device) { return device.kind != DeviceKind::kCpu; });
}

void Strategy::describe_run(Fingerprint& fingerprint, const std::optional<BatchSizes>& sizes) const {
  fingerprint.add(sizes.has_value());
  if (sizes) {
    fingerprint.add(sizes->global);
    for (const int64_t local : sizes->local) fingerprint.add(local);
  }
  fingerprint.add(at::GradMode::is_enabled());
  fingerprint.add(at::autocast::is_autocast_enabled(at::kCUDA));
  fingerprint.add(static_cast<int8_t>(at::autocast::get_autocast_dtype(at::kCUDA)));
  for (const auto& state : core_->states) fingerprint.add(state.accumulations);
  for (const auto& group : core_->live_optimizers()) {
    for (int local = 0; local < num_local_replicas(); ++local) {
      if (const auto* reducer = group->reducer(local)) reducer->describe(fingerprint);
    }
  }
}

void Strategy::capture_call(ReplicaContext& replica, std::unique_ptr<GraphRecording>& recording,
                            const std::vector<torch::optim::Optimizer*>& optimizers,
                            const std::function<void()>& call) {
  auto pool = make_device_graph_pool(replica.device(), replica.generator());
  if (!pool) throw InvalidArgument("[CudaGraph] this build of Lockstep has no CUDA graphs");
  recording = std::make_unique<GraphRecording>(std::move(pool));
  refresh(optimizers);
  std::vector<at::Tensor> parameters;
  for (const auto* optimizer : optimizers) {
    for (auto& parameter : parameters_of(*optimizer)) parameters.push_back(std::move(parameter));
  }
  const Recorder recorder(*core_, replica.local_replica_id(), *recording);
  try {
    recording->begin(parameters);
    call();
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

void Strategy::replay_call(GraphRecording& recording,
                           const std::vector<torch::optim::Optimizer*>& optimizers) {
  refresh(optimizers);
  recording.replay();
}

}  // namespace lockstep
