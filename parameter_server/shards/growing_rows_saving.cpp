#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "lockstep/parameter_server/shards/growing_rows.h"
#include "lockstep/runtime/base/errors.h"

// Saves and restores the rows of a GrowingRows.

namespace lockstep {
namespace {

/// Throws if an int64 vector of this name does not have a number for each row.
const int64_t* numbers_in(const std::string& name, const at::Tensor& tensor, int64_t count) {
  if (!tensor.defined() || tensor.scalar_type() != at::kLong || tensor.dim() != 1 ||
      tensor.numel() != count || !tensor.is_contiguous())
    throw InvalidArgument(
        c10::str(name, ": expected ", count, " numbers of int64, but got ",
                 tensor.defined() ? c10::str(tensor.scalar_type(), " of shape ", tensor.sizes()) : "none"));
  return tensor.const_data_ptr<int64_t>();
}

}  // namespace

at::Tensor GrowingRows::empty_to_save(at::Tensor like, int64_t num_rows) const {
  if (!disk_ || num_rows == 0) return empty_rows(like, num_rows);
  auto sizes = like.sizes().vec();
  sizes[0] = num_rows;
  const auto bytes = disk_->map_bytes(static_cast<size_t>(c10::multiply_integers(sizes)) * like.itemsize());
  return at::from_blob(
      bytes.get(), sizes, [bytes](void*) {}, like.options());
}

GrowingRows::Saved GrowingRows::save() const {
  const int64_t count = store_->size();
  Saved saved{empty_to_save(like_, count), {}};
  std::vector<std::byte*> parts{bytes_of(saved.values)};
  for (const auto& name : state_names_) {
    saved.state.emplace_back(name, empty_to_save(like_, count));
    parts.push_back(bytes_of(saved.state.back().second));
  }
  const auto no_numbers = at::empty({0}, at::kLong);
  const auto rows = empty_to_save(no_numbers, count), updates = empty_to_save(no_numbers, count);
  parts.push_back(bytes_of(rows));
  parts.push_back(bytes_of(updates));
  const int64_t at_once = rows_of_piece(row_bytes_ * static_cast<int64_t>(parts.size()));
  int64_t i = 0;
  // Pages of mapped files would stay in memory until the system needs it.
  const auto release_to = [&](int64_t end) {
    const int64_t begin = (end - 1) / at_once * at_once;
    for (size_t part = 0; disk_ && part < parts.size(); ++part) {
      const int64_t size =
          part < 1 + state_names_.size() ? row_bytes_ : static_cast<int64_t>(sizeof(int64_t));
      disk_->release(parts[part] + begin * size, static_cast<size_t>((end - begin) * size));
    }
  };
  store_->for_each([&](int64_t row, uint64_t update, std::span<const std::byte> record) {
    for (size_t part = 0; part < 1 + state_names_.size(); ++part)
      std::memcpy(parts[part] + i * row_bytes_, record.data() + static_cast<int64_t>(part) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
    rows.data_ptr<int64_t>()[i] = filtered_.rows.begin + row;
    updates.data_ptr<int64_t>()[i] = static_cast<int64_t>(update);
    if (++i % at_once == 0 || i == count) release_to(i);
  });
  saved.state.emplace_back("rows", rows);
  saved.state.emplace_back("row_last_update", updates);
  if (sketch_) saved.state.emplace_back("row_counts", sketch_->counters().clone());
  return saved;
}

/// Throws if save() cannot have returned these rows, after those of update `last`.
void GrowingRows::check_piece(const RowPiece& piece, uint64_t last, uint64_t update) const {
  const auto rows = piece.find("rows");
  const int64_t count = rows.defined() ? rows.numel() : 0;
  const auto* numbers = numbers_in("rows", rows, count);
  const auto* updates = numbers_in("row_last_update", piece.find("row_last_update"), count);
  for (int64_t i = 0; i < count; ++i) {
    if (numbers[i] < filtered_.rows.begin || numbers[i] >= filtered_.rows.end) refuse_row(numbers[i]);
    if (updates[i] < static_cast<int64_t>(last) || static_cast<uint64_t>(updates[i]) > update)
      throw InvalidArgument(c10::str("row_last_update: expected numbers that ascend to ", update,
                                     " at most, but got ", updates[i]));
    last = static_cast<uint64_t>(updates[i]);
  }
  auto sizes = like_.sizes().vec();
  sizes[0] = count;
  const auto check_part = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.sizes() != at::IntArrayRef(sizes) || !tensor.is_contiguous() ||
        tensor.scalar_type() != like_.scalar_type() || !tensor.is_cpu())
      throw InvalidArgument(
          c10::str(name, ": expected ", like_.toString(), " of shape ", at::IntArrayRef(sizes), ", but got ",
                   tensor.defined() ? c10::str(tensor.toString(), " of shape ", tensor.sizes()) : "none"));
  };
  check_part("values", piece.values);
  for (const auto& name : state_names_) check_part(name, piece.find(name));
}

