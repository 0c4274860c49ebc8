#include "lockstep/runtime/hierarchical_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/runtime/byte_places.h"
#include "lockstep/runtime/collective_description.h"
#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/local_sum.h"

namespace lockstep {
namespace {

using Arrival = Rendezvous::Arrival;
using Arrivals = std::vector<Arrival>;
using Works = WorkerChannel::Works;

/// A part of what the replicas of this process do of a collective.
using Part = std::function<void(Arrivals& arrivals, int part)>;

/// What happens to one collective: parts, the exchange between the workers, and parts again.
struct Course {
  std::string description;
  int num_before = 0;
  Part before;
  std::function<Works(c10d::Backend&)> exchange;
  std::function<void()> complete;
  int num_after = 0;
  Part after;
};

/// `work`, whose failure ends the channel: what comes behind this collective waits for it there.
template <typename Fn>
auto or_fail(const std::weak_ptr<WorkerChannel>& channel, const Fn& work) {
  try {
    return work();
  } catch (...) {
    if (const auto open = channel.lock()) open->fail(std::current_exception());
    throw;
  }
}

Rendezvous::Work work_of(Course course, Arrivals& arrivals, const std::shared_ptr<WorkerChannel>& channel,
                         DeviceStreams& streams) {
  // The channel's thread holds what is here, and must not be the last to hold the channel.
  const std::weak_ptr<WorkerChannel> weak = channel;
  const auto on_streams = [&arrivals, weak, streams = streams_of(arrivals, streams)](const Part& part) {
    return [&arrivals, weak, streams, part](int number) {
      or_fail(weak, [&] { run_on_devices(arrivals, streams, [&] { part(arrivals, number); }); });
    };
  };
  Rendezvous::Work after{course.num_after, on_streams(course.after), nullptr};
  WorkerChannel::Exchange exchange{std::move(course.description), std::move(course.exchange),
                                   std::move(course.complete)};
  return {course.num_before, on_streams(course.before),
          [channel, exchange = std::move(exchange), after = std::move(after)](uint64_t sequence,
                                                                              Rendezvous::Resume resume) {
            auto submitted = exchange;
            submitted.finish = [after, resume = std::move(resume)](const std::exception_ptr& error) {
              resume(error ? Rendezvous::Work{} : after, error);
            };
            channel->submit(sequence, std::move(submitted));
          }};
}

/// Some elements of one tensor of the list, and where their sum is made.
struct Slice {
  size_t index;
  int64_t begin;  // in elements; all of a tensor that is not contiguous is one slice
  int64_t count;
  at::Tensor sum;

