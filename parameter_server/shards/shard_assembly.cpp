#include "lockstep/parameter_server/shards/shard_assembly.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Some rows of a saved shard.
struct Slice {
  const SavedShard* part = nullptr;
  RowRange rows;  // of the variable
};

template <typename... Parts>
[[noreturn]] void refuse_assembly(const Parts&... parts) {
  throw InvalidArgument(c10::str("[assemble_shard] ", parts...));
}

/// Slices of the parts that cover `rows`, in order.
std::vector<Slice> slices_of(const std::vector<SavedShard>& parts, const RowRange& rows) {
  std::vector<const SavedShard*> ordered;
  for (const auto& part : parts)
    if (part.rows.begin < rows.end && rows.begin < part.rows.end) ordered.push_back(&part);
  std::sort(ordered.begin(), ordered.end(), [](const SavedShard* one, const SavedShard* other) {
    return one->rows.begin < other->rows.begin;
  });
  std::vector<Slice> slices;
  int64_t next = rows.begin;
  for (const SavedShard* part : ordered) {
    const int64_t begin = std::max(part->rows.begin, rows.begin);
    if (begin > next) refuse_assembly("expected each row once, but got no row ", next);
    if (begin < next) refuse_assembly("expected each row once, but got row ", begin, " twice");
    next = std::min(part->rows.end, rows.end);
    slices.push_back({part, {begin, next}});
  }
  if (next < rows.end) refuse_assembly("expected each row once, but got no row ", next);
  return slices;
}

bool has_rows(const at::Tensor& tensor, const RowRange& rows) {
  return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == rows.size();
}

/// Concatenates the slices of `tensor_of(part)`.
template <typename TensorOf>
at::Tensor joined(const std::string& what, const std::vector<Slice>& slices, const TensorOf& tensor_of) {
  std::vector<at::Tensor> cut;
  for (const auto& [part, rows] : slices) {
    const at::Tensor& whole = tensor_of(part->saved);
    if (!has_rows(whole, part->rows))
      refuse_assembly(what, ": expected rows ", part->rows.begin, " to ", part->rows.end - 1, ", but got ",
                      whole.defined() ? c10::str("a tensor of shape ", whole.sizes()) : "none");
    cut.push_back(whole.narrow(0, rows.begin - part->rows.begin, rows.size()));
    const auto& first = cut.front();
    if (whole.scalar_type() != first.scalar_type() || whole.sizes().slice(1) != first.sizes().slice(1))
      refuse_assembly(what, ": expected ", first.toString(), " of rows of shape ", first.sizes().slice(1),
                      ", but got ", whole.toString(), " of ", whole.sizes().slice(1));
  }
  return at::cat(cut);
}

}  // namespace

ParameterShard::Saved assemble_shard(const std::vector<SavedShard>& parts, const RowRange& rows) {
  for (const auto& part : parts)
    if (part.rows == rows) return part.saved;
  const auto slices = slices_of(parts, rows);
  if (slices.empty())
    refuse_assembly("expected some of the rows ", rows.begin, " to ", rows.end - 1, ", but got none");

  const auto& first = slices.front().part->saved;
  ParameterShard::Saved result;
  result.values = joined(
      "values", slices, [](const auto& saved) -> const auto& { return saved.values; });
  AppliedPushes pushes;
  for (const auto& slice : slices) {
    const auto& saved = slice.part->saved;
    if (saved.optimizer.size() != first.optimizer.size())
      refuse_assembly("expected ", first.optimizer.size(), " tensors of an optimizer, but got ",
                      saved.optimizer.size());
    result.version = std::max(result.version, saved.version);
    pushes.unite(AppliedPushes::restored(saved.pushes));
  }
  result.pushes = pushes.saved();
  for (size_t i = 0; i < first.optimizer.size(); ++i) {
    const auto& [name, example] = first.optimizer[i];
    const auto tensor_of = [i](const auto& saved) -> const auto& {
      return saved.optimizer[i].second;
    };
    for (const auto& slice : slices)
      if (slice.part->saved.optimizer[i].first != name)
        refuse_assembly("expected ", name, ", but got ", slice.part->saved.optimizer[i].first);
    if (example.defined() && example.dim() > 0) {
      result.optimizer.emplace_back(name, joined(name, slices, tensor_of));
      continue;
    }
    at::Tensor largest = example;
    for (const auto& slice : slices) {
      const auto& own = tensor_of(slice.part->saved);
      if (!own.defined() || own.dim() != 0) refuse_assembly(name, ": expected one number for all rows");
      if (own.template item<double>() > largest.template item<double>()) largest = own;
    }
    result.optimizer.emplace_back(name, largest.clone());
  }
  return result;
}

}  // namespace lockstep
