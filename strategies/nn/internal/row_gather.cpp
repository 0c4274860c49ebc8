#include "lockstep/strategies/nn/internal/row_gather.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/row_kernels.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/internal/parallel_for.h"
#include "lockstep/strategies/nn/internal/distinct_rows.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Minimum number of rows that a thread copies.
constexpr int64_t kGrain = 4096;

std::span<const int64_t> span_of(const at::Tensor& numbers) {
  return {numbers.const_data_ptr<int64_t>(), static_cast<size_t>(numbers.numel())};
}

/// Returns the bag of each index.
at::Tensor bags_of(const at::Tensor& offsets, int64_t num_places) {
  const auto begins = span_of(offsets);
  auto bags = at::empty({num_places}, offsets.options());
  auto* bag = bags.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : num_places;
    std::fill(bag + begins[i], bag + end, static_cast<int64_t>(i));
  }
  return bags;
}

/// Returns the number of indices in each bag, as a column. An empty bag counts as 1, to allow division.
at::Tensor lengths_of(const at::Tensor& offsets, int64_t num_places, const at::Tensor& like) {
  const auto ends = at::cat({offsets, at::full({1}, num_places, offsets.options())});
  return ends.diff().clamp_min(1).to(like.scalar_type()).unsqueeze(1);
}

/// CPU only.
template <typename T>
at::Tensor gather_as(const RowGather& gather, const at::Tensor& bags) {
  const int64_t columns = gather.values.size(1);
  const auto* values = gather.values.const_data_ptr<T>();
  const auto indices = span_of(gather.indices);
  if (!bags.defined()) {
    auto gathered = at::empty({gather.indices.numel(), columns}, gather.values.options());
    auto* copies = gathered.template mutable_data_ptr<T>();
    parallel_for(0, gather.indices.numel(), kGrain, [&](int64_t begin, int64_t end) {
      copy_rows(values, indices.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                columns, copies + begin * columns);
    });
    return gathered;
  }
  auto sums = at::zeros({gather.offsets.numel(), columns}, gather.values.options());
  add_rows(sums.template mutable_data_ptr<T>(), span_of(bags), values, indices, columns);
  if (gather.is_mean) sums.div_(lengths_of(gather.offsets, gather.indices.numel(), sums));
  return sums;
}

/// Whether the gradient's rows can be read in place by number, as rows of a larger tensor that contains it,
/// such as the gradient of many tables' rows side by side.
bool has_numbered_rows(const at::Tensor& gradient) {
  const int64_t columns = gradient.size(1);
  return gradient.stride(1) == 1 && gradient.stride(0) >= columns && gradient.stride(0) % columns == 0;
}

/// Returns the sum over its indices for each of `num_rows` rows. `bags` gives each index's row in the
/// gradient; if undefined, each index has its own. Requires has_numbered_rows().
template <typename T>
at::Tensor sums_as(const at::Tensor& gradient, const at::Tensor& indices, const at::Tensor& bags,
                   int64_t num_rows) {
  const int64_t columns = gradient.size(1);
  const int64_t distance = gradient.stride(0) / columns;
  auto from = bags.defined() ? bags : at::arange(indices.numel(), indices.options());
  if (distance > 1) from = from * distance;
  auto sums = at::zeros({num_rows, columns}, gradient.options());
  add_rows(sums.template mutable_data_ptr<T>(), span_of(indices), gradient.const_data_ptr<T>(), span_of(from),
           columns);
  return sums;
}

at::Tensor sparse_gradient(const at::Tensor& rows, const at::Tensor& values, at::IntArrayRef table_sizes) {
  auto gradient = at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), values, table_sizes,
                                                values.options().layout(at::kSparse));
  return gradient._coalesced_(true);
}

bool has_kernels(const at::Tensor& values) {
  return values.is_cpu() && values.is_contiguous() &&
         (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble);
}