  at::Tensor of(const at::Tensor& tensor) const {
    return count == tensor.numel() ? tensor : tensor.view({-1}).narrow(0, begin, count);
  }
};

/// A sum of a list of tensors: buffers on the CPU, one a dtype, that the workers add up.
struct Sum {
  std::vector<std::vector<at::Tensor>> tensors;  // of each replica
  std::vector<at::Tensor> buffers;
  std::vector<Slice> slices;
  bool is_in_place = false;
};

std::vector<at::Tensor> as_real(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> real;
  for (const auto& tensor : tensors) real.push_back(tensor.is_complex() ? at::view_as_real(tensor) : tensor);
  return real;
}

bool can_be_cut(const Sum& sum, size_t index) {
  return std::all_of(sum.tensors.begin(), sum.tensors.end(), [&](const auto& tensors) {
    return tensors[index].is_cpu() && tensors[index].is_contiguous();
  });
}

std::shared_ptr<Sum> lay_out_sum(const Arrivals& arrivals) {
  auto sum = std::make_shared<Sum>();
  for (const auto& arrival : arrivals) sum->tensors.push_back(as_real(arrival.outputs));
  const auto& first = sum->tensors[0];
  for (size_t index = 0; index < first.size(); ++index) {
    if (first[index].numel() > 0) check_own_memory(arrivals, index);
  }
  if (arrivals.size() == 1 && first.size() == 1 && can_be_cut(*sum, 0) &&
      summable_dtype(first[0].scalar_type()) == first[0].scalar_type()) {
    sum->is_in_place = true;
    sum->buffers = {first[0].view({-1})};
    sum->slices.push_back({0, 0, first[0].numel(), first[0]});
    return sum;
  }
  std::map<at::ScalarType, int64_t> totals;
  for (const auto& tensor : first) totals[summable_dtype(tensor.scalar_type())] += tensor.numel();
  std::map<at::ScalarType, at::Tensor> buffers;
  for (const auto& [dtype, total] : totals) {
    buffers[dtype] = at::empty({total}, dtype);
    sum->buffers.push_back(buffers[dtype]);
    totals[dtype] = 0;  // from here on what is given away
  }
  for (size_t index = 0; index < first.size(); ++index) {
    const int64_t all = first[index].numel();
    const auto dtype = summable_dtype(first[index].scalar_type());
    const int64_t most =
        can_be_cut(*sum, index)
            ? std::max<int64_t>(1, kSumPartBytes / static_cast<int64_t>(first[index].element_size()))
            : all;
    for (int64_t begin = 0; begin < all; begin += most) {
      const int64_t count = std::min(most, all - begin);
      at::Tensor place = buffers[dtype].narrow(0, totals[dtype] + begin, count);
      sum->slices.push_back({index, begin, count, count == all ? place.view(first[index].sizes()) : place});
    }
    totals[dtype] += all;
  }
  return sum;
}

bool is_compressible(const at::Tensor& buffer) {
  return buffer.numel() > 0 && (buffer.scalar_type() == at::kFloat || buffer.scalar_type() == at::kDouble);
}

Course sum_course(const Arrivals& arrivals, c10d::ReduceOp::RedOpType op, int num_replicas,
                  const std::shared_ptr<GradientCompression>& compression) {
  const auto sum = lay_out_sum(arrivals);
  const bool is_mean = op == c10d::ReduceOp::AVG;
  Course course;
  course.num_before = sum->is_in_place ? 0 : static_cast<int>(sum->slices.size());
  course.before = [sum, op](Arrivals&, int part) {
    auto& slice = sum->slices[static_cast<size_t>(part)];
    slice.sum.copy_(slice.of(sum->tensors[0][slice.index]));
    for (size_t replica = 1; replica < sum->tensors.size(); ++replica)
      accumulate(op, slice.sum, slice.of(sum->tensors[replica][slice.index]));
  };
  const bool is_sum = is_mean || op == c10d::ReduceOp::SUM;
  // What travels in place of each buffer.
  const auto sent = std::make_shared<std::vector<at::Tensor>>();
  course.exchange = [sum, op, is_sum, compression, sent](c10d::Backend& backend) {
    c10d::AllreduceOptions options;
    options.reduceOp = is_sum ? c10d::ReduceOp::SUM : op;
    Works works;
    for (const auto& buffer : sum->buffers) {
      const bool is_compressed = compression && is_sum && is_compressible(buffer);
      sent->push_back(is_compressed ? compression->compress(buffer) : buffer);
      if (buffer.numel() == 0) continue;
      std::vector<at::Tensor> one{sent->back()};
      works.push_back(backend.allreduce(one, options));
    }
    return works;
  };
  course.complete = [sum, compression, sent] {
    for (size_t i = 0; i < sent->size(); ++i) {
      if (!(*sent)[i].is_same(sum->buffers[i])) compression->decompress((*sent)[i], sum->buffers[i]);
    }
  };
  course.num_after = sum->is_in_place && !is_mean ? 0 : static_cast<int>(sum->slices.size());
  course.after = [sum, is_mean, num_replicas](Arrivals&, int part) {
    auto& slice = sum->slices[static_cast<size_t>(part)];
    if (is_mean) slice.sum.div_(num_replicas);
    if (sum->is_in_place) return;
    for (auto& tensors : sum->tensors) slice.of(tensors[slice.index]).copy_(slice.sum);
  };
  return course;
}

Course broadcast_course(const Arrivals& arrivals, int source, const WorkerLayout& layout) {
  const BytePlaces places(arrivals[0].outputs);
  const at::Tensor buffer = at::empty({places.total()}, at::kByte);
  const int worker = layout.worker_of(source);
  const int local = source - layout.first_local();  // of the source, where this is its worker
  Course course;
  course.num_before = worker == layout.worker() ? 1 : 0;
  course.before = [places, buffer, local](Arrivals& all, int) {
    const auto& from = all[static_cast<size_t>(local)].inputs;
    for (size_t i = 0; i < from.size(); ++i) places.of(buffer, i, from[i]).copy_(from[i]);
  };
  course.exchange = [buffer, worker](c10d::Backend& backend) {
    if (buffer.numel() == 0) return Works{};
    c10d::BroadcastOptions options;
    options.rootRank = worker;
    std::vector<at::Tensor> one{buffer};
    return Works{backend.broadcast(one, options)};
  };
  course.num_after = static_cast<int>(arrivals.size());
  course.after = [places, buffer, is_here = worker == layout.worker(), local](Arrivals& all, int replica) {
    if (is_here && replica == local) return;
    auto& to = all[static_cast<size_t>(replica)].outputs;
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(places.of(buffer, i, to[i]));
  };
  return course;
}

/// Every worker sends as many bytes as the one with the most.
Course gather_course(const Arrivals& arrivals, std::shared_ptr<const WorkerLayout> layout) {
  std::vector<BytePlaces> places(static_cast<size_t>(layout->num_workers()));
  int64_t most = 0;
  for (int worker = 0; worker < layout->num_workers(); ++worker) {
    auto& of_worker = places[static_cast<size_t>(worker)];
    for (int replica = 0; replica < layout->num_replicas_of(worker); ++replica)
      of_worker.add(arrivals[0].outputs[static_cast<size_t>(layout->first_replica_of(worker) + replica)]);
    most = std::max(most, of_worker.total());
  }
  const at::Tensor sent = at::empty({most}, at::kByte);
  const at::Tensor received = at::empty({layout->num_workers(), most}, at::kByte);
  Course course;
  course.num_before = static_cast<int>(arrivals.size());
  course.before = [own = places[static_cast<size_t>(layout->worker())], sent](Arrivals& all, int replica) {
    const auto& from = all[static_cast<size_t>(replica)].inputs[0];
    own.of(sent, static_cast<size_t>(replica), from).copy_(from);
  };
  course.exchange = [sent, received](c10d::Backend& backend) {
    if (sent.numel() == 0) return Works{};
    std::vector<std::vector<at::Tensor>> parts{received.unbind(0)};
    std::vector<at::Tensor> one{sent};
    return Works{backend.allgather(parts, one)};
  };
  course.num_after = static_cast<int>(arrivals.size());
  course.after = [places, received, layout = std::move(layout)](Arrivals& all, int replica) {
    auto& to = all[static_cast<size_t>(replica)].outputs;
    for (int from = 0; from < layout->num_replicas(); ++from) {
      const int worker = layout->worker_of(from);
      at::Tensor& output = to[static_cast<size_t>(from)];
      output.copy_(places[static_cast<size_t>(worker)].of(
          received[worker], static_cast<size_t>(from - layout->first_replica_of(worker)), output));
    }
  };
  return course;
}

}  // namespace

HierarchicalBackend::HierarchicalBackend(std::shared_ptr<Rendezvous> rendezvous, int local,
                                         std::shared_ptr<const WorkerLayout> layout,
                                         std::shared_ptr<WorkerChannel> channel,
                                         std::shared_ptr<DeviceStreams> streams,
                                         std::shared_ptr<GradientCompression> compression)
    : RendezvousBackend({layout->first_local() + local, layout->num_replicas()}, local,
                        std::move(rendezvous)),
      layout_(std::move(layout)),
      channel_(std::move(channel)),
      streams_(std::move(streams)),
      compression_(std::move(compression)) {}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                              const c10d::AllreduceOptions& options) {
  const c10d::ReduceOp::RedOpType op = options.reduceOp;
  check_mean(options.reduceOp, tensors);
  const auto description = describe(std::string("all_reduce ") + name_of(options.reduceOp), tensors);
  return launch(c10d::OpType::ALLREDUCE, {description, tensors, tensors, nullptr, nullptr},
                [op, description, size = getSize(), channel = channel_, streams = streams_,
                 compression = compression_](Arrivals& arrivals) {
                  auto course = or_fail(channel, [&] { return sum_course(arrivals, op, size, compression); });
                  course.description = description;
                  return work_of(std::move(course), arrivals, channel, *streams);
                });
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                              const c10d::BroadcastOptions& options) {
  check_source(options.rootRank, getSize());
  const int source = static_cast<int>(options.rootRank);
  const auto description = describe(c10::str("broadcast from ", source), tensors);
  return launch(
      c10d::OpType::BROADCAST, {description, tensors, tensors, nullptr, nullptr},
      [source, description, layout = layout_, channel = channel_, streams = streams_](Arrivals& arrivals) {
        auto course = or_fail(channel, [&] { return broadcast_course(arrivals, source, *layout); });
        course.description = description;
        return work_of(std::move(course), arrivals, channel, *streams);
      });
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                              std::vector<at::Tensor>& inputs,
                                                              const c10d::AllgatherOptions&) {
  check_all_gather(outputs, inputs, getRank(), getSize());
  const auto description = describe("all_gather", outputs[0]);
  return launch(c10d::OpType::ALLGATHER, {description, inputs, outputs[0], nullptr, nullptr},
                [description, layout = layout_, channel = channel_, streams = streams_](Arrivals& arrivals) {
                  auto course = or_fail(channel, [&] { return gather_course(arrivals, layout); });
                  course.description = description;
                  return work_of(std::move(course), arrivals, channel, *streams);
                });
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::barrier(const c10d::BarrierOptions&) {
  return launch(c10d::OpType::BARRIER, {"barrier", {}, {}, nullptr, nullptr},
                [channel = channel_, streams = streams_](Arrivals& arrivals) {
                  Course course;
                  course.description = "barrier";
                  return work_of(std::move(course), arrivals, channel, *streams);
                });
}

HierarchicalGroup::HierarchicalGroup(std::shared_ptr<const WorkerLayout> layout,
                                     std::shared_ptr<WorkerChannel> channel,
                                     std::chrono::milliseconds timeout,
                                     const std::shared_ptr<GradientCompression>& compression)
    : RendezvousGroup(layout->num_local(), timeout), channel_(std::move(channel)) {
  for (int local = 0; local < layout->num_local(); ++local) {
    backends_.push_back(c10::make_intrusive<HierarchicalBackend>(rendezvous(), local, layout, channel_,
                                                                 streams(), compression));
  }
}

void HierarchicalGroup::enter() {
  channel_->begin_run(rendezvous()->next_sequence());
  RendezvousGroup::enter();
}

void HierarchicalGroup::release(const std::string& reason) {
  RendezvousGroup::release(reason);
  channel_->fail(std::make_exception_ptr(CollectiveAborted(reason)));
}

}  // namespace lockstep
