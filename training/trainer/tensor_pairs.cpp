#include "lockstep/training/trainer/tensor_pairs.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep::detail {

TensorRows::TensorRows(torch::Tensor rows) : rows_(std::move(rows)) {
  if (!rows_.defined() || rows_.dim() == 0)
    throw InvalidArgument("[Trainer] expected a tensor with examples along axis 0, but got one without axes");
}

torch::Tensor TensorRows::get_batch(c10::ArrayRef<size_t> indices) const {
  const torch::NoGradGuard no_grad;
  auto index = torch::empty({static_cast<int64_t>(indices.size())}, torch::kLong);
  for (size_t i = 0; i < indices.size(); ++i) index.data_ptr<int64_t>()[i] = static_cast<int64_t>(indices[i]);
  return rows_.index_select(0, index.to(rows_.device())).detach();
}

TensorPairs::TensorPairs(const torch::Tensor& data, const torch::Tensor& target)
    : data_(data), target_(target) {
  if (data_.size() != target_.size()) {
    throw InvalidArgument(c10::str("[Trainer] expected as many targets as examples, ", *data_.size(),
                                   ", but got ", *target_.size()));
  }
}

}  // namespace lockstep::detail
