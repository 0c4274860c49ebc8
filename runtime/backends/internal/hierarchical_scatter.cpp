#include "lockstep/runtime/backends/internal/hierarchical_scatter.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/backends/rendezvous_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/byte_layout.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/collectives/internal/local_sum.h"
#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/workers/comparing_backend.h"

namespace lockstep {
namespace {

using Arrival = ReplicaRendezvous::Arrival;
using Arrivals = std::vector<Arrival>;
using Works = WorkerChannel::Works;

at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

/// Some elements of the sum for one replica.
struct Slice {
  size_t replica;
  int64_t begin;  // in elements
  int64_t count;
};

/// The sums for all replicas, one after another in one CPU buffer. The workers exchange it.
struct ScatterLayout {
  std::vector<std::vector<at::Tensor>> inputs;  // of each local replica
  at::Tensor buffer;
  std::vector<int64_t> begins;  // of each replica's sum, and the end
  std::vector<Slice> slices;

  /// The elements of `replica`'s sum, in a part's shape.
  at::Tensor sum_for(size_t replica) const {
    const at::Tensor& like = inputs[0][replica];
    return buffer.narrow(0, begins[replica], like.numel()).view(like.sizes());
  }
  /// The elements of the sums for the replicas of a worker.
  at::Tensor block_of(int worker, const WorkerLayout& layout) const {
    const auto first = static_cast<size_t>(layout.first_replica_of(worker));
    const int64_t begin = begins[first];
    return buffer.narrow(0, begin,
                         begins[first + static_cast<size_t>(layout.num_replicas_of(worker))] - begin);
  }
};

std::shared_ptr<ScatterLayout> lay_out(const Arrivals& arrivals) {
  auto sums = std::make_shared<ScatterLayout>();
  for (const auto& arrival : arrivals) {
    auto& inputs = sums->inputs.emplace_back();
    for (const auto& input : arrival.inputs) inputs.push_back(as_real(input.resolve_conj()));
  }
  int64_t total = 0;
  for (size_t replica = 0; replica < sums->inputs[0].size(); ++replica) {
    const at::Tensor& first = sums->inputs[0][replica];
    const bool is_cut = std::all_of(sums->inputs.begin(), sums->inputs.end(),
                                    [&](const auto& inputs) { return can_be_cut(inputs[replica]); });
    const int64_t most = slice_elements(first, is_cut);
    for (int64_t begin = 0; begin < first.numel(); begin += most)
      sums->slices.push_back({replica, begin, std::min(most, first.numel() - begin)});
    sums->begins.push_back(total);
    total += first.numel();
  }
  sums->begins.push_back(total);
  sums->buffer = at::empty({total}, summable_dtype(sums->inputs[0][0].scalar_type()));
  return sums;
}

/// Values in the order in which they lie in a block that one worker sends to another.
class Block {
 public:
  void add(const at::Tensor& tensor) { tensors_.push_back(tensor); }

  void allocate() {
    if (!tensors_.empty()) bytes_.add(at::empty({1}, at::kLong));
    for (const auto& tensor : tensors_) bytes_.add(tensor);
    buffer_ = at::empty({bytes_.total()}, at::kByte);
  }
  const at::Tensor& buffer() const { return buffer_; }
  /// The place of the tensor that was added as number `index`.
  at::Tensor of(size_t index) const { return bytes_.of(buffer_, index + 1, tensors_[index]); }
  /// The place of the sender's shapes().
  at::Tensor shapes_place() const { return bytes_.of(buffer_, 0, at::empty({1}, at::kLong)); }
  int64_t shapes() const { return static_cast<int64_t>(fingerprint_of(describe("", tensors_))); }

