#include "lockstep/runtime/replicas/buffer_aggregation.h"

#include <c10/util/StringUtil.h>

#include <cstddef>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

at::ScalarType sum_dtype(const at::Tensor& value) {
  if (value.is_floating_point()) return at::kDouble;
  return value.is_complex() ? at::kComplexDouble : at::kLong;
}

at::Tensor sum_of_replicas(const std::vector<at::Tensor>& values) {
  const at::ScalarType dtype = sum_dtype(values.front());
  at::Tensor sum = values.front().to(dtype);
  for (size_t replica = 1; replica < values.size(); ++replica)
    sum = sum + values[replica].to(sum.device(), dtype);
  return sum;
}

at::Tensor mean_of_replicas(const std::vector<at::Tensor>& values) {
  if (!values.front().is_floating_point()) return values.front();
  return sum_of_replicas(values) / static_cast<double>(values.size());
}

/// Whether all elements are equal; a NaN equals a NaN.
bool are_equal(const at::Tensor& first, const at::Tensor& second) {
  if (first.sizes() != second.sizes()) return false;
  return (first.eq(second) | (first.ne(first) & second.ne(second))).all().item<bool>();
}

void check_same_values(const std::string& name, const std::vector<at::Tensor>& values) {
  for (size_t replica = 1; replica < values.size(); ++replica) {
    if (are_equal(values[0], values[replica].to(values[0].device()))) continue;
    throw InconsistentReplicas(
        c10::str("expected the buffer '", name,
                 "', which its module declares as kSame, to have the same value on all "
                 "replicas, but replica ",
                 replica, " has another value than replica 0"));
  }
}

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

struct Buffer {
  std::string name;
  at::Tensor value;
};

std::vector<Buffer> defined_buffers(const torch::nn::Module& module) {
  std::vector<Buffer> buffers;
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

}  // namespace

std::map<std::string, BufferAggregation> buffer_aggregations(const torch::nn::Module& module) {
  std::map<std::string, BufferAggregation> rules;
  const auto add = [&](const std::string& path, const torch::nn::Module& owner) {
    const auto* declared = dynamic_cast<const AggregatesBuffers*>(&owner);
    for (const auto& item : owner.named_buffers(/*recurse=*/false)) {
      rules[joined(path, item.key())] =
          declared != nullptr ? declared->buffer_aggregation(item.key()) : BufferAggregation::kMean;
    }
  };
  module.apply(add);
  return rules;
}

std::set<std::string> summed_buffers(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& [name, rule] : buffer_aggregations(module))
    if (rule == BufferAggregation::kSum) names.insert(name);
  return names;
}

at::Tensor aggregate_values(const std::string& name, BufferAggregation aggregation,
                            const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  switch (aggregation) {
    case BufferAggregation::kMean:
      return mean_of_replicas(values).to(values.front().scalar_type());
    case BufferAggregation::kSum:
      return sum_of_replicas(values).to(values.front().scalar_type());
    case BufferAggregation::kSame:
      check_same_values(name, values);
      break;
    case BufferAggregation::kFirstReplica:
      break;
  }
  return values.front();
}

void aggregate_buffers(const std::vector<ModulePointer>& replicas, const ReplicaPeers& peers) {
  if (replicas.size() < 2 && !peers.gather_tensors) return;
  const at::NoGradGuard no_grad;
  std::vector<std::vector<Buffer>> buffers;  // by local replica
  std::vector<at::Tensor> local;
  for (size_t i = 0; i < replicas.size(); ++i) {
    buffers.push_back(defined_buffers(*replicas[i]));
    if (peers.counts && !peers.counts(i)) continue;
    for (const auto& buffer : buffers.back()) local.push_back(buffer.value);
  }
  const size_t count = buffers.front().size();
  if (count == 0) return;  // on every process, since their models are the same
  std::vector<at::Tensor> all;
  if (peers.gather_tensors) {
    for (const auto& of_process : peers.gather_tensors(local))
      all.insert(all.end(), of_process.begin(), of_process.end());
  } else {
    all = std::move(local);
  }
  const auto rules = buffer_aggregations(*replicas.front());
  // All are combined before any is changed, since one buffer may have several names.
  std::vector<at::Tensor> combined;
  for (size_t i = 0; i < count; ++i) {
    std::vector<at::Tensor> values;
    for (size_t at = i; at < all.size(); at += count) values.push_back(all[at]);
    const std::string& name = buffers.front()[i].name;
    combined.push_back(aggregate_values(name, rules.at(name), values));
  }
  for (const auto& own : buffers)
    for (size_t i = 0; i < count; ++i) own[i].value.copy_(combined[i]);
  keep_sums_once(replicas, peers.first_replica);
}

void keep_sums_once(const std::vector<ModulePointer>& replicas, int first_replica) {
  const at::NoGradGuard no_grad;
  const auto sums = summed_buffers(*replicas.front());
  if (sums.empty()) return;
  for (size_t local = first_replica == 0 ? 1 : 0; local < replicas.size(); ++local) {
    for (auto& buffer : defined_buffers(*replicas[local]))
      if (sums.contains(buffer.name)) buffer.value.zero_();
  }
}

}  // namespace lockstep
