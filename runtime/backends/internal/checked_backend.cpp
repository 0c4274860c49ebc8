#include "lockstep/runtime/backends/internal/checked_backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/collectives/internal/packed_tensors.h"

namespace lockstep {
namespace {

void check_reduction(const char* operation, const c10d::ReduceOp& op,
                     const std::vector<at::Tensor>& tensors) {
  check_mean(operation, op, tensors);
  check_extreme(operation, op, tensors);
  check_product(operation, op, tensors);
}

/// Whether a backend has refused a collective that it does not offer. Nothing was launched then.
bool is_unsupported(const c10::Error& error) {
  return std::string(error.what_without_backtrace()).find("does not support") != std::string::npos;
}

}  // namespace

CheckedBackend::CheckedBackend(RankInfo info, std::shared_ptr<CollectiveOrder> order)
    : Backend(info.rank, info.size),
      info_(std::make_shared<const RankInfo>(std::move(info))),
      order_(std::move(order)) {}

void CheckedBackend::forget_launched() {
  MutexLock lock(mutex_);
  launched_.clear();
}

CheckedBackend::Open CheckedBackend::first_open(uint64_t end) {
  MutexLock lock(mutex_);
  for (const auto& work : launched_) {
    if (work->sequence() >= end) break;
    try {
      if (!work->isCompleted()) return {work->sequence(), true};
      if (!work->exception()) continue;
    } catch (const std::exception&) {
      // The device itself failed.
    }
    return {work->sequence(), false};
  }
  return {end, false};
}

void CheckedBackend::use(c10::intrusive_ptr<c10d::Backend> inner) {
  MutexLock lock(mutex_);
  inner_ = std::move(inner);
}

c10::intrusive_ptr<c10d::Backend> CheckedBackend::inner() const {
  MutexLock lock(mutex_);
  if (!inner_) throw CollectiveAborted("[" + info_->op + "] is not connected");
  return inner_;
}

void CheckedBackend::check_launched() {
  while (true) {
    c10::intrusive_ptr<CheckedWork> work;
    {
      MutexLock lock(mutex_);
      if (launched_.empty()) return;
      work = launched_.front();
    }
    const bool done = work->isCompleted();
    work->check();
    if (!done) return;
    MutexLock lock(mutex_);
    if (!launched_.empty() && launched_.front() == work) launched_.pop_front();
  }
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::launch(Launch launch) {
  launch.description += label();
  ++num_launched_;
  if (is_capturing_) {
    auto captured = join(std::move(launch), /*is_watched=*/false);
    captured->start(*inner());
    return captured;
  }
  check_launched();
  auto work = join(std::move(launch), /*is_watched=*/true);
  try {
    if (ahead_) order_->wait_until_joined(info_->rank, work->sequence(), *ahead_, info_->timeout);
  } catch (...) {
    work->follow(nullptr);  // nobody waits for it
    throw;
  }
  work->start(*inner());
  if (ahead_ == 0) order_->wait_until_launched(info_->rank, work->sequence(), info_->timeout);
  return work;
}

std::function<void(std::function<bool()>)> CheckedBackend::begin_replay() {
  ++num_launched_;
  const auto work =
      join({c10d::OpType::UNKNOWN, "a captured function", nullptr, nullptr}, /*is_watched=*/true);
  return [work](std::function<bool()> is_done) { work->follow(std::move(is_done)); };
}

void CheckedBackend::announce(const std::string& description) {
  join({c10d::OpType::UNKNOWN, description, nullptr, nullptr}, /*is_watched=*/false);
}

c10::intrusive_ptr<CheckedWork> CheckedBackend::join(Launch launch, bool is_watched) {
  auto work = c10::make_intrusive<CheckedWork>(info_, order_, std::move(launch));
  work->join();
  inner();  // throws if not connected: there is nothing to wait for
  if (is_watched) {
    MutexLock lock(mutex_);
    launched_.push_back(work);
  }
  return work;
}

void CheckedBackend::check_tensors(const char* operation, const std::vector<at::Tensor>& tensors) const {
  const auto device = info_->device.torch_device();
  for (const auto& tensor : tensors) {
    if (tensor.layout() != at::kStrided) {
      throw InvalidArgument(
          c10::str("[", operation, "] expected dense tensors, but got a ", tensor.layout(), " one"));
    }
    if (tensor.device() != device) {
      throw InvalidArgument(c10::str("[", operation, "] expected tensors on ", device, " of replica ",
                                     info_->rank, ", but got one on ", tensor.device()));
    }
  }
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                         const c10d::AllreduceOptions& options) {
  const std::string operation = std::string("all_reduce ") + name_of(options.reduceOp);
  check_reduction("all_reduce", options.reduceOp, tensors);
  check_tensors("all_reduce", tensors);
  const auto packed = std::make_shared<PackedTensors>(tensors);
  return launch({c10d::OpType::ALLREDUCE, describe(operation, tensors),
                 [packed, options](c10d::Backend& inner) {
                   Works works;
                   for (const auto& flat : packed->flat()) {
                     std::vector<at::Tensor> one{flat};
                     works.push_back(inner.allreduce(one, options));
                   }
                   return works;
                 },
                 [packed] { packed->copy_back(); }});
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                         const c10d::BroadcastOptions& options) {
  check_source(options.rootRank, getSize());
  check_tensors("broadcast", tensors);
  const auto packed = std::make_shared<PackedTensors>(tensors);
  return launch({c10d::OpType::BROADCAST,
                 describe("broadcast from " + std::to_string(options.rootRank), tensors),
                 [packed, options](c10d::Backend& inner) {
                   Works works;
                   for (const auto& flat : packed->flat()) {
                     std::vector<at::Tensor> one{flat};
                     works.push_back(inner.broadcast(one, options));
                   }
                   return works;
                 },
                 [packed] { packed->copy_back(); }});
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                         std::vector<at::Tensor>& inputs,
                                                         const c10d::AllgatherOptions& options) {
  check_all_gather(outputs, inputs, getRank(), getSize());
  check_tensors("all_gather", inputs);
  check_tensors("all_gather", outputs[0]);
  // All ranks send as many elements as the one with the most.
  const at::Tensor own = row_major_elements(inputs[0]);
  const int64_t pairs = inputs[0].is_complex() ? 2 : 1;
  int64_t most = 0;
  for (const auto& output : outputs[0]) most = std::max(most, pairs * output.numel());
  const bool is_full = own.numel() == most;
  const at::Tensor sent = is_full ? own : at::empty({most}, own.options());
  if (!is_full) sent.narrow(0, 0, own.numel()).copy_(own);
  const at::Tensor received = at::empty({getSize(), most}, own.options());
  return launch({c10d::OpType::ALLGATHER, describe("all_gather", outputs[0]),
                 [sent, received, options, most](c10d::Backend& inner) {
                   if (most == 0) return Works{};
                   at::Tensor to = received;
                   at::Tensor from = sent;
                   return Works{inner._allgather_base(to, from, options)};
                 },
                 [received, results = outputs[0]] {
                   for (size_t rank = 0; rank < results.size(); ++rank)
                     copy_elements(received[static_cast<int64_t>(rank)], 0, results[rank]);
                 }});
}

/// The inner backend writes to `output` itself, without a copy for each rank.
c10::intrusive_ptr<c10d::Work> CheckedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::AllgatherOptions& options) {
  const auto parts = equal_parts("all_gather", output, input, getSize());
  check_tensors("all_gather", {input, output});
  const at::Tensor sent = row_major_elements(input);
  const at::Tensor received = row_major_elements(output);
  return launch({c10d::OpType::ALLGATHER, describe("all_gather", parts),
                 [sent, received, options](c10d::Backend& inner) {
                   if (sent.numel() == 0) return Works{};
                   at::Tensor to = received;
                   at::Tensor from = sent;
                   return Works{inner._allgather_base(to, from, options)};
                 },
                 [] {}});
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                              std::vector<std::vector<at::Tensor>>& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  check_reduce_scatter(outputs, inputs, getRank(), getSize());
  check_reduction("reduce_scatter", options.reduceOp, inputs[0]);
  check_tensors("reduce_scatter", inputs[0]);
  check_tensors("reduce_scatter", outputs);
  const at::Tensor result = outputs[0];
  // Each rank receives as many elements as the one with the most.
  const int64_t pairs = result.is_complex() ? 2 : 1;
  int64_t most = 0;
  for (const auto& input : inputs[0]) most = std::max(most, pairs * input.numel());
  const at::Tensor sent = joined_parts(inputs[0], most);
  const bool is_direct = pairs * result.numel() == most && result.is_contiguous();
  const at::Tensor received = is_direct ? row_major_elements(result) : at::empty({most}, sent.options());
  const auto whole = std::make_shared<at::Tensor>();  // what a backend without reduce-scatters sums
  return launch({c10d::OpType::REDUCE_SCATTER,
                 describe_parts(std::string("reduce_scatter ") + name_of(options.reduceOp), inputs[0]),
                 [sent, received, options, most, whole](c10d::Backend& inner) {
                   if (most == 0) return Works{};
                   try {
                     at::Tensor to = received;
                     at::Tensor from = sent;
                     return Works{inner._reduce_scatter_base(to, from, options)};
                   } catch (const c10::Error& error) {
                     if (!is_unsupported(error)) throw;
                   }
                   *whole = sent.clone();
                   c10d::AllreduceOptions all;
                   all.reduceOp = options.reduceOp;
                   std::vector<at::Tensor> one{*whole};
                   return Works{inner.allreduce(one, all)};
                 },
                 [received, result, is_direct, whole, begin = getRank() * most, most] {
                   const at::NoGradGuard no_grad;
                   if (whole->defined()) received.copy_(whole->narrow(0, begin, most));
                   if (!is_direct) copy_elements(received, 0, result);
                 }});
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  std::vector<std::vector<at::Tensor>> inputs{equal_parts("reduce_scatter", input, output, getSize())};
  std::vector<at::Tensor> outputs{output};
  return reduce_scatter(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                        std::vector<at::Tensor>& inputs,
                                                        const c10d::AllToAllOptions& options) {
  check_all_to_all(outputs, inputs, getRank(), getSize());
  // The ranks agree on the dtype only.
  return exchange(c10::str("all_to_all ", c10::toString(inputs[0].scalar_type())), outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                             std::vector<int64_t>& output_sizes,
                                                             std::vector<int64_t>& input_sizes,
                                                             const c10d::AllToAllOptions& options) {
  check_equal_all_to_all(output, input, output_sizes, input_sizes, getSize());
  return exchange(describe("all_to_all", {input}), output.unbind(0), input.unbind(0), options);
}

c10::intrusive_ptr<c10d::Work> CheckedBackend::exchange(std::string description,
                                                        const std::vector<at::Tensor>& outputs,
                                                        const std::vector<at::Tensor>& inputs,
                                                        const c10d::AllToAllOptions& options) {
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", outputs);
  std::vector<at::Tensor> sent;
  std::vector<at::Tensor> received;
  for (const auto& input : inputs) sent.push_back(row_major_elements(input));
  for (const auto& output : outputs) {
    received.push_back(output.is_contiguous()
                           ? row_major_elements(output)
                           : row_major_elements(at::empty(output.sizes(), output.options())));
  }
  return launch({c10d::OpType::ALLTOALL, std::move(description),
                 [sent, received, options](c10d::Backend& inner) {
                   auto to = received;
                   auto from = sent;
                   return Works{inner.alltoall(to, from, options)};
                 },
                 [received, results = outputs] {
                   for (size_t rank = 0; rank < results.size(); ++rank) {
                     if (!results[rank].is_contiguous()) copy_elements(received[rank], 0, results[rank]);
                   }
                 }});
}

}  // namespace lockstep
