#include "lockstep/runtime/backends/rendezvous_backend.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/collectives/internal/packed_tensors.h"
#include "lockstep/runtime/graphs/graph_recording.h"

namespace lockstep {
namespace {

using Arrival = ReplicaRendezvous::Arrival;

class RendezvousWork : public c10d::Work {
 public:
  RendezvousWork(int rank, c10d::OpType type, std::shared_ptr<ReplicaRendezvous> rendezvous,
                 std::shared_ptr<ReplicaRendezvous::Meeting> meeting, std::vector<at::Tensor> outputs,
                 std::shared_ptr<StreamFence> finished)
      : Work(rank, type),
        rendezvous_(std::move(rendezvous)),
        meeting_(std::move(meeting)),
        outputs_(std::move(outputs)),
        finished_(std::move(finished)) {}

  bool isCompleted() override { return rendezvous_->is_done(*meeting_); }

  bool wait(std::chrono::milliseconds timeout) override {
    rendezvous_->wait(*meeting_, timeout == kNoTimeout ? std::nullopt : std::optional(timeout));
    if (finished_) {
      std::vector<at::Device> seen;
      for (const auto& output : outputs_) {
        if (std::find(seen.begin(), seen.end(), output.device()) != seen.end()) continue;
        seen.push_back(output.device());
        finished_->block(output.device());
      }
    }
    return true;
  }

  std::vector<at::Tensor> result() override { return outputs_; }

 private:
  std::shared_ptr<ReplicaRendezvous> rendezvous_;
  std::shared_ptr<ReplicaRendezvous::Meeting> meeting_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<StreamFence> finished_;
};

/// Work that has already been waited for.
class DoneWork : public c10d::Work {
 public:
  DoneWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs)
      : Work(rank, type), outputs_(std::move(outputs)) {
    finish();
  }
  std::vector<at::Tensor> result() override { return outputs_; }

 private:
  std::vector<at::Tensor> outputs_;
};

/// Whether the arrival's memory is on this device. All work on a device's memory is on that device's stream,
/// or ordered with it: copies between GPUs are on the source's stream, after and before the destination's
/// work.
bool is_on(const ReplicaRendezvous::Arrival& arrival, c10::Device device) {
  const auto is_here = [device](const at::Tensor& tensor) { return tensor.device() == device; };
  return std::any_of(arrival.inputs.begin(), arrival.inputs.end(), is_here) ||
         std::any_of(arrival.outputs.begin(), arrival.outputs.end(), is_here);
}

bool are_on_device(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return !tensor.is_cpu(); });
}

}  // namespace

void RendezvousBackend::check_reduction(const c10d::ReduceOp& op,
                                        const std::vector<at::Tensor>& tensors) const {
  check_mean(op, tensors);
  check_extreme(op, tensors);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                            const c10d::AllreduceOptions& options) {
  check_reduction(options.reduceOp, tensors);
  auto description = describe(std::string("all_reduce ") + name_of(options.reduceOp), tensors);
  const auto make_work = reduction(options.reduceOp, description);
  return launch(c10d::OpType::ALLREDUCE, {std::move(description), tensors, tensors, nullptr, nullptr},
                make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                            const c10d::BroadcastOptions& options) {
  check_source(options.rootRank, getSize());
  const int source = static_cast<int>(options.rootRank);
  auto description = describe(c10::str("broadcast from ", source), tensors);
  const auto make_work = broadcast_from(source, description);
  return launch(c10d::OpType::BROADCAST, {std::move(description), tensors, tensors, nullptr, nullptr},
                make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                            std::vector<at::Tensor>& inputs,
                                                            const c10d::AllgatherOptions&) {
  check_all_gather(outputs, inputs, getRank(), getSize());  // copy_ would broadcast or convert silently
  // All ranks agree on what is gathered if their lists of outputs have the same shapes.
  auto description = describe("all_gather", outputs[0]);
  const auto make_work = gathering(description);
  return launch(c10d::OpType::ALLGATHER, {std::move(description), inputs, outputs[0], nullptr, nullptr},
                make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                  const c10d::AllgatherOptions& options) {
  std::vector<std::vector<at::Tensor>> outputs{gathered_parts(output, input, getSize())};
  std::vector<at::Tensor> inputs{input};
  return allgather(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::barrier(const c10d::BarrierOptions&) {
  return launch(c10d::OpType::BARRIER, {"barrier", {}, {}, nullptr, nullptr}, meeting("barrier"));
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::launch(c10d::OpType type, Arrival arrival,
                                                         const ReplicaRendezvous::MakeWork& make_work) {
  if (recording_ == nullptr || !recording_->is_capturing() || !are_on_device(arrival.inputs))
    return arrive(type, std::move(arrival), make_work);
  auto outputs = arrival.outputs;
  recording_->interrupt([this, type, arrival = std::move(arrival), make_work] {
    arrive(type, arrival, make_work)->wait(kNoTimeout);
  });
  return c10::make_intrusive<DoneWork>(getRank(), type, std::move(outputs));
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::arrive(c10d::OpType type, Arrival arrival,
                                                         const ReplicaRendezvous::MakeWork& make_work) {
  if (are_on_device(arrival.inputs)) {
    arrival.ready = std::make_shared<StreamFence>();
    arrival.ready->record(arrival.inputs);
    arrival.finished = std::make_shared<StreamFence>();
  }
  auto outputs = arrival.outputs;
  auto finished = arrival.finished;
  auto meeting = rendezvous_->arrive(local_, std::move(arrival), make_work);
  return c10::make_intrusive<RendezvousWork>(getRank(), type, rendezvous_, std::move(meeting),
                                             std::move(outputs), std::move(finished));
}

void RendezvousChannel::reset() {
  rendezvous_->reset();
  streams_->join_current();
}

void RendezvousChannel::record(int replica, const std::shared_ptr<GraphRecording>& recording) {
  static_cast<RendezvousBackend&>(*backends_[static_cast<size_t>(replica)]).record(recording.get());
}

std::vector<c10::Stream> streams_of(const std::vector<Arrival>& arrivals, DeviceStreams& streams) {
  std::vector<c10::Stream> used;
  for (const auto& arrival : arrivals) {
    for (const auto& tensor : arrival.outputs) {
      const auto is_its = [&](const c10::Stream& stream) { return stream.device() == tensor.device(); };
      if (!tensor.is_cpu() && std::none_of(used.begin(), used.end(), is_its))
        used.push_back(streams.of(tensor.device()));
    }
  }
  return used;
}

void run_on_devices(std::vector<Arrival>& arrivals, const std::vector<c10::Stream>& streams,
                    const std::function<void()>& body) {
  const at::NoGradGuard no_grad;
  if (streams.empty()) return body();
  const c10::MultiStreamGuard on_streams(streams);
  for (const auto& stream : streams) {
    for (auto& arrival : arrivals) {
      if (arrival.ready && is_on(arrival, stream.device())) arrival.ready->block(stream);
    }
  }
  body();
  for (const auto& stream : streams) {
    for (auto& arrival : arrivals) {
      if (arrival.finished && is_on(arrival, stream.device())) arrival.finished->record(stream);
    }
  }
}

}  // namespace lockstep
