#include "lockstep/benchmarks/emulation/emulated_backend.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <functional>
#include <tuple>

#include "lockstep/benchmarks/emulation/emulated_operators.h"

namespace lockstep::benchmarks {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/// A work that ends when another one has, and the links would have done it.
class DelayedWork : public c10d::Work {
 public:
  DelayedWork(WorkPointer inner, EmulatedDevice& device, std::function<EmulatedDevice::Moment()> end)
      : inner_(std::move(inner)), device_(device), end_(std::move(end)) {}

  bool isCompleted() override { return is_done_ || (inner_->isCompleted() && end() <= device_.now()); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }
  bool wait(std::chrono::milliseconds timeout) override {
    {
      const UncountedOperatorsGuard uncounted;
      inner_->wait(timeout);
    }
    if (!is_done_) device_.wait_until(end());
    is_done_ = true;
    return true;
  }

 private:
  EmulatedDevice::Moment end() {
    if (end_) known_end_ = end_();
    end_ = nullptr;
    return known_end_;
  }

  const WorkPointer inner_;
  EmulatedDevice& device_;
  std::function<EmulatedDevice::Moment()> end_;
  EmulatedDevice::Moment known_end_{};
  bool is_done_ = false;
};

double bytes_of_tensors(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
}

double bytes_of_tensors(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const auto& tensor : tensors) bytes += bytes_of_tensors(tensor);
  return bytes;
}

// Tags from 2 on are those of single messages.
constexpr int kOrderedTags = 2;

int stream_of(int tag) {
  return tag < kOrderedTags ? 0 : tag;
}

}  // namespace

EmulatedGroup::EmulatedGroup(std::shared_ptr<EmulatedMachines> machines, std::vector<int> ranks)
    : machines_(std::move(machines)), ranks_(std::move(ranks)), num_joined_(ranks_.size(), 0) {}

uint64_t EmulatedGroup::join(int member, CollectiveKind kind, double bytes) {
  const Moment ready = device(member).now();
  MutexLock lock(mutex_);
  const uint64_t number = num_joined_[static_cast<size_t>(member)]++;
  if (collectives_.size() <= number) collectives_.resize(number + 1);
  auto& collective = collectives_[number];
  collective.begin = std::max(collective.begin, ready);
  if (++collective.num_joined < ranks_.size() || ranks_.size() == 1) return number;
  collective.end = free_ =
      machines_->links.collective(kind, ranks_, bytes, std::max(collective.begin, free_));
  return number;
}

EmulatedGroup::Moment EmulatedGroup::end_of(uint64_t number) {
  MutexLock lock(mutex_);
  return collectives_[number].end;
}

void EmulatedGroup::send(int from, int to, int stream, double bytes) {
  const Moment arrives = machines_->links.message(rank_of(from), rank_of(to), bytes, device(from).now());
  MutexLock lock(mutex_);
  messages_[{from, to, stream}].push_back(arrives);
}

EmulatedGroup::Moment EmulatedGroup::arrival(int from, int to, int stream) {
  MutexLock lock(mutex_);
  const auto found = messages_.find({from, to, stream});
  const Moment arrives = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
  return arrives;
}

void EmulatedGroup::restart() {
  MutexLock lock(mutex_);
  std::fill(num_joined_.begin(), num_joined_.end(), 0);
  collectives_.clear();
  messages_.clear();
}

EmulatedBackend::EmulatedBackend(c10::intrusive_ptr<c10d::Backend> inner,
                                 std::shared_ptr<EmulatedGroup> group, int member)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      group_(std::move(group)),
      member_(member) {}

template <typename Begin>
WorkPointer EmulatedBackend::begin(CollectiveKind kind, double bytes, const Begin& call) {
  // The others know its end before the backend lets them go on.
  const uint64_t number = group_->join(member_, kind, bytes);
  const UncountedOperatorsGuard uncounted;
  const CollectiveLabel label(inner_.get(), this->label());
  return c10::make_intrusive<DelayedWork>(call(), group_->device(member_),
                                          [group = group_, number] { return group->end_of(number); });
}

WorkPointer EmulatedBackend::allreduce(std::vector<at::Tensor>& tensors,
                                       const c10d::AllreduceOptions& options) {
  return begin(CollectiveKind::kAllReduce, bytes_of_tensors(tensors),
               [&] { return inner_->allreduce(tensors, options); });
}

WorkPointer EmulatedBackend::broadcast(std::vector<at::Tensor>& tensors,
                                       const c10d::BroadcastOptions& options) {
  return begin(CollectiveKind::kBroadcast, bytes_of_tensors(tensors),
               [&] { return inner_->broadcast(tensors, options); });
}

WorkPointer EmulatedBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                       std::vector<at::Tensor>& inputs,
                                       const c10d::AllgatherOptions& options) {
  return begin(CollectiveKind::kGather, bytes_of_tensors(outputs[0]),
               [&] { return inner_->allgather(outputs, inputs, options); });
}

WorkPointer EmulatedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  return begin(CollectiveKind::kGather, bytes_of_tensors(output),
               [&] { return inner_->_allgather_base(output, input, options); });
}

WorkPointer EmulatedBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                            std::vector<std::vector<at::Tensor>>& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  return begin(CollectiveKind::kScatter, bytes_of_tensors(inputs[0]),
               [&] { return inner_->reduce_scatter(outputs, inputs, options); });
}

WorkPointer EmulatedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  return begin(CollectiveKind::kScatter, bytes_of_tensors(input),
               [&] { return inner_->_reduce_scatter_base(output, input, options); });
}

WorkPointer EmulatedBackend::alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                      const c10d::AllToAllOptions& options) {
  return begin(CollectiveKind::kExchange, bytes_of_tensors(inputs),
               [&] { return inner_->alltoall(outputs, inputs, options); });
}

WorkPointer EmulatedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                           std::vector<int64_t>& output_sizes,
                                           std::vector<int64_t>& input_sizes,
                                           const c10d::AllToAllOptions& options) {
  return begin(CollectiveKind::kExchange, bytes_of_tensors(input),
               [&] { return inner_->alltoall_base(output, input, output_sizes, input_sizes, options); });
}

WorkPointer EmulatedBackend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  group_->send(member_, destination, stream_of(tag), bytes_of_tensors(tensors));
  const UncountedOperatorsGuard uncounted;
  return inner_->send(tensors, destination, tag);
}

WorkPointer EmulatedBackend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  const UncountedOperatorsGuard uncounted;
  return c10::make_intrusive<DelayedWork>(
      inner_->recv(tensors, source, tag), group_->device(member_),
      [group = group_, source, member = member_, stream = stream_of(tag)] {
        return group->arrival(source, member, stream);
      });
}

}  // namespace lockstep::benchmarks
