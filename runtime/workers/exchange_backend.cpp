#include "lockstep/runtime/workers/exchange_backend.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/exchange/plan_costs.h"
#include "lockstep/runtime/workers/combine.h"

namespace lockstep {
namespace {

/// Does its work when it is waited for.
class DeferredWork : public c10d::Work {
 public:
  DeferredWork(c10d::OpType type, std::function<void()> work) : Work(-1, type), work_(std::move(work)) {}

  bool isCompleted() override { return work_ == nullptr; }
  bool isSuccess() const override { return work_ == nullptr; }
  bool wait(std::chrono::milliseconds) override {
    if (const auto work = std::exchange(work_, nullptr)) work();
    return true;
  }

 private:
  std::function<void()> work_;
};

const at::Tensor& only_one(const std::vector<at::Tensor>& tensors, const char* what) {
  if (tensors.size() != 1 || !tensors[0].is_cpu() || !tensors[0].is_non_overlapping_and_dense())
    throw InvalidArgument(c10::str("[", what, "] expected one dense tensor on the CPU"));
  return tensors[0];
}

std::span<uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<uint8_t*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

ExchangeBackend::ExchangeBackend(Options options)
    : ComparingBackend(options.engine.rank, options.engine.size),
      options_(std::move(options)),
      timeout_(options_.timeout),
      engine_(options_.engine) {}

void ExchangeBackend::begin_call(uint64_t sequence, const std::string& description) {
  sequence_ = sequence;
  description_ = description;
  num_collectives_ = 0;
}

void ExchangeBackend::end_call() {
  if (num_collectives_ == 0) barrier()->wait();
}

const ExchangePlan& ExchangeBackend::plan_of(CollectiveKind kind, PlanAlgorithm algorithm, int root) {
  const auto key = std::tuple(kind, algorithm, root);
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  return plans_.emplace(key, make_plan(kind, algorithm, getRank(), getSize(), root)).first->second;
}

const ExchangePlan& ExchangeBackend::fastest_plan(CollectiveKind kind, size_t bytes, int root) {
  if (kind == CollectiveKind::kAllReduce && options_.policy.all_reduce_algorithm)
    return plan_of(kind, *options_.policy.all_reduce_algorithm, root);
  auto& ranges = choices_[kind];
  if (ranges.empty()) ranges = choose_algorithms(kind, getSize(), options_.policy.costs);
  return plan_of(kind, algorithm_for(ranges, static_cast<int64_t>(bytes)), root);
}

std::vector<std::span<uint8_t>> ExchangeBackend::blocks_of(const ExchangePlan& plan,
                                                           const at::Tensor& tensor) const {
  auto bytes = bytes_of(tensor);
  std::vector<std::span<uint8_t>> blocks;
  const auto element = static_cast<int64_t>(tensor.element_size());
  for (const int64_t size : even_blocks(static_cast<int64_t>(bytes.size()), plan.num_blocks, element)) {
    blocks.push_back(bytes.first(static_cast<size_t>(size)));
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
  return blocks;
}

void ExchangeBackend::append_scratch(const ExchangePlan& plan, std::vector<std::span<uint8_t>>& blocks) {
  size_t bytes = 0;
  for (const int like : plan.scratch_like) bytes += blocks[static_cast<size_t>(like)].size();
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  auto left = std::span(scratch_);
  for (const int like : plan.scratch_like) {
    const size_t size = blocks[static_cast<size_t>(like)].size();
    blocks.push_back(left.first(size));
    left = left.subspan(size);
  }
}

void ExchangeBackend::run(ExchangeCall call) {
  // Collectives of one call are told apart, too.
  call.sequence = sequence_;
  call.description = description_;
  if (const int part = num_collectives_++; part > 0) call.description += c10::str(", part ", part + 1);
  append_scratch(*call.plan, call.blocks);
  try {
    engine_.run(call, deadline_after(timeout_));
  } catch (const ExchangeError& error) {
    fail(error, call);
  }
}

void ExchangeBackend::fail(const ExchangeError& error, const ExchangeCall& call) const {
  if (error.kind == ExchangeError::Kind::kMismatch) {
    // Both ranks name themselves in the same order.
    const auto own = c10::str(options_.name_of(getRank()), " called ", call.description);
    const auto peers = c10::str(options_.name_of(error.peer), " ", error.what());
    const bool is_first = getRank() < error.peer;
    throw CollectiveMismatch(c10::str("[", options_.op, "] collective #", call.sequence, ": ",
                                      is_first ? own : peers, ", but ", is_first ? peers : own));
  }
  if (error.peer < 0) throw BrokenExchange(error.what());
  throw BrokenExchange(c10::str(options_.name_of(error.peer), " ", error.what()));
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only_one(tensors, "all_reduce");
  const auto combine = combine_function(options.reduceOp, tensor.scalar_type());
  return c10::make_intrusive<DeferredWork>(c10d::OpType::ALLREDUCE, [this, tensor, combine] {
    const auto& plan = fastest_plan(CollectiveKind::kAllReduce, tensor.nbytes());
    run({.plan = &plan,
         .blocks = blocks_of(plan, tensor),
         .combine = combine,
         .element_bytes = static_cast<size_t>(tensor.element_size())});
  });
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                          const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only_one(tensors, "broadcast");
  const auto root = static_cast<int>(options.rootRank);
  if (root < 0 || root >= getSize())
    throw InvalidArgument(c10::str("[broadcast] expected a rank below ", getSize(), ", but got ", root));
  return c10::make_intrusive<DeferredWork>(c10d::OpType::BROADCAST, [this, tensor, root] {
    const auto& plan = fastest_plan(CollectiveKind::kBroadcast, tensor.nbytes(), root);
    run({.plan = &plan, .blocks = blocks_of(plan, tensor)});
  });
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllgatherOptions&) {
  const at::Tensor input = only_one(inputs, "all_gather");
  if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(getSize()))
    throw InvalidArgument(c10::str("[all_gather] expected an output for each of ", getSize(), " ranks"));
  for (const auto& output : outputs[0]) {
    if (output.nbytes() != input.nbytes() || !output.is_non_overlapping_and_dense())
      throw InvalidArgument("[all_gather] expected dense outputs of the input's size");
  }
  return c10::make_intrusive<DeferredWork>(c10d::OpType::ALLGATHER, [this, input, all = outputs[0]] {
    const auto& plan = fastest_plan(CollectiveKind::kAllGather, input.nbytes() * all.size());
    ExchangeCall call{.plan = &plan};
    for (const auto& output : all) call.blocks.push_back(bytes_of(output));
    const auto own = call.blocks[static_cast<size_t>(getRank())];
    if (!own.empty()) std::memcpy(own.data(), input.const_data_ptr(), own.size());
    run(std::move(call));
  });
}

void ExchangeBackend::check_list(const char* operation, const std::vector<at::Tensor>& tensors) const {
  const bool is_whole = tensors.size() == static_cast<size_t>(getSize()) &&
                        std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
                          return tensor.is_cpu() && tensor.is_non_overlapping_and_dense();
                        });
  if (!is_whole) {
    throw InvalidArgument(
        c10::str("[", operation, "] expected a dense tensor on the CPU for each of ", getSize(), " ranks"));
  }
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                               std::vector<std::vector<at::Tensor>>& inputs,
                                                               const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only_one(outputs, "reduce_scatter");
  if (inputs.size() != 1) throw InvalidArgument("[reduce_scatter] expected one list of inputs");
  check_list("reduce_scatter", inputs[0]);
  if (output.nbytes() != inputs[0][static_cast<size_t>(getRank())].nbytes())
    throw InvalidArgument("[reduce_scatter] expected an output of the size of this rank's input");
  const auto combine = combine_function(options.reduceOp, output.scalar_type());
  return c10::make_intrusive<DeferredWork>(
      c10d::OpType::REDUCE_SCATTER, [this, output, all = inputs[0], combine] {
        size_t bytes = 0;
        for (const auto& input : all) bytes += input.nbytes();
        const auto& plan = fastest_plan(CollectiveKind::kReduceScatter, bytes);
        ExchangeCall call{
            .plan = &plan, .combine = combine, .element_bytes = static_cast<size_t>(output.element_size())};
        for (const auto& input : all) call.blocks.push_back(bytes_of(input));
        run(std::move(call));
        const auto own = bytes_of(all[static_cast<size_t>(getRank())]);
        if (!own.empty() && own.data() != output.const_data_ptr())
          std::memcpy(output.mutable_data_ptr(), own.data(), own.size());
      });
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                         std::vector<at::Tensor>& inputs,
                                                         const c10d::AllToAllOptions&) {
  check_list("all_to_all", inputs);
  check_list("all_to_all", outputs);
  const auto self = static_cast<size_t>(getRank());
  if (outputs[self].nbytes() != inputs[self].nbytes())
    throw InvalidArgument("[all_to_all] expected this rank's own output to have the size of its input");
  return c10::make_intrusive<DeferredWork>(c10d::OpType::ALLTOALL, [this, outputs, inputs] {
    // The ranks know different sizes, so they might choose different algorithms by them.
    const auto& plan = plan_of(CollectiveKind::kAllToAll, PlanAlgorithm::kPairwise);
    ExchangeCall call{.plan = &plan};
    for (const auto& input : inputs) call.blocks.push_back(bytes_of(input));
    for (const auto& output : outputs) call.blocks.push_back(bytes_of(output));
    run(std::move(call));
  });
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::send(std::vector<at::Tensor>& tensors, int destination, int) {
  return c10::make_intrusive<DeferredWork>(
      c10d::OpType::SEND, [this, tensor = only_one(tensors, "send"), destination] {
        ExchangePlan plan{.rank = getRank(), .size = getSize()};
        plan.rounds = {{.sends = {{destination, {{0, 1}}}}, .receives = {}, .steps = {}}};
        run({.plan = &plan, .blocks = {bytes_of(tensor)}});
      });
}

c10::intrusive_ptr<c10d::Work> ExchangeBackend::recv(std::vector<at::Tensor>& tensors, int source, int) {
  return c10::make_intrusive<DeferredWork>(
      c10d::OpType::RECV, [this, tensor = only_one(tensors, "receive"), source] {
        ExchangePlan plan{.rank = getRank(), .size = getSize()};
        plan.rounds = {{.sends = {}, .receives = {{source, {{0, 1}}, false}}, .steps = {}}};
        run({.plan = &plan, .blocks = {bytes_of(tensor)}});
      });
}

/// An all-reduce of nothing.
c10::intrusive_ptr<c10d::Work> ExchangeBackend::barrier(const c10d::BarrierOptions&) {
  return c10::make_intrusive<DeferredWork>(c10d::OpType::BARRIER, [this] {
    const auto& plan = plan_of(CollectiveKind::kAllReduce, PlanAlgorithm::kRecursiveDoubling);
    run({.plan = &plan, .blocks = {std::span<uint8_t>()}});
  });
}

void ExchangeBackend::abort() {
  engine_.interrupt();
}

}  // namespace lockstep