 private:
  std::vector<at::Tensor> tensors_;
  ByteLayout bytes_;
  at::Tensor buffer_;
};

/// Replicas of one worker copy from each other directly, without a block.
struct ExchangeLayout {
  std::vector<Block> sent;      // to each worker
  std::vector<Block> received;  // from each worker
};

/// Blocks have the values of one sender after another, and of each those for one receiver after another.
std::shared_ptr<ExchangeLayout> lay_out(const Arrivals& arrivals, const WorkerLayout& layout) {
  auto exchange = std::make_shared<ExchangeLayout>();
  for (int worker = 0; worker < layout.num_workers(); ++worker) {
    Block& sent = exchange->sent.emplace_back();
    Block& received = exchange->received.emplace_back();
    const auto first = static_cast<size_t>(layout.first_replica_of(worker));
    const size_t end = first + static_cast<size_t>(layout.num_replicas_of(worker));
    if (worker != layout.worker()) {
      for (const auto& arrival : arrivals) {
        for (size_t to = first; to < end; ++to) sent.add(arrival.inputs[to]);
      }
      for (size_t from = first; from < end; ++from) {
        for (const auto& arrival : arrivals) received.add(arrival.outputs[from]);
      }
    }
    sent.allocate();
    received.allocate();
  }
  return exchange;
}

std::vector<at::Tensor> buffers_of(const std::vector<Block>& blocks) {
  std::vector<at::Tensor> buffers;
  for (const auto& block : blocks) buffers.push_back(block.buffer());
  return buffers;
}

bool has_lists(const c10d::Backend& backend) {
  return dynamic_cast<const ComparingBackend*>(&backend) != nullptr;
}

/// For backends that exchange parts of one tensor only, such as Gloo. The values for `outputs` arrive in
/// `received`, in that order.
c10::intrusive_ptr<c10d::Work> exchange_joined(c10d::Backend& backend, const at::Tensor& received,
                                               const std::vector<at::Tensor>& outputs,
                                               const std::vector<at::Tensor>& inputs) {
  const auto sizes_of = [](const std::vector<at::Tensor>& tensors) {
    std::vector<int64_t> sizes;
    for (const auto& tensor : tensors) sizes.push_back(tensor.numel());
    return sizes;
  };
  auto output_sizes = sizes_of(outputs);
  auto input_sizes = sizes_of(inputs);
  at::Tensor to = received;
  at::Tensor from = at::cat(inputs);
  return backend.alltoall_base(to, from, output_sizes, input_sizes);
}

}  // namespace

HierarchicalStages scatter_stages(const Arrivals& arrivals, c10d::ReduceOp::RedOpType op,
                                  const WorkerLayout& layout) {
  check_own_memory(arrivals, 0, layout.first_local());
  const auto sums = lay_out(arrivals);
  const bool is_mean = op == c10d::ReduceOp::AVG;
  HierarchicalStages stages;
  stages.num_before = static_cast<int>(sums->slices.size());
  stages.before = [sums, op](Arrivals&, int part) {
    const Slice& slice = sums->slices[static_cast<size_t>(part)];
    const auto of = [&](const at::Tensor& tensor) { return slice_of(tensor, slice.begin, slice.count); };
    at::Tensor sum = of(sums->sum_for(slice.replica));
    sum.copy_(of(sums->inputs[0][slice.replica]));
    for (size_t local = 1; local < sums->inputs.size(); ++local)
      accumulate(op, sum, of(sums->inputs[local][slice.replica]));
  };
  std::vector<at::Tensor> blocks;
  for (int worker = 0; worker < layout.num_workers(); ++worker)
    blocks.push_back(sums->block_of(worker, layout));
  stages.exchange = [buffer = sums->buffer, blocks = std::move(blocks), worker = layout.worker(),
                     op = is_mean ? c10d::ReduceOp::SUM : op](c10d::Backend& backend) {
    if (buffer.numel() == 0) return Works{};
    if (has_lists(backend)) {
      std::vector<std::vector<at::Tensor>> inputs{blocks};
      std::vector<at::Tensor> own{blocks[static_cast<size_t>(worker)]};
      c10d::ReduceScatterOptions options;
      options.reduceOp = op;
      return Works{backend.reduce_scatter(own, inputs, options)};
    }
    std::vector<at::Tensor> one{buffer};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    return Works{backend.allreduce(one, options)};
  };
  stages.num_after = static_cast<int>(arrivals.size());
  stages.after = [sums, is_mean, first = layout.first_local(), num_replicas = layout.num_replicas()](
                     Arrivals& all, int local) {
    at::Tensor sum = sums->sum_for(static_cast<size_t>(first + local));
    if (is_mean) sum.div_(num_replicas);
    as_real(all[static_cast<size_t>(local)].outputs[0]).copy_(sum);
  };
  return stages;
}

HierarchicalStages exchange_stages(const Arrivals& arrivals, std::shared_ptr<const WorkerLayout> layout) {
  check_pairs(arrivals, layout->first_local());
  const auto blocks = lay_out(arrivals, *layout);
  HierarchicalStages stages;
  stages.num_before = static_cast<int>(arrivals.size());
  stages.before = [blocks, layout](Arrivals& all, int local) {
    for (int worker = 0; worker < layout->num_workers(); ++worker) {
      if (worker == layout->worker()) continue;
      const Block& block = blocks->sent[static_cast<size_t>(worker)];
      if (local == 0) block.shapes_place().fill_(block.shapes());
      const int count = layout->num_replicas_of(worker);
      for (int to = 0; to < count; ++to) {
        const auto replica = static_cast<size_t>(layout->first_replica_of(worker) + to);
        block.of(static_cast<size_t>(local * count + to))
            .copy_(all[static_cast<size_t>(local)].inputs[replica]);
      }
    }
  };
  const auto joined = std::make_shared<at::Tensor>();  // what a backend without lists has received
  stages.exchange = [blocks, joined](c10d::Backend& backend) {
    auto outputs = buffers_of(blocks->received);
    auto inputs = buffers_of(blocks->sent);
    if (has_lists(backend)) return Works{backend.alltoall(outputs, inputs)};
    int64_t total = 0;
    for (const auto& output : outputs) total += output.numel();
    *joined = at::empty({total}, at::kByte);
    return Works{exchange_joined(backend, *joined, outputs, inputs)};
  };
  stages.complete = [blocks, joined, layout] {
    int64_t begin = 0;
    for (int worker = 0; worker < layout->num_workers(); ++worker) {
      const Block& block = blocks->received[static_cast<size_t>(worker)];
      const int64_t bytes = block.buffer().numel();
      if (joined->defined()) block.buffer().copy_(joined->narrow(0, begin, bytes));
      begin += bytes;
      if (worker == layout->worker() || block.shapes_place().item<int64_t>() == block.shapes()) continue;
      throw CollectiveMismatch(c10::str("[all_to_all] worker ", worker,
                                        " sent tensors of other shapes than worker ", layout->worker(),
                                        " expects"));
    }
  };
  stages.num_after = static_cast<int>(arrivals.size());
  stages.after = [blocks, layout](Arrivals& all, int local) {
    const int num_local = layout->num_local();
    const auto self = static_cast<size_t>(layout->first_local() + local);
    auto& outputs = all[static_cast<size_t>(local)].outputs;
    for (int from = 0; from < layout->num_replicas(); ++from) {
      const int worker = layout->worker_of(from);
      at::Tensor& output = outputs[static_cast<size_t>(from)];
      const int sender = from - layout->first_replica_of(worker);
      if (worker == layout->worker()) {
        output.copy_(all[static_cast<size_t>(sender)].inputs[self]);
      } else {
        output.copy_(blocks->received[static_cast<size_t>(worker)].of(
            static_cast<size_t>(sender * num_local + local)));
      }
    }
  };
  return stages;
}

}  // namespace lockstep
