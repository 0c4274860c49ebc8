#include "lockstep/parameter_server/shards/saved_rows.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

at::Tensor RowPiece::find(const std::string& name) const {
  for (const auto& [own, tensor] : state)
    if (own == name) return tensor;
  return {};
}

int64_t rows_of_piece(int64_t row_bytes) {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  constexpr int64_t kMostRows = 4096;
  return std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(1, row_bytes), 1, kMostRows);
}

int64_t count_in_range(const at::Tensor& numbers, const RowRange& rows) {
  const auto* number = numbers.const_data_ptr<int64_t>();
  return std::count_if(number, number + numbers.numel(),
                       [&](int64_t row) { return row >= rows.begin && row < rows.end; });
}

TensorRows::TensorRows(RowPiece all) : all_(std::move(all)) {
  if (!all_.values.defined() || all_.values.dim() == 0)
    throw InvalidArgument("values: expected rows, but got none");
  for (const auto& [name, tensor] : all_.state)
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != all_.values.size(0))
      throw InvalidArgument(
          c10::str(name, ": expected ", all_.values.size(0), " rows, but got ",
                   tensor.defined() ? c10::str(tensor.toString(), " of shape ", tensor.sizes()) : "none"));
  const auto rows = all_.find("rows");
  if (!rows.defined() || rows.scalar_type() != at::kLong || rows.dim() != 1)
    throw InvalidArgument(
        c10::str("rows: expected numbers of int64, but got ",
                 rows.defined() ? c10::str(rows.toString(), " of shape ", rows.sizes()) : "none"));
}

std::optional<RowPiece> TensorRows::next() {
  const int64_t count = all_.values.size(0);
  if (next_ == count) return std::nullopt;
  int64_t row_bytes = 0;
  for (const auto& [name, tensor] : all_.state) row_bytes += static_cast<int64_t>(tensor.nbytes()) / count;
  row_bytes += static_cast<int64_t>(all_.values.nbytes()) / count;
  const int64_t size = std::min(rows_of_piece(row_bytes), count - next_);
  RowPiece piece{all_.values.narrow(0, next_, size), {}};
  for (const auto& [name, tensor] : all_.state) piece.state.emplace_back(name, tensor.narrow(0, next_, size));
  next_ += size;
  return piece;
}

int64_t TensorRows::count_in(const RowRange& rows) const {
  return count_in_range(all_.find("rows").contiguous(), rows);
}

}  // namespace lockstep
