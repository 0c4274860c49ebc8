#include "lockstep/runtime/backends/rendezvous_backend.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/backends/internal/shared_outputs.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/collectives/internal/packed_tensors.h"
#include "lockstep/runtime/devices/device_streams.h"
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

/// Receives a message when it is waited for, or is done already.
class MessageWork : public c10d::Work {
 public:
  using Receive = std::function<void(std::optional<std::chrono::milliseconds>)>;

  MessageWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> tensors, Receive receive)
      : Work(rank, type), number_(number), tensors_(std::move(tensors)), receive_(std::move(receive)) {}

  uint64_t getSequencenumber() const override { return number_; }
  bool isCompleted() override { return receive_ == nullptr; }
  bool wait(std::chrono::milliseconds timeout) override {
    if (const auto receive = std::exchange(receive_, nullptr))
      receive(timeout == kNoTimeout ? std::nullopt : std::optional(timeout));
    return true;
  }
  std::vector<at::Tensor> result() override { return tensors_; }

 private:
  const uint64_t number_;
  std::vector<at::Tensor> tensors_;
  Receive receive_;
};

std::string describe_message(const at::Tensor& value, int tag) {
  return describe("a message", {value}) + (tag == 1 ? " with gradient" : "");
}

bool are_on_device(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return !tensor.is_cpu(); });
}

}  // namespace

