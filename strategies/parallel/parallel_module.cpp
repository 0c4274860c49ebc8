#include "lockstep/strategies/parallel/parallel_module.h"

#include <ATen/WrapDimUtils.h>
#include <c10/util/StringUtil.h>

#include <numeric>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

ParallelModule::ParallelModule(const std::string& type, const ReplicaAxis& axis)
    : torch::nn::Module(type), axis_(type, axis) {}

torch::Tensor ParallelModule::register_cut(const std::string& name, const torch::Tensor& whole, int64_t dim,
                                           const std::vector<int64_t>& sections) {
  const torch::NoGradGuard no_grad;
  dim = at::maybe_wrap_dim(dim, whole.dim());
  const int64_t length = axis_.share_of(whole.size(dim), c10::str("a size of dimension ", dim, " of ", name));
  for (const int64_t section : sections) axis_.share_of(section, "sections of " + name);
  const int64_t in_sections = std::accumulate(sections.begin(), sections.end(), int64_t{0});
  if (!sections.empty() && in_sections != whole.size(dim)) {
    throw InvalidArgument(c10::str("[", axis_.layer(), "] expected sections of ", name, " with ",
                                   whole.size(dim), " rows together, but got ", in_sections));
  }
  const torch::Tensor values = whole.detach().contiguous();
  const ShardedParameter part{.name = name,
                              .sizes = values.sizes().vec(),
                              .strides = values.strides().vec(),
                              .offset = axis_.index() * length,
                              .length = length,
                              .axis = axis_.name(),
                              .dim = dim,
                              .sections = sections};
  const auto own = register_parameter(name, part_of_cut(values, part), whole.requires_grad());
  if (axis_.size() > 1) {
    cuts_.emplace(name, part);
    mark();
  }
  return own;
}

/// Moving a parameter drops its mark.
void ParallelModule::mark() {
  for (const auto& item : named_parameters(/*recurse=*/false)) {
    if (const auto cut = cuts_.find(item.key()); cut != cuts_.end()) mark_shard(item.value(), cut->second);
  }
}

void ParallelModule::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, dtype, non_blocking);
  mark();
}

void ParallelModule::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  mark();
}

void ParallelModule::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  mark();
}

}  // namespace lockstep
