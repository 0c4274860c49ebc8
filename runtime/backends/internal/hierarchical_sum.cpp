#include "lockstep/runtime/backends/internal/hierarchical_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <map>

#include "lockstep/runtime/collectives/internal/local_sum.h"

namespace lockstep {
namespace {

using Arrivals = std::vector<ReplicaRendezvous::Arrival>;

/// Some elements of one tensor in the list, and where their sum is made.
struct SumSlice {
  size_t index;
  int64_t begin;  // in elements; a tensor that is not contiguous is a single slice
  int64_t count;
  at::Tensor sum;

  at::Tensor of(const at::Tensor& tensor) const { return slice_of(tensor, begin, count); }
};

/// A sum of a list of tensors. The workers add up its CPU buffers, one for each dtype.
struct SumLayout {
  std::vector<std::vector<at::Tensor>> tensors;  // for each replica
  std::vector<at::Tensor> buffers;
  std::vector<SumSlice> slices;
  bool is_in_place = false;
};

std::vector<at::Tensor> as_real(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> real;
  for (const auto& tensor : tensors) real.push_back(tensor.is_complex() ? at::view_as_real(tensor) : tensor);
  return real;
}

bool are_cut(const SumLayout& sum, size_t index) {
  return std::all_of(sum.tensors.begin(), sum.tensors.end(),
                     [&](const auto& tensors) { return can_be_cut(tensors[index]); });
}

std::shared_ptr<SumLayout> lay_out_sum(const Arrivals& arrivals, int first_replica) {
  auto sum = std::make_shared<SumLayout>();
  for (const auto& arrival : arrivals) sum->tensors.push_back(as_real(arrival.outputs));
  const auto& first = sum->tensors[0];
  for (size_t index = 0; index < first.size(); ++index) {
    check_own_memory(arrivals, index, first_replica);
  }
  if (arrivals.size() == 1 && first.size() == 1 && are_cut(*sum, 0) &&
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
    totals[dtype] = 0;  // from here on, the elements already assigned
  }
  for (size_t index = 0; index < first.size(); ++index) {
    const int64_t all = first[index].numel();
    const auto dtype = summable_dtype(first[index].scalar_type());
    const int64_t most = slice_elements(first[index], are_cut(*sum, index));
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

}  // namespace

HierarchicalStages sum_stages(const Arrivals& arrivals, c10d::ReduceOp::RedOpType op,
                              const WorkerLayout& layout,
                              const std::shared_ptr<GradientCompression>& compression) {
  const auto sum = lay_out_sum(arrivals, layout.first_local());
  const bool is_mean = op == c10d::ReduceOp::AVG;
  HierarchicalStages stages;
  stages.num_before = sum->is_in_place ? 0 : static_cast<int>(sum->slices.size());
  stages.before = [sum, op](Arrivals&, int part) {
    auto& slice = sum->slices[static_cast<size_t>(part)];
    slice.sum.copy_(slice.of(sum->tensors[0][slice.index]));
    for (size_t replica = 1; replica < sum->tensors.size(); ++replica)
      accumulate(op, slice.sum, slice.of(sum->tensors[replica][slice.index]));
  };
  const bool is_sum = is_mean || op == c10d::ReduceOp::SUM;
  // The tensor that is sent for each buffer.
  const auto sent = std::make_shared<std::vector<at::Tensor>>();
  stages.exchange = [sum, op, is_sum, compression, sent](c10d::Backend& backend) {
    c10d::AllreduceOptions options;
    options.reduceOp = is_sum ? c10d::ReduceOp::SUM : op;
    WorkerChannel::Works works;
    for (const auto& buffer : sum->buffers) {
      const bool is_compressed = compression && is_sum && is_compressible(buffer);
      sent->push_back(is_compressed ? compression->compress(buffer) : buffer);
      if (buffer.numel() == 0) continue;
      std::vector<at::Tensor> one{sent->back()};
      works.push_back(backend.allreduce(one, options));
    }
    return works;
  };
  stages.complete = [sum, compression, sent] {
    for (size_t i = 0; i < sent->size(); ++i) {
      if (!(*sent)[i].is_same(sum->buffers[i])) compression->decompress((*sent)[i], sum->buffers[i]);
    }
  };
  stages.num_after = sum->is_in_place && !is_mean ? 0 : static_cast<int>(sum->slices.size());
  stages.after = [sum, is_mean, num_replicas = layout.num_replicas()](Arrivals&, int part) {
    auto& slice = sum->slices[static_cast<size_t>(part)];
    if (is_mean) slice.sum.div_(num_replicas);
    if (sum->is_in_place) return;
    for (auto& tensors : sum->tensors) slice.of(tensors[slice.index]).copy_(slice.sum);
  };
  return stages;
}

}  // namespace lockstep