void GrowingRows::refuse_row(int64_t row) const {
  throw InvalidArgument(c10::str("rows: expected rows of ", filtered_.rows.begin, " to ",
                                 filtered_.rows.end - 1, ", each once, but got ", row));
}

void GrowingRows::restore(const Saved& saved, uint64_t update) {
  at::Tensor counts;
  RowPiece all{saved.values, {}};
  for (const auto& part : saved.state) {
    if (part.first == "row_counts") {
      counts = part.second;
    } else if (part.second.defined() && part.second.dim() > 0) {
      all.state.push_back(part);
    }
  }
  if (sketch_ && counts.defined()) RowCountSketch::check(counts);
  if (saved.rows) {
    restore_rows(*saved.rows, update);
  } else {
    check_piece(all, 0, update);
    std::unordered_set<int64_t> seen;
    const auto rows = all.find("rows");
    for (int64_t i = 0; i < rows.numel(); ++i)
      if (const int64_t row = rows.const_data_ptr<int64_t>()[i]; !seen.insert(row).second) refuse_row(row);
    TensorRows pieces(std::move(all));
    restore_rows(pieces, update);
  }
  if (sketch_ && counts.defined()) sketch_->restore(counts);
}

void GrowingRows::restore_rows(SavedRows& rows, uint64_t update) {
  store_->clear();
  try {
    // A row is left out if the limit has become smaller and the last rows of the order need the memory.
    int64_t left_out = 0;
    if (growth_.max_bytes > 0 && !disk_)
      left_out = std::max<int64_t>(0, rows.count_in(filtered_.rows) - store_->capacity());
    uint64_t last = 0;
    while (const auto piece = rows.next()) {
      check_piece(*piece, last, update);
      const auto updates = piece->find("row_last_update");
      const int64_t count = updates.numel();
      if (count > 0) last = static_cast<uint64_t>(updates.const_data_ptr<int64_t>()[count - 1]);
      const int64_t first = std::min(left_out, count);
      left_out -= first;
      restore_piece(*piece, first);
    }
  } catch (...) {
    store_->clear();
    throw;
  }
  most_bytes_ = std::max(most_bytes_, bytes());
}

/// Writes the rows from index `first` on.
void GrowingRows::restore_piece(const RowPiece& piece, int64_t first) {
  const auto rows = piece.find("rows"), updates = piece.find("row_last_update");
  const auto* numbers = rows.const_data_ptr<int64_t>();
  std::vector<const std::byte*> parts{bytes_of(piece.values)};
  for (const auto& name : state_names_) parts.push_back(bytes_of(piece.find(name)));
  std::vector<int64_t> expected;
  for (int64_t i = first; i < rows.numel(); ++i) expected.push_back(numbers[i] - filtered_.rows.begin);
  std::sort(expected.begin(), expected.end());
  store_->expect(expected);
  auto record = empty_record();
  std::array<std::byte, 1> probe{};
  const auto size = static_cast<size_t>(row_bytes_);
  for (int64_t i = first; i < rows.numel(); ++i) {
    const int64_t row = numbers[i] - filtered_.rows.begin;
    if (store_->read(row, probe)) refuse_row(numbers[i]);
    for (size_t each = 0; each < parts.size(); ++each)
      std::memcpy(record.data() + each * size, parts[each] + i * row_bytes_, size);
    store_->write(row, static_cast<uint64_t>(updates.const_data_ptr<int64_t>()[i]), record);
  }
}

}  // namespace lockstep