void RendezvousBackend::check_reduction(const char* operation, const c10d::ReduceOp& op,
                                        const std::vector<at::Tensor>& tensors) const {
  check_mean(operation, op, tensors);
  check_extreme(operation, op, tensors);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                            const c10d::AllreduceOptions& options) {
  check_reduction("all_reduce", options.reduceOp, tensors);
  auto description = describe(std::string("all_reduce ") + name_of(options.reduceOp), tensors) + label();
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
  auto description = describe(c10::str("broadcast from ", source), tensors) + label();
  const auto make_work = broadcast_from(source, description);
  return launch(c10d::OpType::BROADCAST, {std::move(description), tensors, tensors, nullptr, nullptr},
                make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                            std::vector<at::Tensor>& inputs,
                                                            const c10d::AllgatherOptions&) {
  check_all_gather(outputs, inputs, getRank(), getSize());  // copy_ would broadcast or convert silently
  // All ranks agree on what is gathered if their lists of outputs have the same shapes.
  auto description = describe("all_gather", outputs[0]) + label();
  const auto make_work = with_shared_outputs(gathering(description), rendezvous_->first_rank());
  return launch(c10d::OpType::ALLGATHER, {std::move(description), inputs, outputs[0], nullptr, nullptr},
                make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                  const c10d::AllgatherOptions& options) {
  std::vector<std::vector<at::Tensor>> outputs{equal_parts("all_gather", output, input, getSize())};
  std::vector<at::Tensor> inputs{input};
  return allgather(outputs, inputs, options);
}

SharesGathers::Gather RendezvousBackend::gather_shared(const at::Tensor& part) {
  if (!part.is_cpu() || part.layout() != at::kStrided) {
    throw InvalidArgument(
        c10::str("[all_gather] expected a dense CPU tensor to share, but got one on ", part.device()));
  }
  const std::vector<at::Tensor> like_parts(static_cast<size_t>(getSize()), part);
  auto description = describe("all_gather", like_parts) + label();
  const auto make_work = with_shared_outputs(gathering(description), rendezvous_->first_rank());
  auto whole = std::make_shared<at::Tensor>();
  Arrival arrival{std::move(description), {part}, like_parts, nullptr, nullptr, whole};
  return {launch(c10d::OpType::ALLGATHER, std::move(arrival), make_work), whole};
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                                 std::vector<std::vector<at::Tensor>>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) {
  check_reduce_scatter(outputs, inputs, getRank(), getSize());
  check_reduction("reduce_scatter", options.reduceOp, inputs[0]);
  auto description =
      describe_parts(std::string("reduce_scatter ") + name_of(options.reduceOp), inputs[0]) + label();
  const auto make_work = scattering(options.reduceOp, description);
  return launch(c10d::OpType::REDUCE_SCATTER, {std::move(description), inputs[0], outputs, nullptr, nullptr},
                make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  std::vector<std::vector<at::Tensor>> inputs{equal_parts("reduce_scatter", input, output, getSize())};
  std::vector<at::Tensor> outputs{output};
  return reduce_scatter(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                           std::vector<at::Tensor>& inputs,
                                                           const c10d::AllToAllOptions&) {
  check_all_to_all(outputs, inputs, getRank(), getSize());
  // The ranks agree on the dtype only.
  return exchange(c10::str("all_to_all ", c10::toString(inputs[0].scalar_type())), outputs, inputs);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                                std::vector<int64_t>& output_sizes,
                                                                std::vector<int64_t>& input_sizes,
                                                                const c10d::AllToAllOptions&) {
  check_equal_all_to_all(output, input, output_sizes, input_sizes, getSize());
  return exchange(describe("all_to_all", {input}), output.unbind(0), input.unbind(0));
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::exchange(std::string description,
                                                           std::vector<at::Tensor> outputs,
                                                           std::vector<at::Tensor> inputs) {
  const auto make_work = exchanging(description);
  return launch(c10d::OpType::ALLTOALL,
                {std::move(description), std::move(inputs), std::move(outputs), nullptr, nullptr}, make_work);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::barrier(const c10d::BarrierOptions&) {
  return launch(c10d::OpType::BARRIER, {"barrier", {}, {}, nullptr, nullptr}, meeting("barrier"));
}

void RendezvousBackend::check_peer(const char* operation, const std::vector<at::Tensor>& tensors,
                                   int peer) const {
  if (peer < 0 || peer >= getSize() || peer == getRank()) {
    throw InvalidArgument(c10::str("[", operation, "] expected another replica than ", getRank(),
                                   " from 0 to ", getSize() - 1, ", but got ", peer));
  }
  if (tensors.size() != 1 || tensors[0].layout() != at::kStrided)
    throw InvalidArgument(c10::str("[", operation, "] expected one dense tensor"));
}

bool RendezvousBackend::is_away(int rank) const {
  const int first = rendezvous_->first_rank();
  return rank < first || rank >= first + rendezvous_->size();
}

void RendezvousBackend::send_away(const Route& route, const std::string&, const at::Tensor&) {
  throw InvalidArgument(c10::str("[send] replica ", route.to, " is not in this process"));
}

void RendezvousBackend::fetch_from_away(const Route& route) {
  throw InvalidArgument(c10::str("[receive] replica ", route.from, " is not in this process"));
}

void RendezvousBackend::put(const Route& route, const std::string& description, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  if (is_away(route.to)) return send_away(route, description, value);
  ReplicaMailbox::Message message{.description = description, .value = value.clone()};
  if (!value.is_cpu()) {
    message.ready = std::make_shared<StreamFence>();
    message.ready->record({message.value});
  }
  mailbox().put(route, std::move(message));
}

void RendezvousBackend::take(const Route& route, const std::string& description, const at::Tensor& value,
                             std::optional<std::chrono::milliseconds> timeout) {
  const at::NoGradGuard no_grad;
  if (is_away(route.from)) fetch_from_away(route);
  const auto message = mailbox().take(route, description, timeout);
  if (message.ready) {
    // A copy between GPUs runs on this thread's stream of the source, and is ordered with the destination's.
    const auto device = message.value.device();
    message.ready->block(device);
    message.value.record_stream(current_stream(device));
  }
  value.copy_(message.value);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::send(std::vector<at::Tensor>& tensors, int destination,
                                                       int tag) {
  check_peer("send", tensors, destination);
  const uint64_t number = tag == 1 ? num_sent_[destination]++ : 0;
  const Route route{.from = getRank(), .to = destination, .tag = tag == 1 ? 0 : tag};
  put(route, describe_message(tensors[0], tag), tensors[0]);
  return c10::make_intrusive<MessageWork>(getRank(), c10d::OpType::SEND, number, tensors, nullptr);
}

c10::intrusive_ptr<c10d::Work> RendezvousBackend::recv(std::vector<at::Tensor>& tensors, int source,
                                                       int tag) {
  check_peer("receive", tensors, source);
  const uint64_t number = tag == 1 ? num_received_[source]++ : 0;
  const Route route{.from = source, .to = getRank(), .tag = tag == 1 ? 0 : tag};
  MessageWork::Receive receive = [this, route, text = describe_message(tensors[0], tag),
                                  value = tensors[0]](std::optional<std::chrono::milliseconds> timeout) {
    take(route, text, value, timeout);
  };
  return c10::make_intrusive<MessageWork>(getRank(), c10d::OpType::RECV, number, tensors, std::move(receive));
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
  for (const auto& backend : backends_) static_cast<RendezvousBackend&>(*backend).reset();
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

void check_pairs(const std::vector<Arrival>& arrivals, int first_rank) {
  const auto first = static_cast<size_t>(first_rank);
  for (size_t from = 0; from < arrivals.size(); ++from) {
    for (size_t to = 0; to < arrivals.size(); ++to) {
      const at::Tensor& sent = arrivals[from].inputs[first + to];
      const at::Tensor& expected = arrivals[to].outputs[first + from];
      if (sent.sizes() == expected.sizes()) continue;
      throw CollectiveMismatch(c10::str("[all_to_all] replica ", first + from, " sends", describe("", {sent}),
                                        " to replica ", first + to, ", which expects",
                                        describe("", {expected})));
    }
  }
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
