#include "lockstep/datasets/tensors/tensor_dataset.h"

#include <torch/data/example.h>
#include <torch/types.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/tensors/collated_dataset.h"

namespace lockstep {

static_assert(CollatedDataset<TensorDataset>);

namespace {

at::Tensor gather_rows(const at::Tensor& tensor, c10::ArrayRef<size_t> indices) {
  const auto count = static_cast<int64_t>(indices.size());
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    // Loader threads call this, and index_select would start a team of threads in each of them.
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes[0] = count;
    at::Tensor rows = torch::empty(sizes, tensor.options());
    const size_t row_bytes = tensor.nbytes() / std::max<size_t>(1, static_cast<size_t>(tensor.size(0)));
    const auto* from = static_cast<const std::byte*>(tensor.const_data_ptr());
    auto* to = static_cast<std::byte*>(rows.mutable_data_ptr());
    for (const size_t index : indices) to = std::copy_n(from + index * row_bytes, row_bytes, to);
    return rows;
  }
  at::Tensor positions = torch::empty({count}, torch::kLong);
  std::copy(indices.begin(), indices.end(), positions.mutable_data_ptr<int64_t>());
  return tensor.index_select(0, positions.to(tensor.device()));
}

void check_rows(const at::Tensor& tensor, const std::string& name) {
  if (tensor.defined() && tensor.dim() > 0) return;
  throw std::invalid_argument("[TensorDataset] expected " + name + " with one row an example, but got " +
                              (tensor.defined() ? "a scalar" : "an undefined tensor"));
}

/// Returns positions spread over `size` rows: all of them if there are few.
std::vector<size_t> sampled_rows(size_t size) {
  constexpr size_t kMostRows = 256;
  const size_t count = std::min(size, kMostRows);
  std::vector<size_t> rows;
  for (size_t i = 0; i < count; ++i) rows.push_back(i * size / count);
  return rows;
}

/// Returns a text such as "Byte [60000, 1, 28, 28] (checksum 5f3a91c2)".
std::string describe_tensor(const at::Tensor& tensor) {
  const std::string text = c10::str(tensor.scalar_type(), " ", tensor.sizes());
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) return text;
  const at::Tensor rows =
      gather_rows(tensor, sampled_rows(static_cast<size_t>(tensor.size(0)))).to(torch::kCPU).contiguous();
  DataChecksum checksum;
  checksum.add(rows.const_data_ptr(), rows.nbytes());
  return text + " (checksum " + checksum.text() + ")";
}

}  // namespace

TensorDataset::TensorDataset(at::Tensor data) : data_(std::move(data)) {
  check_rows(data_, "data");
}

TensorDataset::TensorDataset(at::Tensor data, at::Tensor target)
    : data_(std::move(data)), target_(std::move(target)) {
  check_rows(data_, "data");
  check_rows(target_, "a target");
  if (data_.size(0) != target_.size(0)) {
    throw std::invalid_argument("[TensorDataset] expected as many targets as data, but got " +
                                std::to_string(data_.size(0)) + " data and " +
                                std::to_string(target_.size(0)) + " targets");
  }
}

std::optional<size_t> TensorDataset::size() const {
  return static_cast<size_t>(data_.size(0));
}

torch::data::Example<> TensorDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, *size(), "TensorDataset");
  return {gather_rows(data_, indices), target_.defined() ? gather_rows(target_, indices) : target_};
}

std::string TensorDataset::identity() const {
  std::string text = describe_tensor(data_);
  if (target_.defined()) text += " with targets " + describe_tensor(target_);
  return text;
}

torch::data::Example<> TensorDataset::device_transform(torch::data::Example<> batch) const {
  return batch;
}

void check_indices(c10::ArrayRef<size_t> indices, size_t size, const char* dataset) {
  for (const size_t index : indices) {
    if (index >= size) {
      throw std::invalid_argument("[" + std::string(dataset) + "] expected indices below " +
                                  std::to_string(size) + ", but got " + std::to_string(index));
    }
  }
}

}  // namespace lockstep
