#include "lockstep/runtime/backends/internal/hierarchical_backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/backends/internal/hierarchical_scatter.h"
#include "lockstep/runtime/backends/internal/hierarchical_sum.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/byte_layout.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"

namespace lockstep {
namespace {

using Arrival = ReplicaRendezvous::Arrival;
using Arrivals = std::vector<Arrival>;
using Works = WorkerChannel::Works;

using Stages = HierarchicalStages;

/// Runs `work`. A failure ends the channel, since later collectives wait for this one there.
template <typename Fn>
auto or_fail(const std::weak_ptr<WorkerChannel>& channel, const Fn& work) {
  try {
    return work();
  } catch (...) {
    if (const auto open = channel.lock()) open->fail(std::current_exception());
    throw;
  }
}

ReplicaRendezvous::Work work_of(Stages stages, Arrivals& arrivals,
                                const std::shared_ptr<WorkerChannel>& channel, DeviceStreams& streams) {
  // The channel's thread holds these functions, and must not be the channel's last owner.
  const std::weak_ptr<WorkerChannel> weak = channel;
  const auto on_streams = [&arrivals, weak, streams = streams_of(arrivals, streams)](const StagePart& part) {
    return [&arrivals, weak, streams, part](int number) {
      or_fail(weak, [&] { run_on_devices(arrivals, streams, [&] { part(arrivals, number); }); });
    };
  };
  ReplicaRendezvous::Work after{stages.num_after, on_streams(stages.after), nullptr};
  WorkerChannel::Exchange exchange{std::move(stages.description), std::move(stages.exchange),
                                   std::move(stages.complete)};
  return {stages.num_before, on_streams(stages.before),
          [channel, exchange = std::move(exchange), after = std::move(after)](
              uint64_t sequence, ReplicaRendezvous::Resume resume) {
            auto submitted = exchange;
            submitted.finish = [after, resume = std::move(resume)](const std::exception_ptr& error) {
              resume(error ? ReplicaRendezvous::Work{} : after, error);
            };
            channel->submit(sequence, std::move(submitted));
          }};
}

/// Makes a collective's work from its stages, which are made once all local replicas have arrived.
ReplicaRendezvous::MakeWork over_workers(std::string description,
                                         std::function<Stages(const Arrivals&)> make_stages,
                                         std::shared_ptr<WorkerChannel> channel,
                                         std::shared_ptr<DeviceStreams> streams) {
  return [description = std::move(description), make_stages = std::move(make_stages),
          channel = std::move(channel), streams = std::move(streams)](Arrivals& arrivals) {
    auto stages = or_fail(channel, [&] { return make_stages(arrivals); });
    stages.description = description;
    return work_of(std::move(stages), arrivals, channel, *streams);
  };
}

Stages broadcast_stages(const Arrivals& arrivals, int source, const WorkerLayout& layout) {
  const ByteLayout byte_layout(arrivals[0].outputs);
  const at::Tensor buffer = at::empty({byte_layout.total()}, at::kByte);
  const int worker = layout.worker_of(source);
  const int local = source - layout.first_local();  // the source's local index, if it is on this worker
  Stages stages;
  stages.num_before = worker == layout.worker() ? 1 : 0;
  stages.before = [byte_layout, buffer, local](Arrivals& all, int) {
    const auto& from = all[static_cast<size_t>(local)].inputs;
    for (size_t i = 0; i < from.size(); ++i) byte_layout.of(buffer, i, from[i]).copy_(from[i]);
  };
  stages.exchange = [buffer, worker](c10d::Backend& backend) {
    if (buffer.numel() == 0) return Works{};
    c10d::BroadcastOptions options;
    options.rootRank = worker;
    std::vector<at::Tensor> one{buffer};
    return Works{backend.broadcast(one, options)};
  };
  stages.num_after = static_cast<int>(arrivals.size());
  stages.after = [byte_layout, buffer, is_here = worker == layout.worker(), local](Arrivals& all,
                                                                                   int replica) {
    if (is_here && replica == local) return;
    auto& to = all[static_cast<size_t>(replica)].outputs;
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(byte_layout.of(buffer, i, to[i]));
  };
  return stages;
}

/// All workers send as many bytes as the one with the most.
Stages gather_stages(const Arrivals& arrivals, std::shared_ptr<const WorkerLayout> layout) {
  std::vector<ByteLayout> byte_layouts(static_cast<size_t>(layout->num_workers()));
  int64_t most = 0;
  for (int worker = 0; worker < layout->num_workers(); ++worker) {
    auto& of_worker = byte_layouts[static_cast<size_t>(worker)];
    for (int replica = 0; replica < layout->num_replicas_of(worker); ++replica)
      of_worker.add(arrivals[0].outputs[static_cast<size_t>(layout->first_replica_of(worker) + replica)]);
    most = std::max(most, of_worker.total());
  }
  const at::Tensor sent = at::empty({most}, at::kByte);
  const at::Tensor received = at::empty({layout->num_workers(), most}, at::kByte);
  Stages stages;
  stages.num_before = static_cast<int>(arrivals.size());
  stages.before = [own = byte_layouts[static_cast<size_t>(layout->worker())], sent](Arrivals& all,
                                                                                    int replica) {
    const auto& from = all[static_cast<size_t>(replica)].inputs[0];
    own.of(sent, static_cast<size_t>(replica), from).copy_(from);
  };
  stages.exchange = [sent, received](c10d::Backend& backend) {
    if (sent.numel() == 0) return Works{};
    std::vector<std::vector<at::Tensor>> parts{received.unbind(0)};
    std::vector<at::Tensor> one{sent};
    return Works{backend.allgather(parts, one)};
  };
  stages.num_after = static_cast<int>(arrivals.size());
  stages.after = [byte_layouts, received, layout = std::move(layout)](Arrivals& all, int replica) {
    auto& to = all[static_cast<size_t>(replica)];
    for (int from = 0; from < layout->num_replicas(); ++from) {
      if (!to.fills_output(static_cast<size_t>(from))) continue;
      const int worker = layout->worker_of(from);
      at::Tensor& output = to.outputs[static_cast<size_t>(from)];
      output.copy_(byte_layouts[static_cast<size_t>(worker)].of(
          received[worker], static_cast<size_t>(from - layout->first_replica_of(worker)), output));
    }
  };
  return stages;
}

}  // namespace

HierarchicalBackend::HierarchicalBackend(std::shared_ptr<ReplicaRendezvous> rendezvous, int local,
                                         std::shared_ptr<const WorkerLayout> layout,
                                         std::shared_ptr<WorkerChannel> channel,
                                         std::shared_ptr<AwayMessages> messages,
                                         std::shared_ptr<DeviceStreams> streams,
                                         std::shared_ptr<GradientCompression> compression)
    : RendezvousBackend({layout->first_local() + local, layout->num_replicas()}, local,
                        std::move(rendezvous)),
      layout_(std::move(layout)),
      channel_(std::move(channel)),
      messages_(std::move(messages)),
      streams_(std::move(streams)),
      compression_(std::move(compression)) {}

void HierarchicalBackend::check_reduction(const char* operation, const c10d::ReduceOp& op,
                                          const std::vector<at::Tensor>& tensors) const {
  RendezvousBackend::check_reduction(operation, op, tensors);
  check_product(operation, op, tensors);
}

void HierarchicalBackend::send_away(const Route& route, const std::string& description,
                                    const at::Tensor& value) {
  messages_->send(route, description, value);
}

void HierarchicalBackend::fetch_from_away(const Route& route) {
  while (!mailbox().has(route)) messages_->fetch(route.from, route.to, mailbox());
}

ReplicaRendezvous::MakeWork HierarchicalBackend::reduction(c10d::ReduceOp::RedOpType op,
                                                           std::string description) {
  const auto stages = [op, layout = layout_, compression = compression_](const Arrivals& arrivals) {
    return sum_stages(arrivals, op, *layout, compression);
  };
  return over_workers(std::move(description), stages, channel_, streams_);
}

ReplicaRendezvous::MakeWork HierarchicalBackend::broadcast_from(int source, std::string description) {
  const auto stages = [source, layout = layout_](const Arrivals& arrivals) {
    return broadcast_stages(arrivals, source, *layout);
  };
  return over_workers(std::move(description), stages, channel_, streams_);
}

ReplicaRendezvous::MakeWork HierarchicalBackend::gathering(std::string description) {
  const auto stages = [layout = layout_](const Arrivals& arrivals) {
    return gather_stages(arrivals, layout);
  };
  return over_workers(std::move(description), stages, channel_, streams_);
}

ReplicaRendezvous::MakeWork HierarchicalBackend::scattering(c10d::ReduceOp::RedOpType op,
                                                            std::string description) {
  const auto stages = [op, layout = layout_](const Arrivals& arrivals) {
    return scatter_stages(arrivals, op, *layout);
  };
  return over_workers(std::move(description), stages, channel_, streams_);
}

ReplicaRendezvous::MakeWork HierarchicalBackend::exchanging(std::string description) {
  const auto stages = [layout = layout_](const Arrivals& arrivals) {
    return exchange_stages(arrivals, layout);
  };
  return over_workers(std::move(description), stages, channel_, streams_);
}

ReplicaRendezvous::MakeWork HierarchicalBackend::meeting(std::string description) {
  return over_workers(
      std::move(description), [](const Arrivals&) { return Stages{}; }, channel_, streams_);
}

HierarchicalChannel::HierarchicalChannel(std::shared_ptr<const WorkerLayout> layout,
                                         std::shared_ptr<WorkerChannel> channel,
                                         std::chrono::milliseconds timeout,
                                         const std::shared_ptr<GradientCompression>& compression)
    : RendezvousChannel(layout->num_local(), timeout, layout->first_local()),
      channel_(std::move(channel)),
      messages_(std::make_shared<AwayMessages>(layout, channel_)) {
  for (int local = 0; local < layout->num_local(); ++local) {
    backends_.push_back(c10::make_intrusive<HierarchicalBackend>(rendezvous(), local, layout, channel_,
                                                                 messages_, streams(), compression));
  }
}

HierarchicalChannel::~HierarchicalChannel() {
  messages_->close();
}

void HierarchicalChannel::check_usable() const {
  channel_->check_usable();
}

void HierarchicalChannel::enter() {
  channel_->begin_run(rendezvous()->next_sequence());
  messages_->begin_run();
  RendezvousChannel::enter();
}

void HierarchicalChannel::check_complete() {
  RendezvousChannel::check_complete();
  messages_->drain();
}

void HierarchicalChannel::release(const std::string& reason) {
  RendezvousChannel::release(reason);
  const auto error = std::make_exception_ptr(CollectiveAborted(reason));
  channel_->fail(error);
  messages_->fail(error);
}

}  // namespace lockstep
