#include "lockstep/parameter_server/shards/merged_rows.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Returns the rows of these indices.
RowPiece chosen_rows(const RowPiece& piece, const at::Tensor& indices) {
  RowPiece chosen{piece.values.index_select(0, indices), {}};
  for (const auto& [name, tensor] : piece.state)
    chosen.state.emplace_back(name, tensor.index_select(0, indices));
  return chosen;
}

int64_t bytes_of_row(const RowPiece& piece) {
  auto bytes = piece.values.nbytes();
  for (const auto& [name, tensor] : piece.state) bytes += tensor.nbytes();
  return static_cast<int64_t>(bytes) / std::max<int64_t>(1, piece.values.size(0));
}

/// Throws unless rows of both can be in one tensor.
void check_joinable(const std::string& name, const at::Tensor& tensor, const at::Tensor& first) {
  if (tensor.scalar_type() == first.scalar_type() && tensor.sizes().slice(1) == first.sizes().slice(1))
    return;
  throw InvalidArgument(c10::str(name, ": expected rows of ", first.toString(), " of shape ",
                                 first.sizes().slice(1), ", but got ", tensor.toString(), " of ",
                                 tensor.sizes().slice(1)));
}

RowPiece joined(const std::vector<RowPiece>& pieces) {
  if (pieces.size() == 1) return pieces.front();
  std::vector<at::Tensor> tensors;
  for (const auto& piece : pieces) tensors.push_back(piece.values);
  const auto& first = pieces.front();
  for (const auto& tensor : tensors) check_joinable("values", tensor, first.values);
  RowPiece all{at::cat(tensors), {}};
  for (const auto& [name, example] : first.state) {
    tensors.clear();
    for (const auto& piece : pieces) {
      const auto own = piece.find(name);
      if (!own.defined() || piece.state.size() != first.state.size())
        throw InvalidArgument("expected the same state in all parts, but only some have " + name);
      check_joinable(name, own, example);
      tensors.push_back(own);
    }
    all.state.emplace_back(name, at::cat(tensors));
  }
  return all;
}

}  // namespace

int64_t MergedRows::Part::update() const {
  return piece.find("row_last_update").const_data_ptr<int64_t>()[next];
}

void MergedRows::add(std::shared_ptr<SavedRows> rows, uint64_t later) {
  parts_.push_back({std::move(rows), static_cast<int64_t>(later)});
}

/// Returns whether the part has further rows in the range, and reads them.
bool MergedRows::has_next(Part& part) const {
  while (!part.piece.values.defined() || part.next == part.piece.values.size(0)) {
    if (!part.rows) return false;
    auto piece = part.rows->next();
    if (!piece) {
      part = {};
      return false;
    }
    const auto numbers = piece->find("rows"), updates = piece->find("row_last_update");
    for (const auto& [name, tensor] : {std::pair("rows", numbers), std::pair("row_last_update", updates)})
      if (!tensor.defined() || tensor.scalar_type() != at::kLong || tensor.dim() != 1)
        throw InvalidArgument(std::string(name) + ": expected numbers of int64, but got others");
    if (count_in_range(numbers.contiguous(), range_) < numbers.numel()) {
      const auto chosen = (numbers >= range_.begin).logical_and(numbers < range_.end);
      piece = chosen_rows(*piece, chosen.nonzero().squeeze(1));
    }
    part.piece = std::move(*piece);
    part.next = 0;
    for (auto& [name, tensor] : part.piece.state)
      if (name == "row_last_update") tensor = (tensor + part.later).contiguous();
  }
  return true;
}

/// Takes the part's next rows, as far as no row of another part comes before them.
RowPiece MergedRows::take(size_t index, int64_t most) {
  Part& part = parts_[index];
  int64_t last = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < parts_.size(); ++i)
    if (i != index && has_next(parts_[i])) last = std::min(last, parts_[i].update() - (i < index ? 1 : 0));
  const auto updates = part.piece.find("row_last_update");
  const auto* update = updates.const_data_ptr<int64_t>();
  const int64_t end = std::min(updates.numel(), part.next + most);
  int64_t next = part.next;
  while (next < end && update[next] <= last) ++next;
  const int64_t size = next - part.next;
  RowPiece taken{part.piece.values.narrow(0, part.next, size), {}};
  for (const auto& [name, tensor] : part.piece.state)
    taken.state.emplace_back(name, tensor.narrow(0, part.next, size));
  part.next = next;
  return taken;
}

std::optional<RowPiece> MergedRows::next() {
  std::vector<RowPiece> pieces;
  int64_t left = 0;
  do {
    size_t first = parts_.size();
    for (size_t i = 0; i < parts_.size(); ++i)
      if (has_next(parts_[i]) && (first == parts_.size() || parts_[i].update() < parts_[first].update()))
        first = i;
    if (first == parts_.size()) break;
    if (pieces.empty()) left = rows_of_piece(bytes_of_row(parts_[first].piece));
    pieces.push_back(take(first, left));
    left -= pieces.back().values.size(0);
  } while (left > 0);
  if (pieces.empty()) return std::nullopt;
  return joined(pieces);
}

int64_t MergedRows::count_in(const RowRange& rows) const {
  const RowRange both{std::max(rows.begin, range_.begin), std::min(rows.end, range_.end)};
  int64_t count = 0;
  for (const auto& part : parts_) count += part.rows ? part.rows->count_in(both) : 0;
  return count;
}

}  // namespace lockstep