void refuse_create_graph() {
  if (at::GradMode::is_enabled())
    throw InvalidArgument(
        "[ShardedEmbedding] expected backward without create_graph: a table has no second derivatives");
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

class RowGatherBackward final : public Node {
 public:
  RowGatherBackward(const RowGather& gather, at::Tensor bags)
      : rows_(gather.rows),
        indices_(gather.indices),
        version_(version_of(indices_)),
        bags_(std::move(bags)),
        lengths_(gather.is_mean ? lengths_of(gather.offsets, indices_.numel(), gather.values) : at::Tensor()),
        table_sizes_(gather.table.sizes().vec()) {}

  std::string name() const override { return "RowGatherBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    refuse_create_graph();
    if (version_of(indices_) != version_)
      throw InvalidArgument(
          "[ShardedEmbedding] expected the ids of forward() in backward, but they were changed in place");
    if (!rows_.defined()) {  // indices are row numbers
      auto distinct = distinct_rows(indices_);
      rows_ = std::move(distinct.rows);
      indices_ = std::move(distinct.indices);
      version_ = version_of(indices_);
    }
    auto gradient = gradients[0];
    if (lengths_.defined()) gradient = gradient / lengths_;
    if (!has_numbered_rows(gradient)) gradient = gradient.contiguous();
    const auto sums = gradient.scalar_type() == at::kFloat
                          ? sums_as<float>(gradient, indices_, bags_, rows_.numel())
                          : sums_as<double>(gradient, indices_, bags_, rows_.numel());
    return {sparse_gradient(rows_, sums, table_sizes_)};
  }

 private:
  at::Tensor rows_;
  at::Tensor indices_;  // may be the caller's ids
  uint32_t version_;
  const at::Tensor bags_;
  const at::Tensor lengths_;
  const std::vector<int64_t> table_sizes_;
};

/// Turns the gradient of rows read from a table into a sparse gradient of the table.
class ReadRowsBackward final : public Node {
 public:
  ReadRowsBackward(at::Tensor rows, std::vector<int64_t> table_sizes)
      : rows_(std::move(rows)), table_sizes_(std::move(table_sizes)) {}

  std::string name() const override { return "ReadRowsBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    refuse_create_graph();
    return {sparse_gradient(rows_, gradients[0], table_sizes_)};
  }

 private:
  at::Tensor rows_;
  std::vector<int64_t> table_sizes_;
};

/// Makes `result` a function of the table, whose gradient `node` computes.
void connect(const std::shared_ptr<Node>& node, const at::Tensor& table, at::Tensor& result) {
  node->set_next_edges(torch::autograd::collect_next_edges(table));
  torch::autograd::create_gradient_edge(result, node);
}

/// Uses LibTorch's functions, which exist for every device and dtype.
at::Tensor gather_anywhere(const RowGather& gather, bool needs_gradient) {
  auto values = gather.values;
  const bool is_whole = !gather.rows.defined();
  if (needs_gradient && !is_whole) {
    values = values.detach();
    connect({new ReadRowsBackward(gather.rows, gather.table.sizes().vec()), torch::autograd::deleteNode},
            gather.table, values);
  }
  if (!gather.offsets.defined() || gather.offsets.numel() == 0)  // embedding_bag has no result for 0 bags
    return at::embedding(values, gather.indices, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, is_whole);
  return std::get<0>(at::embedding_bag(values, gather.indices, gather.offsets,
                                       /*scale_grad_by_freq=*/false, gather.is_mean ? 1 : 0, is_whole));
}

}  // namespace

at::Tensor gather_rows(const RowGather& given) {
  RowGather gather = given;
  if (gather.offsets.defined() && gather.offsets.numel() == 0)  // no bag uses any index
    gather.indices = gather.indices.narrow(0, 0, 0);
  const bool needs_gradient = at::GradMode::is_enabled() && gather.table.requires_grad();
  if (!has_kernels(gather.values)) return gather_anywhere(gather, needs_gradient);
  at::Tensor gathered, bags;
  {
    const at::NoGradGuard no_grad;
    if (gather.offsets.defined()) bags = bags_of(gather.offsets, gather.indices.numel());
    gathered = gather.values.scalar_type() == at::kFloat ? gather_as<float>(gather, bags)
                                                         : gather_as<double>(gather, bags);
  }
  if (needs_gradient)
    connect({new RowGatherBackward(gather, bags), torch::autograd::deleteNode}, gather.table, gathered);
  return gathered;
}

}  // namespace lockstep
